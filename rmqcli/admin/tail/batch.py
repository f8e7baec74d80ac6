"""From a chunk of stored bytes to the items that will be shown, with their times.

What an item is decides the renderer: a line, a body, a row. Rendering happens before
merging, queue by queue, where a queue's constants are written once per batch.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmqcli.admin.read.record_lines import chunk_lines
from rmqcli.admin.tail.merge import Batch
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.layout import MAGIC_V1, RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.read.range import Chunk
    from rmqcli.admin.read.record_json import JsonLines
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.decode import DecodeFailure

T = TypeVar("T")

#: Total size, magic, queue offset, sysFlag, store timestamp, body length.
_PLAIN: Final = struct.Struct(">II12xq8xI16xq20xI")
#: Compressed, IPv6 hosts or an inner batch.
_ODD_FLAGS: Final = 0xF1


@dataclass(slots=True)
class TailCounts:
    """What was read, for the closing summary."""

    scanned: int = 0
    matched: int = 0
    undecodable: int = 0


class Batcher(Generic[T]):
    """Decodes, filters and renders chunks."""

    def __init__(
        self,
        tail_filter: TailFilter,
        render: Callable[
            [MessageQueue, Sequence[StoredMessage | DecodeFailure]], list[T]
        ],
        counts: TailCounts,
    ) -> None:
        self._filter = tail_filter
        self._render = render
        self.counts = counts

    def items(
        self,
        queue: MessageQueue,
        messages: Sequence[StoredMessage | DecodeFailure],
    ) -> list[T]:
        """The items of messages that were decoded and chosen elsewhere."""
        return self._render(queue, messages)

    def batch(self, chunk: Chunk) -> Batch[T]:
        """The items of `chunk`; empty ones too have its end.

        Their times are the latest so far in the chunk, of what is left out too, so
        what a filter leaves out changes nothing about the order of the rest.
        """
        decoded = decode_messages(chunk.body) if chunk.body else []
        found: list[StoredMessage | DecodeFailure] = []
        times: list[int] = []
        offsets: list[int] = []
        matches = None if self._filter.is_everything else self._filter.matches
        start, end = chunk.start, chunk.end
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
                if matches is not None and not matches(message):
                    continue
                size_bytes += message.store_bytes
            else:
                # Its time is unknown: it stays right behind the one before it.
                self.counts.scanned += 1
                self.counts.undecodable += 1
                if message.queue_offset is not None:
                    offset = message.queue_offset
                size_bytes += len(message.raw)
            found.append(message)
            times.append(-1 if latest_ms is None else latest_ms)
            offsets.append(offset)
        items = self._render(chunk.queue, found)
        return Batch(times, offsets, items, end, size_bytes, latest_ms)


class BodyBatcher(Batcher[bytes]):
    """For bodies alone, unfiltered: plain messages are cut out of the bytes."""

    def batch(self, chunk: Chunk) -> Batch[bytes]:
        plain = None if not self._filter.is_everything else _plain_bodies(chunk)
        if plain is None:
            return super().batch(chunk)
        self.counts.scanned += len(plain.items)
        return plain


class LineBatcher(Batcher[str]):
    """For JSON lines, unfiltered: those of plain messages are made chunk by chunk."""

    def __init__(
        self, tail_filter: TailFilter, lines: JsonLines, counts: TailCounts
    ) -> None:
        super().__init__(tail_filter, lines.lines, counts)
        self._lines = lines

    def batch(self, chunk: Chunk) -> Batch[str]:
        plain = None
        if self._filter.is_everything:
            plain = chunk_lines(self._lines, chunk)
        if plain is None:
            return super().batch(chunk)
        self.counts.scanned += len(plain.items)
        return plain


def _plain_bodies(chunk: Chunk) -> Batch[bytes] | None:
    """The bodies of a chunk of plain messages, None when there is any other."""
    uniform = _uniform_bodies(chunk)
    if uniform is not None:
        return uniform
    data = chunk.body
    times: list[int] = []
    offsets: list[int] = []
    bodies: list[bytes] = []
    unpack = _PLAIN.unpack_from
    size, at, start, end = len(data), 0, chunk.start, chunk.end
    while size - at >= RECORD_BYTES_MIN:
        total_bytes, magic, offset, sys_flag, store_ms, body_bytes = unpack(data, at)
        if (
            magic != MAGIC_V1
            or sys_flag & _ODD_FLAGS
            or not start <= offset < end
            or body_bytes + RECORD_BYTES_MIN > total_bytes
        ):
            return None
        times.append(store_ms)
        offsets.append(offset)
        bodies.append(data[at + 88 : at + 88 + body_bytes])
        at += total_bytes
    if at != size:
        return None
    return Batch(times, offsets, bodies, end, size)


@functools.lru_cache(maxsize=256)
def _uniform_record(total_bytes: int, body_bytes: int) -> struct.Struct:
    rest_bytes = total_bytes - _PLAIN.size - body_bytes
    return struct.Struct(f">II12xq8xI16xq20xI{body_bytes}s{rest_bytes}x")


def _uniform_bodies(chunk: Chunk) -> Batch[bytes] | None:
    """The same for messages that are all of one shape, as they often are."""
    data = chunk.body
    size = len(data)
    if size < RECORD_BYTES_MIN:
        return None
    total_bytes, _, _, _, _, body_bytes = _PLAIN.unpack_from(data)
    if total_bytes < body_bytes + RECORD_BYTES_MIN or size % total_bytes:
        return None
    records = _uniform_record(total_bytes, body_bytes).iter_unpack(data)
    totals, magics, offsets, flags, times, lengths, bodies = zip(*records, strict=True)
    count = len(offsets)
    is_plain = (
        totals.count(total_bytes) == count
        and magics.count(MAGIC_V1) == count
        and flags.count(0) == count
        and lengths.count(body_bytes) == count
        and chunk.start <= min(offsets)
        and max(offsets) < chunk.end
    )
    if not is_plain:
        return None
    return Batch(list(times), list(offsets), list(bodies), chunk.end, size)
