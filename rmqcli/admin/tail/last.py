"""The last N messages of many queues, by store time: messages are counted, not offsets.

The end of each queue is read, and then earlier parts of it while they may still hold
one of the last N. Offsets alone do not tell, because queues differ in density, and
filters and trimmed logs leave holes.

A broker whose clock was set back gives smaller store times to what it stores from then
on, in all its queues. The order of its messages is that of their places in its commit
log, so times before such a step count as earlier by the size of the step.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from rmqcli.admin.read.range import RangeReader
from rmqcli.dataclass import dataclass
from rmqcli.model import OffsetRange
from rmqcli.wire.message.decode import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.read.range import ReadOptions
    from rmqcli.admin.tail.batch import Batcher
    from rmqcli.api.client import Client
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

T = TypeVar("T")
#: Where a message is in its broker's commit log, and its store time; None if unknown.
Stored: TypeAlias = "tuple[int | None, int | None]"

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
    stored: list[Stored] = field(default_factory=list)
    items: list[T] = field(default_factory=list)


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
        new: dict[MessageQueue, tuple[list[Stored], list[T]]]
        new = {w.queue: ([], []) for w in wanted_more}
        for chunk in reader:
            on_chunk(chunk)
            batch = batcher.batch(chunk)
            stored, items = new[chunk.queue]
            stored += _stored(chunk, batch.queue_offsets)
            items += batch.items
        for w in wanted_more:
            end, (stored, items) = ends[w.queue], new[w.queue]
            end.stored = (stored + end.stored)[-count:]
            end.items = (items + end.items)[-count:]
            end.read_from = w.start
            end.window = min(end.window * 4, _WINDOW_MAX)
        for queue, error in reader.abandoned.items():
            result.abandoned[queue] = error
            ends[queue].read_from = ends[queue].start
        if options.left_ms is not None and options.left_ms() == 0:
            break
    merged = sorted(
        (-math.inf if key is None else key, index, place)
        for index, keys in enumerate(_keys(ends).values())
        for place, key in enumerate(keys)
    )
    by_index = list(ends.values())
    result.items = [
        by_index[index].items[place]
        for _, index, place in merged[max(0, len(merged) - count) :]
    ]
    return result


def _windows(ends: dict[MessageQueue, _End[T]], count: int) -> list[OffsetRange]:
    """Return what to read next of each queue that may hold one of the last `count`."""
    keys = _keys(ends)
    known = (key for key in chain.from_iterable(keys.values()) if key is not None)
    latest = sorted(known, reverse=True)
    cutoff_ms = latest[count - 1] if len(latest) >= count else None
    windows = []
    for queue, end in ends.items():
        if end.read_from <= end.start or len(end.items) >= count:
            continue
        # A message that cannot be decoded has no time of its own.
        oldest_ms = next((key for key in keys[queue] if key is not None), None)
        if cutoff_ms is not None and oldest_ms is not None and oldest_ms < cutoff_ms:
            continue  # all messages before it were stored even earlier
        start = max(end.start, end.read_from - end.window)
        windows.append(OffsetRange(queue, start, end.read_from))
    return windows


def _stored(chunk: Chunk, queue_offsets: Iterable[int]) -> list[Stored]:
    """Return the places and times of the messages of a chunk with these offsets."""
    found: dict[int | None, Stored] = {}
    for message in decode_messages(chunk.body) if chunk.body else ():
        if isinstance(message, StoredMessage):
            stored = message.commit_log_offset, message.store_timestamp_ms
            found[message.queue_offset] = stored
        elif message.commit_log_offset is not None:
            found[message.queue_offset] = message.commit_log_offset, None
    return [found.get(each, (None, None)) for each in queue_offsets]


def _keys(ends: Mapping[MessageQueue, _End[T]]) -> dict[MessageQueue, list[int | None]]:
    """Return the keys of the messages of each queue, by which all are merged.

    They are the store times, made non-decreasing in the order in which each broker has
    stored its messages, from the last one back. A message without a time has that of
    the one behind it, or None.
    """
    keys: dict[MessageQueue, list[int | None]] = {
        queue: [None] * len(end.stored) for queue, end in ends.items()
    }
    by_broker: dict[str, list[tuple[int, int, MessageQueue, int | None]]] = {}
    for queue, end in ends.items():
        messages = by_broker.setdefault(queue.broker_name, [])
        # One that cannot be decoded may have no place: it stays between its neighbours,
        # and a queue without any place comes before all others.
        place = next((place for place, _ in end.stored if place is not None), 0)
        for index, (known, time_ms) in enumerate(end.stored):
            if known is not None:
                place = max(place, known)  # a queue's own order takes precedence
            messages.append((place, index, queue, time_ms))
    for messages in by_broker.values():
        step_ms, key = 0, None
        for _, index, queue, time_ms in sorted(messages, reverse=True):
            if time_ms is not None:
                if key is not None and key < time_ms - step_ms:
                    step_ms = time_ms - key + 1  # it was stored before the step
                key = time_ms - step_ms
            keys[queue][index] = key
    return keys
