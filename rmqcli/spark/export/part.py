"""Write one part of an export: a range of a queue, from the broker to its final files.

This runs in a Spark worker but imports nothing from Spark. `write_part` pulls messages,
decodes about ten thousand at once, filters them by tag, writes row groups, syncs and
renames the files, and finally writes the part's record. A part without a record is not
complete, whatever files it left. A repeated call writes the same files again.

The messages come from a `ChunkSource`, which is pickled to the worker and opens its
connections there. `cluster.BrokerSource` reads from brokers; tests use sources that
read from memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, StorageError, TransportError
from rmqcli.spark.export.directory import ExportDirectory
from rmqcli.spark.export.disk import write_all
from rmqcli.spark.export.manifest import PartResult, part_to_json
from rmqcli.spark.export.part_files import FilesContext, PartFiles
from rmqcli.spark.rows import RangeRows, body_decoder, first_bodies, wanted_tags
from rmqcli.wire.message.json import JsonWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from rmqcli.admin.read.body import Chunk
    from rmqcli.decode.settings import Decoding, Names
    from rmqcli.model import OffsetRange
    from rmqcli.spark.export.plan import ExportRequest, PartSpec
    from rmqcli.wire.message.record import DecodeFailure


#: Length of the file that says why a part is delayed.
TROUBLE_BYTES_MAX: Final = 1_000
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FULL: Final = "the disk is full, so no more parts were started"


class ChunkReader(Protocol):
    """A source with open connections. Not thread-safe."""

    def read(
        self,
        wanted: OffsetRange,
        *,
        on_trouble: Callable[[RmqError], None] | None = None,
    ) -> Iterator[Chunk]:
        """Yield chunks in offset order that together cover `wanted` exactly.

        `on_trouble` is called when reading begins to fail and is tried again.
        """


class ChunkSource(Protocol):
    """A source of chunks. It is pickled to workers, so it holds no connections."""

    @property
    def is_secret(self) -> bool:
        """Whether the source contains keys, which need encrypted connections."""

    def connect(self) -> AbstractContextManager[ChunkReader]:
        """Open the connections; the context manager closes them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartContext:
    """The values that all parts of one run share. Pickled to the workers."""

    files: FilesContext
    source: ChunkSource
    #: Path of a file that exists while parts may be started. A worker whose disk is
    #: full removes it, which is possible even on a full disk. None if there is none.
    go_path: str | None = None
    #: Whether workers see the driver's folder `files.temp`. If not, their progress is
    #: known only from Spark.
    shares_temp: bool = True
    #: Where workers write their progress, if not in `files.temp`.
    progress_folder: str | None = None

    def stop(self) -> None:
        """Make all workers stop before their next part."""
        if self.go_path is not None:
            self.files.disk.scratch.remove(self.go_path)

    @property
    def is_stopped(self) -> bool:
        return self.go_path is not None and not os.path.exists(self.go_path)

    def progress_path(self, index: int) -> str:
        """Return the path of the file with the number of offsets read of a part."""
        folder = self.progress_folder or self.files.temp
        return os.path.join(folder, f"progress-{index:06d}")

    def trouble_path(self, index: int) -> str:
        """Return the path of the file with the error for which a part is delayed."""
        folder = self.progress_folder or self.files.temp
        return os.path.join(folder, f"trouble-{index:06d}")

    def in_workspace(self, folder: str) -> PartContext:
        """Return the context of a task whose unfinished files are in `folder`."""
        progress_folder = self.files.temp if self.shares_temp else None
        files = replace(self.files, temp=folder)
        return replace(self, files=files, progress_folder=progress_folder)


@dataclass(frozen=True, slots=True)
class PartFailure:
    """The failure of one part, which does not affect other parts.

    `may_work_elsewhere` says that the part may succeed on another machine.
    """

    index: int
    error: RmqError
    may_work_elsewhere: bool = False


def write_task(
    parts: Sequence[PartSpec], context: PartContext, *, is_retry: bool = False
) -> list[PartResult | PartFailure]:
    """Write several parts one after the other, over one set of connections.

    When a part fails with an RmqError or OSError, its outcome is a PartFailure, and the
    next part is written. When a broker does not answer, its remaining parts in this
    task fail at once. When the storage fails or the disk is full, all remaining parts
    fail at once. With `is_retry`, parts that an earlier attempt has completed are not
    written again. Any other exception is a bug and is not caught, so that Spark shows
    it.
    """
    outcomes: list[PartResult | PartFailure] = []
    #: broker -> the failure of its parts, each of which would wait for the same timeout
    silent: dict[str, PartFailure] = {}
    #: the failure of all further parts
    lasting: PartFailure | None = None
    files = context.files
    with (
        files.disk.workspace(files.temp) as folder,
        context.source.connect() as reader,
    ):
        context = context.in_workspace(folder)
        for part in parts:
            done = _finished(part, context) if is_retry else None
            if done is not None:
                outcomes.append(done)
                continue
            if lasting is None and context.is_stopped:
                full = _disk_error(OSError(errno.ENOSPC, _FULL))
                lasting = PartFailure(part.index, full)
            failure = lasting or silent.get(part.broker_name)
            if failure is not None:
                outcomes.append(replace(failure, index=part.index))
                continue
            try:
                outcomes.append(write_part(part, context, reader=reader))
                continue
            except TransportError as error:
                failure = silent[part.broker_name] = PartFailure(
                    part.index, error, True
                )
            except StorageError as error:
                failure = lasting = PartFailure(part.index, error, True)
            except RmqError as error:
                failure = PartFailure(part.index, error)
            except OSError as error:
                is_full = error.errno in _DISK_FULL
                failure = PartFailure(part.index, _disk_error(error), not is_full)
                if is_full:
                    lasting = failure
                    context.stop()
            outcomes.append(failure)
    return outcomes


def _finished(part: PartSpec, context: PartContext) -> PartResult | None:
    """Return the result of an earlier attempt that completed this part, or None."""
    files = context.files
    directory = ExportDirectory(files.layout, files.disk)
    # If the storage fails here, writing the part reports it.
    with contextlib.suppress(StorageError):
        return directory.finished_part(files.run_id, part)
    return None


def write_part(
    part: PartSpec, context: PartContext, *, reader: ChunkReader
) -> PartResult:
    """Write one part. Only complete files ever get their final names.

    Raises TransportError or BrokerError when the messages cannot be read, RefusedError
    when a foreign file has the name of one of the part's files, and OSError when a file
    cannot be written.
    """
    files = PartFiles(part, context.files)
    side = _Undecodable(part, context.files)
    request = context.files.request
    wanted = part.offset_range(request.topic)
    on_trouble = partial(_tell_trouble, context.trouble_path(part.index), part)
    with _progress(context.progress_path(part.index)) as set_progress:
        try:
            chunks = reader.read(wanted, on_trouble=on_trouble)
            rows = RangeRows(wanted, chunks, wanted_tags(request.topic, request.tag))
            result = _fill(part, request, rows, files, side, set_progress)
            _write_record(result, context.files)
        finally:
            files.abort()
            side.abort()
    return result


def _fill(
    part: PartSpec,
    request: ExportRequest,
    rows: RangeRows,
    files: PartFiles,
    side: _Undecodable,
    set_progress: Callable[[int], object],
) -> PartResult:
    decode = body_decoder(request.decoding)
    filtered = corrupt = 0
    for portion in rows:
        filtered += portion.filtered
        for failure in portion.failures:
            side.add(failure)
        if portion.batch is not None:
            for batch, corrupt_rows in decode(portion.batch):
                files.add(batch)
                corrupt += corrupt_rows
        set_progress(portion.position - part.start)
    undecodable, gone = rows.counts.close()
    side.publish()
    result = PartResult(
        index=part.index,
        broker_name=part.broker_name,
        queue_id=part.queue_id,
        start=part.start,
        end=part.end,
        rows=rows.counts.decoded - filtered,
        filtered=filtered,
        undecodable=undecodable,
        missing=gone,
        files=files.finish(),
        corrupt=corrupt,
    )
    result.check(part)
    return result


def _write_record(result: PartResult, context: FilesContext) -> None:
    temp = os.path.join(context.temp, f"{secrets.token_hex(8)}.json")
    path = context.layout.part_record(context.run_id, result.index)
    context.disk.write_text(path, part_to_json(result), temp=temp)


def _disk_error(error: OSError) -> RmqError:
    where = f" {error.filename}" if error.filename else ""
    hint = ""
    if error.errno in _DISK_FULL:
        hint = "free space on the disk, then resume the run"
    elif error.errno == errno.ENOENT:
        hint = "export to a folder that every worker sees under the same path"
    return RmqError(f"cannot write{where}: {error.strerror or error}", hint=hint)


class _Undecodable:
    """The side file of undecodable records: JSON lines with their raw bytes."""

    def __init__(self, part: PartSpec, context: FilesContext) -> None:
        self._part = part
        self._context = context
        self._queue = part.queue_in(context.request.topic)
        self._writer = JsonWriter()
        self._temp = os.path.join(context.temp, f"{secrets.token_hex(8)}.jsonl")
        self._file: BinaryIO | None = None

    def add(self, failure: DecodeFailure) -> None:
        """Write one record."""
        if self._file is None:
            self._file = self._context.disk.scratch.create(self._temp)
        [line] = self._writer.lines(self._queue, [failure])
        write_all(self._file, line.encode("utf-8", "backslashreplace") + b"\n")

    def publish(self) -> None:
        """Give the file its final name, or remove an earlier attempt's file."""
        context = self._context
        path = context.layout.part_undecodable(context.run_id, self._part.index)
        if self._file is None:
            context.disk.remove(path)
            return
        context.disk.scratch.sync(self._file)
        self._file.close()
        context.disk.publish(self._temp, path)

    def abort(self) -> None:
        """Remove the file unless it was published. May be called after `publish`."""
        if self._file is not None:
            self._file.close()
            self._context.disk.scratch.remove(self._temp)


def _tell_trouble(path: str, part: PartSpec, error: RmqError) -> None:
    """Write for the driver why a part is delayed.

    When that fails, the part itself tells what is wrong with the disk.
    """
    text = f"{part.broker_name}: {error.message}"
    with contextlib.suppress(OSError), open(path, "xb") as file:
        file.write(text.encode()[:TROUBLE_BYTES_MAX])


@contextlib.contextmanager
def _progress(path: str) -> Iterator[Callable[[int], object]]:
    """Yield what records how many offsets of a part have been read.

    The number is in a file for the driver's progress bar, since Spark itself reports
    only completed tasks. The file has twenty digits, which are overwritten in place.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o644)
    try:
        yield lambda offsets: os.pwrite(handle, b"%020d" % offsets, 0)
    finally:
        os.close(handle)


def inferred_schema(
    decoding: Decoding | None,
    source: ChunkSource,
    ranges: Iterable[OffsetRange],
    *,
    tag: str | None,
    names: Names,
    note: Callable[[str], None],
) -> str | None:
    """Infer the schema that a decoding lacks from the first messages of ranges.

    Return None for a decoding that lacks none. Raises as `infer_schema`.
    """
    if decoding is None or decoding.schema is not None:
        return None
    from rmqcli.decode.infer import infer_schema

    tags = wanted_tags("", tag)
    with source.connect() as reader:
        bodies = first_bodies(ranges, decoding.infer or 0, read=reader.read, tags=tags)
        schema = infer_schema(bodies, names=names)
    note(f"inferred schema: {schema}")
    return schema
