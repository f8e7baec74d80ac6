"""The errors of every command are JSON if the profile's output is."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.main import run
from tests.cli.profile.test_guard import CHANGING, SOMETIMES

PROFILES = """\
use = "one"
[profiles.one]
namesrv = "127.0.0.1:1"
output = "json"
[profiles.lines]
namesrv = "127.0.0.1:2"
output = "jsonl"
[profiles.table]
namesrv = "127.0.0.1:3"
output = "table"
"""
WRONG = "--no-such-option"


@pytest.fixture
def error(capfd, write):
    """Runs a command that fails; returns its code, and its error in JSON or None."""
    write(PROFILES)

    def fail(*words):
        code = run(words)
        out, err = capfd.readouterr()
        assert out == ""
        last = err.splitlines()[-1]
        return code, json.loads(last)["error"] if last.startswith("{") else None

    return fail


@pytest.mark.parametrize("path", [entry.path for entry in COMMANDS])
def test_a_wrong_option_is_told_in_json(error, path):
    code, said = error(*path.split(), WRONG)
    assert code == 2
    assert (said["kind"], said["exit_code"]) == ("UsageError", 2)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        *CHANGING.items(),
        *((path, words) for path, (words, _) in SOMETIMES.items() if path != "import"),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_in_json(error, path, words):
    code, said = error(*path.split(), *words, "--yes")
    assert said["exit_code"] == code
    assert said["message"]


@pytest.mark.parametrize(
    ("words", "is_json"),
    [
        (["topics"], True),
        (["topics", "-n", "127.0.0.1:1"], True),
        (["topics", "--profile", "lines"], True),
        (["topics", "--profile=lines"], True),
        (["profile", "show", "nobody"], True),
        (["lagg"], True),
        (["topics", "-o", "table"], False),
        (["topics", "-otable"], False),
        (["topics", "--profile", "table"], False),
        (["topics", "--profile", "none"], False),
        (["topics", "-n", "127.0.0.1:9"], False),
        (["topics", "-n127.0.0.1:9"], False),
        (["topics", "--namesrv=127.0.0.1:9"], False),
        (["tail", "t", "--endpoints", "127.0.0.1:9"], False),
        (["topics", "-n", "127.0.0.1:x"], False),
        (["topics", "--profile", "nobody"], False),
        (["topics", "--profile"], False),
        (["lag", "--store", "/no/folder"], False),
        (["send", "t", "--", "--profile", "table"], True),
    ],
)
def test_the_profile_that_the_command_uses_says_it(error, words, is_json):
    code, said = error(*words)
    assert code != 0
    assert (said is not None) == is_json


@pytest.mark.parametrize(("server", "is_json"), [(4, True), (5, False)])
def test_a_profile_with_a_proxy_says_it_if_that_proxy_is_named(
    error, write, server, is_json
):
    write(
        'use = "proxy"\n[profiles.proxy]\nendpoints = "127.0.0.1:4"\noutput = "json"\n'
    )
    _, said = error("tail", "t", "--endpoints", f"127.0.0.1:{server}")
    assert (said is not None) == is_json


def test_the_json_is_that_of_the_option(error, capfd):
    by_profile = error("topics")
    assert error("topics", "-o", "json", "-n", "127.0.0.1:1") == by_profile
    assert by_profile[1] == {
        "kind": "ConnectError",
        "message": "cannot connect to 127.0.0.1:1: connection refused",
        "hint": "check the servers of profile one",
        "exit_code": 5,
    }


def test_profiles_that_cannot_be_read_are_told_as_text(error, write):
    write("[profiles.p\n")
    assert error("topics") == (2, None)
