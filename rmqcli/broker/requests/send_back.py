"""Messages that a consumer sends back because it could not consume them: 36.

Imitated: the retry topic; the growing delay; the dead letter queue; the properties that
name the message's origin; the refusal of messages of inner batches.
Not imitated: retry policies of a group; POP.

Source: `AbstractSendMessageProcessor.consumerSendMsgBack` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.copy import copy_fields, look_message
from rmqcli.broker.message.delayed import DELAY
from rmqcli.broker.request import Reply, no_group, no_permission, system_error
from rmqcli.broker.requests.send_message import WAIT
from rmqcli.broker.state.topics import PERM_WRITE
from rmqcli.broker.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rmqcli.store.message_store import StoreError, StoreFullError
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.message.record import InnerMessage, StoredMessage

if TYPE_CHECKING:
    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

_FIRST_LEVEL: Final = 3
_INT32_MAX: Final = (1 << 31) - 1


@handles(RequestCode.CONSUMER_SEND_MSG_BACK)
def send_back(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Store a copy for the group's retry topic or dead letter queue (36)."""
    header = request.header(ConsumerSendMsgBackRequestHeader)
    config = broker.groups.find_or_create(header.group)
    if config is None:
        raise no_group(f"subscription group not exist, {header.group}")
    if config.retry_queue_nums <= 0:
        return Reply()  # the message is silently lost, as in RocketMQ
    retry_topic = RETRY_PREFIX + header.group
    _need_writable(broker, retry_topic, queue_nums=config.retry_queue_nums)
    message = look_message(broker.store, header.offset)
    if message is None:
        raise system_error(f"look message by offset failed, {header.offset}")
    level = max(-1, min(header.delay_level, _INT32_MAX))
    times_max = header.max_reconsume_times
    if times_max is None:
        times_max = config.retry_max_times
    if level < 0 or message.reconsume_times >= times_max:
        topic, queue_id, level = DLQ_PREFIX + header.group, 0, 0
        _need_writable(broker, topic, perm=broker.profile.dlq_perm)
    else:
        topic = retry_topic
        queue_id = broker.topics.pick_queue(topic, config.retry_queue_nums)
        level = level or _FIRST_LEVEL + message.reconsume_times
    _put_copy(broker, request, message, topic=topic, queue_id=queue_id, level=level)
    return Reply()


def _need_writable(
    broker: BrokerState, topic: str, *, queue_nums: int = 1, perm: int = 6
) -> None:
    """Create the topic if it is unknown. Raises Refusal(16) if it is not writable."""
    found = broker.topics.create_in_send_back(topic, queue_nums=queue_nums, perm=perm)
    if not found.perm & PERM_WRITE:
        raise no_permission(f"the topic[{topic}] sending message is forbidden")


def _put_copy(
    broker: BrokerState,
    request: BrokerRequest,
    message: StoredMessage,
    *,
    topic: str,
    queue_id: int,
    level: int,
) -> None:
    if isinstance(message, InnerMessage):
        # The request names the record only. Consumers then send the message themselves.
        raise system_error("MESSAGE_ILLEGAL")
    if not message.raw_body and broker.profile.refuses_empty_body:
        raise system_error("MESSAGE_ILLEGAL")
    properties = dict(message.properties)
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties[WAIT] = "false"
    properties[DELAY] = str(level)
    if level > 0 or broker.profile.marks_dead_letters:
        properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_msg_id)
    else:
        del properties[DELAY]
    fields = copy_fields(
        broker,
        message,
        request.now,
        topic=topic,
        queue_id=queue_id,
        properties=properties,
        reconsume_times=min(message.reconsume_times + 1, _INT32_MAX),
    )
    try:
        fields = broker.delays.redirected(fields, properties, request.now)
        broker.writer.put([fields], request.now)
    except StoreFullError as error:
        raise system_error("SERVICE_NOT_AVAILABLE") from error
    except (StoreError, ValueError) as error:
        # With the properties added here, the message's properties exceed 32 KiB.
        raise system_error("MESSAGE_ILLEGAL") from error
