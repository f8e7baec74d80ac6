"""The file-system calls of an export, in one object that tests can replace.

New files are created exclusively and never through a symbolic link. A file is synced to
the disk before it gets its final name, and its directory is synced after that. Errors
are raised as OSError; the callers translate them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from rmqcli.errors import ConfigError, RefusedError, RmqError, UsageError
from rmqcli.files import open_locked, read_regular, sync_folder
from rmqcli.spark.export import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")


class Disk:
    """The real file system as a `Storage`. Stateless; pickled to workers.

    Every write goes through `create`, `sync`, `replace` and `sync_folder`, in that
    order, so that a test can inject a failure or a kill at every step of every write.
    """

    is_remote = False

    @property
    def scratch(self) -> Disk:
        return self  # the folder for unfinished files is on the same disk

    def check_access(self) -> None:
        """Do nothing, because the executor checks the folder itself."""

    def root_of(self, path: str) -> str:
        """Return the path with links resolved: a link may change during an export."""
        return os.path.realpath(path)

    @contextlib.contextmanager
    def locked(
        self,
        paths: layout.ExportLayout,
        *,
        create: bool,
        refuse_foreign: Callable[[], None],
    ) -> Iterator[bool]:
        """Lock the folder; the lock ends with the process. See `Storage.locked`."""
        root = paths.root
        was_there, was_ours = os.path.lexists(root), os.path.lexists(paths.meta)
        is_kept = was_ours
        try:
            if create:
                os.makedirs(root, exist_ok=True)
            if not os.path.isdir(root):
                raise UsageError(f"{root} is not a folder")
            if not was_ours:
                refuse_foreign()
            handle = _lock(paths)
        except FileExistsError as error:
            raise UsageError(f"{root} is not a folder") from error
        except OSError as error:
            raise RmqError(f"cannot write to {root}: {error.strerror}") from error
        try:
            yield was_ours
            is_kept = True
        finally:
            if not is_kept and not os.path.exists(paths.runs):
                with contextlib.suppress(OSError):
                    os.unlink(paths.lock)
                    os.rmdir(paths.meta)
                    if not was_there:
                        os.rmdir(root)
            os.close(handle)

    def begin_attempt(self, paths: layout.ExportLayout, run_id: str) -> str:
        """Create a new temp folder for workers, which never create it themselves."""
        name = f"{layout.TEMP}/{run_id}.{secrets.token_hex(8)}"
        return self.make_folders(paths.meta, name)

    def workspace(self, temp: str) -> contextlib.AbstractContextManager[str]:
        """Return the attempt's folder, which every worker sees."""
        return contextlib.nullcontext(temp)

    def sweep(self, paths: layout.ExportLayout) -> None:
        """Remove all temporary files, of this run and of earlier ones.

        This also fences off workers that outlived a killed driver: the folder to which
        they write is gone, so they can neither create nor rename files. The folder is
        renamed before it is removed, because it might never become empty while workers
        create files in it; after the rename, they no longer find it.
        """
        with contextlib.suppress(FileNotFoundError):
            check_real_folder(paths.temp)
            os.rename(paths.temp, f"{paths.temp}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(paths.meta):
                if name.startswith(f"{layout.TEMP}."):
                    shutil.rmtree(os.path.join(paths.meta, name), ignore_errors=True)

    def log_path(self, path: str, temp: str) -> str:
        """Return `path` when its folder exists, else a path in the temp folder."""
        return path if os.path.exists(os.path.dirname(path)) else _temp_log(temp)

    def adopt_log(self, path: str, temp: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rename(_temp_log(temp), path)

    def save_log(self, path: str, temp: str) -> None:
        """Do nothing, because Spark has written the log to its final path."""

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.lstat(path).st_size

    def read_text(self, path: str) -> str:
        return read_text(path)

    def open_read(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises OSError for a symbolic link."""
        return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")

    def list_names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def walk_files(self, root: str) -> Iterator[str]:
        return walk_files(root)

    def publish(self, temp: str, path: str) -> None:
        self.replace(temp, path)
        self.sync_folder(os.path.dirname(path))

    def raise_unanswered(self, error: Exception, path: str) -> None:
        """Do nothing, because pyarrow also reports a damaged file as an OSError."""

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return map(function, items)

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
        sync_folder(path)

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


def _lock(paths: layout.ExportLayout) -> int:
    """Create `_rmq` in the folder, if it does not exist, and lock the lock file.

    The file then has the id of this process. Raises RefusedError when another export
    holds the lock, and OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(paths.meta)
    check_real_folder(paths.meta)
    try:
        handle = open_locked(paths.lock)
    except BlockingIOError as error:
        owner = read_regular(paths.lock, 20).decode("ascii", "replace").strip()
        raise RefusedError(
            f"another export (process {owner or 'unknown'}) is running in {paths.root}",
            hint="wait until it has ended",
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)
    return handle


def _temp_log(temp: str) -> str:
    return os.path.join(temp, "spark.log")


def check_real_folder(path: str) -> None:
    """Raise RefusedError unless `path` is a folder and not a symbolic link."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise RefusedError(
            f"{path} is a symbolic link or not a folder, so nothing is written to it"
        )


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write every byte; a raw file may write only some of them when the disk fills."""
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def read_text(path: str) -> str:
    """Return the text of a file.

    Raises OSError, also for a symbolic link, and ConfigError for text that is not
    UTF-8.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with open(handle, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error


def walk_files(root: str) -> Iterator[str]:
    """Yield every regular file below `root` as a path relative to it, by folder.

    Symbolic links are neither followed nor listed. Names that begin with `_` or `.` are
    skipped, as Parquet readers skip them.
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
