"""`rmq profile` shows profiles without their secrets."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from tests.kit.terminal import Terminal


def json_of(capfd, *arguments):
    """Run a command and return its JSON."""
    assert run([*arguments, "-o", "json"]) == 0
    out, err = capfd.readouterr()
    assert "prod-secret" not in out + err
    return json.loads(out)


def test_the_list_shows_what_commands_use(profiles, capfd):
    found = json_of(capfd, "profile", "list")
    assert [(each["name"], each["in_use"]) for each in found] == [
        ("dev", True),
        ("prod", False),
        ("cloud", False),
    ]
    assert found[1] == {
        "name": "prod",
        "in_use": False,
        "namesrv": "prod-a:1;prod-b:1",
        "endpoints": None,
        "credentials": "keys in the profile",
        "tls": True,
        "read_only": False,
        "protected": False,
        "error": None,
    }


def test_the_list_shows_profiles_that_cannot_be_used(write, capfd):
    path = write("[profiles.bad]\nx = 1\n")
    (row,) = json_of(capfd, "profile", "list")
    assert row["error"] == f"{path}: profile bad: x is no setting of a profile"


def test_a_narrow_terminal_keeps_whole_headings(profiles, monkeypatch):
    """They were cut to two letters each."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    assert run(["profile", "list", "--color", "never"]) == 0
    lines = [line.rstrip() for line in terminal.getvalue().splitlines()]
    assert lines[0] == "PROFILE  IN USE  TLS"
    assert [line.split() for line in lines[1:4]] == [
        ["dev", "yes", "no"],
        ["prod", "no", "yes"],
        ["cloud", "no", "no"],
    ]
    assert lines[4].startswith("hidden: NAMESRV,")


def test_an_empty_list_says_where_profiles_would_be(capfd):
    assert run(["profile", "list"]) == 0
    assert "no profiles in /" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("variables", "name", "by"),
    [
        ({}, "dev", "rmq profile use"),
        ({"RMQ_PROFILE": "cloud"}, "cloud", "RMQ_PROFILE"),
        ({"NAMESRV_ADDR": "dev:1"}, "dev", "rmq profile use"),
    ],
)
def test_show_says_what_has_chosen_the_profile(
    profiles, capfd, monkeypatch, variables, name, by
):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    found = json_of(capfd, "profile", "show")
    assert (found["name"], found["chosen_by"]) == (name, by)


def test_show_says_that_the_environment_is_used(profiles, capfd, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert run(["profile", "show"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "NAMESRV_ADDR env:1 is used, not profile dev (namesrv dev:1)" in err
    assert "commands use no profile" in err


def test_show_names_one(profiles, capfd):
    found = json_of(capfd, "profile", "show", "prod")
    assert found["addresses"] == {"172.18.0.3:10911": "127.0.0.1:10911"}
    assert found["chosen_by"] is None
    assert run(["profile", "show", "prod"]) == 0
    assert "prod-secret" not in capfd.readouterr().out
