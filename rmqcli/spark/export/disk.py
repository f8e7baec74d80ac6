"""The file-system calls of an export, in one object that tests can make fail.

New files are created exclusively and never through a symbolic link. A file is on the
disk before it gets its final name, and its directory is synced after that. Errors are
raised as OSError; the callers translate them.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from rmqcli.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Disk:
    """The real file system. Stateless; pickled to workers.

    Every write goes through `create`, `sync`, `replace` and `sync_folder`, in that
    order, so a test that fails or kills at the n-th call reaches every write.
    """

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing. Raises FileExistsError if the name is taken."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(path, flags, 0o644), "wb", buffering=0)

    def sync(self, file: BinaryIO) -> None:
        """Return when the file's bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def replace(self, source: str, target: str) -> None:
        """Rename `source` to its final name, atomically replacing an older file."""
        os.replace(source, target)

    def sync_folder(self, path: str) -> None:
        """Make renames inside the folder survive a power cut."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Remove one file, if it exists."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def make_folders(self, root: str, relative: str) -> str:
        """Create each folder of `relative` below `root`; return the whole path.

        Raises RefusedError when one of them is a symbolic link or not a folder.
        """
        path = root
        for name in relative.split("/"):
            path = os.path.join(path, name)
            try:
                os.mkdir(path, 0o755)
            except FileExistsError:
                check_real_folder(path)
        return path

    def write_text(self, path: str, text: str, *, temp: str) -> None:
        """Write a small file completely or not at all; `temp` is on the same disk."""
        file = self.create(temp)
        try:
            with file:
                write_all(file, text.encode())
                self.sync(file)
            self.replace(temp, path)
        except BaseException:
            self.remove(temp)
            raise
        self.sync_folder(os.path.dirname(path))


def check_real_folder(path: str) -> None:
    """Raise RefusedError unless `path` is a folder and not a symbolic link."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise RefusedError(f"{path} is a link or not a folder, so nothing is written")


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write every byte; a raw file may take only some of them when the disk fills."""
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def read_text(path: str) -> str:
    """Return the text of a file that is not a symbolic link. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, encoding="utf-8") as file:
        return file.read()


def walk_files(root: str) -> Iterator[str]:
    """Yield every regular file below `root`, as paths relative to it, by folder.

    Symbolic links are neither followed nor listed, and names that begin with `_` or
    `.` are skipped as Parquet readers skip them.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.startswith(("_", ".")) or entry.is_symlink():
                    continue
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_file(follow_symlinks=False):
                    yield name
