"""What was consumed, and how much may still be: shared by all consume threads.

With `--count` a thread takes tickets before it shows messages to anybody and gives back
those that were not used, so that exactly so many are consumed.
"""

from __future__ import annotations

import threading
from typing import Final

#: A wait without end could not be interrupted everywhere.
_TURN_S: Final = 0.5


class Tally:
    """Counts, and the reason to end. Safe between threads."""

    def __init__(self, count: int | None) -> None:
        self.consumed = 0
        self.failed = 0
        self.undecodable = 0
        #: messages that are with a listener now
        self.at_work = 0
        #: set when there is a reason to end: enough was consumed, or `error`
        self.ended = threading.Event()
        #: why nothing more can be consumed
        self.error: BaseException | None = None
        self._left = count
        self._is_draining = False
        self._changed = threading.Condition()

    def take(self, wanted: int) -> int:
        """How many of `wanted` messages may be shown; 0: nothing more, ever.

        Waits while those that others are at work on may fail.
        """
        with self._changed:
            while not self.ended.is_set():
                if self._left is None or self._left > 0:
                    granted = wanted
                    if self._left is not None:
                        granted = min(wanted, self._left)
                        self._left -= granted
                    self.at_work += granted
                    return granted
                if self._is_draining:
                    return 0
                self._changed.wait(_TURN_S)
        return 0

    def settle(self, granted: int, *, consumed: bool, undecodable: int = 0) -> None:
        """Say what became of what `take` granted; all of it has one end.

        `undecodable` of them are no messages that anybody could read.
        """
        with self._changed:
            self.at_work -= granted
            if consumed:
                self.consumed += granted
                self.undecodable += undecodable
            elif self._left is not None:
                self._left += granted
            if self._left == 0 and not self.at_work:
                self.ended.set()
            self._changed.notify_all()

    def fail(self, messages: int) -> None:
        """Count messages that will be consumed again."""
        with self._changed:
            self.failed += messages

    def drain(self) -> None:
        """Let nobody wait for what others may give back."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more is granted; the first error stays."""
        with self._changed:
            if error is not None and self.error is None:
                self.error = error
            self.ended.set()
            self._changed.notify_all()
