"""The offset of a queue for a store time: the first message that is not older.

Source: `ConsumeQueue.getOffsetInQueueByTime` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqcli.store.message_store import MessageStore


def offset_by_time(
    store: MessageStore, topic: str, queue_id: int, timestamp_ms: int
) -> int:
    """The first offset stored at `timestamp_ms` or later; the end for none.

    0 for a queue that there is not.
    """
    low, high = store.queue_bounds(topic, queue_id) or (0, 0)
    while low < high:
        middle = (low + high) // 2
        time_ms = store.store_time_ms(topic, queue_id, middle)
        # A message that is gone is older than all that are left.
        if time_ms is None or time_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
