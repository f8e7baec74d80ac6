"""The clock, which is passed in: the only module that reads the system's clock.

Intervals use `monotonic_ms`, and timestamps that leave the process use `epoch_ms`; the
two never mix. Tests pass a `rmqcli.testing.ManualClock` instead of `SYSTEM_CLOCK`.
"""

from __future__ import annotations

import time
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import threading


class Clock(Protocol):
    """The interface by which the rest of the package reads the time and waits."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""

    def epoch_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z by this machine's clock."""

    def wait_ms(self, event: threading.Event, timeout_ms: int) -> bool:
        """Wait until `event` is set or the time is over; return whether it is set."""


class SystemClock:
    """The machine's clock."""

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait_ms(self, event: threading.Event, timeout_ms: int) -> bool:
        return event.wait(max(0, timeout_ms) / 1000)


SYSTEM_CLOCK = SystemClock()


def monotonic_us() -> int:
    """Microseconds since some fixed moment, for measurements; never goes back."""
    return monotonic_ns() // 1000


class Deadline:
    """A moment by which an operation must have ended; all its steps share it."""

    __slots__ = ("_at_ms", "_clock")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> int:
        """Milliseconds left, never negative."""
        return max(0, self._at_ms - self._clock.monotonic_ms())

    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return self._clock.monotonic_ms() >= self._at_ms


class Now(NamedTuple):
    """The two times that a core receives with every call.

    `monotonic_ms` is for intervals and deadlines, `epoch_ms` for timestamps that are
    stored.
    """

    monotonic_ms: int
    epoch_ms: int
