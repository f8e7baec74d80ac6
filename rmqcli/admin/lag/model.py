"""How far a group is behind its queues, computed from what was read. Pure.

A number that is not known is None with a reason, never 0 or -1. A topic has the state
of its worst queue (`LagState`).

The state of a group (`GroupState`), which tables, `--watch` and JSON show. Some states
follow from one sample; what is marked with * needs a second one (`trend`). When several
states apply, the last of them in the table is used:

| state | meaning |
|---|---|
| OK | no message waits; * or all that waited at the first sample were consumed by the second |
| BEHIND | messages wait, and members are active, or it is not known whether they are |
| GROWING * | the lag grew, and some messages of the first sample still wait; or it grew by more than arrives between two commits |
| NO_COMMIT | the group never committed in queues that have messages, so its lag is not known |
| BROADCAST | the members keep their offsets themselves |
| STOPPED | messages wait and no member is active; * and nothing was committed between the samples |
| STALLED * | messages wait in a queue where nothing was committed, though members are active |
| REWOUND * | a committed offset moved back |
| AHEAD | the group committed beyond the end of a queue |
| EXPIRED | messages were deleted before the group read them |
| UNKNOWN | a broker did not answer, or has left the route, or the group consumes lite topics |

Source: ConsumeStats, QueueTimeSpan in apache/rocketmq; the states are ours.
"""  # noqa: E501  # a table

from __future__ import annotations

import dataclasses
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import LagState, is_retry, queue_lag
from rmqcli.model import is_pop_retry
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rmqcli.admin.lag.members import Members
    from rmqcli.admin.lag.process_queues import ClientQueues
    from rmqcli.engine.queue_lag import QueueKey, QueueLag, QueueReading

BROADCASTING = "BROADCASTING"  # MessageModel.BROADCASTING
_RANK = {state: rank for rank, state in enumerate(LagState)}


class GroupState(StrEnum):
    """The states of a group, the worst last."""

    OK = "OK"
    BEHIND = "BEHIND"
    GROWING = "GROWING"
    NO_COMMIT = "NO_COMMIT"
    BROADCAST = "BROADCAST"
    STOPPED = "STOPPED"
    STALLED = "STALLED"
    REWOUND = "REWOUND"
    AHEAD = "AHEAD"
    EXPIRED = "EXPIRED"
    UNKNOWN = "UNKNOWN"


_GROUP_RANK = {state: rank for rank, state in enumerate(GroupState)}


def rank_of(state: LagState | GroupState) -> int:
    """Return how bad a state is among those of its class; 0 is OK."""
    return _RANK[state] if isinstance(state, LagState) else _GROUP_RANK[state]


def worst_state(states: Iterable[GroupState]) -> GroupState:
    """Return the worst of some states, or OK without any."""
    return max(states, key=rank_of, default=GroupState.OK)


@dataclass(slots=True, kw_only=True)
class BrokerFailure:
    """A broker that did not report what was requested, and why."""

    broker_name: str
    address: str | None
    message: str


@dataclass(slots=True, kw_only=True, eq=False)
class UnreachableQueues:
    """Queues that were removed from a topic, with messages that the group has not read.

    No consumer reads them until the topic has as many queues again. `messages` is None
    when it is not known how many there are.
    """

    topic: str
    broker_name: str
    queue_ids: tuple[int, ...]
    messages: int | None

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.queue_ids))
        one = len(self.queue_ids) == 1
        queues, are = ("queue", "is") if one else ("queues", "are")
        many = "messages, unknown how many,"
        if self.messages is not None:
            many = counted(self.messages, "message")
        return (
            f"{queues} {ids} of {self.topic} on {self.broker_name} {are} beyond the"
            f" topic's queues: {many} that no consumer reads"
        )


@dataclass(slots=True, kw_only=True, eq=False)
class GroupReading:
    """Everything that was read about one group."""

    group: str
    at_ms: int = 0
    queues: list[QueueReading] = field(default_factory=list)
    failures: list[BrokerFailure] = field(default_factory=list)
    #: None when no member is online, or brokers were not asked for members
    members: Members | None = None
    #: why there may be more members, as brokers were not asked or did not tell
    members_unknown: str | None = None
    #: client id -> what it holds; None when clients were not asked
    clients: Mapping[str, ClientQueues] | None = None
    notes: list[str] = field(default_factory=list)
    #: removed queues that hold messages which it has not read; they are not in `queues`
    unreachable: list[UnreachableQueues] = field(default_factory=list)
    #: brokers on which its consumption is switched off, if that was asked
    paused_on: list[str] = field(default_factory=list)
    #: messages in its dead letter topic; None when a broker did not report them
    dead_letters: int | None = None
    #: why a broker that answers did not report them
    dead_letters_unknown: str | None = None
    #: why a broker that answers did not report how old messages are
    ages_unknown: str | None = None
    #: why it is not known what POP has handed out to it; None when it is, or is nothing
    pop_unknown: str | None = None


@dataclass(slots=True, kw_only=True)
class TopicLag:
    """The lag of a topic, summed over its queues; `known_lag` skips unknown ones.

    `age_ms` is None where a lag or an age is unknown, whose messages may be older than
    those that `known_age_ms` is the age of.
    `queue_nums` is None where it is not known which queues a broker has. `expression`
    is the members' filter. Messages that it excludes count as lag until a member has
    moved past them.
    """

    topic: str | None
    lag: int | None
    known_lag: int
    age_ms: int | None
    known_age_ms: int | None
    state: LagState
    queue_nums: int | None
    is_retry: bool
    expression: str | None = None


@dataclass(slots=True, kw_only=True)
class PopLag:
    """What POP, and with it every gRPC client, has handed out to a group.

    `inflight` messages were handed out and are not acknowledged; None, with a `reason`,
    when that is not known. `overdue` of them are visible again, and the broker has not
    yet copied them to the retry topic; the next is visible at `visible_ms` (epoch ms by
    the broker's clock), `visible_in_ms` after the reading. `retry_lag` messages wait in
    the retry topics of POP. All of them count as lag, too.
    """

    inflight: int | None = None
    overdue: int | None = None
    visible_ms: int | None = None
    visible_in_ms: int | None = None
    retry_lag: int | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class GroupLag:
    """A group's lag; `total_lag` is None, with a `reason`, when a part is unknown.

    So is `age_ms`, also where only the age of a queue is unknown; `known_lag` and
    `known_age_ms` are of the parts that are known.
    `pop` is None for a group that is not known to use POP. `state` follows from one
    sample, unless `trend.judge` has replaced it.
    """

    group: str
    state: GroupState
    total_lag: int | None
    known_lag: int
    reason: str | None
    age_ms: int | None
    known_age_ms: int | None
    topics: tuple[TopicLag, ...]
    queues: tuple[QueueLag, ...]
    reading: GroupReading = field(compare=False)
    pop: PopLag | None = None

    def __repr__(self) -> str:
        return (
            f"GroupLag(group={self.group!r}, state={self.state!r},"
            f" total_lag={self.total_lag}, reason={self.reason!r},"
            f" age_ms={self.age_ms}, topics={len(self.topics)},"
            f" queues={len(self.queues)})"
        )

    @property
    def is_partial(self) -> bool:
        """Whether a broker did not report what was requested."""
        return bool(self.reading.failures) or any(
            queue.state is LagState.UNKNOWN for queue in self.queues
        )

    def untold(self) -> Iterator[tuple[str, str | None]]:
        """Yield the brokers that did not report the group, or a topic of it, and why.

        Lite topics, which no broker measures, do not count.
        """
        for failure in self.reading.failures:
            yield failure.broker_name, failure.message
        failed = {failure.broker_name for failure in self.reading.failures}
        for queue in self.queues:
            if (
                queue.state is LagState.UNKNOWN
                and queue.max_offset is None
                and queue.broker_name not in failed
                and queue.reason != lite_unmeasured(queue.topic)
            ):
                yield queue.broker_name, queue.reason

    @property
    def doubt(self) -> str | None:
        """Why messages may be unread that do not count as lag; None if they are not.

        What a queue holds counts as read if the committed offset is beyond its end: the
        topic may have been created again, with other messages.
        """
        ahead = [queue for queue in self.queues if queue.state is LagState.AHEAD]
        held = sum((q.max_offset or 0) - (q.min_offset or 0) for q in ahead)
        if not ahead:
            return None
        hold = "holds" if len(ahead) == 1 else "hold"
        return (
            f"committed beyond the end of {counted(len(ahead), 'queue')}, which {hold}"
            f" {counted(held, 'message')} that it may not have read"
        )


@dataclass(slots=True, kw_only=True)
class LagList:
    """The lag of groups, sorted by name, and the brokers that did not report theirs.

    A broker in `failures` may have groups that are not among `groups`. One that has
    left the route within the last week is in it if groups had queues there.
    """

    groups: list[GroupLag]
    failures: list[BrokerFailure]


def lite_unmeasured(topic: str | None) -> str:
    """Return why the lag in the lite topics of `topic` is not known."""
    return f"the lag in lite topics of {topic} is not measured"


def without_answer(lag: GroupLag, reason: str) -> GroupLag:
    """Return `lag` as far as it is known when no broker has answered since: UNKNOWN.

    Offsets are kept as they were read last.
    """
    return dataclasses.replace(
        lag,
        state=GroupState.UNKNOWN,
        total_lag=None,
        known_lag=0,
        reason=reason,
        age_ms=None,
        known_age_ms=None,
        topics=tuple(
            dataclasses.replace(
                topic,
                lag=None,
                known_lag=0,
                age_ms=None,
                known_age_ms=None,
                state=LagState.UNKNOWN,
            )
            for topic in lag.topics
        ),
        queues=tuple(
            dataclasses.replace(
                queue, lag=None, age_ms=None, state=LagState.UNKNOWN, reason=reason
            )
            for queue in lag.queues
        ),
    )


def compute_lag(reading: GroupReading) -> GroupLag:
    """Compute the lag of each queue and topic and of the group. Queues are sorted."""
    members = reading.members
    has_members = members is not None or reading.members_unknown is not None
    is_broadcast = members is not None and members.message_model == BROADCASTING
    owners = _owners(reading.clients)
    queues = [
        queue_lag(
            item,
            is_broadcast=is_broadcast,
            has_members=has_members,
            client_id=owners.get((item.topic, item.broker_name, item.queue_id)),
        )
        for item in sorted(reading.queues, key=_queue_order)
    ]
    by_topic: dict[str | None, list[QueueLag]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    topics = tuple(
        _topic_lag(topic, items, reading) for topic, items in by_topic.items()
    )
    total, reason = _total(queues, reading)
    return GroupLag(
        group=reading.group,
        state=_group_state(queues, reading, is_broadcast=is_broadcast),
        total_lag=total,
        known_lag=_known(queues),
        reason=reason,
        age_ms=None if total is None else age_of(queues),
        known_age_ms=_oldest(queues),
        topics=topics,
        queues=tuple(queues),
        reading=reading,
        pop=_pop_lag(queues, reading),
    )


def _pop_lag(queues: Sequence[QueueLag], reading: GroupReading) -> PopLag | None:
    #: (until it is visible, when that is) for each message
    times = [
        (visible_ms - item.clock_ahead_ms - reading.at_ms, visible_ms)
        for item in reading.queues
        for offset, visible_ms in (item.handed_out or {}).items()
        if offset >= (item.min_offset or 0)
    ]
    if reading.pop_unknown is None and all(
        item.handed_out is None for item in reading.queues
    ):
        return None
    waiting = [each for each in times if each[0] > 0]
    visible_in_ms, visible_ms = min(waiting, default=(None, None))
    is_known = reading.pop_unknown is None
    return PopLag(
        inflight=len(times) if is_known else None,
        overdue=len(times) - len(waiting) if is_known else None,
        visible_ms=visible_ms,
        visible_in_ms=visible_in_ms,
        retry_lag=_sum(q for q in queues if is_pop_retry(q.topic or "", reading.group)),
        reason=reading.pop_unknown,
    )


def _group_state(
    queues: list[QueueLag], reading: GroupReading, *, is_broadcast: bool
) -> GroupState:
    if reading.failures:
        return GroupState.UNKNOWN
    if not queues:
        return GroupState.BROADCAST if is_broadcast else GroupState.NO_COMMIT
    worst = _worst(queues)
    if worst is LagState.NO_COMMIT and _sum(queues):
        worst = LagState.OK  # messages wait in a retry topic only; how many is known
    states = [GroupState.OK if worst is LagState.KNOWN else GroupState(worst)]
    if _known(queues):
        is_stopped = reading.members is None and reading.members_unknown is None
        states.append(GroupState.STOPPED if is_stopped else GroupState.BEHIND)
    return worst_state(states)


def _queue_order(item: QueueReading) -> tuple[str, str, int]:
    queue_id = -1 if item.queue_id is None else item.queue_id
    return item.topic or "", item.broker_name, queue_id


def _topic_lag(
    topic: str | None, queues: list[QueueLag], reading: GroupReading
) -> TopicLag:
    subscription = None
    if reading.members is not None and topic is not None:
        subscription = reading.members.subscriptions.get(topic)
    lag = _sum(queues)
    return TopicLag(
        topic=topic,
        lag=lag,
        known_lag=_known(queues),
        age_ms=age_of(queues),
        known_age_ms=_oldest(queues),
        state=_worst(queues),
        queue_nums=sum(queue.queue_id is not None for queue in queues) or None,
        is_retry=is_retry(topic),
        expression=None if subscription is None else subscription.sub_string,
    )


def _total(
    queues: list[QueueLag], reading: GroupReading
) -> tuple[int | None, str | None]:
    if reading.failures:
        names = ", ".join(sorted({f.broker_name for f in reading.failures}))
        return None, f"{names}: {reading.failures[0].message}"
    if not queues:
        return None, "no committed offset, and no member subscribes to a topic"
    unknown = [queue for queue in queues if queue.lag is None]
    if unknown:
        first = unknown[0].reason or "unknown"
        return (
            None,
            f"unknown in {len(unknown)} of {counted(len(queues), 'queue')}: {first}",
        )
    return _sum(queues), None


def _sum(queues: Iterable[QueueLag]) -> int | None:
    total = 0
    for queue in queues:
        if queue.lag is None:
            return None
        total += queue.lag
    return total


def _known(queues: Iterable[QueueLag]) -> int:
    return sum(queue.lag for queue in queues if queue.lag is not None)


def age_of(queues: Sequence[QueueLag]) -> int | None:
    """Return the age of the oldest unread message; None if that of a queue is unknown.

    A queue may be unread although no broker reports since when, as with POP.
    """
    is_known = all(queue.age_ms is not None for queue in queues if queue.lag != 0)
    return _oldest(queues) if is_known else None


def _oldest(queues: Sequence[QueueLag]) -> int | None:
    """Return the greatest known age of queues with lag; None when none is known.

    0 when every queue's lag is 0: where one is unknown, its messages may be old.
    """
    behind = [queue for queue in queues if queue.lag != 0]
    ages = [queue.age_ms for queue in behind if queue.age_ms is not None]
    return max(ages, default=None) if behind or not queues else 0


def _worst(queues: Sequence[QueueLag]) -> LagState:
    if all(queue.state is LagState.NO_COMMIT for queue in queues):
        return LagState.NO_COMMIT
    # An empty queue without a commit says nothing about the group.
    told = [q for q in queues if q.state is not LagState.NO_COMMIT or q.lag is None]
    return max((queue.state for queue in told), key=rank_of)


def _owners(clients: Mapping[str, ClientQueues] | None) -> dict[QueueKey, str]:
    """Return the members that hold each queue; several during a rebalance."""
    owners: dict[QueueKey, str] = {}
    for client_id, client in sorted((clients or {}).items()):
        for queue in client.held_queues():
            key = (queue.topic, queue.broker_name, queue.queue_id)
            owners[key] = f"{owners[key]},{client_id}" if key in owners else client_id
    return owners
