r"""`--format`: a template, in the manner of printf, for what is printed of a message.

    %t topic          %b broker name    %q queue id        %o queue offset
    %c commit log offset                %i msg id          %I offset msg id
    %g tags           %k keys           %r reconsume times %s stored bytes
    %d{iso} store time, %D{iso} born time; also {ms}, {date}, {time}
    %h born host      %H store host     %p{NAME} a property, %p all of them as JSON
    %v body           %x body in hexadecimal               %y body in base64
    %j the record as JSON               %% a percent sign
    \n \t \r \0 \\ and \xHH

A template is parsed once; an error in it points at the place. A field that a message
does not have is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import DecodeError, TextError
from rmqcli.units import format_rfc3339
from rmqcli.wire.message.json import JsonWriter, to_base64
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import PartialMessage, Record, StoredMessage

    Readable = StoredMessage | PartialMessage
    #: Returns a field of a message; bytes are printed unchanged.
    Field = Callable[[MessageQueue, Readable], bytes | str | int | None]

_ESCAPES = {
    "n": b"\n",
    "t": b"\t",
    "r": b"\r",
    "0": b"\0",
    "\\": b"\\",
}
_TIME_FORMS = ("iso", "ms", "date", "time")
_JSON = JsonWriter()


def _body(message: Readable) -> bytes:
    try:
        return message.body
    except DecodeError:
        return message.raw_body


_FIELDS: dict[str, Field] = {
    "t": lambda queue, _: queue.topic,
    "b": lambda queue, _: queue.broker_name,
    "q": lambda queue, _: queue.queue_id,
    "o": lambda _, message: message.queue_offset,
    "c": lambda _, message: message.commit_log_offset,
    "i": lambda _, message: message.msg_id,
    "I": lambda _, message: message.offset_msg_id,
    "g": lambda _, message: message.tags,
    "k": lambda _, message: message.keys,
    "r": lambda _, message: message.reconsume_times,
    "s": lambda _, message: message.store_bytes,
    "h": lambda _, message: message.born_host,
    "H": lambda _, message: message.store_host,
    "v": lambda _, message: _body(message),
    "x": lambda _, message: _body(message).hex(),
    "y": lambda _, message: to_base64(_body(message)),
    "j": lambda queue, message: _JSON.lines(queue, [message])[0],
}


class RecordFormat:
    """A parsed template. Raises TextError for unknown fields and escapes."""

    def __init__(self, template: str) -> None:
        self._parts: list[bytes | Field] = []
        self._text = template
        literal = b""
        at = 0
        while at < len(template):
            char = template[at]
            if char == "%":
                field, at = self._read_field(at)
                if isinstance(field, bytes):
                    literal += field
                    continue
                self._parts += [literal, field] if literal else [field]
                literal = b""
            elif char == "\\":
                escaped, at = self._read_escape(at)
                literal += escaped
            else:
                literal += char.encode("utf-8", "surrogateescape")
                at += 1
        if literal:
            self._parts.append(literal)

    def write(self, queue: MessageQueue, messages: Iterable[Record]) -> list[bytes]:
        """Return the text of each message; of an undecodable one its JSON record."""
        return [
            _utf8(_JSON.lines(queue, [message])[0]) + b"\n"
            if isinstance(message, DecodeFailure)
            else b"".join(_encoded(part, queue, message) for part in self._parts)
            for message in messages
        ]

    def _read_field(self, at: int) -> tuple[bytes | Field, int]:
        text = self._text
        letter = text[at + 1 : at + 2]
        if letter == "%":
            return b"%", at + 2
        argument, end = self._read_argument(at + 2)
        if letter in ("d", "D"):
            return self._time_field(letter, argument, at, end), end
        if letter == "p":
            return _property_field(argument), end
        field = _FIELDS.get(letter)
        if field is None:
            what = f"no field %{letter}" if letter else "nothing after %"
            hint = f"use one of %{' %'.join(sorted({*_FIELDS, 'd', 'D', 'p'}))}, or %%"
            raise TextError(text, what, start=at, end=at + 1 + len(letter), hint=hint)
        if argument is not None:
            what = f"%{letter} takes no {{...}}"
            raise TextError(text, what, start=at + 2, end=end)
        return field, end

    def _read_argument(self, at: int) -> tuple[str | None, int]:
        text = self._text
        if text[at : at + 1] != "{":
            return None, at
        close = text.find("}", at)
        if close < 0:
            what = "'{' without '}'"
            raise TextError(text, what, start=at, end=len(text))
        return text[at + 1 : close], close + 1

    def _time_field(
        self, letter: str, argument: str | None, at: int, end: int
    ) -> Field:
        form = argument or "iso"
        if form not in _TIME_FORMS:
            what = f"no time format {form!r}"
            hint = f"use one of {{{'}, {'.join(_TIME_FORMS)}}}"
            raise TextError(self._text, what, start=at + 2, end=end, hint=hint)
        if letter == "d":
            return lambda _, message: _time_text(message.store_timestamp_ms, form)
        return lambda _, message: _time_text(message.born_timestamp_ms, form)

    def _read_escape(self, at: int) -> tuple[bytes, int]:
        text = self._text
        letter = text[at + 1 : at + 2]
        if letter in _ESCAPES:
            return _ESCAPES[letter], at + 2
        if letter == "x":
            digits = text[at + 2 : at + 4]
            if len(digits) == 2 and all(c in "0123456789abcdefABCDEF" for c in digits):
                return bytes.fromhex(digits), at + 4
            what = "\\x takes two hexadecimal digits"
            raise TextError(text, what, start=at, end=min(len(text), at + 4))
        what = f"no escape \\{letter}" if letter else "nothing after \\"
        hint = r"use one of \n \t \r \0 \\ \xHH"
        raise TextError(text, what, start=at, end=at + 1 + len(letter), hint=hint)


def _property_field(name: str | None) -> Field:
    if name is None:
        from rmqcli.cli.ui.output import json_line

        return lambda _, message: json_line(message.properties)
    return lambda _, message: message.properties.get(name)


def _time_text(epoch_ms: int | None, form: str) -> str | int | None:
    if epoch_ms is None or form == "ms":
        return epoch_ms
    text = format_rfc3339(epoch_ms)
    if text is None or form == "iso":
        return text
    return text[:10] if form == "date" else text[11:]


def _encoded(part: bytes | Field, queue: MessageQueue, message: Readable) -> bytes:
    value = part if isinstance(part, bytes) else part(queue, message)
    if isinstance(value, bytes):
        return value
    return b"" if value is None else _utf8(str(value))


def _utf8(text: str) -> bytes:
    r"""Return `text` in UTF-8; a lone surrogate, which UTF-8 lacks, as `\ud800`.

    In JSON that escape stands for the same character.
    """
    return text.encode("utf-8", "backslashreplace")
