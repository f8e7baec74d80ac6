"""How far a group is behind in one queue, computed from what was read. Pure.

    lag = max - clamp(committed, min, max)

and, in a group that consumes by POP, the messages before that offset which were handed
out and not acknowledged: POP moves the offset when it hands a message out.

The caller reads committed offsets before max offsets: in the other order, a busy group
would seem to be ahead of its queue. A number that is not known is None with a reason,
never 0 or -1.

The state of a queue, and of a topic by its worst queue (`LagState`):

| state | meaning | lag |
|---|---|---|
| OK | no message waits | 0 |
| KNOWN | messages wait, and how many is known | known |
| NO_COMMIT | no offset was ever committed: the members choose where to start | None; 0 if the queue is empty; all messages of a retry topic |
| EXPIRED | messages were deleted before they were read | counts the messages that are left |
| AHEAD | committed beyond the last message | 0 |
| BROADCAST | members keep their offsets themselves | None |
| UNKNOWN | the broker did not report it | None |

Source: ConsumeStats, QueueTimeSpan in apache/rocketmq; the states are ours.
"""  # noqa: E501  # a table

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.wire.bodies.stats import QueueTimeSpan

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


@dataclass(slots=True, kw_only=True, eq=False)
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
    #: offset -> when it is visible again (epoch ms by the broker's clock), of messages
    #: that POP has handed out and that are not acknowledged; None without POP
    handed_out: Mapping[int, int] | None = None
    #: how far the broker's clock is ahead of the reader's; negative if it is behind
    clock_ahead_ms: int = 0

    def known_lag(self) -> int | None:
        """Return max minus the clamped committed offset; None when it is not known."""
        low, high = self.min_offset, self.max_offset
        if self.failure is not None or low is None or high is None:
            return None
        if self.committed is None:
            # In an empty queue nothing waits, wherever a member starts. In a retry
            # topic all messages wait.
            return max(0, high - low) if high <= low or is_retry(self.topic) else None
        at = min(max(self.committed, low), high)
        return high - at + self.unacknowledged_before(at)

    def unacknowledged_before(self, end: int) -> int:
        """Return how many stored messages before `end` are not acknowledged (POP)."""
        low = self.min_offset or 0
        return sum(low <= offset < end for offset in self.handed_out or ())


@dataclass(slots=True, kw_only=True)
class QueueLag:
    """The lag of one queue, in messages. Treat as immutable.

    A number that is not known is None, and `reason` says why. `expired` counts the
    messages that were deleted unread; `inflight` those that members have pulled and not
    yet consumed, with POP those that were handed out and not acknowledged. Of these,
    `unacknowledged` lie before the committed offset, and the first is visible again at
    `visible_ms` (epoch ms by the broker's clock); both are None without POP. `age_ms`
    is the age of the oldest unread message by the broker's clock. `client_id` names the
    members that hold the queue, separated by commas.
    """

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
    unacknowledged: int | None = None
    visible_ms: int | None = None

    def __repr__(self) -> str:
        return (
            f"QueueLag({self.topic}@{self.broker_name}:{self.queue_id},"
            f" {self.state.value}, lag={self.lag}, committed={self.committed})"
        )

    @property
    def key(self) -> QueueKey:
        """What identifies the queue within its group."""
        return self.topic, self.broker_name, self.queue_id


def queue_lag(
    item: QueueReading,
    *,
    is_broadcast: bool = False,
    has_members: bool = True,
    client_id: str | None = None,
) -> QueueLag:
    """Compute the lag of a queue; `client_id` is the member that holds it, or None."""
    state, reason = _state(item, is_broadcast=is_broadcast)
    lag = None if state is LagState.BROADCAST else item.known_lag()
    expired = None
    # What a group has left behind that became a broadcast one says nothing about it.
    if (
        item.committed is not None
        and item.min_offset is not None
        and state is not LagState.BROADCAST
    ):
        expired = max(0, item.min_offset - item.committed)
    return QueueLag(
        topic=item.topic,
        broker_name=item.broker_name,
        queue_id=item.queue_id,
        committed=None if state is LagState.BROADCAST else item.committed,
        min_offset=item.min_offset,
        max_offset=item.max_offset,
        lag=lag,
        inflight=_inflight(item, has_members=has_members),
        expired=expired,
        age_ms=_age_ms(item, lag),
        state=state,
        reason=reason,
        client_id=client_id,
        unacknowledged=None
        if item.handed_out is None or item.committed is None
        else item.unacknowledged_before(item.committed),
        visible_ms=min((item.handed_out or {}).values(), default=None),
    )


def _inflight(item: QueueReading, *, has_members: bool) -> int | None:
    if item.handed_out is not None:
        low = item.min_offset or 0
        return sum(offset >= low for offset in item.handed_out)
    # A broker keeps the pull offsets of members that have left.
    return item.inflight if has_members else None


def _state(item: QueueReading, *, is_broadcast: bool) -> tuple[LagState, str | None]:
    if item.failure is not None:
        return LagState.UNKNOWN, item.failure + _at_least(item)
    if item.min_offset is None or item.max_offset is None:
        return LagState.UNKNOWN, "the broker did not report the queue's ends"
    if is_broadcast:
        return LagState.BROADCAST, OWN_OFFSETS
    if item.committed is None:
        reason = FROM_THE_START if is_retry(item.topic) else NEVER_COMMITTED
        return LagState.NO_COMMIT, reason
    if item.committed < item.min_offset:
        lost = counted(item.min_offset - item.committed, "message")
        return LagState.EXPIRED, f"{lost} deleted before the group read them"
    if item.committed > item.max_offset:
        beyond = item.committed - item.max_offset
        return LagState.AHEAD, f"committed {beyond} beyond the end of the queue"
    is_read = item.known_lag() == 0
    return LagState.OK if is_read else LagState.KNOWN, None


def _at_least(item: QueueReading) -> str:
    """Say how many wait when only what POP has handed out is not known."""
    known = replace(item, failure=None).known_lag()
    if item.handed_out is None or item.committed is None or not known:
        return ""
    return f"; at least {known} wait"


def is_retry(topic: str | None) -> bool:
    """Whether it is a retry topic, in which every message waits for its group."""
    return topic is not None and topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def _age_ms(item: QueueReading, lag: int | None) -> int | None:
    """Return the oldest unread message's age by the broker's clock.

    0 when all messages are read, None when it is not known.
    """
    if not lag:
        return lag
    if item.handed_out and item.unacknowledged_before(item.committed or 0):
        return None  # older than the next one, of which brokers report the time
    span = item.time_span
    if span is None:
        return None
    if span.delay_time < _DELAY_IS_CLOCK_MS:
        return max(0, span.delay_time)
    if span.min_time_stamp <= 0:
        return None
    # The next message was deleted, so the oldest one left is the oldest unread one.
    return max(0, span.delay_time - 1 - span.min_time_stamp)
