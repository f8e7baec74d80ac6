"""Judges a group by how it behaved over a window of time, without thresholds. Pure.

A `History` has a series of points for each queue: when it was read, how far the group
had got (`progress`), and where the queue ended. Messages that arrived before a point
and still wait now have waited since that point, so the series is a lower bound of how
long the oldest message waits. Points whose messages are all consumed are dropped.

| a queue's verdict | over the window |
|---|---|
| OK | no message waits, or none has waited for as long as the window |
| BEHIND | some have, but the lag shrinks |
| GROWING | some have, messages are consumed, and the lag does not shrink |
| STALLED | messages wait, and none was consumed in this queue |
| STOPPED | as STALLED, and brokers know no member |
| REWOUND | the group went back by more than a restart explains, and is not yet back |
| AHEAD, EXPIRED | as by one reading (`model`) |
| UNKNOWN | the lag is not known, or the history is too short |

The time between two points counts as half the window at most. So a verdict needs three
points, and neither a check that did not run for hours nor a clock that jumps makes a
healthy group look stalled. The order of points is that of the readings.

Source: the evaluation rules of linkedin/Burrow, which looks at the window's lags; the
time that messages have waited is ours.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.lag.model import GroupState
from rmqcli.admin.lag.trend import GROWTH_FLOOR
from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import LagState
from rmqcli.units import counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.engine.queue_lag import QueueKey, QueueLag

#: The longest series. It is reached only if the clock goes back again and again.
_POINTS_MAX: Final = 64
#: Points that are closer than this part of the window replace each other.
_POINTS_PER_WINDOW: Final = 20
#: A broker that crashed may have lost the commits of some seconds, which are no rewind.
_REWIND_FLOOR_MS: Final = 30_000

#: From the best to the worst.
_ORDER: Final = (
    GroupState.OK,
    GroupState.BEHIND,
    GroupState.GROWING,
    GroupState.AHEAD,
    GroupState.UNKNOWN,
    GroupState.STOPPED,
    GroupState.STALLED,
    GroupState.REWOUND,
    GroupState.EXPIRED,
)


class Point(NamedTuple):
    """One reading of a queue: messages before `progress` are consumed."""

    at_ms: int
    progress: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one queue, oldest first; at least one.

    `is_bounded`: the messages that waited at the first point arrived after an earlier
    reading, so they had not waited long. `is_assumed`: the group never committed, and
    `progress` is where the queue ended when it was first read.
    """

    points: tuple[Point, ...]
    is_bounded: bool = False
    is_assumed: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What earlier readings of a group have shown.

    `is_begun`: a reading was complete, so a queue that is not here is a new one.
    """

    queues: dict[QueueKey, Series] = field(default_factory=dict)
    is_begun: bool = False


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The verdict on a group; `reason` is None if nothing has to be said."""

    verdict: GroupState
    reason: str | None = None


def observe(
    history: History, lag: GroupLag, *, at_ms: int, window_ms: int
) -> tuple[History, Behaviour]:
    """Add a reading to the history of a group; return it, and the verdict on the group.

    A broker that did not answer keeps the history of its queues, and makes the group
    UNKNOWN unless something worse is known.
    """
    is_complete = not lag.is_partial
    queues = {} if is_complete else dict(history.queues)
    verdicts: dict[QueueKey, GroupState] = {}
    for queue in lag.queues:
        if queue.state in (LagState.UNKNOWN, LagState.BROADCAST):
            verdicts[queue.key] = GroupState.UNKNOWN
            continue
        series = _extended(
            history.queues.get(queue.key),
            queue,
            at_ms=at_ms,
            window_ms=window_ms,
            is_new=history.is_begun,
        )
        verdicts[queue.key] = _verdict(series, queue, window_ms)
        # Not earlier: the oldest point may be the one that proves the verdict.
        queues[queue.key] = _trimmed(series, window_ms)
    if lag.reading.members is None and lag.reading.members_unknown is None:
        for key, verdict in verdicts.items():
            if verdict is GroupState.STALLED:
                verdicts[key] = GroupState.STOPPED
    after = History(queues, is_begun=history.is_begun or is_complete)
    return after, _judged(lag, after, verdicts, window_ms)


def observed_ms(points: Sequence[Point], window_ms: int) -> int:
    """Return how long a series was observed: no gap counts as more than half a window.

    A clock that was set back counts as no time.
    """
    return sum(
        min(max(0, after.at_ms - before.at_ms), window_ms // 2)
        for before, after in itertools.pairwise(points)
    )


def _extended(
    series: Series | None,
    queue: QueueLag,
    *,
    at_ms: int,
    window_ms: int,
    is_new: bool,
) -> Series:
    """Return the series with this reading at its end, without what is consumed."""
    high = queue.max_offset or 0
    is_told = queue.lag is not None
    if series is not None and series.is_assumed and is_told:  # its first commit
        series, is_new = None, True
    if queue.committed is not None:
        progress = min(queue.committed, high) - (queue.unacknowledged or 0)
    elif series is not None and not is_told:
        progress = min(series.points[-1].progress, high)
    else:
        progress = high - (queue.lag or 0)
    if series is not None and high < series.points[-1].max_offset:
        if progress < series.points[-1].progress:  # the topic was created again
            series, is_new = None, True
        else:  # a broker that crashed lost the last messages
            series = dataclasses.replace(
                series,
                points=tuple(
                    each._replace(max_offset=min(each.max_offset, high))
                    for each in series.points
                ),
            )
    point = Point(at_ms, progress, high)
    if series is None:
        return Series((point,), is_bounded=is_new, is_assumed=not is_told)
    points = list(series.points)
    is_bounded = series.is_bounded
    if not series.is_assumed:
        while points and points[0].max_offset <= progress:
            del points[0]
            is_bounded = True
    least_ms = window_ms // _POINTS_PER_WINDOW
    if len(points) > 1 and 0 <= at_ms - points[-2].at_ms < least_ms:
        del points[-1]
    return dataclasses.replace(
        series, points=(*points, point)[-_POINTS_MAX:], is_bounded=is_bounded
    )


def _trimmed(series: Series, window_ms: int) -> Series:
    """Return the series without the points that are older than the window needs."""
    points = series.points
    left_ms = observed_ms(points, window_ms)
    first = 0
    while first + 1 < len(points):
        left_ms -= observed_ms(points[first : first + 2], window_ms)
        if left_ms < window_ms:
            break
        first += 1
    return dataclasses.replace(series, points=points[first:])


def _verdict(series: Series, queue: QueueLag, window_ms: int) -> GroupState:
    if queue.state in (LagState.EXPIRED, LagState.AHEAD):
        return GroupState(queue.state)
    points, now = series.points, series.points[-1]
    if _is_rewound(points):
        return GroupState.REWOUND
    if _stuck_ms(points, window_ms) >= window_ms:
        return GroupState.STALLED
    # Before a rewind what waits now was consumed.
    back = [index for index, each in enumerate(points) if each.progress > now.progress]
    points = points[back[-1] + 1 :] if back else points
    is_bounded = series.is_bounded or bool(back)
    is_short = observed_ms(points, window_ms) < window_ms
    if series.is_assumed:
        return GroupState.OK if is_bounded and is_short else GroupState.UNKNOWN
    if now.max_offset <= now.progress:
        return GroupState.OK
    if is_short:
        return GroupState.OK if is_bounded else GroupState.UNKNOWN
    # Single readings of a busy queue vary; the least of several hardly does.
    third = len(points) // 3
    lags = [point.max_offset - point.progress for point in points]
    is_shrinking = min(lags[-third:]) < min(lags[:third])
    return GroupState.BEHIND if is_shrinking else GroupState.GROWING


def _stuck_ms(points: Sequence[Point], window_ms: int) -> int:
    """Return for how long messages have waited while none was consumed."""
    now = points[-1]
    first = len(points)
    while (
        first > 0
        and points[first - 1].progress == now.progress
        and points[first - 1].max_offset > now.progress
    ):
        first -= 1
    return observed_ms(points[first:], window_ms)


def _is_rewound(points: Sequence[Point]) -> bool:
    now = points[-1]
    elapsed_ms = max(1, now.at_ms - points[0].at_ms)
    came = now.max_offset - points[0].max_offset
    floor = max(GROWTH_FLOOR, came * _REWIND_FLOOR_MS // elapsed_ms)
    return any(
        before.progress - after.progress > floor and now.progress < before.progress
        for before, after in itertools.pairwise(points)
    )


def _judged(
    lag: GroupLag,
    history: History,
    verdicts: dict[QueueKey, GroupState],
    window_ms: int,
) -> Behaviour:
    worst = max(verdicts.values(), key=_ORDER.index, default=GroupState.UNKNOWN)
    if lag.reading.failures and _ORDER.index(worst) < _ORDER.index(GroupState.UNKNOWN):
        worst = GroupState.UNKNOWN
    found = [queue for queue in lag.queues if verdicts.get(queue.key) is worst]
    if worst is GroupState.UNKNOWN:
        if lag.total_lag is None:
            return Behaviour(worst, lag.reason)
        return Behaviour(worst, _history_needed(found, history, window_ms))
    if worst is GroupState.OK:
        return Behaviour(worst)
    # The queue in which most messages wait is named.
    first = max(found, key=lambda queue: queue.lag or 0)
    where = f"{first.topic}@{first.broker_name}:{first.queue_id}"
    more = f" and {counted(len(found) - 1, 'more queue')}" if len(found) > 1 else ""
    window = format_duration(window_ms)
    series = history.queues[first.key]
    match worst:
        case GroupState.STALLED | GroupState.STOPPED:
            stuck = format_duration(_stuck_ms(series.points, window_ms))
            at = series.points[-1].progress
            words = (
                f"{where}{more}: nothing consumed at offset {at} for {stuck} or more"
            )
            if worst is GroupState.STOPPED:
                words += ", and brokers know no member"
        case GroupState.REWOUND:
            furthest = max(point.progress for point in series.points)
            words = f"{where}{more} went back from offset {furthest}"
            words += f" to {series.points[-1].progress}"
        case GroupState.GROWING | GroupState.BEHIND:
            shrinks = "shrinks" if worst is GroupState.BEHIND else "does not shrink"
            words = f"{where}{more}: messages wait for {window} or more, and the lag"
            words += f" {shrinks}"
        case _:
            words = f"{where}{more}: {first.reason}"
    return Behaviour(worst, words)


def _history_needed(found: Sequence[QueueLag], history: History, window_ms: int) -> str:
    shortest = min(
        (history.queues[queue.key].points for queue in found),
        key=lambda points: observed_ms(points, window_ms),
    )
    seen = format_duration(observed_ms(shortest, window_ms))
    return (
        f"a verdict needs {format_duration(window_ms)} of history in 3 samples or more;"
        f" so far there is {seen} in {counted(len(shortest), 'sample')}"
    )
