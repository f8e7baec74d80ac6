"""Writes messages as JSON records: one line for each message, as `-o jsonl` prints it.

All records have the same keys, whatever is in the message, and a value that a message
lacks is null. A body that is UTF-8 is in `body`, as text; any other is in `body_b64`;
`body_encoding` says in which of the two. With a decoder, `value` has what the body
means, `decode_error` why a body has no such value, and `value_format` the format unless
it is JSON. If something in the message
could not be decoded, `error` says why and `raw_b64` has the bytes. The JSON Schema is
in `record.schema.json` beside this module.

`JsonWriter` writes single messages of every kind, straight from their bytes.
`rmqcli.wire.message.json_lines` writes the lines of a whole chunk of plain messages
faster, from the same parts.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.errors import DecodeError
from rmqcli.units import format_rfc3339
from rmqcli.wire.ids import host_text
from rmqcli.wire.message.layout import (
    BORN_HOST_AT,
    FIXED_BYTES,
    STORE_HOST_AT,
    field_at,
)
from rmqcli.wire.message.properties import parse_properties
from rmqcli.wire.message.record import DecodeFailure, InnerMessage, StoredMessage
from rmqcli.wire.message.system_flag import SPECIAL_BODY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import PartialMessage, Record

#: The keys of each record before those of the body, in order, and what they mean.
RECORD_FIELDS: Final = (
    ("topic", "the topic that was read"),
    ("broker_name", "the broker that holds the queue"),
    ("queue_id", "number of the queue on that broker"),
    ("queue_offset", "position in the queue"),
    ("commit_log_offset", "position in the broker's log, in bytes"),
    ("msg_id", "the producer's id, UNIQ_KEY"),
    ("offset_msg_id", "the broker's id: its address and commit_log_offset"),
    ("tags", "the tag"),
    ("keys", "keys, separated by spaces"),
    ("born_timestamp", "when it was sent, by the producer's clock; RFC 3339, UTC"),
    ("store_timestamp", "when it was stored, by the broker's clock; RFC 3339, UTC"),
    ("born_host", "the producer's address"),
    ("store_host", "the broker's address"),
    ("reconsume_times", "how often its consumption failed"),
    ("flag", "a number that the producer may set"),
    ("sys_flag", "bits: compressed, transaction, ..."),
    ("store_bytes", "size of the record as stored"),
    ("properties", "all properties, including system properties"),
)
#: The keys of the body, which each record has.
BODY_FIELDS: Final = (
    ("body", "the body as text, if it is UTF-8; else null"),
    ("body_b64", "the body in base64, if it is not UTF-8; else null"),
    ("body_encoding", "utf-8: see body; base64: see body_b64; null with error"),
)
#: The keys that a record has only where they apply.
EXTRA_FIELDS: Final = (
    ("value", "with a decoder: what the body means; null with decode_error"),
    ("value_format", "the format from which value was read, unless it is json"),
    ("decode_error", "why the decoder cannot read the body"),
    ("truncated", "true when the body was cut, on a terminal; value is null then"),
    ("error", "what in the message could not be decoded"),
    ("raw_b64", "with error: the bytes that could not be decoded"),
)

_CACHE_MAX: Final = 4096
_COMMIT_LOG_OFFSET_AT: Final = field_at("commit_log_offset")
#: The index in `RECORD_FIELDS` from which on a failure has only `store_bytes`.
_AFTER_OFFSETS: Final = [name for name, _ in RECORD_FIELDS].index("msg_id")
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
#: Entries that end properly, without quotes, backslashes or control characters.
_SIMPLE_PROPERTIES: Final = re.compile(
    rb'(?:[^\x00-\x1f"\\]++\x01[^\x00-\x1f"\\]++(?:\x02|\Z))+'
)
#: Three of the names as they stand in the JSON, up to where their values begin.
_NAMED: Final = ('"UNIQ_KEY":"', '"TAGS":"', '"KEYS":"')
#: What follows the text of a body.
AFTER_TEXT: Final = ',"body_b64":null,"body_encoding":"utf-8"'


class TimeTexts(dict[int, str]):
    """Epoch ms -> its JSON text, made on first use; a few thousand are kept."""

    def __init__(self) -> None:
        super().__init__()
        #: seconds -> the text up to the milliseconds; None where there is no text
        self._seconds: dict[int, str | None] = {}

    def __missing__(self, epoch_ms: int) -> str:
        seconds, ms = divmod(epoch_ms, 1000)
        before = self._seconds.get(seconds)
        if before is None:
            before = self._second(seconds)
        if len(self) >= _CACHE_MAX:
            self.clear()
        text = self[epoch_ms] = "null" if before is None else f'{before}{ms:03d}Z"'
        return text

    def _second(self, seconds: int) -> str | None:
        if len(self._seconds) >= _CACHE_MAX:
            self._seconds.clear()
        time = format_rfc3339(seconds * 1000)
        text = self._seconds[seconds] = time and f'"{time[:-4]}'
        return text


class HostTexts(dict[bytes, str]):
    """A host as stored, 8 or 20 bytes -> its JSON text, made on first use."""

    def __missing__(self, raw: bytes) -> str:
        if len(self) >= _CACHE_MAX:
            self.clear()
        text = self[raw] = encode_basestring(host_text(raw))
        return text


class ValueReader(Protocol):
    """Reads what bodies of a format mean, such as `rmqcli.decode.Decode`."""

    format: str
    text: str

    def value(self, body: bytes) -> object:
        """Return the value of a body, as values of JSON. Raises DecodeError."""

    def __call__(self, body: bytes) -> str:
        """Return the value of a body as JSON on one line. Raises DecodeError."""


class JsonWriter:
    """Writes messages as lines, without newlines. Caches the texts of hosts and times.

    `decode` returns what a body means, as JSON on one line, or raises DecodeError; with
    it, records have a `value`. A body longer than `body_bytes_max` is cut, between two
    characters, and has no value. Safe to use from several threads: at worst two of them
    make the same text.
    """

    def __init__(
        self,
        decode: ValueReader | None = None,
        *,
        body_bytes_max: int | None = None,
    ) -> None:
        self.times = TimeTexts()
        self.hosts = HostTexts()
        self.decode = decode
        self.body_bytes_max = body_bytes_max
        self._format = ""
        if decode is not None and decode.format != "json":
            self._format = f',"value_format":{encode_basestring(decode.format)}'

    def lines(self, queue: MessageQueue, messages: Iterable[Record]) -> list[str]:
        """Return one line for each message and for each failure."""
        head = line_head(queue)
        return [
            self._line(head, message)
            if isinstance(message, StoredMessage)
            else self._failure_line(head, message)
            if isinstance(message, DecodeFailure)
            else self._partial_line(head, message)
            for message in messages
        ]

    def _line(self, head: str, message: StoredMessage) -> str:
        times, hosts = self.times, self.hosts
        if message.sys_flag & SPECIAL_BODY or isinstance(message, InnerMessage):
            born_host = message.born_host_bytes()
            store_host = message.store_host_bytes()
            offset_msg_id = message.offset_msg_id
            raw_properties = message.raw_properties
            body = self._inflated_body_json(message)
        else:
            # A plain record: slicing its bytes costs half of reading its attributes.
            data, at = message.buffer, message.at
            born_host = data[at + BORN_HOST_AT : at + BORN_HOST_AT + 8]
            store_host = data[at + STORE_HOST_AT : at + STORE_HOST_AT + 8]
            place_at = at + _COMMIT_LOG_OFFSET_AT
            offset_msg_id = (store_host + data[place_at : place_at + 8]).hex().upper()
            body_at = at + FIXED_BYTES
            body_end = body_at + message.body_bytes
            start = body_end + 3 + data[body_end]
            end = start + (data[start - 2] << 8 | data[start - 1])
            raw_properties = data[start:end]
            body = self.body_json(data[body_at:body_end])
        properties, msg_id, tags, keys = properties_json(raw_properties)
        return (
            f"{head}{message.queue_offset},"
            f'"commit_log_offset":{message.commit_log_offset},'
            f'"msg_id":{msg_id},"offset_msg_id":"{offset_msg_id}",'
            f'"tags":{tags},"keys":{keys},'
            f'"born_timestamp":{times[message.born_timestamp_ms]},'
            f'"store_timestamp":{times[message.store_timestamp_ms]},'
            f'"born_host":{hosts[born_host]},"store_host":{hosts[store_host]},'
            f'"reconsume_times":{message.reconsume_times},"flag":{message.flag},'
            f'"sys_flag":{message.sys_flag},"store_bytes":{message.store_bytes},'
            f'"properties":{properties},{body}}}'
        )

    def _partial_line(self, head: str, message: PartialMessage) -> str:
        times = self.times
        born_ms, stored_ms = message.born_timestamp_ms, message.store_timestamp_ms
        return (
            f"{head}{_number(message.queue_offset)},"
            f'"commit_log_offset":{_number(message.commit_log_offset)},'
            f'"msg_id":{_ENCODE(message.msg_id)},'
            f'"offset_msg_id":{_ENCODE(message.offset_msg_id)},'
            f'"tags":{_ENCODE(message.tags)},"keys":{_ENCODE(message.keys)},'
            f'"born_timestamp":{"null" if born_ms is None else times[born_ms]},'
            f'"store_timestamp":{"null" if stored_ms is None else times[stored_ms]},'
            f'"born_host":{_ENCODE(message.born_host)},'
            f'"store_host":{_ENCODE(message.store_host)},'
            f'"reconsume_times":{_number(message.reconsume_times)},'
            f'"flag":{_number(message.flag)},"sys_flag":{_number(message.sys_flag)},'
            f'"store_bytes":{_number(message.store_bytes)},'
            f'"properties":{_ENCODE(message.properties)},'
            f"{self._inflated_body_json(message)}}}"
        )

    def _inflated_body_json(self, message: StoredMessage | PartialMessage) -> str:
        """Return the JSON members for a body that may be compressed, or its error."""
        try:
            return self.body_json(message.body)
        except DecodeError as error:
            return self._error_json(error.message, message.raw_body)

    def body_json(self, body: bytes) -> str:
        """Return the JSON members of a body, with its value if there is a decoder."""
        limit = self.body_bytes_max
        if limit is not None and len(body) > limit:
            value = "" if self.decode is None else f',"value":null{self._format}'
            return f'{_text_json(body[: cut_at(body, limit)])}{value},"truncated":true'
        members = _text_json(body)
        try:
            if self.decode is None:
                return members
            return f'{members},"value":{self.decode(body)}{self._format}'
        except DecodeError as error:
            found = encode_basestring(error.message)
            return f'{members},"value":null{self._format},"decode_error":{found}'

    def _failure_line(self, head: str, failure: DecodeFailure) -> str:
        nulls = "".join(
            f'"{name}":null,'
            for name, _ in RECORD_FIELDS[_AFTER_OFFSETS:]
            if name not in ("store_bytes", "properties")
        )
        return (
            f"{head}{_number(failure.queue_offset)},"
            f'"commit_log_offset":{_number(failure.commit_log_offset)},{nulls}'
            f'"store_bytes":{len(failure.raw)},"properties":null,'
            f"{self._error_json(failure.error, failure.raw)}}}"
        )

    def _error_json(self, error: str, raw: bytes) -> str:
        value = "" if self.decode is None else f'"value":null{self._format},'
        return (
            f'"body":null,"body_b64":null,"body_encoding":null,{value}'
            f'"error":{encode_basestring(error)},"raw_b64":"{to_base64(raw)}"'
        )


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)


# --- the parts of a line, shared with json_lines


def line_head(queue: MessageQueue) -> str:
    """Return the beginning of all lines of a queue, up to the queue offset's value."""
    return (
        f'{{"topic":{encode_basestring(queue.topic)},'
        f'"broker_name":{encode_basestring(queue.broker_name)},'
        f'"queue_id":{queue.queue_id},"queue_offset":'
    )


def properties_json(raw: bytes) -> tuple[str, str, str, str]:
    """Return the JSON of all properties, and of the values of UNIQ_KEY, TAGS and KEYS.

    Turning the separators of the whole text into JSON's is faster than quoting one
    property after the other.
    """
    if _SIMPLE_PROPERTIES.fullmatch(raw) is None:
        properties = parse_properties(raw)
        msg_id, tags, keys = (
            _ENCODE(properties.get(name)) for name in ("UNIQ_KEY", "TAGS", "KEYS")
        )
        return _ENCODE(properties), msg_id, tags, keys
    # Nothing in it needs an escape, so it is enough to replace the separators.
    text = raw.decode("utf-8", "replace")
    if text[-1] == "\x02":
        text = text[:-1]
    text = '"' + text.replace("\x01", '":"').replace("\x02", '","') + '"'
    values = []
    for name in _NAMED:
        at = text.rfind(name)
        if at < 0:
            values.append("null")
        else:
            at += len(name)
            values.append(text[at - 1 : text.index('"', at) + 1])
    return f"{{{text}}}", values[0], values[1], values[2]


def _text_json(body: bytes) -> str:
    """Return the JSON members of a body, without its value."""
    try:
        return f'"body":{encode_basestring(body.decode())}{AFTER_TEXT}'
    except UnicodeDecodeError:
        encoded = to_base64(body)
        return f'"body":null,"body_b64":"{encoded}","body_encoding":"base64"'


def cut_at(body: bytes, limit_bytes: int) -> int:
    """Return where to cut: at `limit_bytes` or before the character that is there."""
    if len(body) <= limit_bytes:
        return len(body)
    for end in range(limit_bytes, limit_bytes - 4, -1):
        if body[end] & 0xC0 != 0x80:  # not a continuation byte of UTF-8
            return end
    return limit_bytes


def to_base64(data: bytes) -> str:
    """Return base64 on one line."""
    return b2a_base64(data, newline=False).decode()
