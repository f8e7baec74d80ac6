"""Plans, applies and verifies definitions.

A plan is made from what the brokers have, and made again before it is applied: if it is
another one then, nothing is changed. Brokers of 5.3 and later take many topics in one
request, and of 5.3.1 many groups; to others, requests go in small batches. There is no
transaction: changes that succeeded stay, and applying the same file again does the
rest. The result of each change is what its broker has afterwards, not what it answered.

Source: AdminBrokerProcessor.updateAndCreateTopicList and
updateAndCreateSubscriptionGroupList in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from rmqcli.admin.brokers import ask_many, lost_answer, split_answers
from rmqcli.admin.definitions.compare import (
    ClusterEntries,
    DefinitionChange,
    SettingDifference,
    compare,
    merged,
)
from rmqcli.admin.definitions.model import USER_PREFIX, parts_of_rule
from rmqcli.admin.definitions.read import read_cluster
from rmqcli.admin.definitions.settings import (
    RULE_SETTINGS,
    changed_group,
    changed_topic,
)
from rmqcli.admin.lag.proxied import find_proxied_members
from rmqcli.admin.topics import (
    NAMESPACE_ORDER_TOPIC_CONFIG,
    RemovedQueues,
    fixed_queues_call,
    not_fixed,
    removed_queues,
)
from rmqcli.api.calls.acl import (
    create_user,
    delete_acl,
    delete_user,
    get_user_with_password,
    put_acl,
    update_user,
)
from rmqcli.api.calls.config import (
    create_subscription_groups,
    create_topics,
    delete_subscription_group,
    delete_topic_in_broker,
    put_topic,
    update_and_create_subscription_group,
)
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.namesrv import delete_topic_in_namesrv, get_all_topic_list
from rmqcli.api.calls.namesrv_config import delete_kv_config, get_kvlist_by_namespace
from rmqcli.api.calls.stats import get_topic_stats_info
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
from rmqcli.hint import Hint, Setting
from rmqcli.tasks import Sleep
from rmqcli.units import counted
from rmqcli.wire.bodies.acl import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserWithPassword,
)
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.version import V4_9_7, V5_3_0, V5_3_1

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from rmqcli.admin.definitions.model import Definitions, Kind
    from rmqcli.admin.definitions.settings import Settings, Value
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError
    from rmqcli.tasks import Task

#: Topics or groups in one request.
_LIST_MAX: Final = 200
#: Requests that a broker has at a time.
_BATCH: Final = 32
_LISTED_POLL_MS: Final = 100
#: How name servers of 5.x refuse to list topics (enableAllTopicList=false).
_NOT_LISTED: Final = "disable"

PlanMode = Literal["create", "change"]
Result = Literal["created", "changed", "deleted", "skipped", "failed", "unknown"]
_DONE: Final[Mapping[str, Result]] = {
    "create": "created",
    "change": "changed",
    "delete": "deleted",
    "skip": "skipped",
}
ConfigT = TypeVar("ConfigT", TopicConfig, SubscriptionGroupConfig)
NameT = TypeVar("NameT")
T = TypeVar("T")
#: kind, name, broker
_Key = tuple["Kind", str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsPlan:
    """What applying definitions to a cluster would change; nothing is changed yet.

    `changes` also has what is skipped, with the reason, and what only the cluster has
    (`extra`). With `brokers`, only these are meant. `errors` are those of brokers that
    did not answer: nothing is planned there. `denial` is the error if all brokers
    denied access.
    """

    definitions: Definitions = field(hash=False)
    cluster: str
    brokers: tuple[str, ...] = ()
    prune: bool = False
    changes: tuple[DefinitionChange, ...] = ()
    errors: Mapping[str, RmqError] = field(default_factory=dict, hash=False)
    denial: DeniedError | None = None
    #: What else is deleted, if the definitions do not have it.
    deletions: tuple[tuple[Kind, str], ...] = ()
    #: None to plan for all entries, or only what creates or only what changes some.
    mode: PlanMode | None = None
    #: Whether what only the cluster has is left out of `changes`.
    is_partial: bool = False
    #: of users, by name
    passwords: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def work(self) -> list[DefinitionChange]:
        """What is to be done: without what is skipped, and what is extra."""
        return [each for each in self.changes if each.action not in ("skip", "extra")]


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


def plan_definitions(
    client: Client,
    definitions: Definitions,
    *,
    cluster: str | None = None,
    brokers: Collection[str] = (),
    prune: bool = False,
    passwords: Mapping[str, str] | None = None,
) -> DefinitionsPlan:
    """Compare `definitions` with a cluster, or with some brokers, and plan the changes.

    With `prune`, what only the cluster has is deleted; groups with members online and
    super users are not. `passwords` are those that users get, by name. Raises
    RefusedError with `prune` when a broker does not answer.
    """
    return complete_plan(
        client,
        DefinitionsPlan(
            definitions=definitions,
            cluster=cluster or "",
            brokers=tuple(sorted(brokers)),
            prune=prune,
            passwords=passwords or {},
        ),
    )


def complete_plan(client: Client, plan: DefinitionsPlan) -> DefinitionsPlan:
    """Return a plan, which says what is wanted, with the changes that this takes."""
    return _plan(client, plan)[0]


def _plan(
    client: Client, plan: DefinitionsPlan
) -> tuple[DefinitionsPlan, ClusterEntries]:
    """Return the plan with its changes, and what they were compared with."""
    entries = _read_for(client, plan)
    if plan.prune:
        if entries.denial is not None:
            raise entries.denial
        for name, error in entries.errors.items():
            raise RefusedError(
                f"{name} did not answer, so nothing is deleted: {error.message}",
                hint=Hint("try again later, or ", Setting("prune", None)),
            )
    changes = compare(plan.definitions, entries)
    if plan.prune:
        changes = merged(_deletions(client, entries, changes))
    changes = [
        replace(each, action="delete") if _is_named(plan, each) else each
        for each in changes
        if each.action != "extra" or not plan.is_partial or _is_named(plan, each)
    ]
    changes = merged(_possible_accounts(client, plan, entries, changes))
    changes = _with_losses(client, entries, changes)
    planned = replace(
        plan,
        cluster=entries.cluster,
        changes=tuple(changes),
        errors=entries.errors,
        denial=entries.denial,
    )
    return planned, entries


def _is_named(plan: DefinitionsPlan, change: DefinitionChange) -> bool:
    """Whether a plan deletes this entry by its name."""
    return change.action == "extra" and (change.kind, change.name) in plan.deletions


def _read_for(client: Client, plan: DefinitionsPlan) -> ClusterEntries:
    return read_cluster(
        client, plan.cluster or None, plan.definitions.kinds, brokers=plan.brokers
    )


def _deletions(
    client: Client, entries: ClusterEntries, changes: Iterable[DefinitionChange]
) -> Iterable[DefinitionChange]:
    """Turn what is extra into deletions, or into what is skipped."""
    changes = list(changes)
    asked = {
        (each.name, broker): (
            entries.brokers[broker].address,
            get_consumer_connection_list(each.name),
        )
        for each in changes
        if each.action == "extra" and each.kind == "group"
        for broker in each.brokers
    }
    members: dict[str, str] = {}
    if asked:
        proxied = find_proxied_members(client, entries.errors)
        for group, _ in asked:
            if group in proxied.by_group:
                count = len(proxied.by_group[group][0].connections)
                members[group] = f"{counted(count, 'member')} behind proxies online"
            elif proxied.unknown_because is not None:
                members[group] = proxied.unknown_because
    for part in _parts(asked.items(), _BATCH):
        for (group, broker), answer in ask_many(client, dict(part)).items():
            if isinstance(answer, RmqError):
                members[group] = f"{broker} did not tell its members: {answer.message}"
            elif answer is not None and answer.connections:
                members[group] = f"{counted(len(answer.connections), 'member')} online"
    for each in changes:
        if each.action != "extra":
            yield each
        elif each.reason is not None:
            yield replace(each, action="skip")
        elif each.kind == "group" and each.name in members:
            yield replace(each, action="skip", reason=members[each.name])
        else:
            yield replace(each, action="delete")


def _possible_accounts(
    client: Client,
    plan: DefinitionsPlan,
    entries: ClusterEntries,
    changes: Iterable[DefinitionChange],
) -> Iterable[DefinitionChange]:
    """Yield the changes, with passwords, and what cannot be done as skipped."""
    changes = list(changes)
    for change in changes:
        for broker in change.brokers:
            reason = None
            if change.kind in ("user", "rule") and change.action != "skip":
                reason = _account_fault(client, plan, entries, change, broker)
            if reason is not None and change.action != "extra":
                yield replace(change, action="skip", brokers=(broker,), reason=reason)
            else:
                yield replace(change, brokers=(broker,))
    new_password = SettingDifference(setting="password", now=None, wanted="(new)")
    for name, broker in _other_passwords(client, entries, plan.passwords):
        yield DefinitionChange(
            action="skip" if plan.mode == "create" else "change",
            kind="user",
            name=name,
            brokers=(broker,),
            settings=(new_password,),
            reason="it exists with another password" if plan.mode == "create" else None,
        )


def _other_passwords(
    client: Client, entries: ClusterEntries, passwords: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the users, and brokers, that have another password than is wanted.

    Raises the error of a broker that does not tell.
    """
    asked = {
        (name, broker): (has.address, get_user_with_password(name))
        for name in passwords
        for broker, has in entries.brokers.items()
        if name in has.entries.get("user", {})
    }
    answers = ask_many(client, asked)
    told, errors = split_answers(answers)
    for error in errors.values():
        raise error
    return [
        (name, broker)
        for (name, broker), user in told.items()
        if user is None or user.password != passwords[name]
    ]


def _account_fault(
    client: Client,
    plan: DefinitionsPlan,
    entries: ClusterEntries,
    change: DefinitionChange,
    broker: str,
) -> str | None:
    """Return why a change of a user or a rule is not possible on a broker, or None."""
    if plan.mode == "create" and change.action == "change":
        return "it exists with other settings"
    if plan.mode == "change" and change.action == "create":
        return f"there is no {change.kind} {change.name}"
    users = entries.brokers[broker].entries["user"]
    wanted = {each.setting: each.wanted for each in change.settings}
    credentials = client.config.credentials
    if change.kind == "rule":
        name = parts_of_rule(change.name)[0].removeprefix(USER_PREFIX)
        created = {
            each.name
            for each in plan.definitions.definitions
            if each.kind == "user" and each.name in plan.passwords
        }
        if change.action != "delete" and name not in users and name not in created:
            return f"there is no user {name}"
        return None
    if change.action == "create" and change.name not in plan.passwords:
        return "a new user needs a password, and files have none"
    is_super = users.get(change.name, {}).get("user_type") == "Super"
    if change.action == "delete" and is_super and plan.prune:
        return "super users are not deleted with others"
    is_weaker = (
        change.action == "delete"
        or wanted.get("user_status") == "disable"
        or wanted.get("user_type") == "Normal"
    )
    is_own = credentials is not None and credentials.access_key == change.name
    if is_weaker and is_own and change.action != "create":
        return "this command uses its credentials"
    return None


def _with_losses(
    client: Client, entries: ClusterEntries, changes: Sequence[DefinitionChange]
) -> list[DefinitionChange]:
    """Say which messages and offsets are lost by deletions and by fewer queues."""
    kept = {index: _queues_kept(each) for index, each in enumerate(changes)}
    asked = {
        (index, broker): (
            entries.brokers[broker].address,
            get_topic_stats_info(changes[index].name),
        )
        for index, count in kept.items()
        if count is not None
        for broker in changes[index].brokers
    }
    lost: dict[int, list[RemovedQueues]] = {}
    for part in _parts(asked.items(), _BATCH):
        for (index, broker), answer in ask_many(client, dict(part)).items():
            config = entries.brokers[broker].topics[changes[index].name]
            removed = removed_queues(broker, kept[index] or 0, config, answer)
            lost.setdefault(index, []).append(removed)
    return [
        replace(each, reason=_loss(each, lost.get(index, [])) or each.reason)
        for index, each in enumerate(changes)
    ]


def _queues_kept(change: DefinitionChange) -> int | None:
    """Return how many queues remain readable; None if none is removed."""
    if change.action == "delete" and change.kind == "topic":
        return 0
    for each in change.settings:
        if change.action == "change" and each.setting == "read_queue_nums":
            now, wanted = each.now, each.wanted
            if isinstance(now, int) and isinstance(wanted, int) and wanted < now:
                return wanted
    return None


def _loss(change: DefinitionChange, lost: Sequence[RemovedQueues]) -> str | None:
    removed = [each for each in lost if each.messages != 0]
    if change.action == "delete":
        if change.kind != "topic":
            return {"group": "with its offsets", "user": "with its rules"}.get(
                change.kind
            )
        if any(each.messages is None for each in removed):
            return "with an unknown number of messages"
        count = sum(each.messages or 0 for each in removed)
        return f"with {counted(count, 'message')}"
    if removed:
        return f"consumers can no longer read {'; '.join(map(str, removed))}"
    return None


def apply_definitions(client: Client, plan: DefinitionsPlan) -> DefinitionsResult:
    """Carry out a plan, and read back what the brokers have.

    Raises RefusedError when the cluster has changed since the plan was made, and
    PartialError when a name server does not store the fixed queues of an ordered topic;
    no broker is changed in either case. The result reports later failures.
    """
    again, entries = _plan(client, plan)
    if _bare(again.changes) != _bare(plan.changes):
        raise RefusedError(
            f"cluster {plan.cluster} has changed since the plan was made: nothing was"
            " changed",
            hint="look at the new plan",
        )
    errors: dict[_Key, RmqError] = {}
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
        or (each.action == "extra" and (plan.prune or _is_named(plan, each)))
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
        return _read_for(client, plan)
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
    unread: Mapping[_Key, RmqError],
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
    errors: Mapping[_Key, RmqError],
    left: Mapping[_Key, DefinitionChange],
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


def _write(
    client: Client, entries: ClusterEntries, work: Iterable[DefinitionChange]
) -> dict[_Key, RmqError]:
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
    errors: dict[_Key, RmqError] = {
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
            for part in _parts(configs, _LIST_MAX)
        ]
        for broker, configs in wanted.items()
        if entries.brokers[broker].version >= several_since and len(configs) > 1
    }
    failed = _send(client, addresses, lists, batch=1)
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
    return errors | _send(client, addresses, singles, batch=_BATCH)


def _send(
    client: Client,
    addresses: Mapping[str, str],
    calls: Mapping[str, Sequence[tuple[NameT, Call[None]]]],
    *,
    batch: int,
) -> dict[tuple[NameT, str], RmqError]:
    """Send each server its calls, `batch` at a time; return the errors.

    A server that does not answer gets no further calls.
    """
    errors: dict[tuple[NameT, str], RmqError] = {}
    silent: dict[str, RmqError] = {}
    rounds = max((len(each) for each in calls.values()), default=0)
    for start in range(0, rounds, batch):
        questions = {}
        for server, all_of_it in calls.items():
            for name, call in all_of_it[start : start + batch]:
                if server in silent:
                    errors[name, server] = silent[server]
                else:
                    questions[name, server] = (addresses[server], call)
        for (name, server), answer in ask_many(client, questions).items():
            if answer is None:
                continue
            errors[name, server] = lost_answer(answer)
            if not isinstance(answer, BrokerError):
                silent[server] = answer
    return errors


def _delete(
    client: Client, entries: ClusterEntries, work: Iterable[DefinitionChange]
) -> dict[_Key, RmqError]:
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
    failures = _send(client, addresses, rules, batch=1)
    failures |= _send(client, addresses, calls, batch=_BATCH)
    return {(kind, name, broker): e for ((kind, name), broker), e in failures.items()}


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
    _send(client, servers, dict.fromkeys(servers, orders), batch=_BATCH)
    failed = _send(client, servers, dict.fromkeys(servers, deletions), batch=_BATCH)
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


def write_accounts(
    client: Client,
    entries: ClusterEntries,
    work: Iterable[DefinitionChange],
    passwords: Mapping[str, str],
) -> dict[_Key, RmqError]:
    """Create and change users, and then rules; return the errors of what failed."""
    users: dict[str, list[tuple[str, Call[None]]]] = {}
    rules: dict[tuple[str, str], dict[str, DefinitionChange]] = {}
    for change in work:
        if change.action not in ("create", "change"):
            continue
        for broker in change.brokers:
            if change.kind == "user":
                call = _user_call(change, passwords)
                users.setdefault(broker, []).append((change.name, call))
            elif change.kind == "rule":
                key = (broker, parts_of_rule(change.name)[0])
                rules.setdefault(key, {})[change.name] = change
    addresses = {name: broker.address for name, broker in entries.brokers.items()}
    failed = _send(client, addresses, users, batch=_BATCH)
    errors: dict[_Key, RmqError] = {
        ("user", name, broker): error for (name, broker), error in failed.items()
    }
    calls: dict[str, list[tuple[tuple[str, ...], Call[None]]]] = {}
    for (broker, subject), changes in rules.items():
        known = entries.brokers[broker].entries["rule"]
        call = put_acl(_acl_of(subject, changes, known))
        calls.setdefault(broker, []).append((tuple(changes), call))
    for (names, broker), error in _send(client, addresses, calls, batch=_BATCH).items():
        errors |= {("rule", name, broker): error for name in names}
    return errors


def _user_call(change: DefinitionChange, passwords: Mapping[str, str]) -> Call[None]:
    wanted = {each.setting: each.wanted for each in change.settings}
    user = UserWithPassword(
        username=change.name,
        password=passwords.get(change.name)
        if change.action == "create" or "password" in wanted
        else None,
        user_type=_text(wanted.get("user_type")),
        user_status=_text(wanted.get("user_status")),
    )
    return create_user(user) if change.action == "create" else update_user(user)


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _acl_of(
    subject: str,
    changes: Mapping[str, DefinitionChange],
    known: Mapping[str, Settings],
) -> AclInfo:
    """Return the rules to write: whole ones, because a broker replaces each."""
    entries: dict[str, list[PolicyEntryInfo]] = {}
    for name, change in changes.items():
        _, resource, policy_type = parts_of_rule(name)
        values = {rule: each.default for rule, each in RULE_SETTINGS.items()}
        values |= dict(known.get(name, {}))
        values |= {each.setting: each.wanted for each in change.settings}
        actions, sources = values["actions"], values["source_ips"]
        entry = PolicyEntryInfo(
            resource=resource,
            actions=list(map(str, actions)) if isinstance(actions, list) else [],
            source_ips=list(map(str, sources))
            if isinstance(sources, list) and sources
            else None,
            decision=str(values["decision"]),
        )
        entries.setdefault(policy_type, []).append(entry)
    return AclInfo(
        subject=subject,
        policies=[
            PolicyInfo(policy_type=policy_type, entries=found)
            for policy_type, found in entries.items()
        ],
    )


def wrong_passwords(
    client: Client,
    after: ClusterEntries,
    work: Iterable[DefinitionChange],
    passwords: Mapping[str, str],
) -> tuple[dict[_Key, DefinitionChange], dict[_Key, RmqError]]:
    """Return the changes of users who do not have their new password.

    And the errors of brokers that do not show whether a user has it.
    """
    asked = {
        (change.name, broker): (change, after.brokers[broker].address)
        for change in work
        if change.kind == "user" and change.name in passwords
        for broker in change.brokers
        if broker in after.brokers and change.action in ("create", "change")
    }
    answers = ask_many(
        client,
        {
            key: (address, get_user_with_password(key[0]))
            for key, (_, address) in asked.items()
        },
    )
    told, errors = split_answers(answers)
    wrong: dict[_Key, DefinitionChange] = {
        ("user", *key): asked[key][0]
        for key, user in told.items()
        if user is None or user.password != passwords[key[0]]
    }
    return wrong, {("user", *key): error for key, error in errors.items()}


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
    failed = _send(client, servers, dict.fromkeys(servers, calls), batch=_BATCH)
    if failed:
        raise not_fixed(client, {name: listed.get(name) for name, _ in calls}, failed)


def _unlisted(client: Client, topics: set[str]) -> set[str]:
    """Wait until the name server lists all `topics`; return those that it does not."""
    if not topics:
        return set()
    deadline = Deadline(client.clock, client.config.timeout_ms)
    return run_task(client, _await_listed(client, topics, deadline))


def _parts(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


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
