"""Arrow arrays from numpy arrays and texts, and back, without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas where it is installed, which costs
a process 0.2 s of CPU. These functions pass the memory of an array on instead.

Imports numpy and pyarrow, so only the Spark side may import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

#: Largest sum of the texts of one array, in bytes: its offsets have 31 bits.
_TEXTS_BYTES_MAX: Final = (1 << 31) - 1


def array_of(numbers: NDArray[Any], *, absent: Bools | None = None) -> pa.Array:
    """Return numbers as an Arrow array, without a copy; those `absent` are null."""
    values = np.ascontiguousarray(numbers)
    present = None if absent is None else _bits(~absent)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(values)])


def numbers_of(array: pa.Array) -> Ints:
    """Return the 64-bit numbers of an Arrow array without nulls; not writable."""
    if not len(array):
        return np.empty(0, dtype=np.int64)
    # Not np.from_dlpack: executors may have an older pyarrow, which lacks it.
    memory = array.buffers()[1]
    return np.frombuffer(memory, np.int64, len(array), 8 * array.offset)


def mask_of(flags: Bools) -> pa.Array:
    """Return flags as an Arrow array of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def strings_of(texts: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array of strings."""
    raw = [text.encode() for text in texts]
    offsets = np.zeros(len(raw) + 1, dtype=np.int32)
    np.cumsum([len(each) for each in raw], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def repeated(text: str, count: int) -> pa.Array:
    """Return `count` times the same text as an Arrow array of strings.

    Raises ValueError when they sum to more than 2 GiB.
    """
    raw = text.encode()
    if len(raw) * count > _TEXTS_BYTES_MAX:
        raise ValueError(
            f"{count} texts of {len(raw)} bytes exceed the {_TEXTS_BYTES_MAX} bytes of"
            " an array"
        )
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _bits(flags: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
