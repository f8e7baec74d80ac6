"""The JSON lines of a whole chunk at once: the same lines as `JsonLines`, for less.

What has to be true of every property and every body is looked at once, on all of them
joined by newlines, which none of them may hold. A column that is odd is made one by
one; a chunk with a record that is not plain is not made here at all.

The fields of all records of a chunk, each field in a column of its own.

Only for plain records: V1, IPv4 hosts, not compressed, no inner batch, whole, and of
the chunk's own offsets. With any other there is no answer and the caller decodes them.

Source: the record layout of `MessageDecoder.decode`.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqcli.admin.read.record_json import body_text, line_head, properties_text
from rmqcli.admin.tail.merge import Batch
from rmqcli.wire.message.layout import MAGIC_V1, RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.read.range import Chunk
    from rmqcli.admin.read.record_json import JsonLines


#: Total size, magic, flag, queue offset, commit log offset, sysFlag, born time and
#: host, store time and host, reconsume times, body length.
_FIELDS: Final = ">II8xiq8siq8sq8si8xI"
_FIXED: Final = struct.Struct(_FIELDS)
_ODD_FLAGS: Final = 0xF1  # compressed, IPv6 hosts or an inner batch
_PROPERTY_END: Final = 0x02


class RecordColumns(NamedTuple):
    """Parallel, at least one record long."""

    total_bytes: Sequence[int]
    magics: Sequence[int]
    flags: Sequence[int]
    queue_offsets: Sequence[int]
    #: commit log offsets, eight bytes each
    places: Sequence[bytes]
    sys_flags: Sequence[int]
    born_ms: Sequence[int]
    born_hosts: Sequence[bytes]
    store_ms: Sequence[int]
    store_hosts: Sequence[bytes]
    reconsume_times: Sequence[int]
    body_bytes: Sequence[int]
    bodies: Sequence[bytes]
    #: in their text form, without the separator at the end
    properties: Sequence[bytes]


def read_columns(chunk: Chunk) -> RecordColumns | None:
    """The columns of `chunk`, None when some record is not plain. Never raises."""
    data = chunk.body
    if len(data) < RECORD_BYTES_MIN:
        return None
    columns = _uniform_columns(data) or _columns(data)
    if columns is None:
        return None
    count = len(columns.magics)
    sys_flags = columns.sys_flags
    is_plain = (
        columns.magics.count(MAGIC_V1) == count
        and (sys_flags.count(0) == count or not any(f & _ODD_FLAGS for f in sys_flags))
        and chunk.start <= min(columns.queue_offsets)
        and max(columns.queue_offsets) < chunk.end
    )
    return columns if is_plain else None


def _columns(data: bytes) -> RecordColumns | None:
    rows: list[tuple[Any, ...]] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    size, at, unpack = len(data), 0, _FIXED.unpack_from
    while size - at >= RECORD_BYTES_MIN:
        row = unpack(data, at)
        body_end = at + 88 + row[11]
        end = at + row[0]
        if body_end + 3 > end or end > size:
            return None
        start = body_end + 3 + data[body_end]
        if start > end or start + (data[start - 2] << 8 | data[start - 1]) != end:
            return None
        rows.append(row)
        bodies.append(data[at + 88 : body_end])
        at = end
        if data[end - 1] == _PROPERTY_END and end > start:
            end -= 1
        properties.append(data[start:end])
    if at != size:
        return None
    return RecordColumns._make([*zip(*rows, strict=True), bodies, properties])


class _Shape(NamedTuple):
    """What records of one shape have in common."""

    total_bytes: int
    body_bytes: int
    topic_bytes: int
    properties_bytes: int
    has_property_end: bool


@functools.lru_cache(maxsize=256)
def _shape_struct(shape: _Shape) -> struct.Struct:
    end_bytes = int(shape.has_property_end)
    return struct.Struct(
        f"{_FIELDS}{shape.body_bytes}sB{shape.topic_bytes}x"
        f"H{shape.properties_bytes - end_bytes}s{end_bytes}s"
    )


def _shape_of_first(data: bytes) -> _Shape | None:
    """The shape of the first record, None when not all can be of that shape."""
    total_bytes, *_, body_bytes = _FIXED.unpack_from(data)
    body_end = 88 + body_bytes
    if body_end + 3 > total_bytes or len(data) % total_bytes:
        return None
    topic_bytes = data[body_end]
    properties_bytes = total_bytes - body_end - 3 - topic_bytes
    if properties_bytes <= 0:
        return None
    has_property_end = data[total_bytes - 1] == _PROPERTY_END
    return _Shape(
        total_bytes, body_bytes, topic_bytes, properties_bytes, has_property_end
    )


def _uniform_columns(data: bytes) -> RecordColumns | None:
    """The same for records that are all of one shape, as they often are."""
    shape = _shape_of_first(data)
    if shape is None:
        return None
    fields: list[tuple[Any, ...]] = list(
        zip(*_shape_struct(shape).iter_unpack(data), strict=True)
    )
    topic_bytes, properties_bytes, properties, ends = fields[-4:]
    columns = RecordColumns._make([*fields[:-4], properties])
    count = len(properties)
    is_uniform = (
        columns.total_bytes.count(shape.total_bytes) == count
        and columns.body_bytes.count(shape.body_bytes) == count
        and topic_bytes.count(shape.topic_bytes) == count
        and properties_bytes.count(shape.properties_bytes) == count
        and (not shape.has_property_end or ends.count(b"\x02") == count)
    )
    return columns if is_uniform else None


_NEEDS_ESCAPE: Final = bytes(range(0x20)) + b'"\\'
#: What JSON takes as it is; the separators are not among them.
_AS_IS: Final = bytes(byte for byte in range(0x100) if byte not in _NEEDS_ESCAPE)
_SEPARATORS_TO_NEWLINES: Final = bytes.maketrans(b"\x01\x02", b"\n\n")


class _Properties(NamedTuple):
    """JSON of all properties, and of the values of three; parallel."""

    texts: Sequence[str]
    msg_ids: Sequence[str]
    tags: Sequence[str]
    keys: Sequence[str]


def chunk_lines(lines: JsonLines, chunk: Chunk) -> Batch[str] | None:
    """The lines of a chunk of plain messages, None when there is any other."""
    columns = read_columns(chunk)
    if columns is None:
        return None
    store_host = columns.store_hosts[0]
    if columns.store_hosts.count(store_host) != len(columns.store_hosts):
        return None
    return Batch(
        list(columns.store_ms),
        list(columns.queue_offsets),
        _lines(lines, line_head(chunk.queue), columns),
        chunk.end,
        len(chunk.body),
    )


def _lines(lines: JsonLines, head: str, columns: RecordColumns) -> list[str]:
    times, hosts = lines.times.__getitem__, lines.hosts.__getitem__
    store_host = columns.store_hosts[0]
    store_hex, store_text = store_host.hex().upper(), hosts(store_host)
    places = b"".join(columns.places)
    properties = _properties(columns.properties)
    before_body, bodies, after_body = _bodies(columns.bodies)
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
            columns.queue_offsets,
            struct.unpack(f">{len(columns.places)}q", places),
            properties.msg_ids,
            places.hex("\n", 8).upper().split("\n"),
            properties.tags,
            properties.keys,
            map(times, columns.born_ms),
            map(times, columns.store_ms),
            map(hosts, columns.born_hosts),
            _numbers(columns),
            columns.total_bytes,
            properties.texts,
            bodies,
            strict=True,
        )
    ]


def _numbers(columns: RecordColumns) -> Sequence[str]:
    """The small numbers, which mostly are 0."""
    rows = list(
        zip(columns.reconsume_times, columns.flags, columns.sys_flags, strict=True)
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
    # What is left is the separators, and whatever else makes the comparison fail.
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
    return _Properties(*zip(*map(properties_text, raws), strict=True))


def _alike_properties(
    joined: bytes, count: int, names_count: int
) -> _Properties | None:
    """For messages that have the same names in the same order, None for others.

    Nothing in them needs an escape, so their separators become JSON's and that is all.
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


def _bodies(raws: Sequence[bytes]) -> tuple[str, Sequence[str], str]:
    """The keys and values of each body, and what is before and after it."""
    joined = b"\n".join(raws)
    if (
        len(joined.translate(None, _NEEDS_ESCAPE)) == len(joined) - len(raws) + 1
        and not joined.startswith((b"{", b"["))
        and b"\n{" not in joined
        and b"\n[" not in joined
    ):
        try:
            texts = joined.decode().split("\n")
        except UnicodeDecodeError:
            pass  # some are binary
        else:
            return '"body":"', texts, '","body_encoding":"utf-8"}'
    return "", [body_text(raw) for raw in raws], "}"
