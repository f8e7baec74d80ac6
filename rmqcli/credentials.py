"""Reads credentials from a private file, from stdin or from the environment.

They never come from the value of a flag, which every user of the machine could see. No
error message contains a secret. The accepted formats are TOML (`access_key = "x"`),
mqadmin's `tools.yml` (`accessKey: x`), and two or three bare lines: access key, secret
key, security token.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TextIO

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.wire.acl import Credentials

ENV_ACCESS_KEY = "RMQ_ACCESS_KEY"
ENV_SECRET_KEY = "RMQ_SECRET_KEY"  # noqa: S105  # the name of a variable
ENV_SECURITY_TOKEN = "RMQ_SECURITY_TOKEN"  # noqa: S105  # the name of a variable

#: Those of a schema registry. They are not the cluster's, and go to no other server.
ENV_REGISTRY_USER = "RMQ_REGISTRY_USER"
ENV_REGISTRY_PASSWORD = "RMQ_REGISTRY_PASSWORD"  # noqa: S105  # a variable's name
ENV_REGISTRY_FILE = "RMQ_REGISTRY_FILE"

#: Variables that no child process may inherit, because it may be any program.
ENV_SECRETS = (
    ENV_ACCESS_KEY,
    ENV_SECRET_KEY,
    ENV_SECURITY_TOKEN,
    ENV_REGISTRY_USER,
    ENV_REGISTRY_PASSWORD,
)

FILE_BYTES_MAX = 64 * 1024

_FIELDS = {
    "access_key": "access_key",
    "accesskey": "access_key",
    "secret_key": "secret_key",
    "secretkey": "secret_key",
    "security_token": "security_token",
    "securitytoken": "security_token",
}
_EXAMPLE = 'write: access_key = "..." and secret_key = "..." on two lines'


def load_credentials(
    acl_file: str | None, *, environ: Mapping[str, str], stdin: TextIO | None
) -> Credentials | None:
    """Return the credentials of `acl_file` (`-` is stdin), or of `environ`, or None.

    Raises ConfigError when credentials are given but cannot be used.
    """
    if acl_file == "-":
        if stdin is None:
            raise ConfigError("cannot read credentials from stdin: it is closed")
        return parse_credentials(stdin.read(FILE_BYTES_MAX + 1), source="stdin")
    if acl_file is not None:
        return parse_credentials(read_private_file(acl_file), source=acl_file)
    access_key = environ.get(ENV_ACCESS_KEY)
    secret_key = environ.get(ENV_SECRET_KEY)
    if not access_key and not secret_key:
        return None
    values = {"access_key": access_key or "", "secret_key": secret_key or ""}
    if environ.get(ENV_SECURITY_TOKEN):
        values["security_token"] = environ[ENV_SECURITY_TOKEN]
    return _credentials(values, source=f"{ENV_ACCESS_KEY}, {ENV_SECRET_KEY}")


def load_registry_login(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the user and the password for a schema registry, or None.

    They are the two lines of the private file that RMQ_REGISTRY_FILE names, or the
    values of RMQ_REGISTRY_USER and RMQ_REGISTRY_PASSWORD. Raises ConfigError when they
    are given but cannot be used.
    """
    path = environ.get(ENV_REGISTRY_FILE)
    if path:
        lines = [line.strip() for line in read_private_file(path).splitlines()]
        lines = [line for line in lines if line]
        if len(lines) != 2:
            raise ConfigError(
                f"{path}: not the user and the password for a schema registry",
                hint="write them on two lines",
            )
        user, password = lines
        source = path
    else:
        user = environ.get(ENV_REGISTRY_USER) or ""
        password = environ.get(ENV_REGISTRY_PASSWORD) or ""
        source = f"{ENV_REGISTRY_USER}, {ENV_REGISTRY_PASSWORD}"
        if not user and not password:
            return None
        if not user or not password:
            missing = "password" if user else "user"
            raise ConfigError(f"{source}: the {missing} is missing")
    if ":" in user:
        raise ConfigError(f"{source}: the user has a colon, which HTTP does not allow")
    return user, password


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `environ` without secrets.

    It is for a child process that does not talk to the cluster.
    """
    return {name: value for name, value in environ.items() if name not in ENV_SECRETS}


def parse_credentials(text: str, *, source: str) -> Credentials:
    """Parse credentials. Raises ConfigError, which never quotes `text`."""
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{source}: too large for credentials")
    text = text.removeprefix("\ufeff")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if _names_a_field(lines, "="):
        return _credentials(_parse_toml(text, source=source), source=source)
    if _names_a_field(lines, ":"):
        return _credentials(_parse_yaml_lines(lines), source=source)
    if len(lines) in (2, 3):
        names = ("access_key", "secret_key", "security_token")
        return _credentials(dict(zip(names, lines, strict=False)), source=source)
    raise ConfigError(f"{source}: no access key and secret key found", hint=_EXAMPLE)


def read_private_file(path: str) -> str:
    """Read a text file that only its owner, this user or root, can access.

    The open file is checked, so that the file that is read is the one that was checked.
    Raises ConfigError for any other file, for one that is not UTF-8, and for one of
    more than FILE_BYTES_MAX bytes.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: {reason}") from error
    try:
        _check_private(os.fstat(handle), path)
        data = os.read(handle, FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: too large, more than {FILE_BYTES_MAX:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _check_private(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path}: belongs to another user")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ConfigError(
            f"{path}: other users can read or write it (mode {mode:04o})",
            hint=f"run: chmod 600 {path}",
        )


def _parse_toml(text: str, *, source: str) -> dict[str, str]:
    import tomllib  # takes 5 ms, and only TOML needs it

    try:
        table = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError:
        # tomllib's message may quote the line with the secret.
        raise ConfigError(f"{source}: not valid TOML", hint=_EXAMPLE) from None
    values = {}
    for key, value in table.items():
        name = _FIELDS.get(key.lower())
        if name is not None and isinstance(value, str):
            values[name] = value
    return values


def _names_a_field(lines: list[str], separator: str) -> bool:
    """Whether a line is `field<separator>...`; bare secrets may contain either sign."""
    keys = (line.partition(separator) for line in lines)
    return any(sign and key.strip().lower() in _FIELDS for key, sign, _ in keys)


def _parse_yaml_lines(lines: list[str]) -> dict[str, str]:
    values = {}
    for line in lines:
        key, _, value = line.partition(":")
        name = _FIELDS.get(key.strip().lower())
        if name is not None:
            value = value.strip()
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            values[name] = value
    return values


def _credentials(values: Mapping[str, str], *, source: str) -> Credentials:
    from rmqcli.wire.acl import Credentials

    access_key, secret_key = values.get("access_key"), values.get("secret_key")
    if not access_key or not secret_key:
        missing = "secret key" if access_key else "access key"
        raise ConfigError(f"{source}: the {missing} is missing", hint=_EXAMPLE)
    return Credentials(access_key, secret_key, values.get("security_token") or None)
