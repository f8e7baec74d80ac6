"""Time, random choices and history of a simulation: all of it follows from the seed.

Nothing waits and nothing runs concurrently: events run one after the other at their
virtual times, and events of the same time in the order in which they were planned.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from typing import TYPE_CHECKING, Final

from rmqcli.clock import Now

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

EPOCH_MS: Final = 1_700_000_000_000
_HASH_EACH: Final = 512
_TAIL_MAX: Final = 40


class Schedule:
    """The events of a simulation. `trace` is called with each line of the history."""

    def __init__(
        self, seed: str, *, trace: Callable[[str], None] | None = None
    ) -> None:
        self.rng = random.Random(seed)  # a seeded run, no secret
        self.now_ms = 0
        self.events = 0
        self._trace = trace
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: list[str] = []
        self._tail: list[str] = []

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` once `delay_ms` have passed."""
        self.at(self.now_ms + delay_ms, action)

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Run `action` at `at_ms`, or now if that is in the past."""
        self._count += 1
        heapq.heappush(self._heap, (max(at_ms, self.now_ms), self._count, action))

    def run_until(self, end_ms: int) -> None:
        """Run all events up to `end_ms`, and set the time to it."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(heap)
            self.events += 1
            action()
        self.now_ms = end_ms

    def now(self) -> Now:
        """The current time, without the skew of any member."""
        return Now(self.now_ms, EPOCH_MS + self.now_ms)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return probability > 0 and self.rng.random() < probability

    def note(self, what: str) -> None:
        """Add a line to the history."""
        line = f"{self.now_ms} {what}"
        self._lines.append(line)
        if self._trace is not None:
            self._trace(line)
        if len(self._lines) >= _HASH_EACH:
            self._flush()

    def _flush(self) -> None:
        self._hash.update("\n".join([*self._lines, ""]).encode())
        self._tail = self._lines[-_TAIL_MAX:]
        self._lines = []

    def history_hash(self) -> str:
        """The hash of the history, in hexadecimal."""
        if self._lines:
            self._flush()
        return self._hash.hexdigest()


class SimClock:
    """Satisfies `rmqcli.clock.Clock`. `skew_ms` is the error of its epoch time."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.skew_ms = 0

    def monotonic_ms(self) -> int:
        return self._schedule.now_ms

    def epoch_ms(self) -> int:
        return EPOCH_MS + self._schedule.now_ms + self.skew_ms

    def wait_ms(self, event: threading.Event, timeout_ms: int) -> bool:
        """Simulated code must not wait."""
        raise RuntimeError(f"a simulation cannot wait {timeout_ms} ms for {event!r}")
