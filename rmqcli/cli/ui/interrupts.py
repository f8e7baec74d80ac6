"""Ctrl-C, SIGTERM and SIGHUP end a command in the same orderly way.

All three raise `Interrupted` in the main thread, so `finally` blocks run and a command
leaves nothing half done. `timeout(1)` sends its signal twice at once, so repeats within
a second are dropped; a later one interrupts a clean-up that hangs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rmqcli.clock import SYSTEM_CLOCK

REPEAT_IGNORED_MS = 1000


class Interrupted(KeyboardInterrupt):
    """The user, or a supervisor, asked this process to end."""


class _Interrupts:
    """Whether an interrupt is pending, and whether it may be raised now."""

    def __init__(self) -> None:
        self.deferrals = 0
        self.is_pending = False
        self.last_ms: int | None = None

    def on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if self.last_ms is not None and now_ms - self.last_ms < REPEAT_IGNORED_MS:
            return
        self.last_ms = now_ms
        if self.deferrals:
            self.is_pending = True
            return
        raise Interrupted


_INTERRUPTS = _Interrupts()


def install() -> None:
    """Turn the three signals into `Interrupted`. Call from the main thread.

    A signal that was ignored when this process started (`nohup`, `cmd &` in a script)
    stays ignored.
    """
    _INTERRUPTS.__init__()  # type: ignore[misc]  # a fresh start for each run
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _INTERRUPTS.on_signal)


def ignore() -> None:
    """Ignore further signals: the exit code is known, only Python's exit is left."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold interrupts back until the block ends: for steps that belong together.

    Keep the block short: nothing but SIGKILL ends it early.
    """
    _INTERRUPTS.deferrals += 1
    try:
        yield
    finally:
        _INTERRUPTS.deferrals -= 1
        if not _INTERRUPTS.deferrals:
            raise_pending()


def pending_since_ms() -> int | None:
    """When the interrupt came that is held back, on the monotonic clock, if any."""
    return _INTERRUPTS.last_ms if _INTERRUPTS.is_pending else None


def raise_pending() -> None:
    """Raise the interrupt that is held back, if there is one."""
    if _INTERRUPTS.is_pending:
        _INTERRUPTS.is_pending = False
        raise Interrupted
