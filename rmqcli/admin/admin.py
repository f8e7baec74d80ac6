"""`Admin`: what the administrative commands of `rmq` do, as a library.

```python
from rmqcli import Admin

with Admin(namesrv="127.0.0.1:9876") as admin:
    print(admin.lag("billing").total_lag)
    planned = admin.plan_reset("billing", "orders", to="-1h")
    admin.apply_reset(planned)
```

Each method is a thin layer over the functions that the command of that subject uses,
and returns the same values. Nothing here prints or prompts the user. No thread is
started: methods do their I/O in the caller's thread, one call at a time.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, Unpack

from rmqcli.admin import brokers as brokers_admin
from rmqcli.admin import clean
from rmqcli.admin import groups as groups_admin
from rmqcli.admin import topics as topics_admin
from rmqcli.admin.delayed import find_delayed
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.memory import (
    check_complete,
    check_departed,
    open_memory,
    untold_errors,
)
from rmqcli.admin.lag.model import LagList, compute_lag
from rmqcli.admin.message.find import (
    find_by_index,
    find_message,
    find_messages,
    find_past,
)
from rmqcli.admin.message.place import set_removed_aside
from rmqcli.admin.positions import check_groups, resolve_ranges, warn_of_unsorted
from rmqcli.admin.recall import RecallPlan, apply_recall, plan_recall
from rmqcli.admin.resend import ResendPlan, apply_resend, plan_resend
from rmqcli.admin.witness import ANOTHER, Witness, first_witness, read_witnesses
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.client import Client
from rmqcli.checked import (
    check_callback,
    check_int,
    check_returned,
    check_type,
    checks_arguments,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import client_config
from rmqcli.dataclass import dataclass
from rmqcli.engine.message import (
    Origin,
    PulledMessage,
    UndecodableMessage,
    decode_pulled,
)
from rmqcli.errors import (
    ChangeUnknownError,
    ConfigError,
    DecodeError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.hint import Hint, Setting
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.names import check_group, check_member_group, check_topic
from rmqcli.position import Position, position_of
from rmqcli.process.end import StartedInBlock
from rmqcli.queue_selector import select_queues, selectors_of
from rmqcli.trace.setting import TRACE_TOPIC
from rmqcli.units import counted, format_duration
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.subscription import parse_subscription, parse_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from rmqcli.admin.acl import AclDecision, AclEntries
    from rmqcli.admin.brokers import BrokerDetail, BrokerRow
    from rmqcli.admin.clean import CleanStep
    from rmqcli.admin.cluster import ClusterSummary
    from rmqcli.admin.definitions.apply import DefinitionsResult
    from rmqcli.admin.definitions.model import Definitions, Kind
    from rmqcli.admin.definitions.plan import DefinitionsPlan
    from rmqcli.admin.delayed import DelayedMessages
    from rmqcli.admin.dlq.listing import LetterList
    from rmqcli.admin.dlq.read import DeadLetters
    from rmqcli.admin.dlq.retries import WaitingMessages
    from rmqcli.admin.doctor.model import Diagnosis
    from rmqcli.admin.drain import DrainPlan, DrainProgress, DrainStep
    from rmqcli.admin.groups import GroupDetail, GroupList, GroupResult, GroupSettings
    from rmqcli.admin.kv import KVResult, KVValues
    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.admin.message.find import FoundMessages
    from rmqcli.admin.message.gather import MessageOutcome
    from rmqcli.admin.message.trace import MessageTrace
    from rmqcli.admin.producers import ProducerList
    from rmqcli.admin.resend import ResendResult
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.plan import ResetPlan
    from rmqcli.admin.reset.result import QueueOutcome
    from rmqcli.admin.reset.target import Target
    from rmqcli.admin.settings import (
        SettingResult,
        SettingsDiff,
        SettingsPlan,
        ShownSettings,
    )
    from rmqcli.admin.stacks import StackList
    from rmqcli.admin.topic_counts import TopicCounts
    from rmqcli.admin.topics import TopicDetail, TopicList, TopicResult
    from rmqcli.admin.transactions import OpenTransactions
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.engine.message import Pulled

ResultT = TypeVar(
    "ResultT",
    "TopicResult",
    "GroupResult",
    "SettingResult",
    "KVResult",
    "DrainStep",
    "CleanStep",
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """A planned reset: what it would do, and the target that it was planned for.

    `plan` shows every queue with its committed offset and its target; `undo_of` is the
    id of the backup that it restores, empty for any other reset.
    """

    plan: ResetPlan
    target: Target
    undo_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetResult:
    """The result of a reset, queue by queue, as read back from the brokers.

    `backup_id` names the backup of the offsets that were committed before; None when
    there was nothing to do. `errors` says why queues were not set or not read back.
    """

    plan: ResetPlan
    outcomes: Mapping[MessageQueue, QueueOutcome]
    backup_id: str | None
    errors: tuple[RmqError, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every queue is where the plan wanted it."""
        return all(outcome.is_good for outcome in self.outcomes.values())


_checks_types = checks_arguments(
    GroupSettings=groups_admin.GroupSettings,
    MessageQueue=MessageQueue,
    PlannedReset=PlannedReset,
    Position=Position,
    PulledMessage=PulledMessage,
    RecallPlan=RecallPlan,
    ResendPlan=ResendPlan,
)


def _typed(
    method: Callable[Concatenate[Admin, Parameters], Result],
) -> Callable[Concatenate[Admin, Parameters], Result]:
    """Check the types of a method's arguments, and why it found nothing.

    A topic, group or broker that was on a broker which has left the route may exist.
    """
    checked = _checks_types(method)

    @functools.wraps(method)
    def call(
        self: Admin, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        try:
            with self._in_call:
                return checked(self, *args, **kwargs)
        except NotFoundError as error:
            if error.missing is not None:
                with self._in_call:
                    check_departed(self._client, *error.missing)
            raise

    return call


def _all_typed(kind: type[Admin]) -> type[Admin]:
    """Check the arguments of all methods that ask or change something."""
    for name, method in [*vars(kind).items()]:
        is_request = name[0] != "_" and name not in ("start", "close")
        if is_request and inspect.isfunction(method):
            setattr(kind, name, _typed(method))
    return kind


@_all_typed
class Admin(StartedInBlock):
    """Queries a cluster and changes it.

    Any thread may call its methods. Calls of several threads follow one another, and
    while one iterates over `read`, no other may use the Admin.

    `namesrv` is `host:port;host:port` (default: the environment's NAMESRV_ADDR, else
    127.0.0.1:9876); pass `client` instead when credentials, TLS or another timeout are
    needed. It is used in a `with` block, or after `start`. `backups` is the folder of
    the backups that resets save (default: that of `rmq reset-offset`). No connection is
    opened before the first request.

    Every method raises TransportError when no server can be reached in time, its
    subclass NoBrokerError when no broker is registered or none answers, DeniedError
    when permission is denied, and NotFoundError when what was asked for does not exist;
    PartialError if it was on a broker that has left the route within the last week.
    """

    def __init__(
        self,
        *,
        namesrv: str | None = None,
        client: ClientConfig | None = None,
        backups: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client_config = client_config(client, namesrv)
        check_type(backups, (os.PathLike, type(None)), "backups")
        self._clock = clock
        self._backups = backups
        #: held by a call; some call others
        self._in_call = threading.RLock()
        #: made by `start`
        self._started: Client | None = None
        self._is_started = self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __repr__(self) -> str:
        return f"Admin({self._client_config.servers})"

    def start(self) -> None:
        """Start the Admin. It contacts no server before the first request.

        Raises UsageError when the Admin was started or closed before.
        """
        if self._is_started or self._is_closed:
            raise UsageError(
                "an Admin can be started only once", hint="create a new Admin"
            )
        self._started = Client(self._client_config, clock=self._clock)
        self._is_started = True

    def close(self) -> None:
        """Close every connection. After this every request raises UsageError.

        Idempotent.
        """
        self._is_closed = True
        if self._started is not None:
            self._started.close()

    @property
    def _client(self) -> Client:
        if self._started is None:
            raise UsageError("the Admin is not started: use `with`, or call start")
        if self._is_closed:
            raise UsageError("the Admin is closed")
        # Brokers and queues come and go while a program keeps an Admin.
        self._started.renew_old()
        return self._started

    # --- lag ---

    def lag(self, group: str, *, topics: Collection[str] = ()) -> GroupLag:
        """Return how far a group is behind, by topic and queue.

        Lags are in messages, ages in ms. A number that a broker did not report is None,
        and the reason of its queue says why; `reading` has the brokers in `failures`,
        and in `notes` what else is not known. Raises NotFoundError when no broker knows
        the group.
        """
        return self.lags([group], topics=topics).groups[0]

    def lags(
        self, groups: Collection[str] = (), *, topics: Collection[str] = ()
    ) -> LagList:
        """Return the lag of the given groups, or of all groups but RocketMQ's own.

        The queues that a group had on a broker that has left the route within the last
        week are among its queues, without numbers. With `failures` in the result there
        may be more groups.
        """
        return self._lags(LagQuery(groups=tuple(groups), topics=tuple(topics)))

    def explain_lag(self, group: str, *, topics: Collection[str] = ()) -> list[str]:
        """Say in sentences why a group is behind, the most important ones first.

        These are those of `rmq lag --explain --process-queues`: members are asked what
        they hold, how long their listeners take and how many messages fail. So this
        takes longer than `lag`, whose errors it raises. The wording may change.
        """
        from rmqcli.admin.lag.explain import explain

        query = LagQuery(
            groups=(group,),
            topics=tuple(topics),
            process_queues=True,
            with_paused=True,
        )
        (lag,) = self._lags(query).groups
        return list(map(str, explain(lag)))

    def _lags(self, query: LagQuery) -> LagList:
        """Raises NotFoundError when no broker knows a group of the query."""
        client = self._client
        reading = LagGatherer(client, query, open_memory(client)).read()
        if reading.missing:
            raise not_found("group", reading.missing[0])
        return LagList(
            groups=sorted(
                map(compute_lag, reading.groups), key=lambda each: each.group
            ),
            failures=reading.failures,
        )

    # --- resetting offsets ---

    def plan_reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | Position | None = None,
        shift: int | None = None,
        past_message: str | None = None,
        queues: Collection[MessageQueue] | None = None,
        include_retry: bool = False,
    ) -> PlannedReset:
        """Plan a reset of a group's committed offsets; nothing is changed.

        Pass exactly one of `to`, a position such as "earliest", "-1h",
        "@2026-01-02T03:04:05Z" or "group:other"; `shift`, a number of messages forward
        or (negative) back; and `past_message`, the id of a message to skip. `queues`
        limits the reset to some queues of the topic, of which there must be at least
        one; `include_retry` also resets the group's retry topic. Before you apply the
        result, check its `plan.queues`, `plan.warnings` and `plan.refusals`.
        """
        from rmqcli.admin.reset import target as targets

        given = [each for each in (to, shift, past_message) if each is not None]
        if len(given) != 1:
            raise ConfigError("give one of to, shift and past_message")
        if queues is not None and not queues:
            raise ConfigError(
                "queues is empty: there is no queue to reset",
                hint="leave it out to reset all queues of the topic",
            )
        target: Target
        if shift is not None:
            target = targets.Shift(shift)
        elif past_message is not None:
            target = find_past(self._client, topic, past_message)
        else:
            assert to is not None  # one of the three is given  # noqa: S101
            target = targets.ToPosition(position_of(to))
        return self._planned(
            group, topic, target, queues=queues or (), include_retry=include_retry
        )

    def backups(
        self, *, group: str | None = None, topic: str | None = None
    ) -> list[Backup]:
        """List the backups of offsets that resets have saved, oldest first.

        They are of any cluster; `group` and `topic` restrict them to one group or
        topic. Files that cannot be read are left out.
        """
        from rmqcli.admin.reset.backup import list_backups

        return list_backups(self._backup_folder(), group=group, topic=topic)

    def plan_undo(
        self,
        group: str,
        topic: str,
        *,
        backup_id: str | None = None,
        other_cluster: bool = False,
    ) -> PlannedReset:
        """Plan to restore the offsets that a reset has saved; nothing is changed.

        Without `backup_id`, this uses the newest backup of this cluster that was not
        saved by an undo. `other_cluster` allows a backup that was made on another
        cluster, on this one before all its brokers moved, or before the topic was
        deleted and created again; it needs a `backup_id`. Raises NotFoundError without
        a backup, and RefusedError for a backup of another group, topic or cluster.
        """
        from rmqcli.admin.reset import backup as backups
        from rmqcli.admin.reset.cluster_identity import identity_of, is_same_cluster
        from rmqcli.admin.reset.target import Restore

        folder = self._backup_folder()
        here = identity_of(self._client.route(topic))
        if backup_id is None:
            if other_cluster:
                raise ConfigError("other_cluster needs a backup_id")
            found = backups.latest_backup(
                folder, group=group, topic=topic, cluster=here
            )
        else:
            found = backups.load_backup(folder, backup_id)
            if (found.group, found.topic) != (group, topic):
                raise RefusedError(
                    f"backup {backup_id} belongs to group {found.group} and topic"
                    f" {found.topic}",
                    hint="pass the backup's own group and topic",
                )
            if not other_cluster and not is_same_cluster(found.cluster, here):
                raise RefusedError(
                    f"backup {backup_id} was made on {found.cluster}, but this cluster"
                    f" is {here}",
                    hint=Hint(
                        "to use these offsets anyway, add ",
                        Setting("other_cluster", True),
                    ),
                )
        noted = {} if other_cluster else found.noted
        target = Restore(found.committed, noted)
        return self._planned(group, topic, target, undo_of=found.backup_id)

    def apply_reset(self, planned: PlannedReset, *, watch: bool = False) -> ResetResult:
        """Carry out a plan, and read back the committed offsets.

        The previous offsets are saved first; `undo_reset` restores them. If members are
        online, this waits for them to move, as long as `rmq reset-offset` does; with
        `watch` it also waits until they must have stored their own offsets again.
        Raises RefusedError, before anything is changed, for a plan with queues that
        could not be read, for a plan that would not last (`plan.refusals`), and when
        offsets have moved, or members came online, since the plan was made. The result
        reports later failures, and queues on brokers that have left the route
        (`plan.departed`).
        """
        from rmqcli.admin.reset.apply import ResetRun, recheck

        plan = planned.plan
        if plan.unknown:
            raise RefusedError(
                f"{counted(len(plan.unknown), 'queue')} of the plan could not be read",
                hint="plan again when their brokers can be reached",
            )
        if plan.changes and plan.refusals:
            raise RefusedError(
                f"this reset would not hold: {'; '.join(plan.refusals)}",
                hint="stop the consumers first",
            )
        client = self._client
        if plan.changes:
            plan = recheck(client, plan, planned.target)
        run = ResetRun(client, plan)
        if not plan.changes:
            return ResetResult(plan=plan, outcomes=run.outcomes(), backup_id=None)
        folder = self._backup_folder()
        backup_id = run.save_backup(folder, undo_of=planned.undo_of)
        run.execute()
        if watch:
            run.watch()
        return ResetResult(
            plan=plan, outcomes=run.outcomes(), backup_id=backup_id, errors=run.errors
        )

    def undo_reset(
        self,
        group: str,
        topic: str,
        *,
        backup_id: str | None = None,
        other_cluster: bool = False,
    ) -> ResetResult:
        """Plan an undo as `plan_undo` does, and apply it; raises the errors of both."""
        planned = self.plan_undo(
            group, topic, backup_id=backup_id, other_cluster=other_cluster
        )
        return self.apply_reset(planned)

    def _planned(
        self,
        group: str,
        topic: str,
        target: Target,
        *,
        queues: Collection[MessageQueue] = (),
        include_retry: bool = False,
        undo_of: str = "",
    ) -> PlannedReset:
        from rmqcli.admin.reset.gather import gather_plan
        from rmqcli.admin.reset.target import ResetRequest

        check_group(group)
        request = ResetRequest(
            group=group,
            topic=topic,
            target=target,
            selectors=selectors_of(topic, queues),
            include_retry=include_retry,
        )
        plan = gather_plan(self._client, request)
        return PlannedReset(plan=plan, target=target, undo_of=undo_of)

    def _backup_folder(self) -> Path:
        from rmqcli.admin.reset.backup import backup_directory

        return self._backups or backup_directory(os.environ)

    # --- topics, groups, brokers ---

    def topics(self) -> TopicList:
        """List all topics, and the brokers that did not answer.

        `untold` of the result has brokers that have left the route, and those without a
        master: what only they know is not listed.
        """
        found = topics_admin.list_topics(self._client)
        return replace(found, untold=untold_errors(self._client))

    def topic_counts(self, *, since: TopicCounts | None = None) -> TopicCounts:
        """Return how many messages the topics of users have.

        Pass an earlier result as `since`: then each topic has also the messages that
        were stored per second since, and a broker that has left the route is missed.
        Numbers that a broker did not tell are None, and `reason` says why.
        """
        from rmqcli.admin.topic_counts import TopicCounts, count_topics

        check_type(since, (TopicCounts, type(None)), "since")
        return count_topics(self._client, since=since)

    def topic(self, topic: str) -> TopicDetail:
        """Return one topic: its settings on each broker, its queues and its groups."""
        return topics_admin.show_topic(self._client, topic)

    def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> list[TopicResult]:
        """Create a topic, and wait for its route.

        `queue_nums` is the number of queues on each broker (8 by default); `perm` is 2
        to write, 4 to read or 6 for both. The topic is created on `brokers`, or else on
        all masters of `cluster`, which may be omitted when there is only one cluster.
        Returns a result for each broker, and of an ordered topic for each name server,
        which lists its fixed queues: if one does not store the list, no broker is
        changed. A broker that already has the topic with these settings is left alone,
        so that the call can be repeated. Raises RefusedError when the topic exists with
        other settings, PartialError when only some servers succeeded, or no name server
        listed the topic in time, and the first broker's error when none did.
        """
        check_topic(topic)
        client, masters = self._client, self._masters(cluster, brokers)
        change = topics_admin.TopicChange(
            queue_nums=queue_nums,
            perm=perm,
            order=order,
            attributes=dict(attributes or {}),
        )
        steps = topics_admin.create_topic(client, topic, masters, change)
        return self._published(topic, steps)

    def update_topic(
        self,
        topic: str,
        *,
        queue_nums: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        remove_attributes: Collection[str] = (),
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
        force: bool = False,
    ) -> list[TopicResult]:
        """Change the given settings of a topic on the brokers that have it.

        The arguments are those of `create_topic`; `remove_attributes` then have their
        defaults. The settings are read back. Raises RefusedError when queues with
        messages would be removed, unless `force` is given: consumers cannot read them
        any more.
        """
        client, masters = self._client, self._masters(cluster, brokers)
        change = topics_admin.TopicChange(
            queue_nums=queue_nums,
            perm=perm,
            order=order,
            attributes=dict(attributes or {}),
            removed=tuple(remove_attributes),
        )
        known = topics_admin.known_configs(client, topic, masters, change)
        lost = topics_admin.queues_lost_by(client, topic, masters, change, known)
        if lost and not force:
            raise RefusedError(
                f"consumers could no longer read {'; '.join(map(str, lost))}; nothing"
                " was changed",
                hint=Hint("add ", Setting("force", True)),
            )
        steps = topics_admin.update_topic(client, topic, masters, change, before=known)
        return self._published(topic, steps)

    def _published(self, topic: str, steps: list[TopicResult]) -> list[TopicResult]:
        """Return the results once a name server lists what was done on brokers."""
        timeout_ms = self._client.config.timeout_ms
        is_listed = topics_admin.publish(
            self._client, topic, steps, timeout_ms=timeout_ms
        )
        found = _checked(steps, f"topic {topic}")
        if not is_listed:
            raise PartialError(
                f"topic {topic} is on its brokers, but no name server listed it on all"
                f" of them within {format_duration(timeout_ms)}",
                hint="call this again to wait longer",
            )
        return found

    def delete_topic(self, topic: str) -> list[TopicResult]:
        """Delete a topic and its messages on every broker and name server.

        Raises NotFoundError for an unknown topic, RefusedError for a system topic, and
        the same errors as `create_topic` when servers failed.
        """
        route = topics_admin.check_may_delete(self._client, topic)
        steps = topics_admin.delete_topic(self._client, route)
        self._client.forget(topic)
        return _checked(steps, f"topic {topic}")

    def groups(self) -> GroupList:
        """List all consumer groups, and the brokers that did not answer.

        `untold` of the result is as that of `topics`.
        """
        found = groups_admin.list_groups(self._client)
        return replace(found, untold=untold_errors(self._client))

    def group(self, group: str) -> GroupDetail:
        """Return one consumer group: its settings on each broker, members, topics."""
        return groups_admin.show_group(self._client, group)

    def member_stacks(self, group: str, *, client_id: str | None = None) -> StackList:
        """Ask the members of a group, or one of them, for the stacks of their threads.

        Equal stacks are grouped, those of listeners first. A member that did not answer
        has an error in its place, and a broker that did not tell its members one in
        `errors`. Raises NotFoundError for a group without members, and for a client
        that is not one of them.
        """
        from rmqcli.admin.stacks import member_stacks

        return member_stacks(self._client, group, client_id)

    def plan_resend(
        self,
        ref: str,
        *,
        group: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> ResendPlan:
        """Find a message, and a member of a group that can be asked to consume it.

        `ref` and `topic` are those of `find_messages`. Without `client_id` the first
        member is chosen that is connected to the broker with the message. Without
        `group` it is the group of the topic that has this client. Raises NotFoundError
        without the message or such a member, and UsageError for several messages, for
        a client of several groups, and for neither a group nor a client.
        """
        return plan_resend(
            self._client, ref, topic=topic, group=group, client_id=client_id
        )

    def apply_resend(self, planned: ResendPlan) -> ResendResult:
        """Have the member consume the message now, and return what it answered.

        Offsets do not change, and the message is not tried again. Raises PartialError
        when no answer came: the listener may have been called.
        """
        return apply_resend(self._client, planned)

    def plan_recall(self, ref: str, *, topic: str | None = None) -> RecallPlan:
        """Find a message that waits for its delivery time, to recall it.

        `ref` is the recall handle of its SendResult, or with `topic` its id. Raises
        NotFoundError when it does not wait, RefusedError when it waits in a delay
        level, and UsageError when several copies wait.
        """
        return plan_recall(self._client, ref, topic=topic)

    def apply_recall(self, planned: RecallPlan) -> None:
        """Recall the message, and check that it waits no longer.

        Needs a broker of 5.3.2 or later with recallMessageEnable, and raises its error
        otherwise. Raises PartialError when the message may still be delivered.
        """
        apply_recall(self._client, planned)

    def open_transactions(self, topic: str, *, limit: int = 100) -> OpenTransactions:
        """Find the transactions of a topic that are neither committed nor rolled back.

        Of all of them, which are counted, the `limit` oldest are returned. On each
        broker at most 200,000 half messages are read; where there are more, its error
        says so. A transaction that ended within the last seconds may be among them.
        """
        from rmqcli.admin.transactions import find_open_transactions

        return find_open_transactions(self._client, topic, limit=limit)

    def delayed(self, topic: str, *, limit: int = 10) -> DelayedMessages:
        """Find the messages of a topic that wait for a delay level or a delivery time.

        They are counted by the time until they are due, and the next `limit` of them
        are returned. A broker whose messages could not be read, or not all, has an
        error.
        """
        return find_delayed(self._client, topic, limit=limit)

    def producers(
        self, topic: str | None = None, *, group: str | None = None
    ) -> ProducerList:
        """List connected producers: all, those of a group, or those of a topic.

        Brokers do not know which topics a producer sends to. So with `topic` the newest
        32 messages of each queue are read, and their senders are listed, connected or
        not; those whose group is unknown are listed with a `group`, too. Brokers before
        4.9.4 list the producers of a given `group` only. Without `topic`, `untold` of
        the result is as that of `topics`.
        """
        from rmqcli.admin.producers import list_producers

        found = list_producers(self._client, topic=topic, group=group)
        if topic is not None:
            return found
        return replace(found, untold=untold_errors(self._client))

    def dead_letters(self) -> LetterList:
        """List the dead letters of all groups that have a topic of them: how many.

        A count is None where a broker did not tell; its `reason` says why.
        """
        from rmqcli.admin.dlq.listing import list_letters

        return list_letters(self._client)

    def read_dead_letters(
        self,
        group: str,
        *,
        from_: str | Position = "earliest",
        to: str | Position = "latest",
        last: int | None = None,
        limit: int = 1_000,
        where: str | None = None,
        decode: str | None = None,
    ) -> DeadLetters:
        """Read the dead letters of a group, also where their topic is write-only.

        `from_` and `to` are positions as in `read`; with `last` only the last letters
        of each queue are read. `where` and `decode` choose among them as in `read`, and
        `without_value` counts the bodies that had no value. Of the letters that are
        chosen the first `limit` are returned, and `is_cut` says whether there are more.
        Nothing is changed. Raises NotFoundError when the group has no topic
        of dead letters, and the errors of `read` for `where` and `decode`.
        """
        from rmqcli.admin.dlq.read import read_letters
        from rmqcli.admin.tail.filter import parse_filter

        return read_letters(
            self._client,
            group,
            start=position_of(from_),
            end=position_of(to),
            last=last,
            limit=limit,
            wanted=parse_filter(where=where, decode=decode),
        )

    def retries(self, group: str, *, limit: int = 100) -> WaitingMessages:
        """Find what waits to be delivered to a group again: failed messages.

        They are counted by the place where they wait, and the next `limit` of them are
        returned. What could not be found out is in `errors`, by broker. Raises
        NotFoundError when no broker knows the group.
        """
        from rmqcli.admin.dlq.retries import find_waiting

        return find_waiting(self._client, group, limit=limit)

    def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
        **settings: Unpack[GroupSettings],
    ) -> list[GroupResult]:
        """Create a consumer group.

        `cluster` and `brokers` choose the brokers, as in `create_topic`. A setting
        that is not given is a broker's default. Creation fails on a broker where the
        group exists with other settings. Raises the same errors as `create_topic` when
        brokers failed.
        """
        check_member_group(group)
        client, masters = self._client, self._masters(cluster, brokers)
        change = groups_admin.GroupChange(**settings)
        results = groups_admin.create_group(client, group, masters, change)
        return _checked(results, f"group {group}")

    def update_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
        **settings: Unpack[GroupSettings],
    ) -> list[GroupResult]:
        """Change the given settings of a group on the brokers that have it."""
        client, masters = self._client, self._masters(cluster, brokers)
        change = groups_admin.GroupChange(**settings)
        results = groups_admin.update_group(client, group, masters, change)
        return _checked(results, f"group {group}")

    def pause_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> list[GroupResult]:
        """Let the members of a group get no messages until `resume_group`.

        Brokers then refuse their requests for messages; members stay online, keep their
        queues, and finish what they have. Brokers without settings of the group are
        left out: they create them, with consumption on, when a member connects. Raises
        the errors of `update_group`.
        """
        return self._set_consumption(group, cluster, brokers, is_on=False)

    def resume_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> list[GroupResult]:
        """Let the members of a paused group get messages again."""
        return self._set_consumption(group, cluster, brokers, is_on=True)

    def _set_consumption(
        self,
        group: str,
        cluster: str | None,
        brokers: Collection[str] | None,
        *,
        is_on: bool,
    ) -> list[GroupResult]:
        client, masters = self._client, self._masters(cluster, brokers)
        known = groups_admin.read_consume_enable(client, group, masters)
        there = {n: a for n, a in masters.items() if known[n] is not None}
        change = groups_admin.GroupChange(consume_enable=is_on)
        results = groups_admin.update_group(client, group, there, change)
        return _checked(results, f"group {group}")

    def delete_group(
        self,
        group: str,
        *,
        remove_offsets: bool = True,
        force: bool = False,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> list[GroupResult]:
        """Delete a group's settings, and with `remove_offsets` its committed offsets.

        Raises RefusedError while members are online and PartialError if that is not
        known, both unless `force` is given; and RefusedError when a broker would create
        the group again.
        """
        client, masters = self._client, self._masters(cluster, brokers)
        groups_admin.check_may_delete(
            client,
            group,
            masters,
            remove_offsets=remove_offsets,
            is_forced=force,
        )
        results = groups_admin.delete_group(
            client, group, masters, remove_offsets=remove_offsets
        )
        return _checked(results, f"group {group}")

    def definitions(
        self, *, cluster: str | None = None, kinds: Collection[Kind] = ()
    ) -> Definitions:
        """Return the topics, groups, users and rules of a cluster with their settings.

        `kinds` are "topic", "group", "user" and "rule" (default: all that the brokers
        can have). `to_text` of the result is the file that `rmq definitions export`
        writes, and `parse_definitions` reads one. Raises PartialError when a broker
        does not answer, or does not tell its users and rules, and the error of one that
        does not tell a kind of `kinds`.
        """
        from rmqcli.admin.definitions.read import export_definitions

        return export_definitions(self._client, cluster, kinds)

    def plan_definitions(
        self,
        definitions: Definitions,
        *,
        cluster: str | None = None,
        prune: bool = False,
    ) -> DefinitionsPlan:
        """Compare definitions with a cluster, and plan the changes; changes nothing.

        With `prune`, topics and groups that the cluster has and the definitions have
        not are deleted, except groups with members online. Before you apply the result,
        check its `changes` and their reasons.
        """
        from rmqcli.admin.definitions.model import Definitions
        from rmqcli.admin.definitions.plan import plan_definitions

        check_type(definitions, Definitions, "definitions")
        return plan_definitions(self._client, definitions, cluster=cluster, prune=prune)

    def accounts(
        self, *, cluster: str | None = None, brokers: Collection[str] = ()
    ) -> AclEntries:
        """Return the users and rules of access control 2.0, without passwords.

        Each broker has its own; those that brokers have alike are one entry. Raises
        UnsupportedError when access control is off, or brokers are older than 5.3.
        """
        from rmqcli.admin.acl import list_accounts

        return list_accounts(self._client, cluster=cluster, brokers=brokers)

    def explain_access(
        self,
        user: str,
        resource: str,
        action: str,
        *,
        source_ip: str | None = None,
        cluster: str | None = None,
        brokers: Collection[str] = (),
    ) -> dict[str, AclDecision | RmqError]:
        """Return by broker whether a user may do an action, and which rule decides.

        `resource` is such as "Topic:orders", and `action` one of Pub, Sub, Create,
        Update, Delete, Get and List. Without `source_ip`, the address of the client, it
        may depend on it. Nothing is tried. Raises NotFoundError for an unknown user.
        """
        from rmqcli.admin.acl import explain_access

        return explain_access(
            self._client,
            user,
            resource,
            action,
            source_ip=source_ip,
            cluster=cluster,
            brokers=brokers,
        )

    def plan_user(
        self,
        user: str,
        *,
        is_new: bool,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> DefinitionsPlan:
        """Plan to create a user, or to change the given settings of one.

        `user_type` is "Super" or "Normal", and `user_status` "enable" or "disable". A
        new user needs a password. Apply the result with `apply_definitions`.
        """
        from rmqcli.admin.acl import plan_user

        given = {"user_type": user_type, "user_status": user_status}
        return plan_user(
            self._client,
            user,
            {name: value for name, value in given.items() if value is not None},
            is_new=is_new,
            password=password,
            cluster=cluster,
            brokers=_chosen(cluster, brokers),
        )

    def plan_rule(
        self,
        user: str,
        resource: str,
        *,
        is_new: bool,
        actions: Sequence[str] | None = None,
        decision: str | None = None,
        source_ips: Sequence[str] | None = None,
        policy_type: str = "Custom",
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> DefinitionsPlan:
        """Plan to create a rule of a user, or to change the given settings of one.

        `decision` is "Allow" or "Deny". Apply the result with `apply_definitions`.
        """
        from rmqcli.admin.acl import plan_rule

        given = {
            "actions": None if actions is None else list(actions),
            "decision": decision,
            "source_ips": None if source_ips is None else list(source_ips),
        }
        return plan_rule(
            self._client,
            user,
            resource,
            {name: value for name, value in given.items() if value is not None},  # type: ignore[misc]  # lists of texts are JSON
            is_new=is_new,
            policy_type=policy_type,
            cluster=cluster,
            brokers=_chosen(cluster, brokers),
        )

    def plan_acl_deletion(
        self,
        user: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> DefinitionsPlan:
        """Plan to delete a user with its rules, or with `resource` one of its rules.

        Apply the result with `apply_definitions`. Raises NotFoundError without it.
        """
        from rmqcli.admin.acl import plan_acl_deletion
        from rmqcli.admin.definitions.model import rule_name

        name = user if resource is None else rule_name(user, resource, policy_type)
        return plan_acl_deletion(
            self._client,
            "user" if resource is None else "rule",
            name,
            cluster=cluster,
            brokers=_chosen(cluster, brokers),
        )

    def plan_acl_copy(
        self, kind: Kind, user: str, *, source: str, to: Collection[str] | None = None
    ) -> DefinitionsPlan:
        """Plan to copy a user with its password, or its rules, from a broker to others.

        `kind` is "user" or "rule", `source` the name of the broker that has it. Without
        `to`, the others are all masters of its cluster. Rules that only they have stay.
        Apply the result with `apply_definitions`. Raises NotFoundError when `source`
        has no such user, or no rules of it.
        """
        from rmqcli.admin.acl import plan_acl_copy

        check_type(kind, str, "kind")
        if kind not in ("user", "rule"):
            raise UsageError(f"kind is {kind!r}; it must be 'user' or 'rule'")
        to = _chosen(None, to, "to")
        return plan_acl_copy(self._client, kind, user, source=source, to=to)

    def apply_definitions(self, planned: DefinitionsPlan) -> DefinitionsResult:
        """Carry out a plan, and read back what each broker has.

        Raises RefusedError, before anything is changed, when the cluster has changed
        since the plan was made. The result reports later failures.
        """
        from rmqcli.admin.definitions.apply import apply_definitions
        from rmqcli.admin.definitions.plan import DefinitionsPlan

        check_type(planned, DefinitionsPlan, "planned")
        return apply_definitions(self._client, planned)

    def brokers(self) -> list[BrokerRow]:
        """List all brokers that name servers know, with their runtime information.

        Those that have left the route are in `errors` of `cluster`. Rates are messages
        per second. A broker that did not answer has an error in its row.
        """
        return brokers_admin.list_brokers(self._client)

    def cluster(self) -> ClusterSummary:
        """Sum the cluster up: brokers, topics, groups, dead letters, what is wrong.

        A number that a broker did not tell is None, with a reason.
        """
        from rmqcli.admin.cluster import read_cluster

        return read_cluster(self._client)

    def doctor(
        self, *, only: Collection[str] = (), skip: Collection[str] = ()
    ) -> Diagnosis:
        """Check the cluster, and return what is wrong, with evidence for each finding.

        `only` and `skip` are names of checks, as `rmq doctor --list` shows them. What
        a broker did not tell is a finding of its own, with the status unknown. Raises
        UsageError for a name that no check has.
        """
        from rmqcli.admin.doctor.diagnose import diagnose

        return diagnose(self._client, only=only, skip=skip)

    def broker(self, broker_name: str) -> list[BrokerDetail]:
        """Return all that a broker reports, and its settings: the master, then slaves.

        Settings that the broker does not show are None, with a `settings_error`. Raises
        NotFoundError for a name that no name server knows.
        """
        return brokers_admin.show_broker(self._client, broker_name)

    # --- settings of servers ---

    def broker_settings(
        self, *, brokers: Collection[str] = (), cluster: str | None = None
    ) -> list[ShownSettings]:
        """Read the settings of brokers, masters and slaves; of all of them by default.

        Secrets are among them: see `rmqcli.admin.settings.is_secret`. A broker that did
        not show its settings has an error in its place.
        """
        from rmqcli.admin.settings import broker_settings

        return broker_settings(self._client, brokers=brokers, cluster=cluster)

    def namesrv_settings(self) -> list[ShownSettings]:
        """Read the settings of each name server; as `broker_settings` otherwise."""
        from rmqcli.admin.settings import namesrv_settings

        return namesrv_settings(self._client)

    def compare_broker_settings(
        self,
        *,
        brokers: Collection[str] = (),
        cluster: str | None = None,
        with_all: bool = False,
    ) -> SettingsDiff:
        """Return the settings in which brokers differ, without values of secrets.

        Those that tell brokers apart, such as ports and folders, are left out unless
        `with_all` is given. Raises ConfigError when there is only one broker.
        """
        from rmqcli.admin.settings import diff_settings

        found = self.broker_settings(brokers=brokers, cluster=cluster)
        return diff_settings(found, with_all=with_all)

    def plan_broker_settings(
        self,
        settings: Mapping[str, str],
        *,
        brokers: Collection[str] = (),
        cluster: str | None = None,
    ) -> SettingsPlan:
        """Plan to change settings of brokers, masters and slaves; nothing is changed.

        Give `brokers`, or a `cluster`. Raises ConfigError for a setting that no broker
        has, and for a secret.
        """
        from rmqcli.admin.settings import plan_settings

        if bool(brokers) == (cluster is not None):
            raise ConfigError("give either brokers or a cluster")
        found = self.broker_settings(brokers=brokers, cluster=cluster)
        return plan_settings(found, settings)

    def plan_namesrv_settings(self, settings: Mapping[str, str]) -> SettingsPlan:
        """Plan to change settings of all name servers; nothing is changed."""
        from rmqcli.admin.settings import plan_settings

        return plan_settings(self.namesrv_settings(), settings)

    def apply_settings(self, planned: SettingsPlan) -> list[SettingResult]:
        """Carry out a plan, and read back each setting.

        Raises PartialError when only some servers have the new values, and the first
        server's error when none has.
        """
        from rmqcli.admin.settings import SettingsPlan, apply_settings

        check_type(planned, SettingsPlan, "planned")
        return _checked(apply_settings(self._client, planned), "settings")

    def kv_values(self, namespace: str) -> list[KVValues]:
        """Read the key-value store of each name server, of one namespace."""
        from rmqcli.admin.kv import kv_values

        return kv_values(self._client, namespace)

    def put_kv(self, namespace: str, key: str, value: str) -> list[KVResult]:
        """Set a value on each name server, and read it back.

        Raises PartialError when only some of them have it, and the first error when
        none has.
        """
        from rmqcli.admin.kv import apply_kv, plan_kv

        steps = plan_kv(self._client, namespace, key, value)
        return _checked(apply_kv(self._client, steps), f"{namespace} {key}")

    def delete_kv(self, namespace: str, key: str) -> list[KVResult]:
        """Remove a value from each name server; as `put_kv` otherwise."""
        from rmqcli.admin.kv import apply_kv, plan_kv

        steps = plan_kv(self._client, namespace, key, None)
        return _checked(apply_kv(self._client, steps), f"{namespace} {key}")

    # --- clean-ups ---

    def clean_expired_queues(
        self, *, cluster: str | None = None, brokers: Collection[str] | None = None
    ) -> list[CleanStep]:
        """Remove queues whose messages have all expired; return each with its result.

        Such a queue begins at offset 0 again, and groups keep their offsets. Empty when
        there is none. Raises PartialError when only some were removed.
        """
        masters = self._masters(cluster, brokers)
        steps = clean.plan_clean_expired(self._client, masters)
        done = clean.apply_clean_expired(self._client, steps)
        return _checked(done, "clean-up", servers=masters)

    def clean_unused_topics(
        self, *, cluster: str | None = None, brokers: Collection[str] | None = None
    ) -> list[CleanStep]:
        """Remove queues of topics that do not exist; return those that were known.

        Brokers do not list such queues, so others may have been removed, too.
        """
        masters = self._masters(cluster, brokers)
        steps = clean.plan_clean_unused(self._client, masters)
        done = clean.apply_clean_unused(self._client, masters, steps)
        return _checked(done, "clean-up", servers=masters)

    def _masters(
        self, cluster: str | None, brokers: Collection[str] | None
    ) -> dict[str, str | None]:
        return topics_admin.choose_masters(
            self._client, cluster=cluster, brokers=_chosen(cluster, brokers)
        )

    # --- draining brokers ---

    def plan_drain(self, broker_name: str) -> DrainPlan:
        """Look at what taking the write permission from a broker would do.

        Nothing is changed. Raises NotFoundError for a broker that no name server knows.
        """
        from rmqcli.admin.drain import plan_drain

        return plan_drain(self._client, broker_name)

    def apply_drain(self, planned: DrainPlan) -> list[DrainStep]:
        """Take the write permission from the broker's topics, and read back routes.

        Raises PartialError when only some name servers took it, and the first error
        when none did. `undrain_broker` undoes it.
        """
        from rmqcli.admin.drain import DrainPlan, apply_drain

        check_type(planned, DrainPlan, "planned")
        steps = apply_drain(self._client, planned)
        return _checked(steps, f"broker {planned.broker_name}")

    def drain_progress(
        self,
        broker_name: str,
        *,
        since: DrainProgress | None = None,
        skip_groups: Collection[str] = (),
        skip_delayed: bool = False,
        skip_transactions: bool = False,
        settle_ms: int | None = None,
    ) -> DrainProgress:
        """Look at what still arrives at a broker, and who has something left to read.

        Pass the look before as `since`, until `is_safe`: nothing has arrived for
        `settle_ms` (40 s by default; producers may keep a route for 30 s), and nothing
        is unread. Groups in `skip_groups` are not waited for, nor are messages that
        wait for their delivery time with `skip_delayed`, and open transactions with
        `skip_transactions`.
        """
        from rmqcli.admin.drain import SETTLE_MS, DrainProgress, drain_progress

        check_type(since, (DrainProgress, type(None)), "since")
        return drain_progress(
            self._client,
            broker_name,
            since=since,
            skip_groups=skip_groups,
            skip_delayed=skip_delayed,
            skip_transactions=skip_transactions,
            settle_ms=SETTLE_MS if settle_ms is None else settle_ms,
        )

    def undrain_broker(self, broker_name: str) -> list[DrainStep]:
        """Give a broker's topics the permissions back that the broker has for them.

        Raises the errors of `apply_drain`.
        """
        from rmqcli.admin.drain import undrain_broker

        return _checked(
            undrain_broker(self._client, broker_name), f"broker {broker_name}"
        )

    # --- messages ---

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted."""
        return self._client.route(topic).read_queues()

    def message_at(self, queue: MessageQueue, queue_offset: int) -> PulledMessage:
        """Return the message at an offset.

        Raises NotFoundError if there is none, and DecodeError if it is damaged.
        """
        address = self._client.reader_of(queue)
        call = pull_message(queue, queue_offset, max_msg_nums=1)
        answer = self._client.invoke(address, call)
        for message in _decoded(answer.body, queue, queue_offset):
            if message.queue_offset != queue_offset:
                continue
            if isinstance(message, UndecodableMessage):
                raise DecodeError(
                    f"the message at {queue}:{queue_offset} is damaged:"
                    f" {message.failure.error}"
                )
            return message
        raise NotFoundError(
            f"{queue} has no message at offset {queue_offset}",
            code=ResponseCode.NO_MESSAGE,
        )

    def message_by_id(self, topic: str, message_id: str) -> PulledMessage:
        """Return the message of a topic with this id: its UNIQ_KEY or its offset id.

        Raises NotFoundError when there is none, or when the index does not reach back
        that far, UsageError when several messages have the id, as after a producer sent
        a message again, and PartialError when not every broker could be searched.
        """
        found = find_message(self._client, topic, message_id)
        return self.message_at(found.message_queue, found.queue_offset)

    def find_messages(
        self, ref: str, *, topic: str | None = None, pending: bool = False
    ) -> FoundMessages:
        """Find messages by id, place or key.

        `ref` is the id of a message (its UNIQ_KEY), an offset id, its place written as
        TOPIC@BROKER:QUEUE:OFFSET, or, with `topic`, a key. All brokers are asked side
        by side; what was not searched is in the result, too. An id without `topic` is
        looked up in all topics, if there are at most 200. With `pending`, half and
        delayed messages are found by their ids and keys, too: in topics of the broker's
        own, from which consumers do not get them yet. Messages are found by their
        properties and bodies by `read` with `where`. Raises UsageError when there are
        more topics, and for a key without `topic`.
        """
        with self._client.ask_silent_once():
            return find_messages(self._client, ref, topic, pending=pending)

    def message_outcome(
        self, message: PulledMessage, *, groups: Collection[str] = ()
    ) -> MessageOutcome:
        """Return where a message is stored, and what became of it in each group.

        `message` is one that `find_messages` returned. Without `groups`, all groups of
        its topic are asked about. A verdict says no more than its evidence; what speaks
        against it, such as a reset in the folder of backups, makes it `unknown`. Of a
        dead letter it says whether the usual log of redrives on this machine has it.
        """
        from rmqcli.admin.dlq.redriven import known_redrives
        from rmqcli.admin.message.gather import outcomes_of
        from rmqcli.admin.reset.backup import list_backups

        backups = list_backups(self._backup_folder())
        with self._client.ask_silent_once():
            (found,) = outcomes_of(
                self._client,
                [message],
                groups=groups,
                backups=backups,
                redriven=known_redrives(self._client),
            )
            return found

    def message_trace(
        self,
        ref: str,
        *,
        topic: str | None = None,
        trace_topic: str = TRACE_TOPIC,
        scan: bool = False,
    ) -> list[MessageTrace]:
        """Return what clients have reported about messages: their traces.

        `ref` and `topic` are those of `find_messages`; of a key, the 20 newest messages
        are looked up. Clients write to `trace_topic` if traces are switched on in them,
        as with `trace=True` here. A report that is missing proves nothing, and each
        result says what is missing. Reports are found by the index of the trace topic;
        where a broker has none, or with `scan`, the topic is read from the message's
        time on, and else from its beginning. Raises NotFoundError when there is no such
        trace topic or message, and UsageError for a key without `topic`.
        """
        from rmqcli.admin.message.trace import traces_of

        with self._client.ask_silent_once():
            return traces_of(
                self._client, ref, topic=topic, trace_topic=trace_topic, scan=scan
            )

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int | None = None,
        messages_max: int = 1_000,
    ) -> list[PulledMessage]:
        """Return the messages of a topic with this key or UNIQ_KEY, by store time.

        `begin_ms` and `end_ms` (epoch ms; None: no end) bound the store time;
        of each broker the newest `messages_max` are returned, without those that are no
        longer in the topic, which was deleted and created again. Raises the error of a
        broker that does not answer, and UnsupportedError for one whose index does not
        even find the newest message of the topic, or that stores batches as one record,
        and PartialError for one that has more than it tells, or records that cannot be
        read.
        """
        check_int(messages_max, "messages_max", 1, 2**31 - 1)
        found = find_by_index(
            self._client,
            [topic],
            key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            found_max=messages_max,
        )
        set_removed_aside(self._client, found)
        for error in found.errors.values():
            raise error
        if found.without_index:
            raise UnsupportedError(
                f"{', '.join(found.without_index)} cannot find messages by key: the"
                " index is off, or of another kind"
            )
        if found.damaged:
            raise PartialError(f"{found.damage}: each may be a message of {key}")
        told = Counter(each.broker_name for each in found.messages)
        for name in found.more_on:
            if told[name] < messages_max:
                raise PartialError(
                    f"{name} does not tell all messages of {topic} with key {key}: too"
                    " many were stored within a second, or its index is of another kind"
                )
        return found.messages

    def read(
        self,
        topic: str,
        *,
        from_: str | Position = "earliest",
        to: str | Position = "now",
        queues: Sequence[MessageQueue] | None = None,
        sub_expression: str = "*",
        where: str | None = None,
        decode: str | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
    ) -> Iterator[PulledMessage]:
        """Iterate over the messages of a range, without a group and without a commit.

        `from_` and `to` are positions as in `plan_reset`. They are resolved to a
        half-open range of offsets in each queue when the first message is requested.
        The messages of each queue arrive in order, those of several queues mixed.
        `sub_expression` selects tags, such as `"A || B"`, and `where` is a condition as
        in `rmq tail --where`, such as `"properties.region = 'eu'"`. With `decode`, a
        format of bodies such as "json", it may ask for their values: `"value.a > 5"`.
        `parse_decode(decode).value(message.body)` is the value that it compares. A body
        that does not fit the format has no value, so that a comparison with it is not
        true; `decode_error` is then why, and such messages are chosen by
        `"value.a > 5 OR decode_error IS NOT NULL"`. How many bodies had no value that
        `where` asked for is a warning in the log, at the end. What is stored more than
        an hour outside the store times that `where` allows is not read. A message whose
        body is damaged is not left out by a condition on it.

        At most about 16 MiB are held at a time, however long the range is. Messages
        that a broker has deleted in the meantime are left out, with a warning in the
        log. Records that hold no readable message are passed to `on_undecodable`, or
        else left out with an error in the log.

        Raises TextError for a `where` or `decode` that is wrong, with the place of the
        mistake, UsageError for `decode` without `where` and for a schema that cannot be
        used, and ConfigError for a schema file that cannot be read and a package that
        is not installed. Raises the error of a queue that cannot be read, or that makes
        no progress for 30 s, NotFoundError for a queue of `queues` or a group of a
        position that does not exist, ConfigError for a queue of another topic and for a
        range that ends before its start in every queue, and, without `queues`,
        PartialError if groups had queues of the topic on a broker that has left the
        route, or if a broker does not let clients read the topic. Raises PartialError
        at the end, too, if the topic was deleted and created again while it was read,
        so that the messages may be of both.

        Until the iterator has ended or is closed, the Admin must not be used for
        anything else.
        """
        from rmqcli.admin.read.range import RangeReader, ReadOptions
        from rmqcli.admin.tail.bound import bound_by_time
        from rmqcli.admin.tail.filter import parse_filter
        from rmqcli.admin.tail.sql import for_brokers

        check_callback(on_undecodable, "on_undecodable")
        start, end = position_of(from_), position_of(to)
        subscription = parse_tags(topic, sub_expression)
        wanted = parse_filter(
            tag=sub_expression if subscription.tags_set else None,
            where=where,
            decode=decode,
        )
        condition = wanted.where
        chosen = self.queues(topic)
        if queues is not None:
            selectors = selectors_of(topic, queues)
            chosen = select_queues(chosen, selectors) if selectors else []
        else:
            left = "for what is left, pass queues=admin.queues(topic)"
            check_complete(self._client, topic, left)
        check_groups(self._client, chosen, [start, end])
        ranges = resolve_ranges(self._client, chosen, start, end)
        warn_of_unsorted(ranges)
        if ranges and all(each.is_reversed for each in ranges.values()):
            raise ConfigError("from_ and to: the end of the range is before its start")
        spans = [ranges[queue].offsets for queue in chosen]
        if condition is not None:
            spans = [each for each in spans if condition.may_match_in(each.queue)]
            spans = bound_by_time(self._client, spans, condition, keeps_ends=False)
        wanted = for_brokers(self._client, [topic], wanted)
        reader = RangeReader(
            self._client,
            spans,
            ReadOptions(
                expression=wanted.expression, expression_type=wanted.expression_type
            ),
        )
        first: dict[MessageQueue, Witness] = {}
        for chunk in reader:
            if chunk.queue not in first and (at := first_witness(chunk.body)):
                first[chunk.queue] = at
            for span in chunk.missing:
                logger.warning(
                    "messages deleted queue=%s offsets=%s", chunk.queue, span
                )
            for message in decode_pulled(
                chunk.body,
                Origin(chunk.queue, chunk.start, chunk.end),
                start_offset=chunk.start,
                subscription=subscription,
            ):
                if not isinstance(message, UndecodableMessage):
                    if condition is None or condition.matches(
                        message, chunk.queue.broker_name
                    ):
                        yield message
                elif on_undecodable is not None:
                    check_returned(on_undecodable(message), "on_undecodable")
                else:
                    logger.error(
                        "unreadable message queue=%s offset=%d: %s",
                        chunk.queue,
                        message.queue_offset,
                        message.failure.error,
                    )
        if condition is not None and condition.undecodable:
            logger.warning(
                "bodies without a value topic=%s decode=%s count=%d",
                topic,
                condition.decode,
                condition.undecodable,
            )
        places = {queue: at.queue_offset for queue, at in first.items()}
        for queue, found in read_witnesses(self._client, places).items():
            if isinstance(found, Witness) and not first[queue].is_same(found):
                raise PartialError(f"{queue}: {ANOTHER} while it was read")


def _decoded(body: bytes, queue: MessageQueue, queue_offset: int) -> Sequence[Pulled]:
    return decode_pulled(
        body,
        Origin(queue, queue_offset, queue_offset + 1),
        start_offset=queue_offset,
        subscription=parse_subscription(queue.topic, "*"),
    )


def _chosen(
    cluster: str | None, brokers: Collection[str] | None, name: str = "brokers"
) -> Collection[str]:
    """Return the brokers to change, () for all; an empty argument is not all of them.

    `name` is that of the argument. Raises ConfigError for one that names no broker.
    """
    if brokers is None:
        return ()
    if not brokers:
        raise ConfigError(
            f"{name} is empty: there is no broker to change",
            hint="leave it out for all masters of the cluster",
        )
    if cluster is not None:
        raise ConfigError("cluster and brokers cannot be used together")
    return brokers


def _checked(
    results: list[ResultT], what: str, *, servers: Collection[str] = ()
) -> list[ResultT]:
    """Return the results if all servers succeeded; otherwise raise an error.

    Those of `servers` of which there is no result have succeeded, too.
    """
    failed = [(each.server, each.error) for each in results if each.error is not None]
    if not failed:
        return results
    unknown = [each for each in failed if isinstance(each[1], ChangeUnknownError)]
    server, error = (unknown or failed)[0]
    count = len(results) + len({*servers} - {each.server for each in results})
    if len(failed) == count:
        raise error
    kind, said = PartialError, "failed"
    if unknown:
        kind, said = ChangeUnknownError, "did not show whether it was done"
        said = f"failed, or {said}" if len(unknown) < len(failed) else said
    raise kind(
        f"{what}: {len(failed)} of {counted(count, 'server')} {said}, the"
        f" first of them {server}: {error.message}",
        hint=error.hint,
    ) from error
