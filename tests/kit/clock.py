"""A clock whose time of day is set, also back, while its monotonic time goes on."""

from __future__ import annotations

from rmqcli.clock import SYSTEM_CLOCK


class SetClock:
    """`now_ms` is the time of day; set it."""

    def __init__(self, now_ms):
        self.now_ms = now_ms

    def epoch_ms(self):
        return self.now_ms

    def monotonic_ms(self):
        return SYSTEM_CLOCK.monotonic_ms()

    def wait_ms(self, event, timeout_ms):
        return SYSTEM_CLOCK.wait_ms(event, timeout_ms)
