"""A table that is updated on the screen, for `rmq lag --watch`.

It uses the alternate screen: when the view ends, the terminal shows its earlier content
again, and the last picture is written below that. No thread redraws the screen; only
`show` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import screen_size
from rmqcli.cli.ui.rich.table import console_for, fitted_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rich.console import RenderableType
    from rich.table import Table

    from rmqcli.cli.ui.output import Column, Row


#: From this height on a screen has room for what only makes it easier to read.
_ROOMY: Final = 8
#: Lines of a row whose cells are folded, as far as the number of rows is reduced fast.
_FOLDED_MAX: Final = 4


class Picture(NamedTuple):
    """What a live view shows: a heading, a table, and warnings below it."""

    title: str
    words: Sequence[str]
    columns: Sequence[Column]
    rows: Sequence[Row]
    warnings: Sequence[str] = ()

    def drawn(self, *, size: ConsoleDimensions) -> Group:
        """Draw the picture with as many rows as fit, and the number of other rows.

        On a low screen that number is kept before the warnings, the warnings before
        the names of hidden columns, and all of them before more than one row.
        """
        head = Text.assemble(
            (safe(self.title), "bold"),
            *((f" · {safe(word)}", "dim") for word in self.words),
            no_wrap=True,
            overflow="ellipsis",
        )
        above: list[RenderableType] = [head]
        if size.height >= _ROOMY:
            above.append(Text(""))
        room = size.height - len(above) - (size.height >= _ROOMY)  # for the cursor
        count = max(1, min(len(self.rows), room - 1))
        while True:
            table, hidden = self._table(count, size.width)
            more = len(self.rows) - count
            below = [(f"... {more} more rows", "dim")] if more else []
            below += [(safe(line), "yellow") for line in self.warnings]
            below += [(f"hidden: {', '.join(hidden)}", "dim")] if hidden else []
            # Cells of narrow columns are folded.
            left = room - len(Console(width=size.width).render_lines(table))
            if count <= 1 or len(below) <= left:
                break
            count -= max(1, min(count - 1, len(below) - left) // _FOLDED_MAX)
        lines = [
            Text(line, style=style, no_wrap=True, overflow="ellipsis")
            for line, style in below[: max(1, left)]
        ]
        if left < 1:  # the end of one folded row is cut off, rather than that number
            return Group(*above, *lines, table)
        return Group(*above, table, *lines)

    def _table(self, count: int, width: int) -> tuple[Table, list[str]]:
        shown = [column for column in self.columns if column.title is not None]
        return fitted_table(self.rows[:count], shown, width=width)


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

    def __exit__(self, *_exc: object) -> None:
        self._live.stop()
        if self._last is not None:
            self._console.print(self._last)

    def show(self, picture: Picture) -> None:
        """Replace the picture on the screen. The terminal's size may have changed."""
        size = screen_size(self._stream)
        self._console.size = ConsoleDimensions(size.columns, size.lines)
        self._last = picture.drawn(size=self._console.size)
        self._live.update(self._last, refresh=True)
