"""Finds the secrets that rmq itself knows, so that a bundle holds none of them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from rmqcli.cli.configuration.file import read_config
from rmqcli.cli.configuration.places import project_path
from rmqcli.cli.configuration.profile import SECRETS
from rmqcli.credentials import ENV_REGISTRY_FILE, ENV_SECRETS, parse_credentials
from rmqcli.errors import RmqError
from rmqcli.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.config import ClientConfig

_FILE_BYTES_MAX: Final = 64 << 10
#: Variables of the environment whose values are secrets.
_VARIABLE: Final = re.compile(
    r"SECRET|PASS(?:WORD|WD|PHRASE)?$|PASSWORD|TOKEN|CREDENTIAL|(?:ACCESS|API|PRIVATE)_?KEY",
    re.IGNORECASE,
)
_PEM_LINE: Final = re.compile(r"[A-Za-z0-9+/=]{16,}")


def known_secrets(config: ClientConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield credentials, the values of secret variables, and lines of private keys.

    Credentials are those in use, and those in the files of profiles. What cannot be
    read is left out: then it is not in the bundle, either.
    """
    used = config.credentials
    if used is not None:
        yield from (used.access_key, used.secret_key, used.security_token or "")
    for name, value in environ.items():
        if name in ENV_SECRETS or _VARIABLE.search(name) is not None:
            yield value
    try:
        config_file = read_config(environ)
        for table in config_file.profiles.values():
            yield from _in_profile(table, os.path.dirname(config_file.path))
    except RmqError:
        pass
    project = project_path()
    if project is not None:
        yield from _in_project(project)
    if environ.get(ENV_REGISTRY_FILE):
        yield from _text(environ[ENV_REGISTRY_FILE]).split("\n")
    if config.tls is not None and config.tls.key_file:
        yield from _key_lines(config.tls.key_file)


def _in_profile(table: Any, folder: str) -> Iterator[str]:
    if not isinstance(table, dict):
        return
    for key in SECRETS:
        if isinstance(table.get(key), str):
            yield table[key]
    for key, read in (("tls_key", _key_lines), ("credentials_file", _in_credentials)):
        if isinstance(table.get(key), str):
            yield from read(os.path.join(folder, os.path.expanduser(table[key])))


def _in_credentials(path: str) -> Iterator[str]:
    text = _text(path)
    try:
        found = parse_credentials(text, source=path)
    except RmqError:
        return
    yield from (found.access_key, found.secret_key, found.security_token or "")


def _in_project(path: str) -> Iterator[str]:
    import tomllib

    try:
        table = tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    yield from _in_profile(table, os.path.dirname(path))


def _key_lines(path: str) -> Iterator[str]:
    yield from _PEM_LINE.findall(_text(path))


def _text(path: str) -> str:
    """Return the start of a file; nothing if it cannot be read."""
    try:
        return read_regular(path, _FILE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
