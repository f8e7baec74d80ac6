"""What was consumed and what failed, and how much may still be consumed.

All consumer threads share one `Counts`. With `--count` a thread takes tickets before it
shows messages to anything outside and gives back those that were not used, so that
exactly that many are consumed.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from rmqcli.errors import PartialError, RmqError

if TYPE_CHECKING:
    from rmqcli.engine.reports import Fate

#: A wait without end could not be interrupted everywhere.
_TURN_S: Final = 0.5

#: One and several, by the name of the fate.
_FATES: Final = {
    "RETRY_TOPIC": ("retry", "retries"),
    "RETRY_HERE": ("retry", "retries"),
    "DELIVERED_AGAIN": ("retry", "retries"),
    "DEAD_LETTER": ("dead letter", "dead letters"),
    "GIVEN_UP": ("given up", "given up"),
    "QUEUE_LOST": ("not committed", "not committed"),
    "SENT_BACK_BEFORE": ("sent back before", "sent back before"),
}
_UNKNOWN: Final = "whose fate is unknown"


class Counts:
    """Counts, and the reason to end. Safe between threads.

    After `failures_max` failed calls without one that succeeded in between (None: no
    limit) nothing more is granted.
    """

    def __init__(self, count: int | None, *, failures_max: int | None = None) -> None:
        self.consumed = 0
        #: deliveries that failed; a message that fails twice counts twice
        self.failed = 0
        self.undecodable = 0
        #: messages that are with a listener now
        self.at_work = 0
        #: what became of those that failed, as far as it is known
        self.fates: Counter[Fate] = Counter()
        #: set when there is a reason to end: enough was consumed, or `error`
        self.ended = threading.Event()
        #: set when the main thread has something to say or a reason to end
        self.has_news = threading.Event()
        #: why nothing more can be consumed
        self.error: BaseException | None = None
        #: whether `failures_max` was reached
        self.gave_up = False
        self._failures_max = failures_max
        self._failures_in_a_row = 0
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
                self._failures_in_a_row = 0
            elif self._left is not None:
                self._left += granted
            if self._left == 0 and not self.at_work:
                self._end()
            self._changed.notify_all()

    def fail(self, messages: int) -> None:
        """Count the messages of one call that failed."""
        with self._changed:
            self.failed += messages
            self._failures_in_a_row += 1
            if self._failures_in_a_row == self._failures_max:
                self.gave_up = True
                self._end()
                self._changed.notify_all()

    def count_fate(self, fate: Fate) -> None:
        """Count what became of one message that failed."""
        with self._changed:
            self.fates[fate] += 1

    def drain(self) -> None:
        """Stop waiting for messages that other threads may give back."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more is granted; the first error stays."""
        with self._changed:
            if error is not None and self.error is None:
                self.error = error
            self._end()
            self._changed.notify_all()

    def _end(self) -> None:
        self.ended.set()
        self.has_news.set()

    def failures(self) -> str:
        """What became of the failed deliveries: `4 retries, 1 dead letter`."""
        with self._changed:
            by_form: Counter[tuple[str, str]] = Counter()
            for fate, count in self.fates.items():
                by_form[_FATES[fate.value]] += count
            known = self.fates.total()
        words = [
            f"{by_form[forms]:,} {forms[by_form[forms] != 1]}"
            for forms in dict.fromkeys(_FATES.values())
            if by_form[forms]
        ]
        if self.failed > known:
            words.append(f"{self.failed - known:,} {_UNKNOWN}")
        return ", ".join(words)

    def has_dead_letters(self) -> bool:
        """Whether a message became a dead letter."""
        with self._changed:
            return any(fate.value == "DEAD_LETTER" for fate in self.fates)

    def failure(self) -> RmqError | None:
        """The error that the command ends with; None when no delivery failed.

        PartialError when others were consumed.
        """
        if not self.failed:
            return None
        total = self.consumed + self.failed
        what = f"all {total:,} deliveries failed"
        if total == 1:
            what = "the only delivery failed"
        elif self.consumed:
            what = f"{self.failed:,} of {total:,} deliveries failed"
        what += f": {self.failures()}"
        hint = ""
        if self.gave_up:
            what += f"; stopped after {self._failures_max} failures in a row"
            hint = "see why the command fails; with --max-failures 0 it never stops"
        kind = PartialError if self.consumed else RmqError
        return kind(what, hint=hint)
