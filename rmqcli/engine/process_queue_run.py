"""Messages that were pulled together, and stay so in a ProcessQueue.

What was taken out is known by its place: from the ends for nothing, from the middle by
a mark. It never counts what the ProcessQueue holds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class CachedMessage(Protocol):
    """What a ProcessQueue has to know of a message."""

    queue_offset: int
    body_bytes: int


M = TypeVar("M", bound=CachedMessage)


def offset_of(message: CachedMessage) -> int:
    return message.queue_offset


class Run(Generic[M]):
    """Messages with ascending offsets; `gone` marks those taken out of the middle.

    The list is the caller's: neither changes it. `size_bytes` is that of all of it.
    """

    __slots__ = ("gone", "head", "key", "left", "messages", "size_bytes", "tail")

    gone: bytearray | None

    def __init__(self, messages: Sequence[M]) -> None:
        #: what it is found by; its first offset is never lower
        self.key = messages[0].queue_offset
        self._fill(messages)

    def _fill(self, messages: Sequence[M]) -> None:
        self.messages = messages
        self.size_bytes = sum([m.body_bytes for m in messages])
        self.left = len(messages)
        self.gone = None
        #: the first and the last that are there
        self.head = 0
        self.tail = self.left - 1

    @property
    def first(self) -> int:
        return self.messages[self.head].queue_offset

    @property
    def last(self) -> int:
        return self.messages[self.tail].queue_offset

    def index_of(self, offset: int) -> int | None:
        """Where the message with that offset is; None when it is not there."""
        messages = self.messages
        index = offset - messages[0].queue_offset
        if not 0 <= index < len(messages) or messages[index].queue_offset != offset:
            index = bisect_left(messages, offset, key=offset_of)
            if index == len(messages) or messages[index].queue_offset != offset:
                return None
        if index < self.head or index > self.tail:
            return None
        return None if self.gone is not None and self.gone[index] else index

    def has_all(self, index: int, messages: Sequence[M]) -> bool:
        """Whether just these very ones, in order, are there from `index` on."""
        end = index + len(messages)
        if end > self.tail + 1 or self.messages[end - 1] is not messages[-1]:
            return False
        if self.messages[index:end] != messages:
            return False
        return self.gone is None or self.gone.find(1, index, end) < 0

    def take_out(self, index: int, count: int) -> None:
        """Take out what is there: `count` from `index` on."""
        self.left -= count
        if not self.left:
            return
        gone = self.gone
        if gone is None:
            if index == self.head:
                self.head += count
                return
            if index + count > self.tail:
                self.tail -= count
                return
            gone = self.gone = bytearray(len(self.messages))
        if count == 1:
            gone[index] = 1
        else:
            gone[index : index + count] = b"\1" * count
        if index == self.head:
            self.head = gone.find(0, index)
        if index + count > self.tail:
            self.tail = gone.rfind(0, 0, index)

    def take_first(self, count: int) -> list[M]:
        """Take up to `count` of the lowest out."""
        if self.gone is not None:
            self._fill(self.all())
        at = self.head
        found = list(self.messages[at : min(at + count, self.tail + 1)])
        self.take_out(at, len(found))
        return found

    def all(self) -> list[M]:
        """Those that are there, in order."""
        found = self.messages[self.head : self.tail + 1]
        if self.gone is None:
            return list(found)
        return [m for m, gone in zip(found, self.gone[self.head :]) if not gone]  # noqa: B905
