"""A clock that stands still until a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class StillClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def epoch_ms(self) -> int:
        return self.now_ms

    def wait_ms(self, event: threading.Event, timeout_ms: int) -> bool:
        self.now_ms += timeout_ms
        return event.is_set()
