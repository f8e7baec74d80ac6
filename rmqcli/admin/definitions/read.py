"""Reads which topics, groups, users and rules the masters of a cluster have.

RocketMQ makes system topics, retry topics, dead letter topics and system groups by
itself, so they are left out. Passwords are not kept when users are read.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import ask_each, denial_of, no_master, with_address
from rmqcli.admin.definitions.entries import BrokerEntries, ClusterEntries
from rmqcli.admin.definitions.model import (
    CUSTOM,
    SECTIONS,
    USER_PREFIX,
    Definition,
    Definitions,
    resource_fault,
    rule_name,
    sorted_definitions,
    user_fault,
)
from rmqcli.admin.definitions.settings import (
    group_settings,
    rule_settings,
    topic_settings,
    user_settings,
)
from rmqcli.admin.lag.memory import departed_errors
from rmqcli.admin.topics import choose_masters, topic_kind
from rmqcli.api.calls.acl import list_acls, list_users
from rmqcli.api.calls.config import (
    get_broker_config,
    get_broker_runtime_info,
    get_subscription_groups,
    get_topic_tables,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import BrokerError, PartialError, RmqError, UnsupportedError
from rmqcli.hint import Argument, Hint
from rmqcli.model import is_system_group
from rmqcli.wire.bodies.config import (
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V5_3_0, version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.settings import Settings
    from rmqcli.api.client import Client
    from rmqcli.wire.bodies.acl import AclInfo, UserInfo


_NO_TOPICS: Final = TopicConfigSerializeWrapper()
_NO_GROUPS: Final = SubscriptionGroupWrapper()
#: Errors of a broker that answers, and does not tell its users and rules.
_REFUSALS: Final = (BrokerError, UnsupportedError)


def export_definitions(
    client: Client, cluster: str | None, kinds: Iterable[Kind]
) -> Definitions:
    """Return the definitions of a cluster, which may be None for the only one.

    Without `kinds` they are of all kinds that its brokers can have. Raises PartialError
    when one of them does not answer, or does not tell its users and rules: what only
    that broker has would be missing without a trace. Raises DeniedError when all of
    them deny access, and the error of one that does not tell a kind of `kinds`.
    """
    named = tuple(kinds)
    kinds = named or tuple(SECTIONS)
    entries, left_out = _read(client, cluster, kinds)
    if (denial := entries.denial) is not None:
        raise denial
    for name, error in entries.errors.items():
        raise PartialError(
            f"{name} did not answer, so nothing was exported: {error.message}",
            hint=error.hint,
        )
    for broker in entries.brokers.values():
        for kind in broker.unknown.keys() & set(named):
            raise broker.unknown[kind]
    for name, error in () if named else _unknown_accounts(entries.brokers.values()):
        raise PartialError(
            f"{name} did not tell its users and rules, so nothing was exported:"
            f" {error.message}",
            hint=Hint("to leave them out, name the others with ", Argument("kinds")),
        )
    return definitions_of(entries, kinds, left_out)


def definitions_of(
    cluster: ClusterEntries, kinds: Iterable[Kind], left_out: Iterable[str] = ()
) -> Definitions:
    """Return the definitions of a cluster, as an export writes them.

    One that is the same on all brokers names none. Kinds of which nothing is known on
    a broker are left out.
    """
    kinds = tuple(
        kind
        for kind in kinds
        if not any(kind in each.unknown for each in cluster.brokers.values())
    )
    found: list[Definition] = []
    for kind in kinds:
        names = {n for broker in cluster.brokers.values() for n in broker.entries[kind]}
        for name in names:
            found += _of_one(cluster, kind, name)
    return Definitions(
        definitions=sorted_definitions(found),
        kinds=kinds,
        cluster=cluster.cluster,
        versions={
            each.broker_name: version_name(each.version)
            for each in cluster.brokers.values()
        },
        left_out=tuple(left_out),
    )


def _of_one(cluster: ClusterEntries, kind: Kind, name: str) -> Iterable[Definition]:
    same: list[tuple[Settings, list[str]]] = []
    for broker_name, broker in sorted(cluster.brokers.items()):
        settings = broker.entries[kind].get(name)
        if settings is None:
            continue
        for known, brokers in same:
            if known == settings:
                brokers.append(broker_name)
                break
        else:
            same.append((settings, [broker_name]))
    for settings, brokers in same:
        is_everywhere = len(brokers) == len(cluster.brokers)
        yield Definition(
            kind=kind,
            name=name,
            settings=settings,
            brokers=None if is_everywhere else tuple(brokers),
        )


def read_cluster(
    client: Client,
    cluster: str | None,
    kinds: Collection[Kind],
    *,
    brokers: Collection[str] = (),
) -> ClusterEntries:
    """Return what the masters of a cluster, or some brokers, have of these kinds.

    Raises NoBrokerError when none of them answers, and the errors of `choose_masters`.
    """
    return _read(client, cluster, kinds, brokers)[0]


def _read(
    client: Client,
    cluster: str | None,
    kinds: Collection[Kind],
    only: Collection[str] = (),
) -> tuple[ClusterEntries, list[str]]:
    masters = choose_masters(client, cluster=cluster, brokers=only)
    info = client.cluster_info()
    if only and cluster is None:
        cluster = info.brokers[min(only)].cluster
    name = next(iter(sorted(info.clusters)), "") if cluster is None else cluster
    errors: dict[str, RmqError] = {
        broker: no_master(broker) for broker, at in masters.items() if at is None
    }
    if not only:
        errors |= departed_errors(client)
    # Any answer has the broker's version, which decides what it can be asked.
    versions = ask_each(client, masters, get_broker_runtime_info())
    errors |= {
        broker: answer
        for broker, answer in versions.items()
        if isinstance(answer, RmqError) and not isinstance(answer, BrokerError)
    }
    answering = with_address(masters, errors)
    has_tables = "topic" in kinds or "group" in kinds
    asked = answering if has_tables else {}
    topics = ask_each(client, asked, get_topic_tables())
    groups = ask_each(client, asked, get_subscription_groups())
    has_accounts = "user" in kinds or "rule" in kinds
    accounts = _accounts(client, answering) if has_accounts else {}
    brokers: dict[str, BrokerEntries] = {}
    left_out: list[str] = []
    for broker, address in answering.items():
        tables = topics.get(broker, _NO_TOPICS)
        wrapper = groups.get(broker, _NO_GROUPS)
        found = accounts.get(broker, Accounts())
        if isinstance(tables, RmqError):
            errors[broker] = tables
            continue
        if isinstance(wrapper, RmqError):
            errors[broker] = wrapper
            continue
        if found.error is not None and not isinstance(found.error, _REFUSALS):
            errors[broker] = found.error
            continue
        brokers[broker] = _entries(client, broker, address, tables, wrapper, found)
        static = tables.topic_queue_mapping_detail_map
        left_out += [f"on {broker}, static topic {each}" for each in sorted(static)]
        left_out += _forbidden(broker, wrapper)
        left_out += [f"on {broker}, {each}" for each in found.left_out]
    client.raise_if_none_answers(errors.values() if not brokers else ())
    if any(each.entries["user"] for each in brokers.values()) and "user" in kinds:
        left_out.append("passwords of users")
    denial = denial_of(errors.get(name) for name in masters) if not brokers else None
    return ClusterEntries(
        cluster=name, brokers=brokers, errors=errors, denial=denial
    ), left_out


def _unknown_accounts(
    brokers: Collection[BrokerEntries],
) -> Iterator[tuple[str, RmqError]]:
    """Yield the brokers whose users and rules are not known, if there may be any.

    There are none on a broker without access control, or before 5.3; but where another
    broker of the cluster has some, the file would have none.
    """
    has_some = any(not each.unknown and each.entries["user"] for each in brokers)
    for each in brokers:
        for error in each.unknown.values():
            if has_some or not isinstance(error, UnsupportedError):
                yield each.broker_name, error


def _entries(
    client: Client,
    name: str,
    address: str,
    tables: TopicConfigSerializeWrapper,
    wrapper: SubscriptionGroupWrapper,
    accounts: Accounts,
) -> BrokerEntries:
    """Return what a broker told as its entries, without those that are left out."""
    info, version = client.cluster_info(), client.broker_version(address)
    static = tables.topic_queue_mapping_detail_map
    topics = {
        topic: config
        for topic, config in tables.topic_config_table.items()
        if topic not in static and topic_kind(topic, info) == "normal"
    }
    groups = {
        group: config
        for group, config in wrapper.subscription_group_table.items()
        if not is_system_group(group)
    }
    error = accounts.error
    return BrokerEntries(
        broker_name=name,
        address=address,
        version=version,
        entries={
            "topic": {n: topic_settings(c, version) for n, c in topics.items()},
            "group": {n: group_settings(c, version) for n, c in groups.items()},
            "user": accounts.users,
            "rule": accounts.rules,
        },
        unknown={} if error is None else {"user": error, "rule": error},
        topics=topics,
        groups=groups,
        static=frozenset(static),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The users and rules of a broker; `error` says why they are not known."""

    users: Mapping[str, Settings] = field(default_factory=dict, hash=False)
    rules: Mapping[str, Settings] = field(default_factory=dict, hash=False)
    left_out: tuple[str, ...] = ()
    error: RmqError | None = None


def _accounts(client: Client, masters: Mapping[str, str]) -> dict[str, Accounts]:
    """Return the users and rules of brokers whose versions are known."""
    found: dict[str, Accounts] = {}
    for name, address in masters.items():
        version = client.broker_version(address)
        if version < V5_3_0:
            error = UnsupportedError(
                f"access control 2.0 needs RocketMQ {version_name(V5_3_0)}, and {name}"
                f" has {version_name(version)}"
            )
            found[name] = Accounts(error=error)
    asked = {name: at for name, at in masters.items() if name not in found}
    users = ask_each(client, asked, list_users())
    acls = ask_each(client, asked, list_acls())
    for name, address in asked.items():
        listed, rules = users[name], acls[name]
        failed = listed if isinstance(listed, RmqError) else rules
        if isinstance(failed, RmqError):
            found[name] = Accounts(error=_why(client, address, failed))
        elif not isinstance(listed, RmqError) and not isinstance(rules, RmqError):
            found[name] = accounts_of(listed, rules)
    return found


def _why(client: Client, address: str, error: RmqError) -> RmqError:
    """Return a better error for a broker that has no users, because ACL is off.

    It answers a system error, without a reason.
    """
    if not isinstance(error, BrokerError) or error.code != ResponseCode.SYSTEM_ERROR:
        return error
    try:
        settings = client.invoke(address, get_broker_config())
    except RmqError:
        return error
    if settings.get("authenticationMetadataProvider"):
        return error
    return UnsupportedError(
        "access control is off: authenticationMetadataProvider is not set"
    )


def accounts_of(users: Iterable[UserInfo], acls: Iterable[AclInfo]) -> Accounts:
    """Return users and rules by name; those whose names no file has are named. Pure."""
    known: dict[str, Settings] = {}
    rules: dict[str, Settings] = {}
    left_out: list[str] = []
    for user in users:
        if user_fault(user.username) is None:
            known[user.username] = user_settings(user)
        else:
            left_out.append(f"user {user.username!r}, because of its name")
    for acl in acls:
        name = acl.subject.removeprefix(USER_PREFIX)
        is_user = acl.subject.startswith(USER_PREFIX) and user_fault(name) is None
        for policy in acl.policies:
            for entry in policy.entries:
                kind = policy.policy_type or CUSTOM
                if not is_user or resource_fault(entry.resource) is not None:
                    left_out.append(
                        f"the rule of {acl.subject!r} for {entry.resource!r}, because"
                        " of its name"
                    )
                else:
                    key = rule_name(name, entry.resource, kind)
                    rules[key] = rule_settings(entry)
    return Accounts(users=known, rules=rules, left_out=tuple(left_out))


def _forbidden(broker_name: str, wrapper: SubscriptionGroupWrapper) -> list[str]:
    """Say which groups may not read a topic, which no file has."""
    return [
        f"on {broker_name}, group {group} may not read topic {topic}"
        for group, topics in sorted((wrapper.forbidden_table or {}).items())
        for topic, bits in sorted(topics.items())
        if bits
    ]
