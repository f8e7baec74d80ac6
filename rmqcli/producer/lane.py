"""The messages that wait for one destination, and how they are cut into requests. Pure.

Small messages share a batch; messages that a batch cannot hold are sent alone. A lane
has at most one request in flight, so its messages keep their order.

Source: MessageBatch.generateFromList and MessageExtBatchEncoder in apache/rocketmq.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A broker accepts at most 4 MiB (maxMessageSize), including what it adds to each
#: message. A quarter of that leaves room for properties and keeps requests short.
BATCH_BYTES_MAX = 1 << 20
BATCH_MESSAGES_MAX = 512

#: Bodies of at least this size are sent alone, because a batch would not save anything.
ALONE_BYTES = 256 << 10

#: The cost of a message in memory and on the wire besides its body and properties.
MESSAGE_OVERHEAD_BYTES = 256


class Sendable(Protocol):
    """A message that waits in a lane."""

    @property
    def is_alone(self) -> bool:
        """Whether no other message may share its request."""

    @property
    def cost_bytes(self) -> int:
        """The approximate size of the message in memory and on the wire."""


M = TypeVar("M", bound=Sendable)


class Lane(Generic[M]):
    """The messages that wait for one destination, in order."""

    def __init__(self) -> None:
        self._backlog: deque[M] = deque()
        self._backlog_bytes = 0

    @property
    def first(self) -> M:
        """The message that has waited longest. Raises IndexError without messages."""
        return self._backlog[0]

    @property
    def is_empty(self) -> bool:
        return not self._backlog

    @property
    def is_full(self) -> bool:
        """Whether the next request is as large as it can be."""
        return bool(self._backlog) and (
            len(self._backlog) >= BATCH_MESSAGES_MAX
            or self._backlog_bytes >= BATCH_BYTES_MAX
            or self._backlog[0].is_alone
        )

    def put(self, slot: M) -> None:
        """Add a message at the end."""
        self._backlog.append(slot)
        self._backlog_bytes += slot.cost_bytes

    def put_back(self, slots: Iterable[M]) -> None:
        """Return `slots` to the front, in their order."""
        returned = list(slots)
        self._backlog.extendleft(reversed(returned))
        self._backlog_bytes += sum(slot.cost_bytes for slot in returned)

    def take(self) -> list[M]:
        """Remove and return the messages of the next request: one alone, or a batch."""
        slots: list[M] = []
        backlog, size = self._backlog, 0
        while backlog and len(slots) < BATCH_MESSAGES_MAX:
            slot = backlog[0]
            with_slot = size + slot.cost_bytes
            if slots and (slot.is_alone or with_slot > BATCH_BYTES_MAX):
                break
            slots.append(backlog.popleft())
            size = with_slot
            if slot.is_alone:
                break
        self._backlog_bytes -= size
        return slots

    def take_one(self) -> M:
        """Remove and return the first message."""
        slot = self._backlog.popleft()
        self._backlog_bytes -= slot.cost_bytes
        return slot

    def take_all(self) -> list[M]:
        """Remove and return all waiting messages."""
        slots = list(self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0
        return slots


def takes_batches(topic: str, *, is_delayed: bool) -> bool:
    """Whether brokers accept batches: not of delayed messages, nor for retry topics."""
    return not is_delayed and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
