"""The offsets that consumers query and commit: 14 and 15.

Imitated: a query of a group without an offset is answered with 0 if the queue's first
message still exists and is in memory, else with 22; any offset can be committed; while
a reset at the broker is pending (5.x), commits are ignored, but answered with success.
Not imitated: static topics.

Source: `ConsumerManageProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.get import is_on_disk
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, no_group, no_topic
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.QUERY_CONSUMER_OFFSET)
def query_consumer_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The offset that a group has committed (14)."""
    header = request.header(QueryConsumerOffsetRequestHeader)
    topic, queue_id = header.topic, header.queue_id
    offset = broker.offsets.query(header.consumer_group, topic, queue_id)
    if offset is not None:
        return Reply(ext_fields={"offset": str(offset)})
    if header.set_zero_if_not_found is False and broker.profile.checks_offset_commits:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, do not set to zero, maybe this group boot first",
        )
    if not _is_young(broker, topic, queue_id):
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )
    return Reply(ext_fields={"offset": "0"})


def _is_young(broker: BrokerState, topic: str, queue_id: int) -> bool:
    """Whether a queue begins at 0 and its first message counts as in memory.

    An empty queue counts as such in 4.x, but not in 5.x.
    """
    low, _ = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    if low > 0:
        return False
    units = broker.store.units(topic, queue_id, 0, 1)
    if not units:
        return not broker.profile.zero_offset_needs_message
    return not is_on_disk(broker, units[0].commit_log_offset)


@handles(RequestCode.UPDATE_CONSUMER_OFFSET)
def update_consumer_offset(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Commit an offset (15)."""
    if broker.profile.checks_offset_commits:
        _check_commit(broker, request)
    header = request.header(UpdateConsumerOffsetRequestHeader)
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    if broker.offsets.has_pending_reset(group, topic, queue_id):
        return Reply(remark="Offset has been previously reset")
    broker.offsets.commit(group, topic, queue_id, header.commit_offset)
    return Reply()


def _check_commit(broker: BrokerState, request: BrokerRequest) -> None:
    """Refuse the commits that 5.x refuses. Raises Refusal: 26, 17 and 29."""
    fields = request.command.ext_fields
    group, topic = fields.get("consumerGroup"), fields.get("topic")
    if group is None or topic is None:
        return  # reading the header refuses it
    if broker.groups.get(group) is None:
        raise no_group(f"Group {group} not exist!")
    if broker.topics.get(topic) is None:
        raise no_topic(f"Topic {topic} not exist!")
    for name, what in (("queueId", "QueueId"), ("commitOffset", "Offset")):
        if not fields.get(name):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"{what} is null, topic is {topic}"
            )
