"""One consumer group: its settings, members, subscriptions and topics.

Asks nothing that would create the group: GET_SUBSCRIPTIONGROUP_CONFIG (352) would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, ask_many, reader_addresses
from rmqcli.admin.groups import group_kind
from rmqcli.admin.lag_members import Members
from rmqcli.admin.process_queues import ClientQueues, read_running_info
from rmqcli.api.calls_config import get_all_subscription_group_config
from rmqcli.api.calls_consumer import (
    get_consumer_connection_list,
    get_consumer_running_info,
    query_topics_by_consumer,
)
from rmqcli.api.calls_offset import get_all_consumer_offset
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client
    from rmqcli.wire.bodies_config import SubscriptionGroupConfig
    from rmqcli.wire.bodies_consumer import Connection, ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

#: Members are asked to compare them: of larger groups, some.
_MEMBERS_ASKED_MAX = 64
#: A client that does not answer must not slow down the rest.
_MEMBER_TIMEOUT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One client, and the brokers it is connected to.

    `subscriptions` are what it says itself; None when it did not answer or was not
    asked.
    """

    connection: Connection
    brokers: tuple[str, ...]
    subscriptions: tuple[SubscriptionData, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """Everything about one group; `configs` and `errors` by broker name.

    `topics` are those with committed offsets or a subscription. Where members differ
    in what they subscribe to, the broker tells what the last heartbeat said, and
    `mismatches` says who differs, a sentence each.
    """

    group: str
    kind: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    configs: dict[str, SubscriptionGroupConfig] = field(hash=False)
    members: list[GroupMember]
    subscriptions: list[SubscriptionData]
    topics: list[str]
    mismatches: list[str]
    errors: dict[str, RmqError] = field(hash=False)


def show_group(client: Client, group: str) -> GroupDetail:
    """Ask every broker. Raises NotFoundError when all answer and none knows it."""
    addresses = reader_addresses(client.cluster_info().brokers.values())
    settings = ask_each(client, addresses, get_all_subscription_group_config())
    errors = {n: a for n, a in settings.items() if isinstance(a, RmqError)}
    answering = {n: a for n, a in addresses.items() if n not in errors}
    online = ask_each(client, answering, get_consumer_connection_list(group))
    configs = {
        name: table[group]
        for name, table in settings.items()
        if not isinstance(table, RmqError) and group in table
    }
    connections: dict[str, ConsumerConnection] = {}
    for name, answer in online.items():
        if isinstance(answer, RmqError):
            errors[name] = answer
        elif answer is not None:
            connections[name] = answer
    topics = _topics(client, group, answering, errors)
    if not configs and not connections and not topics and not errors:
        raise NotFoundError(
            f"group {group} does not exist",
            code=int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            name=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.name,
            hint="list groups with: rmq groups",
        )
    clients = _clients(client, group, connections, addresses)
    seen = Members()
    for connection in connections.values():
        seen.add(connection)
    first = next(iter(connections.values()), None)
    subscriptions = {
        topic: subscription
        for connection in connections.values()
        for topic, subscription in sorted(connection.subscriptions.items())
    }
    return GroupDetail(
        group=group,
        kind=group_kind(group),
        consume_type=None if first is None else first.consume_type,
        message_model=None if first is None else first.message_model,
        consume_from_where=None if first is None else first.consume_from_where,
        configs=configs,
        members=_members(connections, clients),
        subscriptions=[subscriptions[topic] for topic in sorted(subscriptions)],
        topics=sorted(
            topic
            for topic in topics | subscriptions.keys()
            if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
        ),
        mismatches=seen.mismatches(clients),
        errors=errors,
    )


def _clients(
    client: Client,
    group: str,
    connections: Mapping[str, ConsumerConnection],
    addresses: Mapping[str, str],
) -> dict[str, ClientQueues]:
    """What members say of themselves, asked by way of a broker that sees them."""
    at = {
        member.client_id: addresses[broker_name]
        for broker_name, connection in connections.items()
        for member in connection.connections
    }
    answers = ask_many(
        client,
        {
            client_id: (at[client_id], get_consumer_running_info(group, client_id))
            for client_id in sorted(at)[:_MEMBERS_ASKED_MAX]
        },
        timeout_ms=_MEMBER_TIMEOUT_MS,
    )
    now_ms = client.clock.epoch_ms()
    return {
        client_id: ClientQueues(client_id=client_id, failure=answer.message)
        if isinstance(answer, RmqError)
        else read_running_info(client_id, answer, now_ms=now_ms)
        for client_id, answer in answers.items()
    }


def _topics(
    client: Client,
    group: str,
    addresses: Mapping[str, str],
    errors: dict[str, RmqError],
) -> set[str]:
    """Topics with committed offsets. 4.x only tells them with everybody's."""
    names: set[str] = set()
    is_new = {n: client.broker_version(a) >= V5_0_0 for n, a in addresses.items()}
    single = ask_many(
        client,
        {
            n: (a, query_topics_by_consumer(group))
            for n, a in addresses.items()
            if is_new[n]
        },
    )
    for name, answer in single.items():
        if isinstance(answer, RmqError):
            errors[name] = answer
        else:
            names.update(answer)
    tables = ask_each(
        client,
        {n: a for n, a in addresses.items() if not is_new[n]},
        get_all_consumer_offset(),
    )
    for name, table in tables.items():
        if isinstance(table, RmqError):
            errors[name] = table
        else:
            names.update(topic for owner, topic in table if owner == group)
    return names


def _members(
    connections: Mapping[str, ConsumerConnection], clients: Mapping[str, ClientQueues]
) -> list[GroupMember]:
    found: dict[str, Connection] = {}
    brokers: dict[str, list[str]] = {}
    for broker_name, connection in connections.items():
        for member in connection.connections:
            found.setdefault(member.client_id, member)
            brokers.setdefault(member.client_id, []).append(broker_name)
    return [
        GroupMember(
            connection=found[client_id],
            brokers=tuple(brokers[client_id]),
            subscriptions=clients[client_id].subscriptions
            if client_id in clients and clients[client_id].failure is None
            else None,
        )
        for client_id in sorted(found)
    ]
