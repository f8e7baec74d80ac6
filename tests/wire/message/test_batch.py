"""Batches, which are several messages in one body, as sent and as stored."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.message.batch import BatchItem, encode_batch, split_batch
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.golden_vectors import from_base64, load
from tests.kit.batch import decode_batch
from tests.kit.rows import each_row


def cases(field: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['rocketmq']} {case['name']}")
        for case in load("batches")
        if field in case
    ]


@each_row("case", cases("expected_many"))
def test_a_batch_send_is_read_and_written(case):
    items = decode_batch(from_base64(case["bytes_b64"]))
    expected = [
        BatchItem(from_base64(one["body_b64"]), one["properties"], one["flag"])
        for one in case["expected_many"]
    ]
    assert items == expected
    assert decode_batch(encode_batch(items)) == expected


def test_an_item_byte_for_byte():
    """The bytes are those of 4.9.7's producer, except for the order of properties."""
    item = BatchItem(b"b1", {"KEYS": "k1", "x": "y", "WAIT": "true", "TAGS": "TagA"})
    assert encode_batch([item]).hex() == (
        "0000003800000000000000000000000000000002623100204b455953016b3102780179025741495401"
        "747275650254414753015461674102"
    )


@pytest.mark.parametrize("case", cases("expected_unwrapped"))
def test_an_inner_batch_is_unwrapped(case):
    """Java leaves offsetMsgId and storeSize of the items empty.

    Ours are the id of the record, by which a broker can find it, and the item's size.
    """
    found = decode_messages(from_base64(case["bytes_b64"]))
    assert len(found) == len(case["expected_unwrapped"])
    for message, expected in zip(found, case["expected_unwrapped"], strict=True):
        assert isinstance(message, StoredMessage)
        assert message.body == message.raw_body == from_base64(expected["body_b64"])
        assert message.offset_msg_id.endswith(f"{message.commit_log_offset:016X}")
        assert {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "commit_log_offset": message.commit_log_offset,
            "store_size": 0,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "body_crc": message.body_crc,
            "born_timestamp_ms": message.born_timestamp_ms,
            "store_timestamp_ms": message.store_timestamp_ms,
            "born_host": message.born_host,
            "store_host": message.store_host,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "body_b64": expected["body_b64"],
            "properties": message.properties,
            "tags": message.tags,
            "keys": message.keys,
            "offset_msg_id": None,
        } == expected


ITEMS = [BatchItem(b"one", {"TAGS": "A"}), BatchItem(b"two"), BatchItem(b"three")]


def record(body: bytes, *, sys_flag: int = 0xC0) -> bytes:
    return encode_message(
        MessageFields(topic="T", body=body, queue_offset=7, sys_flag=sys_flag)
    )


def shape(found: list[Any]) -> list[Any]:
    return [
        (one.queue_offset, one.error if isinstance(one, DecodeFailure) else one.body)
        for one in found
    ]


def test_items_of_an_inner_batch_have_their_own_sizes():
    found = decode_messages(record(encode_batch(ITEMS)))
    sizes = [one.store_bytes for one in found if isinstance(one, StoredMessage)]
    assert sizes == [len(encode_batch([item])) for item in ITEMS]


@pytest.mark.parametrize("sys_flag", [0xC0, 0xC1])
def test_items_count_on_from_the_records_offset(sys_flag):
    """The whole body may be compressed, but never a single item."""
    body = encode_batch(ITEMS)
    data = record(deflate_zlib(body) if sys_flag & 1 else body, sys_flag=sys_flag)
    assert shape(decode_messages(data)) == [(7, b"one"), (8, b"two"), (9, b"three")]


@pytest.mark.parametrize("sys_flag", [0x40, 0x80])
def test_a_record_with_one_of_the_two_bits_is_not_a_batch(sys_flag):
    body = encode_batch(ITEMS)
    (message,) = decode_messages(record(body, sys_flag=sys_flag))
    assert isinstance(message, StoredMessage)
    assert message.body == body


def test_a_cut_inner_batch_keeps_its_whole_items():
    body = encode_batch(ITEMS)
    found = decode_messages(record(body[:-3]) + record(b"next", sys_flag=0))
    assert shape(found) == [
        (7, b"one"),
        (8, b"two"),
        (9, "batch item 2 at byte 57: body length 5 exceeds the 2 bytes left"),
        (7, b"next"),
    ]
    failure = found[2]
    assert isinstance(failure, DecodeFailure)
    assert failure.raw == body[57:-3]


def test_an_empty_inner_batch_is_a_failure():
    assert shape(decode_messages(record(b""))) == [(7, "inner batch without items")]


def test_a_damaged_compressed_batch_is_one_failure():
    data = record(b"not zlib", sys_flag=0xC1)
    (failure,) = decode_messages(data)
    assert isinstance(failure, DecodeFailure)
    assert "body is not valid zlib" in failure.error
    assert failure.raw == data


def test_the_inner_batches_of_one_call_share_one_bound():
    """Otherwise a frame of small records could inflate to many GiB, item by item."""
    bomb = record(deflate_zlib(b"\0" * (15 << 20)), sys_flag=0xC1)
    found = decode_messages(bomb * 8)
    errors = [one.error for one in found if isinstance(one, DecodeFailure)]
    assert len(errors) == 8
    assert errors[-1] == "inner batches inflate to more than 67108864 bytes in all"


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\0" * 21,
        b"\xff" * 40,
        encode_batch(ITEMS)[:-1],
        encode_batch(ITEMS) + b"x",
    ],
)
def test_bytes_that_are_not_a_batch_are_refused(data):
    assert re.match(r"batch item \d+ at byte", split_batch(data)[1])


items = st.builds(
    BatchItem,
    body=st.binary(max_size=40),
    properties=st.dictionaries(
        st.sampled_from(["KEYS", "TAGS", "a", "é"]),
        st.sampled_from(["x", "库存", "\x01"]),
    ),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
)


@given(st.lists(items, max_size=5))
def test_what_is_written_is_read_back(sent):
    assert decode_batch(encode_batch(sent)) == sent


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(data):
    spans, error = split_batch(data)
    assert error or sum(span.end - span.at for span in spans) == len(data)


def test_properties_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="exceed the limit of 32767"):
        encode_batch([BatchItem(b"", {"a": "x" * 32767})])
