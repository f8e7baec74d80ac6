"""A limit for what a peer may request of a client, so that a flood of it costs little.

Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

#: How many requests may come at once, and how many a second on average.
BURST: Final = 20
PER_SECOND: Final = 5
_MS_EACH: Final = 1_000 // PER_SECOND
#: After this long without a refusal the next one is news again.
_QUIET_MS: Final = 60_000


class FloodLimit:
    """Takes BURST requests at once, and PER_SECOND on average; refuses the others.

    Operators send such requests by hand, some in a minute. Not thread-safe.
    """

    def __init__(self) -> None:
        #: when all requests that were taken are made up for (monotonic)
        self._even_ms = 0
        self._refused_ms: int | None = None

    def takes(self, now_ms: int) -> bool:
        """Whether to carry out a request that arrived at this time (monotonic)."""
        even_ms = max(self._even_ms, now_ms) + _MS_EACH
        if even_ms - now_ms > BURST * _MS_EACH:
            return False
        self._even_ms = even_ms
        return True

    def is_news(self, now_ms: int) -> bool:
        """Whether to log a refusal: the first one of a flood."""
        before, self._refused_ms = self._refused_ms, now_ms
        return before is None or now_ms - before >= _QUIET_MS
