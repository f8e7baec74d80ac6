"""`Latch`: an event for which signal handlers may wait."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _thread import LockType


class Latch:
    """An event that is set once. Any number of threads may wait for it.

    It has no lock of its own, so a signal handler may wait for it, or set it, although
    it interrupted a `wait` or a `set` of the same thread. With `threading.Event` the
    handler could wait for a lock that the interrupted code holds.
    """

    def __init__(self) -> None:
        self.is_set = False
        #: one for each call of `wait` under way, held until `set` releases it
        self._waiters: deque[LockType] = deque()

    def set(self) -> None:
        """End every wait, now and later. Idempotent."""
        self.is_set = True
        with suppress(IndexError):
            while True:
                self._waiters.popleft().release()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until it is set or the time is over; return whether it is set."""
        waiter = allocate_lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            if not self.is_set:  # else `set` may have released the waiters before
                waiter.acquire(timeout=timeout_ms / 1000)
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)
        return self.is_set
