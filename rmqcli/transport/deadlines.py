"""When the replies of one client are due, for thousands in flight. Pure.

A heap that is not told of answers: what was answered is dropped when its time comes,
or when the answered ones are the most of it. It keeps numbers, not replies, so that
an answer's body is never held for the length of its deadline.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Container

#: With fewer entries than this, looking for answered ones is not worth it.
COMPACT_FROM = 1024


class Waiting(Protocol):
    """Something that has requests under way, and can give one up."""

    @property
    def waiters(self) -> Container[int]:
        """The opaques that are not answered yet."""

    def expire(self, opaque: int) -> None:
        """Give up the request: its time is over."""


class Deadlines:
    """(deadline_ms, opaque, owner), earliest first. For one thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiting]] = []
        self._compact_at = COMPACT_FROM

    def __len__(self) -> int:
        """Entries held, answered ones among them."""
        return len(self._heap)

    def add(self, deadline_ms: int, opaque: int, owner: Waiting) -> None:
        """Note a request. Opaques differ, so owners are never compared."""
        heapq.heappush(self._heap, (deadline_ms, opaque, owner))
        if len(self._heap) > self._compact_at:
            self._heap = [e for e in self._heap if e[1] in e[2].waiters]
            heapq.heapify(self._heap)
            self._compact_at = max(COMPACT_FROM, 2 * len(self._heap))

    def next_ms(self) -> int | None:
        """A moment at or before which nothing expires; None when nothing waits.

        It may be that of a request already answered: looking then costs one turn.
        """
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ms: int) -> None:
        """Tell the owners of the requests whose time is over."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, opaque, owner = heapq.heappop(self._heap)
            if opaque in owner.waiters:
                owner.expire(opaque)
