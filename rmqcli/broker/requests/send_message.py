"""Sending one message: 10 and 310.

Imitated: checks, properties added to the record, retry topics and their dead letters,
delays, half messages, what the answer says. Not imitated: flow control, request hooks,
statistics of senders.

Source: `SendMessageProcessor.sendMessage` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.delayed import DELAY, redirected
from rmqcli.broker.message.put import put_messages
from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.requests.send_check import (
    illegal_message,
    need_body,
    need_properties,
    need_queue,
    need_topic,
    not_stored,
)
from rmqcli.broker.state.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqcli.store.message_store import StoreError
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers.send import SendMessageResponseHeader
from rmqcli.wire.ids import encode_offset_msg_id
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import UNIQ_KEY, parse_properties
from rmqcli.wire.message.system_flag import MULTI_TAGS

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Request
    from rmqcli.broker.requests.send_check import SendHeader
    from rmqcli.clock import Now
    from rmqcli.store.message_store import Appended
    from rmqcli.wire.bodies.config import TopicConfig

CLUSTER: Final = "CLUSTER"
WAIT: Final = "WAIT"  # PROPERTY_WAIT_STORE_MSG_OK
TRAN_MSG: Final = "TRAN_MSG"  # PROPERTY_TRANSACTION_PREPARED

#: Of every answer to a send.
ANSWER_FIELDS: Final = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
#: Bytes that the broker's own properties may take of the 32 KiB.
_OWN_PROPERTIES_BYTES: Final = 1_024


def send_message(broker: Broker, request: Request, header: SendHeader) -> Reply:
    """Store one message and say where."""
    config = need_topic(broker, request, header)
    queue_id = need_queue(broker, header, config)
    body = need_body(broker, request.command.body)
    text = need_properties(broker, header.properties, room_bytes=_OWN_PROPERTIES_BYTES)
    properties = parse_properties(text)
    topic = header.topic
    fields = MessageFields(
        topic=topic,
        body=body,
        queue_id=queue_id,
        flag=header.flag,
        sys_flag=sys_flag_of(header, config),
        born_timestamp_ms=header.born_timestamp,
        born_host=request.peer.address,
        store_timestamp_ms=request.now.epoch_ms,
        store_host=broker.settings.address,
        reconsume_times=header.reconsume_times or 0,
        properties=properties,
    )
    if topic.startswith(RETRY_PREFIX):
        fields = _or_dead(broker, request, header, fields, properties)
    add_own_properties(broker, properties)
    if properties.get(TRAN_MSG, "").lower() == "true" and not (
        fields.reconsume_times > 0 and DELAY in properties
    ):
        fields = broker.transactions.half(fields, properties)
    else:
        fields = redirected(broker, fields, properties, request.now)
    place = put_or_refuse(broker, [fields], request.now)[0]
    return _stored(broker, place, queue_id, properties)


def put_or_refuse(
    broker: Broker, messages: list[MessageFields], now: Now
) -> list[Appended]:
    """Store messages. Raises Refusal: 14 when it is full, 13 when they cannot be."""
    try:
        return put_messages(broker, messages, now)
    except StoreError as error:
        raise not_stored(error) from error
    except ValueError as error:
        raise illegal_message(broker) from error


def add_own_properties(broker: Broker, properties: dict[str, str]) -> None:
    """Add to a message's properties what a broker stores with it."""
    manners = broker.manners
    if manners.adds_unique_key_and_region:
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = broker.transactions.unique_key()
        properties.update(ANSWER_FIELDS)
    properties[CLUSTER] = broker.settings.cluster
    if manners.strips_wait:
        properties.pop(WAIT, None)


def sys_flag_of(header: SendHeader, config: TopicConfig) -> int:
    if config.topic_filter_type == "MULTI_TAG":
        return header.sys_flag | MULTI_TAGS
    return header.sys_flag


def _or_dead(
    broker: Broker,
    request: Request,
    header: SendHeader,
    fields: MessageFields,
    properties: dict[str, str],
) -> MessageFields:
    """A retry that a consumer sends as a producer: dead when it came too often.

    Source: SendMessageProcessor.handleRetryAndDLQ.
    """
    group = header.topic.removeprefix(RETRY_PREFIX)
    config = broker.groups.find_or_create(group)
    if config is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {group}",
        )
    manners = broker.manners
    times = header.reconsume_times or 0
    times_max = header.max_reconsume_times
    if times_max is None:
        times_max = config.retry_max_times
    is_dead = times > times_max or (
        manners.dead_at_reconsume_times_max and times == times_max
    )
    if manners.dead_while_group_holds_locks and not is_dead:
        is_dead = broker.locks.is_held(group, request.now)
    if not is_dead:
        return fields
    return dead_letter(broker, fields, group, properties)


def dead_letter(
    broker: Broker, fields: MessageFields, group: str, properties: dict[str, str]
) -> MessageFields:
    """The message in the group's dead letter queue, which is there then."""
    topic = DLQ_PREFIX + group
    broker.topics.create_in_send_back(topic, queue_nums=1, perm=broker.manners.dlq_perm)
    properties[DELAY] = "-1"
    return dataclasses.replace(fields, topic=topic, queue_id=0)


def _stored(
    broker: Broker, place: Appended, queue_id: int, properties: dict[str, str]
) -> Reply:
    transaction_id = None
    if broker.manners.adds_unique_key_and_region:
        transaction_id = properties.get(UNIQ_KEY)
    return Reply(
        header=SendMessageResponseHeader(
            msg_id=encode_offset_msg_id(
                broker.settings.address, place.commit_log_offset
            ),
            queue_id=queue_id,
            queue_offset=place.queue_offset,
            transaction_id=transaction_id,
        ),
        ext_fields=ANSWER_FIELDS,
    )
