"""Finds the offset of a queue that belongs to a time.

Imitated: 5.x finds the first message that is not older (LOWER) or the last one that is
not newer (UPPER); 4.x finds the nearest message by a binary search of its own, and any
one of several with equal times. In a topic of batches, 5.x finds the first message of a
batch, and the last batch for times after all others.
Not imitated: Java searches one consume queue file only, chosen by the file's own time.

Source: `ConsumeQueue.getOffsetInQueueByTime` and
`BatchConsumeQueue.getOffsetInQueueByTime` in apache/rocketmq.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from rmqcli.wire.header import BoundaryType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.broker.context import BrokerContext


def offset_in_queue_by_time(
    broker: BrokerContext,
    topic: str,
    queue_id: int,
    *,
    timestamp_ms: int,
    boundary: BoundaryType | None = None,
) -> int:
    """Return the offset of a queue that belongs to a time.

    It is 0 if the queue does not exist, its end if it has no messages, and 0 if UPPER
    finds none.
    """
    low, high = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    if low >= high:
        return low if broker.profile.searches_nearest_time else high

    def time_at(offset: int) -> int:
        time_ms = broker.store.store_time_ms(topic, queue_id, offset)
        return -1 if time_ms is None else time_ms  # deleted: older than all others

    if topic in broker.store.batch_topics:
        units = broker.store.units(topic, queue_id, low, high - low)
        sizes = [sum(1 for _ in equal) for _, equal in groupby(units)]
        starts = list(accumulate(sizes[:-1], initial=low))
        return _batch_start(starts, time_at, timestamp_ms, boundary)
    if broker.profile.searches_nearest_time:
        return _nearest(time_at, low, high, timestamp_ms)
    if boundary is BoundaryType.UPPER:
        after = _first(lambda offset: time_at(offset) > timestamp_ms, low, high)
        return after - 1 if after > low else 0
    return _first(lambda offset: time_at(offset) >= timestamp_ms, low, high)


def _first(is_far: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first offset for which `is_far` is true, or `high` without one."""
    while low < high:
        middle = (low + high) // 2
        if is_far(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _batch_start(
    starts: Sequence[int],
    time_at: Callable[[int], int],
    timestamp_ms: int,
    boundary: BoundaryType | None,
) -> int:
    """Return the first offset of the batch that belongs to a time.

    `starts` has that of each batch. UPPER, too, finds a batch that is not older than
    the time, and with some numbers of batches the first one, as in RocketMQ.
    Source: BatchConsumeQueue.binarySearchRight.
    """
    if timestamp_ms >= time_at(starts[-1]):
        return starts[-1]
    left, right = 0, len(starts) - 1
    while right - left > 1:
        middle = (left + right) // 2
        time_ms = time_at(starts[middle])
        if boundary is BoundaryType.UPPER:
            left, right = (
                (middle, right) if time_ms <= timestamp_ms else (left, middle - 1)
            )
        else:
            left, right = (
                (middle + 1, right) if time_ms < timestamp_ms else (left, middle)
            )
    for each in range(left, right + 1):
        if time_at(starts[each]) >= timestamp_ms:
            return starts[each]
    return starts[0]


def _nearest(
    time_at: Callable[[int], int], low: int, high: int, timestamp_ms: int
) -> int:
    """Return the offset of the nearest message (4.x).

    If two are equally near, it is the earlier one.
    """
    left: tuple[int, int] | None = None
    right: tuple[int, int] | None = None
    last = high - 1
    while low <= last:
        middle = (low + last) // 2
        time_ms = time_at(middle)
        if time_ms == timestamp_ms:
            return middle
        if time_ms > timestamp_ms:
            last = middle - 1
            right = middle, time_ms
        else:
            low = middle + 1
            left = middle, time_ms
    if left is None or right is None:
        return (left or right or (0, 0))[0]
    is_right = timestamp_ms - left[1] > right[1] - timestamp_ms
    return (right if is_right else left)[0]
