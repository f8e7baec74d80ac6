"""Messages as text for people: `-o pretty`, `-o table` and `-o hex`, escaped."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from rmqcli.cli.ui.escape import safe, safe_bytes, safe_json
from rmqcli.cli.ui.output import display_width
from rmqcli.cli.ui.records.output import SHOWN_BYTES_MAX, WHOLE
from rmqcli.dataclass import dataclass
from rmqcli.decode.json import compact_json, read_json
from rmqcli.errors import DecodeError
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.message.json import cut_at
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.decode import Decode
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import PartialMessage, Record, StoredMessage

    Readable = StoredMessage | PartialMessage

#: More lines of a body are cut.
SHOWN_LINES_MAX = 200
TABLE_BODY_BYTES_MAX = 80

_BOLD, _DIM, _RED, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"
_TABLE_ROW = "{:<24}  {:<16}  {:>5}  {:>10}  {:<12}  {:<20}  {}"
_TABLE_HEADINGS = ("STORED", "BROKER", "QUEUE", "OFFSET", "TAGS", "KEYS", "BODY")
#: On a screen: the fewest and the most cells of the columns before the body.
_TABLE_WIDTHS = ((24, 24), (6, 16), (5, 5), (6, 20), (4, 12), (4, 20))
#: On a narrower screen times have no year and no milliseconds: `11-25T21:00:15Z`.
_WIDE = 100
_SHORT_TIME_CELLS = 15
_HEX_WIDTH = 16
#: What stands before each line of a body, and before what continues a line of ours.
_OF_BODY, _CONTINUED = "  ", "+ "
#: A text of JSON, which is kept, or blanks outside of texts.
_BLANKS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretty:
    """A line about each message, then its body; JSON is indented.

    Only lines of ours have text in the first column, so that no line of a body, and no
    key, looks like one. On a terminal, which has `width`, long lines are broken here
    for the same reason. With `decode`, a body that is not itself JSON is shown as its
    value, and an error of a body follows it. `whole` says what shows a long body whole.
    """

    color: bool
    width: int | None = None
    decode: Decode | None = None
    whole: str = WHOLE

    def blocks(self, queue: MessageQueue, messages: Iterable[Record]) -> list[str]:
        """Return a block of lines for each message."""
        return [
            self._failure(queue, message)
            if isinstance(message, DecodeFailure)
            else self._message(queue, message)
            for message in messages
        ]

    def _message(self, queue: MessageQueue, message: Readable) -> str:
        head = safe(f"{queue} {_offset(message, '?')}")
        place = self._painted(_BOLD, head) + "  " + _stored_at(message)
        facts = [
            f"{name}={safe(value)}"
            for name, value in (
                ("tags", message.tags),
                ("keys", message.keys),
                ("id", message.msg_id),
            )
            if value
        ]
        if message.reconsume_times:
            facts.append(f"reconsumed={message.reconsume_times}")
        lines = [place]
        text = "  ".join(facts)
        used = display_width(head) + 2 + len(_stored_at(message)) + 2
        if text and (self.width is None or used + display_width(text) <= self.width):
            lines = [f"{place}  {self._painted(_DIM, text)}"]
        elif text:
            lines += [
                self._painted(_DIM, line) for line in self._lines(text, _CONTINUED)
            ]
        try:
            body = message.body
        except DecodeError as error:
            return "\n".join([*lines, self._error(f"error: {error.message}")])
        fault = ""
        if self.decode is not None:
            try:
                value = self.decode(body)
            except DecodeError as error:
                fault = error.message
            else:
                if self.decode.format != "json":
                    text = str(json.loads(value)) if value.startswith('"') else value
                    body = text.encode("utf-8", "backslashreplace")
        text, note = _body_text(body, self.whole)
        lines += self._lines(text, _OF_BODY)
        if note:
            lines.append(note)
        if fault:
            lines.append(self._error(f"decode error: {fault}"))
        return "\n".join(lines)

    def _failure(self, queue: MessageQueue, failure: DecodeFailure) -> str:
        where = _offset(failure, "?")
        error = f"error: {failure.error} ({counted(len(failure.raw), 'byte')})"
        return (
            f"{self._painted(_BOLD, safe(str(queue)) + ' ' + where)}\n"
            f"{self._error(error)}"
        )

    def _error(self, text: str) -> str:
        return self._painted(_RED, safe(text))

    def _lines(self, text: str, prefix: str) -> list[str]:
        """Return the lines of an escaped text, each one behind `prefix`."""
        lines = text.split("\n")
        if self.width is not None:
            room = max(1, self.width - len(prefix))
            lines = [part for line in lines for part in _broken(line, room)]
        return [prefix + line if line else "" for line in lines]

    def _painted(self, color: str, text: str) -> str:
        return f"{color}{text}{_RESET}" if self.color else text


def _broken(line: str, room: int) -> list[str]:
    """Break a line into parts that are at most `room` cells wide."""
    line = line.expandtabs(8)
    if line.isascii():
        return [line[at : at + room] for at in range(0, len(line), room)] or [""]
    parts, part, used = [], "", 0
    for char in line:
        cells = display_width(char)
        if used + cells > room and part:
            parts.append(part)
            part, used = "", 0
        part += char
        used += cells
    return [*parts, part]


def _offset(message: Record, unknown: str) -> str:
    return unknown if message.queue_offset is None else str(message.queue_offset)


def _stored_at(message: Readable) -> str:
    stored_ms = message.store_timestamp_ms
    return "-" if stored_ms is None else format_rfc3339(stored_ms) or "-"


def _body_text(body: bytes, whole: str) -> tuple[str, str]:
    """Return what is shown of a body, and a note on what is left out, if anything."""
    if len(body) <= SHOWN_BYTES_MAX:
        text = _indented_json(body)
        is_short = text.count("\n") < SHOWN_LINES_MAX
        if text and is_short and len(text) <= 4 * SHOWN_BYTES_MAX:
            return text, ""
    shown = _shown_bytes(body)
    text = safe_bytes(body[:shown], keep_newlines=True)
    if shown == len(body):
        return text, ""
    return text.rstrip(), _left_out(len(body) - shown, len(body), whole)


def _indented_json(body: bytes) -> str:
    """Return a JSON object or list indented, or nothing for any other body.

    Only blanks may differ from the body: numbers, escapes and names that occur twice
    are shown as they came, so a body that would lose them is not indented.
    """
    if body.strip()[:1] not in (b"{", b"["):
        return ""
    try:
        text = body.decode()
        value = read_json(text)
        if compact_json(value) != _BLANKS.sub(r"\1", text):
            return ""
        return safe_json(json.dumps(value, ensure_ascii=False, indent=2))
    except (ValueError, RecursionError):
        return ""


def _shown_bytes(body: bytes) -> int:
    """Return how many bytes of a body are shown: whole characters and lines."""
    end = cut_at(body, SHOWN_BYTES_MAX)
    lines = body[:end].split(b"\n", SHOWN_LINES_MAX)
    return end - len(lines[-1]) if len(lines) > SHOWN_LINES_MAX else end


def _left_out(left_bytes: int, total_bytes: int, whole: str) -> str:
    return (
        f"... ({left_bytes:,} of {counted(total_bytes, 'byte')} left out;"
        f" {whole} all of them)"
    )


def cut_text(body: bytes, limit_bytes: int) -> str:
    """Return the start of a body, escaped, and how many bytes were cut off."""
    end = cut_at(body, limit_bytes)
    text = safe_bytes(body[:end])
    if len(body) > end:
        text += f"... ({counted(len(body) - end, 'byte')} more)"
    return text


class MessageTable:
    """A line for each message; bodies are cut, names never are.

    On a screen, which has `width`, each line fits it. There the first messages decide
    how wide the columns are, and only the body and long keys or tags are cut.
    """

    def __init__(self, *, width: int | None = None) -> None:
        self._width = width
        self._widths: list[int] = []

    def heading(self) -> str:
        """Return the line above the rows. Ask for rows first."""
        return self._line(_TABLE_HEADINGS)

    def rows(self, queue: MessageQueue, messages: Iterable[Record]) -> list[str]:
        """Return a line for each message."""
        rows = [_table_cells(queue, message) for message in messages]
        if self._width is not None and self._width < _WIDE:
            # Without the year and the milliseconds.
            rows = [
                (stored if stored == "-" else f"{stored[5:19]}Z", *rest)
                for stored, *rest in rows
            ]
        if rows and not self._widths:
            self._widths = [
                min(most, max(fewest, *(display_width(row[at]) for row in rows)))
                for at, (fewest, most) in enumerate(_TABLE_WIDTHS)
            ]
            if self._width is not None and self._width < _WIDE:
                self._widths[0] = _SHORT_TIME_CELLS
        return [self._line(row) for row in rows]

    def _line(self, cells: Sequence[str]) -> str:
        if self._width is None:
            return _TABLE_ROW.format(*cells)
        parts = []
        for at, width in enumerate(self._widths or [most for _, most in _TABLE_WIDTHS]):
            cell = _cut(cells[at], width) if at > 3 else cells[at]
            padding = " " * (width - display_width(cell))
            parts.append(padding + cell if at in (2, 3) else cell + padding)
        return _cut("  ".join([*parts, cells[-1]]), self._width).rstrip()


def _table_cells(queue: MessageQueue, message: Record) -> tuple[str, ...]:
    place = (safe(queue.broker_name), str(queue.queue_id), _offset(message, "-"))
    if isinstance(message, DecodeFailure):
        return ("-", *place, "-", "-", f"error: {safe(message.error)}")
    try:
        body = cut_text(message.body, TABLE_BODY_BYTES_MAX)
    except DecodeError as error:
        body = f"error: {safe(error.message)}"
    labels = (safe(message.tags or "-"), safe(message.keys or "-"))
    return (_stored_at(message), *place, *labels, body)


def _cut(text: str, cells: int) -> str:
    """Return the start of an escaped text that fits, with dots where it was cut."""
    if display_width(text) <= cells:
        return text
    return _broken(text, max(1, cells - 3))[0] + "..."


def hex_blocks(
    queue: MessageQueue, messages: Iterable[Record], *, shown_max: int | None = None
) -> list[str]:
    """Return a line about each message, then its body as `hexdump -C` shows it.

    Of a long body at most `shown_max` bytes are shown; None for all.
    """
    return [_hex_block(queue, message, shown_max) for message in messages]


def _hex_block(queue: MessageQueue, message: Record, shown_max: int | None) -> str:
    head = safe(f"{queue} {_offset(message, '?')}")
    if isinstance(message, DecodeFailure):
        data, head = message.raw, f"{head}  error: {safe(message.error)}"
    else:
        try:
            data = message.body
        except DecodeError as error:
            data, head = message.raw_body, f"{head}  error: {safe(error.message)}"
    lines = [f"{head}  {counted(len(data), 'byte')}"]
    shown = len(data) if shown_max is None else min(len(data), shown_max)
    for at in range(0, shown, _HEX_WIDTH):
        row = data[at : at + _HEX_WIDTH]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {left:<23}  {right:<23}  |{text}|")
    if shown < len(data):
        lines.append(_left_out(len(data) - shown, len(data), WHOLE))
    return "\n".join(lines)
