"""A project file chooses a cluster; it sends credentials nowhere unasked."""

from __future__ import annotations

import os
import pty
from functools import partial

import pytest

from rmqcli.cli.configuration.project import check_trust, read_project
from rmqcli.cli.main import run
from rmqcli.errors import RefusedError

OWN = 'namesrv = "shop:1"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes the project file of the folder above the current one."""
    inner = tmp_path / "shop" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = inner.parent / ".rmq.toml"

    def write_it(text, mode=0o644):
        path.write_text(text)
        path.chmod(mode)
        return path

    return write_it


@pytest.fixture
def answer(monkeypatch):
    """Answers the questions of the commands in its block on a terminal."""

    def type_it(text, act):
        ours, theirs = pty.openpty()
        with (
            open(ours, "w") as keyboard,
            open(theirs) as terminal,
            monkeypatch.context() as patch,
        ):
            patch.setattr("sys.stdin", terminal)
            keyboard.write(text)
            keyboard.flush()
            return act()

    return type_it


@pytest.fixture
def acl(tmp_path):
    path = tmp_path / "mine.acl"
    path.write_text("user\nsecret\n")
    path.chmod(0o600)
    return path


def test_the_nearest_file_is_used_and_beats_the_profile_in_use(
    project, profiles, probe, tmp_path
):
    (tmp_path / ".rmq.toml").write_text('namesrv = "farther:1"\n')
    path = project(OWN + 'output = "json"\n')
    code, shown, err = probe()
    assert (code, err) == (0, f"{path} chooses project shop (namesrv shop:1)\n")
    assert (shown["servers"], shown["output"]) == ("namesrv='shop:1'", "json")


def test_it_can_name_a_profile_of_the_user(project, profiles, probe):
    path = project('profile = "prod"\noutput = "json"\n')
    _, shown, err = probe()
    assert shown["servers"] == "namesrv='prod-a:1;prod-b:1'"
    assert shown["keys"] == "('prod-user', 'prod-secret')"
    assert shown["output"] == "json"
    assert err == f"{path} chooses profile prod (namesrv prod-a:1;prod-b:1)\n"
    assert probe("-q")[2] == ""


def test_the_environment_and_options_beat_it(project, probe, profiles, monkeypatch):
    path = project(OWN)
    assert probe("-n", "typed:1")[1]["servers"] == "namesrv='typed:1'"
    assert probe("--profile", "dev")[1]["servers"] == "namesrv='dev:1'"
    assert probe("--profile", "none")[1]["servers"] == "namesrv='127.0.0.1:9876'"
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    _, shown, err = probe()
    assert shown["servers"] == "namesrv='env:1'"
    assert err == (
        "warning: NAMESRV_ADDR env:1 is used, not project shop (namesrv shop:1), which"
        f" {path} chose\n"
    )


_PROFILE = "\nhint: put it into a profile, and name that: profile = NAME\n"
_SETTINGS = "\nhint: it has the settings of one profile, or: profile = NAME\n"
_OTHERS = "\nhint: servers and their settings are those of the profile\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            OWN + 'secret_key = "s3cret"\n',
            "secret_key is a secret, which a project file must not hold" + _PROFILE,
        ),
        (
            OWN + 'access_key = "a"\n',
            "access_key is a secret, which a project file must not hold" + _PROFILE,
        ),
        (
            OWN + 'credentials_command = "x"\n',
            "a project file must not name a command" + _PROFILE,
        ),
        (
            'profile = "prod"\n' + OWN,
            "profile and namesrv cannot be used together" + _OTHERS,
        ),
        (
            'profile = "prod"\naddresses = {a = "b"}\n',
            "profile and addresses cannot be used together" + _OTHERS,
        ),
        ('profile = "prod"\ntls_insecure = true\n', "profile and tls_insecure cannot"),
        ('profile = "prod"\ntime_zone = "Mars"\n', "'Mars' is not a time zone"),
        ("profile = 1\n", "profile must be the name of a profile"),
        ('profile = "x"\n', "profile x does not exist"),
        ('use = "dev"\n', "a project file has no use" + _SETTINGS),
        ("[profiles.p]\n", "a project file has no profiles" + _SETTINGS),
        ("", "has neither namesrv nor endpoints"),
        ("[x\n", "not valid TOML at line 1, column 3"),
    ],
)
def test_what_it_must_not_have_is_named(project, profiles, probe, text, error):
    path = project(text)
    code, shown, err = probe()
    assert (code, shown) == (2, {})
    assert error in err
    assert "s3cret" not in err
    assert str(path) in err


def test_a_file_that_everybody_can_write_is_refused(project, probe):
    path = project(OWN, 0o666)
    code, _, err = probe()
    assert code == 2
    assert f"{path}: other users can write it (mode 0666)" in err
    project(OWN, 0o664)  # as with the usual umask 002
    assert probe()[0] == 0


def test_keys_of_the_environment_are_not_sent_to_its_servers(
    project, probe, monkeypatch
):
    monkeypatch.setenv("RMQ_ACCESS_KEY", "someone")
    monkeypatch.setenv("RMQ_SECRET_KEY", "secret")
    project(OWN)
    _, shown, err = probe()
    assert shown["keys"] == "None"
    assert "RMQ_ACCESS_KEY is not used: project shop has no credentials" in err


@pytest.mark.parametrize(
    ("text", "typed", "what"),
    [
        (OWN, True, "sends the credentials of {acl} to namesrv shop:1"),
        (
            OWN + 'credentials_file = "{acl}"\n',
            False,
            "sends the credentials of file {acl} to namesrv shop:1",
        ),
        (
            OWN + 'credentials = "environment"\n',
            False,
            (
                "sends the credentials of RMQ_ACCESS_KEY and RMQ_SECRET_KEY to namesrv"
                " shop:1"
            ),
        ),
        (
            OWN + 'tls_cert = "{acl}"\n',
            False,
            "sends the certificate {acl} to namesrv shop:1",
        ),
    ],
)
@pytest.mark.parametrize("more", [[], ["--yes"]])
def test_credentials_need_an_answer(
    project, probe, monkeypatch, acl, text, typed, what, more
):
    """In a script the command is refused, even with --yes."""
    monkeypatch.setenv("RMQ_ACCESS_KEY", "someone")
    monkeypatch.setenv("RMQ_SECRET_KEY", "secret")
    path = project(text.format(acl=acl))
    words = ["--acl-file", str(acl)] if typed else []
    code, shown, err = probe(*words, *more)
    assert (code, shown) == (7, {})
    assert err.endswith(
        f"error: {path} {what.format(acl=acl)}, which nobody has allowed\n"
        "hint: run a command here on a terminal once, or name a --profile\n"
    )


def test_the_answer_holds_for_this_content_and_these_credentials(
    project, probe, answer, acl
):
    path = project(OWN)
    words = ["--acl-file", str(acl)]
    code, shown, err = answer("y\n", lambda: probe(*words))
    assert (code, shown["keys"]) == (0, "('user', 'secret')")
    assert err == (
        f"{path} sends the credentials of {acl} to namesrv shop:1.\n"
        "Allow this, as long as the file stays as it is? [y/N] "
        f"{path} chooses project shop (namesrv shop:1)\n"
    )
    assert probe(*words)[0] == 0  # without a question
    other = acl.with_name("other.acl")
    other.write_text("admin\nsecret\n")
    other.chmod(0o600)
    assert probe("--acl-file", str(other))[0] == 7
    project(OWN + "\n")
    assert probe(*words)[0] == 7


@pytest.mark.parametrize("typed", ["n\n", "\n", "shop\n"])
def test_every_other_answer_refuses_and_is_asked_again(
    project, probe, answer, acl, typed
):
    path = project(OWN)
    for _ in range(2):
        code, shown, err = answer(typed, lambda: probe("--acl-file", str(acl)))
        assert (code, shown) == (7, {})
        assert err.endswith(f"error: {path} was not allowed: nothing was done\n")


def test_a_file_of_another_user_is_not_followed_unasked(project, profiles):
    """The owner is given here, because a test cannot give a file away."""
    path = project('profile = "dev"\n')
    profile = read_project(str(path), os.environ)
    assert profile.project is not None
    foreign = profile.replace(project=profile.project.replace(is_foreign=True))
    check = partial(
        check_trust, acl_file=None, certificate=None, no_input=True, warn=print
    )
    check(profile)
    with pytest.raises(RefusedError, match="belongs to another user, and chooses"):
        check(foreign)


def test_its_restrictions_are_added_to_those_of_the_profile(project, write):
    write(
        '[profiles.a]\nnamesrv = "127.0.0.1:1"\nread_only = true\n'
        '[profiles.b]\nnamesrv = "127.0.0.1:1"\n'
    )
    for text, code in (
        ('profile = "a"\nread_only = false\n', 7),
        ('profile = "b"\nread_only = true\n', 7),
        ('profile = "b"\nprotected = true\n', 7),
        ('profile = "b"\n', 5),
        ('namesrv = "127.0.0.1:1"\nread_only = true\n', 7),
    ):
        project(text)
        assert run(["topic", "create", "t", "--yes"]) == code, text


def test_a_project_is_confirmed_by_the_name_of_its_folder(project, capfd):
    project('namesrv = "127.0.0.1:1"\nprotected = true\n')
    assert run(["topic", "create", "t", "--confirm", "shop"]) == 5
    assert run(["topic", "create", "t", "--confirm", "src"]) == 7


def test_show_says_which_file_has_chosen(project, profiles, capfd):
    path = project('profile = "prod"\n')
    assert run(["profile", "show", "-o", "jsonl"]) == 0
    out = capfd.readouterr().out
    assert f'"chosen_by":"{path}"' in out
    project(OWN)
    assert run(["profile", "list", "-o", "csv"]) == 0
    assert ",true," not in capfd.readouterr().out.splitlines()[1]


def test_a_folder_that_was_removed_has_no_project(project, probe, tmp_path):
    os.rmdir(os.getcwd())
    assert probe()[1]["servers"] == "namesrv='127.0.0.1:9876'"
