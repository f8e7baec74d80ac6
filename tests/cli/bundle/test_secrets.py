"""Every secret that rmq knows is known to a bundle, wherever it is written."""

from __future__ import annotations

import pytest

from rmqcli import ClientConfig, Credentials, TlsOptions
from rmqcli.cli.bundle.secrets import known_secrets

KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEF=="
KEY = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\nshort\n-----END PRIVATE KEY-----\n"
LOGIN = "secret_key: sk-file\naccess_key: ak-file\nsecurity_token: st-file\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the configuration; the current folder is another one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    config = tmp_path / "config" / "rmq"
    config.mkdir(parents=True)
    for name, text in (("tls.key", KEY), ("login", LOGIN)):
        path = config / name
        path.write_text(text)
        path.chmod(0o600)
    return config


def known(folder, *, environ=(), **config):
    environ = {"XDG_CONFIG_HOME": str(folder.parent), **dict(environ)}
    found = known_secrets(ClientConfig(namesrv=("h:1",), **config), environ)
    return set(found) - {""}


def test_without_any_there_are_none(folder):
    assert known(folder) == set()


def test_the_credentials_in_use_are_known(folder):
    used = Credentials(access_key="ak", secret_key="sk", security_token="st")
    assert known(folder, credentials=used) == {"ak", "sk", "st"}


@pytest.mark.parametrize(
    "name",
    [
        "RMQ_ACCESS_KEY",
        "RMQ_SECRET_KEY",
        "RMQ_SECURITY_TOKEN",
        "RMQ_REGISTRY_USER",
        "RMQ_REGISTRY_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "db_passwd",
        "DB_PASS",
        "API_KEY",
        "APIKEY",
        "CI_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_a_variable_whose_name_says_so_has_a_secret(folder, name):
    others = {"PATH": "/bin", "PASSENGER": "1"}
    assert known(folder, environ={name: "value", **others}) == {"value"}


def test_both_lines_of_the_login_of_a_schema_registry_are_known(folder):
    path = folder / "registry"
    path.write_text("user1\npassword1\n")
    assert known(folder, environ={"RMQ_REGISTRY_FILE": str(path)}) == {
        "user1",
        "password1",
    }
    path.unlink()
    assert known(folder, environ={"RMQ_REGISTRY_FILE": str(path)}) == set()


def test_the_lines_of_the_private_key_in_use_are_known(folder):
    tls = TlsOptions(cert_file="c.pem", key_file=str(folder / "tls.key"))
    assert known(folder, tls=tls) == {KEY_LINE}


PROFILE = """
access_key = "ak"
secret_key = "sk"
security_token = "st"
credentials_file = "login"
tls_key = "tls.key"
namesrv = "h:1"
"""
IN_PROFILE = {"ak", "sk", "st", "ak-file", "sk-file", "st-file", KEY_LINE}


def test_what_any_profile_has_or_names_is_known(folder):
    """Its files are beside the file of profiles, wherever the command runs."""
    path = folder / "config.toml"
    path.write_text(f"[profiles.other]\n{PROFILE}")
    path.chmod(0o600)
    assert known(folder) == IN_PROFILE


def test_what_the_file_of_a_project_has_or_names_is_known(folder, monkeypatch):
    (folder / ".rmq.toml").write_text(PROFILE)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert known(folder) == IN_PROFILE


@pytest.mark.parametrize(
    "text", ["[", "[profiles]\none = 1\n", "[profiles.one]\nsecret_key = 5\n", "\xff"]
)
def test_a_configuration_that_cannot_be_read_does_not_stop_a_bundle(
    folder, monkeypatch, text
):
    for name in ("config.toml", ".rmq.toml"):
        path = folder / name
        path.write_bytes(text.encode("latin-1"))
        path.chmod(0o600)
    monkeypatch.chdir(folder)
    used = Credentials(access_key="ak", secret_key="sk")
    assert known(folder, credentials=used) == {"ak", "sk"}


@pytest.mark.parametrize("name", ["login", "tls.key"])
def test_a_file_that_cannot_be_read_hides_no_other_secret(folder, name):
    path = folder / "config.toml"
    path.write_text(f'[profiles.one]\n{PROFILE}\n[profiles.two]\nsecret_key = "sk2"\n')
    path.chmod(0o600)
    (folder / name).unlink()
    of_file = {"tls.key": {KEY_LINE}, "login": {"ak-file", "sk-file", "st-file"}}
    assert known(folder) == (IN_PROFILE | {"sk2"}) - of_file[name]
