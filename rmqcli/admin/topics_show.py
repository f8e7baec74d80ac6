"""One topic: its settings on each broker, its queues, and the groups that read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, ask_many, reader_addresses
from rmqcli.admin.topics import message_type, topic_kind
from rmqcli.api.calls_config import (
    get_all_subscription_group_config,
    get_all_topic_config,
    get_topic_config,
)
from rmqcli.api.calls_consumer import get_consumer_connection_list
from rmqcli.api.calls_stats import get_topic_stats_info, query_topic_consume_by_who
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies_consumer import ConsumerConnection
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute
    from rmqcli.wire.bodies_config import TopicConfig
    from rmqcli.wire.bodies_stats import TopicOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBroker:
    """A topic on one broker. `config` is None when it did not say: see `error`."""

    broker_name: str
    cluster: str
    address: str | None
    config: TopicConfig | None = field(hash=False)
    error: RmqError | None = None


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue. `offset` is None when its broker did not answer."""

    queue: MessageQueue
    offset: TopicOffset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """Everything about one topic; `errors` by broker name."""

    topic: str
    kind: str
    message_type: str | None
    brokers: list[TopicBroker]
    queues: list[TopicQueue]
    groups: list[str]
    errors: dict[str, RmqError] = field(hash=False)


def show_topic(client: Client, topic: str) -> TopicDetail:
    """Ask every broker of the topic. Raises NotFoundError for an unknown topic."""
    route = client.route(topic)
    info = client.cluster_info()
    addresses = reader_addresses(route.brokers)
    stats = ask_each(client, addresses, get_topic_stats_info(topic))
    errors = {n: e for n, e in stats.items() if isinstance(e, RmqError)}
    answering = {n: a for n, a in addresses.items() if n not in errors}
    groups = ask_each(client, answering, query_topic_consume_by_who(topic))
    configs = topic_configs(client, topic, answering)
    names: set[str] = set()
    for broker_name in answering:
        found = groups[broker_name]
        config = configs[broker_name]
        if not isinstance(found, RmqError) and topic in found:
            found = _groups_of_5_3(client, topic, answering[broker_name], found)
        if isinstance(found, RmqError):
            errors[broker_name] = found
        else:
            names.update(found)
        if isinstance(config, RmqError):
            errors[broker_name] = config
    return TopicDetail(
        topic=topic,
        kind=topic_kind(topic, info),
        message_type=message_type(
            c for c in configs.values() if c is not None and not isinstance(c, RmqError)
        ),
        brokers=_brokers(route, addresses, configs, errors),
        queues=_queues(route, stats),
        groups=sorted(names),
        errors=errors,
    )


def _groups_of_5_3(
    client: Client, topic: str, address: str, found: list[str]
) -> list[str] | RmqError:
    """The topic's groups where the broker named the topic as a group of itself.

    5.3.3 keeps the topic's name instead of the names of groups that are online without
    a committed offset. Source: ConsumerManager.topicGroupTable.
    """
    try:
        groups = client.invoke(address, get_all_subscription_group_config())
    except RmqError as error:
        return error
    answers = ask_many(
        client, {g: (address, get_consumer_connection_list(g)) for g in groups}
    )
    online = [
        group
        for group, answer in answers.items()
        if isinstance(answer, ConsumerConnection) and topic in answer.subscriptions
    ]
    return online + [name for name in found if name != topic or name in groups]


def topic_configs(
    client: Client, topic: str, addresses: Mapping[str, str]
) -> dict[str, TopicConfig | RmqError | None]:
    """The topic's settings by broker name; None where the broker does not have it.

    The brokers must have answered before, so that their versions are known: 4.x has no
    request for one topic and never answers to that of 5.x.
    """
    single = {n: a for n, a in addresses.items() if client.broker_version(a) >= V5_0_0}
    found: dict[str, TopicConfig | RmqError | None] = {}
    for broker_name, one in ask_each(client, single, get_topic_config(topic)).items():
        found[broker_name] = None if isinstance(one, NotFoundError) else one
    rest = {n: a for n, a in addresses.items() if n not in single}
    for broker_name, answer in ask_each(client, rest, get_all_topic_config()).items():
        found[broker_name] = (
            answer if isinstance(answer, RmqError) else answer.get(topic)
        )
    return found


def _brokers(
    route: TopicRoute,
    addresses: Mapping[str, str],
    configs: Mapping[str, TopicConfig | RmqError | None],
    errors: Mapping[str, RmqError],
) -> list[TopicBroker]:
    rows = []
    for broker in sorted(route.brokers, key=lambda b: b.broker_name):
        config = configs.get(broker.broker_name)
        rows.append(
            TopicBroker(
                broker_name=broker.broker_name,
                cluster=broker.cluster,
                address=addresses.get(broker.broker_name),
                config=None if isinstance(config, RmqError) else config,
                error=errors.get(broker.broker_name),
            )
        )
    return rows


def _queues(
    route: TopicRoute,
    stats: Mapping[str, dict[MessageQueue, TopicOffset] | RmqError],
) -> list[TopicQueue]:
    """All queues that the route names, and those that a broker told of besides."""
    offsets: dict[MessageQueue, TopicOffset | None] = {
        MessageQueue(route.topic, data.broker_name, queue_id): None
        for data in route.queues
        for queue_id in range(max(data.read_queue_nums, data.write_queue_nums))
    }
    for answer in stats.values():
        if not isinstance(answer, RmqError):
            offsets.update(answer)
    return [TopicQueue(queue, offsets[queue]) for queue in sorted(offsets)]
