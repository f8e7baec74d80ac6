"""Turns chunks of stored bytes into the items that will be shown, with their times.

The renderer decides what an item is: a line, a body, a row. Rendering happens before
merging, queue by queue, so that what is constant in a queue is written once per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.admin.tail.merge import Batch
from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.json_lines import write_lines
from rmqcli.wire.message.scan import read_bodies, read_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.json import JsonWriter
    from rmqcli.wire.message.record import Record

T = TypeVar("T")


@dataclass(slots=True)
class TailCounts:
    """What was read, for the closing summary."""

    scanned: int = 0
    matched: int = 0
    undecodable: int = 0


@dataclass(eq=False)
class Batcher(Generic[T]):
    """Decodes, filters and renders chunks."""

    _filter: TailFilter
    #: renders messages that were decoded and chosen
    items: Callable[[MessageQueue, Sequence[Record]], list[T]]
    counts: TailCounts

    def batch(self, chunk: Chunk) -> Batch[T]:
        """Decode, filter and render `chunk`. A batch without items also has its end.

        The time of an item is the latest store time so far in the chunk, including
        messages that were filtered out, so that a filter does not change the order of
        the rest.
        """
        decoded = decode_messages(chunk.body) if chunk.body else []
        found: list[StoredMessage | DecodeFailure] = []
        times: list[int] = []
        offsets: list[int] = []
        matches = None if self._filter.is_everything else self._filter.matches
        start, end, broker_name = chunk.start, chunk.end, chunk.queue.broker_name
        latest_ms: int | None = None
        size_bytes, offset = 0, start
        for message in decoded:
            if isinstance(message, StoredMessage):
                offset = message.queue_offset
                if not start <= offset < end:
                    continue
                self.counts.scanned += 1
                time_ms = message.store_timestamp_ms
                if latest_ms is None or time_ms > latest_ms:
                    latest_ms = time_ms
                if matches is not None and not matches(message, broker_name):
                    continue
                size_bytes += message.store_bytes
            else:
                # Its time is unknown: it stays directly after the message before it.
                self.counts.scanned += 1
                self.counts.undecodable += 1
                if message.queue_offset is not None:
                    offset = message.queue_offset
                size_bytes += len(message.raw)
            found.append(message)
            times.append(-1 if latest_ms is None else latest_ms)
            offsets.append(offset)
        items = self.items(chunk.queue, found)
        return Batch(times, offsets, items, end, size_bytes, latest_ms)


class BodyBatcher(Batcher[bytes]):
    """Renders bodies; those of plain, unfiltered messages are cut out of the bytes.

    A body that cannot be inflated, or fails its checksum, is rendered as it is stored,
    and counts as undecodable.
    """

    def __init__(self, tail_filter: TailFilter, counts: TailCounts) -> None:
        super().__init__(
            tail_filter, lambda _, messages: list(map(self._body, messages)), counts
        )

    def _body(self, message: Record) -> bytes:
        if isinstance(message, DecodeFailure):
            return message.raw
        try:
            return message.body
        except DecodeError:
            self.counts.undecodable += 1
            return message.raw_body

    def batch(self, chunk: Chunk) -> Batch[bytes]:
        plain = None if not self._filter.is_everything else read_bodies(chunk.body)
        if plain is None or not _is_within(chunk, plain.queue_offset):
            return super().batch(chunk)
        self.counts.scanned += len(plain.body)
        return Batch(*plain, chunk.end, len(chunk.body))


class LineBatcher(Batcher[str]):
    """Renders JSON lines; plain, unfiltered messages are rendered a chunk at a time."""

    def __init__(
        self, tail_filter: TailFilter, writer: JsonWriter, counts: TailCounts
    ) -> None:
        super().__init__(tail_filter, writer.lines, counts)
        self._writer = writer

    def batch(self, chunk: Chunk) -> Batch[str]:
        plain = None if not self._filter.is_everything else read_columns(chunk.body)
        if plain is None or not _is_within(chunk, plain.queue_offset):
            return super().batch(chunk)
        lines = write_lines(self._writer, chunk.queue, plain)
        if lines is None:
            return super().batch(chunk)
        self.counts.scanned += len(lines)
        times, offsets = list(plain.store_timestamp), list(plain.queue_offset)
        return Batch(times, offsets, lines, chunk.end, len(chunk.body))


def _is_within(chunk: Chunk, offsets: Sequence[int]) -> bool:
    """Whether the chunk's range holds all of these offsets."""
    return chunk.start <= min(offsets) and max(offsets) < chunk.end
