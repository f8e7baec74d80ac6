"""How far long work has come: a bar on a terminal, a line now and then elsewhere.

Written to stderr, nothing with `-q`. A terminal is redrawn ten times a second at most
and shows how long it still takes; elsewhere there is a line every ten seconds, so a log
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
    """Shows `done` of `total`, and a word about it. Use it with `with`.

    `total` None is unknown: then there is no bar. Not safe for threads.
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
        #: When something may be shown next. A terminal at once, a log after a while.
        self._next_ms = self._started_ms + (LINE_MS if self._bar is None else 0)
        #: what is shown on the last line; None while there is none
        self._shown: tuple[int, str] | None = None

    def update(self, done: int, note: str = "") -> None:
        """Say that `done` are done. Cheap: most calls show nothing."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._show(done, note, now_ms)

    def end(self, done: int, note: str = "") -> None:
        """Show how it ended, unless nothing was shown before, or just this."""
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
        """Take the bar away."""
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
