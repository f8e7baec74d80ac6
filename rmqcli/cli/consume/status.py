"""The status on stderr while `rmq consume` runs.

On a terminal one line is updated in place: rate, queues, cached messages, flow control,
retries. When the member gains or loses queues, a line is written, on a terminal or not.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Final

from rmqcli.cli.ui import interrupts
from rmqcli.cli.ui.messages import is_terminal, screen_size
from rmqcli.cli.ui.queues import queue_ranges
from rmqcli.clock import SYSTEM_CLOCK, Clock
from rmqcli.dataclass import dataclass
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.cli.consume.counts import Counts
    from rmqcli.cli.ui.messages import Messages
    from rmqcli.consumer.consumer import Consumer
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

#: The rate is the average over this many updates.
_RATE_LOOKS: Final = 4
#: Queues are gained and lost one topic after the other, and that of a new retry topic a
#: second later. A line names them once they have not changed for this long.
_SETTLED_MS: Final = 2_000


@dataclass(slots=True, eq=False)
class Status:
    """Shows the status of a consumer. One lock guards everything written to stderr.

    With `by_proxy`, the status does not show what the consumer has cached.
    """

    messages: Messages
    counts: Counts
    _: KW_ONLY
    pull_threshold_for_queue: int
    #: whether a line may be updated in place, which needs a terminal
    in_place: bool
    by_proxy: bool = False
    clock: Clock = SYSTEM_CLOCK
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _owned: list[MessageQueue] = field(default_factory=list, init=False)
    _owned_since_ms: int = field(default=0, init=False)
    #: the queues that the last line named
    _said: list[MessageQueue] = field(default_factory=list, init=False)
    #: (monotonic ms, messages consumed by then)
    _looks: list[tuple[int, int]] = field(init=False)
    _started_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.in_place = self.in_place and is_terminal(sys.stderr)
        self._started_ms = self.clock.monotonic_ms()
        self._looks = [(self._started_ms, 0)]

    def say(self, text: str) -> None:
        """Write a line. Thread-safe."""
        with self._lock:
            self.messages.info(text)

    def warn(self, text: str) -> None:
        """Write a warning, which `-q` does not suppress. Thread-safe."""
        with self._lock:
            self.messages.warn(text)

    def clear(self) -> None:
        """Remove the line in place, before data is written to the same terminal."""
        if self.in_place:
            with self._lock:
                self.messages.clear_progress()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the line in place off the screen while data is written to it."""
        if not (self.in_place and is_terminal(sys.stdout)):
            yield
            return
        with self._lock:
            self.messages.clear_progress()
            yield

    def look(self, consumer: Consumer) -> None:
        """Write a line once changed queues have settled; redraw the line in place."""
        queues = consumer.queues()
        now_ms = self.clock.monotonic_ms()
        if queues != self._owned:
            self._owned = queues
            self._owned_since_ms = now_ms
        elif now_ms - self._owned_since_ms >= _SETTLED_MS:
            self.say_owned()
        if self.in_place:
            text = self._line(None if self.by_proxy else consumer.running_info())
            columns = screen_size(sys.stderr).columns
            # An interrupt in between would leave a line that is never cleared.
            with interrupts.deferred():
                # Data may be written for long: a screen can be stopped with Ctrl-S.
                if self._lock.acquire(blocking=False):
                    try:
                        self.messages.progress(text[: max(1, columns - 1)])
                    finally:
                        self._lock.release()

    def say_owned(self) -> None:
        """Write a line about the queues that were owned last, unless the last was."""
        if self._owned != self._said:
            self._said = self._owned
            queues, ranges = self._owned, queue_ranges(self._owned)
            if not queues:
                self.say("owns no queues")
            elif all(queue.queue_id == -1 for queue in queues):
                self.say(f"receives from all queues of {ranges}")
            else:
                self.say(f"owns {counted(len(queues), 'queue')}: {ranges}")

    def summary(self) -> str:
        """Return the summary for the end of the run."""
        counts = self.counts
        spent_ms = max(1, self.clock.monotonic_ms() - self._started_ms)
        words = [f"{counts.consumed:,} consumed"]
        if counts.failed:
            words.append(f"{counts.failed:,} failed: {counts.failures()}")
        if counts.undecodable:
            words.append(f"{counts.undecodable:,} undecodable")
        if counts.at_work:
            words.append(f"{counts.at_work:,} started but not finished, not committed")
        words.append(f"{counts.consumed * 1000 / spent_ms:,.1f}/s")
        return "; ".join(words)

    def _line(self, info: ConsumerRunningInfo | None) -> str:
        words = [f"{self.counts.consumed:,} consumed", f"{self._rate():,.0f}/s"]
        if info is not None:
            held = info.process_queues.values()
            cached = sum(each.cached_msg_count for each in held)
            cached_mib = sum(each.cached_msg_size_in_mib or 0 for each in held)
            full = sum(
                each.cached_msg_count >= self.pull_threshold_for_queue for each in held
            )
            words.append(counted(len(self._owned), "queue"))
            words.append(f"cached {cached:,} ({cached_mib} MiB)")
            if full:
                words.append(f"flow control on {full}")
        else:
            words.append(queue_ranges(self._owned) or "no queues assigned")
        if self.counts.failed:
            words.append(f"{self.counts.failed:,} failed: {self.counts.failures()}")
        return " · ".join(words)

    def _rate(self) -> float:
        now = (self.clock.monotonic_ms(), self.counts.consumed)
        self._looks = [*self._looks[-_RATE_LOOKS:], now]
        before = self._looks[0]
        return (now[1] - before[1]) * 1000 / max(1, now[0] - before[0])
