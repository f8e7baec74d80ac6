"""Changes the user's file of profiles, and keeps its comments and its order.

One command at a time changes the file, which appears changed as a whole or not at all.
What would be written is read first, and must have exactly the change that was meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqcli.cli.configuration.file import (
    NO_HOME,
    NO_HOME_HINT,
    PROFILES,
    USE,
    Config,
    parse_config,
    read_text,
)
from rmqcli.cli.configuration.places import config_path
from rmqcli.errors import ConfigError, RefusedError, RmqError
from rmqcli.files import open_locked, replace_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_LOCK = ".config.lock"


class LockedConfig(NamedTuple):
    """The user's file while no other command can change it."""

    path: str
    text: str

    def read(self) -> Config:
        """Read its content. Raises ConfigError."""
        return parse_config(self.text, self.path)

    def write(self, text: str) -> None:
        """Replace the file, which only this user can read afterwards."""
        try:
            replace_file(self.path, text.encode(), mode=0o600)
        except OSError as error:
            raise RmqError(f"{self.path}: {error.strerror}") from error


@contextmanager
def locked_config(environ: Mapping[str, str]) -> Iterator[LockedConfig]:
    """Lock the user's file, and make its folder.

    Raises RefusedError if another command holds the lock, and ConfigError for a file
    that other users could have written.
    """
    path = config_path(environ)
    if path is None:
        raise ConfigError(NO_HOME, hint=NO_HOME_HINT)
    path = os.path.realpath(path)  # a symbolic link stays one
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = open_locked(os.path.join(folder, _LOCK), mode=0o600)
    except BlockingIOError:
        raise RefusedError(
            f"{path}: another command is changing it; nothing was changed",
            hint="try again when that command has ended",
        ) from None
    except OSError as error:
        raise RmqError(f"{error.filename or folder}: {error.strerror}") from error
    try:
        try:
            text = read_text(path)
        except FileNotFoundError:
            text = ""
        yield LockedConfig(path, text)
    finally:
        os.close(lock)


def put_profile(file: LockedConfig, name: str, settings: Mapping[str, Any]) -> None:
    """Add a profile to the file, or replace the one of that name."""

    def put(document: TOMLDocument) -> None:
        import tomlkit

        table = tomlkit.table()
        for key, value in settings.items():
            inline = tomlkit.inline_table()
            table[key] = inline | value if isinstance(value, dict) else value
        if PROFILES not in document:
            document[PROFILES] = tomlkit.table(is_super_table=True)
        document[PROFILES][name] = table

    before = file.read()
    _change(file, put, before.use, {**before.profiles, name: dict(settings)})


def remove_profile(file: LockedConfig, name: str) -> None:
    """Remove a profile from the file."""

    def remove(document: TOMLDocument) -> None:
        del document[PROFILES][name]

    before = file.read()
    left = {key: value for key, value in before.profiles.items() if key != name}
    _change(file, remove, before.use, left)


def use_profile(file: LockedConfig, name: str | None) -> None:
    """Make a profile the one in use, or none."""

    def use(document: TOMLDocument) -> None:
        if name is None:
            document.pop(USE, None)
        else:
            document[USE] = name

    _change(file, use, name, file.read().profiles)


def _change(
    file: LockedConfig,
    edit: Callable[[TOMLDocument], None],
    use: str | None,
    profiles: Mapping[str, Any],
) -> None:
    """Edit the file, if the result has this profile in use and these profiles."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(file.text)
        edit(document)
        text = tomlkit.dumps(document)
        after = parse_config(text, file.path)
    except (TOMLKitError, ValueError) as error:  # ConfigError, too
        raise _cannot_edit(file) from error
    if (after.use, after.profiles) != (use, profiles):
        raise _cannot_edit(file)
    file.write(text)


def _cannot_edit(file: LockedConfig) -> RmqError:
    return RmqError(
        f"{file.path}: its form is too unusual to be changed; nothing was changed",
        hint="change it with: rmq profile edit",
    )
