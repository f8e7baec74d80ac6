"""`rmq profile add`, `use`, `remove` and `edit` change the file as a whole, or not."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.profile.change import locked_config
from tests.kit.waiting import PATIENCE_S

COMMENTED = """\
# Clusters of the shop.
use = "dev" # until the move

[profiles.dev] # on this machine
namesrv = "dev:1"

# Ask before you change anything there.
[profiles.prod]
namesrv = ["a:1", "b:1"]   # both racks
addresses = { "172.18.0.3:10911" = "127.0.0.1:10911" }
"""


@pytest.fixture
def config_path():
    return Path(os.environ["XDG_CONFIG_HOME"], "rmq", "config.toml")


@pytest.fixture
def commented(write):
    return write(COMMENTED)


def test_the_first_profile_makes_a_private_file(config_path, capfd):
    assert run(["profile", "add", "dev", "-n", "dev:1;dev:2"]) == 0
    assert capfd.readouterr().err == (
        f"profile dev (namesrv dev:1;dev:2) is in {config_path}\n"
        "to use it: rmq profile use dev, or --profile dev\n"
    )
    assert config_path.read_text() == ('[profiles.dev]\nnamesrv = ["dev:1", "dev:2"]\n')
    assert stat.S_IMODE(config_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(config_path.parent.stat().st_mode) == 0o700


def test_every_option_becomes_a_setting(config_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).touch()
    keys = tmp_path / "prod.acl"
    keys.write_text("user\nsecret\n")
    keys.chmod(0o600)
    words = [
        *("profile", "add", "prod", "-n", "a:1", "--acl-file", "prod.acl"),
        *("--tls-ca", "ca.pem", "--tls-cert", "c.pem", "--tls-key", "k.pem"),
        *("--tls-server-name", "broker", "--address-map", "172.18.0.3:1=127.0.0.1:2"),
        *("--default-output", "json", "--time-zone", "Europe/Berlin"),
        *("--read-only", "--protected", "--use"),
    ]
    assert run(words) == 0
    assert tomllib.loads(config_path.read_text()) == {
        "use": "prod",
        "profiles": {
            "prod": {
                "namesrv": "a:1",
                "credentials_file": f"{tmp_path}/prod.acl",
                "tls": True,
                "tls_ca": f"{tmp_path}/ca.pem",
                "tls_cert": f"{tmp_path}/c.pem",
                "tls_key": f"{tmp_path}/k.pem",
                "tls_server_name": "broker",
                "addresses": {"172.18.0.3:1": "127.0.0.1:2"},
                "output": "json",
                "time_zone": "Europe/Berlin",
                "read_only": True,
                "protected": True,
            }
        },
    }


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            ["--endpoints", "p:1", "--plaintext", "--credentials-environment"],
            {"endpoints": "p:1", "plaintext": True, "credentials": "environment"},
        ),
        (
            ["-n", "a:1", "--credentials-command", "pass show 'my rmq'"],
            {"namesrv": "a:1", "credentials_command": "pass show 'my rmq'"},
        ),
    ],
)
def test_proxies_and_other_credentials_become_settings(config_path, words, settings):
    assert run(["profile", "add", "p", *words]) == 0
    assert tomllib.loads(config_path.read_text())["profiles"] == {"p": settings}


def test_the_environment_becomes_no_setting(config_path, monkeypatch, capfd):
    """Its servers may be those of another cluster."""
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "env:2")
    assert run(["profile", "add", "p"]) == 2
    assert "a profile needs servers" in capfd.readouterr().err
    assert run(["profile", "add", "p", "-n", "a:1"]) == 0
    assert tomllib.loads(config_path.read_text())["profiles"]["p"] == {"namesrv": "a:1"}


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["dev", "-n", "x:1"], 7, "profile dev exists: nothing was changed"),
        (["none", "-n", "x:1"], 2, "none is no name of a profile"),
        (["a b", "-n", "x:1"], 2, "'a b' is no name of a profile"),
        (["p", "-n", "x:1", "--endpoints", "y:1"], 2, "cannot be used together"),
        (["p", "-n", "x:1", "--plaintext"], 2, "plaintext and namesrv cannot be"),
        (["p", "-n", "x:1", "--acl-file", "-"], 2, "not stdin"),
        (["p", "-n", "x:1", "--acl-file", "/no/file"], 2, "/no/file: no such file"),
        (["p", "-n", "x:1", "--tls-ca", "/no/ca"], 2, "tls_ca: /no/ca: no such file"),
        (["p", "-n", "x:1", "--time-zone", "Mars"], 2, "'Mars' is not a time zone"),
        (["p", "-n", "x:1", "-o", "csv"], 2, "the profile: --default-output FORMAT"),
    ],
)
def test_what_cannot_be_added_leaves_the_file(commented, capfd, words, code, error):
    assert run(["profile", "add", *words]) == code
    assert error in capfd.readouterr().err
    assert commented.read_text() == COMMENTED


def test_adding_keeps_comments(commented):
    assert run(["profile", "add", "new", "-n", "n:1"]) == 0
    text = commented.read_text()
    assert text.startswith(COMMENTED)
    assert text[len(COMMENTED) :].strip() == '[profiles.new]\nnamesrv = "n:1"'


def test_force_replaces_a_profile(commented):
    assert run(["profile", "add", "prod", "-n", "n:1", "--force"]) == 0
    found = tomllib.loads(commented.read_text())
    assert found["profiles"] == {
        "dev": {"namesrv": "dev:1"},
        "prod": {"namesrv": "n:1"},
    }


def test_using_changes_one_line(commented, capfd):
    assert run(["profile", "use", "prod"]) == 0
    assert commented.read_text() == COMMENTED.replace('"dev" #', '"prod" #')
    err = capfd.readouterr().err
    assert err == "commands use profile prod (namesrv a:1;b:1)\n"


def test_using_none_removes_the_line(commented, capfd):
    assert run(["profile", "use", "none"]) == 0
    assert "use" not in tomllib.loads(commented.read_text())
    assert capfd.readouterr().err == (
        "commands use no profile, and 127.0.0.1:9876 unless servers are named\n"
    )


def test_using_none_says_which_profile_is_used_all_the_same(
    commented, capfd, monkeypatch
):
    monkeypatch.setenv("RMQ_PROFILE", "prod")
    assert run(["profile", "use", "none"]) == 0
    err = capfd.readouterr().err
    assert err.endswith("warning: RMQ_PROFILE=prod takes precedence over it\n")


@pytest.mark.parametrize("name", ["none", "prod"])
def test_using_says_that_the_file_of_the_project_takes_precedence(
    commented, capfd, monkeypatch, tmp_path, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".rmq.toml").write_text('profile = "dev"\n')
    assert run(["profile", "use", name]) == 0
    warning = f"warning: {tmp_path / '.rmq.toml'} takes precedence over it\n"
    assert capfd.readouterr().err.endswith(warning)
    assert run(["profile", "show"]) == 0
    assert "dev:1" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value", "warning"),
    [
        ("NAMESRV_ADDR", "env:1", "warning: NAMESRV_ADDR env:1 is used, not profile"),
        ("RMQ_PROFILE", "dev", "warning: RMQ_PROFILE=dev takes precedence over it"),
    ],
)
def test_using_says_what_takes_precedence(
    commented, capfd, monkeypatch, variable, value, warning
):
    monkeypatch.setenv(variable, value)
    assert run(["profile", "use", "prod"]) == 0
    assert warning in capfd.readouterr().err


def test_a_profile_that_cannot_be_used_is_not_put_in_use(write, capfd):
    path = write('[profiles.bad]\nx = 1\n[profiles.p]\nnamesrv = "a:1"\n')
    assert run(["profile", "use", "bad"]) == 2
    assert run(["profile", "use", "q"]) == 2
    assert "use" not in tomllib.loads(path.read_text())


def test_the_use_of_a_file_without_one_is_written_above_the_tables(write):
    path = write('[profiles.p]\nnamesrv = "a:1"\n')
    assert run(["profile", "use", "p"]) == 0
    assert tomllib.loads(path.read_text())["use"] == "p"


def test_removing_keeps_the_rest(commented):
    assert run(["profile", "remove", "prod", "--yes"]) == 0
    text = commented.read_text()
    assert tomllib.loads(text)["profiles"] == {"dev": {"namesrv": "dev:1"}}
    assert text.startswith('# Clusters of the shop.\nuse = "dev" # until the move\n')


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["dev", "--yes"], 7, "profile dev is in use: nothing was changed"),
        (["prod"], 7, "not confirmed: nothing was changed"),
        (["prd", "--yes"], 2, "profile prd does not exist; did you mean prod?"),
    ],
)
def test_what_is_not_removed_leaves_the_file(commented, capfd, words, code, error):
    assert run(["profile", "remove", *words, "--no-input"]) == code
    assert error in capfd.readouterr().err
    assert commented.read_text() == COMMENTED


def test_a_form_that_the_library_cannot_change_is_left(write, capfd):
    text = 'profiles = { a = { namesrv = "a:1" } } # short\n'
    path = write(text)
    assert run(["profile", "add", "b", "-n", "b:1"]) == 1
    assert "its form is too unusual to be changed; nothing" in capfd.readouterr().err
    assert path.read_text() == text


def test_a_link_stays_a_link(commented, tmp_path):
    target = tmp_path / "dotfiles.toml"
    commented.rename(target)
    commented.symlink_to(target)
    assert run(["profile", "use", "prod"]) == 0
    assert commented.is_symlink()
    assert tomllib.loads(target.read_text())["use"] == "prod"


@pytest.mark.parametrize("words", [["add", "p", "-n", "a:1"], ["edit"], ["use", "p"]])
@pytest.mark.usefixtures("keyboard")
def test_two_changes_at_once_are_refused(commented, capfd, words):
    with locked_config(os.environ):
        assert run(["profile", *words]) == 7
    assert "another command is changing it; nothing was changed" in (
        capfd.readouterr().err
    )
    assert commented.read_text() == COMMENTED


def test_a_broken_file_is_not_overwritten(write, capfd):
    path = write("[profiles.p\n")
    for words in (["add", "p", "-n", "a:1"], ["use", "p"], ["remove", "p", "--yes"]):
        assert run(["profile", *words]) == 2
        assert "not valid TOML at line 1, column 12" in capfd.readouterr().err
    assert path.read_text() == "[profiles.p\n"


@pytest.fixture
def keyboard(monkeypatch):
    """The keyboard of a terminal that is stdin."""
    ours, theirs = pty.openpty()
    with open(ours, "w") as typed, open(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        yield typed


@pytest.fixture
def editor(tmp_path, monkeypatch, keyboard):
    """Makes EDITOR a script that writes a text over the file, and notes what it saw.

    The command that starts it has a terminal.
    """

    def make(text, code=0):
        new = tmp_path / "new.toml"
        new.write_text(text)
        script = tmp_path / "editor.sh"
        script.write_text(
            f'#!/bin/sh\ncat "$1" >> {tmp_path}/seen\ncat {new} > "$1"\nexit {code}\n'
        )
        script.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(script))
        monkeypatch.delenv("VISUAL", raising=False)
        return tmp_path / "seen"

    return make


def test_editing_replaces_the_file(commented, editor, capfd):
    seen = editor(COMMENTED.replace("dev:1", "dev:2"))
    assert run(["profile", "edit"]) == 0
    assert seen.read_text() == COMMENTED
    assert commented.read_text() == COMMENTED.replace("dev:1", "dev:2")
    assert stat.S_IMODE(commented.stat().st_mode) == 0o600
    assert capfd.readouterr().err == f"{commented} is changed\n"
    assert names_beside(commented) == [".config.lock", "ca.pem", "config.toml"]


def names_beside(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_an_editor_is_not_started_without_a_terminal(
    commented, editor, capfd, monkeypatch
):
    seen = editor("")
    assert run(["profile", "edit", "--no-input"]) == 7
    monkeypatch.setattr("sys.stdin", None)
    assert run(["profile", "edit"]) == 7
    error = "error: an editor needs a terminal: nothing was changed\n"
    hint = "hint: change the file with rmq profile add, use and remove\n"
    assert capfd.readouterr().err == 2 * (error + hint)
    assert not seen.exists()
    assert commented.read_text() == COMMENTED
    assert names_beside(commented) == ["ca.pem", "config.toml"]


def test_editing_a_broken_file_mends_it(write, editor):
    path = write("[profiles.p\n")
    editor(COMMENTED)
    assert run(["profile", "edit"]) == 0
    assert path.read_text() == COMMENTED


def test_editing_begins_with_an_example(editor, capfd, config_path):
    seen = editor("")
    assert run(["profile", "edit"]) == 0
    assert '# [profiles.dev]\n# namesrv = "127.0.0.1:9876"' in seen.read_text()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[profiles.p\n", "not valid TOML at line 1, column 12"),
        ("[profiles.p]\nx = 1\n", "x is no setting of a profile"),
        ('use = "q"\n', "profile q does not exist"),
    ],
)
@pytest.mark.parametrize("typed", ["n\n", "\x04"])
def test_an_edit_with_a_fault_changes_nothing(
    commented, editor, keyboard, capfd, text, error, typed
):
    """A second edit begins with the faulty text. Ctrl-D is no answer."""
    seen = editor(text)
    keyboard.write(f"y\n{typed}")
    keyboard.flush()
    assert run(["profile", "edit"]) == 7
    err = capfd.readouterr().err
    assert err.count(error) == 2
    assert err.endswith("Edit it again? [Y/n] error: nothing was changed\n")
    assert seen.read_text() == COMMENTED + text
    assert commented.read_text() == COMMENTED
    assert names_beside(commented) == [".config.lock", "ca.pem", "config.toml"]


def test_an_editor_that_fails_changes_nothing(commented, editor, capfd, monkeypatch):
    editor("", code=3)
    assert run(["profile", "edit"]) == 7
    assert "ended with exit code 3: nothing was changed" in capfd.readouterr().err
    monkeypatch.setenv("EDITOR", "/no/such editor")
    assert run(["profile", "edit"]) == 7
    assert "cannot start the editor /no/such editor" in capfd.readouterr().err
    assert commented.read_text() == COMMENTED
    assert not list(commented.parent.glob(".edit-*"))


def test_an_unchanged_file_is_left_alone(commented, editor, capfd):
    editor(COMMENTED)
    before = commented.stat().st_mtime_ns
    assert run(["profile", "edit"]) == 0
    assert capfd.readouterr().err == "nothing was changed\n"
    assert commented.stat().st_mtime_ns == before


def test_only_changes_load_the_library_that_writes(commented):
    code = (
        "import sys; from rmqcli.cli.main import run\n"
        "code = run(sys.argv[1:]); print(code, 'tomlkit' in sys.modules)"
    )
    for words, expected in (
        (["topics", "-n", "127.0.0.1:1"], "5 False"),
        (["profile", "show", "dev"], "0 False"),
        (["profile", "use", "prod"], "0 True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )
        assert done.stdout.splitlines()[-1] == expected
