"""Timer messages of 5.x: delivered at a requested second, at most 3 days ahead.

Imitated: the topic in which they wait; their properties; the precision (a due time is
rounded down to the second, and the message is delivered one second later); messages
that delete another message of the same second.
Not imitated: the timing wheel and its log on disk. After a restart, the broker finds
the waiting messages by reading the topic. Its progress, which is stored every few
seconds, says up to which due time all of them were delivered. For each message that was
due later, the broker looks whether the log has its copy. So no message is delivered
twice, however the broker ended. A real broker that continues in the folder may deliver
those again that came after the oldest one that waits, or after its timer log's end.

Source: `TimerMessageStore`, `TimerCheckpoint` in apache/rocketmq.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message import delayed
from rmqcli.broker.message.copy import copy_fields, look_message
from rmqcli.broker.topic_names import TIMER_TOPIC
from rmqcli.store.message_store import StoreError, TimerProgress
from rmqcli.wire.message.properties import TIMER_DEL_UNIQKEY, UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.broker.state.writer import Arrival, MessageWriter
    from rmqcli.clock import Now
    from rmqcli.wire.message.record import StoredMessage

_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
_RETRY_MS: Final = 10_000
_SCAN_UNITS: Final = 256
#: The most messages of a unique key that are searched for a copy.
_COPIES_MAX: Final = 64
_INT64_MAX: Final = (1 << 63) - 1


class TimerService:
    """Delivers timer messages when they are due."""

    def __init__(self, broker: BrokerTables, writer: MessageWriter) -> None:
        self._broker = broker
        self._writer = writer
        #: heap of the waiting messages: due time in epoch ms, commit log offset, queue
        #: offset
        self._waiting: list[tuple[int, int, int]] = []
        self._read_ms = 0
        self._queue_offset = 0
        self._armed_ms: int | None = None
        #: (due time in epoch ms, delete key) of the messages to delete
        self._deletions: set[tuple[int, str]] = set()
        writer.listen(TIMER_TOPIC, self._arrived)

    def __len__(self) -> int:
        """Return how many messages wait, with those that delete another one."""
        return len(self._waiting)

    @property
    def progress(self) -> TimerProgress:
        """How far the timers have come, for the next start."""
        bounds = self._broker.store.queue_bounds(TIMER_TOPIC, 0)
        end = 0 if bounds is None else bounds[1]
        first = min((offset for *_, offset in self._waiting), default=end)
        return TimerProgress(self._read_ms, max(self._queue_offset, first))

    def load(self, progress: TimerProgress) -> None:
        """Continue from a stored progress; call it before `recover`."""
        self._read_ms, self._queue_offset = progress

    def _arrived(self, new: Arrival) -> None:
        """Plan the delivery of a message that was put into the timers' topic."""
        due_ms, place = _due_ms(new.properties), new.place
        if due_ms is not None:
            # Only after the clock was set back.
            self._read_ms = min(self._read_ms, _second_before(due_ms))
            at, offset = place.commit_log_offset, place.queue_offset
            self._wait(due_ms, at, offset, new.properties)
            self._arm(new.now)

    def _wait(
        self,
        due_ms: int,
        commit_log_offset: int,
        queue_offset: int,
        properties: Mapping[str, str],
    ) -> None:
        heapq.heappush(self._waiting, (due_ms, commit_log_offset, queue_offset))
        if TIMER_DEL_UNIQKEY in properties:
            self._deletions.add((due_ms, properties[TIMER_DEL_UNIQKEY]))

    def _arm(self, now: Now) -> None:
        due_ms = self._waiting[0][0]
        if self._armed_ms is None or due_ms < self._armed_ms:
            self._armed_ms = due_ms
            wait_ms = max(0, due_ms - now.epoch_ms)
            self._broker.background.at(now.monotonic_ms + wait_ms, self._run)

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
                self._deliver(deleted_ms, waiting[0][1], now, deleted)
            except StoreError:
                self._armed_ms = now.epoch_ms + _RETRY_MS
                self._broker.background.at(now.monotonic_ms + _RETRY_MS, self._run)
                return
            heapq.heappop(waiting)
            self._read_ms = max(self._read_ms, _second_before(deleted_ms))
        self._read_ms = max(self._read_ms, _second_before(now.epoch_ms + 1))
        if waiting:
            self._arm(now)

    def _deleted(self, due_ms: int) -> set[str]:
        """The delete keys of the messages of this second that delete another one."""
        return {key for at_ms, key in self._deletions if at_ms == due_ms}

    def _deliver(
        self, due_ms: int, commit_log_offset: int, now: Now, deleted: set[str]
    ) -> None:
        message = look_message(self._broker.store, commit_log_offset)
        if message is None:
            return  # its log file was deleted
        place = delayed.real_place(message.properties)
        if place is None:
            return
        if TIMER_DEL_UNIQKEY in message.properties:
            self._deletions.discard((due_ms, message.properties[TIMER_DEL_UNIQKEY]))
            return
        topic, queue_id = place
        unique_key = message.properties.get(UNIQ_KEY, "")
        if delayed.delete_key(topic, unique_key, self._broker.settings) in deleted:
            return
        properties = dict(message.properties)
        properties["TIMER_ENQUEUE_MS"] = str(message.store_timestamp_ms)
        properties[_DEQUEUE_MS] = str(now.epoch_ms)
        fields = copy_fields(
            self._broker,
            message,
            now,
            topic=topic,
            queue_id=queue_id,
            properties=properties,
        )
        self._writer.put_copies([fields], now)

    def recover(self, now: Now) -> None:
        """Find the messages that were waiting when the broker stopped.

        Call it once, before the broker answers requests.
        """
        store = self._broker.store
        low, end = store.queue_bounds(TIMER_TOPIC, 0) or (0, 0)
        copies: set[int] = set()
        while end > low:
            start = max(low, end - _SCAN_UNITS)
            for unit in store.units(TIMER_TOPIC, 0, start, end - start):
                message = look_message(store, unit.commit_log_offset)
                due_ms = None if message is None else _due_ms(message.properties)
                if message is None or due_ms is None or due_ms <= self._read_ms:
                    continue
                if not self._is_delivered(message, copies):
                    self._wait(
                        due_ms,
                        unit.commit_log_offset,
                        message.queue_offset,
                        message.properties,
                    )
            oldest_ms = store.store_time_ms(TIMER_TOPIC, 0, start)
            if (
                oldest_ms is not None
                and oldest_ms < self._read_ms - delayed.TIMER_DELAY_MS_MAX
            ):
                break
            end = start
        if self._waiting:
            self._arm(now)

    def _is_delivered(self, message: StoredMessage, copies: set[int]) -> bool:
        """Whether the log has a copy of the message that is not in `copies`.

        The copy is added there, as clients may send two messages with the same key.
        """
        place = delayed.real_place(message.properties)
        unique_key = message.properties.get(UNIQ_KEY)
        if place is None or unique_key is None:
            return False
        store = self._broker.store
        for offset in store.query_index(
            place[0],
            unique_key,
            begin_ms=0,
            end_ms=_INT64_MAX,
            count_max=_COPIES_MAX,
        ):
            copy = None if offset in copies else look_message(store, offset)
            if copy is None or (copy.topic, copy.queue_id) != place:
                continue
            properties = copy.properties
            if _DEQUEUE_MS in properties and all(
                properties.get(key) == message.properties.get(key)
                for key in (UNIQ_KEY, delayed.TIMER_OUT_MS)
            ):
                copies.add(offset)
                return True
        return False


def _second_before(epoch_ms: int) -> int:
    """The last full second before a time, as all due times are full seconds."""
    return (epoch_ms - 1) // delayed.TIMER_PRECISION_MS * delayed.TIMER_PRECISION_MS


def _due_ms(properties: Mapping[str, str]) -> int | None:
    text = properties.get(delayed.TIMER_OUT_MS, "")
    if not text.isdecimal() or len(text) > 18:  # fits 64 bits
        return None
    return int(text) + delayed.TIMER_PRECISION_MS
