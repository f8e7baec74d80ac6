"""Secrets come from private files, stdin or the environment, and never leak."""

from __future__ import annotations

import io
import os

import pytest

from rmqcli.credentials import load_credentials, load_registry_login
from rmqcli.errors import ConfigError
from rmqcli.wire.acl import Credentials

CANARY = "c4n4ry-s3cret"
EXPECTED = Credentials("me", CANARY)


def load(path, *, environ=None, stdin=None):
    return load_credentials(path, environ=environ or {}, stdin=stdin)


@pytest.fixture
def secret_file(tmp_path):
    """Writes a file and returns its path."""

    def write(content, mode=0o600):
        path = tmp_path / "acl.toml"
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)
        path.chmod(mode)
        return str(path)

    return write


FORMS = [
    f'access_key = "me"\nsecret_key = "{CANARY}"\n',
    f'# ours\naccessKey = "me"\r\nsecretKey = "{CANARY}"\r\n',
    f"accessKey: me\nsecretKey: {CANARY}\n",  # mqadmin's tools.yml
    f"accessKey: 'me'\nsecretKey: \"{CANARY}\"\n",
    f"\ufeffaccessKey: me\r\nsecretKey: {CANARY}",
    f"me\n{CANARY}\n",
]


@pytest.mark.parametrize("text", FORMS)
def test_forms(secret_file, text):
    assert load(secret_file(text)) == EXPECTED
    assert load("-", stdin=io.StringIO(text)) == EXPECTED


def test_a_bare_secret_may_hold_an_equals_sign(secret_file):
    assert load(secret_file("me\nabc==\n")) == Credentials("me", "abc==")


def test_a_security_token(secret_file):
    text = f'access_key="me"\nsecret_key="{CANARY}"\nsecurity_token="t"'
    assert load(secret_file(text)) == Credentials("me", CANARY, "t")
    assert load(secret_file(f"me\n{CANARY}\nt")) == Credentials("me", CANARY, "t")


def test_the_environment():
    environ = {"RMQ_ACCESS_KEY": "me", "RMQ_SECRET_KEY": CANARY}
    assert load(None, environ=environ) == EXPECTED
    environ["RMQ_SECURITY_TOKEN"] = "t"
    assert load(None, environ=environ) == Credentials("me", CANARY, "t")
    assert load(None, environ={}) is None


def test_the_file_comes_before_the_environment(secret_file):
    environ = {"RMQ_ACCESS_KEY": "other", "RMQ_SECRET_KEY": "x"}
    assert load(secret_file(FORMS[0]), environ=environ) == EXPECTED


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o660, 0o601])
def test_a_file_that_others_may_touch_is_refused(secret_file, mode):
    path = secret_file(FORMS[0], mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as caught:
        load(path)
    assert caught.value.hint == f"run: chmod 600 {path}"


def test_a_symbolic_link_is_judged_by_what_it_points_to(secret_file, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(secret_file(FORMS[0]))
    assert load(str(link)) == EXPECTED
    link.resolve().chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read"):
        load(str(link))


def test_what_is_no_file_is_refused(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for path in (tmp_path / "missing", tmp_path, fifo, circle):
        with pytest.raises(ConfigError, match=str(path)):
            load(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(secret_file):
    path = secret_file(FORMS[0])
    os.chown(path, 12345, -1)
    with pytest.raises(ConfigError, match="another user"):
        load(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        f"{CANARY}",
        f'access_key = "{CANARY}"',
        f'secret_key = "{CANARY}"',
        f'secret_key = {CANARY}\naccess_key = "me"\nx = 1\ny = 2',
        f"secretKey: {CANARY}",
        f"a\nb\nc\n{CANARY}",
        f"{CANARY}" * 10_000,
        b"\xff\xfe" + CANARY.encode(),
        f'access_key = ""\nsecret_key = "{CANARY}"',
        f'access_key = 5\nsecret_key = "{CANARY}"',
    ],
)
def test_unusable_files_say_so_without_the_secret(secret_file, text):
    with pytest.raises(ConfigError) as caught:
        load(secret_file(text))
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in repr(error)
        assert CANARY not in str(getattr(error, "hint", ""))
        error = error.__cause__


def test_half_an_environment_is_an_error():
    with pytest.raises(ConfigError, match="the secret key is missing"):
        load(None, environ={"RMQ_ACCESS_KEY": "me"})
    with pytest.raises(ConfigError, match="the access key is missing"):
        load(None, environ={"RMQ_SECRET_KEY": CANARY})


def test_the_secret_is_not_shown():
    assert CANARY not in repr(EXPECTED)


def test_a_closed_stdin():
    with pytest.raises(ConfigError, match="closed"):
        load("-", stdin=None)


def test_the_login_of_a_schema_registry(secret_file):
    environ = {"RMQ_REGISTRY_USER": "me", "RMQ_REGISTRY_PASSWORD": CANARY}
    assert load_registry_login(environ) == ("me", CANARY)
    environ["RMQ_REGISTRY_FILE"] = secret_file("you\na:b c=\n")
    assert load_registry_login(environ) == ("you", "a:b c=")
    keys = {"RMQ_ACCESS_KEY": "me", "RMQ_SECRET_KEY": CANARY}
    assert load_registry_login(keys) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RMQ_REGISTRY_USER": "me"}, "the password is missing"),
        ({"RMQ_REGISTRY_PASSWORD": CANARY}, "the user is missing"),
        (
            {"RMQ_REGISTRY_USER": "m:e", "RMQ_REGISTRY_PASSWORD": CANARY},
            "the user has a colon",
        ),
    ],
)
def test_a_login_of_a_schema_registry_that_cannot_be_used(environ, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_registry_login(environ)
    assert CANARY not in str(caught.value)


def test_a_file_that_is_no_login_of_a_schema_registry(secret_file):
    for text in ("me", f"me\n{CANARY}\nmore", ""):
        with pytest.raises(
            ConfigError, match="not the user and the password"
        ) as caught:
            load_registry_login({"RMQ_REGISTRY_FILE": secret_file(text)})
        assert CANARY not in str(caught.value)
    with pytest.raises(ConfigError, match="mode 0644"):
        load_registry_login({"RMQ_REGISTRY_FILE": secret_file("me\nx", 0o644)})
