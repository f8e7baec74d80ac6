"""Java's hash of `topic#key`, for many keys at once.

A key's hash costs 3 µs letter by letter, which is more than the rest of an append; here
the keys of a batch are one big number and eight letters are hashed by three multiplies.

Source: `IndexFile.indexKeyHashMethod` and `String.hashCode`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rmqcli.wire.ids import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK: Final = 0xFFFFFFFF
_POWER_8: Final = pow(31, 8, 1 << 32)
_LANE: Final = 8
_KEY_BYTES_MAX: Final = 1024
_KEYS_AT_ONCE: Final = 256


def index_hash(topic: str, key: str) -> int:
    """The number that the index knows the key by: 0 to 2^31 - 1."""
    return _absolute(java_string_hash(f"{topic}#{key}") & _MASK)


def index_hashes(topics: Sequence[str], keys: Sequence[str]) -> list[int]:
    """`index_hash` of each topic with the key in its place."""
    prefixes = {
        topic: java_string_hash(f"{topic}#") & _MASK for topic in dict.fromkeys(topics)
    }
    _power(_KEY_BYTES_MAX)
    powers = _powers
    hashes = []
    for topic, key, of_key in zip(topics, keys, _key_hashes(keys), strict=True):
        if of_key is None:
            hashes.append(index_hash(topic, key))
            continue
        value = (prefixes[topic] * powers[len(key)] + of_key) & _MASK
        if value >= 0x80000000:
            value = 0 if value == 0x80000000 else 0x100000000 - value
        hashes.append(value)
    return hashes


_powers: list[int] = [1]


def _power(length: int) -> int:
    """31 ^ length, in 32 bits."""
    while len(_powers) <= length:
        _powers.append(_powers[-1] * 31 & _MASK)
    return _powers[length]


def _absolute(value: int) -> int:
    """Math.abs of a 32-bit number, with 0 for the one that has no absolute value."""
    if value < 0x80000000:
        return value
    return 0 if value == 0x80000000 else 0x100000000 - value


def _key_hashes(keys: Sequence[str]) -> list[int | None]:
    """Hash of each key by itself; None for the ones that are long or not ASCII."""
    hashes: list[int | None] = [None] * len(keys)
    by_length: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        if key.isascii() and len(key) <= _KEY_BYTES_MAX:
            lanes = max(1, -(-len(key) // _LANE))
            by_length.setdefault(lanes, []).append(at)
    for lanes, all_of_them in by_length.items():
        for first in range(0, len(all_of_them), _KEYS_AT_ONCE):
            chosen = all_of_them[first : first + _KEYS_AT_ONCE]
            # A zero in front of a key does not change its hash.
            text = "".join([keys[at].rjust(lanes * _LANE, "\0") for at in chosen])
            for at, value in zip(chosen, _lanes_hashed(text, lanes), strict=True):
                hashes[at] = value
    return hashes


def _lanes_hashed(text: str, lanes: int) -> list[int]:
    """The hash of every `lanes` * 8 letters."""
    count = len(text) // _LANE
    ones = int.from_bytes(b"\0\0\0\0\0\0\0\1" * count, "big")
    low_bytes = ones * 0x00FF00FF00FF00FF
    low_pairs = ones * 0x0000FFFF0000FFFF
    low_halves = ones * 0x00000000FFFFFFFF
    number = int.from_bytes(text.encode("ascii"), "big")
    # Neighbours are joined until eight letters are one number: none outgrows its lane.
    number = (number >> 8 & low_bytes) * 31 + (number & low_bytes)
    number = (number >> 16 & low_pairs) * 961 + (number & low_pairs)
    number = (number >> 32 & low_halves) * 923521 + (number & low_halves)
    values = struct.unpack(f">{count}Q", number.to_bytes(count * _LANE, "big"))
    if lanes == 1:
        return [value & _MASK for value in values]
    hashes = []
    for first in range(0, count, lanes):
        value = 0
        for lane in values[first : first + lanes]:
            value = (value * _POWER_8 + lane) & _MASK
        hashes.append(value)
    return hashes
