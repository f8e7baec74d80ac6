"""Converts gRPC messages to properties of stored messages, and stored messages to gRPC.

Bodies are passed on as they are stored; the encoding GZIP means any compression. Limits
are those of RocketMQ's proxy.

Source: `SendMessageActivity.buildMessage` and `GrpcConverter` in apache/rocketmq.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.delayed import (
    DELAY,
    DELAY_MS,
    DELAY_SEC,
    DELIVER_MS,
    is_delayed,
)
from rmqcli.broker.proxy.checks import (
    check_lite_topic,
    check_text,
    duration_ms,
    has_control_characters,
    timestamp_ms,
)
from rmqcli.broker.proxy.status import ProxyError, internal_error
from rmqcli.broker.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rmqcli.units import read_count
from rmqcli.wire.message.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    LITE_TOPIC,
    POP_CK,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
)
from rmqcli.wire.message.system_flag import COMPRESSED, TRANSACTION_PREPARED
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.wire.message.record import StoredMessage

BODY_BYTES_MAX: Final = 4 * 1024 * 1024  # maxMessageSize
_USER_PROPERTIES_MAX: Final = 128  # userPropertyMaxNum
_USER_PROPERTIES_BYTES_MAX: Final = 16 * 1024  # maxUserPropertySize
_MESSAGE_GROUP_BYTES_MAX: Final = 64  # maxMessageGroupSize
_DELAY_MS_MAX: Final = 24 * 3600 * 1000  # maxDelayTimeMills
_RECOVERY_SECONDS_MAX: Final = 3600  # maxTransactionRecoverySecond

PRODUCER_GROUP: Final = "PGROUP"
LITE: Final = "LITE"
_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_RECONSUME_TIME: Final = "RECONSUME_TIME"
_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_BORN_HOST: Final = "__BORNHOST"
_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
_DLQ_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
_DLQ_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

#: MessageConst.STRING_HASH_SET: properties that users can neither set nor see.
SYSTEM_PROPERTIES: Final = frozenset(
    (
        *(KEYS, TAGS, UNIQ_KEY, TRAN_MSG, PRODUCER_GROUP, POP_CK, DELAY, DELIVER_MS),
        *(DELAY_SEC, DELAY_MS, _RECONSUME_TIME, _BORN_HOST, _BORN_TIMESTAMP),
        *(_DLQ_TOPIC, _DLQ_MESSAGE_ID, "TRACE_ON", "MSG_REGION", "WAIT", "RETRY_TOPIC"),
        *("REAL_TOPIC", "REAL_QID", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID"),
        *("ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
        *("MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK_OFFSET", "1ST_POP_TIME"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID"),
        *("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("CLUSTER", "MSG_TYPE", INNER_MULTI_QUEUE_OFFSET, "TIMER_ENQUEUE_MS"),
        *("TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"),
        *("TIMER_DELAY_LEVEL", "__CRC32#", "ORIGIN_GROUP", PRIORITY, LITE_TOPIC),
    )
)


def sys_flag_of(message: pb.Message) -> int:
    """Return the system flag of a message to send."""
    system = message.system_properties
    flag = COMPRESSED if system.body_encoding == pb.Encoding.GZIP else 0
    if system.message_type == pb.MessageType.TRANSACTION:
        flag |= TRANSACTION_PREPARED
    return flag


def properties_of(message: pb.Message, caller: Caller, now_ms: int) -> dict[str, str]:
    """Check a message to send, and return its properties.

    Raises ProxyError; the checks are made in RocketMQ's order.
    """
    _check_body(message.body)
    system = message.system_properties
    properties = dict(message.user_properties)
    size = _check_user_properties(properties)
    check_text(system.tag, pb.Code.ILLEGAL_MESSAGE_TAG, "tag")
    if "|" in system.tag:
        raise ProxyError(pb.Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if system.tag:
        properties[TAGS] = system.tag
        size += len(system.tag.encode())
    for key in system.keys:
        check_text(key, pb.Code.ILLEGAL_MESSAGE_KEY, "key")
        size += len(key.encode())
    if system.keys:
        properties[KEYS] = " ".join(system.keys)
    if size > _USER_PROPERTIES_BYTES_MAX:
        raise ProxyError(
            pb.Code.MESSAGE_PROPERTIES_TOO_LARGE,
            "the total size of user property is too large, max is "
            f"{_USER_PROPERTIES_BYTES_MAX}",
        )
    if not system.message_id.strip():
        raise ProxyError(pb.Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    properties[UNIQ_KEY] = system.message_id
    _add_type(properties, message, now_ms)
    properties[_RECONSUME_TIME] = str(system.delivery_attempt)
    # The topic is the producer group, to which transaction checks are sent.
    properties[PRODUCER_GROUP] = message.topic.name
    _add_message_group(properties, system.message_group)
    if system.lite_topic:
        check_lite_topic(system.lite_topic)
        properties[LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        properties[_TRACE_CONTEXT] = system.trace_context
    properties[_BORN_HOST] = system.born_host.strip() or caller.address
    born_ms = timestamp_ms(system.born_timestamp)
    if born_ms is not None:
        properties[_BORN_TIMESTAMP] = str(born_ms)
    return properties


def _check_body(body: bytes) -> None:
    if not body:
        raise ProxyError(pb.Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > BODY_BYTES_MAX:
        raise ProxyError(
            pb.Code.MESSAGE_BODY_TOO_LARGE,
            f"message body cannot exceed the max {BODY_BYTES_MAX}",
        )


def _check_user_properties(properties: Mapping[str, str]) -> int:
    """Check user properties; return their size in bytes. Raises ProxyError."""
    if len(properties) > _USER_PROPERTIES_MAX:
        raise ProxyError(
            pb.Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {_USER_PROPERTIES_MAX}",
        )
    size = 0
    for name, value in properties.items():
        fault = None
        if name in SYSTEM_PROPERTIES:
            fault = f"property is used by system: {name}"
        elif has_control_characters(name):
            fault = "the key of property cannot contain control character"
        elif has_control_characters(value):
            fault = "the value of property cannot contain control character"
        if fault is not None:
            raise ProxyError(pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY, fault)
        size += len(name.encode()) + len(value.encode())
    return size


def _add_type(properties: dict[str, str], message: pb.Message, now_ms: int) -> None:
    """Add the properties of a transactional, prioritized or delayed message."""
    system = message.system_properties
    if system.message_type == pb.MessageType.TRANSACTION:
        properties[TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            duration = system.orphaned_transaction_recovery_duration
            seconds = int(duration_ms(duration) / 1000)
            if seconds > _RECOVERY_SECONDS_MAX:
                raise ProxyError(
                    pb.Code.BAD_REQUEST,
                    "the max transaction recovery time of message is too large, max is "
                    f"{_RECOVERY_SECONDS_MAX}",
                )
            properties[_IMMUNITY] = str(seconds)
    if system.HasField("priority"):
        if system.priority < 0:
            raise internal_error("The priority must be greater than or equal to 0")
        properties[PRIORITY] = str(system.priority)
    if system.HasField("delivery_timestamp"):
        due_ms = timestamp_ms(system.delivery_timestamp)
        if due_ms is None:
            raise internal_error("Timestamp is not valid")
        if due_ms - now_ms > _DELAY_MS_MAX:
            raise ProxyError(
                pb.Code.ILLEGAL_DELIVERY_TIME,
                f"the max delay time of message is too large, max is {_DELAY_MS_MAX}",
            )
        properties[DELIVER_MS] = str(due_ms)


def _add_message_group(properties: dict[str, str], message_group: str) -> None:
    if not message_group:
        return
    code = pb.Code.ILLEGAL_MESSAGE_GROUP
    if len(message_group.encode()) >= _MESSAGE_GROUP_BYTES_MAX:
        raise ProxyError(
            code, f"message group exceed the max size {_MESSAGE_GROUP_BYTES_MAX}"
        )
    check_text(message_group, code, "message group")
    properties[SHARDING_KEY] = message_group


def kind_of(properties: Mapping[str, str]) -> str:
    """Return the type of a message by its properties, as a value of message.type.

    Source: TopicMessageType.parseFromMessageProperty.
    """
    if properties.get(TRAN_MSG) == "true":
        return "TRANSACTION"
    if is_delayed(properties):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    if PRIORITY in properties:
        return "PRIORITY"
    return LITE if LITE_TOPIC in properties else "NORMAL"


def grpc_message(
    stored: StoredMessage,
    *,
    topic: str,
    handle: str | None = None,
    attempt: int | None = None,
    queue_offset: int | None = None,
) -> pb.Message:
    """Return a stored message as clients get it, with the topic that they requested.

    Without `attempt` and `queue_offset`, they are those of the record.
    """
    properties = stored.properties
    body = stored.raw_body
    is_compressed = stored.sys_flag & COMPRESSED
    system = pb.SystemProperties(
        tag=properties.get(TAGS),
        keys=properties[KEYS].split(" ") if KEYS in properties else (),
        message_id=properties.get(UNIQ_KEY) or stored.offset_msg_id,
        body_digest=_digest(body),
        body_encoding=pb.Encoding.GZIP if is_compressed else pb.Encoding.IDENTITY,
        message_type=kind_of(properties),
        born_host=properties.get(_BORN_HOST) or stored.born_host,
        store_host=stored.store_host,
        receipt_handle=handle,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset if queue_offset is None else queue_offset,
        delivery_attempt=stored.reconsume_times + 1 if attempt is None else attempt,
        message_group=properties.get(SHARDING_KEY),
        trace_context=properties.get(_TRACE_CONTEXT),
    )
    system.born_timestamp.FromMilliseconds(_epoch_ms(stored.born_timestamp_ms))
    system.store_timestamp.FromMilliseconds(_epoch_ms(stored.store_timestamp_ms))
    due_ms = read_count(properties.get(DELIVER_MS))
    if due_ms is not None:
        system.delivery_timestamp.FromMilliseconds(_epoch_ms(due_ms))
    if LITE_TOPIC in properties:
        system.lite_topic = properties[LITE_TOPIC]
    priority = read_count(properties.get(PRIORITY))
    if priority is not None and priority < 2**31:
        system.priority = priority
    if _DLQ_TOPIC in properties and _DLQ_MESSAGE_ID in properties:
        system.dead_letter_queue.CopyFrom(
            pb.DeadLetterQueue(
                topic=properties[_DLQ_TOPIC], message_id=properties[_DLQ_MESSAGE_ID]
            )
        )
    users = {k: v for k, v in properties.items() if k not in SYSTEM_PROPERTIES}
    return pb.Message(
        topic=_resource_of(topic),
        user_properties=users,
        system_properties=system,
        body=body,
    )


def made_up_message(
    topic: str, body: bytes, tag: str | None, now_ms: int
) -> pb.Message:
    """Return a message that was never stored, for a consumer to consume as a test."""
    system = pb.SystemProperties(
        tag=tag,
        message_id=f"01{now_ms & 0xFFFFFFFFFFFF:032X}",
        body_digest=_digest(body),
        body_encoding=pb.Encoding.IDENTITY,
        message_type=pb.MessageType.NORMAL,
        delivery_attempt=1,
    )
    system.born_timestamp.FromMilliseconds(now_ms)
    system.store_timestamp.FromMilliseconds(now_ms)
    return pb.Message(topic=_resource_of(topic), system_properties=system, body=body)


def _resource_of(topic: str) -> pb.Resource:
    """Return a message's topic with the namespace, which requests do not have.

    Source: GrpcConverter.buildResource, NamespaceUtil.
    """
    prefix = next((p for p in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(p)), "")
    namespace, separator, name = topic.removeprefix(prefix).partition("%")
    if not namespace or not separator:
        return pb.Resource(name=topic)
    return pb.Resource(resource_namespace=namespace, name=prefix + name)


def _digest(body: bytes) -> pb.Digest:
    checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    return pb.Digest(type=pb.DigestType.MD5, checksum=checksum)


def _epoch_ms(value: int) -> int:
    """Limit a stored time, which may be any number, to the range of a timestamp."""
    return min(max(value, -62_135_596_800_000), 253_402_300_799_999)
