"""The interface of the storage to which an export is written, and its two kinds.

`disk.Disk` is a folder of this machine, or a folder that all machines mount, with
links, locks, syncs and renames. `remote.RemoteStorage` is an object store or HDFS. All
paths are absolute: paths of the file system for a disk, URLs for a remote storage. A
file is written in `scratch`, a local folder, and moved to its final place when it is
complete, so that readers never see a half-written file.

A path that does not exist raises FileNotFoundError. Other errors are OSError for a disk
and StorageError for a remote storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.target import is_target, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from rmqcli.spark.export.layout import ExportLayout

T = TypeVar("T")
R = TypeVar("R")


class Storage(Protocol):
    """The storage of an export's files. Pickled to workers."""

    @property
    def is_remote(self) -> bool:
        """Whether paths are URLs, which can only be used through this interface."""

    @property
    def scratch(self) -> Disk:
        """The disk for files that are not yet complete."""

    def check_access(self) -> None:
        """Raise RmqError when this process cannot use the storage."""

    def root_of(self, path: str) -> str:
        """Return the root of an `ExportLayout` for the path or URL that a user gave."""

    def locked(
        self, paths: ExportLayout, *, create: bool, refuse_foreign: Callable[[], None]
    ) -> AbstractContextManager[bool]:
        """Keep other exports out for the duration of the block.

        Yields whether an export has begun there before. `refuse_foreign` is called
        before anything is written to a folder that no export has used. When no run
        begins in the block, everything that this call created is removed again. Raises
        RefusedError while another export runs, and UsageError for a path that cannot be
        the folder of an export.
        """

    def begin_attempt(self, paths: ExportLayout, run_id: str) -> str:
        """Return a new local folder for the unfinished files of an attempt at a run."""

    def workspace(self, temp: str) -> AbstractContextManager[str]:
        """Return the folder of a task's unfinished files; `temp` is its attempt's."""

    def sweep(self, paths: ExportLayout) -> None:
        """Remove all unfinished files, of this attempt and of earlier ones."""

    def log_path(self, path: str, temp: str) -> str:
        """Return where Spark may write the log whose final path is `path`."""

    def adopt_log(self, path: str, temp: str) -> None:
        """Move the log to `path` while Spark writes to it, if that is possible."""

    def save_log(self, path: str, temp: str) -> None:
        """After Spark has ended, move its log to `path`, unless it is there already."""

    def exists(self, path: str) -> bool:
        """Whether this path exists."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""

    def read_text(self, path: str) -> str:
        """Return the text of a file."""

    def open_read(self, path: str) -> Any:  # noqa: ANN401  # a file, or pyarrow's
        """Open a file for random access. The result is a context manager."""

    def list_names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none when the folder does not exist."""

    def walk_files(self, root: str) -> Iterator[str]:
        """Yield the paths of files relative to `root`, as `disk.walk_files` does."""

    def write_text(self, path: str, text: str, *, temp: str) -> None:
        """Write a small file completely or not at all; `temp` is its temporary path."""

    def make_folders(self, root: str, relative: str) -> str:
        """Create each folder of `relative` below `root`; return the whole path."""

    def publish(self, temp: str, path: str) -> None:
        """Move a complete and synced file from `scratch` to its final path.

        It atomically replaces a file at that path. The folder of the path must exist.
        """

    def remove(self, path: str) -> None:
        """Remove one file, if it exists."""

    def raise_unanswered(self, error: Exception, path: str) -> None:
        """Raise StorageError when an error of reading a file comes from the storage.

        That is, when the storage did not answer or denied access. Returns when the file
        itself may be damaged.
        """

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Call a function with each item; concurrently, if calls wait for a network."""


def storage_of(path: str, environ: Mapping[str, str]) -> Storage:
    """Return the storage of a path or URL; the environment may name an endpoint.

    This opens no connection. Raises TextError as `parse_target` does.
    """
    if not is_target(path):
        return Disk()
    from rmqcli.spark.export.remote import RemoteStorage

    return RemoteStorage(parse_target(path).with_environment(environ))
