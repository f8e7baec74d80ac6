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
    """Actions that run once, each at its time.

    Actions that are due at the same moment run in the order in which they were added.
    """

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
        """Run `action` every `interval_ms`; missed runs are not made up for."""

        def run(now: Now) -> None:
            self.at(now.monotonic_ms + interval_ms, run)
            action(now)

        self.at(start.monotonic_ms + interval_ms, run)

    def next_ms(self) -> int | None:
        """When the next action is due (monotonic), or None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, monotonic_ms: int) -> list[Callable[[Now], None]]:
        """Remove and return the actions that are due, for the caller to run.

        An action that adds another one that is due at once does not run it.
        """
        due = []
        while self._heap and self._heap[0][0] <= monotonic_ms:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def run_due(self, now: Now) -> None:
        """Run the actions that are due at `now`, including those that they add."""
        while self._heap and self._heap[0][0] <= now.monotonic_ms:
            heapq.heappop(self._heap)[2](now)
