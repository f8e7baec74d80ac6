"""The bounds of a queue, and the offset for a time: 29, 30, 31 and 32.

Imitated: an unknown queue is treated as an empty one.
Not imitated: static topics; the difference between stored and committed messages.

Source: `AdminBrokerProcessor`, `DefaultMessageStore` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.get import new_queue_bounds
from rmqcli.broker.message.search_offset import offset_in_queue_by_time
from rmqcli.broker.request import BrokerRequest, Reply
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
)

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
def search_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The offset for a store time (29)."""
    header = request.header(SearchOffsetRequestHeader)
    offset = offset_in_queue_by_time(
        broker,
        header.topic,
        header.queue_id,
        timestamp_ms=header.timestamp,
        boundary=header.boundary_type,
    )
    return Reply(ext_fields={"offset": str(offset)})


@handles(RequestCode.GET_MAX_OFFSET)
def get_max_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The next offset that will be written (30)."""
    header = request.header(GetMaxOffsetRequestHeader)
    _, high = broker.store.queue_bounds(header.topic, header.queue_id) or (0, 0)
    return Reply(ext_fields={"offset": str(high)})


@handles(RequestCode.GET_MIN_OFFSET)
def get_min_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The oldest offset that still exists (31)."""
    header = request.header(GetMinOffsetRequestHeader)
    topic, queue_id = header.topic, header.queue_id
    bounds = broker.store.queue_bounds(topic, queue_id)
    low, _ = bounds or new_queue_bounds(broker, topic)
    remark = broker.profile.min_offset_remark
    return Reply(remark=remark, ext_fields={"offset": str(low)})


@handles(RequestCode.GET_EARLIEST_MSG_STORETIME)
def get_earliest_store_time(broker: BrokerState, request: BrokerRequest) -> Reply:
    """When the oldest message was stored (32); -1 for an empty queue."""
    header = request.header(GetEarliestMsgStoretimeRequestHeader)
    topic, queue_id = header.topic, header.queue_id
    low, _ = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    time_ms = broker.store.store_time_ms(topic, queue_id, low)
    return Reply(ext_fields={"timestamp": str(-1 if time_ms is None else time_ms)})
