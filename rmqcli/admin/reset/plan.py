"""Plans a reset of a group's offsets, queue by queue. No I/O.

`make_plan` turns what was found on the cluster into a plan that says everything the
user should know before confirming: how many messages are skipped or replayed, and what
is unusual. `method` decides how a plan can be carried out; `result` judges the outcome.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from rmqcli.admin.reset.method import Mechanism
from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError
from rmqcli.hint import Hint, Setting
from rmqcli.model import retry_topic
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.lag.model import PopLag
    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.admin.reset.method import ResetMethod
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

#: Topic and broker name: the most that one request to a broker can reset.
MethodKey = tuple[str, str]


def method_key(queue: MessageQueue) -> MethodKey:
    """Return the key of `queue` in `ResetPlan.methods`."""
    return queue.topic, queue.broker_name


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What was found out about one queue.

    `committed` is None when the group never committed here. `wanted` is the target, not
    yet clamped to `min_offset..max_offset`; None when there is no target, and then
    `note` says why. Otherwise `note` is a remark about the target, or empty.
    """

    queue: MessageQueue
    committed: int | None
    min_offset: int
    max_offset: int
    wanted: int | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeMessage:
    """One message beside the target, as `--show-edges` shows it."""

    queue_offset: int
    store_timestamp_ms: int
    msg_id: str | None
    keys: str | None
    tags: str | None
    body_preview: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """The plan for one queue; without a `target` nothing is done, `warnings` say why.

    `first_store_ms` and `last_store_ms` are the store times of the first and last
    message that is skipped or replayed, None where there is none or it is not known.
    `before` and `after` are the messages on each side of the target.
    """

    queue: MessageQueue
    committed: int | None
    target: int | None
    min_offset: int
    max_offset: int
    warnings: tuple[str, ...] = ()
    first_store_ms: int | None = None
    last_store_ms: int | None = None
    before: EdgeMessage | None = None
    after: EdgeMessage | None = None

    @property
    def delta(self) -> int | None:
        """How far the committed offset moves; None when one of the two is unknown."""
        if self.committed is None or self.target is None:
            return None
        return self.target - self.committed

    @property
    def is_change(self) -> bool:
        """Whether the committed offset has to be changed."""
        return self.target is not None and self.target != self.committed

    @property
    def moved_range(self) -> tuple[int, int] | None:
        """The range `start <= o < end` of existing messages that the reset moves over.

        None when it is not known: a group that never committed starts where its
        consumers choose.
        """
        if self.committed is None or self.target is None:
            return None
        here = min(max(self.committed, self.min_offset), self.max_offset)
        return min(here, self.target), max(here, self.target)

    @property
    def skipped(self) -> int | None:
        """Number of messages that will never be delivered, None when unknown."""
        return self._moved(forward=True)

    @property
    def replayed(self) -> int | None:
        """Number of messages that will be delivered again, None when unknown."""
        return self._moved(forward=False)

    def _moved(self, *, forward: bool) -> int | None:
        moved = self.moved_range
        if moved is None or self.committed is None or self.target is None:
            return None
        return moved[1] - moved[0] if (self.target > self.committed) == forward else 0


def bounds_of(queues: Iterable[QueuePlan]) -> dict[MessageQueue, tuple[int, int]]:
    """Return the min and max offset of each queue."""
    return {each.queue: (each.min_offset, each.max_offset) for each in queues}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """The plan of a whole reset; `queues` are sorted, `warnings` are about all of it.

    `client_ids` are the members that are online and consume the topic. `methods` has,
    for each topic and broker, how offsets can be set there. `broadcast` says why the
    reset has no effect in a broadcast group; it is empty for other groups. `unknown`
    has the queues that are part of the reset but could not be read, and why: a plan
    with any of them must not be applied. `departed` has those that an earlier run knew
    on brokers that have left the route since, and those of brokers on which the topic
    is not readable; the others can be moved without them.
    `cluster` is where the queues are.
    """

    group: str
    topic: str
    cluster: ClusterIdentity
    queues: tuple[QueuePlan, ...]
    warnings: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    broadcast: str = ""
    methods: dict[MethodKey, ResetMethod]
    unknown: Mapping[MessageQueue, RmqError] = field(default_factory=dict)
    departed: Mapping[MessageQueue, RmqError] = field(default_factory=dict)

    def method_of(self, queue: MessageQueue) -> ResetMethod:
        """How the offset of `queue` can be set."""
        return self.methods[method_key(queue)]

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the reset would have no effect or would not last; empty otherwise."""
        methods = (self.method_of(each.queue) for each in self.changes)
        refused = [r.warning for r in methods if r.mechanism is Mechanism.REFUSED]
        return tuple(filter(None, dict.fromkeys([self.broadcast, *refused])))

    @property
    def changes(self) -> tuple[QueuePlan, ...]:
        """The queues whose committed offset has to be changed."""
        return tuple(each for each in self.queues if each.is_change)

    @property
    def nothing_to_do(self) -> str:
        """Why there is nothing to do, for a plan without `changes`."""
        if not self.impossible:
            left = " that is left" if self.departed else ""
            return f"every queue{left} is already at its target"
        count = counted(len(self.impossible), "queue has", "queues have")
        reasons = dict.fromkeys(each.warnings[-1] for each in self.impossible)
        others = "; every other queue is already at its target"
        rest = others if len(self.impossible) < len(self.queues) else ""
        return f"{count} no target, because {'; '.join(reasons)}{rest}"

    @property
    def impossible(self) -> tuple[QueuePlan, ...]:
        """The queues for which no target could be found."""
        return tuple(each for each in self.queues if each.target is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What was found out about the group as a whole.

    `retry_pending` is the number of messages that wait in its retry topic, and
    `retry_unknown` the number of queues of that topic that could not be read. Both are
    0 when that topic is part of the reset.
    """

    group: str
    topic: str
    cluster: ClusterIdentity
    client_ids: tuple[str, ...] = ()
    #: why more clients may be online; None if that is known
    clients_unknown: str | None = None
    is_broadcast: bool = False
    retry_pending: int = 0
    retry_unknown: int = 0
    #: what POP has handed out to the group; None without POP
    pop: PopLag | None = None


def plan_queue(facts: QueueFacts) -> QueuePlan:
    """Plan one queue: clamp the target to the queue's range, and add warnings."""
    warnings = []
    committed = facts.committed
    if committed is None:
        warnings.append(
            "no offset was committed here before; an undo cannot restore that"
        )
    elif committed < facts.min_offset:
        lost = facts.min_offset - committed
        warnings.append(
            f"expired: {committed} is committed but the oldest message is"
            f" {facts.min_offset}, {lost} were deleted unread"
        )
    elif committed > facts.max_offset:
        warnings.append(
            f"beyond the end: {committed} is committed but the end is"
            f" {facts.max_offset}"
        )
    target = None
    if facts.wanted is not None:
        target = min(max(facts.wanted, facts.min_offset), facts.max_offset)
        if target != facts.wanted and not facts.note:
            warnings.append(
                f"clamped: {facts.wanted} is outside the queue, using {target}"
            )
    if facts.note:
        warnings.append(facts.note)
    return QueuePlan(
        queue=facts.queue,
        committed=committed,
        target=target,
        min_offset=facts.min_offset,
        max_offset=facts.max_offset,
        warnings=tuple(warnings),
    )


def shift(facts: QueueFacts, count: int) -> QueueFacts:
    """Return `facts` with a target `count` messages forward, or back when negative.

    Only messages that still exist count: +10 from an expired offset is 10 after the
    oldest message.
    """
    if facts.committed is None:
        note = "nothing is committed here, so there is nothing to shift from"
        return replace(facts, wanted=None, note=note)
    here = min(max(facts.committed, facts.min_offset), facts.max_offset)
    return replace(facts, wanted=here + count)


def restore(facts: QueueFacts, committed: int | None) -> QueueFacts:
    """Return `facts` with `committed`, from a backup, as the target.

    A queue that had no committed offset goes to its oldest message: a commit cannot be
    removed, and from there no message is lost.
    """
    if committed is None:
        note = (
            "no offset was committed here at the time of the backup; a commit cannot be"
            " removed, so the oldest message is used and none is lost"
        )
        return replace(facts, wanted=facts.min_offset, note=note)
    return replace(facts, wanted=committed)


def make_plan(
    group: GroupFacts,
    queues: Iterable[QueueFacts],
    methods: dict[MethodKey, ResetMethod],
) -> ResetPlan:
    """Make a plan from the facts; `messages.with_times` adds edges and store times."""
    plans = tuple(plan_queue(each) for each in sorted(queues, key=lambda f: f.queue))
    changed = {method_key(each.queue) for each in plans if each.is_change}
    warnings = []
    if group.client_ids:
        count = len(group.client_ids)
        warnings.append(
            f"{counted(count, 'client is', 'clients are')} online and reading"
            f" {group.topic}"
        )
    if group.clients_unknown is not None:
        warnings.append(group.clients_unknown)
    warnings += dict.fromkeys(
        method.warning
        for key, method in methods.items()
        if method.warning and key in changed
    )
    broadcast: str = ""
    if group.is_broadcast:
        broadcast = (
            f"group {group.group} consumes in broadcast mode: its clients keep their"
            " own offsets, and a reset at the broker has no effect on them"
        )
        warnings.append(broadcast)
    warnings += _retry_warnings(group)
    warnings += _pop_warnings(group.pop)
    return ResetPlan(
        group=group.group,
        topic=group.topic,
        queues=plans,
        warnings=tuple(warnings),
        client_ids=group.client_ids,
        broadcast=broadcast,
        methods=methods,
        cluster=group.cluster,
    )


def _retry_warnings(group: GroupFacts) -> list[Hint]:
    count, topic = group.retry_pending, retry_topic(group.group)
    warnings = []
    if count:
        waiting = counted(count, "message waits", "messages wait")
        warnings.append(f"{waiting} in {topic} and will still be delivered; ")
    if group.retry_unknown:
        queues = counted(group.retry_unknown, "queue")
        warnings.append(
            f"{queues} of {topic} could not be read: messages may wait there; "
        )
    resets_it = Setting("include_retry", True)
    return [Hint(each, resets_it, " resets that too") for each in warnings]


def _pop_warnings(pop: PopLag | None) -> list[str]:
    """Say what is delivered whatever the offsets are."""
    warnings: list[str] = []
    if pop is None:
        return warnings
    if pop.inflight is None:
        warnings.append(
            "messages may be handed out and not acknowledged, and are then delivered"
            f" again: {pop.reason}"
        )
    elif pop.inflight:
        be = "is" if pop.inflight == 1 else "are"
        warnings.append(
            f"{counted(pop.inflight, 'message')} {be} handed out and not acknowledged:"
            " each is delivered again when its invisible time ends, wherever the"
            " offsets are, and twice where the reset goes back before it"
        )
    if pop.retry_lag:
        waiting = counted(pop.retry_lag, "message waits", "messages wait")
        warnings.append(f"{waiting} in retry topics of POP and will still be delivered")
    return warnings


def check_drift(
    plan: ResetPlan, expected: Mapping[MessageQueue, tuple[int | None, int]]
) -> None:
    """Raise RefusedError when offsets have moved since the file of `plan` was made.

    `expected` is queue -> (committed, target) of the file. A queue that is already at
    its target is accepted, so that a file can be applied twice. A target that is now
    outside the queue is refused, too.
    """
    moved = []
    for each in plan.queues:
        committed, target = expected.get(each.queue, (each.committed, each.target))
        if each.committed not in (committed, target):
            moved.append(
                f"{each.queue}: committed offset was {committed}, is now"
                f" {each.committed}"
            )
        elif each.target != target:
            moved.append(
                f"{each.queue}: target {target} is outside the queue"
                f" ({each.min_offset} to {each.max_offset})"
            )
    if moved:
        raise moved_error(moved, hint="make a new plan")


def moved_error(moved: Sequence[str], done: str = "", *, hint: str) -> RefusedError:
    """The error for queues of which `moved` says how their offsets moved."""
    others = len(moved) - 1
    more = f" and {counted(others, 'more queue')}" if others else ""
    return RefusedError(
        f"offsets moved since the plan was made: {moved[0]}{more}{done}", hint=hint
    )
