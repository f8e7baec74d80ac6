"""The single way into the store: append, number, and wake who waits.

Decides the tags codes of the consume queues; never whether or where a message may be
put: that is the callers', who also set `store_timestamp_ms` and `store_host`.

Source: `CommitLog.asyncPutMessage(s)`, `DefaultMessageStore.ReputMessageService` and
`NotifyMessageArrivingListener` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.state.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqcli.store.message_store import StoreError
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.properties import TAGS, parse_properties
from rmqcli.wire.message.system_flag import TRANSACTION_PREPARED, transaction_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.broker.core import Broker
    from rmqcli.clock import Now
    from rmqcli.store.message_store import Appended
    from rmqcli.wire.message.encode import MessageFields

_CODES_MAX: Final = 4096
#: Tags -> code: a topic has few tags. Emptied when full, as anybody may send others.
_codes: dict[str, int] = {}


def put_messages(
    broker: Broker, messages: Sequence[MessageFields], now: Now
) -> list[Appended]:
    """Store messages together, all or none, and tell whoever waits for them.

    Raises StoreFullError, and ValueError for what no record can hold.
    """
    properties = [_mapping(each) for each in messages]
    codes = [
        _code(broker, each, of) for each, of in zip(messages, properties, strict=True)
    ]
    try:
        places = broker.store.append(messages, tags_codes=codes)
    except (StoreError, ValueError):
        broker.stats.put_failed += 1
        raise
    for topic in {each.topic for each in messages}:
        sizes = [
            place.size_bytes
            for each, place in zip(messages, places, strict=True)
            if each.topic == topic
        ]
        broker.stats.put(topic, len(sizes), sum(sizes), now)
    arrived = broker.holds.arrived
    for fields, place, code, of in zip(
        messages, places, codes, properties, strict=True
    ):
        if transaction_type(fields.sys_flag) & TRANSACTION_PREPARED:
            continue  # prepared and rolled back: in the log only
        topic, queue_id = fields.topic, fields.queue_id
        arrived(topic, queue_id, place.queue_offset, code, of, now)
        if topic == SCHEDULE_TOPIC:
            broker.schedule.arrived(queue_id, due_ms=code, now=now)
        elif topic == TIMER_TOPIC:
            broker.schedule.timers.arrived(place, of, now)
    return places


def _mapping(fields: MessageFields) -> Mapping[str, str]:
    properties = fields.properties
    if isinstance(properties, (str, bytes)):
        return parse_properties(properties)
    return properties  # type: ignore[return-value]  # nobody here puts None values


def _code(broker: Broker, fields: MessageFields, properties: Mapping[str, str]) -> int:
    """What the consume queue keeps beside the place: a tag's hash, or a due time."""
    if fields.topic == SCHEDULE_TOPIC:
        delay_ms = broker.schedule.delay_ms(fields.queue_id + 1)
        if delay_ms is not None:
            return fields.store_timestamp_ms + delay_ms
    tags = properties.get(TAGS)
    if not tags:
        return 0
    code = _codes.get(tags)
    if code is None:
        if len(_codes) >= _CODES_MAX:
            _codes.clear()
        code = _codes[tags] = tags_code(tags)
    return code
