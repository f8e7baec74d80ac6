"""Actions to run later, by the monotonic time at which they are due. Pure.

They replace the threads and timers of a Java broker (PullRequestHoldService,
ClientHousekeepingService, ScheduleMessageService ...): the thread that drives a core
asks when the next action is due, and runs those that are.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Now


class Timers:
    """Things to do, each once. What is due at the same moment runs in its order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Now], None]]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, monotonic_ms: int, action: Callable[[Now], None]) -> None:
        """Run `action` once `monotonic_ms` is reached."""
        heapq.heappush(self._heap, (monotonic_ms, next(self._numbers), action))

    def every(
        self, interval_ms: int, start: Now, action: Callable[[Now], None]
    ) -> None:
        """Run `action` each `interval_ms`; missed turns are not made up for."""

        def run(now: Now) -> None:
            self.at(now.monotonic_ms + interval_ms, run)
            action(now)

        self.at(start.monotonic_ms + interval_ms, run)

    def next_ms(self) -> int | None:
        """When the next thing is due (monotonic); None when there is nothing."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: Now) -> None:
        """Run what is due at `now`, also what becomes due at once by running it."""
        while self._heap and self._heap[0][0] <= now.monotonic_ms:
            heapq.heappop(self._heap)[2](now)
