"""How far long work has come: a bar on a terminal, a line now and then elsewhere.

Written to stderr, nothing with `-q`. A terminal is redrawn ten times a second at most,
elsewhere there is a line every ten seconds, so a log stays readable.
"""

from __future__ import annotations

import shutil
import sys
from typing import Self

from rmqcli.cli.ui.messages import Messages, is_terminal
from rmqcli.clock import SYSTEM_CLOCK, Clock

REDRAW_MS = 100
LINE_MS = 10_000
_BAR_CELLS = 24


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
        self._is_terminal = is_terminal(sys.stderr)
        self._started_ms = clock.monotonic_ms()
        #: When something may be shown next. A terminal at once, a log after a while.
        self._next_ms = self._started_ms + (0 if self._is_terminal else LINE_MS)

    def update(self, done: int, note: str = "") -> None:
        """Say that `done` are done. Cheap: most calls show nothing."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        text = f"{self._label} {self._describe(done, now_ms)}"
        if note:
            text += f"  {note}"
        if self._is_terminal:
            self._next_ms = now_ms + REDRAW_MS
            columns = shutil.get_terminal_size().columns
            self._messages.progress(text[: max(1, columns - 1)])
        else:
            self._next_ms = now_ms + LINE_MS
            self._messages.info(text)

    def close(self) -> None:
        """Take the bar away."""
        self._messages.clear_progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _describe(self, done: int, now_ms: int) -> str:
        elapsed_ms = max(1, now_ms - self._started_ms)
        rate = f"{done * 1000 // elapsed_ms:,}/s"
        if not self._total:
            return f"{done:,}  {rate}"
        share = min(1.0, done / self._total)
        text = f"{share:4.0%}  {done:,} of {self._total:,}  {rate}"
        if self._is_terminal:
            filled = int(share * _BAR_CELLS)
            text = f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {text}"
        return text
