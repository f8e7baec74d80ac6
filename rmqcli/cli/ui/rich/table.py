"""Draws tables that fit the width of a terminal.

Columns without a value are left out, except those that are wanted or never hidden. If
the others are too wide, long cells lose their middle, and a name that alone takes more
than half of the terminal continues on the next line; then columns are hidden in the
order of their priority, and a line below the table names them. A name is never
truncated. Cells are escaped texts, which are not interpreted as markup; their colours
show the meaning of states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqcli.cli.ui.messages import screen_size
from rmqcli.cli.ui.output import is_to_the_right, meaning_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from rmqcli.cli.ui.output import Column, Row

_GAP: Final = 2
#: The least width of a shortened text, which must still be recognised.
_SHORT_MIN: Final = 16
#: Characters that one cell may have, with those without a width: marks, joiners.
_CHARACTERS_PER_CELL: Final = 8
#: A name that is wider than this, and than half the terminal, is folded rather than
#: that it hides other columns.
_FOLD_MIN: Final = 32
#: The width to which texts are folded before numbers are.
_FOLDED_MIN: Final = 3
_STYLES: Final = {"good": "green", "warn": "yellow", "bad": "red"}
#: What a table shows for an unknown value, and for an empty one.
_EMPTY: Final = ("-", "{}")


class FittedColumn(NamedTuple):
    """A column with its texts, and the width that it gets."""

    column: Column
    texts: list[str]
    width: int
    #: the width below which a name is not folded while columns can be hidden instead
    fold_at: int

    @property
    def is_empty(self) -> bool:
        return bool(self.texts) and all(text in _EMPTY for text in self.texts)

    @property
    def can_lose(self) -> int:
        """By how many cells the column may be narrowed."""
        least = _SHORT_MIN if self.column.shorten else self.fold_at
        return max(0, self.width - max(least, cell_len(self.column.heading)))


def console_for(stream: TextIO, *, color: bool) -> Console:
    """Return a console that writes text to the terminal `stream` without changes."""
    size = screen_size(stream)
    return Console(
        file=stream,
        width=size.columns,
        height=size.lines,
        force_terminal=True,
        color_system="standard" if color else None,
        no_color=not color,  # `color` already takes account of NO_COLOR
        markup=False,
        emoji=False,
        highlight=False,
    )


def print_table(
    rows: Sequence[Row],
    *,
    columns: Sequence[Column],
    color: bool,
    stream: TextIO,
    left_out: str = "",
) -> None:
    """Write a table that fits the terminal `stream`, and a line about what is hidden.

    `left_out` says what the caller left out of `rows`.
    """
    console = console_for(stream, color=color)
    table, hidden = fitted_table(rows, columns, width=console.width)
    console.print(table)
    hidden = [*([left_out] if left_out else []), *hidden]
    if hidden:
        line = f"hidden: {', '.join(hidden)}; -o json shows all"
        console.print(Text(line, style="dim"))


def fitted_table(
    rows: Sequence[Row], columns: Sequence[Column], *, width: int
) -> tuple[Table, list[str]]:
    """Return the table that fits `width`, and the headings of columns that do not."""
    shown, hidden = fit_columns(rows, columns, width=width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), expand=False)
    for cells in shown:
        column = cells.column
        is_last_resort = cells.width < max(map(cell_len, [*cells.texts, ""]))
        table.add_column(
            Text(column.heading),
            justify="right" if is_to_the_right(column, cells.texts) else "left",
            no_wrap=not is_last_resort or column.shorten,
            overflow="fold" if is_last_resort else "crop",
            width=cells.width,
        )
    for index in range(len(rows)):
        table.add_row(*(_cell(cells, index) for cells in shown))
    return table, hidden


def fit_columns(
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    width: int,
    seen: Mapping[str, int] | None = None,
) -> tuple[list[FittedColumn], list[str]]:
    """Return the columns that fit `width`, and the headings of those that do not.

    `seen` has the widths that columns had for other rows of the same table, so that
    they stay as they are while a part of it is shown.
    """
    seen = seen or {}
    fold_at = max(_FOLD_MIN, width // 2)
    everything = [
        FittedColumn(
            column,
            texts,
            max(seen.get(column.name, 0), *map(cell_len, [column.heading, *texts])),
            fold_at,
        )
        for column in columns
        for texts in [[column.text(row) for row in rows]]
    ]
    candidates = [
        cells
        for cells in everything
        if cells.column.is_wanted
        or cells.column.name in seen
        or not (cells.column.priority and cells.is_empty)
    ]
    shown = _fit(candidates, width)
    kept = {cells.column.name for cells in shown}
    hidden = [c.column.heading for c in candidates if c.column.name not in kept]
    return shown, hidden


def style_of(column: Column, text: str) -> str:
    """Return the style of a cell: the colour of a state, or dim if it is empty."""
    meaning = meaning_of(column, text)
    return _STYLES[meaning] if meaning else "dim" if text in _EMPTY else ""


def _cell(cells: FittedColumn, index: int) -> Text:
    text = cells.texts[index]
    style = style_of(cells.column, text)
    if cells.column.shorten:
        text = shortened(text, cells.width)
    return Text(text, style=style)


def shortened(text: str, width: int) -> str:
    """Take the middle out of `text` if it is wider than `width`."""
    if cell_len(text) <= width:
        return text
    keep = max(0, width - 1)
    # Long texts are cut first: taking single characters from 4 MB would take hours.
    most = keep * _CHARACTERS_PER_CELL
    head, tail = text[:most], text[max(0, len(text) - most) :]
    while cell_len(head) > keep - keep // 2:
        head = head[:-1]
    while cell_len(tail) > keep // 2:
        tail = tail[1:]
    return f"{head}…{tail}"


def _fit(candidates: Sequence[FittedColumn], width: int) -> list[FittedColumn]:
    """Return the columns that fit `width`, in their order, some of them narrowed."""
    kept = list(candidates)
    by_priority = sorted(
        (cells for cells in candidates if cells.column.priority),
        key=lambda cells: cells.column.priority,
    )
    hidden = []
    while by_priority and _excess(kept, width) > 0:
        hidden.append(by_priority.pop())
        kept.remove(hidden[-1])
    # A narrow column may fit though a wider one before it did not.
    for cells in reversed(hidden):
        again = [each for each in candidates if each in kept or each is cells]
        if _excess(again, width) <= 0:
            kept = again
    return _narrowed(kept, width)


def _excess(kept: Sequence[FittedColumn], width: int) -> int:
    """Return by how much the columns exceed `width` if narrowed as far as allowed."""
    return _total(kept) - sum(cells.can_lose for cells in kept) - width


def _total(kept: Sequence[FittedColumn]) -> int:
    return sum(cells.width for cells in kept) + _GAP * max(0, len(kept) - 1)


def _may_fold(cells: FittedColumn) -> bool:
    """Whether a column is of texts, and not too narrow; a folded number is misread."""
    is_number = is_to_the_right(cells.column, cells.texts)
    return cells.width > _FOLDED_MIN and not is_number


def _narrowed(kept: Sequence[FittedColumn], width: int) -> list[FittedColumn]:
    """Narrow the widest columns until all fit: cut the middle of cells, then fold.

    Columns are folded evenly, so that none has one character in a line.
    """
    found = list(kept)
    while (too_much := _total(found) - width) > 0:
        can = [index for index, cells in enumerate(found) if cells.can_lose]
        if can:
            index = max(can, key=lambda i: (found[i].column.shorten, found[i].width))
            less = min(found[index].can_lose, too_much)
        else:
            folded = [i for i in range(len(found)) if _may_fold(found[i])]
            index = max(folded or range(len(found)), key=lambda i: found[i].width)
            less = int(found[index].width > 1)
        if not less:
            break
        found[index] = found[index]._replace(width=found[index].width - less)
    return found
