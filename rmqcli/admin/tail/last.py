"""The last N messages of many queues, by store time: messages are counted, not offsets.

The end of each queue is read, and then earlier parts of it while they may still hold
one of the last N. Offsets alone do not tell, because queues differ in density, and
filters and trimmed logs leave holes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.admin.read.range import RangeReader
from rmqcli.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.read.range import ReadOptions
    from rmqcli.admin.tail.batch import Batcher
    from rmqcli.api.client import Client
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

T = TypeVar("T")

#: Minimum number of offsets to read at once: fewer are not worth a request.
_WINDOW_MIN = 32
_WINDOW_MAX = 1 << 16


@dataclass(slots=True)
class LastMessages(Generic[T]):
    """The items, oldest first, and the queues that could not be read."""

    items: list[T] = field(default_factory=list)
    abandoned: dict[MessageQueue, RmqError] = field(default_factory=dict)


@dataclass(slots=True)
class _End(Generic[T]):
    """What is known of one queue, which was read from `read_from` to its end."""

    start: int
    read_from: int
    window: int
    times_ms: list[int] = field(default_factory=list)
    items: list[T] = field(default_factory=list)

    @property
    def keys(self) -> list[int]:
        """The store times, made non-decreasing as in the merger."""
        return list(accumulate(self.times_ms, max))


def read_last(
    client: Client,
    ranges: Sequence[OffsetRange],
    *,
    count: int,
    batcher: Batcher[T],
    options: ReadOptions,
    on_chunk: Callable[[Chunk], None],
    look_back: int | None = None,
) -> LastMessages[T]:
    """Read the last `count` messages of all `ranges` together."""
    result: LastMessages[T] = LastMessages()
    window = max(_WINDOW_MIN, count)
    ends: dict[MessageQueue, _End[T]] = {}
    for wanted in ranges:
        start = wanted.start
        if look_back is not None:
            start = max(start, wanted.end - look_back)
        ends[wanted.queue] = _End(start, wanted.end, min(window, _WINDOW_MAX))
    options = replace(options, raise_abandoned=False)
    while count and (wanted_more := _windows(ends, count)):
        reader = RangeReader(client, wanted_more, options)
        before = {
            w.queue: (ends[w.queue].times_ms, ends[w.queue].items) for w in wanted_more
        }
        for w in wanted_more:
            ends[w.queue].times_ms, ends[w.queue].items = [], []
        for chunk in reader:
            on_chunk(chunk)
            batch = batcher.batch(chunk)
            ends[chunk.queue].times_ms += batch.store_times_ms
            ends[chunk.queue].items += batch.items
        for w in wanted_more:
            end = ends[w.queue]
            end.times_ms = (end.times_ms + before[w.queue][0])[-count:]
            end.items = (end.items + before[w.queue][1])[-count:]
            end.read_from = w.start
            end.window = min(end.window * 4, _WINDOW_MAX)
        for queue, error in reader.abandoned.items():
            result.abandoned[queue] = error
            ends[queue].read_from = ends[queue].start
        if options.left_ms is not None and options.left_ms() == 0:
            break
    merged = sorted(
        (key, index, place)
        for index, end in enumerate(ends.values())
        for place, key in enumerate(end.keys)
    )
    by_index = list(ends.values())
    result.items = [
        by_index[index].items[place]
        for _, index, place in merged[max(0, len(merged) - count) :]
    ]
    return result


def _windows(ends: dict[MessageQueue, _End[T]], count: int) -> list[OffsetRange]:
    """Return what to read next of each queue that may hold one of the last `count`."""
    keys = sorted((key for end in ends.values() for key in end.keys), reverse=True)
    cutoff_ms = keys[count - 1] if len(keys) >= count else None
    windows = []
    for queue, end in ends.items():
        if end.read_from <= end.start or len(end.items) >= count:
            continue
        # One that cannot be decoded has no time, if none before it in its chunk has.
        oldest_ms = next((key for key in end.keys if key >= 0), None)
        if cutoff_ms is not None and oldest_ms is not None and oldest_ms < cutoff_ms:
            continue  # all messages before it are even older
        start = max(end.start, end.read_from - end.window)
        windows.append(OffsetRange(queue, start, end.read_from))
    return windows
