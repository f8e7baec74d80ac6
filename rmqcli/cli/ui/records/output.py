"""Printing messages: a writer for each `--output`, and one for `--format`.

A writer works in two steps. Its batcher turns the messages of one queue into items,
which are then merged with those of other queues; `write` prints merged items. Text that
goes to a terminal is escaped; `raw`, and bytes that go elsewhere, are not changed.
"""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rmqcli.cli.ui.escape import json_escape, safe_bytes, safe_json
from rmqcli.cli.ui.messages import is_terminal, screen_size
from rmqcli.cli.ui.output import Column, RowWriter, is_utf8, write_whole
from rmqcli.cli.ui.records.format import LETTERS
from rmqcli.wire.message.json import (
    BODY_FIELDS,
    EXTRA_FIELDS,
    RECORD_FIELDS,
    JsonWriter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.tail.batch import Batcher, TailCounts
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.decode import Decode
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import Record

    Messages = Sequence[Record]

FORMATS = ("auto", "pretty", "table", "json", "jsonl", "raw", "hex", "csv")
FIELDS = tuple(
    Column(name, help_text)
    for name, help_text in (*RECORD_FIELDS, *BODY_FIELDS, *EXTRA_FIELDS)
)
#: What `-o help` lists.
HELP_FIELDS = (
    *FIELDS,
    *(Column(letter, f"in --format: {meaning}") for letter, meaning in LETTERS),
)
#: The fields that records have only with a decoder.
_OF_DECODE = ("value", "value_format", "decode_error")
#: A longer body is cut on a terminal, except in `raw`.
SHOWN_BYTES_MAX = 4096
#: What shows all bytes of a body that was cut.
WHOLE = "-o raw writes"
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def record_schema() -> str:
    """Return the JSON Schema of the records of `-o json` and `-o jsonl`."""
    from importlib.resources import files  # only for -o schema

    path = files("rmqcli.wire.message") / "record.schema.json"
    return path.read_text(encoding="utf-8")


class Writer(Protocol):
    """Prints items. `close` prints what belongs at the end."""

    def batcher(self, tail_filter: TailFilter, counts: TailCounts) -> Batcher[Any]:
        """Return what makes the items."""

    def write(self, items: list[Any]) -> None: ...
    def close(self) -> None: ...


def make_writer(
    output: str,
    *,
    template: str | None,
    color: bool,
    decode: Decode | None = None,
    whole: str = WHOLE,
) -> Writer:
    """Return the writer for `--output`, or for `--format` when it is given.

    With `decode` it also shows the values of bodies, where its format has a place for
    them. On a terminal all but `raw` cut long bodies; a note of `pretty` names `whole`,
    which shows them.
    """
    body_bytes_max = SHOWN_BYTES_MAX if is_terminal(sys.stdout) else None
    if template is not None:
        from rmqcli.cli.ui.records.format import RecordFormat

        text = RecordFormat(template, decode, body_bytes_max=body_bytes_max)
        return _FormatWriter(text.write)
    if output == "auto":
        output = "pretty" if is_terminal(sys.stdout) else "jsonl"
    match output:
        case "raw":
            return _RawWriter()
        case "jsonl":
            return _JsonlWriter(JsonWriter(decode, body_bytes_max=body_bytes_max))
        case "json":
            return _JsonWriter(JsonWriter(decode, body_bytes_max=body_bytes_max))
        case "csv":
            return _CsvWriter(JsonWriter(decode, body_bytes_max=body_bytes_max))
    from rmqcli.cli.ui.records import text as tail_text

    width = screen_size(sys.stdout).columns if is_terminal(sys.stdout) else None
    if output == "pretty":
        pretty = tail_text.Pretty(color=color, width=width, decode=decode, whole=whole)
        return _TextWriter(pretty.blocks)
    if output == "hex":
        shown_max = None if width is None else SHOWN_BYTES_MAX // 2
        return _TextWriter(partial(tail_text.hex_blocks, shown_max=shown_max))
    table = tail_text.MessageTable(width=width)
    return _TextWriter(table.rows, heading=table.heading)


class _RenderingWriter:
    """A writer whose items are made by a function of a queue and messages."""

    def __init__(self, render: Callable[[MessageQueue, Messages], list[Any]]) -> None:
        self._render = render

    def batcher(self, tail_filter: TailFilter, counts: TailCounts) -> Batcher[Any]:
        from rmqcli.admin.tail.batch import Batcher

        return Batcher(tail_filter, self._render, counts)

    def close(self) -> None:
        """Nothing is printed at the end."""


class _TextWriter(_RenderingWriter):
    """Prints blocks of text, which are already escaped."""

    def __init__(
        self,
        render: Callable[[MessageQueue, Messages], list[Any]],
        *,
        heading: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(render)
        self._heading = heading

    def write(self, items: list[str]) -> None:
        if self._heading is not None:
            items, self._heading = [self._heading(), *items], None
        write_whole("\n".join(items) + "\n")


class _LinesWriter:
    """A writer whose items are JSON lines."""

    def __init__(self, lines: JsonWriter) -> None:
        self._lines = lines

    def batcher(self, tail_filter: TailFilter, counts: TailCounts) -> Batcher[Any]:
        from rmqcli.admin.tail.batch import LineBatcher

        return LineBatcher(tail_filter, self._lines, counts)


class _JsonlWriter(_LinesWriter):
    def write(self, items: list[str]) -> None:
        write_whole(_safe_json("\n".join(items)) + "\n")

    def close(self) -> None:
        """Nothing is printed at the end."""


class _JsonWriter(_LinesWriter):
    """Prints one JSON list with an element on each line."""

    def __init__(self, lines: JsonWriter) -> None:
        super().__init__(lines)
        self._before = "[\n"

    def write(self, items: list[str]) -> None:
        write_whole(self._before + _safe_json(",\n".join(items)))
        self._before = ",\n"

    def close(self) -> None:
        write_whole("[]\n" if self._before == "[\n" else "\n]\n")


class _CsvWriter(_RenderingWriter):
    def __init__(self, lines: JsonWriter) -> None:
        super().__init__(
            lambda queue, messages: [
                json.loads(line) for line in lines.lines(queue, messages)
            ]
        )
        hidden = _OF_DECODE if lines.decode is None else ()
        columns = [column for column in FIELDS if column.name not in hidden]
        self._rows = RowWriter(columns=columns, fmt="csv")

    def write(self, items: list[dict[str, Any]]) -> None:
        self._rows.write(items)


class _FormatWriter(_RenderingWriter):
    """Prints what `--format` makes, escaped only for a terminal.

    There the summary, which follows, must not look like a part of the last message.
    """

    _is_in_line = False

    def write(self, items: list[bytes]) -> None:
        if is_terminal(sys.stdout):
            text = "".join(safe_bytes(item, keep_newlines=True) for item in items)
            write_whole(text)
            self._is_in_line = not text.endswith("\n")
        else:
            write_whole(b"".join(items))

    def close(self) -> None:
        if self._is_in_line:
            write_whole("\n")


class _RawWriter:
    """Prints bodies, each followed by a newline."""

    def batcher(self, tail_filter: TailFilter, counts: TailCounts) -> Batcher[Any]:
        from rmqcli.admin.tail.batch import BodyBatcher

        return BodyBatcher(tail_filter, counts)

    def write(self, items: list[bytes]) -> None:
        write_whole(b"\n".join(items) + b"\n")

    def close(self) -> None:
        """Nothing is printed at the end."""


def _safe_json(text: str) -> str:
    """Return JSON that is safe to print; escape what the encoding cannot express."""
    text = safe_json(text)
    return text if is_utf8(sys.stdout) else _NOT_ASCII.sub(json_escape, text)


def write_messages(writer: Writer, messages: Sequence[PulledMessage]) -> None:
    """Write messages of any queues, in their order, as `rmq tail` shows them."""
    from rmqcli.admin.tail.batch import TailCounts
    from rmqcli.admin.tail.filter import TailFilter

    batcher = writer.batcher(TailFilter(), TailCounts())
    for message in messages:
        writer.write(batcher.items(message.message_queue, [message]))
    writer.close()
