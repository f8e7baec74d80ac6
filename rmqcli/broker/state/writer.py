"""The single way into the store: appends messages, counts them, wakes held requests.

It computes the tags codes of the consume queues. Callers decide whether a message may
be stored, and in which topic and queue, and set `store_timestamp_ms` and `store_host`.

Source: `CommitLog.asyncPutMessage(s)`, `DefaultMessageStore.ReputMessageService` and
`NotifyMessageArrivingListener` in apache/rocketmq.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rmqcli.broker.topic_names import SCHEDULE_TOPIC
from rmqcli.store.message_store import Appended, StoreError, message_count
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    TAGS,
    lmq_of,
)
from rmqcli.wire.message.system_flag import TRANSACTION_PREPARED, transaction_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.clock import Now
    from rmqcli.wire.message.encode import MessageFields

    OnArrival: TypeAlias = Callable[["Arrival"], None]


class Arrival(NamedTuple):
    """A message that was put into a queue, and when. `code` is its tags code."""

    place: Appended
    queue_id: int
    code: int
    properties: Mapping[str, str]
    now: Now


class MessageWriter:
    """Puts messages into one broker's store."""

    def __init__(self, broker: BrokerTables) -> None:
        self._broker = broker
        self._listeners: dict[str, OnArrival] = {}
        #: called with the LMQ of each message that was put into one
        self.on_lmq: Callable[[str, Now], None] | None = None

    def listen(self, topic: str, on_arrival: OnArrival) -> None:
        """Call `on_arrival` for each message that is put into `topic`."""
        self._listeners[topic] = on_arrival

    def put(self, messages: Sequence[MessageFields], now: Now) -> list[Appended]:
        """Store all messages or none, and wake the requests that wait for them.

        Raises StoreError, and ValueError if a message does not fit in a record.
        """
        properties = [each.property_table() for each in messages]
        lmqs = self._place_in_lmqs(messages)
        codes = [
            self._code(each, of) for each, of in zip(messages, properties, strict=True)
        ]
        try:
            places = self._broker.store.append(messages, tags_codes=codes)
        except (StoreError, ValueError):
            self._broker.stats.put_failed += 1
            raise
        for topic in {each.topic for each in messages}:
            counts, sizes = zip(
                *(
                    (message_count(each), place.size_bytes)
                    for each, place in zip(messages, places, strict=True)
                    if each.topic == topic
                ),
                strict=True,
            )
            self._broker.stats.put(topic, sum(counts), sum(sizes), now)
        arrived, listeners = self._broker.holds.arrived, self._listeners
        for fields, place, code, of in zip(
            messages, places, codes, properties, strict=True
        ):
            if transaction_type(fields.sys_flag) & TRANSACTION_PREPARED:
                continue  # prepared or rolled back: in the commit log only
            topic, queue_id = fields.topic, fields.queue_id
            arrived(topic, queue_id, place.queue_offset, code, of, now)
            for waiting in self._broker.held_pops:
                if waiting:
                    waiting.arrived(topic, queue_id, code, of, now)
            listener = listeners.get(topic)
            if listener is not None:
                listener(Arrival(place, queue_id, code, of, now))
        if self.on_lmq is not None:
            for lmq in lmqs:
                self.on_lmq(lmq, now)
        return places

    def _place_in_lmqs(self, messages: Sequence[MessageFields]) -> list[str]:
        """Set the offsets of messages of lite topics in their LMQs; return the LMQs.

        Source: LmqDispatch.wrapLmqDispatch.
        """
        ends: dict[str, int] = {}
        for each in messages:
            of = each.properties
            if not isinstance(of, dict) or INNER_MULTI_DISPATCH not in of:
                continue
            if transaction_type(each.sys_flag) & TRANSACTION_PREPARED:
                continue
            lmq = lmq_of(each.topic, {**of, INNER_MULTI_QUEUE_OFFSET: "0"})
            if lmq is not None:
                name = lmq[0]
                bounds = self._broker.store.queue_bounds(name, 0) or (0, 0)
                offset = ends.get(name, bounds[1])
                of[INNER_MULTI_QUEUE_OFFSET] = str(offset)
                ends[name] = offset + 1
        return list(ends)

    def put_copies(self, messages: list[MessageFields], now: Now) -> None:
        """Store copies of stored messages, and drop those that do not fit in a record.

        They are dropped because no client waits for the result. Raises StoreError.
        """
        if not messages:
            return
        try:
            self.put(messages, now)
        except ValueError:
            for each in messages:
                with contextlib.suppress(ValueError):
                    self.put([each], now)

    def _code(self, fields: MessageFields, properties: Mapping[str, str]) -> int:
        """Return the tags code of a message: the hash of its tags, or its due time."""
        if fields.topic == SCHEDULE_TOPIC:
            delay_ms = self._broker.delays.delay_ms(fields.queue_id + 1)
            if delay_ms is not None:
                return fields.store_timestamp_ms + delay_ms
        return tags_code(properties.get(TAGS))
