"""Batches: the body of a batch send, and of a stored record with many messages.

    item size, magic (0), body CRC (0), flag, body length   5 x i32
    body
    properties length i16, properties

Items follow each other; their topic and queue are those of the request or record.

Source: `MessageDecoder.encodeMessage(s)`/`decodeMessage(s)`.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.dataclass import dataclass
from rmqcli.wire.message.properties import PROPERTIES_BYTES_MAX, encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIXED: Final = struct.Struct(">IiiiI")
_LENGTH: Final = struct.Struct(">h")
_ITEM_BYTES_MIN: Final = _FIXED.size + _LENGTH.size


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch."""

    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0


class ItemSpan(NamedTuple):
    """The positions of one item's parts in the batch; `end` is after its properties."""

    at: int
    body_crc: int
    flag: int
    body_at: int
    body_end: int
    properties_at: int
    end: int


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Return the items as one body, each as Java's producers write it.

    Raises ValueError for properties over 32767 bytes.
    """
    return encode_items(
        (item.body, encode_properties(item.properties).encode(), item.flag)
        for item in items
    )


def encode_items(items: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """Like `encode_batch`, of bodies, properties in their text form, and flags."""
    parts: list[bytes] = []
    for body, properties, flag in items:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ValueError(
                f"properties of {len(properties)} bytes exceed the limit of"
                f" {PROPERTIES_BYTES_MAX}"
            )
        total_bytes = _ITEM_BYTES_MIN + len(body) + len(properties)
        parts += (
            _FIXED.pack(total_bytes, 0, 0, flag, len(body)),
            body,
            _LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def split_batch(data: bytes) -> tuple[list[ItemSpan], str]:
    """Return the complete items, and what is wrong with the rest ("" without a rest).

    The rest begins at the last span's `end`.
    """
    spans: list[ItemSpan] = []
    at = 0
    while at < len(data):
        span = _find_item(data, at)
        if isinstance(span, str):
            return spans, f"batch item {len(spans)} at byte {at}: {span}"
        spans.append(span)
        at = span.end
    return spans, ""


def _find_item(data: bytes, at: int) -> ItemSpan | str:
    left = len(data) - at
    if left < _ITEM_BYTES_MIN:
        return f"{left} bytes left, an item has {_ITEM_BYTES_MIN} or more"
    total_bytes, _, body_crc, flag, body_bytes = _FIXED.unpack_from(data, at)
    body_at = at + _FIXED.size
    body_end = body_at + body_bytes
    properties_at = body_end + 2
    if properties_at > len(data):
        return (
            f"body length {body_bytes} exceeds the {left - _ITEM_BYTES_MIN} bytes left"
        )
    end = properties_at + int.from_bytes(data[body_end:properties_at], "big")
    if end > len(data):
        return f"properties end {end - len(data)} bytes after the batch"
    if end - at != total_bytes:
        return f"size {total_bytes} does not match the sum of its parts, {end - at}"
    return ItemSpan(at, body_crc, flag, body_at, body_end, properties_at, end)
