"""Scans of stored bytes agree with decoding every record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.layout import MAGIC_V1, MAGIC_V2, field_format, field_struct
from rmqcli.wire.message.scan import (
    find_next_record,
    is_boundary,
    read_bodies,
    read_columns,
    scan_records,
)
from tests.kit.rows import each_row


def record(
    offset: int,
    body: bytes = b"plain",
    *,
    sys_flag: int = 0,
    host: str = "1.2.3.4:5",
    magic: int = MAGIC_V1,
) -> bytes:
    fields = MessageFields(
        topic="orders",
        body=body,
        queue_offset=offset,
        commit_log_offset=offset * 100 - 5,
        sys_flag=sys_flag,
        flag=-offset,
        reconsume_times=offset % 3,
        born_host=host,
        born_timestamp_ms=6 * offset,
        store_timestamp_ms=7 * offset,
        properties={"TAGS": "TagA"},
    )
    return encode_message(fields, magic=magic)


def decoded(data: bytes) -> list[StoredMessage]:
    found = decode_messages(data)
    messages = [message for message in found if isinstance(message, StoredMessage)]
    assert messages == found
    return messages


def assert_columns_are_the_attributes(data: bytes) -> None:
    messages = decoded(data)
    bodies, columns = read_bodies(data), read_columns(data)
    assert bodies is not None
    assert columns is not None
    assert bodies.body == list(columns.body) == [m.raw_body for m in messages]
    assert bodies.queue_offset == [m.queue_offset for m in messages]
    assert bodies.store_timestamp == [m.store_timestamp_ms for m in messages]
    rows = zip(*columns, strict=True)
    assert list(rows) == [
        (
            m.store_bytes,
            MAGIC_V1,
            m.flag,
            m.queue_offset,
            m.commit_log_offset,
            m.sys_flag,
            m.born_timestamp_ms,
            m.born_host_bytes(),
            m.store_timestamp_ms,
            m.store_host_bytes(),
            m.reconsume_times,
            m.body_bytes,
            m.raw_body,
            m.raw_properties.removesuffix(b"\x02"),
        )
        for m in messages
    ]


def test_fields_are_skipped_by_their_sizes():
    assert field_format(["total_bytes", "magic", "body_crc"]) == ">IIi"
    assert field_format(["magic", "queue_offset", "sys_flag"]) == ">4xI12xq8xi"
    assert field_struct(["body_bytes"]).size == 88
    with pytest.raises(ValueError, match="not fixed fields of a record: \\['topic'\\]"):
        field_format(["magic", "topic"])


shapes = st.lists(
    st.tuples(st.sampled_from([b"abc", b"xyz", b"", b"longer"]), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(shapes, st.integers(0, 600))
def test_records_of_one_shape_or_of_many(kinds, first):
    """The offsets also cross byte boundaries."""
    data = b"".join(
        record(first + index, body, sys_flag=8 if flagged else 0)
        for index, (body, flagged) in enumerate(kinds)
    )
    scan = scan_records(data)
    assert scan is not None
    assert list(scan.starts) == [message.at for message in decoded(data)]
    assert list(scan.offsets) == list(range(first, first + len(kinds)))
    assert_columns_are_the_attributes(data)


def test_records_without_a_last_separator():
    """4.9.1 to 5.1.4 write properties in this way."""
    fields = MessageFields(topic="orders", body=b"x", properties="TAGS\x01TagA")
    assert_columns_are_the_attributes(encode_message(fields) * 3)
    assert_columns_are_the_attributes(encode_message(fields) + record(1))


@pytest.mark.parametrize("order", [1, -1])
def test_records_of_one_size_of_which_some_have_a_last_separator(order):
    """A topic has both after its broker was upgraded, and after a downgrade."""
    data = [
        encode_message(MessageFields(topic="orders", body=b"x", properties=text))
        for text in ("TAGS\x01TagA", "TAGS\x01Tag\x02")
    ]
    assert len(data[0]) == len(data[1])
    assert_columns_are_the_attributes(b"".join(data[::order]))


def test_the_smallest_record():
    data = encode_message(MessageFields(topic="", body=b""))
    assert len(data) == 91
    assert_columns_are_the_attributes(data * 2)


SPECIAL = {
    "compressed": record(1, sys_flag=1),
    "IPv6 host": record(1, host="[::1]:9"),
    "one bit of an inner batch": record(1, sys_flag=0x40),
    "second version": record(1, magic=MAGIC_V2),
}


@pytest.mark.parametrize("special", SPECIAL.values(), ids=SPECIAL)
def test_special_records_are_scanned_but_have_no_columns(special):
    for data in (record(0) + special + record(2), special):
        scan = scan_records(data)
        assert scan is not None
        assert list(scan.offsets) == [m.queue_offset for m in decoded(data)]
        assert read_bodies(data) is None
        assert read_columns(data) is None


def test_an_inner_batch_is_not_scanned():
    """Its items have further offsets from the record's on, which a scan cannot see."""
    assert scan_records(record(0) + record(1, sys_flag=0xC0)) is None


def test_offsets_that_do_not_ascend_are_not_scanned():
    assert scan_records(record(3) + record(3)) is None
    assert scan_records(record(3, b"longer") + record(2)) is None


@each_row("cut", [1, 50, 91, 130])
@each_row("at", [0, 4, 39, 84, 88 + 5, 88 + 5 + 8])
def test_damage_has_no_columns(cut, at):
    data = b"".join(record(offset) for offset in range(3))
    spoilt = bytearray(data)
    spoilt[at] ^= 0x31
    for body in (data[:-cut], bytes(spoilt), data + b"\x00" * cut):
        assert read_columns(body) is None


@given(st.binary(max_size=300))
def test_random_bytes_never_raise(data):
    scan_records(data)
    read_bodies(data)
    read_columns(data)


@pytest.mark.parametrize(
    ("data", "at", "found"),
    [
        (b"", 0, True),
        (b"abc", 3, True),
        (bytes.fromhex("00000064 daa320a7"), 0, True),
        (bytes.fromhex("00000064 daa320ab"), 0, True),
        (bytes.fromhex("00000064 cbd43194"), 0, True),  # the rest of a file is unused
        (bytes.fromhex("00000064 daa320a8"), 0, False),
        (bytes.fromhex("00000064 daa320"), 0, False),
        (bytes.fromhex("ff 00000064 daa320a7"), 1, True),
        (bytes.fromhex("ff 00000064 daa320a7"), 0, False),
    ],
)
def test_a_record_may_begin_at_a_known_magic_and_at_the_end(data, at, found):
    assert is_boundary(data, at) is found


def test_the_next_whole_record_is_found_behind_what_only_looks_like_one():
    one = record(1, body=record(7)[:40] + b"x")  # the start of a record, in a body
    two = record(2, magic=MAGIC_V2)
    data = one + b"junk" + two
    assert find_next_record(data, 0) == len(one) + 4
    assert find_next_record(data, len(one) + 3) == len(one) + 4
    assert find_next_record(data, len(one) + 4) == len(data)
    assert find_next_record(data[:-1], 0) == len(data) - 1
    assert find_next_record(b"junk", 0) == 4
