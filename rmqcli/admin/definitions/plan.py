"""Plans what applying definitions to a cluster changes; changes nothing.

A plan has what brokers cannot do as skipped, and with each deletion what it loses.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from rmqcli.admin.definitions.accounts import possible_accounts
from rmqcli.admin.definitions.compare import (
    DefinitionChange,
    compare,
    merged,
)
from rmqcli.admin.definitions.read import read_cluster
from rmqcli.admin.definitions.requests import BATCH, parts
from rmqcli.admin.lag.proxied import find_proxied_members
from rmqcli.admin.topics import RemovedQueues, removed_queues
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError, RmqError
from rmqcli.hint import Hint, Setting
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.definitions.entries import ClusterEntries
    from rmqcli.admin.definitions.model import Definitions, Kind
    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError

PlanMode = Literal["create", "change"]


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
    #: Entries to delete even without `prune`; one that `definitions` has is kept.
    deletions: tuple[tuple[Kind, str], ...] = ()
    #: `create` skips users and rules that exist with other settings or another
    #: password, `change` those that do not exist; None allows both. Topics and groups
    #: are not affected.
    mode: PlanMode | None = None
    #: Whether what only the cluster has is left out of `changes`.
    leaves_out_extra: bool = False
    #: of users, by name
    passwords: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def work(self) -> list[DefinitionChange]:
        """What is to be done: without what is skipped, and what is extra."""
        return [each for each in self.changes if each.action not in ("skip", "extra")]


def plan_definitions(
    client: Client,
    definitions: Definitions,
    *,
    cluster: str | None = None,
    prune: bool = False,
) -> DefinitionsPlan:
    """Compare `definitions` with a cluster, and plan the changes.

    With `prune`, what only the cluster has is deleted; groups with members online and
    super users are not. Then RefusedError is raised when a broker does not answer, and
    DeniedError when all brokers deny access.
    """
    plan = DefinitionsPlan(definitions=definitions, cluster=cluster or "", prune=prune)
    return complete_plan(client, plan)


def complete_plan(client: Client, plan: DefinitionsPlan) -> DefinitionsPlan:
    """Return `plan` with `changes` filled in from what the cluster has now.

    Raises the error of a broker that does not tell the password of a user of the plan.
    """
    return plan_from_cluster(client, plan)[0]


def plan_from_cluster(
    client: Client, plan: DefinitionsPlan
) -> tuple[DefinitionsPlan, ClusterEntries]:
    """Return the plan with its changes, and what they were compared with."""
    entries = read_for(client, plan)
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
        replace(each, action="delete") if is_named(plan, each) else each
        for each in changes
        if each.action != "extra" or not plan.leaves_out_extra or is_named(plan, each)
    ]
    changes = merged(possible_accounts(client, plan, entries, changes))
    changes = _with_losses(client, entries, changes)
    planned = replace(
        plan,
        cluster=entries.cluster,
        changes=tuple(changes),
        errors=entries.errors,
        denial=entries.denial,
    )
    return planned, entries


def is_named(plan: DefinitionsPlan, change: DefinitionChange) -> bool:
    """Whether a plan deletes this entry by its name."""
    return change.action == "extra" and (change.kind, change.name) in plan.deletions


def read_for(client: Client, plan: DefinitionsPlan) -> ClusterEntries:
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
    for part in parts(asked.items(), BATCH):
        for (group, broker), answer in client.ask_many(dict(part)).items():
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
    for part in parts(asked.items(), BATCH):
        for (index, broker), answer in client.ask_many(dict(part)).items():
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
