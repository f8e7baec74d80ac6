"""Draws a frame of `rmq top` as lines of text with styles. Pure.

A frame has a line with the cluster and the time, one with the views, the table, lines
about what is wrong, the command that prints the same, and the keys. It is as wide and
as high as it is told. Texts are escaped, never read as markup, and without UTF-8 only
ASCII is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import is_to_the_right
from rmqcli.cli.ui.rich.table import fit_columns, shortened, style_of
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from rmqcli.cli.ui.output import Column, Row

#: A smaller terminal only shows that it is too small.
WIDTH_MIN: Final = 60
HEIGHT_MIN: Final = 10
_GAP: Final = "  "
_INTRO_MAX: Final = 8
_NOTES_MAX: Final = 3
_PLAIN: Final = Style.null()
_BOLD: Final = Style(bold=True)
_DIM: Final = Style(dim=True)
_REVERSE: Final = Style(reverse=True)
_WARN: Final = Style(color="yellow")
_BAD: Final = Style(color="red", bold=True)
_SPARKS: Final = str.maketrans("▁▂▃▄▅▆▇█…", "_.:-=+*#~")

Line = list[Segment]


@dataclass(slots=True, kw_only=True)
class FrameContent:
    """What a frame shows. `cursor` is the index of the chosen row."""

    cluster: str
    time: str
    is_late: bool = False
    tabs: Sequence[tuple[str, bool]] = ()
    path: str = ""
    intro: Sequence[str] = ()
    columns: Sequence[Column] = ()
    rows: Sequence[Row] = ()
    cursor: int = 0
    empty: str = ""
    notes: Sequence[str] = ()
    command: str = ""
    keys: Sequence[tuple[str, str]] = ()
    #: stands in the place of the keys; the answer is typed below, in a line more
    question: str = ""


@dataclass(slots=True)
class FramePainter:
    """Draws the frames of one view; it remembers where its table stood.

    `top` is the index of the first row on the screen, and `room` how many are shown.
    """

    is_ascii: bool = False
    top: int = 0
    room: int = 0
    #: the line of the first row
    first_line: int = 0
    #: column -> the width that it had; the table would jump while it is scrolled
    _widths: dict[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin anew, for another table."""
        self.top = 0
        self._widths.clear()

    def draw(self, content: FrameContent, width: int, height: int) -> list[Line]:
        """Return `height` lines of `width` cells."""
        if width < WIDTH_MIN or height < HEIGHT_MIN - bool(content.question):
            return self._too_small(width, height)
        foot = [
            self._line(text, width, _WARN)
            for text in self._wrapped(content.notes, width, _NOTES_MAX)
        ]
        command = self._wrapped([f"$ {content.command}"], width, 2)
        foot += [self._line(text, width, _DIM) for text in command]
        foot.append(self._keys(content, width))
        head = [self._bar(content, width), self._tabs(content, width)]
        left = height - len(head) - len(foot) - 2  # the names of columns, and a row
        intro_max = min(_INTRO_MAX, max(1, height // 3), max(0, left))
        intro = self._wrapped(content.intro, width, intro_max)
        head += [self._line(text, width) for text in intro]
        self.first_line = len(head) + 1
        self.room = max(1, height - len(head) - len(foot) - 1)
        body = self._table(content, width)
        body += [self._line("", width)] * (self.room + 1 - len(body))
        return (head + body)[: height - len(foot)] + foot

    def _text(self, text: str) -> str:
        """Return a text that may be drawn: escaped, and ASCII where it must be."""
        text = safe(text)
        if self.is_ascii and not text.isascii():
            text = text.translate(_SPARKS)
            text = text.encode("ascii", "backslashreplace").decode("ascii")
        return text

    def _in_ascii(self, column: Column) -> Column:
        """Return the column with texts that are as wide as they will be drawn."""
        return column._replace(shown=lambda row: self._text(column.text(row)))

    def _line(self, text: str, width: int, style: Style = _PLAIN) -> Line:
        return [Segment(set_cell_size(self._text(text), width), style)]

    def _too_small(self, width: int, height: int) -> list[Line]:
        text = (
            f"The terminal has {width} x {height} cells. rmq top needs"
            f" {WIDTH_MIN} x {HEIGHT_MIN}. q quits."
        )
        lines = self._wrapped([text], width, height)
        found = [self._line(line, width) for line in lines]
        return (found + [self._line("", width)] * height)[:height]

    def _bar(self, content: FrameContent, width: int) -> Line:
        time = self._text(f" {content.time} ")
        room = width - cell_len(time)
        name = self._text(shortened(safe(f" rmq top  {content.cluster}"), room))
        late = _REVERSE + _BAD if content.is_late else _REVERSE
        return [Segment(set_cell_size(name, room), _REVERSE), Segment(time, late)]

    def _tabs(self, content: FrameContent, width: int) -> Line:
        """Return the views and the path, for which other views may lose their names."""
        needed = sum(cell_len(text) + 2 for text, _ in content.tabs)
        is_short = needed + 1 + cell_len(safe(content.path)) > width
        line: Line = []
        for text, is_chosen in content.tabs:
            shown = text.split(" ")[0] if is_short and not is_chosen else text
            line += [
                Segment(" ", _PLAIN),
                Segment(self._text(shown), _BOLD if is_chosen else _DIM),
                Segment(" ", _PLAIN),
            ]
        room = width - sum(cell_len(each.text) for each in line)
        path = self._text(shortened(safe(content.path), max(0, room - 1)))
        line.append(Segment(set_cell_size(f" {path}", max(0, room)), _BOLD))
        return Segment.adjust_line_length(line, width)

    def _keys(self, content: FrameContent, width: int) -> Line:
        line: Line = []
        left = width
        for key, label in (
            [("", content.question)] if content.question else content.keys
        ):
            text = f" {self._text(label)}  "
            left -= cell_len(key) + cell_len(text)
            if left < 0:
                break
            line += [Segment(self._text(key), _BOLD), Segment(text, _PLAIN)]
        return Segment.adjust_line_length(line, width)

    def _table(self, content: FrameContent, width: int) -> list[Line]:
        rows = content.rows
        if not rows:
            texts = self._wrapped([content.empty], width, self.room)
            return [self._line("", width), *(self._line(t, width) for t in texts)]
        self.top = max(0, min(self.top, len(rows) - self.room))
        if content.cursor < self.top:
            self.top = content.cursor
        elif content.cursor >= self.top + self.room:
            self.top = content.cursor - self.room + 1
        shown = rows[self.top : self.top + self.room]
        columns = [column for column in content.columns if column.title is not None]
        if self.is_ascii:
            columns = [self._in_ascii(column) for column in columns]
        fitted, hidden = fit_columns(shown, columns, width=width, seen=self._widths)
        for each in fitted:
            natural = max(map(cell_len, [each.column.heading, *each.texts]), default=0)
            known = self._widths.get(each.column.name, 0)
            self._widths[each.column.name] = max(known, natural)
        right = [is_to_the_right(each.column, each.texts) for each in fitted]
        heading = _GAP.join(
            _aligned(each.column.heading, each.width, is_right)
            for each, is_right in zip(fitted, right, strict=True)
        )
        lines = [self._line(heading, width, _BOLD)]
        for index in range(len(shown)):
            is_chosen = self.top + index == content.cursor
            line: Line = []
            for each, is_right in zip(fitted, right, strict=True):
                text = each.texts[index]
                name = style_of(each.column, text)
                style = Style.parse(name) if name else _PLAIN
                if is_chosen:
                    style = _REVERSE if name in ("", "dim") else style + _REVERSE
                text = self._text(shortened(text, each.width))
                text = _aligned(text, each.width, is_right)
                gap = Segment(_GAP, _REVERSE if is_chosen else _PLAIN)
                line += [Segment(text, style), gap]
            cut = Segment.adjust_line_length(line, width)
            if is_chosen:
                used = Segment.get_line_length(line)
                if used < width:
                    cut = [*line, Segment(" " * (width - used), _REVERSE)]
            lines.append(cut)
        if hidden and len(shown) < self.room:
            lines.append(self._line(f"hidden: {', '.join(hidden)}", width, _DIM))
        return lines

    def _wrapped(self, texts: Sequence[str], width: int, most: int) -> list[str]:
        """Return at most `most` lines; the last one counts those that are left out."""
        lines = [line for text in texts for line in wrap(self._text(text), width)]
        if len(lines) <= most or not most:
            return lines[:most]
        left = len(lines) - most
        last = shortened(lines[most - 1], max(1, width - 12))
        return [*lines[: most - 1], f"{last} (+{left})"]


def wrap(text: str, width: int) -> list[str]:
    """Break a text between words, and words that are wider than a line anywhere."""
    lines: list[str] = []
    line: str | None = None
    for word in text.split(" "):
        longer = word if line is None else f"{line} {word}"
        if cell_len(longer) <= width:
            line = longer
            continue
        if line is not None:
            lines.append(line)
        rest = word
        while cell_len(rest) > width:
            head = set_cell_size(rest, width)
            head = rest[: len(head.rstrip(" ")) or 1]
            lines.append(head)
            rest = rest[len(head) :]
        line = rest
    return [*lines, line or ""]


def _aligned(text: str, width: int, is_right: bool) -> str:
    room = width - cell_len(text)
    if room < 0:
        return set_cell_size(text, width)
    return " " * room + text if is_right else text + " " * room
