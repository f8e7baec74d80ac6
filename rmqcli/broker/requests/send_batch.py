"""Sending a batch: 320, and 310 that says it is one.

Imitated: the batch becomes ordinary messages with neighbouring offsets, all or none;
the broker's own properties are not added to them. Not imitated: batches that stay one
record (topics of type BatchCQ).

Source: `SendMessageProcessor.sendBatchMessage` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.message.delayed import delay_level
from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.requests.send_check import (
    illegal_message,
    need_body,
    need_properties,
    need_queue,
    need_topic,
)
from rmqcli.broker.requests.send_message import (
    ANSWER_FIELDS,
    put_or_refuse,
    sys_flag_of,
)
from rmqcli.broker.state.topics import RETRY_PREFIX
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers.send import SendMessageResponseHeader
from rmqcli.wire.ids import encode_offset_msg_id
from rmqcli.wire.message.batch import split_batch
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import UNIQ_KEY, parse_properties
from rmqcli.wire.message.system_flag import transaction_type

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Request
    from rmqcli.broker.requests.send_check import SendHeader
    from rmqcli.store.message_store import Appended
    from rmqcli.wire.message.batch import ItemSpan


def send_batch(broker: Broker, request: Request, header: SendHeader) -> Reply:
    """Store the batch's messages and say where: the ids, the first one's offset."""
    config = need_topic(broker, request, header)
    queue_id = need_queue(broker, header, config)
    if header.topic.startswith(RETRY_PREFIX):
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"batch request does not support retry group {header.topic}",
        )
    body = need_body(broker, request.command.body)
    outer = parse_properties(need_properties(broker, header.properties))
    if transaction_type(header.sys_flag) or delay_level(outer) > 0:
        raise illegal_message(broker)
    spans, fault = split_batch(body)
    if fault:
        raise illegal_message(broker)
    shared = MessageFields(
        topic=header.topic,
        queue_id=queue_id,
        sys_flag=sys_flag_of(header, config),
        born_timestamp_ms=header.born_timestamp,
        born_host=request.peer.address,
        store_timestamp_ms=request.now.epoch_ms,
        store_host=broker.settings.address,
        reconsume_times=header.reconsume_times or 0,
    )
    if not spans:  # Java fails on the body that is null
        raise Refusal(ResponseCode.SYSTEM_ERROR, "a batch without messages")
    messages = [_item(body, span, shared) for span in spans]
    places = put_or_refuse(broker, messages, request.now)
    return _stored(broker, places, queue_id, outer.get(UNIQ_KEY))


def _item(body: bytes, span: ItemSpan, shared: MessageFields) -> MessageFields:
    # Properties are stored byte for byte, as RocketMQ does.
    properties = body[span.properties_at : span.end]
    return MessageFields(
        topic=shared.topic,
        body=body[span.body_at : span.body_end],
        queue_id=shared.queue_id,
        flag=span.flag,
        sys_flag=shared.sys_flag,
        born_timestamp_ms=shared.born_timestamp_ms,
        born_host=shared.born_host,
        store_timestamp_ms=shared.store_timestamp_ms,
        store_host=shared.store_host,
        reconsume_times=shared.reconsume_times,
        properties=parse_properties(properties),
        properties_bytes=properties,
    )


def _stored(
    broker: Broker, places: list[Appended], queue_id: int, unique_key: str | None
) -> Reply:
    # The ids differ in their last 16 digits only.
    host = encode_offset_msg_id(broker.settings.address, 0)[:-16]
    answers_key = broker.manners.adds_unique_key_and_region
    return Reply(
        header=SendMessageResponseHeader(
            msg_id=",".join(f"{host}{each.commit_log_offset:016X}" for each in places),
            queue_id=queue_id,
            queue_offset=places[0].queue_offset,
            transaction_id=unique_key if answers_key else None,
        ),
        ext_fields=ANSWER_FIELDS,
    )
