"""Time, passed in: the only module that reads the system's clock.

Intervals use `monotonic_ms`, timestamps that leave the process use `epoch_ms`; they
never mix. Tests pass `rmqcli.testing.ManualClock` instead.

The two times a core is told with every call.
"""

from __future__ import annotations

import time
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import threading


class Clock(Protocol):
    """What the rest of the package may know about time."""

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


class Deadline:
    """A moment by which something must have ended. Shared by all its sub-steps."""

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
    """`monotonic_ms` for intervals and deadlines, `epoch_ms` for what is stored."""

    monotonic_ms: int
    epoch_ms: int
