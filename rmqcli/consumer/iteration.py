"""Messages for a `for` loop: the hand-over from the consume thread to the loop.

The consume thread waits with each message until the loop has asked for the next one,
which makes the message consumed, or until the consumer closes, which leaves it. So at
most one message is with the loop, and what the engine commits never passes it.

Two queues without locks of ours carry messages one way and verdicts the other, for a
signal handler may close the consumer whatever it interrupted.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from rmqcli.engine.listener import LeaveRest

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.engine.message import Message

#: In turns: a wait without end cannot be interrupted everywhere.
_WAIT_MS = 500


class HandOver:
    """The listener of a consumer that is iterated. One consume thread calls it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offered: SimpleQueue[Message | None] = SimpleQueue()
        self._verdicts: SimpleQueue[bool] = SimpleQueue()
        #: the message that the loop has, or had when it was left
        self._current: Message | None = None
        #: the thread that asked last (threading.get_ident)
        self._looper: int | None = None
        self._is_closing = False
        self._is_closed = False

    def __call__(self, message: Message) -> None:
        """Offer a message to the loop, and wait until it is consumed."""
        if self._is_closing:
            raise LeaveRest
        self._offered.put(message)
        if not self._verdicts.get():
            raise LeaveRest

    def next_message(
        self, *, after: Message | None, idle_timeout_ms: int | None
    ) -> Message | None:
        """The next message; None when the consumer closes, or nothing came in time.

        `after` is the message that the caller has consumed. A message that an earlier
        loop was left with comes again.
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
        """Offer nothing more. A loop of another thread may finish what it has."""
        self._is_closing = True
        is_with_other = self._current is not None and (
            self._looper != threading.get_ident()
        )
        if not is_with_other:
            self.leave()
        self._offered.put(None)

    def leave(self) -> None:
        """Let the message that is with the loop go; it is not consumed. Idempotent."""
        self._is_closing = self._is_closed = True
        self._verdicts.put(False)


class Messages:
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
