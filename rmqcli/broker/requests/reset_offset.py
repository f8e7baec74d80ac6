"""Resetting a group's offsets (222) by both of RocketMQ's methods.

At the broker (from 5.2.0 on): the broker stores the offsets, and answers the group's
next pull of each queue with 21. This also works for groups without members. By the
members (before 5.2.0, or if configured): the broker sends 220 to each online member,
which then resets itself. Without members the answer is 206.
Imitated: which queues a reset covers; the checks; the meaning of `isForce` in each
method.
Not imitated: 5.x writes a reset of the whole topic to its log.

Source: `AdminBrokerProcessor.resetOffset`, `Broker2Client.resetOffset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.search_offset import offset_in_queue_by_time
from rmqcli.broker.request import Refusal, Reply, no_group, no_topic, system_error
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.offset import (
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode, ResponseCode
from rmqcli.wire.headers.offset import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
def reset_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Reset a group's offsets by the method that this broker uses (222)."""
    header = request.header(ResetOffsetRequestHeader)
    if broker.configuration.resets_at_broker:
        offsets = _reset_at_broker(broker, header)
    else:
        is_cpp = request.command.language == LanguageCode.CPP
        offsets = _reset_by_members(broker, header, is_cpp=is_cpp)
    return Reply(body=encode_body(ResetOffsetBody(offset_table=offsets)))


def _reset_at_broker(
    broker: BrokerState, header: ResetOffsetRequestHeader
) -> dict[MessageQueue, int]:
    """Store the offsets. This method ignores `isForce`."""
    topic, group = header.topic, header.group
    if broker.settings.broker_id:
        raise system_error("Can not reset offset in slave broker")
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"Topic {topic} does not exist")
    if broker.groups.get(group) is None:
        raise no_group(f"Group {group} does not exist")
    if header.queue_id is not None and header.queue_id >= 0:
        targets = {header.queue_id: _target(broker, header, header.queue_id)}
    else:
        targets = {
            queue_id: _by_time(broker, topic, queue_id, header.timestamp)
            for queue_id in range(config.read_queue_nums)
        }
    if not targets:
        raise system_error("No queues to reset.")
    name = broker.settings.broker_name
    for queue_id, offset in targets.items():
        broker.offsets.reset(group, topic, queue_id, offset)
    return {
        MessageQueue(topic, name, queue_id): offset
        for queue_id, offset in targets.items()
    }


def _target(
    broker: BrokerState, header: ResetOffsetRequestHeader, queue_id: int
) -> int:
    """Return the target offset of one queue: as requested, or else by time.

    Raises Refusal(1) for an offset below the min offset or above the max offset + 1.
    """
    offset = header.offset
    if offset is None or offset == -1:
        return _by_time(broker, header.topic, queue_id, header.timestamp)
    low, high = broker.store.queue_bounds(header.topic, queue_id) or (0, 0)
    if not low <= offset <= high + 1:
        raise system_error(
            f"Target offset {offset} not in consume queue range [{low}-{high}]"
        )
    return offset


def _by_time(broker: BrokerState, topic: str, queue_id: int, timestamp_ms: int) -> int:
    if timestamp_ms < 0:
        return (broker.store.queue_bounds(topic, queue_id) or (0, 0))[1]
    return offset_in_queue_by_time(broker, topic, queue_id, timestamp_ms=timestamp_ms)


def _reset_by_members(
    broker: BrokerState, header: ResetOffsetRequestHeader, *, is_cpp: bool
) -> dict[MessageQueue, int]:
    """Send 220 to each member. This method ignores the request's queue and offset."""
    offsets = _targets_of_members(broker, header)
    group = broker.clients.consumer_group(header.group)
    if group is None or not group.members:
        raise Refusal(
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, "
            f"Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}",
        )
    body = encode_body(
        _body_for_c(offsets) if is_cpp else ResetOffsetBody(offset_table=offsets)
    )
    push = ResetOffsetRequestHeader(
        topic=header.topic,
        group=header.group,
        timestamp=header.timestamp,
        is_force=header.is_force,
    )
    for member in group.members:
        broker.push(
            member.peer,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            push,
            body=body,
        )
    return offsets


def _targets_of_members(
    broker: BrokerState, header: ResetOffsetRequestHeader
) -> dict[MessageQueue, int]:
    """The target offset of each write queue; without force, none moves forward."""
    topic, group = header.topic, header.group
    config = broker.topics.get(topic)
    if config is None:
        raise system_error(
            f"[reset-offset] reset offset failed, no topic in this broker. "
            f"topic={topic}"
        )
    timestamp_ms = -1 if header.timestamp == -1 else max(0, header.timestamp)
    offsets: dict[MessageQueue, int] = {}
    for queue_id in range(config.write_queue_nums):
        committed = broker.offsets.query(group, topic, queue_id)
        if committed is None or committed == -1:
            raise system_error(f"THe consumer group <{group}> not exist")
        offset = _by_time(broker, topic, queue_id, timestamp_ms)
        if not header.is_force:
            offset = min(offset, committed)
        queue = MessageQueue(topic, broker.settings.broker_name, queue_id)
        offsets[queue] = max(0, offset)
    return offsets


def _body_for_c(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            for queue, offset in offsets.items()
        ]
    )
