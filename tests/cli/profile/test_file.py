"""A file of profiles that is broken or not private is refused, and says where."""

from __future__ import annotations

import pytest

from rmqcli.cli.configuration.file import holds_secret
from rmqcli.cli.main import run

PRIVATE = '[profiles.p]\nnamesrv = "p:1"\naccess_key = "a"\nsecret_key = "s3cret"\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('use = "p"\n[profiles.p\n', "not valid TOML at line 2, column 12"),
        ('use = "p"\nuse = "s3cret"\n', "not valid TOML at line 2, column 15"),
        ("a = [", "not valid TOML at end of document"),
        (f'use = "s3cret"\nx = {"9" * 5_000}', "not valid TOML"),
        ("x = 1", "x is neither use nor profiles"),
        ("use = 1", "use must be the name of a profile"),
        ("profiles = 1", "profiles must be a table of profiles"),
        ('use = "x"', "profile x does not exist"),
    ],
)
def test_a_broken_file_is_refused(write, probe, text, error):
    path = write(text)
    code, shown, err = probe()
    assert (code, shown) == (2, {})
    assert error in err
    assert str(path) in err
    assert "s3cret" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            "",
            (
                "has neither namesrv nor endpoints\n"
                "hint: a profile names the name servers of a cluster, or a proxy"
                " of it"
            ),
        ),
        (
            'namesrv = "a:1"\nendpoints = "b:1"',
            (
                "namesrv and endpoints cannot be used together\n"
                "hint: a profile names the name servers of a cluster, or a proxy"
                " of it"
            ),
        ),
        ("namesrv = 1", "namesrv must be text or a list of texts"),
        ('namesrv = ["a:1", 2]', "namesrv must be text or a list of texts"),
        ('namesrv = ""', "namesrv is empty"),
        (
            "namesrv = []",
            (
                "namesrv: '': no name server in it\n"
                "hint: write HOST:PORT, or several separated by commas"
            ),
        ),
        (
            'namesrv = "a:x"',
            (
                "namesrv: 'a:x': the port is not a number\n"
                "hint: write HOST:PORT, or several separated by commas"
            ),
        ),
        ('namesrv = "a:1"\nread_only = "yes"', "read_only must be true or false"),
        (
            'namesrv = "a:1"\nread-only = true',
            ("read-only is no setting of a profile\nhint: did you mean read_only?"),
        ),
        (
            'namesrv = "a:1"\noutput = "xml"',
            (
                "output: 'xml' is not one of auto, pretty, table, json, jsonl,"
                " raw, hex, csv"
            ),
        ),
        (
            'namesrv = "a:1"\ntime_zone = "Mars"',
            ("time_zone: 'Mars' is not a time zone\nhint: for example Europe/Berlin"),
        ),
        (
            'namesrv = "a:1"\ntime_zone = "../x"',
            ("time_zone: '../x' is not a time zone\nhint: for example Europe/Berlin"),
        ),
        ('namesrv = "a:1"\ntls_key = "k"', "tls_key needs tls_cert"),
        (
            'namesrv = "a:1"\ntls = false\ntls_ca = "k"',
            "tls_ca needs tls, which is false",
        ),
        (
            'namesrv = "a:1"\nplaintext = true',
            "plaintext and namesrv cannot be used together",
        ),
        ('namesrv = "a:1"\naccess_key = "a"', "secret_key is missing"),
        ('namesrv = "a:1"\nsecurity_token = "a"', "access_key is missing"),
        (
            'namesrv = "a:1"\ncredentials_file = "f"\naccess_key = "a"',
            "credentials_file and access_key cannot be used together",
        ),
        (
            'namesrv = "a:1"\ncredentials = "file"',
            (
                'credentials must be "environment"\n'
                "hint: for a file or a command: credentials_file or"
                " credentials_command"
            ),
        ),
        (
            'namesrv = "a:1"\ncredentials_command = "\'"',
            "credentials_command: no closing quotation",
        ),
        ('namesrv = "a:1"\ncredentials_command = []', "credentials_command is empty"),
        ('namesrv = "a:1"\naddresses = {x = 1}', "addresses: x must be text"),
        (
            'namesrv = "a:1"\naddresses = {"x:1" = "y"}',
            (
                "'x:1=y': one side has a port and the other has none\n"
                "hint: write ADVERTISED=REACHABLE, such as"
                " 172.18.0.3:10911=127.0.0.1:10911, or two hosts without ports"
            ),
        ),
        (
            'namesrv = "a:1"\naddresses = {a = "c", b = "c"}',
            (
                "address_map leads a and b to one address, c\n"
                "hint: give each broker its own"
            ),
        ),
        (
            'endpoints = "a:1"\naddresses = {a = "c"}',
            "addresses and endpoints cannot be used together",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_profile(
    write, probe, settings, error
):
    path = write(f"[profiles.p]\n{settings}\n")
    code, shown, err = probe("--profile", "p")
    assert (code, shown) == (2, {})
    assert err == f"error: {path}: profile p: {error}\n"


def test_a_profile_with_a_wrong_setting_does_not_disturb_others(write, probe):
    write('[profiles.bad]\nx = 1\n[profiles.good]\nnamesrv = "good:1"\n')
    assert probe("--profile", "good")[1]["servers"] == "namesrv='good:1'"


@pytest.mark.parametrize("name", ["none", "a b", "-a", "a" * 65, "a/b", ""])
def test_a_name_that_cannot_be_one_is_refused(write, probe, capfd, name):
    path = write(f'[profiles."{name}"]\nnamesrv = "a:1"\n')
    assert probe(f"--profile={name}")[0] == (0 if name == "none" else 2)
    capfd.readouterr()
    assert run(["profile", "show", "--", name]) == 2
    error = "none is no name of a profile: it stands for no profile"
    if name != "none":
        error = (
            f"{name!r} is no name of a profile\n"
            "hint: a name has up to 64 letters, digits, dots, underscores and hyphens"
        )
    assert capfd.readouterr().err == f"error: {path}: profile {name}: {error}\n"


_READABLE = "holds a secret, and other users can read it "


@pytest.mark.parametrize(
    ("text", "mode", "error"),
    [
        (PRIVATE, 0o600, ""),
        (PRIVATE, 0o400, ""),
        (
            PRIVATE,
            0o640,
            _READABLE + "(mode 0640)\nhint: run: chmod 600",
        ),
        (
            PRIVATE,
            0o604,
            _READABLE + "(mode 0604)\nhint: run: chmod 600",
        ),
        ('[profiles.p]\nnamesrv = "p:1" # secret_key\n', 0o644, ""),
        ('[profiles.p]\nnamesrv = "p:1"\n', 0o644, ""),
        (
            '[profiles.p]\nnamesrv = "p:1"\n',
            0o664,
            "other users can write it (mode 0664)\nhint: run: chmod go-w",
        ),
        (
            '[profiles.p]\nnamesrv = "p:1"\n',
            0o606,
            "other users can write it (mode 0606)\nhint: run: chmod go-w",
        ),
        (
            '[profiles.p\nsecret_key = "x"',
            0o644,
            _READABLE + "(mode 0644)\nhint: run: chmod 600",
        ),
    ],
)
def test_what_other_users_could_read_or_write_is_refused(
    write, probe, text, mode, error
):
    path = write(text, mode)
    code, _, err = probe("--profile", "p")
    assert code == (2 if error else 0)
    assert err == (f"error: {path}: {error} {path}\n" if error else "")


def test_other_things_than_files_are_refused(config_file, probe):
    config_file.mkdir()
    code, _, err = probe()
    assert (code, err) == (2, f"error: {config_file}: not a regular file\n")


def test_a_file_that_cannot_be_read_is_refused(config_file, probe):
    """As on a disk that fails: the file opens, and reading it is an error."""
    config_file.symlink_to("/proc/self/mem")
    code, _, err = probe()
    assert (code, err) == (2, f"error: {config_file}: input/output error\n")


def test_a_link_is_followed(write, probe, config_file, tmp_path):
    write('use = "p"\n[profiles.p]\nnamesrv = "p:1"\n')
    config_file.rename(tmp_path / "dotfile")
    config_file.symlink_to(tmp_path / "dotfile")
    assert probe()[1]["servers"] == "namesrv='p:1'"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff", "not UTF-8 text"),
        (b"#" * (1 << 20) + b"#", "too large, more than 1,048,576 bytes"),
    ],
)
def test_what_is_no_text_is_refused(config_file, probe, content, error):
    config_file.write_bytes(content)
    config_file.chmod(0o600)
    assert probe() == (2, {}, f"error: {config_file}: {error}\n")


def test_a_relative_xdg_folder_and_no_home_are_no_file(probe, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/no/such")
    assert probe()[1]["servers"] == "namesrv='127.0.0.1:9876'"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["profile", "show", "prod"],
            2,
            (
                "error: profile prod does not exist: there is no home directory for"
                " profiles\nhint: set XDG_CONFIG_HOME\n"
            ),
        ),
        (["profile", "list"], 0, "there is no home directory for profiles\n"),
    ],
)
def test_without_a_home_directory_no_profile_is_looked_up(
    monkeypatch, capsys, arguments, code, said
):
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "no home")
    assert run(arguments) == code
    assert capsys.readouterr() == ("", said)


def test_a_secret_beside_a_number_that_is_too_long_is_found():
    assert holds_secret(f'[profiles.p]\nsecret_key = "s"\nx = {"9" * 5_000}\n')


def test_a_secret_beside_a_list_is_found():
    text = '[profiles.p]\nsecret_key = "s"\n[zz]\nnames = ["a"]\n'
    assert holds_secret(text)
    assert not holds_secret(text.replace("secret_key", "namesrv"))
