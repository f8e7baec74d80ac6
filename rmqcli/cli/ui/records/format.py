r"""`--format`: a template, in the manner of printf, for what is printed of a message.

`LETTERS` has the fields. A template may also have \n \t \r \0 \\ and \xHH.

A template is parsed once; an error in it points at the place. A field that a message
does not have is empty.
"""

from __future__ import annotations

from binascii import b2a_hex
from typing import TYPE_CHECKING, Final

from rmqcli.errors import DecodeError, TextError
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.message.json import JsonWriter, cut_at, to_base64
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.decode import Decode
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


def _body(message: Readable) -> bytes:
    try:
        return message.body
    except DecodeError:
        return message.raw_body


#: The fields and what they stand for, in the order of `-o help`.
LETTERS: Final = (
    ("%t", "topic"),
    ("%b", "broker name"),
    ("%q", "queue ID"),
    ("%o", "queue offset"),
    ("%c", "commit log offset"),
    ("%i", "message ID"),
    ("%I", "offset message ID"),
    ("%g", "tags"),
    ("%k", "keys"),
    ("%r", "reconsume times"),
    ("%s", "stored bytes"),
    ("%d", "store time; also %d{ms}, %d{date}, %d{time}"),
    ("%D", "born time; also %D{ms}, %D{date}, %D{time}"),
    ("%h", "born host"),
    ("%H", "store host"),
    ("%p", "properties as JSON; %p{NAME} is one of them"),
    ("%v", "body"),
    ("%x", "body in hexadecimal"),
    ("%y", "body in base64"),
    ("%j", "record as JSON"),
    ("%%", "a percent sign"),
)
_FIELDS: Final[dict[str, Field]] = {
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
}


class RecordFormat:
    """A parsed template. Raises TextError for unknown fields and escapes.

    `decode` and `body_bytes_max` are those of `JsonWriter`.
    """

    def __init__(
        self,
        template: str,
        decode: Decode | None = None,
        *,
        body_bytes_max: int | None = None,
    ) -> None:
        self._json = JsonWriter(decode, body_bytes_max=body_bytes_max)
        self._body_bytes_max = body_bytes_max
        self._fields = _FIELDS | {
            "v": lambda _, message: self._shown(_body(message), bytes),
            "x": lambda _, message: self._shown(_body(message), b2a_hex),
            "y": lambda _, message: self._shown(_body(message), _base64),
            "j": lambda queue, message: self._json.lines(queue, [message])[0],
        }
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
            _utf8(self._json.lines(queue, [message])[0]) + b"\n"
            if isinstance(message, DecodeFailure)
            else b"".join(_encoded(part, queue, message) for part in self._parts)
            for message in messages
        ]

    def _shown(self, body: bytes, convert: Callable[[bytes], bytes]) -> bytes:
        """Return the body, converted; on a screen a long one is cut, and says so."""
        limit = self._body_bytes_max
        end = len(body) if limit is None else cut_at(body, limit)
        more = ""
        if end < len(body):
            more = f"... ({counted(len(body) - end, 'byte')} more)"
        return convert(body[:end]) + more.encode()

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
        field = self._fields.get(letter)
        if field is None:
            what = f"no field %{letter}" if letter else "nothing after %"
            hint = f"use one of {' '.join(field for field, _ in LETTERS)}"
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


def _base64(data: bytes) -> bytes:
    return to_base64(data).encode()


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
