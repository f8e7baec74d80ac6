"""A clock that stands still until a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class ManualClock:
    """A `rmqcli.clock.Clock` for tests. Both its times are `now_ms`.

    The time changes when a test sets `now_ms` or calls `advance`.
    """

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __repr__(self) -> str:
        return f"ManualClock({self.now_ms})"

    def advance(self, by_ms: int) -> None:
        """Move the time `by_ms` milliseconds forward."""
        self.now_ms += by_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def epoch_ms(self) -> int:
        return self.now_ms

    def wait_ms(self, event: threading.Event, timeout_ms: int) -> bool:
        """Move the time to the end of the wait, unless `event` is already set.

        Returns whether `event` is set.
        """
        if not event.is_set():
            self.advance(timeout_ms)
        return event.is_set()
