"""Sending messages: 10, 310, 320 and 370.

Imitated: RocketMQ's checks in their order and with their codes, by version; the
properties that a broker adds to a record, and the handle of POP that it removes; the
queue of a message with a priority; retry topics and their dead letters; delays
and half messages; batches, whose messages are stored all or none, with adjacent
offsets, as one record in a topic with queue.type=BatchCQ; the answer's fields. As in
RocketMQ, a topic's write permission is not checked.
Not imitated: flow control; request hooks; statistics of senders; static and compaction
topics; ACL. A record that a client calls an inner batch, and a batch of half messages,
are refused; RocketMQ stores them in a topic of batches, where no client can read them.

Source: `SendMessageProcessor`, `AbstractSendMessageProcessor.msgCheck` and
`HookUtils.checkBeforePutMessage` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from rmqcli.broker import topic_names
from rmqcli.broker.attributes import BATCH_QUEUES, QUEUE_TYPE
from rmqcli.broker.dispatch import handles
from rmqcli.broker.message import delayed
from rmqcli.broker.request import (
    Refusal,
    Reply,
    no_group,
    no_permission,
    no_topic,
    system_error,
)
from rmqcli.errors import DecodeError
from rmqcli.files import file_name_fault
from rmqcli.store.batch_queue import MESSAGES_MAX
from rmqcli.store.message_store import Appended, StoreError, StoreFullError
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import send
from rmqcli.wire.ids import encode_offset_msg_id
from rmqcli.wire.message import system_flag
from rmqcli.wire.message.batch import ItemSpan, split_batch
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_NUM,
    LITE_TOPIC,
    POP_CK,
    PRIORITY,
    PROPERTIES_BYTES_MAX,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TRAN_MSG,
    UNIQ_KEY,
    lmq_name,
    parse_properties,
    without_property,
)
from rmqcli.wire.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.bodies.config import TopicConfig

    SendHeader = send.SendMessageRequestHeader | send.SendMessageRequestHeaderV2

CLUSTER: Final = "CLUSTER"
WAIT: Final = "WAIT"  # PROPERTY_WAIT_STORE_MSG_OK

_REGION: Final = {"MSG_REGION": "DefaultRegion"}
#: Fields of each answer to a send.
ANSWER_FIELDS: Final = {**_REGION, "TRACE_ON": "true"}
#: Bytes that the broker's own properties may take of the 32 KiB.
_OWN_PROPERTIES_BYTES: Final = 1_024
_INT32_MAX: Final = (1 << 31) - 1
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_UTF8_BYTES_MAX: Final = 4  # of one character


@handles(
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
def send_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Store a message (10, 310) or a batch (320).

    Refusals have ANSWER_FIELDS, too.
    """
    try:
        header = send_header(request)
        text = header.properties or ""
        if broker.profile.removes_pop_handles and POP_CK in text:
            header = dataclasses.replace(
                header, properties=without_property(text, POP_CK)
            )
        if header.batch:
            return _send_batch(broker, request, header)
        return _send_one(broker, request, header)
    except Refusal as refusal:
        refusal.ext_fields = {**ANSWER_FIELDS, **refusal.ext_fields}
        raise


def send_header(request: BrokerRequest) -> SendHeader:
    """Return the header of a message or a reply, in its long or its short form."""
    if request.command.code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
    ):
        return request.header(send.SendMessageRequestHeader)
    return request.header(send.SendMessageRequestHeaderV2)


@handles(RequestCode.RECALL_MESSAGE, since=V5_0_0)
def recall_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Recall a timer message before its delivery (370); needs recallMessageEnable.

    A second message is stored, which deletes the first one when both are due. Each
    answer names the region, also a refusal.
    Source: RecallMessageProcessor.
    """
    try:
        return _recall(broker, request)
    except Refusal as refusal:
        refusal.ext_fields = {**_REGION, **refusal.ext_fields}
        raise


def _recall(broker: BrokerState, request: BrokerRequest) -> Reply:
    if not broker.settings.recall_message_enable:
        raise no_permission("recall failed, operation is forbidden")
    header = request.header(send.RecallMessageRequestHeader)
    if broker.topics.get(header.topic) is None:
        raise no_topic(f"recall failed, the topic[{header.topic}] not exist")
    handle = _recall_handle(broker, header)
    left_ms = int(handle.timestamp_ms) - request.now.epoch_ms
    if not 0 < left_ms < delayed.TIMER_DELAY_MS_MAX:
        raise _no_recall("recall failed, timestamp invalid")
    properties = {
        TAGS: "_RECALL_TAG_",
        TIMER_DEL_UNIQKEY: delayed.delete_key(
            handle.topic, handle.message_id, broker.settings
        ),
        UNIQ_KEY: handle.message_id,
        delayed.DELIVER_MS: handle.timestamp_ms,
        "BORN_TIMESTAMP": str(request.now.epoch_ms),
    }
    fields = MessageFields(
        topic=handle.topic,
        body=b"0",
        born_timestamp_ms=request.now.epoch_ms,
        born_host=request.peer.address,
        store_timestamp_ms=request.now.epoch_ms,
        store_host=broker.settings.address,
        properties=properties,
    )
    fields = broker.delays.redirected(fields, properties, request.now)
    put_or_refuse(broker, [fields], request.now)
    return Reply(
        header=send.RecallMessageResponseHeader(msg_id=handle.message_id),
        ext_fields=_REGION,
    )


def _recall_handle(
    broker: BrokerState, header: send.RecallMessageRequestHeader
) -> RecallHandle:
    """The recall handle. Raises Refusal if it is not for this topic and broker."""
    try:
        handle = decode_recall_handle(header.recall_handle)
    except DecodeError as error:
        raise _no_recall(error.message) from error
    if handle.topic != header.topic:
        raise _no_recall("recall failed, topic not match")
    if handle.broker_name != broker.settings.broker_name:
        raise _no_recall("recall failed, broker service not available")
    if not _DIGITS.fullmatch(handle.timestamp_ms):
        raise _no_recall("recall failed, timestamp invalid")
    return handle


def _no_recall(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _send_one(broker: BrokerState, request: BrokerRequest, header: SendHeader) -> Reply:
    """Store one message; the answer has its queue, offset and message id."""
    config = need_topic(broker, request, header)
    queue_id = need_queue(broker, header, config)
    body = need_body(broker, request.command.body)
    text = need_properties(broker, header.properties, room_bytes=_OWN_PROPERTIES_BYTES)
    properties = parse_properties(text)
    _need_no_batch(broker, properties)
    topic = header.topic
    fields = fields_of(broker, request, header, config, queue_id, body, properties)
    if topic.startswith(topic_names.RETRY_PREFIX):
        fields = _or_dead(broker, request, header, fields, properties)
    if broker.profile.has_priorities and PRIORITY in properties:
        fields = _by_priority(fields, properties, config)
        queue_id = fields.queue_id if fields.topic == topic else queue_id
    add_own_properties(broker, properties)
    if broker.profile.has_lite_topics and LITE_TOPIC in properties:
        properties[INNER_MULTI_DISPATCH] = lmq_name(topic, properties[LITE_TOPIC])
    if properties.get(TRAN_MSG, "").lower() == "true" and not (
        fields.reconsume_times > 0 and delayed.DELAY in properties
    ):
        fields = broker.transactions.half(fields, properties)
    else:
        fields = broker.delays.redirected(fields, properties, request.now)
    place = put_or_refuse(broker, [fields], request.now)[0]
    return _stored(broker, place, queue_id, properties)


def _by_priority(
    fields: MessageFields, properties: dict[str, str], config: TopicConfig
) -> MessageFields:
    """Put a message with a priority into the queue of that number, or the last one.

    The topic need not be of type PRIORITY. Messages of other kinds lose the property;
    one that is not a number from 0 on is kept without effect.
    """
    priority = _int32(properties[PRIORITY])
    if priority is None or priority < 0:
        return fields
    is_transaction = properties.get(TRAN_MSG, "").lower() == "true"
    if is_transaction or delayed.is_delayed(properties) or SHARDING_KEY in properties:
        del properties[PRIORITY]
        return fields
    last = max(0, config.write_queue_nums - 1)
    return dataclasses.replace(fields, queue_id=min(priority, last))


def _int32(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (_DIGITS.fullmatch(digits) and int(digits) <= _INT32_MAX):
        return None
    return int(text)


def put_or_refuse(
    broker: BrokerState, messages: list[MessageFields], now: Now
) -> list[Appended]:
    """Store messages.

    Raises Refusal: 14 if the store is full, 1 for other errors of the store, and 13 if
    a message does not fit in a record.
    """
    try:
        return broker.writer.put(messages, now)
    except StoreError as error:
        raise not_stored(error) from error
    except ValueError as error:
        raise illegal_message(broker) from error


def add_own_properties(broker: BrokerState, properties: dict[str, str]) -> None:
    """Add the broker's own properties to those of a message."""
    profile = broker.profile
    if profile.adds_unique_key_and_region:
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = broker.transactions.unique_key()
        properties.update(ANSWER_FIELDS)
    properties[CLUSTER] = broker.settings.cluster
    if profile.strips_wait:
        properties.pop(WAIT, None)


def fields_of(
    broker: BrokerState,
    request: BrokerRequest,
    header: SendHeader,
    config: TopicConfig,
    queue_id: int,
    body: bytes,
    properties: dict[str, str] | str,
) -> MessageFields:
    """The fields of a message that this broker received with a request."""
    sys_flag = header.sys_flag
    if config.topic_filter_type == "MULTI_TAG":
        sys_flag |= system_flag.MULTI_TAGS
    return MessageFields(
        topic=header.topic,
        body=body,
        queue_id=queue_id,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=request.peer.address,
        store_timestamp_ms=request.now.epoch_ms,
        store_host=broker.settings.address,
        reconsume_times=header.reconsume_times or 0,
        properties=properties,
    )


def _or_dead(
    broker: BrokerState,
    request: BrokerRequest,
    header: SendHeader,
    fields: MessageFields,
    properties: dict[str, str],
) -> MessageFields:
    """Handle a retry that a consumer sends with its producer.

    The message becomes a dead letter after too many retries and, in 5.x, while the
    group holds queue locks.
    Source: SendMessageProcessor.handleRetryAndDLQ.
    """
    group = header.topic.removeprefix(topic_names.RETRY_PREFIX)
    config = broker.groups.find_or_create(group)
    if config is None:
        raise no_group(f"subscription group not exist, {group}")
    profile = broker.profile
    times = header.reconsume_times or 0
    times_max = header.max_reconsume_times
    if times_max is None:
        times_max = config.retry_max_times
    is_dead = times > times_max or (
        profile.dead_at_reconsume_times_max and times == times_max
    )
    if profile.dead_while_group_holds_locks and not is_dead:
        is_dead = broker.locks.is_held(group, request.now)
    if not is_dead:
        return fields
    return dead_letter(broker, fields, group, properties)


def dead_letter(
    broker: BrokerState, fields: MessageFields, group: str, properties: dict[str, str]
) -> MessageFields:
    """Move the message to the group's dead letter topic, which is created if needed.

    Changes `properties`.
    """
    topic = topic_names.DLQ_PREFIX + group
    broker.topics.create_in_send_back(topic, perm=broker.profile.dlq_perm)
    properties[delayed.DELAY] = "-1"
    return dataclasses.replace(fields, topic=topic, queue_id=0)


def _stored(
    broker: BrokerState,
    place: Appended,
    queue_id: int,
    properties: dict[str, str],
    *,
    batch_uniq_id: str | None = None,
) -> Reply:
    transaction_id = None
    if broker.profile.adds_unique_key_and_region:
        transaction_id = properties.get(UNIQ_KEY)
    return Reply(
        header=send.SendMessageResponseHeader(
            msg_id=encode_offset_msg_id(
                broker.settings.address, place.commit_log_offset
            ),
            queue_id=queue_id,
            queue_offset=place.queue_offset,
            transaction_id=transaction_id,
            batch_uniq_id=batch_uniq_id,
            recall_handle=_recall_handle_of(broker, properties),
        ),
        ext_fields=ANSWER_FIELDS,
    )


def _recall_handle_of(broker: BrokerState, properties: dict[str, str]) -> str | None:
    """The recall handle of a timer message; None for any other message.

    Source: SendMessageProcessor.attachRecallHandle.
    """
    out_ms, topic = properties.get(delayed.TIMER_OUT_MS), properties.get(REAL_TOPIC, "")
    if out_ms is None or not topic or topic.startswith(topic_names.RETRY_PREFIX):
        return None
    return encode_recall_handle(
        RecallHandle(
            topic=topic,
            broker_name=broker.settings.broker_name,
            timestamp_ms=str(int(out_ms) + 1),  # due times are rounded down
            message_id=properties.get(UNIQ_KEY, ""),
        )
    )


def _send_batch(
    broker: BrokerState, request: BrokerRequest, header: SendHeader
) -> Reply:
    """Store a batch; the answer has all ids and the first message's offset."""
    config = need_topic(broker, request, header)
    queue_id = need_queue(broker, header, config)
    if header.topic.startswith(topic_names.RETRY_PREFIX):
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"batch request does not support retry group {header.topic}",
        )
    body = need_body(broker, request.command.body)
    outer = parse_properties(need_properties(broker, header.properties))
    _need_no_batch(broker, outer)
    if system_flag.transaction_type(header.sys_flag) or delayed.delay_level(outer) > 0:
        raise illegal_message(broker)
    spans, fault = split_batch(body)
    if fault:
        raise illegal_message(broker)
    if not spans:  # Java fails on the body that is null
        raise system_error("the batch has no messages")
    if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES and UNIQ_KEY in outer:
        fields = fields_of(broker, request, header, config, queue_id, body, outer)
        return _store_inner_batch(broker, fields, outer, len(spans), request.now)
    shared = fields_of(broker, request, header, config, queue_id, b"", {})
    messages = [_item(body, span, shared) for span in spans]
    places = put_or_refuse(broker, messages, request.now)
    return _batch_stored(broker, places, queue_id, outer.get(UNIQ_KEY))


def _store_inner_batch(
    broker: BrokerState,
    fields: MessageFields,
    properties: dict[str, str],
    count: int,
    now: Now,
) -> Reply:
    """Store a batch as one record, in a topic whose queues hold batches.

    Changes `properties`. The answer has one id, that of the record.
    Source: SendMessageProcessor.sendBatchMessage, BatchConsumeQueue.assignQueueOffset.
    """
    if count > MESSAGES_MAX:
        raise system_error(
            f'NumberFormatException: Value out of range. Value:"{count}" Radix:10'
        )
    bounds = broker.store.queue_bounds(fields.topic, fields.queue_id)
    add_own_properties(broker, properties)
    properties[INNER_NUM] = str(count)
    properties[INNER_BASE] = str(0 if bounds is None else bounds[1])
    fields = dataclasses.replace(
        fields,
        sys_flag=fields.sys_flag | system_flag.NEED_UNWRAP | system_flag.INNER_BATCH,
        properties=properties,
    )
    place = put_or_refuse(broker, [fields], now)[0]
    return _stored(
        broker,
        place,
        fields.queue_id,
        properties,
        batch_uniq_id=properties[UNIQ_KEY],
    )


def _need_no_batch(broker: BrokerState, properties: Mapping[str, str]) -> None:
    """Refuse a message that says it is an inner batch, which only a broker makes.

    Raises Refusal(13), from 5.0 on.
    Source: HookUtils.checkInnerBatch.
    """
    if INNER_NUM in properties and broker.profile.version >= V5_0_0:
        raise illegal_message(broker)


def _item(body: bytes, span: ItemSpan, shared: MessageFields) -> MessageFields:
    # Properties are stored byte for byte, as in RocketMQ.
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


def _batch_stored(
    broker: BrokerState, places: list[Appended], queue_id: int, unique_key: str | None
) -> Reply:
    # The ids differ only in their last 16 digits.
    host = encode_offset_msg_id(broker.settings.address, 0)[:-16]
    answers_key = broker.profile.adds_unique_key_and_region
    return Reply(
        header=send.SendMessageResponseHeader(
            msg_id=",".join(f"{host}{each.commit_log_offset:016X}" for each in places),
            queue_id=queue_id,
            queue_offset=places[0].queue_offset,
            transaction_id=unique_key if answers_key else None,
        ),
        ext_fields=ANSWER_FIELDS,
    )


def need_topic(
    broker: BrokerState, request: BrokerRequest, header: SendHeader
) -> TopicConfig:
    """Return the topic to send to; create an unknown one if that is allowed.

    Raises Refusal: 29 (1 before 5.x) for illegal names and queue ids, 16 (1 for TBW102
    in 4.6.0) for RocketMQ's own topics, 17 for an unknown topic that cannot be created,
    1 for numbers that do not fit in 32 bits, 13 for batches in a single record and for
    names that cannot be stored.
    """
    topic, profile = header.topic, broker.profile
    _need_int32(header)
    if header.sys_flag & system_flag.INNER_BATCH:
        raise illegal_message(broker)  # only the broker makes them
    config = broker.topics.get(topic)
    if profile.checks_topic_names and config is None:
        fault = topic_names.topic_name_fault(topic)
        if fault is not None:
            raise Refusal(profile.invalid_parameter_code, fault)
    if profile.forbids_system_topics and topic in topic_names.NOT_ALLOWED_SEND_TOPICS:
        raise no_permission(f"Sending message to topic[{topic}] is forbidden.")
    if profile.reserves_default_topic and topic == topic_names.DEFAULT_TOPIC:
        raise system_error(
            f"the topic[{topic}] is conflict with system reserved words."
        )
    if config is None:
        config = _created(broker, header)
    if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        raise Refusal(
            profile.invalid_parameter_code,
            f"request queueId[{header.queue_id}] is illegal, topic {topic} has "
            f"{config.write_queue_nums} queues, Producer: {request.peer.address}",
        )
    return config


def _created(broker: BrokerState, header: SendHeader) -> TopicConfig:
    topic = header.topic
    if file_name_fault(topic) is not None or len(topic.encode()) >= 128:
        raise illegal_message(broker)  # 4.6.0 does not check names
    config = broker.topics.create_in_send(
        topic, header.default_topic, header.default_topic_queue_nums
    )
    if config is None and topic.startswith(topic_names.RETRY_PREFIX):
        config = broker.topics.create_in_send_back(topic)
    if config is None:
        raise no_topic(f"topic[{topic}] not exist, apply first please!")
    return config


def need_queue(broker: BrokerState, header: SendHeader, config: TopicConfig) -> int:
    """Return the requested queue id, or the next one in turn if none is requested.

    Raises Refusal(1) if none is requested and the topic has no queues.
    """
    if header.queue_id >= 0:
        return header.queue_id
    if config.write_queue_nums <= 0:
        raise system_error("ArithmeticException: / by zero")
    return broker.topics.pick_queue(config.topic_name, config.write_queue_nums)


def need_body(broker: BrokerState, body: bytes) -> bytes:
    """Return the body. Raises Refusal: 1 if it is empty (5.x), 13 if too large."""
    if not body and broker.profile.refuses_empty_body:
        raise system_error("NullPointerException: the message has no body")
    if len(body) > broker.settings.max_message_size:
        raise illegal_message(broker)
    return body


def need_properties(
    broker: BrokerState, text: str | None, *, room_bytes: int = 0
) -> str:
    """Return the properties as sent, if they and `room_bytes` more can be stored.

    Otherwise raises Refusal(13).
    """
    if not text:
        return ""
    if len(text) * _UTF8_BYTES_MAX + room_bytes <= PROPERTIES_BYTES_MAX:
        if text.isascii() or _is_encodable(text):
            return text
    elif (
        _is_encodable(text) and len(text.encode()) + room_bytes <= PROPERTIES_BYTES_MAX
    ):
        return text
    raise illegal_message(broker)


def illegal_message(broker: BrokerState) -> Refusal:
    """The answer (13) to a message that can never be stored."""
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {broker.settings.max_message_size}B, "
        "msg properties length limit 32KB.",
    )


def not_stored(error: StoreError) -> Refusal:
    """The answer to an error of the store: 14 if it is full, else 1."""
    if isinstance(error, StoreFullError):
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following "
            f"reasons: the broker's disk is full [{error.message}], messages are put "
            "to the slave, message store has been shut down, etc.",
        )
    return system_error(error.message)


def _need_int32(header: SendHeader) -> None:
    """Refuse numbers that do not fit in Java's `int`. Raises Refusal(1)."""
    for value in (
        header.queue_id,
        header.sys_flag,
        header.flag,
        header.default_topic_queue_nums,
        header.reconsume_times or 0,
        header.max_reconsume_times or 0,
    ):
        if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
            raise system_error(f'NumberFormatException: For input string: "{value}"')


def _is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode the text: JSON may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
