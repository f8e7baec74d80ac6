"""The properties of many records as Arrow arrays, split by numpy.

Gives what `parse_properties` gives for each record, but for repeated names: those rows
are reported, and the caller reads them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_KEY_WORD_BYTES: Final = 8
#: Word -> the bits of its first n bytes, big endian.
_WORD_MASKS: Final = np.array(
    [(1 << 64) - (1 << 8 * (8 - count)) for count in range(9)], dtype=np.uint64
)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def pieces(values: NDArray[np.uint8], starts: Ints, ends: Ints) -> pa.Array:
    """Return the parts [start, end) of `values` as one array of binaries.

    The parts must be in order and not overlap: they are every other element of an array
    over the whole buffer, which Arrow then takes in one pass of C++.
    """
    count = len(starts)
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    both = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), buffers)
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyColumns:
    """All rows' entries in order: `offsets[i]` up to `offsets[i + 1]` are row i's.

    `words` are the names' first eight bytes. `repeated` are rows that may hold a name
    twice: theirs are to be read again.
    """

    names: pa.Array
    values: pa.Array
    offsets: NDArray[np.int32]
    words: NDArray[np.uint64]
    name_bytes: Ints
    rows: Ints
    repeated: Ints

    def column(self, name: bytes) -> pa.Array:
        """Return one property as a nullable string column; at most 8 bytes of name."""
        word = np.uint64(int.from_bytes(name.ljust(_KEY_WORD_BYTES, b"\0"), "big"))
        (at,) = np.nonzero((self.words == word) & (self.name_bytes == len(name)))
        count = len(self.offsets) - 1
        if not len(at):
            return pa.nulls(count, pa.string())
        index = np.zeros(count, dtype=np.int64)
        absent = np.ones(count, dtype=np.bool_)
        index[self.rows[at]] = at
        absent[self.rows[at]] = False
        return self.values.take(pa.array(index, mask=absent))

    def as_map(self) -> pa.Array:
        """Return all of them as map<string, string>."""
        return pa.MapArray.from_arrays(pa.array(self.offsets), self.names, self.values)


def split_properties(
    data: NDArray[np.uint8], starts: Ints, ends: Ints
) -> PropertyColumns:
    """Split the properties that lie at [start, end) of `data`, one a row.

    `data` is written to: the byte at `end` becomes 0x02 where the last one is missing
    (4.9.1 to 5.1.4). It belongs to the next record's total size, or to the padding.
    """
    lacking = (ends > starts) & (data[ends - 1] != 2)
    data[ends[lacking]] = 2
    texts = pieces(data, starts, ends + lacking)
    buffers = texts.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32, count=len(texts) + 1)
    text = np.frombuffer(buffers[2] or b"", dtype=np.uint8, count=int(offsets[-1]))
    padded = np.concatenate([text, np.zeros(_KEY_WORD_BYTES, dtype=np.uint8)])
    (entry_ends,) = np.nonzero(text == 2)
    entry_starts = np.empty_like(entry_ends)
    entry_starts[:1] = 0
    entry_starts[1:] = entry_ends[:-1] + 1
    name_ends, valid = _find_names(text, entry_starts, entry_ends)
    row_offsets = np.searchsorted(entry_ends, offsets)
    if not valid.all():
        kept = np.zeros(len(valid) + 1, dtype=np.int64)
        np.cumsum(valid, out=kept[1:])
        row_offsets = kept[row_offsets]
        entry_starts, entry_ends = entry_starts[valid], entry_ends[valid]
        name_ends = name_ends[valid]
    name_bytes = name_ends - entry_starts
    words = _words(padded, entry_starts)
    masked = words & _WORD_MASKS[np.minimum(name_bytes, _KEY_WORD_BYTES)]
    rows = np.repeat(np.arange(len(starts)), np.diff(row_offsets))
    names, values = _name_value(text, entry_starts, name_ends, entry_ends)
    return PropertyColumns(
        names=names,
        values=values,
        offsets=row_offsets.astype(np.int32),
        words=masked,
        name_bytes=name_bytes,
        rows=rows,
        repeated=_rows_with_repeats(padded, masked, name_ends, name_bytes, rows),
    )


def _find_names(
    text: NDArray[np.uint8], starts: Ints, ends: Ints
) -> tuple[Ints, Bools]:
    """Return where each entry's first 0x01 is, and which have name and value."""
    (marks,) = np.nonzero(text == 1)
    if len(marks) == len(ends):
        valid = (marks > starts) & (marks + 1 < ends)
        if valid.all():  # nearly always: each entry has exactly one
            return marks, valid
    marks = np.append(marks, len(text))
    name_ends = marks[np.searchsorted(marks, starts)]
    return name_ends, (name_ends > starts) & (name_ends + 1 < ends)


def _words(padded: NDArray[np.uint8], at: Ints) -> NDArray[np.uint64]:
    """Return the eight bytes from each place on, as big-endian numbers."""
    view = np.ndarray((len(padded) - 7,), ">u8", padded, strides=(1,))
    return view[at].astype(np.uint64)


def _name_value(
    text: NDArray[np.uint8], starts: Ints, name_ends: Ints, ends: Ints
) -> tuple[pa.Array, pa.Array]:
    count = len(starts)
    offsets = np.empty(4 * count, dtype=np.int32)
    offsets[0::4] = starts
    offsets[1::4] = name_ends
    offsets[2::4] = name_ends
    offsets[2::4] += 1
    offsets[3::4] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    is_utf8 = _is_utf8(text)
    kind = pa.string() if is_utf8 else pa.binary()
    parts = pa.Array.from_buffers(kind, max(4 * count - 1, 0), buffers)
    names = parts.take(pa.array(np.arange(0, 4 * count, 4, dtype=np.int32)))
    values = parts.take(pa.array(np.arange(2, 4 * count, 4, dtype=np.int32)))
    if is_utf8:
        return names, values
    return _replaced(names), _replaced(values)


def _is_utf8(text: NDArray[np.uint8]) -> bool:
    """Whether all is UTF-8; then so is each part, for separators are ASCII."""
    offsets = np.array([0, len(text)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _replaced(array: pa.Array) -> pa.Array:
    texts = [raw.decode("utf-8", "replace") for raw in array.to_pylist()]
    return pa.array(texts, pa.string())


def _rows_with_repeats(
    padded: NDArray[np.uint8],
    words: NDArray[np.uint64],
    name_ends: Ints,
    name_bytes: Ints,
    rows: Ints,
) -> Ints:
    """Return rows in which two names look the same: never too few, hardly too many.

    Names are told apart by length, first and last eight bytes; each is compared with
    the next, the next but one ... of its row, which for a dozen entries beats sorting.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    long_names = name_bytes > _KEY_WORD_BYTES
    marks = words + name_bytes.astype(np.uint64) * _MIX
    if long_names.any():
        last = _words(padded, np.maximum(name_ends - _KEY_WORD_BYTES, 0))
        marks = np.where(long_names, marks ^ (last * _MIX), marks)
    found: list[Ints] = []
    for distance in range(1, len(rows)):
        same_row = rows[distance:] == rows[:-distance]
        if not same_row.any():
            break
        same = same_row & (marks[distance:] == marks[:-distance])
        if same.any():
            found.append(rows[distance:][same])
        if distance == _ENTRIES_MAX:
            found.append(rows[distance:][same_row])
            break
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


#: Rows with more entries than this are read one by one.
_ENTRIES_MAX: Final = 32
