"""Changing when a message received by POP becomes visible: 200053 (5.0 and later).

Imitated: the checks in RocketMQ's order; the message gets a check point of its own, and
is acknowledged under the old handle. As in RocketMQ, a handle that has expired, or
whose message was acknowledged, is renewed all the same, and the message is delivered
once more. For orderly POP, the time is changed in the existing batch. With `suspend`
(5.5) the attempt does not count, except for orderly POP, where RocketMQ ignores it.

Source: `ChangeInvisibleTimeProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.delayed import TIMER_DELAY_MS_MAX
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, system_error
from rmqcli.broker.requests.pop.ack_message import check_queue, read_handle
from rmqcli.broker.requests.pop.lite import change_in_order, change_lite, changed
from rmqcli.broker.requests.pop.pop_message import need_master
from rmqcli.broker.state.check_points import REVIVE_QUEUE_NUM, Key
from rmqcli.store.message_store import StoreError
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.pop import ChangeInvisibleTimeRequestHeader
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, since=V5_0_0)
def change_invisible_time(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Make a message invisible for another `invisible_time` ms from now on (200053).

    The answer has the fields for a new handle.
    """
    header = request.header(ChangeInvisibleTimeRequestHeader)
    need_master(broker)
    low, high = check_queue(broker, request, header.topic, header.queue_id)
    if (header.lite_topic or "").strip():
        handle = read_handle(header.extra_info)
        return change_lite(broker, header, handle, request.now)
    if not low <= header.offset < high:
        raise Refusal(ResponseCode.NO_MESSAGE, "")
    handle = read_handle(header.extra_info)
    queue = header.topic, header.consumer_group, header.queue_id
    if handle.is_order:
        orders = broker.order_infos
        return change_in_order(broker, orders, queue, header, handle, request.now)
    points, now = broker.check_points, request.now
    if (
        not 0 <= handle.revive_queue_id < REVIVE_QUEUE_NUM
        or header.invisible_time > TIMER_DELAY_MS_MAX
        or points.is_full
    ):
        raise system_error("")
    pop_time_ms = now.epoch_ms
    name = handle.broker_name
    key = Key(*queue, header.offset, pop_time_ms, name)
    while points.is_known(key):
        # Changed twice within a millisecond: the new check point must not replace the
        # old one.
        pop_time_ms += 1
        key = key._replace(pop_time_ms=pop_time_ms)
    try:
        points.add(
            key,
            [header.offset],
            invisible_ms=header.invisible_time,
            revive_queue_id=handle.revive_queue_id,
            now=now,
            is_suspended=header.suspend,
        )
    except StoreError:
        raise system_error("") from None
    old = Key(*queue, handle.start_offset, handle.pop_time_ms, name)
    points.ack(old, [header.offset], now)
    return changed(pop_time_ms, header.invisible_time, handle.revive_queue_id)
