"""A table that is updated on the screen, for `rmq lag --watch`.

It uses the alternate screen: when the view ends, the terminal shows its earlier content
again, and the last picture is written below that. No thread redraws the screen; only
`show` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from rich.console import ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import screen_size
from rmqcli.cli.ui.rich.table import console_for, fitted_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import TextIO

    from rmqcli.cli.ui.output import Column, Row


class Picture(NamedTuple):
    """What a live view shows: a heading, a table, and warnings below it."""

    title: str
    words: Sequence[str]
    columns: Sequence[Column]
    rows: Sequence[Row]
    warnings: Sequence[str] = ()

    def drawn(self, *, size: ConsoleDimensions) -> Group:
        """Draw the picture with as many rows as fit, and the number of other rows."""
        shown = [column for column in self.columns if column.title is not None]
        table, hidden = fitted_table(self.rows, shown, width=size.width)
        # One line each: the heading, a blank, the columns' headings, the cursor.
        room = max(1, size.height - 4 - len(self.warnings) - bool(hidden))
        more = []
        if len(self.rows) > room:
            room = max(1, room - 1)
            table, hidden = fitted_table(self.rows[:room], shown, width=size.width)
            more.append(f"... {len(self.rows) - room} more rows")
        head = Text.assemble(
            (safe(self.title), "bold"),
            *((f" · {safe(word)}", "dim") for word in self.words),
            no_wrap=True,
            overflow="ellipsis",
        )
        lines = [*more, *([f"hidden: {', '.join(hidden)}"] if hidden else [])]
        return Group(
            head,
            Text(""),
            table,
            *(Text(line, style="dim") for line in lines),
            *(Text(safe(line), style="yellow") for line in self.warnings),
        )


class LiveScreen:
    """Shows pictures on the whole screen of a terminal until the `with` block ends.

    Then the last picture is written to the normal screen. Not thread-safe.
    """

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._console = console_for(stream, color=color)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._last: Group | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self._last is not None:
            self._console.print(self._last)

    def show(self, picture: Picture) -> None:
        """Replace the picture on the screen. The terminal's size may have changed."""
        size = screen_size(self._stream)
        self._console.size = ConsoleDimensions(size.columns, size.lines)
        self._last = picture.drawn(size=self._console.size)
        self._live.update(self._last, refresh=True)
