"""Data on stdout: rows as a table, JSON, JSON lines or CSV.

A `Column` is the only definition of a field. JSON contains every key of a row, and its
keys are the names of columns. A table shows the columns whose title is not None, and
never truncates a name. An unknown value is `null`, and `-` in a table. Text from peers
is escaped before it reaches a terminal, where `rmqcli.cli.ui.rich.table` draws tables.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TextIO

from rmqcli.cli.ui import interrupts
from rmqcli.cli.ui.escape import safe, safe_json
from rmqcli.cli.ui.messages import is_screen, is_terminal, wrapped
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.units import format_rfc3339

TABLE_FORMATS = ("table", "json", "jsonl", "csv")

Row = Mapping[str, Any]

#: An interrupt gives the reader of a pipe this long to take more of a batch.
_STUCK_MS = 2_000
_POLL_MS = 100
#: A pipe that `poll` reports as writable has room for this much.
_PIPE_BYTES = 4_096

_COLUMN_GAP = "  "
#: What a table shows where there is no value.
_UNKNOWN = "-"
_RESET = "\x1b[0m"
#: Colours of states: all is well, a person should look, a person must act.
_STATE_COLORS = {
    "good": "\x1b[32m",
    "warn": "\x1b[33m",
    "bad": "\x1b[31m",
}
#: The first character of a cell that spreadsheets take for a formula.
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n")


class Column(NamedTuple):
    """One field of a command's rows in JSON, CSV, tables and `-o help`.

    A NamedTuple, because it is created fast, and every start of a command creates some.
    """

    #: the key in JSON, and the heading in CSV
    name: str
    #: what `-o help` says about it
    help: str = ""
    #: the heading in a table; None leaves the field out of tables
    title: str | None = ""
    #: text of a cell -> `good`, `warn` or `bad`, which decides its colour
    states: Mapping[str, str] | None = None
    #: reads the field from a result of the command; None: the attribute called `name`
    value: Callable[[Any], object] | None = None
    #: returns what a table shows for a row; None: the value itself
    shown: Callable[[Row], object] | None = None
    #: `right` for numbers
    align: str = "left"
    #: on a narrow terminal the column with the greatest number is hidden first; one
    #: with 0 never is
    priority: int = 0
    #: whether a narrow terminal may show only the start and the end of a cell
    shorten: bool = False
    #: whether a terminal shows the column although no row has a value
    is_wanted: bool = False

    @property
    def heading(self) -> str:
        """The heading of the column in a table."""
        return self.title or self.name.upper()

    def text(self, row: Row) -> str:
        """Return what a table shows for `row`, escaped for a terminal."""
        value = row.get(self.name) if self.shown is None else self.shown(row)
        return table_cell(value)


def number_column(
    name: str, help: str = "", title: str | None = "", **more: Any
) -> Column:
    """Return a column whose cells are aligned to the right."""
    return Column(name, help, title, align="right", **more)


def json_column(name: str, help: str = "", **more: Any) -> Column:
    """Return a column that tables leave out."""
    return Column(name, help, None, **more)


def time_column(
    name: str, help: str = "", title: str | None = "", *, of: str = "", **more: Any
) -> Column:
    """Return a column for a time; the attribute `of`, or else NAME_ms, has it in ms."""
    read = attrgetter(of or f"{name}_ms")
    return Column(
        name, help, title, value=lambda found: format_rfc3339(read(found)), **more
    )


def place_columns(
    broker_help: str = "",
    queue_help: str = "",
    *,
    priority: int = 0,
    queue_priority: int = 0,
) -> tuple[Column, Column]:
    """Return the columns of the broker and the ID of a result's `queue`."""
    return (
        Column(
            "broker_name",
            broker_help,
            "BROKER",
            value=lambda found: found.queue and found.queue.broker_name,
            priority=priority,
        ),
        number_column(
            "queue_id",
            queue_help,
            "QUEUE",
            value=lambda found: found.queue and found.queue.queue_id,
            priority=queue_priority,
        ),
    )


def pick(columns: Iterable[Column], names: str) -> tuple[Column, ...]:
    """Return the columns with these names, which blanks separate, in their order."""
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in names.split())


def row_of(columns: Iterable[Column], found: object) -> dict[str, Any]:
    """Read the fields of one row from a result of a command."""
    return {
        column.name: column.value(found)
        if column.value is not None
        else getattr(found, column.name)
        for column in columns
    }


def empty_row(columns: Iterable[Column], **known: object) -> dict[str, Any]:
    """Return a row of which nothing is known but these fields."""
    return {column.name: known.get(column.name) for column in columns}


def write_rows(
    rows: Iterable[Row],
    *,
    columns: Sequence[Column],
    fmt: str,
    color: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Write all `rows` as `fmt`, one of TABLE_FORMATS; a table needs them all first."""
    writer = RowWriter(columns=columns, fmt=fmt, color=color, stream=stream)
    writer.write(rows)
    writer.close()


def emit_json(value: object, *, stream: TextIO | None = None) -> None:
    """Write one JSON value, indented, and a newline."""
    out = _stdout(stream)
    write_whole(_dumps(value, out, indent=2) + "\n", out)


def write_summary(
    summary: Mapping[str, Any], *, columns: Sequence[Column], fmt: str, color: bool
) -> bool:
    """Write an object as JSON, or its `queues` as a table; return whether as a table.

    "auto" is a table on a terminal, and else JSON.
    """
    if fmt == "auto":
        fmt = "table" if is_terminal(sys.stdout) else "json"
    if fmt == "json":
        emit_json(summary)
    elif fmt == "jsonl":
        sys.stdout.write(json_line(summary) + "\n")
    else:
        write_rows(summary["queues"], columns=columns, fmt="table", color=color)
        return True
    return False


def json_line(value: object) -> str:
    """One JSON value on one line, without the newline, safe on a terminal."""
    return safe_json(_COMPACT.encode(value))


def check_reader() -> None:
    """Raise BrokenPipeError if stdout is a pipe whose reader has closed it.

    `rmq tail orders | head -1` would otherwise wait for a message that it cannot write.
    """
    try:
        poller = select.poll()
        poller.register(sys.stdout, 0)  # POLLERR is always reported
        found = poller.poll(0)
    except (OSError, TypeError, ValueError):  # no file descriptor, or closed
        return
    if any(event & select.POLLERR for _, event in found):
        raise BrokenPipeError("the reader of stdout has closed it")


def write_whole(data: str | bytes, stream: TextIO | None = None) -> None:
    """Write whole rows, and flush.

    An interrupt is raised after the last byte, so that no row is cut in two. It is
    raised earlier only if the reader of a pipe takes nothing for 2 s. Without a file
    descriptor, as in tests, nothing is held back.
    """
    out = _stdout(stream)
    try:
        fd = out.fileno()
    except (AttributeError, OSError, ValueError):
        if isinstance(data, bytes):
            data = data.decode("utf-8", "backslashreplace")
        out.write(data)
        out.flush()
        return
    if isinstance(data, str):
        data = data.encode(out.encoding or "utf-8", out.errors or "strict")
    out.flush()
    # Signals interrupt the main thread only.
    if threading.current_thread() is threading.main_thread():
        with interrupts.deferred():
            _write_to(fd, memoryview(data))
    else:
        _write_to(fd, memoryview(data))


def _write_to(fd: int, data: memoryview) -> None:
    """Write everything, in steps that do not block while an interrupt is held back."""
    mode = os.fstat(fd).st_mode
    is_pipe = stat.S_ISFIFO(mode)
    if not is_pipe and not stat.S_ISSOCK(mode) and not os.isatty(fd):
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:])
        return
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    at, moved_ms = 0, SYSTEM_CLOCK.monotonic_ms()
    while at < len(data):
        step = _room(fd) if is_pipe else 0
        if not step and not poll.poll(_POLL_MS):
            since_ms = interrupts.pending_since_ms()
            if since_ms is not None:
                waited_ms = SYSTEM_CLOCK.monotonic_ms() - max(since_ms, moved_ms)
                if waited_ms >= _STUCK_MS:
                    interrupts.raise_pending()
            continue
        at += os.write(fd, data[at : at + (step or _PIPE_BYTES)])
        if interrupts.pending_since_ms() is not None:
            moved_ms = SYSTEM_CLOCK.monotonic_ms()


def _room(fd: int) -> int:
    """How many bytes an empty pipe takes; 0 if it is not empty, or of unknown size."""
    import fcntl
    import termios

    if not hasattr(fcntl, "F_GETPIPE_SZ"):
        return 0
    unread = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return 0 if any(unread) else fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def write_field_help(
    columns: Sequence[Column], *, stream: TextIO | None = None
) -> None:
    """List the fields and what they mean: `-o help`."""
    width = max(len(column.name) for column in columns)
    out = _stdout(stream)
    for column in columns:
        line = f"{column.name:<{width}}  {column.help}".rstrip()
        out.write(wrapped(line, out, indent=width + len(_COLUMN_GAP)) + "\n")
    out.flush()


class RowWriter:
    """Writes rows in one format as they arrive, in batches.

    `write` flushes after each batch; on a terminal rows appear one by one. `close` ends
    a JSON list and draws a table. Not thread-safe.
    """

    def __init__(
        self,
        *,
        columns: Sequence[Column],
        fmt: str,
        color: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        if fmt not in TABLE_FORMATS:
            raise ValueError(f"fmt is {fmt!r}, not one of {TABLE_FORMATS}")
        self._columns = tuple(columns)
        self._format = fmt
        self._color = color
        self._out = _stdout(stream)
        self._is_terminal = is_terminal(self._out)
        self._table: list[Row] = []
        self._rows_written = 0
        if fmt == "csv":
            self._out.write(self._csv_row([column.name for column in self._columns]))

    def write(self, rows: Iterable[Row]) -> None:
        """Write `rows`, or keep them for a table."""
        waiting: list[str] = []
        for row in rows:
            match self._format:
                case "table":
                    self._table.append(row)
                    continue
                case "jsonl":
                    text = _dumps(row, self._out) + "\n"
                case "json":
                    text = ",\n" if self._rows_written else "[\n"
                    text += _dumps(row, self._out)
                case _:
                    text = self._csv_row([row.get(c.name) for c in self._columns])
            self._rows_written += 1
            waiting.append(text)
            if self._is_terminal:
                write_whole("".join(waiting), self._out)
                waiting.clear()
        write_whole("".join(waiting), self._out)

    def write_encoded(self, rows: str) -> None:
        """Write rows that are encoded already and have `separator` between them.

        Not for a table.
        """
        if self._format == "json":
            text = (",\n" if self._rows_written else "[\n") + rows
        else:
            text = rows + self.separator
        self._rows_written += 1
        write_whole(text, self._out)

    @property
    def separator(self) -> str:
        """What stands between two rows, which are not those of a table."""
        match self._format:
            case "json":
                return ",\n"
            case "csv" if not self._is_terminal:
                return "\r\n"
        return "\n"

    @property
    def is_terminal(self) -> bool:
        """Whether the rows go to a terminal."""
        return self._is_terminal

    @property
    def is_utf8(self) -> bool:
        """Whether the output can express every character."""
        return is_utf8(self._out)

    def json_text(self, value: object) -> str:
        """Return a value as it stands in a row of JSON."""
        return _dumps(value, self._out)

    def csv_cell(self, value: object) -> str:
        """Return a value as it stands in a row of CSV."""
        return _csv_cell(value, escape=self._is_terminal)

    def close(self) -> None:
        """Write the end of the output. Do not call it after `write` has failed."""
        if self._format == "table":
            write_table(
                self._table, columns=self._columns, color=self._color, stream=self._out
            )
        elif self._format == "json":
            self._out.write("\n]\n" if self._rows_written else "[]\n")
        self._out.flush()

    def _csv_row(self, cells: Sequence[object]) -> str:
        return ",".join(map(self.csv_cell, cells)) + self.separator


def write_table(
    rows: Sequence[Row],
    *,
    columns: Sequence[Column],
    color: bool = False,
    stream: TextIO | None = None,
    left_out: str = "",
) -> None:
    """Write aligned columns; numbers to the right. Without rows, only the headings.

    On a terminal the table fits its width, and a line below it names what is hidden:
    first `left_out`, which says what the caller left out of `rows`, and then columns.
    Elsewhere the table is as wide as its cells.
    """
    out = _stdout(stream)
    shown = [column for column in columns if column.title is not None]
    if is_screen(out):
        from rmqcli.cli.ui.rich.table import print_table  # loads rich

        print_table(rows, columns=shown, color=color, stream=out, left_out=left_out)
    else:
        _write_plain_table(rows, shown, color=color, out=out)
    out.flush()


def _write_plain_table(
    rows: Sequence[Row], columns: Sequence[Column], *, color: bool, out: TextIO
) -> None:
    texts = [[column.text(row) for column in columns] for row in rows]
    headings = [column.heading for column in columns]
    widths = [
        max(map(display_width, cells)) for cells in zip(headings, *texts, strict=True)
    ]
    is_right = [
        is_to_the_right(column, cells)
        for column, *cells in zip(columns, *texts, strict=True)
    ]
    for index, cells in enumerate([headings, *texts]):
        parts = []
        for column, cell, width, right in zip(
            columns, cells, widths, is_right, strict=True
        ):
            padding = " " * (width - display_width(cell))
            meaning = meaning_of(column, cell) if color and index else None
            if meaning:
                cell = f"{_STATE_COLORS[meaning]}{cell}{_RESET}"
            parts.append(padding + cell if right else cell + padding)
        out.write(_COLUMN_GAP.join(parts).rstrip() + "\n")


def is_to_the_right(column: Column, cells: Iterable[str]) -> bool:
    """Whether to align the column to the right: it is for numbers, and has some."""
    return column.align == "right" and any(cell != _UNKNOWN for cell in cells)


def meaning_of(column: Column, cell: str) -> str | None:
    """Return what a cell of a state column means: `good`, `warn`, `bad` or None."""
    states = column.states or {}
    return states.get(cell) or states.get(cell.partition("(")[0])


def display_width(text: str) -> int:
    """How many terminal cells `text` takes; it must be escaped already."""
    if text.isascii():
        return len(text)
    import unicodedata  # names are nearly always ASCII

    return sum(
        0
        if unicodedata.combining(c)
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


class _FallbackEncoder(json.JSONEncoder):
    """Encodes sets and bytes, which JSON lacks, in the same way for all commands."""

    def default(self, o: object) -> object:
        if isinstance(o, (set, frozenset)):
            return sorted(o)
        if isinstance(o, bytes):
            return o.decode("utf-8", "backslashreplace")
        return super().default(o)


_COMPACT = _FallbackEncoder(ensure_ascii=False, separators=(",", ":"))


def _dumps(value: object, out: TextIO, *, indent: int | None = None) -> str:
    if not is_utf8(out):
        # Characters that the encoding lacks must become \u escapes, not broken JSON.
        return _FallbackEncoder(indent=indent).encode(value).replace("\x7f", "\\u007f")
    if indent is None:
        return json_line(value)
    return safe_json(_FallbackEncoder(ensure_ascii=False, indent=indent).encode(value))


def is_utf8(out: TextIO) -> bool:
    """Whether the encoding of a stream can express every character."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "") == "utf8"


def _stdout(stream: TextIO | None) -> TextIO:
    return sys.stdout if stream is None else stream


def table_cell(value: object) -> str:
    """One cell of a table, escaped for a terminal."""
    match value:
        case None | "":
            return _UNKNOWN
        case bool():
            return "yes" if value else "no"
        case list() | tuple() | set() | frozenset():
            return ",".join(table_cell(item) for item in value) or _UNKNOWN
        case dict():
            return json_line(value)
    return safe(str(value))


def _csv_cell(value: object, *, escape: bool) -> str:
    """One cell, quoted where needed; text that looks like a formula is disarmed."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case dict() | list() | tuple() | set() | frozenset():
            text = json_line(value if isinstance(value, dict) else list(value))
        case _:
            text = str(value)
    if text.startswith(_FORMULA_START):
        text = "'" + text
    if escape:
        text = safe(text)
    if any(char in text for char in ',"\r\n') or text != text.strip():
        text = '"' + text.replace('"', '""') + '"'
    return text
