"""Consuming lite topics: 200070 receives, 200071 subscribes (5.5).

Imitated: the checks in RocketMQ's order, with code and remark; one request reads the
lite topics that its client subscribes, in order and in turn; long polling. The answer
has no delivery counts where RocketMQ's cannot be read: when a lite topic's batch has
messages that were delivered before beside others.
Not imitated: 200074 to 200079, by which administrators look at lite topics.

Source: `PopLiteMessageProcessor`, `LiteSubscriptionCtlProcessor`,
`AckMessageProcessor.ackLite`,
`ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.attributes import MESSAGE_TYPE
from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.get import GetStatus, get_message
from rmqcli.broker.request import Refusal, Reply, no_group, no_permission, no_topic
from rmqcli.broker.requests.pop import pop_message
from rmqcli.broker.requests.pull_message import see
from rmqcli.broker.state.pop_holds import ANY_QUEUE
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.wire.bodies.lite import (
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
)
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import pop
from rmqcli.wire.message.properties import lmq_name
from rmqcli.wire.receipt_handle import ORDER_REVIVE_QUEUE_ID, ReceiptHandle
from rmqcli.wire.version import V5_5_0

if TYPE_CHECKING:
    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.broker.state.order_info import OrderInfos, QueueKey
    from rmqcli.clock import Now

_INT64_MAX: Final = (1 << 63) - 1


@handles(RequestCode.LITE_SUBSCRIPTION_CTL, since=V5_5_0)
def lite_subscription_ctl(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Change the lite topics that clients subscribe (200071)."""
    if not request.command.body:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
    body = request.body(LiteSubscriptionCtlRequestBody)
    if not body.subscription_set:
        raise Refusal(
            ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty."
        )
    for change in body.subscription_set:
        _subscribe(broker, request, change)
    return Reply()


def _subscribe(
    broker: BrokerState, request: BrokerRequest, change: LiteSubscriptionDTO
) -> None:
    client_id, group = change.client_id or "", change.group or ""
    topic, lite_topics = change.topic or "", change.lite_topic_set or []
    if not (client_id.strip() and group.strip() and topic.strip()):
        return
    if change.action in (PARTIAL_ADD, COMPLETE_ADD):
        config = broker.groups.get(group)
        if config is None or not config.consume_enable:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                "java.lang.IllegalStateException: Consumer group is not allowed to"
                " consume.",
            )
    lite, peer, now = broker.lite, request.peer, request.now
    if change.action == PARTIAL_ADD:
        option = change.offset_option
        lite.add(
            client_id, group, topic, lite_topics, option=option, peer=peer, now=now
        )
    elif change.action == COMPLETE_ADD:
        lite.replace(client_id, group, topic, lite_topics, peer=peer, now=now)
    elif change.action == PARTIAL_REMOVE:
        lite.remove(client_id, group, topic, lite_topics)
    elif change.action == COMPLETE_REMOVE:
        lite.forget(client_id, now)


@handles(RequestCode.POP_LITE_MESSAGE, since=V5_5_0)
def pop_lite_message(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Answer with messages; hold the request if there are none (200070)."""
    now = request.now
    header = pop_message.with_born_time(request, now).header(
        pop.PopLiteMessageRequestHeader
    )
    return _pop(broker, request, header, now)


def _pop(
    broker: BrokerState,
    request: BrokerRequest,
    header: pop.PopLiteMessageRequestHeader,
    now: Now,
) -> Reply | None:
    _check(broker, header, now)
    client_id, group = header.client_id, header.consumer_group
    bodies: list[bytes] = []
    counts: list[int] = []
    wanted = header.max_msg_num
    for lmq in broker.lite.ready(client_id, group):
        if wanted <= 0:
            break
        room_bytes = pop_message.ANSWER_BYTES_MAX - sum(map(len, bodies))
        count, body, times = _pop_lmq(
            broker, header, lmq, wanted, room_bytes=room_bytes, now=now
        )
        if count:
            wanted -= count
            bodies.append(body)
            counts += times
            broker.lite.was_read(client_id, lmq)
    code, remark = ResponseCode.SUCCESS, GetStatus.FOUND
    if not bodies:
        remark = GetStatus.NO_MESSAGE_IN_QUEUE
        refused = broker.lite.holds.hold(
            (client_id, group, ANY_QUEUE),
            request,
            born_time=header.born_time,
            poll_time=header.poll_time,
            now=now,
            again=lambda later: _pop(broker, request, header, later),
        )
        if refused is None:
            return None
        code = refused
    body = b"".join(bodies)
    broker.stats.got(header.topic, group, body, now)
    answer = pop.PopLiteMessageResponseHeader(
        pop_time=now.epoch_ms,
        invisible_time=header.invisible_time,
        revive_qid=ORDER_REVIVE_QUEUE_ID,
        order_count_info=";".join(map(str, counts)),
    )
    return Reply(code, remark, answer, body=body)


def _check(
    broker: BrokerState, header: pop.PopLiteMessageRequestHeader, now: Now
) -> None:
    """Raise Refusal for a request that cannot be served.

    Source: PopLiteMessageProcessor.preCheck.
    """
    topic, group = header.topic, header.consumer_group
    invalid = ResponseCode.INVALID_PARAMETER
    pop_message.check_bounds(
        broker, header.born_time + header.poll_time, header.max_msg_num, now=now
    )
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"topic [{topic}] not exist, apply first please! {see(broker)}")
    if not config.perm & PERM_READ:
        raise no_permission(f"the topic [{topic}] peeking message is forbidden")
    if config.attributes.get(MESSAGE_TYPE) != "LITE":
        raise Refusal(invalid, f"the topic [{topic}] message type not match")
    found = broker.groups.get(group)
    if found is None:
        raise no_group(f"subscription group [{group}] not exist, {see(broker)}")
    if not found.consume_enable:
        raise no_permission(f"subscription group no permission, {group}")
    if broker.lite.bound_topic(group) != topic:
        raise Refusal(invalid, f"subscription bind topic not match, {group}")
    pop_message.check_attempt_id(header.attempt_id)


def _pop_lmq(
    broker: BrokerState,
    header: pop.PopLiteMessageRequestHeader,
    lmq: str,
    wanted: int,
    *,
    room_bytes: int,
    now: Now,
) -> tuple[int, bytes, list[int]]:
    """Deliver the next batch of one lite topic, unless another one is outstanding.

    Returns the number of messages, their records and how often they were delivered.
    """
    orders, group = broker.lite.orders, header.consumer_group
    key = (lmq, group, 0)
    offset = pop_message.pop_offset(broker, orders, lmq, group, 0)
    attempt_id, invisible_ms = header.attempt_id, header.invisible_time
    if orders.is_blocked(key, now, attempt_id=attempt_id, invisible_ms=invisible_ms):
        return 0, b"", []
    result = get_message(broker, lmq, 0, offset=offset, max_msg_nums=wanted)
    if result.status in (*pop_message.WRONG_OFFSET, *pop_message.PASSED):
        offset = result.next_begin_offset
        broker.offsets.commit(group, lmq, 0, offset)
        result = get_message(broker, lmq, 0, offset=offset, max_msg_nums=wanted)
    if result.status != GetStatus.FOUND or len(result.body) > room_bytes:
        return 0, b"", []
    offsets = range(offset, result.next_begin_offset)
    counts = orders.give_out(
        key, offsets, attempt_id=attempt_id, invisible_ms=invisible_ms, now=now
    )
    if len(counts) == 1:  # of all messages
        times = [counts[0][1]] * len(offsets)
    else:
        times = [count for _, count in counts[:-1]]
    return len(offsets), result.body, times


def ack_lite(
    broker: BrokerState,
    header: pop.AckMessageRequestHeader,
    handle: ReceiptHandle,
    now: Now,
) -> Reply:
    """Acknowledge a message of a lite topic; commit the offset that follows from it."""
    group, topic = header.consumer_group, header.topic
    if broker.lite.bound_topic(group) != topic:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, "group type or bind topic not match."
        )
    lmq = lmq_name(topic, header.lite_topic or "")
    _, end = broker.store.queue_bounds(lmq, 0) or (0, 0)
    if header.offset > end:
        raise Refusal(ResponseCode.NO_MESSAGE, "ack offset illegal.")
    if header.queue_id != 0 or not handle.is_order:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
    orders, offsets, key = broker.lite.orders, broker.offsets, (lmq, group, 0)
    committed = offsets.query(group, lmq, 0)
    if committed is not None and header.offset < committed:
        return Reply()
    following = orders.ack(key, header.offset, handle.pop_time_ms, now)
    if following is None:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
    if not offsets.has_pending_reset(group, lmq, 0):
        offsets.commit(group, lmq, 0, following)
    # A client that is woken in vain would lose its turn.
    has_more = (offsets.query(group, lmq, 0) or 0) < end
    if has_more and not orders.is_blocked(key, now):
        broker.lite.wake(lmq, group, now)
    return Reply()


def change_lite(
    broker: BrokerState,
    header: pop.ChangeInvisibleTimeRequestHeader,
    handle: ReceiptHandle,
    now: Now,
) -> Reply:
    """Change when a message of a lite topic, or its suspended batch, is visible."""
    group = header.consumer_group
    lmq = lmq_name(header.topic, header.lite_topic or "")
    if header.offset > (broker.store.queue_bounds(lmq, 0) or (0, 0))[1]:
        raise Refusal(ResponseCode.NO_MESSAGE, "")
    orders, key = broker.lite.orders, (lmq, group, 0)
    return change_in_order(
        broker, orders, key, header, handle, now, is_suspended=header.suspend
    )


def change_in_order(
    broker: BrokerState,
    orders: OrderInfos,
    key: QueueKey,
    header: pop.ChangeInvisibleTimeRequestHeader,
    handle: ReceiptHandle,
    now: Now,
    *,
    is_suspended: bool = False,
) -> Reply:
    """Change when a message that is received in order is visible again, or its batch.

    Source: ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForOrder.
    """
    topic, group, queue_id = key
    committed = broker.offsets.query(group, topic, queue_id)
    if committed is not None and header.offset < committed:
        return changed(0, 0, 0)
    pop_time_ms = handle.pop_time_ms
    visible_ms = min(now.epoch_ms + header.invisible_time, _INT64_MAX)
    if is_suspended:
        orders.suspend(key, pop_time_ms, visible_ms, now)
    else:
        orders.set_visible(key, header.offset, pop_time_ms, visible_ms, now)
    return changed(pop_time_ms, visible_ms - pop_time_ms, handle.revive_queue_id)


def changed(pop_time_ms: int, invisible_ms: int, revive_queue_id: int) -> Reply:
    """Return the answer with the fields of a new handle."""
    return Reply(
        header=pop.ChangeInvisibleTimeResponseHeader(
            pop_time=pop_time_ms,
            invisible_time=invisible_ms,
            revive_qid=revive_queue_id,
        )
    )
