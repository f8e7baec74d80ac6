"""Draws the line that shows the progress of work: a bar, counts, the time left.

The line is never wider than the terminal: the least important part is left out first.
This module only makes the text. `rmqcli.cli.ui.messages` writes it to the terminal, and
removes it when a message has to be written. No thread redraws the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.rich.table import console_for, shortened
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from typing import TextIO

    from rmqcli.clock import Clock

_LABEL_MAX: Final = 24
_BAR_MIN: Final = 8
_BAR_MAX: Final = 40


class BarLine:
    """Draws the line of one task; without bar and time left if `total` is None."""

    def __init__(
        self,
        label: str,
        *,
        total: int | None,
        stream: TextIO,
        color: bool,
        clock: Clock,
    ) -> None:
        self._label = shortened(safe(label), _LABEL_MAX)
        self._stream = stream
        self._color = color
        self._bar = BarColumn(table_column=Column(no_wrap=True))
        self._text = TextColumn("{task.fields[text]}", markup=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, style="bold"),
            *(() if total is None else (self._bar,)),
            self._text,
            get_time=lambda: clock.monotonic_ms() / 1000,
        )
        self._task = self._progress.add_task(self._label, total=total, text="")

    def drawn(self, done: int, note: str) -> str:
        """Return the line when `done` are done, with its colours."""
        console = console_for(self._stream, color=self._color)
        # The last cell would wrap on some terminals.
        console.width = max(1, console.width - 1)
        self._progress.update(self._task, completed=done)
        parts = self._parts(done, safe(note))
        room = console.width - cell_len(self._label) - 1
        if self._progress.tasks[0].total is not None:
            room -= _BAR_MIN + 1
        while len(parts) > 1 and cell_len("  ".join(parts)) > room:
            parts.pop()
        text = "  ".join(parts)
        self._bar.bar_width = min(_BAR_MAX, _BAR_MIN + max(0, room - cell_len(text)))
        self._progress.update(self._task, text=text)
        with console.capture() as capture:
            console.print(self._progress.get_renderable(), end="")
        return capture.get().partition("\n")[0]

    def _parts(self, done: int, note: str) -> list[str]:
        """Return the parts of the line, the most important first."""
        task = self._progress.tasks[0]
        rate = f"{task.finished_speed or task.speed or 0:,.0f}/s"
        if task.total is None:
            return [f"{done:,}", rate, *([note] if note else [])]
        parts = [f"{min(100, task.percentage):.0f}%"]
        if task.time_remaining:
            parts.append(f"{format_duration(round(task.time_remaining) * 1000)} left")
        parts += [f"{done:,} of {task.total:,.0f}", rate]
        return [*parts, *([note] if note else [])]
