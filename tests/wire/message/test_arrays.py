"""Arrays made of numpy's memory have the values that pyarrow itself gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.message.arrays import (
    array_of,
    mask_of,
    numbers_of,
    repeated,
    strings_of,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(INT64 | st.none(), max_size=40))
def test_absent_numbers_are_null(values):
    numbers = np.array([value or 0 for value in values], dtype=np.int64)
    absent = np.array([value is None for value in values], dtype=np.bool_)
    found = array_of(numbers, absent=absent)
    found.validate(full=True)
    assert found.type == pa.int64()
    assert found.to_pylist() == values


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (np.arange(6, dtype=np.int32), pa.int32()),
        (np.arange(12, dtype=np.int32)[::2], pa.int32()),
        (np.array([], dtype=np.int64), pa.int64()),
    ],
    ids=["contiguous", "strided", "empty"],
)
def test_any_numbers_become_an_array(numbers, kind):
    found = array_of(numbers)
    assert found.type == kind
    assert found.to_pylist() == numbers.tolist()


@given(st.lists(INT64, max_size=40), st.integers(0, 40))
def test_numbers_come_back_also_from_a_part_of_an_array(values, start):
    array = pa.array(values, pa.int64()).slice(start)
    assert numbers_of(array).tolist() == values[start:]


@given(st.lists(st.booleans(), max_size=40))
def test_flags_become_booleans(flags):
    found = mask_of(np.array(flags, dtype=np.bool_))
    found.validate(full=True)
    assert found.to_pylist() == flags


@given(st.lists(st.text(max_size=9), max_size=12))
def test_texts_become_strings(texts):
    found = strings_of(texts)
    found.validate(full=True)
    assert found.to_pylist() == texts


@given(st.text(max_size=9), st.integers(0, 12))
def test_a_text_is_repeated(text, count):
    found = repeated(text, count)
    found.validate(full=True)
    assert found.to_pylist() == [text] * count


def test_more_text_than_offsets_can_count_is_refused():
    with pytest.raises(ValueError, match="2097152 texts of 1024 bytes exceed"):
        repeated("x" * 1024, 1 << 21)
