"""All consumer groups of a cluster, with how many members are online.

Source: SubscriptionGroupManager, MixAll.isSysConsumerGroup in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, ask_many, reader_addresses
from rmqcli.api.calls_config import get_all_subscription_group_config
from rmqcli.api.calls_consumer import get_consumer_connection_list
from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.wire.bodies_consumer import ConsumerConnection

SYSTEM_GROUPS = frozenset(
    (
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"),
        *("__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP"),
        *("CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL"),
        *("CID_ONSAPI_PERMISSION", "CID_SYS_RMQ_TRANS"),
    )
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"  # MixAll.CID_RMQ_SYS_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group. `members` is None when a broker that may know some did not answer.

    `consume_type` and `message_model` are Java's names, None while nobody is online.
    """

    group: str
    kind: str
    members: int | None
    consume_type: str | None
    message_model: str | None
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupList:
    """Groups by name, and the brokers that did not answer."""

    groups: list[GroupRow]
    errors: dict[str, RmqError] = field(hash=False)


def group_kind(group: str) -> str:
    """`system` or `normal`. Pure."""
    is_system = group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
    return "system" if is_system else "normal"


def list_groups(client: Client) -> GroupList:
    """All groups that a broker has settings of, system ones too, sorted by name."""
    addresses = reader_addresses(client.cluster_info().brokers.values())
    configs = ask_each(client, addresses, get_all_subscription_group_config())
    errors: dict[str, RmqError] = {}
    brokers_of: dict[str, list[str]] = {}
    for broker_name, answer in configs.items():
        if isinstance(answer, RmqError):
            errors[broker_name] = answer
            continue
        for group in answer:
            brokers_of.setdefault(group, []).append(broker_name)
    answers = ask_many(
        client,
        {
            (group, name): (addresses[name], get_consumer_connection_list(group))
            for group, names in brokers_of.items()
            for name in names
            if group_kind(group) == "normal"
        },
    )
    found: dict[str, list[ConsumerConnection]] = {}
    unknown: set[str] = set(brokers_of) if errors else set()
    for (group, broker_name), connection in answers.items():
        if isinstance(connection, RmqError):
            errors.setdefault(broker_name, connection)
            unknown.add(group)
        elif connection is not None:
            found.setdefault(group, []).append(connection)
    rows = [
        _row(group, names, found.get(group, []), is_known=group not in unknown)
        for group, names in sorted(brokers_of.items())
    ]
    return GroupList(rows, errors)


def _row(
    group: str,
    brokers: list[str],
    connections: list[ConsumerConnection],
    *,
    is_known: bool,
) -> GroupRow:
    members = {member.client_id for c in connections for member in c.connections}
    first = connections[0] if connections else None
    return GroupRow(
        group=group,
        kind=group_kind(group),
        members=len(members) if is_known or members else None,
        consume_type=None if first is None else first.consume_type,
        message_model=None if first is None else first.message_model,
        brokers=tuple(sorted(brokers)),
    )
