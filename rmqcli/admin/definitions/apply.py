"""Applies planned definitions, and verifies them.

A plan is made again before it is applied: if the second plan differs, nothing is
changed. Brokers of 5.3 and later take many topics in one request, and of 5.3.1 many
groups; to others, requests go in small batches. There is no transaction: changes that
succeeded stay, and applying the same file again makes the missing changes. The result
of each change is what its broker has afterwards, not what it answered.

Source: AdminBrokerProcessor.updateAndCreateTopicList and
updateAndCreateSubscriptionGroupList in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Literal

from rmqcli.admin.definitions.accounts import write_accounts, wrong_passwords
from rmqcli.admin.definitions.compare import DefinitionChange, compare
from rmqcli.admin.definitions.entries import ClusterEntries
from rmqcli.admin.definitions.model import parts_of_rule
from rmqcli.admin.definitions.plan import is_named, plan_from_cluster, read_for
from rmqcli.admin.definitions.requests import BATCH, parts, send
from rmqcli.admin.definitions.settings import changed_group, changed_topic
from rmqcli.admin.topics import (
    NAMESPACE_ORDER_TOPIC_CONFIG,
    fixed_queues_call,
    not_fixed,
)
from rmqcli.api.calls.acl import delete_acl, delete_user
from rmqcli.api.calls.config import (
    create_subscription_groups,
    create_topics,
    delete_subscription_group,
    delete_topic_in_broker,
    put_topic,
    update_and_create_subscription_group,
)
from rmqcli.api.calls.namesrv import delete_topic_in_namesrv, get_all_topic_list
from rmqcli.api.calls.namesrv_config import delete_kv_config, get_kvlist_by_namespace
from rmqcli.api.runner import run_task
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    TransportError,
)
from rmqcli.tasks import Sleep
from rmqcli.wire.version import V4_9_7, V5_3_0, V5_3_1

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.plan import DefinitionsPlan
    from rmqcli.admin.definitions.requests import EntryKey
    from rmqcli.admin.definitions.settings import ConfigT
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig

#: Topics or groups in one request.
_LIST_MAX: Final = 200
_LISTED_POLL_MS: Final = 100
#: How name servers of 5.x refuse to list topics (enableAllTopicList=false).
_NOT_LISTED: Final = "disable"

Result = Literal["created", "changed", "deleted", "skipped", "failed", "unknown"]
_DONE: Final[Mapping[str, Result]] = {
    "create": "created",
    "change": "changed",
    "delete": "deleted",
    "skip": "skipped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionResult:
    """The outcome of a change on brokers, as they were read back.

    `error` says why it failed, was skipped or is unknown; `cause` is the broker's error
    if it had one, and a ChangeUnknownError for what is unknown.
    """

    result: Result
    kind: Kind
    name: str
    brokers: tuple[str, ...]
    error: str | None = None
    cause: RmqError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsResult:
    """The outcome of all changes; `unlisted` are new topics that no name server lists.

    `errors` are those of brokers that did not answer, before or after, and of servers
    by which a deleted topic may still be listed.
    """

    results: tuple[DefinitionResult, ...]
    errors: Mapping[str, RmqError] = field(hash=False)
    unlisted: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the cluster now is as the file says."""
        return not self.errors and all(
            each.result not in ("failed", "skipped", "unknown") for each in self.results
        )


def apply_definitions(client: Client, plan: DefinitionsPlan) -> DefinitionsResult:
    """Carry out a plan, and read back what the brokers have.

    Raises RefusedError when the cluster has changed since the plan was made, and
    PartialError when a name server does not store the fixed queues of an ordered topic;
    no broker is changed in either case. The result reports later failures.
    """
    again, entries = plan_from_cluster(client, plan)
    if _bare(again.changes) != _bare(plan.changes):
        raise RefusedError(
            f"cluster {plan.cluster} has changed since the plan was made: nothing was"
            " changed",
            hint="look at the new plan",
        )
    errors: dict[EntryKey, RmqError] = {}
    if plan.work:
        _fix_orders(client, entries, plan.work)
        errors = _write(client, entries, plan.work)
        errors |= write_accounts(client, entries, plan.work, plan.passwords)
        errors |= _delete(client, entries, plan.work)
    after = _read_back(client, plan) if plan.work else entries
    left = {
        (each.kind, each.name, broker): each
        for each in compare(plan.definitions, after)
        for broker in each.brokers
        if each.action in ("create", "change")
        or (each.action == "extra" and (plan.prune or is_named(plan, each)))
    }
    wrong, unread = wrong_passwords(client, after, plan.work, plan.passwords)
    left |= wrong
    results = merged_results(
        _result(change, broker, errors, left, _hidden(change, broker, after, unread))
        for change in plan.changes
        if change.action != "extra"
        for broker in change.brokers
    )
    topics = [each for each in results if each.kind == "topic"]
    created = {each.name for each in topics if each.result == "created"}
    there = {each.name for each in topics if each.result != "deleted"}
    deleted = {e.name: e.brokers for e in topics if e.name not in there}
    listing = _forget(client, entries, deleted)
    return DefinitionsResult(
        results=tuple(results),
        errors={**plan.errors, **after.errors, **listing},
        unlisted=tuple(sorted(_unlisted(client, created))),
    )


def _read_back(client: Client, plan: DefinitionsPlan) -> ClusterEntries:
    """Return what the cluster has now; nothing but the error when none answers."""
    try:
        return read_for(client, plan)
    except RmqError as error:
        brokers = {name for each in plan.work for name in each.brokers}
        errors = dict.fromkeys(sorted(brokers), error)
        return ClusterEntries(cluster=plan.cluster, brokers={}, errors=errors)


def _bare(changes: Iterable[DefinitionChange]) -> list[DefinitionChange]:
    """Return changes without reasons: these count messages, which may be more now."""
    return [replace(each, reason=None) for each in changes]


def _hidden(
    change: DefinitionChange,
    broker: str,
    after: ClusterEntries,
    unread: Mapping[EntryKey, RmqError],
) -> RmqError | None:
    """Return why a broker does not show what became of a change; None if it does."""
    if (has := after.brokers.get(broker)) is None:
        left = PartialError("it left the cluster")
        return after.errors.get(broker, left)
    key = (change.kind, change.name, broker)
    return has.unknown.get(change.kind) or unread.get(key)


def _result(
    change: DefinitionChange,
    broker: str,
    errors: Mapping[EntryKey, RmqError],
    left: Mapping[EntryKey, DefinitionChange],
    hidden: RmqError | None,
) -> DefinitionResult:
    key = (change.kind, change.name, broker)
    result: Result = _DONE[change.action]
    error = change.reason if change.action == "skip" else None
    cause = errors.get(key)
    is_refused = cause is not None and not isinstance(cause, ChangeUnknownError)
    if change.action != "skip" and hidden is not None and not is_refused:
        why = cause or hidden
        error = f"whether it was {result} is not known: {why.message}"
        cause = ChangeUnknownError(
            f"{change.kind} {change.name} on {broker}: {error}", hint=why.hint
        )
        cause.__cause__ = why
        result = "unknown"
    elif change.action != "skip" and (hidden is not None or key in left):
        result = "unknown" if isinstance(cause, ChangeUnknownError) else "failed"
        error = _failure(cause, left.get(key, change))
    return DefinitionResult(
        result=result,
        kind=change.kind,
        name=change.name,
        brokers=(broker,),
        error=error,
        cause=cause if result in ("failed", "unknown") else None,
    )


def _failure(error: RmqError | None, left: DefinitionChange) -> str:
    if error is not None:
        return error.message
    if left.action == "extra":
        return "the broker still has it"
    if left.action == "create":
        return "the broker does not have it"
    names = ", ".join(each.setting for each in left.settings)
    return f"the broker has another value of {names}"


def merged_results(results: Iterable[DefinitionResult]) -> list[DefinitionResult]:
    """Join results that differ only in their brokers; failures come first."""
    joined: dict[DefinitionResult, list[str]] = {}
    for each in results:
        joined.setdefault(replace(each, brokers=()), []).extend(each.brokers)
    found = [
        replace(each, brokers=tuple(sorted(brokers)))
        for each, brokers in joined.items()
    ]
    order = ("failed", "unknown", "skipped")
    return sorted(
        found, key=lambda each: order.index(each.result) if each.result in order else 9
    )


def _fix_orders(
    client: Client, entries: ClusterEntries, work: Iterable[DefinitionChange]
) -> None:
    """Store the fixed queues of ordered topics in every name server.

    Brokers of 4.x take it from there, when they register, whether a topic is ordered.
    Raises PartialError when a name server does not store it.
    """
    configs: dict[str, dict[str, TopicConfig | RmqError | None]] = {}
    for change in work:
        if change.kind != "topic" or change.action not in ("create", "change"):
            continue
        settings = {each.setting: each.wanted for each in change.settings}
        if "order" not in settings and "write_queue_nums" not in settings:
            continue
        if change.name not in configs:
            configs[change.name] = {
                broker: each.topics.get(change.name)
                for broker, each in entries.brokers.items()
            }
        has = configs[change.name]
        for broker in change.brokers:
            known = entries.brokers[broker].topics.get(change.name)
            has[broker] = changed_topic(change.name, known, settings)
    if not configs:
        return
    lists = get_kvlist_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG)
    listed = run_task(client, client.ask_namesrvs(lists))
    calls = [
        (name, call)
        for name, has in configs.items()
        if (call := fixed_queues_call(name, has, listed.get(name))) is not None
    ]
    servers = {address: address for address in client.config.namesrv}
    failed = send(client, servers, dict.fromkeys(servers, calls), batch=BATCH)
    if failed:
        raise not_fixed(client, {name: listed.get(name) for name, _ in calls}, failed)


def _write(
    client: Client, entries: ClusterEntries, work: Iterable[DefinitionChange]
) -> dict[EntryKey, RmqError]:
    """Create and change topics and groups; return the errors of those that failed."""
    topics: dict[str, dict[str, TopicConfig]] = {}
    groups: dict[str, dict[str, SubscriptionGroupConfig]] = {}
    for change in work:
        if change.action not in ("create", "change") or change.kind in ("user", "rule"):
            continue
        settings = {each.setting: each.wanted for each in change.settings}
        for broker in change.brokers:
            has, name = entries.brokers[broker], change.name
            if change.kind == "topic":
                topic = changed_topic(name, has.topics.get(name), settings)
                topics.setdefault(broker, {})[name] = topic
            else:
                group = changed_group(name, has.groups.get(name), settings)
                groups.setdefault(broker, {})[name] = group
    found = _put(client, entries, topics, put_topic, create_topics, V5_3_0)
    errors: dict[EntryKey, RmqError] = {
        ("topic", name, broker): e for (name, broker), e in found.items()
    }
    found = _put(
        client,
        entries,
        groups,
        update_and_create_subscription_group,
        create_subscription_groups,
        V5_3_1,
    )
    return errors | {("group", name, broker): e for (name, broker), e in found.items()}


def _put(
    client: Client,
    entries: ClusterEntries,
    wanted: Mapping[str, Mapping[str, ConfigT]],
    single: Callable[[ConfigT], Call[None]],
    several: Callable[[Sequence[ConfigT]], Call[None]],
    several_since: int,
) -> dict[tuple[str, str], RmqError]:
    """Send configurations to brokers, as lists to those that take lists."""
    addresses = {name: broker.address for name, broker in entries.brokers.items()}
    lists = {
        broker: [
            (tuple(part), several([configs[name] for name in part]))
            for part in parts(configs, _LIST_MAX)
        ]
        for broker, configs in wanted.items()
        if entries.brokers[broker].version >= several_since and len(configs) > 1
    }
    failed = send(client, addresses, lists, batch=1)
    errors: dict[tuple[str, str], RmqError] = {}
    singles: dict[str, list[tuple[str, Call[None]]]] = {
        broker: [(name, single(config)) for name, config in configs.items()]
        for broker, configs in wanted.items()
        if broker not in lists
    }
    for (names, broker), error in failed.items():
        for name in names:
            if isinstance(error, BrokerError):
                # A broker refuses a whole list for one entry, and may have stored some.
                call = single(wanted[broker][name])
                singles.setdefault(broker, []).append((name, call))
            else:
                errors[name, broker] = error
    return errors | send(client, addresses, singles, batch=BATCH)


def _delete(
    client: Client, entries: ClusterEntries, work: Iterable[DefinitionChange]
) -> dict[EntryKey, RmqError]:
    """Delete entries on brokers; return the errors of those that failed."""
    calls: dict[str, list[tuple[tuple[Kind, str], Call[None]]]] = {}
    rules: dict[str, list[tuple[tuple[Kind, str], Call[None]]]] = {}
    for change in work:
        if change.action != "delete":
            continue
        call = _deletion(change)
        for broker in change.brokers:
            found = rules if change.kind == "rule" else calls
            found.setdefault(broker, []).append(((change.kind, change.name), call))
    addresses = {name: broker.address for name, broker in entries.brokers.items()}
    # A broker reads and writes all rules of a user for each, so only one at a time.
    failures = send(client, addresses, rules, batch=1)
    failures |= send(client, addresses, calls, batch=BATCH)
    return {(kind, name, broker): e for ((kind, name), broker), e in failures.items()}


def _deletion(change: DefinitionChange) -> Call[None]:
    match change.kind:
        case "topic":
            return delete_topic_in_broker(change.name)
        case "group":
            return delete_subscription_group(change.name)
        case "user":
            return delete_user(change.name)
        case "rule":
            subject, resource, policy_type = parts_of_rule(change.name)
            return delete_acl(subject, policy_type=policy_type, resource=resource)


def _forget(
    client: Client, entries: ClusterEntries, topics: Mapping[str, Collection[str]]
) -> dict[str, RmqError]:
    """Delete topics in the name servers; return the errors of servers.

    `topics` has the brokers that were seen not to have each any more: a topic that they
    still have would be hidden. A name server forgets a topic on all brokers, or from
    4.9.7 on those of one cluster, and one of 4.x does not list it in another cluster
    again until a broker's settings change there.
    """
    others = {
        broker
        for name, brokers in client.cluster_info().clusters.items()
        if name != entries.cluster
        for broker in brokers
    }
    can_choose = all(each.version >= V4_9_7 for each in entries.brokers.values())
    errors: dict[str, RmqError] = {}
    servers = {address: address for address in client.config.namesrv}
    orders: list[tuple[str, Call[None]]] = []
    deletions: list[tuple[str, Call[None]]] = []
    for name, deleted_on in topics.items():
        routed = _routed(client, name) if others else set()
        if isinstance(routed, RmqError):
            errors |= dict.fromkeys(servers, _maybe_listed(name, routed))
            continue
        is_elsewhere = not others.isdisjoint(routed)
        if is_elsewhere and not can_choose:
            for server in servers:
                errors[server] = PartialError(
                    f"it still lists topic {name} on {', '.join(sorted(deleted_on))}:"
                    " before 4.9.7 it would forget the topic in other clusters, too"
                )
            continue
        cluster = entries.cluster if is_elsewhere else None
        deletions.append((name, delete_topic_in_namesrv(name, cluster=cluster)))
        if not is_elsewhere:
            orders.append((name, delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, name)))
    # The errors of these do not matter: most topics have no such entry.
    send(client, servers, dict.fromkeys(servers, orders), batch=BATCH)
    failed = send(client, servers, dict.fromkeys(servers, deletions), batch=BATCH)
    for (name, server), error in failed.items():
        errors.setdefault(server, _maybe_listed(name, error))
    return errors


def _maybe_listed(topic: str, error: RmqError) -> PartialError:
    return PartialError(
        f"it may still list topic {topic}: {error.message}", hint=error.hint
    )


def _routed(client: Client, topic: str) -> set[str] | RmqError:
    """Return the brokers on which name servers list a topic."""
    try:
        route = client.route(topic, refresh=True)
    except NotFoundError:
        return set()
    except RmqError as error:
        return error
    return {each.broker_name for each in route.brokers}


def _unlisted(client: Client, topics: set[str]) -> set[str]:
    """Wait until the name server lists all `topics`; return those that it does not."""
    if not topics:
        return set()
    deadline = Deadline(client.clock, client.config.timeout_ms)
    return run_task(client, _await_listed(client, topics, deadline))


def _await_listed(
    client: Client, topics: set[str], deadline: Deadline
) -> Task[set[str]]:
    missing = topics
    while True:
        try:
            listed = yield from client.ask_namesrvs(get_all_topic_list())
            missing = topics - set(listed)
        except BrokerError as error:
            if error.remark == _NOT_LISTED:
                return set()
        except TransportError:
            pass
        if not missing or deadline.is_over():
            return missing
        yield Sleep(min(_LISTED_POLL_MS, deadline.left_ms()))
