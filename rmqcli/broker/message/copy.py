"""Copies a stored message: makes the fields of the same message in another place.

Used by the delivery of delayed messages, by send-back and by transactions; the same
message in another record is what slaves store and what POP reads of a retry topic.

Source: `ScheduleMessageService.messageTimeup`, `TimerMessageStore.convertMessage`,
`TransactionalMessageBridge.renewHalfMessageInner` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.record import DecodeFailure, InnerMessage, StoredMessage
from rmqcli.wire.message.system_flag import INNER_BATCH, NEED_UNWRAP

if TYPE_CHECKING:
    from rmqcli.broker.context import BrokerContext
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


def look_message(store: MessageStore, commit_log_offset: int) -> StoredMessage | None:
    """Return the message at a commit log offset, or None if there is none.

    Of an inner batch, it is the first message: see `look_messages`.
    Source: DefaultMessageStore.lookMessageByOffset.
    """
    return next(iter(look_messages(store, commit_log_offset)), None)


def look_messages(store: MessageStore, commit_log_offset: int) -> list[StoredMessage]:
    """Return the messages of the record at a commit log offset; more for a batch."""
    record = store.message_at(commit_log_offset)
    found = [] if record is None else decode_messages(record)
    return [each for each in found if not isinstance(each, DecodeFailure)]


def fields_as_stored(
    message: StoredMessage, *, properties: dict[str, str] | bytes, topic: str = ""
) -> MessageFields:
    """Return the fields of the same message in another record.

    Only its properties, and its topic if one is given, may differ.
    """
    return MessageFields(
        topic=topic or message.topic,
        body=message.raw_body,
        queue_id=message.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body_crc=message.body_crc,
        properties=properties,
    )


def copy_fields(
    broker: BrokerContext,
    message: StoredMessage,
    now: Now,
    *,
    topic: str,
    queue_id: int = 0,
    properties: dict[str, str] | None = None,
    reconsume_times: int | None = None,
) -> MessageFields:
    """Return the fields of a broker's copy: body, flags, birth and properties.

    `properties` and `reconsume_times`, if given, replace those of the message. The copy
    of a message of an inner batch is an ordinary one.
    """
    sys_flag = message.sys_flag
    if isinstance(message, InnerMessage):
        sys_flag &= ~(INNER_BATCH | NEED_UNWRAP)
    return MessageFields(
        topic=topic,
        body=message.raw_body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=now.epoch_ms,
        store_host=broker.settings.address,
        reconsume_times=(
            message.reconsume_times if reconsume_times is None else reconsume_times
        ),
        properties=message.properties if properties is None else properties,
    )
