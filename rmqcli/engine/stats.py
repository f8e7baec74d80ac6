"""Counts by topic, and rates over the last minute, as Java's clients report them.

Source: ConsumerStatsManager, StatsItem (a snapshot every 10 s, seven for a minute).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.wire.bodies.consumer import ConsumeStatus

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_INTERVAL_MS: Final = 10_000
_SAMPLES_A_MINUTE: Final = 7
_SAMPLES_AN_HOUR: Final = 361


class TopicStats:
    """Running totals of one topic, from which `sample` makes rates possible.

    Nothing is counted before `now_ms`. The first sample is 10 s older, as Java's is, so
    that a rate is always that of 10 s or more.
    """

    def __init__(self, now_ms: int) -> None:
        self.pulls = 0
        self.pull_rt_ms = 0
        self.pulled = 0
        self.consume_ok = 0
        self.consume_failed = 0
        self.consume_rt_ms = 0
        self._samples: deque[tuple[int, ...]] = deque(maxlen=_SAMPLES_AN_HOUR)
        self.sample(now_ms - SAMPLE_INTERVAL_MS)

    def _totals(self, now_ms: int) -> tuple[int, ...]:
        return (
            now_ms,
            self.pulls,
            self.pull_rt_ms,
            self.pulled,
            self.consume_ok,
            self.consume_failed,
            self.consume_rt_ms,
        )

    def sample(self, now_ms: int) -> None:
        """Store a snapshot of the totals. Call it every SAMPLE_INTERVAL_MS."""
        self._samples.append(self._totals(now_ms))

    def status(self, now_ms: int) -> ConsumeStatus:
        """The rates of the last minute; 0 where nothing happened."""
        latest = self._totals(now_ms)
        minute = self._since(_SAMPLES_A_MINUTE, latest)
        seconds = max(minute[0], 1) / 1000
        consumed = minute[4] + minute[5]
        hour = self._since(_SAMPLES_AN_HOUR, latest)
        return ConsumeStatus(
            pull_rt=minute[2] / minute[1] if minute[1] else 0.0,
            pull_tps=minute[3] / seconds,
            consume_rt=minute[6] / consumed if consumed else 0.0,
            consume_ok_tps=minute[4] / seconds,
            consume_failed_tps=minute[5] / seconds,
            consume_failed_msgs=hour[5],
        )

    def _since(self, count: int, latest: tuple[int, ...]) -> tuple[int, ...]:
        first = self._samples[max(0, len(self._samples) - count)]
        return tuple(new - old for new, old in zip(latest, first, strict=True))


class ConsumerStats:
    """The counts of all topics."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.topics: dict[str, TopicStats] = {}
        self._now_ms = now_ms

    def of(self, topic: str) -> TopicStats:
        """The counts of a topic, created if there are none."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicStats(self._now_ms())
        return found

    def sample(self, now_ms: int) -> None:
        """Sample all topics."""
        for each in self.topics.values():
            each.sample(now_ms)
