"""What every send goes through first: name, permission, topic, queue, size.

Imitated: order and codes of RocketMQ's checks, by version. As with RocketMQ a topic's
write permission is not looked at. Not imitated: static topics, compaction, ACL.

Source: `AbstractSendMessageProcessor.msgCheck`, `HookUtils.checkBeforePutMessage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import Refusal
from rmqcli.broker.state.topics import (
    DEFAULT_TOPIC,
    NOT_ALLOWED_SEND_TOPICS,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    topic_name_fault,
)
from rmqcli.files import file_name_fault
from rmqcli.store.message_store import StoreFullError
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.properties import PROPERTIES_BYTES_MAX
from rmqcli.wire.message.system_flag import INNER_BATCH

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Request
    from rmqcli.store.message_store import StoreError
    from rmqcli.wire.bodies.config import TopicConfig
    from rmqcli.wire.headers.send import (
        SendMessageRequestHeader,
        SendMessageRequestHeaderV2,
    )

    SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

_INT32_MAX: Final = (1 << 31) - 1
_UTF8_BYTES_MAX: Final = 4  # of one character


def need_topic(broker: Broker, request: Request, header: SendHeader) -> TopicConfig:
    """The topic to send to, created where that is allowed.

    Raises Refusal: 29 (1 before 5.x) for names and queue ids that cannot be, 16 for
    RocketMQ's own topics, 17 for an unknown topic that cannot be created.
    """
    topic, manners = header.topic, broker.manners
    _need_int32(header)
    if header.sys_flag & INNER_BATCH:
        raise illegal_message(broker)  # only for topics whose queues hold batches
    config = broker.topics.get(topic)
    if manners.checks_topic_names and config is None:
        fault = topic_name_fault(topic)
        if fault is not None:
            raise Refusal(manners.invalid_parameter_code, fault)
    if manners.forbids_system_topics and topic in NOT_ALLOWED_SEND_TOPICS:
        raise Refusal(
            ResponseCode.NO_PERMISSION,
            f"Sending message to topic[{topic}] is forbidden.",
        )
    if manners.reserves_default_topic and topic == DEFAULT_TOPIC:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the topic[{topic}] is conflict with system reserved words.",
        )
    if config is None:
        config = _created(broker, header)
    if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        raise Refusal(
            manners.invalid_parameter_code,
            f"request queueId[{header.queue_id}] is illegal, topic {topic} has "
            f"{config.write_queue_nums} queues, Producer: {request.peer.address}",
        )
    return config


def _created(broker: Broker, header: SendHeader) -> TopicConfig:
    topic = header.topic
    if not _is_writable(topic):
        raise illegal_message(broker)  # only names of 4.6.0, which looks at none
    config = broker.topics.create_in_send(
        topic, header.default_topic, header.default_topic_queue_nums
    )
    if config is None and topic.startswith(RETRY_PREFIX):
        config = broker.topics.create_in_send_back(
            topic, queue_nums=1, perm=PERM_READ | PERM_WRITE
        )
    if config is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please!",
        )
    return config


def need_queue(broker: Broker, header: SendHeader, config: TopicConfig) -> int:
    """The queue that is asked for, or one in turn. Raises Refusal(1) without any."""
    if header.queue_id >= 0:
        return header.queue_id
    if config.write_queue_nums <= 0:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "ArithmeticException: / by zero")
    return broker.topics.pick_queue(config.topic_name, config.write_queue_nums)


def need_body(broker: Broker, body: bytes) -> bytes:
    """The body, when it may be stored. Raises Refusal 1 (none) or 13 (too large)."""
    if not body and broker.manners.refuses_empty_body:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, "NullPointerException: the message has no body"
        )
    if len(body) > broker.settings.max_message_size:
        raise illegal_message(broker)
    return body


def need_properties(broker: Broker, text: str | None, *, room_bytes: int = 0) -> str:
    """Properties as sent, when they and `room_bytes` more can be stored.

    Raises Refusal(13).
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


def illegal_message(broker: Broker) -> Refusal:
    """The answer (13) to a message that cannot be stored whatever is done."""
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {broker.settings.max_message_size}B, "
        "msg properties length limit 32KB.",
    )


def not_stored(error: StoreError) -> Refusal:
    """The answer when the store refuses: 14 for a full disk, else 1."""
    if isinstance(error, StoreFullError):
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following "
            f"reasons: the broker's disk is full [{error.message}], messages are put "
            "to the slave, message store has been shut down, etc.",
        )
    return Refusal(ResponseCode.SYSTEM_ERROR, error.message)


def _need_int32(header: SendHeader) -> None:
    """Refuse numbers that Java reads as `int` and that are none, as it does."""
    for value in (
        header.queue_id,
        header.sys_flag,
        header.flag,
        header.default_topic_queue_nums,
        header.reconsume_times or 0,
        header.max_reconsume_times or 0,
    ):
        if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f'NumberFormatException: For input string: "{value}"',
            )


def _is_writable(topic: str) -> bool:
    return file_name_fault(topic) is None and len(topic.encode()) < 128


def _is_encodable(text: str) -> bool:
    """Whether it has no lone surrogates, which JSON can carry and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
