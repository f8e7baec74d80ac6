"""Timer messages of 5.x: delivered at a requested second, at most 3 days ahead.

Imitated: the topic in which they wait; their properties; the precision (a due time is
rounded down to the second, and the message is delivered one second later); messages
that delete another message of the same second.
Not imitated: the timing wheel and its log on disk. After a restart, the broker finds
the waiting messages by reading the topic. Messages that were due `_SETTLED_MS` before
the newest message was stored, or earlier, count as delivered.

Source: `TimerMessageStore` in apache/rocketmq.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.copy import copy_fields, look_message
from rmqcli.broker.message.delayed import (
    DELETE_KEY,
    TIMER_DELAY_MS_MAX,
    TIMER_OUT_MS,
    TIMER_PRECISION_MS,
    delete_key,
    real_place,
)
from rmqcli.broker.topic_names import TIMER_TOPIC
from rmqcli.store.message_store import StoreError
from rmqcli.wire.message.properties import UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.state.writer import MessageWriter
    from rmqcli.clock import Now
    from rmqcli.store.message_store import Appended, MessageStore

_RETRY_MS: Final = 10_000
_SCAN_UNITS: Final = 256
#: A message that was due this long before the newest message was stored, or earlier,
#: was certainly delivered.
_SETTLED_MS: Final = 5_000


class TimerService:
    """Delivers timer messages when they are due."""

    def __init__(self, context: BrokerContext, writer: MessageWriter) -> None:
        self._context = context
        self._writer = writer
        #: heap of (due time in epoch ms, commit log offset) of the waiting messages
        self._waiting: list[tuple[int, int]] = []
        self._armed_ms: int | None = None
        #: delete key of a message to delete -> its due time in epoch ms
        self._deletions: dict[str, int] = {}
        writer.listen(TIMER_TOPIC, self._arrived)
        self._recover()

    def _arrived(
        self,
        place: Appended,
        _queue_id: int,
        _code: int,
        properties: Mapping[str, str],
        now: Now,
    ) -> None:
        """Plan the delivery of a message that was put into the timers' topic."""
        due_ms = _due_ms(properties)
        if due_ms is not None:
            self._wait(due_ms, place.commit_log_offset, properties)
            self._arm(now)

    def _wait(
        self, due_ms: int, commit_log_offset: int, properties: Mapping[str, str]
    ) -> None:
        heapq.heappush(self._waiting, (due_ms, commit_log_offset))
        if DELETE_KEY in properties:
            self._deletions[properties[DELETE_KEY]] = due_ms

    def _arm(self, now: Now) -> None:
        due_ms = self._waiting[0][0]
        if self._armed_ms is None or due_ms < self._armed_ms:
            self._armed_ms = due_ms
            wait_ms = max(0, due_ms - now.epoch_ms)
            self._context.background.at(now.monotonic_ms + wait_ms, self._run)

    def _run(self, now: Now) -> None:
        self._armed_ms = None
        waiting = self._waiting
        deleted: set[str] = set()
        deleted_ms: int | None = None
        while waiting and waiting[0][0] <= now.epoch_ms:
            if waiting[0][0] != deleted_ms:
                deleted_ms = waiting[0][0]
                deleted = self._deleted(deleted_ms)
            try:
                self._deliver(waiting[0][1], now, deleted)
            except StoreError:
                self._armed_ms = now.epoch_ms + _RETRY_MS
                self._context.background.at(now.monotonic_ms + _RETRY_MS, self._run)
                return
            heapq.heappop(waiting)
        if waiting:
            self._arm(now)

    def _deleted(self, due_ms: int) -> set[str]:
        """The delete keys of the messages of this second that delete another one."""
        if not self._deletions:
            return set()
        return {key for key, at_ms in self._deletions.items() if at_ms == due_ms}

    def _deliver(self, commit_log_offset: int, now: Now, deleted: set[str]) -> None:
        message = look_message(self._context.store, commit_log_offset)
        if message is None:
            return  # its log file was deleted
        place = real_place(message.properties)
        if place is None:
            return
        if DELETE_KEY in message.properties:
            self._deletions.pop(message.properties[DELETE_KEY], None)
            return
        topic, queue_id = place
        if delete_key(topic, message.properties.get(UNIQ_KEY, "")) in deleted:
            return
        properties = dict(message.properties)
        properties["TIMER_ENQUEUE_MS"] = str(message.store_timestamp_ms)
        properties["TIMER_DEQUEUE_MS"] = str(now.epoch_ms)
        fields = copy_fields(
            message,
            now,
            store_host=self._context.settings.address,
            topic=topic,
            queue_id=queue_id,
            properties=properties,
        )
        self._writer.put_copies([fields], now)

    def _recover(self) -> None:
        """Find the messages that were waiting when the broker stopped."""
        store = self._context.store
        bounds = store.queue_bounds(TIMER_TOPIC, 0)
        if bounds is None or bounds[0] == bounds[1]:
            return
        last_ms = _last_store_ms(store)
        end = bounds[1]
        while end > bounds[0]:
            start = max(bounds[0], end - _SCAN_UNITS)
            for unit in store.units(TIMER_TOPIC, 0, start, end - start):
                message = look_message(self._context.store, unit.commit_log_offset)
                if message is None:
                    continue
                due_ms = _due_ms(message.properties)
                if due_ms is not None and due_ms > last_ms - _SETTLED_MS:
                    self._wait(due_ms, unit.commit_log_offset, message.properties)
            oldest_ms = store.store_time_ms(TIMER_TOPIC, 0, start)
            if oldest_ms is not None and oldest_ms < last_ms - TIMER_DELAY_MS_MAX:
                break
            end = start
        if self._waiting:
            self._context.background.at(self._context.started.monotonic_ms, self._run)


def _due_ms(properties: Mapping[str, str]) -> int | None:
    text = properties.get(TIMER_OUT_MS, "")
    if not text.isdecimal() or len(text) > 18:  # fits 64 bits
        return None
    return int(text) + TIMER_PRECISION_MS


def _last_store_ms(store: MessageStore) -> int:
    """Return when the newest message of all queues was stored.

    The broker was running at that time.
    """
    last_ms = 0
    for topic, queue_id in store.queues():
        bounds = store.queue_bounds(topic, queue_id)
        if bounds is not None and bounds[1] > bounds[0]:
            time_ms = store.store_time_ms(topic, queue_id, bounds[1] - 1)
            last_ms = max(last_ms, time_ms or 0)
    return last_ms
