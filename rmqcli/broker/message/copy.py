"""A stored message as the fields of a new record: the same message, in another place.

What delivery of delayed messages, send-back and transactions have in common.

Source: `ScheduleMessageService.messageTimeup`, `TimerMessageStore.convertMessage`,
`TransactionalMessageBridge.renewHalfMessageInner` in apache/rocketmq.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rmqcli.broker.message.put import put_messages
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.clock import Now
    from rmqcli.wire.message.record import StoredMessage


def look_message(broker: Broker, commit_log_offset: int) -> StoredMessage | None:
    """The message that lies there; None when there is none.

    Source: DefaultMessageStore.lookMessageByOffset.
    """
    record = broker.store.message_at(commit_log_offset)
    if record is None:
        return None
    for message in decode_messages(record):
        if not isinstance(message, DecodeFailure):
            return message
    return None


def copy_fields(
    broker: Broker,
    message: StoredMessage,
    now: Now,
    *,
    topic: str,
    queue_id: int,
    properties: dict[str, str] | None = None,
    reconsume_times: int | None = None,
) -> MessageFields:
    """The fields of a copy: body, flags, birth and properties are the message's."""
    return MessageFields(
        topic=topic,
        body=message.raw_body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=now.epoch_ms,
        store_host=broker.settings.address,
        reconsume_times=(
            message.reconsume_times if reconsume_times is None else reconsume_times
        ),
        properties=message.properties if properties is None else properties,
    )


def put_copies(broker: Broker, messages: list[MessageFields], now: Now) -> None:
    """Store copies; one that no record can hold is left out, there is nobody to tell.

    Raises StoreError.
    """
    if not messages:
        return
    try:
        put_messages(broker, messages, now)
    except ValueError:
        for each in messages:
            with contextlib.suppress(ValueError):
                put_messages(broker, [each], now)
