"""Keep an export in an object store or in HDFS, using pyarrow's file systems.

A file is completed in a local folder before its upload begins, so that an object never
contains half a file: pyarrow completes the upload of an abandoned stream and has no
call to abort it. In an object store an object becomes visible when its upload is
complete, and replaces an older object atomically. In HDFS a file is visible while it is
written; so it is written under a temporary name and renamed at the end.

pyarrow finds the credentials in the environment, the profile or the role of the
process. No object of this module contains them, so they are never sent to Spark's
workers.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.errors import (
    ConfigError,
    RefusedError,
    RmqError,
    StorageDeniedError,
    StorageError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.layout import ExportLayout
from rmqcli.spark.export.lease import ExportLease, LeaseFile
from rmqcli.spark.export.target import parse_target
from rmqcli.spark.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqcli.spark.export.target import Target

T = TypeVar("T")
R = TypeVar("R")

#: The largest text file that is read: about the manifest of a run of a million files.
TEXT_BYTES_MAX: Final = 512 * 1024 * 1024
CALLS_AT_ONCE: Final = 16

_CHUNK_BYTES: Final = 8 * 1024 * 1024
_CONNECT_TIMEOUT_S: Final = 10
_REQUEST_TIMEOUT_S: Final = 60
_RETRY_S: Final = 15

_DENIED: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|INVALID_CLIENT_TOKEN|EXPIRED_TOKEN"
    r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION|INCOMPLETE_SIGNATURE"
    r"|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED|OAuth2 access token"
    r"|AccessControlException|Permission denied",
)
_NO_BUCKET: Final = re.compile(r"NO_SUCH_BUCKET|bucket does not exist")
_UNREACHABLE: Final = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING"
    r"|INTERNAL_FAILURE|HTTP status 5\d\d|UNAVAILABLE|DEADLINE_EXCEEDED|curlCode"
    r"|[Cc]onnection refused|ConnectException|UnknownHost|HDFS connection failed",
)
#: The error name, HTTP status and operation in pyarrow's error text; details follow.
_AWS: Final = re.compile(r"AWS Error (\w+)(?: \(([^)]*)\))? during (\w+) operation: ?")
_GOOGLE: Final = re.compile(
    r".*?google::cloud::Status\(\w+: (?:Retry policy exhausted[^:]*last message of )?"
)
_TEXT_MAX: Final = 200


def open_filesystem(target: Target) -> Any:  # noqa: ANN401  # pyarrow's have no types
    """Return pyarrow's file system for a target.

    Raises ConfigError when this machine lacks libraries that the file system needs, and
    StorageError when it cannot be reached.
    """
    from pyarrow import fs

    if target.scheme == "s3":
        return _s3(target)
    if target.scheme == "gs":
        import datetime

        given = ("endpoint_override", "scheme", "project_id")
        options = {n: v for n in given if (v := target.option(n)) is not None}
        limit = datetime.timedelta(seconds=_RETRY_S)
        return fs.GcsFileSystem(
            anonymous=target.is_set("anonymous"), retry_time_limit=limit, **options
        )
    host, _, port = target.authority.partition(":")
    try:
        return fs.HadoopFileSystem(
            host or "default",
            int(port or 0),
            user=target.option("user"),
            replication=int(target.option("replication") or 3),
            kerb_ticket=target.option("kerb_ticket"),
        )
    except (OSError, ValueError) as error:
        text = str(error)
        if "libhdfs" in text or "libjvm" in text or "JVM" in text:
            raise ConfigError(
                f"{target.root} needs libhdfs and a Java: {_first_line(text)}",
                hint="set HADOOP_HOME and JAVA_HOME, and set CLASSPATH to the output of"
                " `hadoop classpath --glob`",
            ) from error
        raise translated(error, target.root) from error


def _s3(target: Target) -> Any:  # noqa: ANN401
    from pyarrow import fs

    options: dict[str, Any] = {
        name: value
        for name in ("endpoint_override", "scheme", "region", "tls_ca_file_path")
        if (value := target.option(name)) is not None
    }
    if target.is_set("force_virtual_addressing"):
        options["force_virtual_addressing"] = True
    if "region" not in options and "endpoint_override" not in options:
        # If this fails, pyarrow uses the region of the profile, or the default region.
        with contextlib.suppress(OSError):
            options["region"] = fs.resolve_s3_region(target.authority)
    options |= {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "request_timeout": _REQUEST_TIMEOUT_S,
    }
    try:
        # With delayed open a small file takes one request instead of three.
        return fs.S3FileSystem(allow_delayed_open=True, **options)
    except TypeError:
        pass  # an older pyarrow lacks allow_delayed_open, or one of the options
    try:
        return fs.S3FileSystem(**options)
    except TypeError as error:
        raise ConfigError(
            f"this pyarrow cannot open {target.root}: {_first_line(str(error))}",
            hint="install a newer pyarrow, or leave that option out",
        ) from error


class RemoteStorage:
    """A `Storage` that is reached through pyarrow. Thread-safe.

    It is pickled to workers without its connections. A worker writes only while the
    lease file of its export exists. `connect` creates the file system; tests pass their
    own.
    """

    is_remote = True

    def __init__(
        self, target: Target, *, connect: Callable[[Target], Any] = open_filesystem
    ) -> None:
        self.target = target
        self.scratch = _ScratchDisk()
        self._connect = connect
        self._filesystem: Any = None
        #: path of the lease file of the export; None while it holds no lease
        self._lease_path: str | None = None
        self._local: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_filesystem": None, "_local": None}

    @property
    def has_renames(self) -> bool:
        """Whether files are visible while they are written, and can be renamed."""
        return self.target.scheme == "hdfs"

    @property
    def _fs(self) -> Any:  # noqa: ANN401
        if self._filesystem is None:
            self._filesystem = self._connect(self.target)
        return self._filesystem

    def check_access(self) -> None:
        """Raise RmqError when this process cannot see the lease of the export.

        Then it has reached another storage than the driver, such as one of a different
        endpoint or account.
        """
        if self._lease_path is None or not self.exists(self._lease_path):
            raise RefusedError(
                f"the lease that the driver wrote is not in {self.target.root}"
            )

    def root_of(self, path: str) -> str:
        """Return the URL of the target for `path`, the text that the user gave."""
        return parse_target(path).root

    @contextlib.contextmanager
    def locked(
        self, paths: ExportLayout, *, create: bool, refuse_foreign: Callable[[], None]
    ) -> Iterator[bool]:
        """Hold the lease on the export. See `Storage.locked`.

        `create` has no effect, because there are no folders to create.
        """
        with scratch_folder() as folder:
            self._check_bucket()
            was_ours = self.exists(paths.manifest) or self.exists(paths.runs)
            if not was_ours:
                refuse_foreign()
            lease = ExportLease(self, paths.locks, root=paths.root)
            lease.acquire()
            self._lease_path, self._local = lease.path, folder
            try:
                yield was_ours
            finally:
                self._lease_path = self._local = None
                lease.release()

    def begin_attempt(self, paths: ExportLayout, run_id: str) -> str:
        """Create a folder on this machine, which is removed when the lease ends."""
        return tempfile.mkdtemp(prefix=f"{run_id}.", dir=self._local)

    def workspace(self, temp: str) -> contextlib.AbstractContextManager[str]:
        """Create a folder for one task; a later session removes it if the task dies."""
        return scratch_folder()

    def sweep(self, paths: ExportLayout) -> None:
        """Remove files that were never renamed; object stores have no such files."""
        if self.has_renames and self.exists(paths.temp):
            with self._errors(paths.temp), contextlib.suppress(FileNotFoundError):
                self._fs.delete_dir(self.target.inner(paths.temp))

    def log_path(self, path: str, temp: str) -> str:
        """Return a path in the local folder."""
        return os.path.join(temp, "spark.log")

    def adopt_log(self, path: str, temp: str) -> None:
        """Do nothing, because the log is uploaded when it is complete."""

    def save_log(self, path: str, temp: str) -> None:
        """Upload the log, if there is one and the run has begun; else do nothing."""
        log = self.log_path(path, temp)
        # An error here must not hide the error that ended the run.
        with contextlib.suppress(RmqError, OSError):
            if os.path.exists(log) and self.exists(os.path.dirname(path)):
                self.publish(log, path)

    def exists(self, path: str) -> bool:
        from pyarrow import fs

        with self._errors(path):
            info = self._fs.get_file_info(self.target.inner(path))
            return bool(info.type != fs.FileType.NotFound)

    def size(self, path: str) -> int:
        """Return the size of a file. Raises FileNotFoundError if it does not exist."""
        with self._errors(path):
            found = self._fs.get_file_info(self.target.inner(path)).size
        if found is None:
            raise FileNotFoundError(2, "no such file", path)
        return int(found)

    def read_text(self, path: str) -> str:
        """Return the text of a file. Raises ConfigError if too large, or not UTF-8."""
        with self._errors(path), self._fs.open_input_file(self.target.inner(path)) as f:
            if f.size() > TEXT_BYTES_MAX:
                raise ConfigError(
                    f"{path} has {f.size()} bytes, more than a text file of an export"
                    f" can have ({TEXT_BYTES_MAX})"
                )
            data = f.read()
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not UTF-8 text: {error.reason}") from error

    def open_read(self, path: str) -> Any:  # noqa: ANN401
        """Open a file for reading. Errors while reading are pyarrow's OSErrors."""
        with self._errors(path):
            return self._fs.open_input_file(self.target.inner(path))

    def list_names(self, folder: str) -> list[str]:
        # Folders in gs:// are only parts of names, and pyarrow does not list them.
        found = self._list(folder, recursive=self.target.scheme == "gs")
        start = self._length(folder)
        names = {info.path.strip("/")[start:].partition("/")[0] for info in found}
        return sorted(names - {""})

    def list_leases(self, folder: str) -> list[LeaseFile]:
        """Return the files in the folder of leases."""
        return [
            LeaseFile(os.path.join(folder, info.base_name), info.mtime_ns / 1e9)
            for info in self._list(folder, recursive=False)
            if info.is_file and info.base_name
        ]

    def walk_files(self, root: str) -> Iterator[str]:
        """Yield the files below `root` that readers see, as sorted relative paths."""
        start = self._length(root)
        found = (
            info.path.strip("/")[start:]
            for info in self._list(root, recursive=True)
            if info.is_file and info.base_name
        )
        yield from sorted(
            path
            for path in found
            if not any(name.startswith(("_", ".")) for name in path.split("/"))
        )

    def write_text(self, path: str, text: str, *, temp: str = "") -> None:
        """Write a small file, if the export still has its lease."""
        self._check_lease()
        self.put_text(path, text)

    def put_text(self, path: str, text: str) -> None:
        """Write a small file completely or not at all."""
        if self.has_renames:
            with contextlib.suppress(FileNotFoundError):
                if self.exists(path) and self.read_text(path) == text:
                    return  # replacing the file would remove it for a moment
        self._upload(path, lambda out: out.write(text.encode()))

    def make_folders(self, root: str, relative: str) -> str:
        """Return the path, because folders need not be created."""
        return os.path.join(root, relative)

    def publish(self, temp: str, path: str) -> None:
        """Upload a local file, if the export still has its lease, and remove it."""
        self._check_lease()

        def write(out: Any) -> None:  # noqa: ANN401
            with open(temp, "rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    out.write(data)

        self._upload(path, write)
        self.scratch.remove(temp)

    def remove(self, path: str) -> None:
        with self._errors(path), contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self.target.inner(path))

    def raise_unanswered(self, error: Exception, path: str) -> None:
        """Raise StorageError if the storage failed; return if the file may be bad."""
        found = translated(error, path)
        if type(found) is not StorageError:
            raise found from error

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Call the function in several threads, because each call waits for answers."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(
            CALLS_AT_ONCE, thread_name_prefix="rmq-export-call"
        ) as pool:
            return list(pool.map(function, items))

    def _length(self, folder: str) -> int:
        """Return the length of the prefix that all paths below `folder` share."""
        inner = self.target.inner(folder).strip("/")
        return len(inner) + 1 if inner else 0

    def _list(self, folder: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs

        where = self.target.inner(folder)
        with self._errors(folder):
            selector = fs.FileSelector(where, allow_not_found=True, recursive=recursive)
            found: list[Any] = self._fs.get_file_info(selector)
        return found

    def _upload(self, path: str, write: Callable[[Any], None]) -> None:
        """Write a whole file by calling `write` with its output stream."""
        where = self.target.inner(path)
        with self._errors(path):
            if self.has_renames:
                self._write_and_rename(where, write)
                return
            stream = self._fs.open_output_stream(where)
            try:
                write(stream)
            except BaseException:
                # If `write` failed to read its source, closing completes the upload, so
                # the object is deleted. A failed upload is not completed.
                with contextlib.suppress(OSError):
                    stream.close()
                    self._fs.delete_file(where)
                raise
            stream.close()

    def _write_and_rename(self, where: str, write: Callable[[Any], None]) -> None:
        folder = self.target.inner(ExportLayout(self.target.root).temp)
        self._fs.create_dir(folder, recursive=True)
        temp = f"{folder}/{secrets.token_hex(8)}"
        with self._fs.open_output_stream(temp) as stream:
            write(stream)
        self._fs.create_dir(os.path.dirname(where), recursive=True)
        # HDFS does not replace an existing file by a rename.
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(where)
        self._fs.move(temp, where)

    def _check_lease(self) -> None:
        """Raise RefusedError when another export has removed this export's lease."""
        if self._lease_path is None or not self.exists(self._lease_path):
            raise RefusedError(
                f"this export into {self.target.root} has lost its lease: another"
                " export considered it dead and took over",
                hint="wait until the other export has ended, then run this one again",
            )

    def _check_bucket(self) -> None:
        """Raise StorageError unless the bucket exists and may be listed."""
        from pyarrow import fs

        target = self.target
        with self._errors(target.prefix):
            where = target.authority if target.scheme != "hdfs" else "/"
            if self._fs.get_file_info(where).type == fs.FileType.NotFound:
                raise StorageNotFoundError(
                    f"{target.prefix} does not exist",
                    place=target.prefix,
                    hint="create the bucket, or check its name, region and endpoint",
                )

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Translate pyarrow's errors to StorageError, except FileNotFoundError."""
        import pyarrow as pa

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise translated(error, path) from error


def translated(error: Exception, path: str) -> StorageError:
    """Return the StorageError for an error of pyarrow's file systems."""
    text = str(error)
    kind, hint = StorageError, ""
    if _NO_BUCKET.search(text):
        kind = StorageNotFoundError
        hint = "create the bucket, or check its name, region and endpoint"
    elif _DENIED.search(text):
        kind = StorageDeniedError
        hint = "check the credentials in the environment, the profile or the role"
    elif _UNREACHABLE.search(text):
        kind = StorageUnreachableError
        hint = "check that the endpoint is right and can be reached from this machine"
    return kind(f"{path}: {_reason(text)}", place=path, hint=hint)


def _reason(text: str) -> str:
    """Return the name and details of an error, without request ids and locations."""
    found = _AWS.search(text)
    if found is None:
        return _first_line(_GOOGLE.sub("", text.partition(" error_info=")[0]))
    details = re.sub(r"\s*\(Request ID: [^)]*\)", "", text[found.end() :])
    details = re.sub(
        r"^Unable to parse ExceptionName: (\w+) Message: ", r"\1: ", details
    )
    name, status, operation = found.groups()
    what = f"{name}, {status}" if status else name
    return _first_line(f"{operation}: {details or what} ({what})")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:_TEXT_MAX] if lines else "no reason given"


class _ScratchDisk(Disk):
    """The local folder for files to upload, which need not survive a power cut."""

    def sync(self, file: Any) -> None:  # noqa: ANN401
        file.flush()

    def sync_folder(self, path: str) -> None:
        """Do nothing, because the files need not survive a power cut."""
