"""Which queue offsets a pull answer's body holds, and cutting it between two records.

Hops over plain records by their sizes; a body in which a record cannot be read, or
holds a whole batch, is decoded in full to find out.

Source: the record layout of `MessageDecoder.decode`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.layout import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from rmqcli.wire.message.system_flag import INNER_BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = struct.Struct(">II12xq8xI")  # total size, magic, queue offset, sysFlag
_SYS_FLAG: Final = slice(36, 40)
_NO_FLAGS: Final = bytes(4)
_MAGIC_V1: Final = MAGIC_V1.to_bytes(4, "big")
#: Where records of one size with neighbouring offsets are the same: total size, magic,
#: all of the queue offset but its last byte, sysFlag.
_CONSTANT: Final = (*range(8), *range(20, 27), *range(36, 40))
#: What the last byte of such offsets runs through, up to where the one before changes.
_RAMP: Final = bytes(range(256))

#: Half-open, in offsets.
Span = tuple[int, int]


class BodyScan(NamedTuple):
    """Where each record of a body begins, and its queue offset; offsets ascend."""

    starts: Sequence[int]
    offsets: Sequence[int]


def scan_body(body: bytes) -> BodyScan | None:
    """Hop over the records of `body`; None when some are not plain. Never raises."""
    uniform = _scan_uniform(body)
    if uniform is not None:
        return uniform
    starts: list[int] = []
    offsets: list[int] = []
    size, at, last = len(body), 0, -1
    unpack = _HEAD.unpack_from
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
    return BodyScan(starts, offsets) if at == size else None


def _scan_uniform(body: bytes) -> BodyScan | None:
    """Records of one size with offsets that follow on each other: the usual case.

    Looks at one byte of all records at a time, which slices do at C's speed.
    """
    size = len(body)
    total_bytes = int.from_bytes(body[:4], "big")
    if total_bytes < RECORD_BYTES_MIN or size % total_bytes:
        return None
    count = size // total_bytes
    if body[4:8] != _MAGIC_V1 or body[_SYS_FLAG] != _NO_FLAGS:
        return None
    for at in _CONSTANT:
        if body[at::total_bytes].count(body[at]) != count:
            return None
    first = int.from_bytes(body[20:28], "big", signed=True)
    low = first & 0xFF
    if first < 0 or body[27::total_bytes] != _RAMP[low : low + count]:
        return None
    return BodyScan(range(0, size, total_bytes), range(first, first + count))


def cut_body(body: bytes, scan: BodyScan, start: int, end: int) -> bytes:
    """The records of a scanned `body` with offsets `start <= o < end`."""
    offsets = scan.offsets
    if not offsets or (start <= offsets[0] and offsets[-1] < end):
        return body
    first, last = bisect_left(offsets, start), bisect_left(offsets, end)
    ends = [*scan.starts, len(body)]
    return body[ends[first] : ends[last]]


def holes_between(offsets: Sequence[int], start: int, end: int) -> tuple[Span, ...]:
    """The spans of `start <= o < end` that the ascending `offsets` lack."""
    holes = []
    at = start
    for offset in offsets:
        if offset >= end:
            break
        if offset > at:
            holes.append((at, offset))
        at = max(at, offset + 1)
    if at < end:
        holes.append((at, end))
    return tuple(holes)


def cut_unclear_body(body: bytes, start: int, end: int) -> tuple[bytes, int | None]:
    """What of an odd `body` may lie in `start <= o < end`, and the last offset there.

    A record without a readable offset is kept: it may be one that was asked for. The
    last offset is None when no record there has one.
    """
    pieces: list[tuple[int, bool]] = []  # where it begins, and whether it is wanted
    last: int | None = None
    for item in decode_messages(body):
        offset = item.queue_offset
        wanted = offset is None or start <= offset < end
        if offset is not None and wanted:
            last = offset if last is None else max(last, offset)
        if pieces and pieces[-1][0] == item.at:  # the next item of the same record
            pieces[-1] = (item.at, pieces[-1][1] or wanted)
        else:
            pieces.append((item.at, wanted))
    ends = [at for at, _ in pieces[1:]] + [len(body)]
    kept = [
        body[at:until]
        for (at, wanted), until in zip(pieces, ends, strict=True)
        if wanted
    ]
    return b"".join(kept), last
