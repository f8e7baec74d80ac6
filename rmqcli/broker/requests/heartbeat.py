"""Heartbeats of clients, unregistering, and the members of a group: 34, 35 and 38.

Imitated: the first heartbeat creates the group and its retry topic; a client of a group
that may not be created is no member of it in 5.x; the remarks.
Not imitated: `rejectPullConsumerEnable`; the order flag of retry topics.

Source: `ClientManageProcessor`, `ConsumerManageProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply, system_error
from rmqcli.broker.state.clients import ConnectedMember
from rmqcli.broker.topic_names import RETRY_PREFIX
from rmqcli.wire.bodies.consumer import GetConsumerListByGroupResponseBody
from rmqcli.wire.bodies.heartbeat import HeartbeatData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode
from rmqcli.wire.headers.admin import GetConsumerListByGroupRequestHeader
from rmqcli.wire.headers.client import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.HEART_BEAT)
def heart_beat(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Register the client on this connection in its groups (34)."""
    data = request.body(HeartbeatData)
    broker.clients.check(request.peer, data)
    command = request.command
    language = LanguageCode.OTHER if command.language is None else command.language
    member = ConnectedMember(
        data.client_id, request.peer, int(language), command.version, request.now
    )
    joined = []
    for consumer in data.consumers:
        config = broker.groups.find_or_create(consumer.group_name)
        if config is not None:
            broker.topics.create_in_send_back(
                RETRY_PREFIX + consumer.group_name,
                queue_nums=config.retry_queue_nums,
            )
        # A group beyond our limit is not one that the settings forbid.
        if (
            config is not None
            or broker.profile.joins_groups_that_are_missing
            or broker.groups.is_full
        ):
            joined.append(consumer)
    broker.clients.heartbeat(member, replace(data, consumers=tuple(joined)))
    return Reply()


@handles(RequestCode.UNREGISTER_CLIENT)
def unregister_client(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Remove this connection from the groups that the request names (35)."""
    header = request.header(UnregisterClientRequestHeader)
    if header.producer_group is not None:
        broker.clients.unregister_producer(request.peer, header.producer_group)
    if header.consumer_group is not None:
        broker.clients.unregister_consumer(request.peer, header.consumer_group)
    return Reply()


@handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
def get_consumer_list(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The client ids of a group (38), one for each connection."""
    name = request.header(GetConsumerListByGroupRequestHeader).consumer_group
    group = broker.clients.consumer_group(name)
    if group is None:
        raise system_error(f"no consumer for this group, {name}")
    client_ids = [member.client_id for member in group.members]
    body = GetConsumerListByGroupResponseBody(consumer_id_list=client_ids)
    return Reply(body=encode_body(body))
