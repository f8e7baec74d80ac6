"""The delays after which an unreachable peer is tried again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

FIRST_MS = 100
LAST_MS = 5_000


class Backoff:
    """Growing delays with jitter, so that many clients do not reconnect at once.

    The n-th failure in a row, counted from 0, gives a random delay from 100 * 2**n ms
    to twice that, at most 5 s: a broker that is back is found again within that time.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0

    def failed(self) -> int:
        """Count a failure; return the ms to wait before the next attempt."""
        base_ms = min(FIRST_MS << min(self._failures, 16), LAST_MS // 2)
        self._failures += 1
        return self._rng.randint(base_ms, 2 * base_ms)

    def succeeded(self) -> None:
        """Start from the shortest delay next time."""
        self._failures = 0
