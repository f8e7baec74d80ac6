"""Where a group's lag is going: two lags of it and the time between them. Pure.

| verdict | of a queue or group |
|---|---|
| REWIND | a committed offset went back |
| STOP | messages wait, nothing was committed, nobody is online |
| STALL | messages wait, nothing was committed, though members are online |
| WARN | lag grew by more than the floor |
| OK | none of these |
| UNKNOWN | one of the two lags is |

Members commit every 5 s by default, so a shorter time shows stalls that are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.lag import GroupLag, QueueKey, QueueLag

COMMIT_INTERVAL_MS = 5_000  # ClientConfig.persistConsumerOffsetInterval

#: Lag that grows by no more than this between two looks is the ebb and flow of a
#: healthy group.
GROWTH_FLOOR = 10


class Verdict(StrEnum):
    """What to think of a trend; the worst last."""

    OK = "OK"
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Messages per second in and out; `drain_ms` is None when it will not drain."""

    rate_in: float | None
    rate_out: float | None
    drain_ms: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrend:
    """The trend of a group and of each of its queues."""

    group: Trend
    queues: dict[QueueKey, Trend]


def compare(before: GroupLag, after: GroupLag, *, elapsed_ms: int) -> GroupTrend:
    """The trend of a group whose lag was read twice, `elapsed_ms` apart."""
    earlier = {queue.key: queue for queue in before.queues}
    is_online = after.reading.members is not None
    trends: dict[QueueKey, Trend] = {}
    came = done = 0
    for queue in after.queues:
        key = queue.key
        trend = _queue_trend(
            earlier.get(key), queue, elapsed_ms=elapsed_ms, is_online=is_online
        )
        trends[key] = trend
        moved = _moved(earlier.get(key), queue)
        if moved is not None:
            came += moved[0]
            done += moved[1]
    verdict = _worst(trend.verdict for trend in trends.values())
    is_known = verdict is not Verdict.UNKNOWN and bool(trends)
    return GroupTrend(
        group=Trend(
            rate_in=_rate(came, elapsed_ms) if is_known else None,
            rate_out=_rate(done, elapsed_ms) if is_known else None,
            drain_ms=_drain_ms(after.total_lag, came, done, elapsed_ms),
            verdict=verdict if trends else Verdict.UNKNOWN,
        ),
        queues=trends,
    )


def _queue_trend(
    before: QueueLag | None, after: QueueLag, *, elapsed_ms: int, is_online: bool
) -> Trend:
    moved = _moved(before, after)
    if before is None or moved is None:
        is_empty = before is not None and before.lag == 0 and after.lag == 0
        verdict = Verdict.OK if is_empty else Verdict.UNKNOWN
        return Trend(rate_in=None, rate_out=None, drain_ms=None, verdict=verdict)
    came, done = moved
    return Trend(
        rate_in=_rate(came, elapsed_ms),
        rate_out=_rate(done, elapsed_ms),
        drain_ms=_drain_ms(after.lag, came, done, elapsed_ms),
        verdict=_verdict(before.lag, after.lag, done=done, is_online=is_online),
    )


def _verdict(
    lag_before: int | None, lag_after: int | None, *, done: int, is_online: bool
) -> Verdict:
    if done < 0:
        return Verdict.REWIND
    if lag_before is None or lag_after is None:
        return Verdict.UNKNOWN
    if done == 0 and lag_before > 0 and lag_after > 0:
        return Verdict.STALL if is_online else Verdict.STOP
    if lag_after - lag_before > GROWTH_FLOOR:
        return Verdict.WARN
    return Verdict.OK


def _moved(before: QueueLag | None, after: QueueLag) -> tuple[int, int] | None:
    """How far max and committed went; None when that is not known."""
    if (
        before is None
        or before.max_offset is None
        or before.committed is None
        or after.max_offset is None
        or after.committed is None
    ):
        return None
    return after.max_offset - before.max_offset, after.committed - before.committed


def _drain_ms(lag: int | None, came: int, done: int, elapsed_ms: int) -> int | None:
    if lag is None:
        return None
    if lag == 0:
        return 0
    net = done - came
    return lag * elapsed_ms // net if net > 0 else None


def _rate(count: int, elapsed_ms: int) -> float:
    return round(count * 1000 / max(1, elapsed_ms), 1)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.OK)
