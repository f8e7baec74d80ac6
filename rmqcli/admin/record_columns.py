"""The fields of all records of a chunk, each field in a column of its own.

Only for plain records: V1, IPv4 hosts, not compressed, no inner batch, whole, and of
the chunk's own offsets. With any other there is no answer and the caller decodes them.

Source: the record layout of `MessageDecoder.decode`.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqcli.wire.message_layout import MAGIC_V1, RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.range_reader import Chunk

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
