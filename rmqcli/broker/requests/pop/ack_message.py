"""Acknowledging messages received by POP: 200051 and 200151 (5.0, 5.1.3).

Imitated: the checks in RocketMQ's order; acknowledging a handle without an outstanding
message (acknowledged before, expired, of another broker) succeeds without effect;
orderly acknowledgements move the offset and free the queue.
Not imitated: that a broker refuses a batch with lite topics.

Source: `AckMessageProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, system_error
from rmqcli.broker.requests.pop.lite import ack_lite
from rmqcli.broker.requests.pull_message import illegal_queue, known_topic
from rmqcli.broker.state.check_points import Key
from rmqcli.errors import HeaderError
from rmqcli.wire import receipt_handle
from rmqcli.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.pop import AckMessageRequestHeader
from rmqcli.wire.version import V5_0_0, V5_1_3

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now


@handles(RequestCode.ACK_MESSAGE, since=V5_0_0)
def ack_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Acknowledge one message (200051)."""
    header = request.header(AckMessageRequestHeader)
    low, high = check_queue(broker, request, header.topic, header.queue_id)
    if (header.lite_topic or "").strip():
        return ack_lite(broker, header, read_handle(header.extra_info), request.now)
    if not low <= header.offset <= high:
        raise Refusal(
            ResponseCode.NO_MESSAGE,
            f"offset is illegal, key:{header.topic}@{header.queue_id}, "
            f"commit:{header.offset}, store:{low}~{high}",
        )
    handle = read_handle(header.extra_info)
    queue = header.topic, header.consumer_group, header.queue_id
    pop_time_ms, now = handle.pop_time_ms, request.now
    if handle.is_order:
        _ack_in_order(broker, queue, header.offset, pop_time_ms, now)
    else:
        key = Key(*queue, handle.start_offset, pop_time_ms, handle.broker_name)
        broker.check_points.ack(key, [header.offset], now)
    return Reply()


@handles(RequestCode.BATCH_ACK_MESSAGE, since=V5_1_3)
def batch_ack_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Acknowledge messages of several batches (200151).

    Offsets outside a queue are ignored.
    """
    if not request.command.body:
        return Reply(ResponseCode.NO_MESSAGE)
    body = request.body(BatchAckMessageRequestBody)
    if not body.acks:
        return Reply(ResponseCode.NO_MESSAGE)
    for ack in body.acks:
        _ack_batch(broker, ack, body.broker_name or "", request.now)
    return Reply()


def _ack_batch(broker: BrokerState, ack: BatchAck, name: str, now: Now) -> None:
    group = ack.consumer_group or ""
    topic = _real_topic(ack)
    low, high = broker.store.queue_bounds(topic, ack.queue_id) or (0, 0)
    offsets = sorted(
        ack.start_offset + at
        for at in ack.bit_set or ()
        if low <= ack.start_offset + at <= high
    )
    queue = (topic, group, ack.queue_id)
    if ack.revive_queue_id == receipt_handle.ORDER_REVIVE_QUEUE_ID:
        for offset in offsets:
            _ack_in_order(broker, queue, offset, ack.pop_time, now)
        return
    key = Key(*queue, ack.start_offset, ack.pop_time, name)
    broker.check_points.ack(key, offsets, now)


def _real_topic(ack: BatchAck) -> str:
    topic, group = ack.topic or "", ack.consumer_group or ""
    if ack.retry == receipt_handle.NORMAL_TOPIC:
        return topic
    if ack.retry not in (receipt_handle.RETRY_TOPIC_V1, receipt_handle.RETRY_TOPIC_V2):
        raise system_error(
            "java.lang.IllegalArgumentException: getRetry fail, format is wrong"
        )
    return receipt_handle.pop_retry_topic(
        topic, group, v2=ack.retry == receipt_handle.RETRY_TOPIC_V2
    )


def check_queue(
    broker: BrokerState, request: BrokerRequest, topic: str, queue_id: int
) -> tuple[int, int]:
    """Return the queue's bounds. Raises Refusal: 17 and 13."""
    config = known_topic(broker, topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise illegal_queue(
            ResponseCode.MESSAGE_ILLEGAL, request, config, topic, queue_id
        )
    return broker.store.queue_bounds(topic, queue_id) or (0, 0)


def read_handle(text: str) -> receipt_handle.ReceiptHandle:
    """Decode a handle. Raises Refusal(1), as a Java broker answers its exception."""
    try:
        return receipt_handle.decode_receipt_handle(text)
    except HeaderError as error:
        raise system_error(error.message) from error


def _ack_in_order(
    broker: BrokerState,
    key: tuple[str, str, int],
    offset: int,
    pop_time_ms: int,
    now: Now,
) -> None:
    """Acknowledge a message of orderly POP; commit the offset that follows from it.

    Source: AckMessageProcessor.ackOrderly.
    """
    topic, group, queue_id = key
    committed = broker.offsets.query(group, topic, queue_id)
    if committed is not None and offset < committed:
        return
    following = broker.order_infos.ack(key, offset, pop_time_ms, now)
    if following is None:
        return
    if not broker.offsets.has_pending_reset(group, topic, queue_id):
        broker.offsets.commit(group, topic, queue_id, following)
    if not broker.order_infos.is_blocked(key, now):
        broker.wake_pops(topic, group, queue_id, now)
