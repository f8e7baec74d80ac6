"""Writing one part: a range of a queue, from the broker to its final files.

Runs in a Spark worker, but imports nothing of Spark. `write_part` pulls, decodes some
ten thousand messages at once, filters by tag, writes row groups, syncs, renames, and
last writes the part's record: a part without a record is not done, whatever files it
left. A repeated call writes the same names again.

The records come from a `ChunkSource`: a value that is pickled to the worker and makes
its connections there. `cluster.BrokerSource` is the one for brokers; tests use sources
that hold bytes.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from rmqcli.errors import RmqError, TransportError
from rmqcli.spark.export.counts import OffsetCounts
from rmqcli.spark.export.disk import write_all
from rmqcli.spark.export.manifest import PartResult, part_to_json
from rmqcli.spark.export.part_files import FilesContext, PartFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    import pyarrow as pa

    from rmqcli.admin.read.body import Chunk
    from rmqcli.model import OffsetRange
    from rmqcli.spark.export.plan import PartSpec
    from rmqcli.wire.message.record import DecodeFailure

#: Decode when this much has come in. Measured: 32 messages at a time reach 6 % of the
#: speed of ten thousand, and more gain nothing. The bytes are few because compressed
#: bodies may inflate a hundredfold.
DECODE_MESSAGES: Final = 16_384
DECODE_BYTES: Final = 4 * 1024 * 1024


class ChunkReader(Protocol):
    """A source with open connections. Used by one thread."""

    def read(self, wanted: OffsetRange) -> Iterator[Chunk]:
        """Yield chunks in offset order that together cover `wanted` exactly."""


class ChunkSource(Protocol):
    """Where chunks come from. Pickled to workers, so it holds no connection."""

    @property
    def is_secret(self) -> bool:
        """Whether it holds keys, which may only be sent over encrypted connections."""

    def connect(self) -> AbstractContextManager[ChunkReader]:
        """Open the connections; the context manager closes them again."""


class Columns(Protocol):
    """What a decoder returns: a batch of readable records, and the others."""

    @property
    def batch(self) -> pa.RecordBatch: ...
    @property
    def failures(self) -> Sequence[DecodeFailure]: ...


class Decoder(Protocol):
    """`decode_columns`, or a slower decoder that a test compares it with."""

    def __call__(
        self,
        bodies: Sequence[bytes | memoryview],
        /,
        *,
        topic: str,
        broker_name: str,
    ) -> Columns: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartContext:
    """What all parts of one run share. Pickled to the workers."""

    files: FilesContext
    source: ChunkSource
    decoder: Decoder | None = None

    def progress_path(self, index: int) -> str:
        """Return the file that says how many offsets of a part were read."""
        return os.path.join(self.files.temp, f"progress-{index:06d}")


@dataclass(frozen=True, slots=True)
class PartFailure:
    """A part that could not be written; the others go on."""

    index: int
    error: RmqError


def write_task(
    parts: Sequence[PartSpec], context: PartContext
) -> list[PartResult | PartFailure]:
    """Write several parts over one set of connections, one after the other.

    A part that fails with an RmqError or OSError becomes a PartFailure, and the others
    go on. When a broker does not answer, the rest of its parts in this task fail at
    once. Any other exception is a bug; it is not caught, so that Spark shows it.
    """
    outcomes: list[PartResult | PartFailure] = []
    silent: dict[str, TransportError] = {}
    with context.source.connect() as reader:
        for part in parts:
            if part.broker_name in silent:
                # Every further part would wait just as long in vain.
                outcomes.append(PartFailure(part.index, silent[part.broker_name]))
                continue
            try:
                outcomes.append(write_part(part, context, reader=reader))
            except TransportError as error:
                silent[part.broker_name] = error
                outcomes.append(PartFailure(part.index, error))
            except RmqError as error:
                outcomes.append(PartFailure(part.index, error))
            except OSError as error:
                outcomes.append(PartFailure(part.index, _disk_error(error)))
    return outcomes


def write_part(
    part: PartSpec, context: PartContext, *, reader: ChunkReader
) -> PartResult:
    """Write one part, or leave nothing of it under a final name but complete files.

    Raises TransportError or BrokerError when it cannot be read, RefusedError when a
    file that is not ours is in the way, OSError when the disk refuses.
    """
    files = PartFiles(part, context.files)
    side = _Undecodable(part, context.files)
    with _Progress(context.progress_path(part.index)) as progress:
        try:
            result = _fill(
                part,
                context,
                reader.read(part.offset_range(_topic(context))),
                _Outputs(files, side, progress),
            )
            _write_record(result, context.files)
        finally:
            files.abort()
            side.abort()
    return result


@dataclass(frozen=True, slots=True)
class _Outputs:
    files: PartFiles
    side: _Undecodable
    progress: _Progress


def _fill(
    part: PartSpec,
    context: PartContext,
    chunks: Iterator[Chunk],
    outputs: _Outputs,
) -> PartResult:
    decode = context.decoder or _columnar()
    tags = _wanted_tags(context.files.request.topic, context.files.request.tag)
    counts = OffsetCounts(part)
    filtered = 0
    for bodies, missing, position in _gathered(chunks):
        counts.add_missing(missing)
        if bodies:
            columns = decode(
                bodies, topic=_topic(context), broker_name=part.broker_name
            )
            batch = _inside(columns.batch, part)
            counts.add(batch.column("queue_offset").to_numpy())
            for failure in columns.failures:
                if outputs.side.add(failure):
                    counts.add_undecodable(failure.queue_offset)
            kept = _with_tags(batch, tags)
            filtered += batch.num_rows - kept.num_rows
            outputs.files.add(kept)
        outputs.progress.set(position - part.start)
    undecodable, gone = counts.close()
    outputs.side.publish()
    rows = outputs.files.finish()
    result = PartResult(
        index=part.index,
        broker_name=part.broker_name,
        queue_id=part.queue_id,
        start=part.start,
        end=part.end,
        rows=counts.decoded - filtered,
        filtered=filtered,
        undecodable=undecodable,
        missing=gone,
        files=rows,
    )
    result.check(part)
    return result


def _topic(context: PartContext) -> str:
    return context.files.request.topic


def _columnar() -> Decoder:
    from rmqcli.wire.message.columns import decode_columns

    return decode_columns


def _gathered(
    chunks: Iterator[Chunk],
) -> Iterator[tuple[list[bytes | memoryview], list[tuple[int, int]], int]]:
    """Yield bodies, missing spans, and the offset reached, in decodable portions."""
    bodies: list[bytes | memoryview] = []
    missing: list[tuple[int, int]] = []
    messages = size = 0
    position = None
    for chunk in chunks:
        if len(chunk.body):
            bodies.append(chunk.body)
            size += len(chunk.body)
        missing.extend(chunk.missing)
        messages += chunk.end - chunk.start
        position = chunk.end
        if messages >= DECODE_MESSAGES or size >= DECODE_BYTES:
            yield bodies, missing, position
            bodies, missing = [], []
            messages = size = 0
    if position is not None and (bodies or missing):
        yield bodies, missing, position


def _inside(batch: pa.RecordBatch, part: PartSpec) -> pa.RecordBatch:
    """Return the batch without rows outside the part, which an answer may also hold."""
    import pyarrow as pa

    offsets = batch.column("queue_offset").to_numpy()
    inside = (offsets >= part.start) & (offsets < part.end)
    return batch if inside.all() else batch.filter(pa.array(inside))


def _wanted_tags(topic: str, tag: str | None) -> frozenset[str]:
    from rmqcli.wire.subscription import parse_subscription

    return parse_subscription(topic, tag).tags_set


def _with_tags(batch: pa.RecordBatch, tags: frozenset[str]) -> pa.RecordBatch:
    """Return the rows that have one of these tags, as text: tag hashes collide."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not tags or not batch.num_rows:
        return batch
    column = batch.column("tags")
    wanted = pa.array(sorted(tags), pa.string())
    return batch.filter(pc.is_in(column.cast(pa.string()), value_set=wanted))


def _write_record(result: PartResult, context: FilesContext) -> None:
    temp = os.path.join(context.temp, f"{secrets.token_hex(8)}.json")
    path = context.layout.part_record(context.run_id, result.index)
    context.disk.write_text(path, part_to_json(result), temp=temp)


def _disk_error(error: OSError) -> RmqError:
    where = f" {error.filename}" if error.filename else ""
    hint = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free space on the disk, then resume the run"
    elif error.errno == errno.ENOENT:
        hint = "every worker must see the folder under the same path as this process"
    return RmqError(f"cannot write{where}: {error.strerror or error}", hint=hint)


class _Undecodable:
    """The side file of undecodable records: JSON lines with their raw bytes."""

    def __init__(self, part: PartSpec, context: FilesContext) -> None:
        self._part = part
        self._context = context
        self._temp = os.path.join(context.temp, f"{secrets.token_hex(8)}.jsonl")
        self._file: BinaryIO | None = None

    def add(self, failure: DecodeFailure) -> bool:
        """Write one record; False when its offset lies outside the part."""
        offset = failure.queue_offset
        if offset is not None and not self._part.start <= offset < self._part.end:
            return False
        if self._file is None:
            self._file = self._context.disk.create(self._temp)
        line = {
            "topic": self._context.request.topic,
            "broker_name": self._part.broker_name,
            "queue_id": self._part.queue_id,
            "queue_offset": offset,
            "commit_log_offset": failure.commit_log_offset,
            "error": failure.error,
            "raw_b64": base64.b64encode(failure.raw).decode("ascii"),
        }
        write_all(self._file, json.dumps(line).encode() + b"\n")
        return True

    def publish(self) -> None:
        """Give the file its name; without a file, remove that of an earlier attempt."""
        context = self._context
        path = context.layout.part_undecodable(context.run_id, self._part.index)
        if self._file is None:
            context.disk.remove(path)
            return
        context.disk.sync(self._file)
        self._file.close()
        context.disk.replace(self._temp, path)

    def abort(self) -> None:
        """Remove the file if it has no final name. May be called after `publish`."""
        if self._file is not None:
            self._file.close()
            self._context.disk.remove(self._temp)


class _Progress:
    """How many offsets were read, for the driver's progress bar.

    A file of twenty digits, overwritten in place: Spark reports only whole tasks.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def set(self, offsets: int) -> None:
        """Record how many offsets of the part were read."""
        os.pwrite(self._handle, b"%020d" % offsets, 0)
