"""Hands messages from the consume thread to a `for` loop.

The consume thread passes on one message and waits. When the loop asks for the next
message, the previous one has been consumed; when the consumer closes first, it has not.
So the loop has one message at most, and the committed offset never passes that message.

Two queues carry messages in one direction and the results in the other. This module has
no locks, because a signal handler may close the consumer whatever code it interrupted.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, Self

from rmqcli.engine.listener import LeaveRest

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.model import Message

#: Waits are repeated: an endless one cannot be interrupted on every platform.
_WAIT_MS = 500


class Offered(Protocol):
    """The listener of a consumer that is iterated: it offers messages to the loop."""

    def __call__(self, message: Message) -> object:
        """Offer a message, and wait until it is consumed. Else raise LeaveRest."""

    def begin_close(self) -> None:
        """Offer no more messages. A loop in another thread may finish its message."""

    def leave(self) -> None:
        """Give up the message that the loop has; it is not consumed. Idempotent."""


class HandOver:
    """The listener of a consumer that is iterated. One consume thread calls it.

    Implements `Offered`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offered: SimpleQueue[Message | None] = SimpleQueue()
        self._verdicts: SimpleQueue[bool] = SimpleQueue()
        #: the message that the loop has, or had when the loop was left
        self._current: Message | None = None
        #: the thread that last asked for a message (threading.get_ident)
        self._looper: int | None = None
        self._is_closing = False
        self._is_closed = False

    def __call__(self, message: Message) -> None:
        """See Offered."""
        if self._is_closing:
            raise LeaveRest
        self._offered.put(message)
        if not self._verdicts.get():
            raise LeaveRest

    def next_message(
        self, *, after: Message | None, idle_timeout_ms: int | None
    ) -> Message | None:
        """Return the next message, or None when the consumer closes or time is up.

        `after` is the message that the caller has consumed. If an earlier loop was left
        before it had consumed its message, that message is returned again.
        """
        self._looper = threading.get_ident()
        if after is not None and after is self._current:
            self._current = None
            self._verdicts.put(True)
        if self._current is not None:
            return None if self._is_closed else self._current
        waited_ms = 0
        while not self._is_closing:
            wait_ms = _WAIT_MS
            if idle_timeout_ms is not None:
                wait_ms = min(wait_ms, idle_timeout_ms - waited_ms)
                if wait_ms <= 0:
                    return None
            started_ms = self._clock.monotonic_ms()
            try:
                self._current = self._offered.get(timeout=wait_ms / 1_000)
            except Empty:
                waited_ms += max(1, self._clock.monotonic_ms() - started_ms)
                continue
            return self._current
        return None

    def begin_close(self) -> None:
        """See Offered."""
        self._is_closing = True
        is_with_other = self._current is not None and (
            self._looper != threading.get_ident()
        )
        if not is_with_other:
            self.leave()
        self._offered.put(None)

    def leave(self) -> None:
        """See Offered."""
        self._is_closing = self._is_closed = True
        self._verdicts.put(False)


class MessageIterator:
    """An iterator over a consumer's messages. See Consumer.messages."""

    def __init__(self, hand_over: HandOver, idle_timeout_ms: int | None) -> None:
        self._hand_over = hand_over
        self._idle_timeout_ms = idle_timeout_ms
        self._last: Message | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        last, self._last = self._last, None
        message = self._hand_over.next_message(
            after=last, idle_timeout_ms=self._idle_timeout_ms
        )
        if message is None:
            raise StopIteration
        self._last = message
        return message
