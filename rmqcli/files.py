"""File names made of untrusted text, and safe reading, writing and locking of files.

A name from a peer, or from a file that other users can write, becomes part of a path
only after `file_name_fault` found no fault in it. A written file appears whole or not
at all: it is first written under a temporary name that cannot be guessed. Symbolic
links are not followed. Only regular files of a bounded length are read.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Linux's NAME_MAX, which the file systems in use share.
FILE_NAME_BYTES_MAX: Final = 255

#: Temporary files have this prefix, by which those of killed processes are recognised.
TEMPORARY_PREFIX: Final = ".rmq-"
_TEMPORARY_SUFFIX: Final = ".part"


def input_title(name: str) -> str:
    """Return how messages name an input file: `-` is stdin."""
    return "stdin" if name == "-" else name


def file_name_fault(name: str) -> str | None:
    """Return why `name` cannot be the name of a file or folder, or None if it can.

    The text continues a sentence after "the name": "has a slash", "is empty".
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "must not be '.' or '..'"
    if "/" in name:
        return "has a slash"
    if "\0" in name:
        return "has a NUL character"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "contains an unpaired surrogate"
    if length > FILE_NAME_BYTES_MAX:
        return f"has {length} bytes; at most {FILE_NAME_BYTES_MAX} are allowed"
    return None


def xdg_folder(environ: Mapping[str, str], variable: str, default: str) -> str | None:
    """Return a user's folder by the XDG specification; None without a home directory.

    `default` is relative to the home directory. A relative value of the variable is
    ignored, as the specification requires.
    """
    folder = environ.get(variable, "")
    if not folder.startswith("/"):
        folder = os.path.join(os.path.expanduser("~"), default)
    return folder if folder.startswith("/") else None


def state_folder(environ: Mapping[str, str], name: str) -> str | None:
    """Return `$XDG_STATE_HOME/rmqcli/NAME`, or the same in `~/.local/state`.

    The result is None without a home directory.
    """
    state = xdg_folder(environ, "XDG_STATE_HOME", ".local/state")
    return None if state is None else os.path.join(state, "rmqcli", name)


def write_temporary(
    directory: str | Path, data: bytes, *, mode: int, is_synced: bool = True
) -> str:
    """Write `data` to a new temporary file in `directory`, and sync it to the disk.

    The caller renames, links or removes the file, whose path is returned. Raises
    OSError, and then leaves no file.
    """
    name = f"{TEMPORARY_PREFIX}{os.urandom(16).hex()}{_TEMPORARY_SUFFIX}"
    path = os.path.join(directory, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


def replace_file(
    path: str | Path,
    data: bytes,
    *,
    mode: int = 0o644,
    backup: str | Path | None = None,
    is_synced: bool = True,
) -> None:
    """Replace the file `path` in one step: readers see the old file or the new one.

    A symbolic link of that name is replaced, not followed. The old file is kept under
    the name `backup`, if one is given. After the call the file is on the disk under its
    name, unless `is_synced` is false, for a file that may be lost in a power cut.
    Raises OSError; the old file is then still there, unless only the last sync, that of
    the folder, failed.
    """
    folder = os.path.dirname(path)
    temporary = write_temporary(folder, data, mode=mode, is_synced=is_synced)
    try:
        if backup is not None and os.path.lexists(path):
            # A hard link, so that a file of that name exists at every moment.
            with suppress(FileNotFoundError):
                os.unlink(backup)
            os.link(path, backup, follow_symlinks=False)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if is_synced:
        sync_folder(folder)


def create_file(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """Create a file in one step: readers never see a part of it.

    Raises FileExistsError when something has that name, even a symbolic link, and
    OSError. A file that exists is never changed.
    """
    temporary = write_temporary(os.path.dirname(path), data, mode=mode)
    try:
        os.link(temporary, path, follow_symlinks=False)
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    sync_folder(os.path.dirname(path))


def open_locked(path: str, flags: int = os.O_CREAT, *, mode: int = 0o644) -> int:
    """Open a file and lock it for this process; return its descriptor.

    The lock ends when the descriptor is closed, or with the process. `flags` are added
    to the usual ones. Raises BlockingIOError when another process, or another open of
    this one, holds the lock, and OSError otherwise.
    """
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def remove_temporaries(directory: Path) -> None:
    """Remove temporary files that a killed process left in `directory`.

    They are files of `write_temporary`. Only one process at a time may write into the
    folder. Raises OSError.
    """
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(directory) as found,
    ):
        for entry in found:
            is_ours = entry.name.startswith(TEMPORARY_PREFIX)
            if is_ours and entry.name.endswith(_TEMPORARY_SUFFIX):
                os.unlink(entry.path)


def sync_folder(directory: str | Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    fd = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_readable(path: str) -> None:
    """Raise UsageError unless `path` is a file, a pipe or a device that can be read."""
    fault = None
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            fault = "is a directory"
        elif not os.access(path, os.R_OK):
            fault = "permission denied"
    except OSError as error:
        reason = error.strerror or type(error).__name__
        fault = reason[:1].lower() + reason[1:]
    except ValueError:  # a null byte
        fault = "not the name of a file"
    if fault is not None:
        from rmqcli.errors import UsageError  # completion must start fast

        raise UsageError(f"{path}: {fault}")


def read_regular(path: str | Path, bytes_max: int, *, is_own: bool = False) -> bytes:
    """Return the first `bytes_max` bytes of a regular file.

    Raises OSError, also for a symbolic link, a folder, a device and a named pipe, and
    with `is_own` for a file of another user. It never waits, for example for the writer
    of a pipe.
    """
    # Without O_NONBLOCK the open of a pipe waits for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags)
    status = os.fstat(fd)
    fault = ""
    if not stat.S_ISREG(status.st_mode):
        fault = "not a regular file"
    elif is_own and status.st_uid != os.geteuid():
        fault = "a file of another user"
    if fault:
        os.close(fd)
        raise OSError(0, fault, os.fspath(path))
    with os.fdopen(fd, "rb") as file:
        return file.read(bytes_max)


def folder_fault(folder: str | Path) -> str | None:
    """Return why this process should not write into `folder`, or None if it may.

    A folder, or a link to a folder, that belongs to another user is refused, because
    that user could redirect the writes into files of ours. A missing folder is no
    fault. Raises OSError.
    """
    uid = os.geteuid()
    try:
        for status in (os.lstat(folder), os.stat(folder)):
            if status.st_uid != uid:
                return f"belongs to user {status.st_uid}, not to {uid}"
    except FileNotFoundError:
        return None
    return None
