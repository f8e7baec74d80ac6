"""Delay levels: delayed messages wait in SCHEDULE_TOPIC_XXXX, a queue for each level.

Imitated: the messages of a queue are delivered in order. The broker keeps only the
level's delay offset, and continues there after a restart. As in RocketMQ, a message may
be delivered twice if the offset was not written in time.
Not imitated: polling every 100 ms. Messages are delivered in the millisecond in which
they are due.

Source: `ScheduleMessageService` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.copy import copy_fields, look_messages
from rmqcli.broker.message.delayed import real_place
from rmqcli.broker.topic_names import SCHEDULE_TOPIC
from rmqcli.store.message_store import QueueUnit, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.broker.state.writer import Arrival, MessageWriter
    from rmqcli.clock import Now
    from rmqcli.wire.message.encode import MessageFields

_AT_ONCE_MAX: Final = 200
_RETRY_MS: Final = 10_000  # DELAY_FOR_A_PERIOD


class ScheduleMessageService:
    """Delivers the messages of each level when they are due."""

    def __init__(self, broker: BrokerTables, writer: MessageWriter) -> None:
        self._broker = broker
        self._writer = writer
        #: level -> the next offset to deliver; delayOffset.json keeps them
        self.offsets: dict[int, int] = {}
        #: levels that have a timer
        self._armed: set[int] = set()
        writer.listen(SCHEDULE_TOPIC, self._arrived)
        for topic, queue_id in broker.store.queues():
            if topic == SCHEDULE_TOPIC:
                self._arm(queue_id + 1, broker.started.monotonic_ms)

    def load(self, offsets: Mapping[int, int]) -> None:
        """Add the stored offsets of the levels, before any message is delivered.

        Offsets of unknown levels are kept.
        """
        self.offsets.update(offsets)

    def _arrived(self, new: Arrival) -> None:
        """Plan the delivery of a message that was put into a level's queue."""
        level, now = new.queue_id + 1, new.now
        if level not in self._armed and self._broker.delays.delay_ms(level) is not None:
            due_ms = new.code  # in place of the hash of the tags
            self._arm(level, now.monotonic_ms + max(0, due_ms - now.epoch_ms))

    def _arm(self, level: int, monotonic_ms: int) -> None:
        self._armed.add(level)
        self._broker.background.at(monotonic_ms, lambda now: self._run(level, now))

    def _run(self, level: int, now: Now) -> None:
        """Deliver the messages of one level that are due."""
        self._armed.discard(level)
        store = self._broker.store
        bounds = store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        if bounds is None:
            return
        start = min(max(self.offsets.get(level, 0), bounds[0]), bounds[1])
        units = store.units(SCHEDULE_TOPIC, level - 1, start, _AT_ONCE_MAX)
        due = _leading_due(units, now.epoch_ms)
        try:
            self._deliver(units[:due], now)
        except StoreError:
            self._arm(level, now.monotonic_ms + _RETRY_MS)
            return
        if start + due != self.offsets.get(level):
            self.offsets[level] = start + due
        if due < len(units):
            wait_ms = units[due].tags_code - now.epoch_ms
            # After the clock was set back, a message must not wait longer than the
            # delay of its level.
            wait_ms = min(wait_ms, self._broker.delays.delay_ms(level) or 0)
            self._arm(level, now.monotonic_ms + max(0, wait_ms))
        elif start + due < bounds[1]:
            self._arm(level, now.monotonic_ms)

    def _deliver(self, units: Sequence[QueueUnit], now: Now) -> None:
        messages: list[MessageFields] = []
        for unit in units:
            # There are none if the log file was deleted.
            for message in look_messages(self._broker.store, unit.commit_log_offset):
                place = real_place(message.properties)
                if place is not None:
                    topic, queue_id = place
                    fields = copy_fields(
                        self._broker, message, now, topic=topic, queue_id=queue_id
                    )
                    messages.append(fields)
        self._writer.put_copies(messages, now)


def _leading_due(units: Sequence[QueueUnit], epoch_ms: int) -> int:
    """Return the number of leading units whose messages are due."""
    for index, unit in enumerate(units):
        if unit.tags_code > epoch_ms:
            return index
    return len(units)
