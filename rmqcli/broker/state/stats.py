"""Statistics of one broker: messages and bytes put and got, in total and recently.

Counters of the whole broker cover the last ten minutes, in steps of a second. Counters
of a topic, or of a topic and group, cover the last minute, in steps of ten seconds.
Not imitated: the totals at midnight, latencies.

Source: `StoreStatsService` and `BrokerStatsManager` in apache/rocketmq.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.clock import Now

_WINDOW_S: Final = 600
_KEYED_STEP_MS: Final = 10_000
_KEYED_STEPS: Final = 6
_KEYS_MAX: Final = 100_000

#: Indexes of the counters that are kept for each second.
PUT, FOUND, MISS, TRANSFERRED = range(4)


class Recent(NamedTuple):
    """The counts of one key over the last minute.

    `times` is the number of calls of `add`, `total` the sum of their counts.
    """

    times: int
    total: int
    tps: float


class Keyed:
    """Counts by key over the last minute."""

    def __init__(self) -> None:
        self._steps: dict[str, deque[list[int]]] = {}

    def add(self, key: str, count: int, now: Now) -> None:
        """Add `count` to a key. Beyond `_KEYS_MAX` keys, new ones are ignored."""
        step = now.monotonic_ms // _KEYED_STEP_MS
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= _KEYS_MAX:
                return
            steps = self._steps[key] = deque(maxlen=_KEYED_STEPS + 1)
        if not steps or steps[-1][0] < step:
            steps.append([step, 0, 0])
        steps[-1][1] += count
        steps[-1][2] += 1

    def has(self, key: str) -> bool:
        """Whether the key was ever counted."""
        return key in self._steps

    def recent(self, key: str, now: Now) -> Recent:
        """The last minute of a key; zeros for one that was never counted."""
        first = now.monotonic_ms // _KEYED_STEP_MS - _KEYED_STEPS
        found = [each for each in self._steps.get(key, ()) if each[0] > first]
        count = sum(each[1] for each in found)
        return Recent(sum(each[2] for each in found), count, count / 60)


class BrokerStats:
    """Counters of one broker since its start.

    Counting must be cheap, because every put and every pull does it.
    """

    def __init__(self, started: Now) -> None:
        self._started = started
        self.put_times = 0
        self.put_bytes = 0
        #: puts that the store refused; a batch counts once
        self.put_failed = 0
        self.got_messages = 0
        self._seconds: deque[list[int]] = deque(maxlen=_WINDOW_S)
        #: by topic
        self.topic_put_nums = Keyed()
        self.topic_put_size = Keyed()
        #: by `topic@group`
        self.group_get_nums = Keyed()
        self.group_get_size = Keyed()

    def put(self, topic: str, messages: int, size_bytes: int, now: Now) -> None:
        """Count messages of one topic that were stored together."""
        self.put_times += messages
        self.put_bytes += size_bytes
        self._second(now)[1 + PUT] += messages
        self.topic_put_nums.add(topic, messages, now)
        self.topic_put_size.add(topic, size_bytes, now)

    def got(self, topic: str, group: str, records: bytes, now: Now) -> None:
        """Count an answered pull; without records it is a miss."""
        second = self._second(now)
        if not records:
            second[1 + MISS] += 1
            return
        messages = _count(records)
        self.got_messages += messages
        second[1 + FOUND] += 1
        second[1 + TRANSFERRED] += messages
        key = f"{topic}@{group}"
        self.group_get_nums.add(key, messages, now)
        self.group_get_size.add(key, len(records), now)

    def rate(self, what: int, interval_s: int, now: Now) -> float:
        """Return the rate per second over the last `interval_s`.

        If the broker started later than that, the rate is since its start.
        """
        second = now.monotonic_ms // 1000
        lived_s = max(1, second - self._started.monotonic_ms // 1000)
        first = second - interval_s
        total = sum(each[1 + what] for each in self._seconds if each[0] > first)
        return total / min(interval_s, lived_s)

    def by_name(self) -> Mapping[str, Keyed]:
        """The counts by the names that VIEW_BROKER_STATS_DATA (315) uses."""
        return {
            "TOPIC_PUT_NUMS": self.topic_put_nums,
            "TOPIC_PUT_SIZE": self.topic_put_size,
            "GROUP_GET_NUMS": self.group_get_nums,
            "GROUP_GET_SIZE": self.group_get_size,
        }

    def _second(self, now: Now) -> list[int]:
        second = now.monotonic_ms // 1000
        seconds = self._seconds
        if not seconds or seconds[-1][0] < second:
            seconds.append([second, 0, 0, 0, 0])
        return seconds[-1]


def _count(records: bytes) -> int:
    """Return the number of records; each begins with its size."""
    count = at = 0
    end = len(records)
    while at < end:
        at += max(1, int.from_bytes(records[at : at + 4], "big"))
        count += 1
    return count
