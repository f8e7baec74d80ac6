"""The progress of long work on stderr: a bar on a terminal, otherwise lines.

With `-q`, nothing is written. The bar is redrawn at most ten times a second, and shows
the time that is left. Elsewhere a line is written every ten seconds, so that a log
stays readable. `rmqcli.cli.ui.rich.progress` draws the bar.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from rmqcli.cli.ui.messages import Messages, color_is_on, is_screen
from rmqcli.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from rmqcli.cli.ui.rich.progress import BarLine

REDRAW_MS = 100
LINE_MS = 10_000


class Progress:
    """Shows how much of `total` is done, and a note. Use it with `with`.

    If `total` is None, which means unknown, there is no bar. Not thread-safe.
    """

    def __init__(
        self,
        messages: Messages,
        label: str,
        *,
        total: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._messages = messages
        self._label = label
        self._total = total
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._bar: BarLine | None = None
        if is_screen(sys.stderr) and not messages.quiet:
            from rmqcli.cli.ui.rich.progress import BarLine

            self._bar = BarLine(
                label,
                total=total,
                stream=sys.stderr,
                color=color_is_on(messages.color, sys.stderr),
                clock=clock,
            )
        #: when the next update may be shown; at first, a terminal need not wait
        self._next_ms = self._started_ms + (LINE_MS if self._bar is None else 0)
        #: (done, note) of the last line; None before the first line
        self._shown: tuple[int, str] | None = None

    def update(self, done: int, note: str = "") -> None:
        """Report that `done` are done. Cheap, because most calls show nothing."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._show(done, note, now_ms)

    def end(self, done: int, note: str = "") -> None:
        """Show the final state, unless nothing was shown before, or exactly this."""
        if self._shown not in (None, (done, note)):
            self._show(done, note, self._clock.monotonic_ms())

    def _show(self, done: int, note: str, now_ms: int) -> None:
        self._shown = done, note
        if self._bar is not None:
            self._next_ms = now_ms + REDRAW_MS
            self._messages.draw(self._bar.drawn(done, note))
            return
        self._next_ms = now_ms + LINE_MS
        text = f"{self._label} {self._described(done, now_ms)}"
        self._messages.info(f"{text}  {note}" if note else text)

    def close(self) -> None:
        """Remove the bar."""
        self._messages.clear_progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _described(self, done: int, now_ms: int) -> str:
        elapsed_ms = max(1, now_ms - self._started_ms)
        rate = f"{done * 1000 // elapsed_ms:,}/s"
        if not self._total:
            return f"{done:,}  {rate}"
        share = min(1.0, done / self._total)
        return f"{share:4.0%}  {done:,} of {self._total:,}  {rate}"
