"""Counts and times messages for the benchmarks of proxy clients, ours and others.

It imports only the standard library, because this project is not installed in the
official client's environment.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PER_S = 100
_WARM_UP = 100
_SENT = 1_000
_BODY_BYTES = 128
_WAIT_S = 300


class Span:
    """Measures wall-clock and CPU time from the first of `messages` to the last."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        self._seen = 0
        self._begin = self._end = (0.0, 0.0)
        self._done = threading.Event()

    def count(self) -> None:
        """Record that a message arrived. Safe to call from any thread."""
        with self._lock:
            self._seen += 1
            if self._seen == 1:
                self._begin = (time.monotonic(), time.process_time())
            if self._seen == self._messages:
                self._end = (time.monotonic(), time.process_time())
                self._done.set()

    def wait(self) -> None:
        """Wait for the last message."""
        assert self._done.wait(_WAIT_S), f"{self._seen} of {self._messages} came"

    def found(self) -> dict[str, float]:
        """Return the object to print."""
        return {
            "count": self._messages - 1,
            "wall_s": self._end[0] - self._begin[0],
            "cpu_s": self._end[1] - self._begin[1],
        }


class Latencies:
    """Records the latencies of messages that `at_rate` sent, and ignores others."""

    def __init__(self) -> None:
        self._mark = os.urandom(8).hex()
        self._lock = threading.Lock()
        self._came: dict[int, float] = {}

    def body(self, number: int) -> bytes:
        """Return a body that contains its number and the time of its creation."""
        text = f"{self._mark} {number} {time.monotonic_ns()} "
        return text.ljust(_BODY_BYTES).encode()

    def came(self, body: bytes) -> None:
        """Record that a message arrived. Safe to call from any thread."""
        now_ns = time.monotonic_ns()
        mark, number, sent_ns, *_ = body.decode().split()
        if mark == self._mark:
            with self._lock:
                self._came.setdefault(int(number), (now_ns - int(sent_ns)) / 1e6)

    def wait_for(self, number: int) -> None:
        """Wait until the first `number` messages have arrived."""
        end = time.monotonic() + _WAIT_S
        while len(self._came) < number:
            assert time.monotonic() < end, f"{len(self._came)} of {number} came"
            time.sleep(0.01)

    def since(self, first: int) -> list[float]:
        """Return the latencies in ms of all messages from this number on, sorted."""
        return sorted(ms for number, ms in self._came.items() if number >= first)


def at_rate(send: Callable[[bytes], object], found: Latencies) -> dict[str, float]:
    """Send 100 messages per second at an even pace; return the object to print."""
    for number in range(_WARM_UP):
        send(found.body(number))
    found.wait_for(_WARM_UP)
    begin, cpu = time.monotonic(), time.process_time()
    for number in range(_SENT):
        due = begin + number / _PER_S
        while (left_s := due - time.monotonic()) > 0:
            time.sleep(left_s)
        send(found.body(_WARM_UP + number))
    found.wait_for(_WARM_UP + _SENT)
    latencies = found.since(_WARM_UP)
    return {
        "count": _SENT,
        "wall_s": time.monotonic() - begin,
        "cpu_s": time.process_time() - cpu,
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[len(latencies) * 99 // 100],
    }
