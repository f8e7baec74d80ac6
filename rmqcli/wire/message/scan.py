"""Finds the records in stored bytes without decoding each into an object.

`scan_records` says where each record of a pull's body begins and which queue offset it
has. `read_bodies` and `read_columns` read fields of all records at once, each field as
a column; they serve plain records only: V1, IPv4 hosts, not compressed, no inner batch.
A body with any other record gives None, and the caller decodes it with
`decode_messages`. `find_next_record` finds the next whole record in damaged bytes.

`rmqcli.wire.message.columns` does the same with numpy, for many bodies at once.

Source: the layout in `rmqcli.wire.message.layout`.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqcli.wire.message.layout import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    Layout,
    field_format,
    field_struct,
    find_layout,
    read_head,
)
from rmqcli.wire.message.system_flag import INNER_BATCH, SPECIAL_BODY

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROPERTY_END: Final = 0x02
_PLACE_FIELDS: Final = ("total_bytes", "magic", "queue_offset", "sys_flag")
_PLACE: Final = field_struct(_PLACE_FIELDS)
#: The same fields, with total size and magic as one number.
_UNIFORM_FORMAT: Final = "Q" + field_format(_PLACE_FIELDS).removeprefix(">II")
#: The most records that are read with one struct.
_UNIFORM_MAX: Final = 64
_BODY_FIELDS: Final = (
    "total_bytes",
    "magic",
    "queue_offset",
    "sys_flag",
    "store_timestamp",
    "body_bytes",
)
_BODY_FORMAT: Final = field_format(_BODY_FIELDS)
_BODY: Final = field_struct(_BODY_FIELDS)
_SIZES: Final = field_struct(["total_bytes", "body_bytes"])
#: A size below 64 MiB and a known magic; a lookahead, so that matches may overlap.
_RECORD_START: Final = re.compile(
    rb"(?=[\x00-\x03].{3}\xda\xa3\x20[\xa7\xab])", re.DOTALL
)

# --- where each record begins


class RecordScan(NamedTuple):
    """Where each record of a body begins, and its queue offset; offsets ascend."""

    starts: Sequence[int]
    offsets: Sequence[int]


def scan_records(body: bytes) -> RecordScan | None:
    """Return where the records of `body` begin, by their total sizes. Never raises.

    Accepts both versions, IPv6 hosts and compressed bodies. Returns None when a record
    may hold an inner batch, when sizes or magics are damaged, or when offsets do not
    ascend.
    """
    uniform = _scan_uniform(body)
    if uniform is not None:
        return uniform
    starts: list[int] = []
    offsets: list[int] = []
    size, at, last = len(body), 0, -1
    unpack = _PLACE.unpack_from
    while size - at >= RECORD_BYTES_MIN:
        total_bytes, magic, queue_offset, sys_flag = unpack(body, at)
        if (
            (magic != MAGIC_V1 and magic != MAGIC_V2)
            or total_bytes < RECORD_BYTES_MIN
            or queue_offset <= last
            or sys_flag & INNER_BATCH
        ):
            return None
        starts.append(at)
        offsets.append(queue_offset)
        last = queue_offset
        at += total_bytes
    return RecordScan(starts, offsets) if at == size else None


def _scan_uniform(body: bytes) -> RecordScan | None:
    """Scan records of one size with consecutive offsets, which are the usual case.

    One struct reads the fields of all records, so that all of it runs in C.
    """
    size = len(body)
    total_bytes = int.from_bytes(body[:4], "big")
    if total_bytes < RECORD_BYTES_MIN or size % total_bytes:
        return None
    count = size // total_bytes
    if count > _UNIFORM_MAX:
        return None
    fields = _uniform_struct(total_bytes, count).unpack(body)
    offsets = fields[1::3]
    first = offsets[0]
    expected = range(first, first + count)
    is_uniform = (
        first >= 0
        and fields[0::3].count(total_bytes << 32 | MAGIC_V1) == count
        and not any(fields[2::3])
        and offsets == tuple(expected)
    )
    return RecordScan(range(0, size, total_bytes), expected) if is_uniform else None


@functools.lru_cache(maxsize=256)
def _uniform_struct(total_bytes: int, count: int) -> struct.Struct:
    rest_bytes = total_bytes - _PLACE.size
    return struct.Struct(">" + f"{_UNIFORM_FORMAT}{rest_bytes}x" * count)


# --- the fields of plain records, as columns


class BodyColumns(NamedTuple):
    """The bodies of plain records and what they are ordered by, as parallel lists."""

    store_timestamp: list[int]
    queue_offset: list[int]
    body: list[bytes]


class RecordColumns(NamedTuple):
    """All fields that a record's JSON is made of, with the names of the layout.

    The columns are parallel and at least one record long. `properties` are in their
    text form, without the separator at the end.
    """

    total_bytes: Sequence[int]
    magic: Sequence[int]
    flag: Sequence[int]
    queue_offset: Sequence[int]
    commit_log_offset: Sequence[int]
    sys_flag: Sequence[int]
    born_timestamp: Sequence[int]
    born_host: Sequence[bytes]
    store_timestamp: Sequence[int]
    store_host: Sequence[bytes]
    reconsume_times: Sequence[int]
    body_bytes: Sequence[int]
    body: Sequence[bytes]
    properties: Sequence[bytes]


_RECORD_FIELDS: Final = RecordColumns._fields[:-2]
_RECORD_FORMAT: Final = field_format(_RECORD_FIELDS)
_RECORD: Final = field_struct(_RECORD_FIELDS)
_BODY_BYTES_INDEX: Final = _RECORD_FIELDS.index("body_bytes")


def read_bodies(data: bytes) -> BodyColumns | None:
    """Return the bodies of all records of `data`; None unless all are plain.

    Trusts the total size and the body length of a record. Never raises.
    """
    uniform = _uniform_bodies(data)
    if uniform is not None:
        return uniform
    times: list[int] = []
    offsets: list[int] = []
    bodies: list[bytes] = []
    unpack = _BODY.unpack_from
    size, at = len(data), 0
    while size - at >= RECORD_BYTES_MIN:
        total_bytes, magic, offset, sys_flag, store_ms, body_bytes = unpack(data, at)
        if (
            magic != MAGIC_V1
            or sys_flag & SPECIAL_BODY
            or body_bytes + RECORD_BYTES_MIN > total_bytes
        ):
            return None
        times.append(store_ms)
        offsets.append(offset)
        body_at = at + FIXED_BYTES
        bodies.append(data[body_at : body_at + body_bytes])
        at += total_bytes
    return BodyColumns(times, offsets, bodies) if at == size and bodies else None


@functools.lru_cache(maxsize=256)
def _body_struct(total_bytes: int, body_bytes: int) -> struct.Struct:
    rest_bytes = total_bytes - FIXED_BYTES - body_bytes
    return struct.Struct(f"{_BODY_FORMAT}{body_bytes}s{rest_bytes}x")


def _uniform_bodies(data: bytes) -> BodyColumns | None:
    """Return the bodies if all records have one shape, which is common, else None."""
    if len(data) < RECORD_BYTES_MIN:
        return None
    total_bytes, body_bytes = _SIZES.unpack_from(data)
    if total_bytes < body_bytes + RECORD_BYTES_MIN or len(data) % total_bytes:
        return None
    records = _body_struct(total_bytes, body_bytes).iter_unpack(data)
    sizes, magics, offsets, flags, times, lengths, bodies = zip(*records, strict=True)
    count = len(offsets)
    is_plain = (
        sizes.count(total_bytes) == count
        and magics.count(MAGIC_V1) == count
        and flags.count(0) == count
        and lengths.count(body_bytes) == count
    )
    if not is_plain:
        return None
    return BodyColumns(list(times), list(offsets), list(bodies))


def read_columns(data: bytes) -> RecordColumns | None:
    """Return the fields of all records of `data`; None unless all are plain.

    The inner lengths of each record add up to its total size. Never raises.
    """
    if len(data) < RECORD_BYTES_MIN:
        return None
    columns = _uniform_columns(data) or _columns(data)
    if columns is None:
        return None
    count = len(columns.magic)
    flags = columns.sys_flag
    is_plain = columns.magic.count(MAGIC_V1) == count and (
        flags.count(0) == count or not any(flag & SPECIAL_BODY for flag in flags)
    )
    return columns if is_plain else None


def _columns(data: bytes) -> RecordColumns | None:
    """Return the fields of records of any shape, or None when one is not complete."""
    rows: list[tuple[Any, ...]] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    size, at, unpack = len(data), 0, _RECORD.unpack_from
    while size - at >= RECORD_BYTES_MIN:
        row = unpack(data, at)
        body_at = at + FIXED_BYTES
        body_end = body_at + row[_BODY_BYTES_INDEX]
        end = at + row[0]
        if body_end + 3 > end or end > size:
            return None
        start = body_end + 3 + data[body_end]
        if start > end or start + (data[start - 2] << 8 | data[start - 1]) != end:
            return None
        rows.append(row)
        bodies.append(data[body_at:body_end])
        at = end
        if data[end - 1] == _PROPERTY_END and end > start:
            end -= 1
        properties.append(data[start:end])
    if at != size:
        return None
    return RecordColumns._make([*zip(*rows, strict=True), bodies, properties])


class _Shape(NamedTuple):
    """The sizes that all records of one shape have in common."""

    total_bytes: int
    body_bytes: int
    topic_bytes: int
    properties_bytes: int
    has_property_end: bool


@functools.lru_cache(maxsize=256)
def _shape_struct(shape: _Shape) -> struct.Struct:
    """Return the struct of a whole record: its columns, then fields to be checked."""
    end_bytes = int(shape.has_property_end)
    return struct.Struct(
        f"{_RECORD_FORMAT}{shape.body_bytes}sB{shape.topic_bytes}x"
        f"H{shape.properties_bytes - end_bytes}s{end_bytes}s"
    )


def _shape_of_first(data: bytes) -> _Shape | None:
    """Return the first record's shape, or None if not all records can have it."""
    total_bytes, body_bytes = _SIZES.unpack_from(data)
    body_end = FIXED_BYTES + body_bytes
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
    """Return the fields if all records have one shape, which is common, else None."""
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
        and (
            ends.count(b"\x02") == count
            if shape.has_property_end
            else not any(each.endswith(b"\x02") for each in properties)
        )
    )
    return columns if is_uniform else None


# --- finding a record again after damaged bytes


def is_boundary(buffer: bytes, at: int) -> bool:
    """Whether a record may begin at `at`: the end of the buffer, or a known magic."""
    if at == len(buffer):
        return True
    if at + SIZE_AND_MAGIC.size > len(buffer):
        return False
    magic = SIZE_AND_MAGIC.unpack_from(buffer, at)[1]
    return magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)


def find_next_record(buffer: bytes, at: int) -> int:
    """Return where the next whole record after `at` begins, or len(buffer) without one.

    Only a record whose inner lengths add up to its total size counts, so that a magic
    inside a body is hardly ever mistaken for a record. Linear: each position is visited
    once.
    """
    for match in _RECORD_START.finditer(buffer, at + 1):
        start = match.start()
        head = read_head(buffer, start)
        if head is None:
            break
        layout = find_layout(buffer, start, head)
        if isinstance(layout, Layout) and layout.end == start + head.total_bytes:
            return start
    return len(buffer)
