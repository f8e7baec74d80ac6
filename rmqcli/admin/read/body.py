"""The body of a pull: which queue offsets it covers, and cutting it between records.

A broker may answer with more records, or fewer, than a reader asked for. What is inside
the range is cut out of the body without decoding it; only a body with a damaged record
or an inner batch is decoded, to find the offsets.

Source: the record layout of `MessageDecoder.decode`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from rmqcli.wire.message.decode import decode_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.scan import RecordScan

#: Half-open, in offsets.
Span = tuple[int, int]


class Chunk(NamedTuple):
    """The records of offsets `start <= o < end` of one queue, as a broker stores them.

    `missing` are the half-open spans in it that the broker does not have, ascending.
    """

    queue: MessageQueue
    start: int
    end: int
    body: bytes
    missing: tuple[Span, ...]


def cut_body(body: bytes, scan: RecordScan, start: int, end: int) -> bytes:
    """Return the records of a scanned `body` with offsets `start <= o < end`."""
    offsets = scan.offsets
    if not offsets or (start <= offsets[0] and offsets[-1] < end):
        return body
    first, last = bisect_left(offsets, start), bisect_left(offsets, end)
    ends = [*scan.starts, len(body)]
    return body[ends[first] : ends[last]]


def cut_unscanned_body(body: bytes, start: int, end: int) -> tuple[bytes, int | None]:
    """Return the records that may lie in `start <= o < end`, and the last offset there.

    For a body that `scan_records` cannot scan. A record without a readable offset is
    kept, because it may be in the range. The last offset is None when no record in the
    range has one.
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


def last_record(body: bytes) -> bytes:
    """Return the last record in `body`, or all from the first one that is damaged."""
    size_bytes = int.from_bytes(body[:4], "big")
    # Records of one size are the usual case: a glance at each byte of their sizes.
    if size_bytes > 4 and not len(body) % size_bytes:
        sizes = (body[each::size_bytes] for each in range(4))
        if all(each.count(each[0]) == len(each) for each in sizes):
            return body[-size_bytes:]
    at = 0
    while True:
        size_bytes = int.from_bytes(body[at : at + 4], "big")
        if not 4 < size_bytes < len(body) - at:
            return body[at:]
        at += size_bytes


def holes_between(offsets: Sequence[int], start: int, end: int) -> tuple[Span, ...]:
    """Return the spans of `start <= o < end` that the ascending `offsets` lack."""
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
