"""Finds the offset of a queue that belongs to a time.

Imitated: 5.x finds the first message that is not older (LOWER) or the last one that is
not newer (UPPER); 4.x finds the nearest message by a binary search of its own, and any
one of several with equal times.
Not imitated: Java searches one consume queue file only, chosen by the file's own time.

Source: `ConsumeQueue.getOffsetInQueueByTime` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire.header import BoundaryType

if TYPE_CHECKING:
    from collections.abc import Callable

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
