"""`rmq profile` shows profiles without their secrets."""

from __future__ import annotations

import json
import os

import pytest

from rmqcli.cli.configuration.places import config_path
from rmqcli.cli.main import run
from tests.kit.terminal import Terminal, typed


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
    """There was a table without rows, too."""
    assert run(["profile", "list"]) == 0
    assert capfd.readouterr() == ("", f"no profiles in {config_path(os.environ)}\n")
    assert run(["profile", "list", "-o", "json"]) == 0
    assert capfd.readouterr() == ("[]\n", "")


def test_each_command_says_what_it_has_done(capfd):
    """From the first profile to the last."""
    path = config_path(os.environ)
    heading = (
        "PROFILE  IN USE  NAMESRV  ENDPOINTS  CREDENTIALS  TLS  READ ONLY  PROTECTED"
        "  ERROR\n"
    )
    for words, code, out, err in (
        ("show", 0, "", "commands use no profile\n"),
        (
            "add dev --namesrv a:1",
            0,
            "",
            (
                f"profile dev (namesrv a:1) is in {path}\n"
                "to use it: rmq profile use dev, or --profile dev\n"
            ),
        ),
        (
            "add prod --namesrv b:1 --protected",
            0,
            "",
            (
                f"profile prod (namesrv b:1) is in {path}\n"
                "to use it: rmq profile use prod, or --profile prod\n"
            ),
        ),
        ("use prod", 0, "", "commands use profile prod (namesrv b:1)\n"),
        (
            "list",
            0,
            (
                f"{heading}"
                "dev      no      a:1      -          -            no   no         no"
                "         -\n"
                "prod     yes     b:1      -          -            no   no         yes"
                "        -\n"
            ),
            "",
        ),
        (
            "show dev",
            0,
            (
                "SETTING       VALUE\n"
                "name          dev\n"
                "namesrv       a:1\n"
                "tls           no\n"
                "read_only     no\n"
                "protected     no\n"
                "plaintext     no\n"
                "tls_insecure  no\n"
                f"path          {path}\n"
            ),
            "",
        ),
        (
            "add prod --namesrv c:1",
            7,
            "",
            (
                "error: profile prod exists: nothing was changed\n"
                "hint: change it with rmq profile edit, or replace it with --force\n"
            ),
        ),
        (
            "use nope",
            2,
            "",
            "error: profile nope does not exist\nhint: one of: dev, prod\n",
        ),
    ):
        assert run(["profile", *words.split()]) == code
        assert capfd.readouterr() == (out, err)
    with typed("no\n"):
        assert run(["profile", "remove", "dev"]) == 7
    assert capfd.readouterr().err == (
        f"This removes profile dev from {path}. [y/N] error: not confirmed: nothing was"
        " changed\n"
    )


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
