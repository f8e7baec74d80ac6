"""Reads the user's file of profiles, `config.toml`.

It is read only if other users cannot have written it, and with secrets only if other
users cannot read it. The settings of a profile are checked when it is used. How a file
of settings is opened and parsed is here, too: a project's file (`project.py`) is read
in the same way.
"""

from __future__ import annotations

import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any

from rmqcli.cli.configuration.copy import keep_copy, parsed_copy
from rmqcli.cli.configuration.places import config_path
from rmqcli.cli.configuration.profile import (
    SECRETS,
    Profile,
    Record,
    check_name,
    read_profile,
)
from rmqcli.errors import ConfigError, UsageError

#: The key of the profile in use, and that of the table of profiles.
USE = "use"
PROFILES = "profiles"
#: Why there is no file, and what to do about it.
NO_HOME = "there is no home directory for profiles"
NO_HOME_HINT = "set XDG_CONFIG_HOME"
_BYTES_MAX = 1 << 20
_PLACE = r"\((at line \d+, column \d+|at end of document)\)$"


class Config(Record):
    """The content of the user's file. Its profiles are not checked."""

    #: empty without a home directory
    path: str
    #: the profile in use; None without one
    use: str | None
    profiles: Mapping[str, Any]

    def profile(self, name: str) -> Profile:
        """Return a profile. Raises UsageError for an unknown one, and ConfigError."""
        if name not in self.profiles:
            raise _unknown(check_name(name), self)
        return read_profile(name, self.profiles[name], path=self.path)


def read_config(environ: Mapping[str, str]) -> Config:
    """Read the user's file; a missing one has no profiles. Raises ConfigError."""
    path = config_path(environ)
    if path is None:
        return Config("", None, {})
    try:
        text = read_text(path)
    except FileNotFoundError:
        return Config(path, None, {})
    return _config(table_of(text, path, environ), path)


def parse_config(text: str, path: str) -> Config:
    """Read the text of the user's file. Raises ConfigError, which quotes no secret."""
    return _config(parse_toml(text, path), path)


def _config(table: dict[str, Any], path: str) -> Config:
    for key in table:
        if key not in (USE, PROFILES):
            raise ConfigError(
                f"{path}: {key} is neither {USE} nor {PROFILES}",
                hint="the settings of a profile are in a table [profiles.NAME]",
            )
    use, profiles = table.get(USE), table.get(PROFILES, {})
    if not isinstance(use, str | None):
        raise ConfigError(f"{path}: {USE} must be the name of a profile")
    if not isinstance(profiles, dict):
        raise ConfigError(f"{path}: {PROFILES} must be a table of profiles")
    return Config(path, use, profiles)


def table_of(text: str, path: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what `parse_toml` does, from the copy of this text if there is one.

    A copy is kept otherwise. Raises ConfigError.
    """
    table = parsed_copy(text, path, environ)
    if table is None:
        table = parse_toml(text, path)
        keep_copy(table, text, path, environ)
    return table


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError with the line and column of a fault."""
    import tomllib  # takes some ms, and few users have profiles

    try:
        return tomllib.loads(text)
    except ValueError as error:  # also for an integer of thousands of digits
        # The rest of tomllib's message may quote a secret.
        place = re.search(_PLACE, str(error))
        at = f" {place[1]}" if place else ""
        raise ConfigError(f"{path}: not valid TOML{at}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: nested too deeply") from None


def read_text(path: str) -> str:
    """Read the user's file, which may be a symbolic link.

    The open file is checked: it must be a regular one, of this user or root, that no
    other user can write and, with a secret in it, none can read. Raises
    FileNotFoundError, and ConfigError for everything else.
    """
    text, status = read_with_status(path)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path}: belongs to another user")
    if mode & 0o022:
        raise written_by_others(path, mode)
    if mode & 0o077 and any(name in text for name in SECRETS) and holds_secret(text):
        raise ConfigError(
            f"{path}: holds a secret, and other users can read it (mode {mode:04o})",
            hint=f"run: chmod 600 {path}",
        )
    return text


def read_with_status(path: str) -> tuple[str, os.stat_result]:
    """Read a regular file of settings; return its text, and who can change it.

    Raises FileNotFoundError, and ConfigError for everything else.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path}: not a regular file")
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read(_BYTES_MAX + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: {reason}") from error
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{path}: too large, more than {_BYTES_MAX:,} bytes")
    try:
        # Python loads a codec for the mark at the beginning of some files.
        return data.removeprefix(BOM_UTF8).decode(), status
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def written_by_others(path: str, mode: int) -> ConfigError:
    """The error for a file that other users could have written."""
    return ConfigError(
        f"{path}: other users can write it (mode {mode:04o})",
        hint=f"run: chmod go-w {path}",
    )


def holds_secret(text: str) -> bool:
    """Whether a table of the TOML `text` has the key of a secret.

    Text that is not valid TOML counts as having one, if a line of it begins with one.
    """
    import tomllib

    try:
        pending: list[object] = [tomllib.loads(text)]
    except (ValueError, RecursionError):
        lines = (line.strip() for line in text.splitlines())
        return any(line.startswith(SECRETS) for line in lines)
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if any(key in value for key in SECRETS):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def _unknown(name: str, config: Config) -> UsageError:
    if config.profiles:
        from rmqcli.cli.ui.errors import unknown_name

        return unknown_name("profile", name, config.profiles)
    if not config.path:
        return UsageError(
            f"profile {name} does not exist: {NO_HOME}", hint=NO_HOME_HINT
        )
    return UsageError(
        f"profile {name} does not exist: {config.path} has no profiles",
        hint=f"add it: rmq profile add {name} --namesrv HOST:PORT",
    )
