"""Reads which topics and groups the masters of a cluster have, with their settings.

RocketMQ makes system topics, retry topics, dead letter topics and system groups by
itself, so they are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.brokers import ask_each
from rmqcli.admin.definitions.compare import (
    BrokerEntries,
    ClusterEntries,
    definitions_of,
)
from rmqcli.admin.definitions.settings import group_settings, topic_settings
from rmqcli.admin.lag.memory import open_memory
from rmqcli.admin.topics import choose_masters, topic_kind
from rmqcli.api.calls.config import get_all_topic_config, get_subscription_groups
from rmqcli.errors import NotFoundError, PartialError, RmqError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import is_system_group
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.admin.definitions.model import Definitions, Kind
    from rmqcli.api.client import Client
    from rmqcli.wire.bodies.config import SubscriptionGroupWrapper, TopicConfig
    from rmqcli.wire.bodies.route import ClusterInfo


def export_definitions(
    client: Client, cluster: str | None, kinds: Iterable[Kind]
) -> Definitions:
    """Return the definitions of a cluster, which may be None for the only one.

    Raises PartialError when one of its brokers does not answer: what only that broker
    has would be missing without a trace.
    """
    entries, left_out = _read(client, cluster)
    for name, error in entries.errors.items():
        raise PartialError(
            f"{name} did not answer, so nothing was exported: {error.message}",
            hint=error.hint,
        )
    return definitions_of(entries, kinds, left_out)


def read_cluster(client: Client, cluster: str | None) -> ClusterEntries:
    """Return what the masters of a cluster have.

    Raises NoBrokerError when none of them answers, and the errors of `choose_masters`.
    """
    return _read(client, cluster)[0]


def _read(client: Client, cluster: str | None) -> tuple[ClusterEntries, list[str]]:
    masters = choose_masters(client, cluster=cluster, brokers=())
    info = client.cluster_info()
    name = next(iter(sorted(info.clusters)), "") if cluster is None else cluster
    errors: dict[str, RmqError] = {
        broker: NotFoundError(
            f"broker {broker} currently has no master",
            code=int(ResponseCode.BROKER_NOT_EXIST),
            name=ResponseCode.BROKER_NOT_EXIST.name,
        )
        for broker in sorted(info.clusters.get(name, ()))
        if broker not in masters
    }
    if len(info.clusters) == 1:  # the record does not say which cluster a broker is of
        errors |= _departed(client, masters)
    topics = ask_each(client, masters, get_all_topic_config())
    groups = ask_each(client, masters, get_subscription_groups())
    brokers: dict[str, BrokerEntries] = {}
    left_out: list[str] = []
    for broker, address in masters.items():
        found, wrapper = topics[broker], groups[broker]
        if isinstance(found, RmqError):
            errors[broker] = found
        elif isinstance(wrapper, RmqError):
            errors[broker] = wrapper
        else:
            version = client.broker_version(address)
            brokers[broker] = _entries(broker, address, version, found, wrapper, info)
            left_out += _forbidden(broker, wrapper)
    client.raise_if_none_answers(errors.values() if not brokers else ())
    return ClusterEntries(cluster=name, brokers=brokers, errors=errors), left_out


def _departed(client: Client, masters: Mapping[str, str]) -> dict[str, RmqError]:
    """Return errors for brokers that an earlier run knew and no name server lists now.

    A broker that dies leaves the routes, and nobody would miss what only it had.
    """
    memory = open_memory(client)
    if memory is None:
        return {}
    departed = memory.departed(masters)
    now_ms = client.clock.epoch_ms()
    memory.remember_brokers(masters, now_ms=now_ms)
    memory.save(now_ms=now_ms)
    return {
        name: PartialError(
            "no name server lists it any more",
            hint=Hint(
                "if it was removed for good: ",
                LibraryCall("Admin.lag"),
                " ",
                LibraryCall("LagMemory.forget"),
            ),
        )
        for name in sorted(departed)
    }


def _entries(
    broker_name: str,
    address: str,
    version: int,
    topics: dict[str, TopicConfig],
    wrapper: SubscriptionGroupWrapper,
    info: ClusterInfo,
) -> BrokerEntries:
    topics = {
        name: config
        for name, config in topics.items()
        if topic_kind(name, info) == "normal"
    }
    groups = {
        name: config
        for name, config in wrapper.subscription_group_table.items()
        if not is_system_group(name)
    }
    return BrokerEntries(
        broker_name=broker_name,
        address=address,
        version=version,
        entries={
            "topic": {n: topic_settings(c, version) for n, c in topics.items()},
            "group": {n: group_settings(c, version) for n, c in groups.items()},
        },
        topics=topics,
        groups=groups,
    )


def _forbidden(broker_name: str, wrapper: SubscriptionGroupWrapper) -> list[str]:
    """Say which groups may not read a topic, which no file has."""
    return [
        f"on {broker_name}, group {group} may not read topic {topic}"
        for group, topics in sorted((wrapper.forbidden_table or {}).items())
        for topic, bits in sorted(topics.items())
        if bits
    ]
