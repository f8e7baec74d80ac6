"""Merges queues by store time without ever changing the order inside a queue.

A queue's key is the largest store time seen in it so far: store times of one queue may
step back a little (when a broker's clock was set), and then its order takes precedence.
Items up to the smallest key that any open queue has reached are final and are released.

Pure; knows only offsets and store times, and does not look into the items.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.model import MessageQueue

T = TypeVar("T")

#: Below every store time.
_NEVER_MS = -(1 << 63) - 1


class Batch(NamedTuple, Generic[T]):
    """Items of one queue in its order, from offsets up to (excluding) `end`.

    The three lists are parallel. `size_bytes` is about what the items hold in memory,
    without what a filter left out. `reached_ms` is the latest store time among those
    offsets, including what a filter left out; None means that of the items.
    """

    store_times_ms: list[int]
    queue_offsets: list[int]
    items: list[T]
    end: int
    size_bytes: int = 0
    reached_ms: int | None = None


@dataclass(slots=True, eq=False)
class _Run(Generic[T]):
    """The buffered items of one queue."""

    end: int
    keys: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    items: list[T] = field(default_factory=list)
    key: int = _NEVER_MS
    is_open: bool = True
    size_bytes: int = 0

    def cut(self, count: int) -> None:
        """Remove the first `count` items."""
        self.size_bytes -= self.size_bytes * count // len(self.keys)
        del self.keys[:count], self.offsets[:count], self.items[:count]


class StoreTimeMerger(Generic[T]):
    """Takes batches of each queue, and releases items in the order of store times."""

    def __init__(self, starts: Mapping[MessageQueue, int]) -> None:
        """Merge the queues in `starts`, which maps each to its first offset."""
        self._runs: dict[MessageQueue, _Run[T]] = {
            queue: _Run(start) for queue, start in starts.items()
        }
        #: queue -> the first offset that was not released
        self.positions: dict[MessageQueue, int] = dict(starts)

    def add(self, queue: MessageQueue, batch: Batch[T]) -> None:
        """Add the next batch of `queue`."""
        run = self._runs[queue]
        keys = list(accumulate(batch.store_times_ms, max, initial=run.key))
        run.key = keys[-1]
        if batch.reached_ms is not None:
            run.key = max(run.key, batch.reached_ms)
        run.keys += keys[1:]
        run.offsets += batch.queue_offsets
        run.items += batch.items
        run.end = batch.end
        run.size_bytes += batch.size_bytes

    def close(self, queue: MessageQueue) -> None:
        """Record that `queue` will have no more batches."""
        self._runs[queue].is_open = False

    def held_back(self, size_bytes: int) -> set[MessageQueue]:
        """Return the queues that buffer more than `size_bytes` and wait for others.

        After a `release` without a limit these are never all open queues: the queue
        that the others wait for has nothing buffered.
        """
        return {q for q, run in self._runs.items() if run.size_bytes > size_bytes}

    def release(self, *, limit: int | None = None, all_of_it: bool = False) -> list[T]:
        """Return the items that no later batch can precede, at most `limit`.

        With `all_of_it` all buffered items, whatever may still arrive.
        """
        keys = [run.key for run in self._runs.values() if run.is_open]
        watermark = None if all_of_it else min(keys, default=None)
        taken: list[tuple[MessageQueue, _Run[T], int]] = []
        for queue, run in self._runs.items():
            count = len(run.keys)
            if watermark is not None and count:
                count = bisect_right(run.keys, watermark)
            if count:
                taken.append((queue, run, count))
            elif not run.keys:
                self.positions[queue] = run.end
        if limit is not None:
            taken = _limited(taken, limit)
        merged = _merged(taken)
        for queue, run, count in taken:
            run.cut(count)
            self.positions[queue] = run.offsets[0] if run.offsets else run.end
        return merged


def _limited(
    taken: Iterable[tuple[MessageQueue, _Run[T], int]], limit: int
) -> list[tuple[MessageQueue, _Run[T], int]]:
    """Lower the counts to those of the first `limit` items in merged order."""
    taken = list(taken)
    if sum(count for _, _, count in taken) <= limit:
        return taken
    owners = [index for index, (_, _, count) in enumerate(taken) for _ in range(count)]
    keys = [key for _, run, count in taken for key in run.keys[:count]]
    order = sorted(range(len(keys)), key=keys.__getitem__)[:limit]
    counts = [0] * len(taken)
    for index in order:
        counts[owners[index]] += 1
    return [
        (queue, run, count)
        for (queue, run, _), count in zip(taken, counts, strict=True)
        if count
    ]


def _merged(taken: list[tuple[MessageQueue, _Run[T], int]]) -> list[T]:
    if not taken:
        return []
    if len(taken) == 1:
        _, run, count = taken[0]
        return run.items[:count]
    keys: list[int] = []
    items: list[T] = []
    for _, run, count in taken:
        keys += run.keys[:count]
        items += run.items[:count]
    # Stable, and fast because the keys are a few ascending runs.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [items[index] for index in order]
