"""What an export needs of the place that it is written to: one interface, two kinds.

`disk.Disk` is a folder of this machine, or one that all machines mount, with links,
locks, syncs and renames. `remote.RemoteStorage` is an object store or HDFS. Paths are
absolute: of the file system there, URLs here. Files come into being in `scratch`, a
local folder, and get their place in the storage when they are complete, so nothing
half-written is ever at a place where a reader looks.

A path that is not there raises FileNotFoundError. Other errors are OSErrors of the disk
and StorageErrors of a remote storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.target import is_target, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from rmqcli.spark.export.layout import Layout

T = TypeVar("T")
R = TypeVar("R")


class Storage(Protocol):
    """Where the files of an export are. Pickled to workers."""

    @property
    def is_remote(self) -> bool:
        """Whether only this interface can reach its paths."""

    @property
    def scratch(self) -> Disk:
        """The disk for files that have no place in the storage yet."""

    def check_access(self) -> None:
        """Raise RmqError when this process cannot use the storage."""

    def root_of(self, path: str) -> str:
        """Return the root of a `Layout` for what the user named."""

    def locked(
        self, paths: Layout, *, create: bool, refuse_foreign: Callable[[], None]
    ) -> AbstractContextManager[bool]:
        """Keep other exports out for the time of the block.

        The block gets whether an export had begun there before. `refuse_foreign` is
        called before anything is written to a place that no export has used. When no
        run begins in the block, nothing stays of what this made. Raises RefusedError
        while another export runs, UsageError for a place that cannot be one.
        """

    def begin_attempt(self, paths: Layout, run_id: str) -> str:
        """Return a new local folder for what an attempt at a run has not finished."""

    def workspace(self, temp: str) -> AbstractContextManager[str]:
        """Return where a task keeps unfinished files, given the attempt's folder."""

    def sweep(self, paths: Layout) -> None:
        """Remove everything unfinished, of this attempt and of earlier ones."""

    def log_path(self, path: str, temp: str) -> str:
        """Return where Spark may write the log that belongs at `path`."""

    def adopt_log(self, path: str, temp: str) -> None:
        """Move the log to its place while Spark writes to it, if that is possible."""

    def save_log(self, path: str, temp: str) -> None:
        """Put the log of Spark, which has ended, in its place, if it is not there."""

    def exists(self, path: str) -> bool:
        """Whether there is anything under this path."""

    def size(self, path: str) -> int:
        """Return the bytes of a file."""

    def read_text(self, path: str) -> str:
        """Return the text of a file."""

    def open_read(self, path: str) -> Any:  # noqa: ANN401  # a file, or pyarrow's
        """Open a file for reading at any place of it; it is a context manager."""

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when it is not there."""

    def walk_files(self, root: str) -> Iterator[str]:
        """Yield the paths of files relative to `root`, as `disk.walk_files` does."""

    def write_text(self, path: str, text: str, *, temp: str) -> None:
        """Write a small file completely or not at all; `temp` is for its making."""

    def make_folders(self, root: str, relative: str) -> str:
        """Make each folder of `relative` below `root`; return the whole path."""

    def publish(self, temp: str, path: str) -> None:
        """Give a complete file of `scratch`, which is synced, its place.

        It replaces a file that is there, at once. Its folder exists.
        """

    def remove(self, path: str) -> None:
        """Remove one file, if it exists."""

    def raise_unanswered(self, error: Exception, path: str) -> None:
        """Raise StorageError if it was not the file that an error of reading is about.

        It may be the storage, which did not answer or denied it.
        """

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Call a function with each item; several at once if most of it is waiting."""


def storage_of(path: str, environ: Mapping[str, str]) -> Storage:
    """Return where a path or URL is; the environment may name an endpoint.

    Nothing is connected yet. Raises TextError as `parse_target` does.
    """
    if not is_target(path):
        return Disk()
    from rmqcli.spark.export.remote import RemoteStorage

    return RemoteStorage(parse_target(path).with_environment(environ))
