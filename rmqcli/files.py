"""File names made of untrusted text, and safe reading and writing of files.

A name from a peer, or from a file that other users can write, becomes part of a path
only after `file_name_fault` found no fault in it. A written file appears whole or not
at all: it is first written under a temporary name that cannot be guessed. Symbolic
links are not followed. Only regular files of a bounded length are read.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Linux's NAME_MAX, which the file systems in use share.
FILE_NAME_BYTES_MAX: Final = 255

#: Temporary files have this prefix, by which those of killed processes are recognised.
TEMPORARY_PREFIX: Final = ".rmq-"
_TEMPORARY_SUFFIX: Final = ".part"


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


def write_temporary(directory: Path, data: bytes, *, mode: int) -> Path:
    """Write `data` to a new temporary file in `directory`, and sync it to the disk.

    The caller renames, links or removes the file. Raises OSError, and then leaves no
    file.
    """
    path = directory / f"{TEMPORARY_PREFIX}{secrets.token_hex(16)}{_TEMPORARY_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return path


def replace_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the file `path` in one step: readers see the old file or the new one.

    A symbolic link of that name is replaced, not followed. After the call the file is
    on the disk under its name. Raises OSError; the old file is then still there, unless
    only the last sync, that of the folder, failed.
    """
    temporary = write_temporary(path.parent, data, mode=mode)
    try:
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def create_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Create a file in one step: readers never see a part of it.

    Raises FileExistsError when something has that name, even a symbolic link, and
    OSError. A file that exists is never changed.
    """
    temporary = write_temporary(path.parent, data, mode=mode)
    try:
        os.link(temporary, path, follow_symlinks=False)
    finally:
        with suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


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
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_regular(path: str | Path, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of a regular file.

    Raises OSError, also for a symbolic link, a folder, a device and a named pipe. It
    never waits, for example for the writer of a pipe.
    """
    # Without O_NONBLOCK the open of a pipe waits for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file", os.fspath(path))
        return file.read(bytes_max)


def folder_fault(folder: Path) -> str | None:
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
