"""Files of one length in a folder, each named by the offset at which it begins.

Commit log and consume queues consist of them. Files are sparse, written with pwrite and
read with pread, so that a full disk is an error of the call and never a signal. This
module does not know the content.

Source: `MappedFileQueue` and `DefaultMappedFile` in apache/rocketmq.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right, insort
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.files import sync_folder
from rmqcli.log import get_logger
from rmqcli.store.message_store import StoreError, StoreFullError, store_errors

if TYPE_CHECKING:
    from pathlib import Path

logger = get_logger(__name__)

_NAME_DIGITS: Final = 20
_OFFSET_MAX: Final = (1 << 63) - 1
_CLEARED_AT_ONCE_BYTES: Final = 1024 * 1024


class OpenFiles:
    """File descriptors of one store, opened when first used, the oldest closed first.

    A store may have more files than a process may open. Not safe across threads.
    """

    def __init__(self, *, writable: bool, limit: int = 192) -> None:
        self.writable = writable
        self._limit = limit
        self._fds: dict[str, int] = {}

    def fd(self, path: str) -> int:
        """Return the descriptor of an existing file. Raises OSError."""
        fd = self._fds.get(path)
        if fd is None:
            flags = os.O_RDWR if self.writable else os.O_RDONLY
            # The path was a file when it was listed. If it is a pipe now, do not block.
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = self._keep(path, os.open(path, flags))
        return fd

    def create(self, path: str, length: int) -> int:
        """Create a file of `length` zeros; after an OSError there is none."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        try:
            os.ftruncate(fd, length)
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        return self._keep(path, fd)

    def forget(self, path: str) -> None:
        """Close the file if it is open."""
        fd = self._fds.pop(path, None)
        if fd is not None:
            os.close(fd)

    def forget_deleted(self, path: str) -> None:
        """Close the file if another process has deleted it since it was opened."""
        fd = self._fds.get(path)
        if fd is not None and not os.fstat(fd).st_nlink:
            self.forget(path)

    def close(self) -> None:
        """Close all. Idempotent."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _keep(self, path: str, fd: int) -> int:
        if len(self._fds) >= self._limit:
            self.forget(next(iter(self._fds)))
        self._fds[path] = fd
        return fd


class FixedFiles:
    """The files of one folder, addressed by offsets that run through all of them.

    `file_bytes` is the length of the existing files, or else the requested one.
    Raises StoreError for files of different lengths.
    """

    def __init__(self, directory: Path, file_bytes: int, opened: OpenFiles) -> None:
        self.directory = str(directory)
        self.file_bytes = file_bytes
        self._opened = opened
        self._dirty: set[int] = set()
        self._is_folder_dirty = False
        self._had_files = False
        self._reported: set[str] = set()
        #: the offset at which each file begins, ascending
        self.bases: list[int] = []
        self.refresh()

    @property
    def is_deleted(self) -> bool:
        """Whether there were files, and now the folder does not exist any more."""
        if self._had_files:
            try:
                os.stat(self.directory)
            except FileNotFoundError:
                return True
            except OSError:
                pass
        return False

    def refresh(self) -> None:
        """Read the list of files again. Raises StoreError."""
        lengths = self._lengths()
        # An empty file is left by a process that ended in `create`. A real broker
        # deletes it, too.
        if lengths and not lengths[max(lengths)]:
            empty = max(lengths)
            del lengths[empty]
            if self._opened.writable:
                os.unlink(self._path(empty))
        if lengths:
            self._adopt(lengths)
        self.bases = sorted(lengths)
        self._had_files = self._had_files or bool(lengths)

    def _lengths(self) -> dict[int, int]:
        """Return the length of each file whose name is an offset, by that offset.

        Links, folders, devices and pipes with such a name are reported and left out.
        """
        found = {}
        missing = suppress(FileNotFoundError, NotADirectoryError)
        with store_errors(f"{self.directory} cannot be read"), missing:
            for name in os.listdir(self.directory):
                is_offset = len(name) == _NAME_DIGITS and name.isascii()
                if not (is_offset and name.isdecimal() and int(name) <= _OFFSET_MAX):
                    continue
                with suppress(FileNotFoundError):  # its broker deletes old ones
                    status = os.lstat(f"{self.directory}/{name}")
                    if stat.S_ISREG(status.st_mode):
                        found[int(name)] = status.st_size
                        self._opened.forget_deleted(f"{self.directory}/{name}")
                    elif name not in self._reported:
                        self._reported.add(name)
                        logger.warning(
                            "skipping %s/%s: not a regular file",
                            self.directory,
                            name,
                        )
        return found

    def _adopt(self, lengths: dict[int, int]) -> None:
        self.file_bytes = lengths[min(lengths)]
        for base, length in lengths.items():
            if length != self.file_bytes:
                raise StoreError(
                    f"{self._path(base)} has {length} bytes, but the first file has "
                    f"{self.file_bytes}; RocketMQ cannot open this folder",
                )
            if base % length:
                raise StoreError(
                    f"{self._path(base)}: the offset in its name is not a multiple "
                    f"of the {length} bytes of each file"
                )

    @property
    def start(self) -> int:
        """The offset at which the first file begins; 0 without files."""
        return self.bases[0] if self.bases else 0

    @property
    def limit(self) -> int:
        """The offset at which the last file ends; 0 without files."""
        return self.bases[-1] + self.file_bytes if self.bases else 0

    def base_of(self, offset: int) -> int:
        """Return where the file of `offset` begins, whether it exists or not."""
        return offset - offset % self.file_bytes

    def has(self, base: int) -> bool:
        """Whether a file begins at `base`."""
        at = bisect_right(self.bases, base) - 1
        return at >= 0 and self.bases[at] == base

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the file that contains `offset`; fewer at its end, or none.

        Raises StoreError when the disk cannot read them.
        """
        base = offset - offset % self.file_bytes
        if not self.has(base):
            return b""
        try:
            fd = self._opened.fd(self._path(base))
            return os.pread(
                fd, min(size_bytes, base + self.file_bytes - offset), offset - base
            )
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self._path(base)} cannot be read: {error}") from error

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write within one file, which is created if it does not exist.

        Raises StoreFullError; a part may have been written then.
        """
        base = offset - offset % self.file_bytes
        try:
            fd = self._fd_to_write(base)
            self._dirty.add(base)
            write_all(fd, data, offset - base)
        except OSError as error:
            raise StoreFullError(
                f"{self._path(base)} cannot be written: {error.strerror}",
                hint="free some space, then send again",
            ) from error

    def clear(self, start: int, end: int) -> None:
        """Write zeros from `start` to `end` of one file, if that file exists.

        Raises StoreError.
        """
        base = self.base_of(start)
        if start >= end or not self.has(base):
            return
        path = self._path(base)
        with store_errors(f"{path} cannot be cut"):
            fd = self._opened.fd(path)
            self._dirty.add(base)
            try:
                for at in range(start, end, _CLEARED_AT_ONCE_BYTES):
                    data = self.read(at, min(_CLEARED_AT_ONCE_BYTES, end - at))
                    # Zeros may have no blocks, and a full disk has none for them.
                    write_all(fd, bytes(len(data.rstrip(b"\0"))), at - base)
            except OSError:  # no free block for zeros: release the existing ones
                os.ftruncate(fd, start - base)
                os.ftruncate(fd, self.file_bytes)

    def cut(self, end: int) -> None:
        """Write zeros from `end` to the end of its file; delete the files after it."""
        for base in [base for base in self.bases if base > self.base_of(end)]:
            self.delete(base)
        if not self.has(self.base_of(end)):
            return
        self.clear(end, self.base_of(end) + self.file_bytes)

    def delete(self, base: int) -> None:
        """Delete the file that begins at `base`. Raises StoreError."""
        path = self._path(base)
        self._opened.forget(path)
        gone = suppress(FileNotFoundError)  # another process has deleted it
        with store_errors(f"{path} cannot be deleted"), gone:
            os.unlink(path)
        self.bases.remove(base)
        self._dirty.discard(base)

    def sync(self) -> None:
        """Make the written bytes survive a power cut. Raises StoreError."""
        if not self._dirty:
            return
        with store_errors(f"{self.directory} cannot be flushed"):
            for base in sorted(self._dirty):
                os.fdatasync(self._opened.fd(self._path(base)))
            if self._is_folder_dirty:
                sync_folder(self.directory)
        self._dirty.clear()
        self._is_folder_dirty = False

    def close(self) -> None:
        """Close the files' descriptors."""
        for base in self.bases:
            self._opened.forget(self._path(base))

    def _fd_to_write(self, base: int) -> int:
        if self.has(base):
            return self._opened.fd(self._path(base))
        if not self.bases:
            os.makedirs(self.directory, exist_ok=True)
        fd = self._opened.create(self._path(base), self.file_bytes)
        insort(self.bases, base)
        self._is_folder_dirty = True
        return fd

    def _path(self, base: int) -> str:
        return f"{self.directory}/{base:020}"


def write_all(fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
    """Write `data` at a byte of the file. Raises OSError.

    The system writes a part when the disk becomes full, and fails at the next try.
    """
    done = os.pwrite(fd, data, at) if data else 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], at + done)


class QueueOfFiles:
    """What all kinds of consume queues have: files, and the offsets of both ends.

    `max_offset` is the next offset to be written.
    """

    __slots__ = ("_files", "max_offset", "min_offset")

    def __init__(self, files: FixedFiles) -> None:
        self._files = files
        self.min_offset = 0
        self.max_offset = 0

    @property
    def file_bytes(self) -> int:
        """The length of each of its files."""
        return self._files.file_bytes

    @property
    def has_files(self) -> bool:
        """Whether the queue has files on disk."""
        return bool(self._files.bases)

    @property
    def is_deleted(self) -> bool:
        """Whether another process has deleted its folder since it had files."""
        return self._files.is_deleted

    def sync(self) -> None:
        """Make the entries that were written out survive a power cut."""
        self._files.sync()

    def close(self) -> None:
        """Close the files."""
        self._files.close()
