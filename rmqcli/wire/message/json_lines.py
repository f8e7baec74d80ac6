"""Writes the JSON lines of a whole chunk of plain messages, faster than `JsonWriter`.

The lines are the same as those of `JsonWriter`. Whether all properties can be copied
into JSON without escapes, or all bodies be escaped at once, is checked once, on all of
them joined by newlines, which none of them may contain. A column that fails the check
is written value by value. `rmqcli.wire.message.scan` says which records are plain.
"""

from __future__ import annotations

import struct
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.wire.message.json import AFTER_TEXT, JsonWriter, line_head, properties_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.scan import RecordColumns

_NEEDS_ESCAPE: Final = bytes(range(0x20)) + b'"\\'
#: Bytes that a JSON string holds unchanged; the separators are not among them.
_AS_IS: Final = bytes(byte for byte in range(0x100) if byte not in _NEEDS_ESCAPE)
_SEPARATORS_TO_NEWLINES: Final = bytes.maketrans(b"\x01\x02", b"\n\n")


class _Properties(NamedTuple):
    """The JSON of each message's properties, and of three values; parallel lists."""

    texts: Sequence[str]
    msg_ids: Sequence[str]
    tags: Sequence[str]
    keys: Sequence[str]


def write_lines(
    writer: JsonWriter, queue: MessageQueue, columns: RecordColumns
) -> list[str] | None:
    """Return one line for each record, or None if they come from several brokers."""
    store_host = columns.store_host[0]
    count = len(columns.store_host)
    if columns.store_host.count(store_host) != count:
        return None
    head = line_head(queue)
    times, hosts = writer.times.__getitem__, writer.hosts.__getitem__
    store_hex, store_text = store_host.hex().upper(), hosts(store_host)
    places = struct.pack(f">{count}q", *columns.commit_log_offset)
    properties = _properties(columns.properties)
    before_body, bodies, after_body = _bodies(writer, columns.body)
    return [
        f'{head}{offset},"commit_log_offset":{place},"msg_id":{msg_id},'
        f'"offset_msg_id":"{store_hex}{place_hex}","tags":{tags},"keys":{keys},'
        f'"born_timestamp":{born},"store_timestamp":{stored},'
        f'"born_host":{born_host},"store_host":{store_text},'
        f'{numbers},"store_bytes":{store_bytes},'
        f'"properties":{text},{before_body}{body}{after_body}'
        for (
            offset,
            place,
            msg_id,
            place_hex,
            tags,
            keys,
            born,
            stored,
            born_host,
            numbers,
            store_bytes,
            text,
            body,
        ) in zip(
            columns.queue_offset,
            columns.commit_log_offset,
            properties.msg_ids,
            places.hex("\n", 8).upper().split("\n"),
            properties.tags,
            properties.keys,
            map(times, columns.born_timestamp),
            map(times, columns.store_timestamp),
            map(hosts, columns.born_host),
            _numbers(columns),
            columns.total_bytes,
            properties.texts,
            bodies,
            strict=True,
        )
    ]


def _numbers(columns: RecordColumns) -> Sequence[str]:
    """Return the small numbers of each record, which are mostly 0."""
    rows = list(
        zip(columns.reconsume_times, columns.flag, columns.sys_flag, strict=True)
    )
    first = rows[0]
    if rows.count(first) == len(rows):
        return [_numbers_text(*first)] * len(rows)
    return [_numbers_text(*row) for row in rows]


def _numbers_text(reconsume_times: int, flag: int, sys_flag: int) -> str:
    return f'"reconsume_times":{reconsume_times},"flag":{flag},"sys_flag":{sys_flag}'


def _properties(raws: Sequence[bytes]) -> _Properties:
    joined = b"\n".join(raws)
    count = len(raws)
    # This leaves the separators, and any bytes that make the comparison fail.
    separators = joined.translate(None, _AS_IS)
    of_one = separators[: separators.find(b"\n")] if count > 1 else separators
    names_count = len(of_one) // 2 + 1
    if (
        of_one == b"\x01\x02" * (names_count - 1) + b"\x01"
        and separators + b"\n" == (of_one + b"\n") * count
    ):
        found = _alike_properties(joined, count, names_count)
        if found is not None:
            return found
    return _Properties(*zip(*map(properties_json, raws), strict=True))


def _alike_properties(
    joined: bytes, count: int, names_count: int
) -> _Properties | None:
    """Return the JSON if all messages have the same names in the same order, else None.

    Nothing in the properties needs an escape, so it is enough to replace the separators
    by those of JSON.
    """
    parts = joined.translate(_SEPARATORS_TO_NEWLINES).decode("utf-8", "replace")
    words = parts.split("\n")
    step = 2 * names_count
    names = words[:step:2]
    is_alike = (
        all(words) and len(set(names)) == names_count and words[::2] == names * count
    )
    if not is_alike:
        return None
    text = joined.decode("utf-8", "replace")
    text = text.replace("\x01", '":"').replace("\x02", '","').replace("\n", '"}\n{"')
    nulls = ["null"] * count
    values = [
        [f'"{value}"' for value in words[2 * names.index(name) + 1 :: step]]
        if name in names
        else nulls
        for name in ("UNIQ_KEY", "TAGS", "KEYS")
    ]
    return _Properties(f'{{"{text}"}}'.split("\n"), *values)


def _bodies(
    writer: JsonWriter, raws: Sequence[bytes]
) -> tuple[str, Sequence[str], str]:
    """Return the text before each body, each body's JSON, and the text after it.

    Bodies that have no newline are escaped all at once, if any needs it. That takes
    bodies without a backslash: an escaped one before an n would look like a newline.
    """
    joined = b"\n".join(raws)
    breaks = len(raws) - 1
    if (
        writer.decode is None
        and writer.body_bytes_max is None
        and joined.count(b"\n") == breaks
        and b"\\" not in joined
    ):
        try:
            text = joined.decode()
        except UnicodeDecodeError:
            pass  # some are binary
        else:
            if len(joined.translate(None, _NEEDS_ESCAPE)) == len(joined) - breaks:
                return '"body":"', text.split("\n"), f'"{AFTER_TEXT}}}'
            escaped = encode_basestring(text)[1:-1]
            return '"body":"', escaped.split("\\n"), f'"{AFTER_TEXT}}}'
    return "", [writer.body_json(raw) for raw in raws], "}"
