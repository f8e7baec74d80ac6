"""Deadlines of things that usually end before their deadline is reached. Pure.

A timer of `Timers` cannot be cancelled. With one timer for each message, a broker whose
clients acknowledge everything would keep each timer until the message's invisible time
is over. Here one timer serves all deadlines, and the deadlines of ended things are
removed once they outnumber the others.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqcli.clock import Now
    from rmqcli.timers import Timers

T = TypeVar("T")

_ENDED_MAX: Final = 1_000


@dataclass(eq=False)
class Deadlines(Generic[T]):
    """Calls `on_due` for each thing at its deadline, unless it has ended before.

    `has_ended` returns whether a thing has ended; `count` returns the number of things
    that have not.
    """

    timers: Timers
    on_due: Callable[[T, Now], None]
    has_ended: Callable[[T], bool]
    count: Callable[[], int]
    heap: list[tuple[int, int, T]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    armed_ms: int | None = None

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, thing: T, monotonic_ms: int) -> None:
        """Call `on_due` for `thing` once `monotonic_ms` is reached."""
        heapq.heappush(self.heap, (monotonic_ms, next(self.numbers), thing))
        if len(self.heap) > 2 * self.count() + _ENDED_MAX:
            self.heap = [each for each in self.heap if not self.has_ended(each[2])]
            heapq.heapify(self.heap)
        self._arm()

    def _arm(self) -> None:
        if not self.heap:
            return
        first_ms = self.heap[0][0]
        if self.armed_ms is None or first_ms < self.armed_ms:
            self.armed_ms = first_ms
            self.timers.at(first_ms, self._run)

    def _run(self, now: Now) -> None:
        if self.armed_ms is not None and self.armed_ms <= now.monotonic_ms:
            self.armed_ms = None
        while self.heap and self.heap[0][0] <= now.monotonic_ms:
            thing = heapq.heappop(self.heap)[2]
            if not self.has_ended(thing):
                self.on_due(thing, now)
        self._arm()
