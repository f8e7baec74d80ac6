"""Connected clients, and checks of a client's subscription: 203, 204 and 46.

Imitated: the answers, including the remarks.
Not imitated: the check of namespaces in 46.

Source: `AdminBrokerProcessor.getConsumerConnectionList`, `getProducerConnectionList`,
`ClientManageProcessor.checkClientConfig` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.filter.message_filter import is_tag_type
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, system_error
from rmqcli.broker.requests.pull_message import sql_condition
from rmqcli.wire.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
)
from rmqcli.wire.bodies.heartbeat import CheckClientRequestBody
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import admin
from rmqcli.wire.subscription import SQL92, SubscriptionData

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.broker.state.clients import ConnectedMember, ConsumerGroup


@handles(RequestCode.GET_CONSUMER_CONNECTION_LIST)
def get_consumer_connections(broker: BrokerState, request: BrokerRequest) -> Reply:
    """A group's members and their subscriptions (203); 206 without members."""
    name = request.header(admin.GetConsumerConnectionListRequestHeader).consumer_group
    group = broker.clients.consumer_group(name)
    if group is None:
        raise Refusal(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    return Reply(body=encode_body(consumer_connection(group)))


def consumer_connection(group: ConsumerGroup) -> ConsumerConnection:
    """Return a group as the body of the answer to 203 shows it."""
    return ConsumerConnection(
        connections=tuple(map(_connection, group.members)),
        subscriptions=group.subscriptions,
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from_where=group.consume_from_where,
    )


@handles(RequestCode.GET_PRODUCER_CONNECTION_LIST)
def get_producer_connections(broker: BrokerState, request: BrokerRequest) -> Reply:
    """A producer group's members (204)."""
    name = request.header(admin.GetProducerConnectionListRequestHeader).producer_group
    members = broker.clients.producers(name)
    if not members:
        raise system_error(f"the producer group[{name}] not exist")
    connection = ProducerConnection(connections=tuple(map(_connection, members)))
    return Reply(body=encode_body(connection))


@handles(RequestCode.CHECK_CLIENT_CONFIG)
def check_client_config(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Check whether the broker can filter by a subscription's expression (46)."""
    if not request.command.body and broker.profile.has_bodies_of_5:
        return Reply()  # 4.x answers 1, because it cannot read the empty body
    subscription = request.body(CheckClientRequestBody).subscription_data
    if subscription is None or is_tag_type(subscription.expression_type):
        return Reply()
    kind = subscription.expression_type
    if not broker.settings.enable_property_filter:
        raise system_error(
            f"The broker does not support consumer to filter message by {kind}"
        )
    fault = _expression_fault(broker, subscription)
    if fault is not None:
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, fault)
    return Reply()


def _expression_fault(
    broker: BrokerState, subscription: SubscriptionData
) -> str | None:
    if subscription.expression_type != SQL92:
        return f"filter type {subscription.expression_type} is not supported"
    if sql_condition(broker, subscription) is None:
        return f"invalid SQL92 expression: {subscription.sub_string}"
    return None


def _connection(member: ConnectedMember) -> Connection:
    return Connection(
        client_id=member.client_id,
        client_addr=member.peer.address,
        language=member.language,
        version=member.version,
    )
