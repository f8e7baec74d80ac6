"""Finds the records of many pull answers at once, with numpy instead of a loop.

Only the plain form is read here: V1, IPv4 hosts, no inner batch, inner lengths that add
up to the total size. `decode_messages` reads the others, so that both always agree.

Source: the layout in `rmqcli.wire.message_layout`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rmqcli.wire.message_layout import MAGIC_V1, RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

#: The 88 bytes in front of a plain record's body.
FIXED: Final = np.dtype(
    [
        ("total_bytes", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", ">u8"),
        ("store_timestamp", ">i8"),
        ("store_host", ">u8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_bytes", ">u4"),
    ]
)

#: IPv6 hosts, inner batch: any of them and the record is not plain.
_ODD_FLAGS: Final = 0xF0

#: Below this many answers a python loop over sizes is faster than numpy steps.
_LOCK_STEP_MIN: Final = 48

#: Bytes added behind the data, so that eight can be read from any place.
PAD_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The records found by their total sizes, in order.

    `data` is all bodies in a row and `PAD_BYTES` zeros; positions count in it. Body
    number i lies at `body_starts[i]` up to `body_starts[i + 1]`. `starts` and `fixed`
    hold one element a record; `plain` says which of them could be read here, and only
    for those `body_ends` and `properties_at` mean anything. `stuck_at` are the places,
    at most one a body, where no total size can be followed any more.
    """

    data: NDArray[np.uint8]
    body_starts: Ints
    starts: Ints
    ends: Ints
    fixed: np.ndarray[tuple[int], np.dtype[np.void]]
    plain: Bools
    body_ends: Ints
    properties_at: Ints
    stuck_at: list[int]


def scan(bodies: Sequence[bytes | bytearray | memoryview]) -> Scan:
    """Return where the records of the bodies lie. Never raises on what they hold."""
    data = np.frombuffer(bytearray().join([*bodies, bytes(PAD_BYTES)]), dtype=np.uint8)
    body_starts = np.zeros(len(bodies) + 1, dtype=np.int64)
    np.cumsum([len(body) for body in bodies], out=body_starts[1:])
    starts, stuck_at = _hop(data, body_starts)
    size = len(data)
    rows = np.ndarray((max(size - 87, 0),), "V88", data, strides=(1,))
    fixed = rows[starts].view(FIXED)
    ends = starts + fixed["total_bytes"]
    body_ends = starts + 88 + fixed["body_bytes"]
    plain = (fixed["magic"] == MAGIC_V1) & ((fixed["sys_flag"] & _ODD_FLAGS) == 0)
    plain &= body_ends + 3 <= ends
    # A length that leads out is replaced by a place that can be read, and not plain.
    body_ends[~plain] = 0
    properties_at = body_ends + 3 + data[body_ends]
    plain &= properties_at <= ends
    properties_at[~plain] = 2
    properties_bytes = data[properties_at - 2].astype(np.int64) << 8
    properties_bytes |= data[properties_at - 1]
    plain &= properties_at + properties_bytes == ends
    return Scan(
        data=data,
        body_starts=body_starts,
        starts=starts,
        ends=ends,
        fixed=fixed,
        plain=plain,
        body_ends=body_ends,
        properties_at=properties_at,
        stuck_at=stuck_at,
    )


def _hop(data: NDArray[np.uint8], body_starts: Ints) -> tuple[Ints, list[int]]:
    """Follow the total sizes; all bodies advance by one record in each numpy step."""
    sizes = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    at, body_ends = body_starts[:-1], body_starts[1:]
    found: list[Ints] = []
    stuck_at: list[int] = []
    while True:
        going = at < body_ends
        at, body_ends = at[going], body_ends[going]
        if len(at) < _LOCK_STEP_MIN:
            break
        total_bytes = sizes[at].astype(np.int64)
        following = at + total_bytes
        good = (total_bytes >= RECORD_BYTES_MIN) & (following <= body_ends)
        if not good.all():
            stuck_at += at[~good].tolist()
            at, following, body_ends = at[good], following[good], body_ends[good]
        found.append(at)
        at = following
    for start, end in zip(at.tolist(), body_ends.tolist(), strict=True):
        starts, stuck = _hop_one(data, start, end)
        found.append(np.array(starts, dtype=np.int64))
        if stuck is not None:
            stuck_at.append(stuck)
    starts_all = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    starts_all.sort()  # bodies lie one after the other: position is order
    return starts_all, stuck_at


def _hop_one(
    data: NDArray[np.uint8], start: int, end: int
) -> tuple[list[int], int | None]:
    unpack = struct.Struct(">I").unpack_from
    buffer = data.data
    starts: list[int] = []
    append = starts.append
    at = start
    while at < end:
        (total_bytes,) = unpack(buffer, at)
        following = at + total_bytes
        if total_bytes < RECORD_BYTES_MIN or following > end:
            return starts, at
        append(at)
        at = following
    return starts, None
