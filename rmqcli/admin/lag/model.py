"""How far a group is behind its queues, computed from what was read. Pure.

    lag = max - clamp(committed, min, max)

The caller reads committed offsets before max offsets: in the other order, a busy group
would seem to be ahead of its queue. A number that is not known is None with a reason,
never 0 or -1.

The state of a queue, and of a topic by its worst queue (`LagState`):

| state | meaning | lag |
|---|---|---|
| OK | no message waits | 0 |
| KNOWN | messages wait, and how many is known; the group's state and the verdict of a second sample say what that means | known |
| NO_COMMIT | no offset was ever committed: the members choose where to start | None; 0 if the queue is empty; all messages of a retry topic |
| EXPIRED | messages were deleted before they were read | counts the messages that are left |
| AHEAD | committed beyond the last message | 0 |
| BROADCAST | members keep their offsets themselves | None |
| UNKNOWN | the broker did not report it | None |

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
| UNKNOWN | a broker did not answer, or has left the route |

Source: ConsumeStats, QueueTimeSpan in apache/rocketmq; the states are ours.
"""  # noqa: E501  # a table

from __future__ import annotations

import dataclasses
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.lag.members import Members
    from rmqcli.admin.lag.process_queues import ClientQueues
    from rmqcli.wire.bodies.stats import QueueTimeSpan


ValueT = TypeVar("ValueT")


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def fast_dataclass(cls: type[ValueT]) -> type[ValueT]:
    """Make `cls` a dataclass with slots and keyword arguments, compared by identity.

    Without generated `__eq__` and `__repr__` a class takes a quarter of the time to
    create, and a dozen are created before the first request can be sent.
    """
    return dataclasses.dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)


BROADCASTING = "BROADCASTING"  # MessageModel.BROADCASTING

NEVER_COMMITTED = (
    "no offset was ever committed; consumeFromWhere of the members decides where to"
    " start"
)
FROM_THE_START = "no offset was ever committed; members start at its first message"
OWN_OFFSETS = "a broadcast group: members keep their offsets themselves"

#: A delay of over 30 years is the broker's clock minus -1, which the broker uses as the
#: store time of a message that does not exist.
_DELAY_IS_CLOCK_MS = 10**12


#: Topic, broker name and queue id.
QueueKey = tuple[str | None, str, int | None]


class LagState(StrEnum):
    """The states of a queue or topic, the worst last."""

    OK = "OK"
    KNOWN = "KNOWN"
    NO_COMMIT = "NO_COMMIT"
    BROADCAST = "BROADCAST"
    AHEAD = "AHEAD"
    EXPIRED = "EXPIRED"
    UNKNOWN = "UNKNOWN"


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


_RANK = {state: rank for rank, state in enumerate(LagState)}
_GROUP_RANK = {state: rank for rank, state in enumerate(GroupState)}


def rank_of(state: LagState | GroupState) -> int:
    """Return how bad a state is among those of its class; 0 is OK."""
    return _RANK[state] if isinstance(state, LagState) else _GROUP_RANK[state]


def worst_state(states: Iterable[GroupState]) -> GroupState:
    """Return the worst of some states, or OK without any."""
    return max(states, key=rank_of, default=GroupState.OK)


@fast_dataclass
class QueueReading:
    """What was read about one queue for one group; treat as immutable.

    When `committed` and `failure` are both None, the group never committed. `failure`
    says why the remaining values are not known. A `queue_id` of None stands for all
    queues of a broker that did not report which it has. Not frozen, because a cluster
    may have a hundred thousand of these.
    """

    topic: str | None
    broker_name: str
    queue_id: int | None
    committed: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    inflight: int | None = None
    time_span: QueueTimeSpan | None = None
    failure: str | None = None

    def known_lag(self) -> int | None:
        """Return max minus the clamped committed offset; None when it is not known."""
        low, high = self.min_offset, self.max_offset
        if self.failure is not None or low is None or high is None:
            return None
        if self.committed is None:
            # In an empty queue nothing waits, wherever a member starts. In a retry
            # topic all messages wait.
            return max(0, high - low) if high <= low or _is_retry(self.topic) else None
        return high - min(max(self.committed, low), high)


@fast_dataclass
class BrokerFailure:
    """A broker that did not report what was requested, and why."""

    broker_name: str
    address: str | None
    message: str


@fast_dataclass
class GroupReading:
    """Everything that was read about one group."""

    group: str
    at_ms: int = 0
    queues: list[QueueReading] = field(default_factory=list)
    failures: list[BrokerFailure] = field(default_factory=list)
    #: None when no member is online, or brokers were not asked for members
    members: Members | None = None
    #: why brokers were not asked for members; None when they were
    members_unknown: str | None = None
    #: client id -> what it holds; None when clients were not asked
    clients: Mapping[str, ClientQueues] | None = None
    notes: list[str] = field(default_factory=list)
    #: messages in its dead letter topic; None when a broker did not report them
    dead_letters: int | None = None


@fast_dataclass
class QueueLag:
    """The lag of one queue. `expired` counts messages that were deleted unread."""

    topic: str | None
    broker_name: str
    queue_id: int | None
    committed: int | None
    min_offset: int | None
    max_offset: int | None
    lag: int | None
    inflight: int | None
    expired: int | None
    age_ms: int | None
    state: LagState
    reason: str | None = None
    client_id: str | None = None

    @property
    def key(self) -> QueueKey:
        """What identifies the queue within its group."""
        return self.topic, self.broker_name, self.queue_id


@fast_dataclass
class TopicLag:
    """The lag of a topic, summed over its queues; `known_lag` skips unknown ones.

    `expression` is the members' filter. Messages that it excludes count as lag until a
    member has moved past them.
    """

    topic: str | None
    lag: int | None
    known_lag: int
    age_ms: int | None
    state: LagState
    queue_nums: int
    is_retry: bool
    expression: str | None = None


@fast_dataclass
class GroupLag:
    """A group's lag; `total_lag` is None, with a `reason`, when a part is unknown.

    `state` follows from one sample, unless `trend.judge` has replaced it.
    """

    group: str
    state: GroupState
    total_lag: int | None
    known_lag: int
    reason: str | None
    age_ms: int | None
    topics: tuple[TopicLag, ...]
    queues: tuple[QueueLag, ...]
    reading: GroupReading

    @property
    def is_partial(self) -> bool:
        """Whether a broker did not report what was requested."""
        return bool(self.reading.failures) or any(
            queue.state is LagState.UNKNOWN for queue in self.queues
        )


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
        topics=tuple(
            dataclasses.replace(
                topic, lag=None, known_lag=0, age_ms=None, state=LagState.UNKNOWN
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
        _queue_lag(
            item, is_broadcast=is_broadcast, has_members=has_members, owners=owners
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
        age_ms=_oldest(queues),
        topics=topics,
        queues=tuple(queues),
        reading=reading,
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


def _queue_lag(
    item: QueueReading,
    *,
    is_broadcast: bool,
    has_members: bool,
    owners: Mapping[tuple[str, str, int], list[str]],
) -> QueueLag:
    state, reason = _state(item, is_broadcast=is_broadcast)
    lag = _lag(item, state)
    owner = None
    if item.topic is not None and item.queue_id is not None:
        owner = owners.get((item.topic, item.broker_name, item.queue_id))
    expired = None
    if item.committed is not None and item.min_offset is not None:
        expired = max(0, item.min_offset - item.committed)
    return QueueLag(
        topic=item.topic,
        broker_name=item.broker_name,
        queue_id=item.queue_id,
        committed=None if state is LagState.BROADCAST else item.committed,
        min_offset=item.min_offset,
        max_offset=item.max_offset,
        lag=lag,
        # A broker keeps the pull offsets of members that have left.
        inflight=item.inflight if has_members else None,
        expired=expired,
        age_ms=_age_ms(item, lag),
        state=state,
        reason=reason,
        client_id=None if owner is None else ",".join(owner),
    )


def _state(item: QueueReading, *, is_broadcast: bool) -> tuple[LagState, str | None]:
    if item.failure is not None:
        return LagState.UNKNOWN, item.failure
    if item.min_offset is None or item.max_offset is None:
        return LagState.UNKNOWN, "the broker did not report the queue's ends"
    if is_broadcast:
        return LagState.BROADCAST, OWN_OFFSETS
    if item.committed is None:
        reason = FROM_THE_START if _is_retry(item.topic) else NEVER_COMMITTED
        return LagState.NO_COMMIT, reason
    if item.committed < item.min_offset:
        lost = counted(item.min_offset - item.committed, "message")
        return LagState.EXPIRED, f"{lost} deleted before the group read them"
    if item.committed > item.max_offset:
        beyond = item.committed - item.max_offset
        return LagState.AHEAD, f"committed {beyond} beyond the end of the queue"
    is_read = item.committed == item.max_offset
    return LagState.OK if is_read else LagState.KNOWN, None


def _lag(item: QueueReading, state: LagState) -> int | None:
    if state is LagState.BROADCAST:
        return None
    return item.known_lag()


def _is_retry(topic: str | None) -> bool:
    return topic is not None and topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def _age_ms(item: QueueReading, lag: int | None) -> int | None:
    """Return the oldest unread message's age by the broker's clock.

    0 when all messages are read, None when it is not known.
    """
    if not lag:
        return lag
    span = item.time_span
    if span is None:
        return None
    if span.delay_time < _DELAY_IS_CLOCK_MS:
        return max(0, span.delay_time)
    if span.min_time_stamp <= 0:
        return None
    # The next message was deleted, so the oldest one left is the oldest unread one.
    return max(0, span.delay_time - 1 - span.min_time_stamp)


def _topic_lag(
    topic: str | None, queues: list[QueueLag], reading: GroupReading
) -> TopicLag:
    subscription = None
    if reading.members is not None and topic is not None:
        subscription = reading.members.subscriptions.get(topic)
    return TopicLag(
        topic=topic,
        lag=_sum(queues),
        known_lag=_known(queues),
        age_ms=_oldest(queues),
        state=_worst(queues),
        queue_nums=sum(queue.queue_id is not None for queue in queues),
        is_retry=_is_retry(topic),
        expression=None if subscription is None else subscription.sub_string,
    )


def _total(
    queues: list[QueueLag], reading: GroupReading
) -> tuple[int | None, str | None]:
    if reading.failures:
        names = ", ".join(sorted({f.broker_name for f in reading.failures}))
        return None, f"no answer from {names}: {reading.failures[0].message}"
    if not queues:
        return None, "no committed offset, and no member subscribes to a topic"
    unknown = [queue for queue in queues if queue.lag is None]
    if unknown:
        first = unknown[0].reason or "unknown"
        return None, f"unknown in {len(unknown)} of {len(queues)} queues: {first}"
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


def _oldest(queues: Sequence[QueueLag]) -> int | None:
    """Return the greatest known age of queues with lag; None when none is known."""
    asked = [queue for queue in queues if queue.lag] or queues
    return max((q.age_ms for q in asked if q.age_ms is not None), default=None)


def _worst(queues: Sequence[QueueLag]) -> LagState:
    worst = LagState.OK
    for queue in queues:
        state = queue.state
        if state is LagState.NO_COMMIT and queue.lag is not None:
            continue  # an empty queue says nothing about the group
        if _RANK[state] > _RANK[worst]:
            worst = state
    if all(q.state is LagState.NO_COMMIT for q in queues):
        return LagState.NO_COMMIT
    return worst


def _owners(
    clients: Mapping[str, ClientQueues] | None,
) -> dict[tuple[str, str, int], list[str]]:
    """Return the members that hold each queue; several during a rebalance."""
    owners: dict[tuple[str, str, int], list[str]] = {}
    for client_id, client in sorted((clients or {}).items()):
        for queue in client.held_queues():
            key = (queue.topic, queue.broker_name, queue.queue_id)
            owners.setdefault(key, []).append(client_id)
    return owners
