"""Messages are encoded to the same bytes as by RocketMQ's own encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqcli.wire.ids import crc32
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.layout import MAGIC_V1, MAGIC_V2
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row
from tests.wire.message.test_decode import HELLO, as_java, check

if TYPE_CHECKING:
    from collections.abc import Iterator


def fields_of(message: StoredMessage) -> MessageFields:
    return MessageFields(
        topic=message.topic,
        body=message.raw_body,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        properties=message.raw_properties,
    )


@each_row(
    "case",
    [
        pytest.param(case, id=f"{case['rocketmq']} {case['name']}")
        for case in load("messages")
        if case.get("crc_ok") is not False and "magic" not in case["name"]
    ],
)
def test_every_record_of_java_is_written_byte_for_byte(case):
    """The encoders are `MessageDecoder.encode` and the store's `MessageExtEncoder`."""
    data = from_base64(case["bytes_b64"])
    (message,) = decode_messages(data)
    assert isinstance(message, StoredMessage)
    magic = int.from_bytes(data[4:8], "big")
    assert encode_message(fields_of(message), magic=magic) == data


def commit_log(version: str) -> Iterator[dict[str, Any]]:
    for case in load(f"store-{version}-commitlog"):
        if "end_of_file" not in case:
            yield {key: case[key] for key in case if key not in ("file", "at")}


def fields_of_case(case: dict[str, Any]) -> MessageFields:
    """Return the fields of a stored message, without the bit for compressed bodies.

    The bodies in the golden files are inflated.
    """
    return MessageFields(
        topic=case["topic"],
        body=from_base64(case["body_b64"]),
        queue_id=case["queue_id"],
        queue_offset=case["queue_offset"],
        commit_log_offset=case["commit_log_offset"],
        flag=case["flag"],
        sys_flag=case["sys_flag"] & ~1,
        born_timestamp_ms=case["born_timestamp_ms"],
        born_host=case["born_host"],
        store_timestamp_ms=case["store_timestamp_ms"],
        store_host=case["store_host"],
        reconsume_times=case["reconsume_times"],
        prepared_transaction_offset=case["prepared_transaction_offset"],
        properties=case["properties"],
    )


@pytest.mark.parametrize("version", ["4.6.0", "5.5.0"])
@pytest.mark.parametrize("kind", ["commitlog", "messages"])
def test_what_real_brokers_stored_is_written_and_read(version, kind):
    """Sizes and checksums differ only for bodies that were stored compressed."""
    cases = (
        list(commit_log(version))
        if kind == "commitlog"
        else load(f"store-{version}-messages")
    )
    data = b"".join(encode_message(fields_of_case(case)) for case in cases)
    found = decode_messages(data)
    assert len(found) == len(cases)
    compressed = 0
    for message, case in zip(found, cases, strict=True):
        assert isinstance(message, StoredMessage)
        assert message.body_crc == crc32(message.raw_body)
        if message.body_crc == case["body_crc"]:
            check(message, {**case, "sys_flag": case["sys_flag"] & ~1})
        else:
            compressed += 1
            got, expected = as_java(message), dict(case)
            for name in ("store_size", "body_crc"):
                del got[name], expected[name]
            del expected["sys_flag"]
            assert message.body == from_base64(expected.pop("body_b64"))
            assert got == expected
    assert 0 < compressed < len(cases) / 4


def test_the_bytes_of_a_record_that_java_wrote():
    fields = MessageFields(
        topic="TopicT",
        body=b"hello",
        queue_id=3,
        queue_offset=5,
        commit_log_offset=1000,
        born_timestamp_ms=1700000000000,
        born_host="10.0.0.1:12345",
        store_timestamp_ms=1700000000123,
        store_host="10.0.0.2:10911",
        reconsume_times=1,
        properties={
            "TAGS": "TagA",
            "KEYS": "k1 k2",
            "UNIQ_KEY": "0A00000100002A139A550000000A0000",
        },
    )
    assert encode_message(fields) == HELLO


def test_a_long_topic_makes_a_record_of_the_second_version():
    """V1 stores the length of the topic in one signed byte."""
    v1 = encode_message(MessageFields(topic="t" * 127))
    v2 = encode_message(MessageFields(topic="t" * 128))
    assert v1[4:8] == MAGIC_V1.to_bytes(4, "big")
    assert v2[4:8] == MAGIC_V2.to_bytes(4, "big")
    found = decode_messages(v1 + v2)
    assert [len(one.topic) for one in found if isinstance(one, StoredMessage)] == [
        127,
        128,
    ]


@pytest.mark.parametrize(
    ("fields", "magic"),
    [
        (MessageFields(topic="t" * 128), MAGIC_V1),
        (MessageFields(topic="t" * 32768), None),
        (MessageFields(topic="t", properties="x" * 32768), None),
        (MessageFields(topic="t", properties={"a": "x" * 32766}), None),
    ],
)
def test_topic_and_properties_that_are_too_long_are_refused(fields, magic):
    with pytest.raises(ValueError, match=r"exceeds? the limit of"):
        encode_message(fields, magic=magic)
