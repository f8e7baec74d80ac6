"""4.x: a message in OFFSET_MOVED_EVENT for each pull that is sent elsewhere.

Not imitated: nothing is said when the store cannot take it; Java writes to its log.

Source: `PullMessageProcessor.generateOffsetMovedEvent` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.store.message_store import StoreFullError
from rmqcli.wire import fastjson
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.headers.pull import PullMessageRequestHeader

OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"


def store_offset_moved_event(
    broker: BrokerState, header: PullMessageRequestHeader, offset_new: int, now: Now
) -> None:
    """Tell whoever reads that topic which group was sent to which offset."""
    group = header.consumer_group
    event = {
        "consumerGroup": group,
        "messageQueue": {
            "brokerName": broker.settings.broker_name,
            "queueId": header.queue_id,
            "topic": header.topic,
        },
        "offsetNew": offset_new,
        "offsetRequest": header.queue_offset,
    }
    fields = MessageFields(
        topic=OFFSET_MOVED_EVENT,
        body=fastjson.dumps(event).encode(),
        queue_id=0,
        born_timestamp_ms=now.epoch_ms,
        born_host=broker.settings.address,
        store_timestamp_ms=now.epoch_ms,
        store_host=broker.settings.address,
        properties={KEYS: group, TAGS: group},
    )
    with suppress(StoreFullError):
        broker.writer.put([fields], now)
