"""`rmq` finds and runs a command, and reports an error in at most three lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from rmqcli import __version__
from rmqcli.cli.commands import COMMANDS, GROUPS, entries_below
from rmqcli.cli.main import run
from rmqcli.cli.options import COMMON_NAMES
from tests.cli.sample_command import ERRORS, HELP, TABLE


@pytest.fixture
def rmq(capfd):
    """Run `rmq` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run(arguments, table=TABLE)
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


def test_help_is_drawn_from_the_table(rmq):
    code, out, err = rmq("--help")
    assert (code, err) == (0, "")
    assert f"sample    {HELP}" in out
    assert out.index("To begin:") < out.index("rmq demo") < out.index("Commands:")


def test_help_of_a_group_and_of_a_command(rmq):
    assert "echo  Echo a word." in rmq("nest", "--help")[1]
    code, out, _ = rmq("nest", "echo", "-h")
    assert code == 0
    assert out.startswith("Usage: rmq nest echo [OPTIONS] WORD\n")
    assert "  Example: rmq nest echo hello\n" in out
    assert "--namesrv" in out


def test_own_options_come_before_common_ones(rmq):
    _, out, _ = rmq("sample", "--help")
    titles = ["Usage:", "Example:", "Arguments:", "Options:", "Common options:"]
    assert [out.index(each) for each in titles] == sorted(map(out.index, titles))
    assert out.index("--idle-timeout") < out.index("Common options:")
    common = out.partition("Common options:")[2]
    assert re.findall(r"--[a-z]+", common) == [
        *("--namesrv", "--output", "--timeout", "--help"),
    ]


def test_version(rmq):
    assert rmq("--version") == (0, f"rmq {__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("nest",)])
def test_without_a_command_the_help_is_shown_as_a_usage_error(rmq, arguments):
    code, out, err = rmq(*arguments)
    assert (code, out) == (2, "")
    assert "Commands:" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["sampel"],
            "error: command sampel does not exist; did you mean sample?\n",
        ),
        (
            ["\x1b[2J"],
            "error: command \\x1b[2J does not exist\nhint: see: rmq --help\n",
        ),
        (
            ["nest", "ecko"],
            "error: command ecko does not exist; did you mean echo?\n",
        ),
        (
            ["sample"],
            "error: missing argument DO\nhint: write: rmq sample DO\n",
        ),
        (
            ["sample", "rows", "--colour", "never"],
            "error: option --colour does not exist; did you mean --color?\n",
        ),
        (
            ["sample", "rows", "-o", "jsnol"],
            (
                "error: --output: 'jsnol' is not one of table, json, jsonl, csv, help\n"
                "hint: did you mean jsonl?\n"
            ),
        ),
        (
            ["nest", "echo", "x", "-o", "help"],  # it has no fields to list
            "error: --output: 'help' is not one of raw, hex\n",
        ),
        (
            ["sample", "common", "--timeout", "1h3x"],
            (
                "error: --timeout: '1h3x': unknown unit 'x'; "
                "units are ms, s, m, h, d\n"
                "                      ^\n"
                "hint: write for example 500ms, 5s, 2m, 1h, 7d\n"
            ),
        ),
        (
            ["sample", "common", "--from", "-15x"],
            (
                "error: --from: '-15x': unknown unit 'x'; units are ms, s, m, h, d\n"
                "                   ^\n"
                "hint: write for example -100, -500ms, -15m, -2h, -1d\n"
            ),
        ),
        (
            ["sample", "common", "--queue", "\x07:x"],
            (
                "error: --queue: '\\x07:x': the queue id is not a number\n"
                "                      ^\n"
                "hint: write a queue id, or broker and id: 3, broker-a:3\n"
            ),
        ),
        (
            ["sample", "common", "--tls-key", "k"],
            "error: --tls-key needs --tls-cert\n",
        ),
    ],
)
def test_usage_errors_say_what_and_what_to_try(rmq, arguments, error):
    assert rmq(*arguments) == (2, "", error)


@pytest.mark.parametrize("do", sorted(ERRORS))
def test_an_error_is_at_most_three_lines_without_a_traceback(rmq, do):
    code, out, err = rmq("sample", do)
    assert code != 0
    assert out == ""
    assert 1 <= len(err.splitlines()) <= 3
    assert "Traceback" not in err
    assert not {c for c in err if c < " " or "\x7f" <= c < "\xa0"} - {"\n"}


@pytest.mark.parametrize(
    ("do", "err"),
    [
        ("failed", "error: it broke\nhint: mend it\n"),
        ("hostile", "error: remark \\x1b[2J\\u202e\nhint: do\\r\\x9bnot\n"),
        ("file", "error: no/such\\x1bfile: no such file or directory\n"),
        ("full", "error: cannot write the output: no space left on device\n"),
        ("text", "error: not a gzipped file\n"),
        ("textless", "error: OSError\n"),
        ("memory", "error: out of memory\n"),
        ("interrupt", "interrupted\n"),
        (
            "bug",
            (
                "error: internal error: ZeroDivisionError: a bug\n"
                "hint: run again with -vv for the traceback\n"
            ),
        ),
    ],
)
def test_what_an_error_says(rmq, do, err):
    assert rmq("sample", do)[2] == err


def test_a_traceback_needs_two_v(rmq):
    assert "Traceback" not in rmq("sample", "bug", "-v")[2]
    for flags in (["-vv"], ["-v", "-v"], ["--verbose", "-v"]):
        err = rmq("sample", "bug", *flags)[2]
        assert "Traceback (most recent call last)" in err
        assert err.endswith("-vv for the traceback\n")


@pytest.mark.parametrize(
    "flags", [["-o", "json"], ["-ojsonl"], ["--output=json"], ["--output", "jsonl"]]
)
def test_with_json_output_the_error_is_an_object(rmq, flags):
    code, out, err = rmq("sample", "not-found", *flags)
    assert (code, out) == (3, "")
    assert json.loads(err) == {
        "error": {
            "kind": "NotFoundError",
            "message": "no route",
            "hint": None,
            "exit_code": 3,
            "code": 17,
            "code_name": "TOPIC_NOT_EXIST",
        }
    }


def test_a_usage_error_is_an_object_too(rmq):
    _, _, err = rmq("sample", "common", "-o", "json", "--timeout", "5")
    error = json.loads(err)["error"]
    assert error["kind"] == "UsageError"
    assert error["exit_code"] == 2


def test_after_two_dashes_nothing_is_a_flag(rmq):
    _, _, err = rmq("sample", "failed", "--", "-o", "json")
    assert err == "error: it broke\nhint: mend it\n"


def test_a_command_may_return_its_exit_code(rmq):
    assert rmq("sample", "exit") == (8, "", "")


def test_timeout_means_the_same_in_every_command():
    """It is the time limit for a broker's answer, and no command has another one."""
    own = [each for entry in COMMANDS for each in entry.load().own_names]
    assert "timeout" not in own
    assert not set(own) & COMMON_NAMES


def test_the_table_names_every_group_and_no_command_twice():
    paths = [entry.path for entry in COMMANDS]
    assert len(set(paths)) == len(paths)
    assert {path.split()[0] for path in paths if " " in path} <= set(GROUPS)
    assert list(entries_below("nest ", table=TABLE)) == ["echo"]
    assert list(entries_below("", table=TABLE)) == ["sample", "nest"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_is_utf8_in_any_locale(rmq_cluster, rmq_topic, unbuffered):
    rmq_cluster.send(rmq_topic, ["größer"])
    environ = os.environ | {
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUNBUFFERED": unbuffered,
    }
    words = ("tail", rmq_topic, "-n", rmq_cluster.namesrv, "-o", "jsonl", "--no-follow")
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environ,
        check=True,
    )
    assert '"body":"größer"'.encode() in done.stdout
