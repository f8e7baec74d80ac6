"""Stored messages are decoded as in RocketMQ's own client, and none is lost.

The vectors were written and read back by 4.6.0, 4.9.7, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.errors import DecodeError
from rmqcli.wire.ids import crc32
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.record import has_key
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row

#: A record of Java: body "hello", queue 3, offset 5, topic TopicT.
HELLO = bytes.fromhex(
    "000000a5daa320a73610a6860000000300000000000000000000000500000000000003e8000000000000"
    "018bcfe568000a000001000030390000018bcfe5687b0a00000200002a9f000000010000000000000000"
    "0000000568656c6c6f06546f70696354003f544147530154616741024b455953016b31206b3202554e49"
    "515f4b455901304130303030303130303030324131333941353530303030303030413030303002"
)


#: MESSAGE_MAGIC_CODE and MESSAGE_MAGIC_CODE_V2, at byte 4 of a record.
MAGICS = (bytes.fromhex("daa320a7"), bytes.fromhex("daa320ab"))


def stored(case: dict[str, Any]) -> StoredMessage:
    """Decode the only message of a vector."""
    (message,) = decode_messages(from_base64(case["bytes_b64"]))
    assert isinstance(message, StoredMessage)
    return message


def as_java(message: StoredMessage) -> dict[str, Any]:
    """Return the message with the vectors' keys, without body and sysFlag (`check`)."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "store_size": message.store_bytes,
        "flag": message.flag,
        "body_crc": message.body_crc,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "properties": message.properties,
        "tags": message.tags,
        "keys": message.keys,
        "offset_msg_id": message.offset_msg_id,
    }


def check(message: StoredMessage | DecodeFailure, expected: dict[str, Any]) -> None:
    assert isinstance(message, StoredMessage)
    expected = dict(expected)
    assert message.body == from_base64(expected.pop("body_b64"))
    # Java clears the "compressed" bit when it inflates; ours keeps the stored value.
    sys_flag = expected.pop("sys_flag")
    assert message.sys_flag in (sys_flag, sys_flag | 1)
    assert as_java(message) == expected


def has_known_magic(case: dict[str, Any]) -> bool:
    """Whether a record has a known magic: 4.6.0 and 4.9.7 do not check it, 5.x does."""
    return from_base64(case["bytes_b64"])[4:8] in MAGICS


def cases(*, readable: bool) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['rocketmq']} {case['name']}")
        for case in load("messages")
        if (case["expected"] is not None and has_known_magic(case)) is readable
    ]


@each_row("case", cases(readable=True))
def test_a_message_is_read_as_java_reads_it(case):
    message = stored(case)
    check(message, case["expected"])
    assert (message.msg_id or message.offset_msg_id) == case["msg_id"]
    assert message.raw_body == from_base64(case["raw_body_b64"])
    assert message.sys_flag == case["raw_sys_flag"]
    assert message.store_bytes == case["bytes_consumed"]


@each_row("case", cases(readable=True))
def test_single_properties_are_the_same_before_and_after_parsing_all(case):
    """They are searched in the raw bytes until all properties have been parsed."""
    message = stored(case)
    before = (message.tags, message.keys, message.msg_id)
    properties = message.properties
    after = (message.tags, message.keys, message.msg_id)
    assert before == after
    assert after == tuple(map(properties.get, ("TAGS", "KEYS", "UNIQ_KEY")))


@each_row("case", cases(readable=False))
def test_a_record_that_java_cannot_read_is_a_failure_with_its_position(case):
    data = from_base64(case["bytes_b64"])
    (found,) = decode_messages(data)
    if not has_known_magic(case):
        assert isinstance(found, DecodeFailure)
        magic = data[4:8].hex().upper()
        assert found.error == f"magic 0x{magic} is not that of a known message version"
        assert found.raw == data
    else:
        assert isinstance(found, StoredMessage)
        assert found.raw_body == from_base64(case["raw_body_b64"])
        with pytest.raises(DecodeError):
            _ = found.body


@each_row(
    "case",
    [
        case
        for case in load("messages")
        if case.get("crc_ok") is not None
        and case["expected"] is not None
        and has_known_magic(case)
    ],
)
def test_a_message_is_read_whether_or_not_the_crc_of_its_body_is_right(case):
    (found,) = decode_messages(from_base64(case["bytes_b64"]))
    assert isinstance(found, StoredMessage)
    assert (crc32(found.raw_body) == found.body_crc) is case["crc_ok"]


@each_row(
    "case",
    [
        pytest.param(case, id=f"{case['rocketmq']} {case['name']}")
        for case in load("message-runs")
    ],
)
def test_a_run_gives_what_java_returns_and_a_failure_for_the_rest(case):
    """Java stops at the first record that it cannot read; this decoder continues.

    4.x reads a run of zeros as messages without a topic, and a record of any magic.
    """
    data = from_base64(case["bytes_b64"])
    found = decode_messages(data)
    messages = [one for one in found if isinstance(one, StoredMessage)]
    offsets = [one.queue_offset for one in messages]
    wanted = [
        one
        for one in case["expected_many"]
        if one["store_size"] or "total size 0" in case["name"]
    ]
    if "unknown magic" in case["name"]:  # 4.x reads the record, 5.x stops there
        wanted = [one for one in wanted if one["queue_offset"] in offsets]
    for message, expected in zip(messages, wanted, strict=False):
        check(message, expected)
    assert len(messages) >= len(wanted)
    covered = sum(
        len(one.raw) if isinstance(one, DecodeFailure) else one.store_bytes
        for one in found
    )
    if "total size" not in case["name"] and "end-of-file" not in case["name"]:
        assert covered == len(data), "no byte is dropped"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        # m: a message, F: a failure in place of a message
        ("good, then unknown magic, then good", "mFm"),
        ("good, then total size 0, then good", "mmm"),
        ("total size one too large in the middle", "mmm"),
        ("body length -1 in the middle", "mFm"),
        ("body length 16 MiB in the middle", "mFm"),
        ("end-of-file marker", "m"),  # filler, not a message
        ("good, then zeros", "mF"),
        ("zeros", "F"),
        ("three bytes", "F"),
        ("empty", ""),
        ("run of 2, last one cut", "mF"),
    ],
)
def test_damage_affects_only_the_damaged_record(name, shape):
    runs = [case for case in load("message-runs") if case["name"] == name]
    assert runs
    for case in runs:
        found = decode_messages(from_base64(case["bytes_b64"]))
        kinds = ["F" if isinstance(one, DecodeFailure) else "m" for one in found]
        assert "".join(kinds) == shape


def test_the_fields_of_a_record_that_java_wrote():
    (message,) = decode_messages(HELLO)
    assert isinstance(message, StoredMessage)
    assert message.body == b"hello"
    assert message.topic == "TopicT"
    assert (message.queue_id, message.queue_offset) == (3, 5)
    assert message.properties == {
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "0A00000100002A139A550000000A0000",
    }
    assert message.born_host == "10.0.0.1:12345"
    assert message.offset_msg_id == "0A00000200002A9F00000000000003E8"


def test_decoding_starts_anywhere_in_any_kind_of_buffer():
    """A frame's body may be a view of a larger buffer."""
    for buffer in (HELLO * 2, bytearray(HELLO * 2), memoryview(HELLO * 2)):
        found = decode_messages(buffer, start=len(HELLO))
        assert [one.at for one in found] == [len(HELLO)]


def test_repr_is_short_and_names_the_queue_offset():
    (message,) = decode_messages(HELLO)
    assert repr(message) == (
        "StoredMessage(topic='TopicT', queue_id=3, queue_offset=5, "
        "msg_id='0A00000100002A139A550000000A0000')"
    )


@pytest.mark.parametrize(
    ("keys", "key", "expected"),
    [
        ("k1 k2", "k1", True),
        ("k1 k2", "k2", True),
        ("k1 k2", "k1 k2", True),  # stored as two keys
        ("k1 k2", "k", False),
        ("k1 k2", "ID", True),
        (None, "ID", True),
        (None, "None", False),
        ("k1  k2", "", False),
        (None, "", False),
    ],
)
def test_a_message_has_its_id_and_each_of_its_keys(keys, key, expected):
    properties = {"UNIQ_KEY": "ID"} | ({} if keys is None else {"KEYS": keys})
    fields = MessageFields(topic="T", properties=properties)
    (message,) = decode_messages(encode_message(fields))
    assert isinstance(message, StoredMessage)
    assert has_key(message, key) is expected
