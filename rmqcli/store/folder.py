"""A store's folder as a whole: its layout, its owner, and the lock of one process.

Source: `DefaultMessageStore.start` (lock) and `StorePathConfigHelper`.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.files import folder_fault
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.store.message_store import StoreError, store_errors

if TYPE_CHECKING:
    from pathlib import Path

#: Device and inode of the lock files that this process holds: the kernel's lock belongs
#: to the whole process, and would not keep it from opening the folder a second time.
_held: set[tuple[int, int]] = set()

#: A file that RocksDB has in each of its folders.
_ROCKSDB_FILE: Final = "CURRENT"
_THROUGH_ITS_BROKER: Final = Hint(
    "read it through its broker, with ", Setting("namesrv", Blank("HOST:PORT"))
)
#: The folders that a store writes below its own.
_OWN_FOLDERS: Final = (
    "commitlog",
    "consumequeue",
    "batchconsumequeue",
    "index",
    "config",
)


def check_layout(folder: Path) -> None:
    """Raise StoreError for a folder of a kind that cannot be read."""
    names: list[str] = []
    with store_errors(f"{folder} cannot be read"), suppress(FileNotFoundError):
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is not a folder")
        for name in ("consumequeue", "consumequeue_rocksdb", "consumequeue_r"):
            if (folder / name / _ROCKSDB_FILE).exists():
                raise StoreError(
                    f"{folder} keeps its consume queues in RocksDB, which cannot be "
                    "read",
                    hint=_THROUGH_ITS_BROKER,
                )
        names = os.listdir(folder)
    dledger = [name for name in names if name.startswith("dledger-")]
    if dledger and "commitlog" not in names:
        raise StoreError(
            f"{folder} has a DLedger log ({dledger[0]}), which cannot be read",
            hint=_THROUGH_ITS_BROKER,
        )


def check_owner(folder: Path) -> None:
    """Raise StoreError for a folder that this process should not write into.

    That is a folder of another owner, or one with links in place of a store's own
    folders: a write could change any other file. A missing folder is fine.
    """
    with store_errors(f"{folder} cannot be read"):
        fault = folder_fault(folder)
        if fault is not None:
            raise StoreError(
                f"{folder} {fault}: nothing is written into it",
                hint="choose a folder in your home directory",
            )
        for inner in (folder / name for name in _OWN_FOLDERS):
            fault = "is a symbolic link" if inner.is_symlink() else folder_fault(inner)
            if fault is not None:
                raise StoreError(f"{inner} {fault}")


class FolderLock:
    """The lock of a folder, which a real broker takes, too.

    Raises StoreError if it is held.
    """

    def __init__(self, folder: Path) -> None:
        self._id: tuple[int, int] | None = None
        path = folder / "lock"
        with store_errors(f"{path} cannot be opened"):
            folder.mkdir(parents=True, exist_ok=True)
            check_owner(folder)
            # Checked before opening: closing the file again would release the lock.
            if path.exists() and _identity(os.stat(path)) in _held:
                raise StoreError(f"{folder} is in use by this process")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o644)
        try:
            self._take(folder)
        except BaseException:
            os.close(self._fd)
            raise
        self._id = _identity(os.fstat(self._fd))
        _held.add(self._id)

    def _take(self, folder: Path) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            raise StoreError(
                f"{folder} is in use by another process",
                hint="stop that broker, or name another folder",
            ) from error
        status = os.fstat(self._fd)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            os.pwrite(self._fd, b"lock", 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._id is not None:
            _held.discard(self._id)
            self._id = None
            os.close(self._fd)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
