"""The body of a pull answer is cut between records, by their offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.read.body import (
    cut_body,
    cut_unscanned_body,
    holes_between,
    last_record,
)
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.scan import scan_records


def record(offset: int, body: bytes = b"abc", *, sys_flag: int = 0) -> bytes:
    return encode_message(
        MessageFields(topic="T", body=body, queue_offset=offset, sys_flag=sys_flag)
    )


@given(
    st.lists(
        st.sampled_from([b"abc", b"xyz", b"", b"longer"]), min_size=1, max_size=12
    ),
    st.integers(0, 13),
    st.integers(0, 13),
)
def test_a_cut_keeps_the_records_of_the_range(bodies, start, length):
    end = start + length
    records = [record(offset, body) for offset, body in enumerate(bodies)]
    data = b"".join(records)
    expected = b"".join(records[start:end])
    scan = scan_records(data)
    assert scan is not None
    assert cut_body(data, scan, start, end) == expected
    kept, last = cut_unscanned_body(data, start, end)
    assert kept == expected
    assert last == (min(end, len(bodies)) - 1 if expected else None)


def test_an_inner_batch_is_kept_whole_when_one_of_its_items_is_wanted():
    items = encode_batch([BatchItem(b"1"), BatchItem(b"2"), BatchItem(b"3")])
    batch = record(1, items, sys_flag=0xC0)
    data = record(0) + batch + record(4)
    assert cut_unscanned_body(data, 2, 3) == (batch, 2)
    assert cut_unscanned_body(data, 4, 9) == (record(4), 4)


def test_a_record_without_a_readable_offset_is_kept():
    spoilt = bytearray(record(1))
    spoilt[4] ^= 0xFF
    spoilt[20:28] = b"\xff" * 8
    data = record(0) + bytes(spoilt) + record(2)
    assert cut_unscanned_body(data, 2, 3) == (bytes(spoilt) + record(2), 2)
    assert cut_unscanned_body(bytes(spoilt), 2, 3) == (bytes(spoilt), None)


@pytest.mark.parametrize(
    ("offsets", "start", "end", "holes"),
    [
        ([1, 2, 5], 0, 8, ((0, 1), (3, 5), (6, 8))),
        ([], 3, 4, ((3, 4),)),
        ([0, 1], 0, 2, ()),
        ([0, 9], 0, 5, ((1, 5),)),
    ],
)
def test_the_holes_between_offsets(offsets, start, end, holes):
    assert holes_between(offsets, start, end) == holes


@given(
    st.lists(st.sampled_from([b"abc", b"xyz", b"", b"longer"]), max_size=12),
    st.booleans(),
)
def test_the_last_record_is_found_by_the_sizes_of_those_before(bodies, is_uniform):
    bodies = [b"abc" for _ in bodies] if is_uniform else bodies
    records = [record(offset, body) for offset, body in enumerate(bodies)]
    assert last_record(b"".join(records)) == (records[-1] if records else b"")


def test_from_a_record_with_a_wrong_size_on_all_is_the_last_one():
    first, second = record(0), record(1)
    damaged = b"\x00\x00\x00\x03" + second[4:]
    assert last_record(first + damaged + second) == damaged + second
    assert last_record(b"\x00\x00\x00") == b"\x00\x00\x00"
