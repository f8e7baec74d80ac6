"""Deadlines of things that usually end before their deadline is reached. Pure.

A timer of `Timers` cannot be cancelled. With one timer for each message, a broker whose
clients acknowledge everything would keep each timer until the message's invisible time
is over. Here one timer serves all deadlines, and the deadlines of ended things are
removed once they outnumber the others.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Now
    from rmqcli.timers import Timers

T = TypeVar("T")

_ENDED_MAX: Final = 1_000


class Deadlines(Generic[T]):
    """Calls `on_due` for each thing at its deadline, unless it has ended before.

    `has_ended` returns whether a thing has ended; `count` returns the number of things
    that have not.
    """

    def __init__(
        self,
        timers: Timers,
        on_due: Callable[[T, Now], None],
        *,
        has_ended: Callable[[T], bool],
        count: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._on_due = on_due
        self._has_ended = has_ended
        self._count = count
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = itertools.count()
        self._armed_ms: int | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, thing: T, monotonic_ms: int) -> None:
        """Call `on_due` for `thing` once `monotonic_ms` is reached."""
        heapq.heappush(self._heap, (monotonic_ms, next(self._numbers), thing))
        if len(self._heap) > 2 * self._count() + _ENDED_MAX:
            self._heap = [each for each in self._heap if not self._has_ended(each[2])]
            heapq.heapify(self._heap)
        self._arm()

    def _arm(self) -> None:
        if not self._heap:
            return
        first_ms = self._heap[0][0]
        if self._armed_ms is None or first_ms < self._armed_ms:
            self._armed_ms = first_ms
            self._timers.at(first_ms, self._run)

    def _run(self, now: Now) -> None:
        if self._armed_ms is not None and self._armed_ms <= now.monotonic_ms:
            self._armed_ms = None
        while self._heap and self._heap[0][0] <= now.monotonic_ms:
            thing = heapq.heappop(self._heap)[2]
            if not self._has_ended(thing):
                self._on_due(thing, now)
        self._arm()
