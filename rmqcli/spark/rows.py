"""The rows of a range of one queue as Arrow batches, with every offset accounted for.

`rmq export` and `spark.read.format("rocketmq")` share this module in Spark's workers:
it gathers chunks of pulled records, decodes about ten thousand records at once, cuts
the rows to the range, and drops rows with other tags.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.model import OffsetRange
from rmqcli.spark.counts import OffsetCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from rmqcli.admin.read.body import Chunk
    from rmqcli.decode.settings import Decoding
    from rmqcli.wire.message.record import DecodeFailure

#: Decode when this many messages or bytes have been gathered. Measured: decoding 32
#: messages at a time reaches 6 % of the speed of ten thousand at a time, and more gain
#: nothing. The limit of bytes is low because compressed bodies may inflate a
#: hundredfold.
DECODE_MESSAGES: Final = 16_384
DECODE_BYTES: Final = 4 * 1024 * 1024
#: Total size of the bodies from which a schema is inferred.
SCHEMA_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Messages that were decoded at once.

    `batch` has the rows in the range that have one of the tags, and `filtered` counts
    the rows in the range that do not. `failures` are records that could not be decoded.
    All offsets below `position` have been read.
    """

    batch: pa.RecordBatch | None
    filtered: int
    failures: list[DecodeFailure]
    position: int


@dataclass(slots=True, eq=False)
class RangeRows:
    """Iterates over the rows of a range in portions, in offset order. Iterate it once.

    When the iteration has ended, `counts` accounts for every offset. Iterating raises
    BodyError when records are out of order, and the errors of `chunks`. With empty
    `tags`, every message is kept. `columns` are those to decode, None for all.
    """

    wanted: OffsetRange
    chunks: Iterator[Chunk]
    tags: frozenset[str] = frozenset()
    columns: frozenset[str] | None = None
    counts: OffsetCounts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = OffsetCounts(self.wanted)

    def __iter__(self) -> Iterator[Portion]:
        from rmqcli.wire.message.arrays import numbers_of
        from rmqcli.wire.message.columns import decode_columns

        queue = self.wanted.queue
        for bodies, missing, position in _gathered(self.chunks):
            self.counts.add_missing(missing)
            if not bodies:
                yield Portion(batch=None, filtered=0, failures=[], position=position)
                continue
            found = decode_columns(
                bodies,
                topic=queue.topic,
                broker_name=queue.broker_name,
                columns=self.columns,
            )
            batch = self._inside(found.batch)
            self.counts.add(numbers_of(batch.column("queue_offset")))
            failures = [each for each in found.failures if self._may_hold(each)]
            for failure in failures:
                self.counts.add_undecodable(failure.queue_offset)
            kept = _with_tags(batch, self.tags)
            yield Portion(
                batch=kept,
                filtered=batch.num_rows - kept.num_rows,
                failures=failures,
                position=position,
            )

    def _may_hold(self, failure: DecodeFailure) -> bool:
        """Whether a record may belong to the range, as one without an offset may."""
        offset = failure.queue_offset
        return offset is None or self.wanted.start <= offset < self.wanted.end

    def _inside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the range; an answer may also have others."""
        from rmqcli.wire.message.arrays import mask_of, numbers_of

        offsets = numbers_of(batch.column("queue_offset"))
        inside = (offsets >= self.wanted.start) & (offsets < self.wanted.end)
        return batch if inside.all() else batch.filter(mask_of(inside))


def row_schema(decoding: Decoding | None) -> pa.Schema:
    """Return the schema of rows, which have columns for the bodies if it decodes them.

    Raises UsageError or ConfigError for a schema of bodies that cannot be used.
    """
    from rmqcli.wire.message.columns import message_schema

    schema = message_schema()
    if decoding is None:
        return schema
    from rmqcli.decode.decoder import BodyDecoder

    return BodyDecoder(decoding).schema(schema)


def body_decoder(
    decoding: Decoding | None,
) -> Callable[[pa.RecordBatch], Iterable[tuple[pa.RecordBatch, int]]]:
    """Return what appends the columns for the bodies, if any, to a batch of rows.

    It yields pieces of the batch, and how many bodies of each could not be decoded.
    """
    if decoding is None:
        return lambda batch: ((batch, 0),)
    from rmqcli.decode.decoder import BodyDecoder

    return BodyDecoder(decoding).decode


def wanted_tags(topic: str, expression: str | None) -> frozenset[str]:
    """Return the tags of an expression such as `A || B`; empty for every message.

    Raises the error of `parse_tags` for an invalid expression.
    """
    from rmqcli.wire.subscription import parse_tags

    return parse_tags(topic, expression).tags_set


def _gathered(
    chunks: Iterator[Chunk],
) -> Iterator[tuple[list[bytes | memoryview], list[tuple[int, int]], int]]:
    """Gather chunks until there are enough messages to decode at once.

    Yields their bodies, their missing spans, and the offset after the last of them.
    """
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


def _with_tags(batch: pa.RecordBatch, tags: frozenset[str]) -> pa.RecordBatch:
    """Return the rows with one of these tags; compares texts, as hashes may collide."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from rmqcli.wire.message.arrays import strings_of

    if not tags or not batch.num_rows:
        return batch
    column = batch.column("tags")
    wanted = strings_of(sorted(tags))
    return batch.filter(pc.is_in(column.cast(pa.string()), value_set=wanted))


def first_bodies(
    ranges: Iterable[OffsetRange],
    messages_max: int,
    *,
    read: Callable[[OffsetRange], Iterator[Chunk]],
    tags: frozenset[str],
) -> Iterator[bytes]:
    """Yield bodies from the start of each range, from all ranges as evenly as possible.

    Reads at most `messages_max` offsets, and at most SCHEMA_BYTES_MAX bytes of bodies.
    With `tags`, yields only messages with one of them. Raises the errors of `read`.
    """
    left, size = messages_max, 0
    wanted = [each for each in ranges if len(each)]
    wanted.sort(key=len)
    for index, each in enumerate(wanted):
        share = min(len(each), -(-left // (len(wanted) - index)))
        if not share:
            return
        left -= share
        first = OffsetRange(each.queue, each.start, each.start + share)
        for portion in RangeRows(first, read(first), tags=tags):
            if portion.batch is None:
                continue
            for body in portion.batch.column("body"):
                size += len(body.as_buffer())
                if size > SCHEMA_BYTES_MAX:
                    return
                yield body.as_py()
