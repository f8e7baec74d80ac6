"""The trend of a group's lag, from two samples and the time between them. Pure.

Members commit every 5 s by default, so two samples that are less than two such
intervals apart say little about a healthy group. So a queue is only called STALLED or
GROWING after `TREND_MIN_MS`; `Samples` keeps the samples that `--watch` needs to
compare over that time.

| a queue's verdict | between two samples |
|---|---|
| OK | the messages that waited at the first are consumed, or none waits at the second |
| BEHIND | some of the messages that waited at the first still wait |
| GROWING | as BEHIND or OK, but the lag grew by more than normal variation |
| STOPPED | messages wait, nothing was committed in any queue, no active member |
| STALLED | nothing was committed in this queue, though members are active |
| REWOUND | the committed offset moved back |
| UNKNOWN | one of the two lags is unknown, or its topic or the queue is new |

What is shown for a queue is the worse of this verdict and the queue's state, so that
they never contradict each other. There is no verdict (None) for a queue whose lag is
known now and cannot be compared with the first sample.

A group's verdict is the worst of its queues' verdicts and of its own state in the
second sample (`model`). It is also GROWING when its BEHIND queues together grew by more
than normal variation.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rmqcli.admin.lag.model import GroupState, worst_state
from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import LagState
from rmqcli.units import rounded_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.engine.queue_lag import QueueKey, QueueLag

    #: The queues of some groups at one moment. What else was read of the groups takes
    #: more memory than these, and is not compared.
    Sample: TypeAlias = Mapping[str, tuple[QueueLag, ...]]

COMMIT_INTERVAL_MS = 5_000  # ClientConfig.persistConsumerOffsetInterval
TREND_MIN_MS = 2 * COMMIT_INTERVAL_MS

#: Lag that grows by no more than this between two samples is the normal variation of
#: a healthy group.
GROWTH_FLOOR = 10
#: States of one sample that a second one refines.
_OF_ONE_SAMPLE = (GroupState.OK, GroupState.BEHIND, GroupState.STOPPED)
_NOT_TOLD = (LagState.UNKNOWN, LagState.BROADCAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Rates in messages per second, the time to drain the lag, and the verdict.

    `drain_ms` is None when the lag does not shrink or is not known. `verdict` is None
    for a queue that cannot be compared with the first sample.
    """

    rate_in: float | None
    rate_out: float | None
    drain_ms: int | None
    verdict: GroupState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrend:
    """The trend of a group and of its queues; `state` is the group's verdict."""

    group: Trend
    queues: dict[QueueKey, Trend]
    state: GroupState


class Samples:
    """Samples of some groups, back to one that is old enough to compare with.

    Its times, `at_ms`, are those of a clock that is never set (`monotonic_ms`).
    """

    def __init__(self, *, apart_ms: int = 0) -> None:
        """`apart_ms`: the next sample is taken no earlier; saves memory."""
        self._apart_ms = apart_ms
        #: (monotonic ms, sample), oldest first. A list, because `rmq top` keeps one for
        #: each of thousands of groups, and an empty deque has room for 64 samples.
        self._samples: list[tuple[int, Sample]] = []

    def take(self, lags: Iterable[GroupLag], *, at_ms: int) -> dict[str, GroupTrend]:
        """Add a sample; return each group's trend since a sample that is old enough.

        That is the newest sample that is at least TREND_MIN_MS old. A group that is not
        in it has no trend, and without such a sample no group has.
        """
        now = {}
        then_ms, before = self.baseline(at_ms=at_ms)
        trends = {}
        for lag in lags:
            now[lag.group] = lag.queues
            if lag.group in before:
                elapsed_ms = at_ms - then_ms
                trends[lag.group] = compare(
                    before[lag.group], lag, elapsed_ms=elapsed_ms
                )
        self.add(now, at_ms=at_ms)
        return trends

    def baseline(self, *, at_ms: int) -> tuple[int, dict[str, tuple[QueueLag, ...]]]:
        """Return the time and the queues of the sample to compare one of `at_ms` with.

        They are `at_ms` and an empty dict if there is none.

        The caller may take groups out of it, which saves memory.
        """
        samples = self._samples
        while len(samples) > 1 and at_ms - samples[1][0] >= TREND_MIN_MS:
            del samples[0]
        if not samples or at_ms - samples[0][0] < TREND_MIN_MS:
            return at_ms, {}
        then_ms, sample = samples[0]
        if self._apart_ms >= TREND_MIN_MS:
            del samples[0]  # the next one is compared with that of `at_ms`
        return then_ms, dict(sample)

    def add(self, sample: Sample, *, at_ms: int) -> None:
        """Add a sample."""
        samples = self._samples
        samples.append((at_ms, sample))
        next_ms = at_ms + self._apart_ms
        while len(samples) > 1 and next_ms - samples[1][0] >= TREND_MIN_MS:
            del samples[0]


def judge(lag: GroupLag, trend: GroupTrend | None) -> GroupLag:
    """Return `lag` with the state that `trend` gives it; unchanged without a trend."""
    if trend is None:
        return lag
    return dataclasses.replace(lag, state=trend.state)


def compare(
    before: Iterable[QueueLag], after: GroupLag, *, elapsed_ms: int
) -> GroupTrend:
    """Return the trend of a group between two samples, `elapsed_ms` apart.

    Queues that only `before` has are ignored. Less than 1 ms counts as 1 ms.
    """
    return _Comparison(before, after, max(1, elapsed_ms)).trend()


def _shown_verdict(state: LagState, verdict: GroupState | None) -> GroupState | None:
    """Return the verdict to show beside a queue's state in the second sample.

    It is the worse of both; None for a queue whose lag is known now and that cannot be
    compared with the first sample.
    """
    if state is LagState.OK:
        return GroupState.OK
    if verdict is GroupState.UNKNOWN:
        verdict = None
    if state is LagState.KNOWN:
        return verdict
    own = GroupState(state)
    return own if verdict is None else worst_state([own, verdict])


class _Comparison:
    """Two samples of a group."""

    def __init__(
        self, before: Iterable[QueueLag], after: GroupLag, elapsed_ms: int
    ) -> None:
        self._earlier = {queue.key: queue for queue in before}
        self._after = after
        self._elapsed_ms = elapsed_ms
        self._is_long = elapsed_ms >= TREND_MIN_MS
        #: queue -> how many messages came and were consumed
        self._moves = {
            queue.key: _moved(self._earlier.get(queue.key), queue)
            for queue in after.queues
        }
        self._known = [moved for moved in self._moves.values() if moved is not None]
        self._is_at_work = self._find_work()

    def trend(self) -> GroupTrend:
        """Return the trend of the group and of each queue."""
        after = self._after
        verdicts = {queue.key: self._verdict(queue) for queue in after.queues}
        state = self._group_verdict(verdicts)
        moved = None
        if len(self._known) == len(self._moves) > 0:
            moved = sum(c for c, _ in self._known), sum(d for _, d in self._known)
        return GroupTrend(
            state=state,
            group=self._trend(after.total_lag, moved, state),
            queues={
                queue.key: self._trend(
                    queue.lag,
                    self._moves[queue.key],
                    _shown_verdict(queue.state, verdicts[queue.key]),
                )
                for queue in after.queues
            },
        )

    def _trend(
        self,
        lag: int | None,
        moved: tuple[int, int] | None,
        verdict: GroupState | None,
    ) -> Trend:
        if moved is None:
            return Trend(rate_in=None, rate_out=None, drain_ms=None, verdict=verdict)
        came, done = moved
        drain_ms = None
        if lag == 0:
            drain_ms = 0
        elif lag is not None and done > came:
            drain_ms = lag * self._elapsed_ms // (done - came)
        return Trend(
            rate_in=rounded_rate(came * 1000 / self._elapsed_ms),
            rate_out=rounded_rate(done * 1000 / self._elapsed_ms),
            drain_ms=drain_ms,
            verdict=verdict,
        )

    def _find_work(self) -> bool | None:
        """Return whether the group is consuming, or None when that is not known.

        It is not known when brokers were not asked for members and nothing was
        committed.
        """
        reading = self._after.reading
        if reading.members is not None:
            return True
        # Brokers do not see a proxy's members, but they see their commits.
        if any(done > 0 for _, done in self._known):
            return True
        return False if reading.members_unknown is None else None

    def _group_verdict(self, verdicts: Mapping[QueueKey, GroupState]) -> GroupState:
        """Return the worst of the group's own state and its queues' verdicts."""
        states: list[GroupState] = []
        if self._after.state not in _OF_ONE_SAMPLE:
            states.append(self._after.state)
        grown = 0
        for queue in self._after.queues:
            verdict = verdicts[queue.key]
            if verdict is not GroupState.UNKNOWN:
                states.append(verdict)
            elif queue.lag:
                is_stopped = self._is_at_work is False
                states.append(GroupState.STOPPED if is_stopped else GroupState.BEHIND)
            if verdict is GroupState.BEHIND:
                grown += (queue.lag or 0) - (self._earlier[queue.key].lag or 0)
        if grown > GROWTH_FLOOR and self._is_long:
            states.append(GroupState.GROWING)
        return worst_state(states)

    def _verdict(self, queue: QueueLag) -> GroupState:
        moved, before = self._moves[queue.key], self._earlier.get(queue.key)
        if moved is None:
            return GroupState.UNKNOWN
        came, done = moved
        if queue.lag == 0:
            return GroupState.OK
        if done < 0:
            return GroupState.REWOUND
        if before is None or before.lag is None or queue.lag is None:
            return GroupState.UNKNOWN
        if self._is_at_work is False:
            return GroupState.STOPPED
        if done == 0 and before.lag > 0 and self._is_long and self._is_at_work:
            return GroupState.STALLED
        grown = queue.lag - before.lag
        # Messages that arrived since the last commit may still wait.
        uncommitted = came * COMMIT_INTERVAL_MS // self._elapsed_ms
        is_growing = self._is_long and grown > max(GROWTH_FLOOR, uncommitted)
        if done >= before.lag and not is_growing:
            return GroupState.OK
        if self._is_long and grown > GROWTH_FLOOR:
            return GroupState.GROWING
        return GroupState.BEHIND


def _moved(before: QueueLag | None, after: QueueLag) -> tuple[int, int] | None:
    """Return how many messages came and were consumed; None when that is not known.

    What POP has handed out is consumed once it is acknowledged.
    """
    if after.max_offset == 0 and after.state not in _NOT_TOLD:
        was_there = before is not None and before.max_offset
        # Such as a queue of a retry topic that was created between the samples.
        return None if was_there else (0, 0)
    if (
        before is None
        or before.max_offset is None
        or after.max_offset is None
        or not {before.state, after.state}.isdisjoint(_NOT_TOLD)
        or after.max_offset < before.max_offset  # the topic was recreated
    ):
        return None
    came = after.max_offset - before.max_offset
    if before.committed is None and after.committed is None:
        return came, 0
    if before.committed is None or after.committed is None:
        return None
    done = after.committed - before.committed
    return came, done - (after.unacknowledged or 0) + (before.unacknowledged or 0)
