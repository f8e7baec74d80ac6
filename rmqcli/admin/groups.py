"""Consumer groups: listing, showing, creating, changing and deleting them.

Changes are made broker by broker, with a result for each. There is no transaction
across brokers: changes that succeeded stay in place, and repeating the call does the
rest. Showing a group must not create it, so this module does not use
GET_SUBSCRIPTIONGROUP_CONFIG (352), which creates a missing group.

Source: SubscriptionGroupManager, MixAll.isSysConsumerGroup, UpdateSubGroupSubCommand
and DeleteSubscriptionGroupCommand in apache/rocketmq.
"""

from __future__ import annotations

import contextlib
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Final, TypedDict

from rmqcli.admin.brokers import (
    ask_each,
    change_each,
    change_many,
    denial_of,
    failed_word,
    have_left,
    not_shown,
    reader_addresses,
    split_answers,
    with_address,
)
from rmqcli.admin.lag.gather import read_pop_lag
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.memory import departed_errors_of_group
from rmqcli.admin.lag.process_queues import ClientQueues, read_running_info
from rmqcli.admin.lag.proxied import find_proxied_members
from rmqcli.admin.topics import about_attribute, check_removed, delete_topic
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import (
    delete_subscription_group,
    get_all_subscription_group_config,
    update_and_create_subscription_group,
)
from rmqcli.api.calls.consumer import (
    get_consumer_connection_list,
    get_consumer_running_info,
    query_topics_by_consumer,
)
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.checked import check_fields
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ChangeUnknownError,
    ConfigError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    TransportError,
    UnsupportedError,
)
from rmqcli.hint import Hint, LibraryCall, Setting
from rmqcli.model import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    dlq_topic,
    is_system_group,
    retry_topic,
)
from rmqcli.units import listed
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.properties import lite_topic_of
from rmqcli.wire.version import V4_9_0, V5_0_0, V5_1_3, version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.admin.brokers import Addresses
    from rmqcli.admin.lag.model import PopLag
    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError
    from rmqcli.model import TopicRoute
    from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

#: At most this many members of a group are asked for their subscriptions.
_MEMBERS_ASKED_MAX = 64
#: Why a client of gRPC is not asked about itself.
PROXY_ONLY: Final = "only its proxy talks to it"
#: A client that does not answer must not slow down the rest.
_MEMBER_TIMEOUT_MS = 1_000
#: More members than this are not listed in a message.
_MEMBERS_LISTED = 3
_INT32_MAX: Final = 2**31 - 1
#: Setting -> the lowest and the highest value, both allowed.
_RANGES: Final = {
    "retry_queue_nums": (1, 65_535),
    "retry_max_times": (0, _INT32_MAX),
    "broker_id": (0, _INT32_MAX),
    "which_broker_when_consume_slowly": (0, _INT32_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group in a list.

    `members` counts the online members that brokers reported. It is None when none was
    reported and a broker did not answer, and for a system group, whose members are not
    queried. `reason` says why there may be more members, or None if that is all.
    `consume_type` and `message_model` are Java's names, None while no member is known.
    """

    group: str
    kind: str
    members: int | None
    reason: str | None
    consume_type: str | None
    message_model: str | None
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupList:
    """Groups sorted by name, and the errors of brokers that did not answer.

    `denial` is the error if all brokers denied access: no group is known.
    `untold` are brokers that have left the route, or have no master, if that was asked:
    what only they know is not here.
    """

    groups: list[GroupRow]
    errors: dict[str, RmqError] = field(hash=False)
    denial: DeniedError | None = None
    untold: dict[str, RmqError] = field(default_factory=dict, hash=False)


def group_kind(group: str) -> str:
    """Return `system` or `normal`. Pure."""
    return "system" if is_system_group(group) else "normal"


def list_groups(client: Client) -> GroupList:
    """List all groups for which a broker has settings, sorted by name.

    System groups are included. Raises NoBrokerError when no broker answers.
    """
    addresses = reader_addresses(client.cluster_info().brokers.values())
    configs = ask_each(client, addresses, get_all_subscription_group_config())
    told, errors = split_answers(configs)
    client.raise_if_none_answers(errors.values())
    brokers_of: dict[str, list[str]] = {}
    for broker_name, groups in told.items():
        for group in groups:
            brokers_of.setdefault(group, []).append(broker_name)
    answers = client.ask_many(
        {
            (group, name): (addresses[name], get_consumer_connection_list(group))
            for group, names in brokers_of.items()
            for name in names
            if group_kind(group) == "normal"
        },
    )
    found: dict[str, list[ConsumerConnection]] = {}
    #: group -> why it may have more members than are found
    unknown: dict[str, str] = {}
    for broker_name, error in errors.items():
        unknown = dict.fromkeys(brokers_of, f"{broker_name}: {error.message}")
    for group in brokers_of:
        if group_kind(group) == "system":
            unknown[group] = "the members of system groups are not queried"
    for (group, broker_name), connection in answers.items():
        if isinstance(connection, RmqError):
            errors.setdefault(broker_name, connection)
            unknown.setdefault(group, f"{broker_name}: {connection.message}")
        elif connection is not None:
            found.setdefault(group, []).append(connection)
    proxied = find_proxied_members(client, errors)
    if proxied.errors:
        errors = {**proxied.errors, **errors}
        broker_name, error = next(iter(proxied.errors.items()))
        why = f"members behind proxies are not known: {broker_name}: {error.message}"
        unknown = dict.fromkeys(brokers_of, why) | unknown
    for group, (connection, _) in proxied.by_group.items():
        if group in brokers_of:
            found.setdefault(group, []).append(connection)
    rows = [
        _row(group, names, found.get(group, []), unknown.get(group))
        for group, names in sorted(brokers_of.items())
    ]
    return GroupList(rows, errors, denial_of(configs.values()))


def _row(
    group: str,
    brokers: list[str],
    connections: list[ConsumerConnection],
    reason: str | None,
) -> GroupRow:
    members = {member.client_id for c in connections for member in c.connections}
    first = connections[0] if connections else None
    return GroupRow(
        group=group,
        kind=group_kind(group),
        members=len(members) if members or reason is None else None,
        reason=reason,
        consume_type=None if first is None else first.consume_type,
        message_model=None if first is None else first.message_model,
        brokers=tuple(sorted(brokers)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One client, and the brokers it is connected to.

    `proxy` is the address of its proxy, for a client of one in cluster mode, which is
    connected to no broker. `subscriptions` and `started_ms`, when its consumer started
    (epoch ms, by its own clock), are what the client itself reported. They are None
    when it did not answer (`is_silent`) or was not asked, and `reason` says why.
    """

    connection: Connection
    brokers: tuple[str, ...]
    subscriptions: tuple[SubscriptionData, ...] | None = None
    proxy: str | None = None
    started_ms: int | None = None
    reason: str | None = None
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """Everything about one group; `configs` and `errors` are keyed by broker name.

    `topics` are those with committed offsets or a subscription. When members subscribe
    differently, a broker keeps the subscriptions of the last heartbeat, and
    `mismatches` describes the differences, one sentence each. `pop` is what POP has
    handed out to the group, or why that is not known; None if nothing shows that it
    uses POP, or if `errors` has brokers. `configs_errors` are the errors of brokers
    that did not tell their settings, `members_errors` of those that did not tell their
    members, `proxied_errors` of those that did not tell the members behind proxies.
    `denial` is the error if all brokers denied access, and `members_denial` if they
    denied to tell their members.
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
    pop: PopLag | None = None
    configs_errors: dict[str, RmqError] = field(default_factory=dict, hash=False)
    members_errors: dict[str, RmqError] = field(default_factory=dict, hash=False)
    proxied_errors: dict[str, RmqError] = field(default_factory=dict, hash=False)
    denial: DeniedError | None = None
    members_denial: DeniedError | None = None


def show_group(client: Client, group: str) -> GroupDetail:
    """Query every broker for everything about a group.

    Raises NotFoundError when all brokers answer and none of them knows the group, and
    NoBrokerError when no broker answers.
    """
    addresses = reader_addresses(client.cluster_info().brokers.values())
    settings = ask_each(client, addresses, get_all_subscription_group_config())
    tables, configs_errors = split_answers(settings)
    client.raise_if_none_answers(configs_errors.values())
    silent = {n: e for n, e in configs_errors.items() if isinstance(e, TransportError)}
    answering = with_address(addresses, silent)
    online = ask_each(client, answering, get_consumer_connection_list(group))
    configs = {n: table[group] for n, table in tables.items() if group in table}
    told, members_errors = split_answers(online)
    members_errors = silent | members_errors
    connections = {n: each for n, each in told.items() if each is not None}
    errors = configs_errors | members_errors
    proxies: Mapping[str, str] = {}
    of_proxies = find_proxied_members(client, errors)
    proxied = of_proxies.by_group.get(group)
    errors = {**of_proxies.errors, **errors}
    topics = _topics(client, group, answering, errors)
    errors |= departed_errors_of_group(client, group, addresses)
    if not configs and not connections and not topics and not errors:
        raise not_found("group", group)
    clients = _clients(client, group, connections, addresses)
    reported = list(connections.values())
    if proxied is not None:
        reported.append(proxied[0])
        proxies = proxied[1]
    seen = Members()
    for connection in reported:
        seen.add(connection)
    first = next(iter(reported), None)
    subscriptions = {
        topic: subscription
        for connection in reported
        for topic, subscription in sorted(connection.subscriptions.items())
    }
    return GroupDetail(
        group=group,
        kind=group_kind(group),
        consume_type=None if first is None else first.consume_type,
        message_model=None if first is None else first.message_model,
        consume_from_where=None if first is None else first.consume_from_where,
        configs=configs,
        members=_members(connections, clients)
        + [
            GroupMember(
                connection=member,
                brokers=(),
                proxy=proxies.get(member.client_id),
                reason=PROXY_ONLY,
            )
            for member in (() if proxied is None else proxied[0].connections)
        ],
        subscriptions=[subscriptions[topic] for topic in sorted(subscriptions)],
        topics=sorted(
            topic
            for topic in topics | subscriptions.keys()
            if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
        ),
        mismatches=seen.mismatches(clients),
        errors=errors,
        pop=None if errors else read_pop_lag(client, group),
        configs_errors=configs_errors,
        members_errors=members_errors,
        proxied_errors=dict(of_proxies.errors),
        denial=None if topics else denial_of([*settings.values(), *online.values()]),
        members_denial=None
        if proxied is not None
        else denial_of(members_errors.get(name) for name in addresses),
    )


def _clients(
    client: Client,
    group: str,
    connections: Mapping[str, ConsumerConnection],
    addresses: Mapping[str, str],
) -> dict[str, ClientQueues]:
    """Return what members report about themselves, by client id.

    Each member is asked through a broker that it is connected to.
    """
    at = {
        member.client_id: addresses[broker_name]
        for broker_name, connection in connections.items()
        for member in connection.connections
    }
    answers = client.ask_many(
        {
            client_id: (at[client_id], get_consumer_running_info(group, client_id))
            for client_id in sorted(at)[:_MEMBERS_ASKED_MAX]
            if not is_grpc_client(client_id)
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
    """Return the topics in which the group has committed offsets.

    A lite topic counts as the topic that it is in.
    Brokers of 4.x can only report the offsets of all groups at once.
    """
    old = {n: a for n, a in addresses.items() if client.broker_version(a) < V5_0_0}
    new = with_address(addresses, old)
    answers = ask_each(client, new, query_topics_by_consumer(group))
    lists, errors_of_new = split_answers(answers)
    offsets = ask_each(client, old, get_all_consumer_offset())
    tables, errors_of_old = split_answers(offsets)
    errors |= errors_of_new | errors_of_old
    names = {topic for each in lists.values() for topic in each}
    for table in tables.values():
        names.update(topic for owner, topic in table if owner == group)
    lite = {name: lite_topic_of(name) for name in names}
    return {name if (found := lite[name]) is None else found[0] for name in names}


def _members(
    connections: Mapping[str, ConsumerConnection], clients: Mapping[str, ClientQueues]
) -> list[GroupMember]:
    found: dict[str, Connection] = {}
    brokers: dict[str, list[str]] = {}
    for broker_name, connection in connections.items():
        for member in connection.connections:
            found.setdefault(member.client_id, member)
            brokers.setdefault(member.client_id, []).append(broker_name)
    is_pop = any(each.consume_type == "CONSUME_POP" for each in connections.values())
    return [
        _member(
            found[client_id],
            tuple(brokers[client_id]),
            clients.get(client_id),
            is_pop=is_pop,
        )
        for client_id in sorted(found)
    ]


def _member(
    connection: Connection,
    brokers: tuple[str, ...],
    reported: ClientQueues | None,
    *,
    is_pop: bool,
) -> GroupMember:
    member = GroupMember(connection=connection, brokers=brokers)
    if reported is None:
        reason = f"not asked: only {_MEMBERS_ASKED_MAX} members are"
        if is_grpc_client(connection.client_id):
            reason = PROXY_ONLY
        return replace(member, reason=reason)
    if reported.failure is not None:  # those that receive by POP need not answer
        return replace(member, reason=reported.failure, is_silent=not is_pop)
    started_ms = reported.started_ms
    return replace(member, subscriptions=reported.subscriptions, started_ms=started_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineMember:
    """A member that is connected to a broker, which forwards requests to it."""

    client_id: str
    connection: Connection
    broker_name: str
    address: str


def online_members(
    client: Client, group: str, *, broker_name: str | None = None
) -> tuple[dict[str, OnlineMember], dict[str, RmqError]]:
    """Return the members of a group by client id, each with one broker that has it.

    Also the errors of brokers that did not tell theirs. With `broker_name`, only the
    members that are connected to this broker. Raises the error of a broker when no
    member was found, NoBrokerError when no broker answers, and NotFoundError when the
    group has none.
    """
    addresses = reader_addresses(client.cluster_info().brokers.values())
    if broker_name is not None:
        addresses = {n: a for n, a in addresses.items() if n == broker_name}
    answers = ask_each(client, addresses, get_consumer_connection_list(group))
    found: dict[str, OnlineMember] = {}
    told, errors = split_answers(answers)
    for name, connection in told.items():
        for each in () if connection is None else connection.connections:
            member = OnlineMember(
                client_id=each.client_id,
                connection=each,
                broker_name=name,
                address=addresses[name],
            )
            found.setdefault(each.client_id, member)
    if found:
        return found, errors
    client.raise_if_none_answers(errors.values())
    denial = denial_of(answers.values())
    if denial is not None:
        raise denial
    for name, error in errors.items():
        raise PartialError(
            f"whether group {group} has members is not known: {name}: {error.message}",
            hint=error.hint,
        )
    show_group(client, group)  # raises NotFoundError for a group that does not exist
    raise NotFoundError(
        f"{broker_name or 'no broker'} knows {'no' if broker_name else 'a'} member of"
        f" group {group} that is online",
        code=ResponseCode.CONSUMER_NOT_ONLINE,
        hint=Hint(
            "members of proxies in cluster mode cannot be asked through brokers; they"
            " are listed by: ",
            LibraryCall("Admin.group", group),
        ),
    )


def chosen_member(
    members: Mapping[str, OnlineMember], group: str, client_id: str
) -> OnlineMember:
    """Return the member with this client id. Raises NotFoundError without one."""
    if client_id in members:
        return members[client_id]
    names = listed(sorted(members), _MEMBERS_LISTED)
    raise NotFoundError(
        f"client {client_id} is not a member of group {group}; its members are {names}",
        code=ResponseCode.CONSUMER_NOT_ONLINE,
    )


class GroupSettings(TypedDict, total=False):
    """The settings of a group, as arguments of `Admin.create_group` and `update_group`.

    One that is None or not given keeps its value, or is a new group's default. Source:
    SubscriptionGroupConfig in apache/rocketmq, with the same names.
    """

    consume_enable: bool | None
    consume_from_min_enable: bool | None
    consume_broadcast_enable: bool | None
    consume_message_orderly: bool | None
    retry_queue_nums: int | None
    retry_max_times: int | None
    broker_id: int | None
    which_broker_when_consume_slowly: int | None
    notify_consumer_ids_changed_enable: bool | None
    #: Attributes to set (RocketMQ 5.1.3 and later), such as `lite.bind.topic`.
    attributes: Mapping[str, str] | None
    #: Attributes to remove; a broker then behaves as without them.
    remove_attributes: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """Settings to change: a GroupSettings whose values are checked."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    attributes: Mapping[str, str] | None = field(default=None, hash=False)
    remove_attributes: Collection[str] = ()

    def __post_init__(self) -> None:
        """Raise TypeError or ConfigError for a value that is not possible."""
        check_fields(self, ranges=_RANGES)
        both = sorted({*(self.attributes or {})} & {*self.remove_attributes})
        if both:
            raise ConfigError(f"{both[0]} is among attributes and remove_attributes")

    def __bool__(self) -> bool:
        """Return whether there is a setting to change."""
        return self != GroupChange()

    def applied_to(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Return `config` with the settings of this change."""
        apart = ("attributes", "remove_attributes")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {
            name: value
            for name, value in values.items()
            if value is not None and name not in apart
        }
        attributes = {
            name: value
            for name, value in (config.attributes | dict(self.attributes or {})).items()
            if name not in self.remove_attributes
        }
        return replace(config, **given, attributes=attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What became of a change on one server.

    `result` is `created`, `changed`, `unchanged`, `deleted`, `failed`, or `unknown`
    where an answer was lost, or where a broker did not tell whether it had a group that
    is deleted. `name` is the group, or one of its topics that was deleted with it.
    `config` is the broker's settings of the group after the change; None when the group
    does not exist there or its settings are not known. `address` is None for a broker
    that could not be asked.
    """

    name: str
    server: str
    address: str | None
    result: str
    config: SubscriptionGroupConfig | None = field(default=None, hash=False)
    error: RmqError | None = None


def _differences(known: SubscriptionGroupConfig, change: GroupChange) -> str:
    """Say which settings of `change` a group does not have, and what it has instead."""
    new = change.applied_to(known)
    pairs = [
        (f.name, getattr(known, f.name), getattr(new, f.name)) for f in fields(new)
    ]
    return ", ".join(f"{name} {has}, not {it}" for name, has, it in pairs if has != it)


def create_group(
    client: Client, group: str, masters: Addresses, change: GroupChange
) -> list[GroupResult]:
    """Create `group` on `masters`; return one result for each.

    A broker that already has the group with the settings of `change` is left alone, so
    that a creation that failed on some brokers can be repeated. Where the group exists
    with other settings, the result is `failed`. Raises UnsupportedError, before
    anything is changed, for a setting that a broker does not support.
    """
    configs = _configs(client, group, masters, change)
    new = SubscriptionGroupConfig(group_name=group)
    wanted = {name: new for name, known in configs.items() if known is None}
    failed: dict[str, RmqError] = {}
    for name, known in split_answers(configs)[0].items():
        if known is not None and change.applied_to(known) != known:
            failed[name] = RefusedError(
                f"group {group} exists on {name} with other settings:"
                f" {_differences(known, change)}",
                hint=Hint(
                    "change them with: ", LibraryCall("Admin.update_group", group)
                ),
            )
    before = configs | failed
    return _write(client, group, masters, before, wanted, change, done="created")


def update_group(
    client: Client, group: str, masters: Addresses, change: GroupChange
) -> list[GroupResult]:
    """Change the given settings of `group`; return one result for each of `masters`.

    Other settings keep their values. On a master without the group the result is
    `failed`. Raises NotFoundError when all masters answer and none of them has the
    group, or an attribute to remove, and UnsupportedError as `create_group` does.
    """
    configs = _configs(client, group, masters, change)
    if have_left(known for known in configs.values() if known is not None):
        raise not_found("group", group, hint=_how_to_create(group))
    told, errors = split_answers(configs)
    there = {name: known for name, known in told.items() if known is not None}
    if not errors:
        attributes = [known.attributes for known in there.values()]
        check_removed(f"group {group}", attributes, change.remove_attributes)
    wanted = {
        n: known for n, known in there.items() if change.applied_to(known) != known
    }
    for name in told.keys() - there.keys():
        configs[name] = not_found("group", group, hint=_how_to_create(group))
    return _write(client, group, masters, configs, wanted, change, done="changed")


def read_consume_enable(
    client: Client, group: str, masters: Addresses
) -> dict[str, bool | RmqError | None]:
    """Return whether the group may consume, by master; None where it has no settings.

    Raises NotFoundError when all masters answer and none has the group, RefusedError
    for a system group, and NoBrokerError when no broker answers.
    """
    if group_kind(group) == "system":
        raise RefusedError(f"group {group} is a system group; nothing was changed")
    configs = _configs(client, group, masters, GroupChange())
    if have_left(known for known in configs.values() if known is not None):
        raise not_found("group", group, hint=_how_to_create(group))
    return {
        name: known.consume_enable
        if isinstance(known, SubscriptionGroupConfig)
        else known
        for name, known in configs.items()
    }


def check_may_delete(
    client: Client,
    group: str,
    masters: Addresses,
    *,
    remove_offsets: bool,
    is_forced: bool,
) -> list[str]:
    """Raise unless `group` may be deleted on `masters`; return warnings for the user.

    Raises NotFoundError for an unknown group. Raises RefusedError for a system group,
    for a group with members online unless `is_forced`, and when a broker would create
    the group again. Unless `is_forced`, raises PartialError when it is not known
    whether members are online.
    """
    if group_kind(group) == "system":
        raise RefusedError(f"group {group} is a system group; nothing was deleted")
    detail = show_group(client, group)
    online = [
        member.connection.client_id
        for member in detail.members
        if not member.brokers or masters.keys() & set(member.brokers)
    ]
    if online and not is_forced:
        names = listed(online, _MEMBERS_LISTED)
        raise RefusedError(
            f"group {group} has members online: {names}; nothing was deleted",
            hint=Hint(
                "stop them first, or add ",
                Setting("force", True),
                "; a broker may then create the group again at their next heartbeat",
            ),
        )
    unknown = {n: e for n, e in detail.members_errors.items() if n in masters}
    if detail.members_denial is not None and not is_forced:
        raise detail.members_denial
    for name, error in ({} if is_forced else detail.proxied_errors | unknown).items():
        raise PartialError(
            f"whether group {group} has members online is not known: {name}:"
            f" {error.message}; nothing was deleted",
            hint=Hint("try again, or add ", Setting("force", True)),
        )
    warnings = []
    at = with_address(masters)
    # One that refuses to tell its settings may have the group, and is told to delete it
    refusing = {
        name
        for name, error in detail.configs_errors.items()
        if not isinstance(error, TransportError)
    }
    for name in sorted(at.keys() & (detail.configs.keys() | refusing)):
        version = client.broker_version(at[name])
        shown_version = f"{name} runs RocketMQ {version_name(version)}"
        if version >= V5_0_0 and not remove_offsets:
            raise RefusedError(
                f"{shown_version}, which creates a deleted group again, with default"
                " settings, unless its offsets are removed; nothing was deleted",
                hint=Hint("add ", Setting("remove_offsets", True)),
            )
        if version < V4_9_0 and remove_offsets:
            warnings.append(f"{shown_version}, which keeps the offsets of the group")
    return warnings


def delete_group(
    client: Client, group: str, masters: Addresses, *, remove_offsets: bool
) -> list[GroupResult]:
    """Delete `group` on `masters`; the result is `unchanged` where it did not exist.

    A master that does not answer a question about the group is not changed. Of one that
    refuses to answer it, and confirms the deletion, the result is `unknown`: brokers
    confirm that of groups that they never had.
    """
    configs = _configs(client, group, masters, GroupChange())
    silent = {n: e for n, e in configs.items() if isinstance(e, TransportError)}
    answering = {n: at for n, at in masters.items() if n not in silent}
    call = delete_subscription_group(group, clean_offset=remove_offsets)
    answers = change_each(client, answering, call, look=_how_to_look(group))
    read = ask_each(
        client,
        {
            name: at
            for name, at in answering.items()
            if isinstance(answers[name], ChangeUnknownError | None)
        },
        get_all_subscription_group_config(),
    )
    for name, table in read.items():
        if isinstance(table, RmqError):
            continue  # what the broker answered stands
        if group not in table:
            answers[name] = None
        elif answers[name] is None:
            answers[name] = PartialError(
                f"{name} confirmed the deletion of group {group}, but has it afterwards"
            )
    results = []
    for name in masters:
        error = silent[name] if name in silent else answers[name]
        config = configs[name]
        if error is not None:
            results.append(_result(group, name, masters, error))
        elif isinstance(config, RmqError):
            error = PartialError(
                f"{name} confirmed that it does not have group {group}, but refused to"
                f" tell whether it had it: {config.message}"
            )
            failed = _result(group, name, masters, error)
            results.append(replace(failed, result="unknown"))
        else:
            word = "unchanged" if config is None else "deleted"
            results.append(_result(group, name, masters, word))
    return results


def brokers_with_offsets(
    client: Client, group: str, masters: Addresses
) -> dict[str, bool]:
    """Return the `masters` that have offsets of `group`, and if they can remove them.

    From 4.9.0 on they can, together with the group. Masters that do not answer are left
    out.
    """
    at = with_address(masters)
    return {
        name: client.broker_version(at[name]) >= V4_9_0
        for name, answer in ask_each(client, at, get_all_consumer_offset()).items()
        if not isinstance(answer, RmqError) and any(g == group for g, _ in answer)
    }


def topics_of(client: Client, group: str) -> list[TopicRoute]:
    """Return the routes of the group's retry topic and dead-letter topic that exist."""
    found = []
    for topic in (retry_topic(group), dlq_topic(group)):
        with contextlib.suppress(NotFoundError):
            found.append(client.route(topic, refresh=True))
    return found


def delete_topics_of(client: Client, group: str) -> list[GroupResult]:
    """Delete the group's retry topic and dead-letter topic, with their messages."""
    return [
        GroupResult(
            name=route.topic,
            server=step.server,
            address=step.address,
            result=step.result,
            error=step.error,
        )
        for route in topics_of(client, group)
        for step in delete_topic(client, route)
    ]


def _configs(
    client: Client, group: str, masters: Addresses, change: GroupChange
) -> dict[str, SubscriptionGroupConfig | RmqError | None]:
    """Return the group's settings by master; None where the group does not exist.

    Raises UnsupportedError for a setting of `change` that a broker does not support,
    and NoBrokerError when no broker answers.
    """
    tables = ask_each(client, masters, get_all_subscription_group_config())
    client.raise_if_none_answers(tables.values())
    found: dict[str, SubscriptionGroupConfig | RmqError | None] = {}
    at = with_address(masters)
    for name, table in tables.items():
        if isinstance(table, RmqError):
            found[name] = table
            continue
        found[name] = table.get(group)
        version = client.broker_version(at[name])
        if change.consume_message_orderly is not None and version < V5_0_0:
            raise UnsupportedError(
                f"consumeMessageOrderly: {name} runs RocketMQ"
                f" {version_name(version)}; the request needs"
                f" {version_name(V5_0_0)} or later"
            )
        if (change.attributes or change.remove_attributes) and version < V5_1_3:
            raise UnsupportedError(
                f"attributes of groups: {name} runs RocketMQ {version_name(version)};"
                f" they need {version_name(V5_1_3)} or later"
            )
    return found


def _written(
    known: SubscriptionGroupConfig, change: GroupChange
) -> SubscriptionGroupConfig:
    """Return the settings to write: attributes are changes, the others all are there.

    A broker sets `+name`, removes `-name`, and keeps the attributes that are not named.
    """
    config = change.applied_to(known)
    changed = dict(config.attributes.items() - known.attributes.items())
    removed = known.attributes.keys() - config.attributes.keys()
    return replace(
        config,
        attributes={f"+{name}": value for name, value in changed.items()}
        | {f"-{name}": "" for name in removed},
    )


def _write(
    client: Client,
    group: str,
    masters: Addresses,
    before: Mapping[str, SubscriptionGroupConfig | RmqError | None],
    wanted: Mapping[str, SubscriptionGroupConfig],
    change: GroupChange,
    *,
    done: str,
) -> list[GroupResult]:
    """Change the settings `wanted`, and read them back.

    Returns a result for each master. `before` is what masters have, or the error of one
    that is not changed.
    """
    at = with_address(masters)
    answers = change_many(
        client,
        {
            name: (
                at[name],
                update_and_create_subscription_group(_written(config, change)),
            )
            for name, config in wanted.items()
        },
        look=_how_to_look(group),
    )
    read = ask_each(
        client,
        {
            name: at[name]
            for name, error in answers.items()
            if isinstance(error, ChangeUnknownError | None)
        },
        get_all_subscription_group_config(),
    )
    results = {
        name: _result(group, name, masters, known)
        if isinstance(known, RmqError)
        else _result(group, name, masters, "unchanged", known)
        for name, known in before.items()
        if name not in wanted
    }
    for name, error in answers.items():
        table = read.get(name, {})
        found = None if isinstance(table, RmqError) else table.get(group)
        is_made = found is not None and change.applied_to(found) == found
        if is_made and isinstance(error, ChangeUnknownError):
            error = None
        if error is not None:
            attributes = dict(change.attributes or {})
            error = about_attribute(client, at, name, "group", attributes, error)
        if error is None and isinstance(table, RmqError):
            look = _how_to_look(group)
            error = not_shown(name, f"group {group}", table, look=look)
        if error is None and not is_made:
            error = PartialError(
                f"{name} confirmed the settings of group {group}, but has others"
            )
        config = found if error is None else None
        results[name] = _result(group, name, masters, error or done, config)
    return [results[name] for name in masters]


def _result(
    group: str,
    server: str,
    masters: Addresses,
    result: str | RmqError,
    config: SubscriptionGroupConfig | None = None,
) -> GroupResult:
    """Return the result of a server: a word, or the error that it failed with."""
    error = result if isinstance(result, RmqError) else None
    return GroupResult(
        name=group,
        server=server,
        address=masters[server],
        result=failed_word(result) if isinstance(result, RmqError) else result,
        config=config,
        error=error,
    )


def _how_to_look(group: str) -> str:
    return Hint("see whether it was done: ", LibraryCall("Admin.group", group))


def _how_to_create(group: str) -> str:
    return Hint("create it with: ", LibraryCall("Admin.create_group", group))
