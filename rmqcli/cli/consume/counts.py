"""Counts of consumed and failed messages, and the limit of `--count`.

All consumer threads share one `Counts`. With `--count`, a thread reserves messages with
`take` before it writes them or passes them to a command. `settle` releases those that
were not consumed, so that exactly `--count` messages are consumed.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from rmqcli.errors import PartialError, RmqError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.engine.reports import Fate

#: A wait is divided into turns: an endless one cannot be interrupted everywhere.
_TURN_S: Final = 0.5

#: Name of a `Fate` -> its words for one message and for several.
_FATES: Final = {
    "RETRY_TOPIC": ("retry", "retries"),
    "RETRY_HERE": ("retry", "retries"),
    "DELIVERED_AGAIN": ("retry", "retries"),
    "DEAD_LETTER": ("dead letter", "dead letters"),
    "GIVEN_UP": ("given up", "given up"),
    "QUEUE_LOST": ("not committed", "not committed"),
    "SENT_BACK_BEFORE": ("sent back earlier", "sent back earlier"),
}
_UNKNOWN: Final = "with unknown outcome"


class Counts:
    """Counts, and the reason to end the run. Thread-safe.

    After `failures_max` failed calls in a row (None: no limit), no more messages are
    granted.
    """

    def __init__(self, count: int | None, *, failures_max: int | None = None) -> None:
        self.consumed = 0
        #: deliveries that failed; a message that fails twice counts twice
        self.failed = 0
        self.undecodable = 0
        #: messages that are with a listener now
        self.at_work = 0
        #: what happened to failed messages, as far as it is known
        self.fates: Counter[Fate] = Counter()
        #: set when there is a reason to end, e.g. enough messages are consumed
        self.ended = threading.Event()
        #: set when the main thread has something to write, or a reason to end
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
        """Reserve up to `wanted` messages; return how many, 0 if no more are granted.

        If other threads have reserved all remaining messages, it waits, because these
        may fail and be released.
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

    def wanted(self) -> int | None:
        """Return how many messages are still to be consumed; None without a limit."""
        with self._changed:
            return None if self._left is None else self._left + self.at_work

    def settle(self, granted: int, *, consumed: bool, undecodable: int = 0) -> None:
        """Record whether the messages of one `take` were consumed: all, or none.

        `undecodable` of them could not be decoded.
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
        """Count a failed call with this many messages."""
        with self._changed:
            self.failed += messages
            self._failures_in_a_row += 1
            if self._failures_in_a_row == self._failures_max:
                self.gave_up = True
                self._end()
                self._changed.notify_all()

    def count_fate(self, fate: Fate) -> None:
        """Count what happened to one failed message."""
        with self._changed:
            self.fates[fate] += 1

    def drain(self) -> None:
        """Stop waiting for messages that other threads may give back."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Grant no more messages. If there are several errors, the first one counts."""
        with self._changed:
            if error is not None and self.error is None:
                self.error = error
            self._end()
            self._changed.notify_all()

    def _end(self) -> None:
        self.ended.set()
        self.has_news.set()

    def failures(self) -> str:
        """Describe what happened to failed messages: `4 retries, 1 dead letter`."""
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

        It is a PartialError if other messages were consumed.
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
        if self.gave_up and self._failures_max is not None:
            what += f"; stopped after {counted(self._failures_max, 'failure')} in a row"
            hint = (
                "find out why the command fails, or use --max-failures 0 for no limit"
            )
        kind = PartialError if self.consumed else RmqError
        return kind(what, hint=hint)
