"""Messages between protobuf and ours: bodies, digests, compression, the attributes."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import lz4.frame
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import DecodeError
from rmqcli.proxy.endpoints import Endpoints
from rmqcli.proxy.message import (
    OutgoingProxyMessage,
    ProxyMessage,
    damage_of,
    inflate_any,
    milliseconds,
)
from rmqcli.wire.protobuf import definition_pb2 as pb
from tests.kit.zstd import zstd

HERE = Endpoints("ipv4", (("127.0.0.1", 8081),))


def received(body=b"hello", **system):
    raw = pb.Message(body=body, user_properties={"colour": "red"})
    raw.topic.name = "orders"
    for name, value in system.items():
        if name.endswith("_ms"):
            getattr(raw.system_properties, name[:-3]).FromMilliseconds(value)
        elif name == "keys":
            raw.system_properties.keys.extend(value)
        elif name == "digest":
            raw.system_properties.body_digest.type = value[0]
            raw.system_properties.body_digest.checksum = value[1]
        else:
            setattr(raw.system_properties, name, value)
    return ProxyMessage(raw, broker_name="broker-a", endpoints=HERE)


def test_a_message_has_the_attributes_of_one_of_the_remoting_protocol():
    message = received(
        tag="Paid",
        keys=["a", "b"],
        message_id="01AB",
        queue_id=3,
        queue_offset=17,
        born_timestamp_ms=1_700_000_000_123,
        store_timestamp_ms=1_700_000_000_456,
        born_host="10.0.0.1",
        store_host="10.0.0.2",
        delivery_attempt=4,
        receipt_handle="h",
        message_group="g",
    )
    assert (message.topic, message.broker_name, message.queue_id) == (
        "orders",
        "broker-a",
        3,
    )
    assert (message.body, message.tags, message.keys) == (b"hello", "Paid", "a b")
    assert (message.msg_id, message.queue_offset) == ("01AB", 17)
    assert message.properties == {"colour": "red"}
    assert message.born_timestamp_ms == 1_700_000_000_123
    assert message.store_timestamp_ms == 1_700_000_000_456
    assert (message.delivery_attempt, message.reconsume_times) == (4, 3)
    assert (message.receipt_handle, message.message_group) == ("h", "g")
    assert (message.body_bytes, message.endpoints) == (5, HERE)


@pytest.mark.parametrize(
    ("namespace", "name", "topic"),
    [
        ("", "orders", "orders"),
        ("", "%DLQ%billing", "%DLQ%billing"),
        ("NS1", "orders", "NS1%orders"),
        ("NS1", "%DLQ%billing", "%DLQ%NS1%billing"),
        ("NS1", "%RETRY%billing", "%RETRY%NS1%billing"),
    ],
)
def test_a_topic_has_the_name_that_brokers_know(namespace, name, topic):
    raw = pb.Message(topic=pb.Resource(resource_namespace=namespace, name=name))
    message = ProxyMessage(raw, broker_name="broker-a", endpoints=HERE)
    assert (message.topic, message.message_queue.topic) == (topic, topic)


def test_what_a_proxy_leaves_out_is_none():
    message = received()
    assert message.tags is message.keys is message.message_group is None
    assert message.queue_offset is message.store_timestamp_ms is None
    assert message.delivery_attempt == 1


@pytest.mark.parametrize(
    ("kind", "checksum"),
    [
        (pb.DigestType.MD5, "5D41402ABC4B2A76B9719D911017C592"),
        (pb.DigestType.SHA1, "AAF4C61DDCC5E8A2DABEDE0F3B482CD9AEA9434D"),
        (pb.DigestType.CRC32, "3610A686"),
    ],
)
def test_a_body_is_compared_with_its_digest(kind, checksum):
    assert received(digest=(kind, checksum)).body == b"hello"
    damaged = received(body=b"hallo", digest=(kind, checksum))
    with pytest.raises(DecodeError, match=pb.DigestType.Name(kind)):
        _ = damaged.body
    assert damaged.raw_body == b"hallo"


def test_a_crc_with_leading_zeros_may_come_without_them():
    for text in ("0A6216D9", "A6216D9"):
        found = received(body=b"33", digest=(pb.DigestType.CRC32, text))
        assert found.damage is None


def test_a_digest_of_an_unknown_kind_is_not_compared():
    assert damage_of(received(digest=(99, "x")).raw) is None


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_gzip_says_only_that_a_body_is_compressed(compress):
    message = received(body=compress(b"hello" * 100), body_encoding=pb.Encoding.GZIP)
    assert message.body == b"hello" * 100


@pytest.mark.parametrize("compress", [lz4.frame.compress, zstd.compress])
def test_gzip_is_said_of_bodies_that_remoting_clients_compress_otherwise(compress):
    """Consumers got the compressed bytes as the body."""
    data = compress(b"hello" * 100)
    message = received(body=data, body_encoding=pb.Encoding.GZIP)
    assert message.body == b"hello" * 100
    with pytest.raises(DecodeError, match="truncated"):
        inflate_any(data[:-2])
    with pytest.raises(DecodeError, match="more than 499 bytes"):
        inflate_any(data, limit_bytes=499)


def test_a_body_marked_as_plain_is_not_inflated():
    data = gzip.compress(b"a file of the user's")
    assert received(body=data, body_encoding=pb.Encoding.IDENTITY).body == data


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_inflating_has_a_limit(compress):
    data = compress(bytes(1_000))
    assert inflate_any(data, limit_bytes=1_000) == bytes(1_000)
    with pytest.raises(DecodeError, match="more than 999 bytes"):
        inflate_any(data, limit_bytes=999)
    with pytest.raises(DecodeError, match="is truncated"):
        inflate_any(data[:-5])


def test_what_inflates_to_far_too_much_takes_no_memory():
    data = zlib.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than 1000 bytes"):
            inflate_any(data, limit_bytes=1_000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"xyz, with the first byte of zlib",
        bytes([0x00, 0x1F]),  # with a sum as in zlib, but another method
        b"\x1f\x8c",
    ],
)
def test_what_begins_as_no_compressed_data_is_unchanged(data):
    assert inflate_any(data) == data


@pytest.mark.parametrize("data", [b"x\x9c", b"\x1f\x8b"])
def test_two_bytes_decide_that_data_is_compressed(data):
    with pytest.raises(DecodeError, match="zlib body is truncated after 2 bytes"):
        inflate_any(data)


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [(0, 0, 0), (2, 750_000_000, 2_750), (1, 1_999_999, 1_001), (-1, 0, -1_000)],
)
def test_times_are_cut_to_milliseconds(seconds, nanos, expected):
    found = milliseconds(Timestamp(seconds=seconds, nanos=nanos))
    assert (found, type(found)) == (expected, int)


@given(st.binary(max_size=64))
def test_random_bytes_inflate_or_are_an_error(data):
    with suppress(DecodeError):
        inflate_any(data)


def test_a_message_to_send_says_what_it_is():
    message = OutgoingProxyMessage(
        topic="orders",
        body=b"x",
        msg_id="01AB",
        message_type=int(pb.MessageType.DELAY),
        born_timestamp_ms=1_500,
        born_host="10.0.0.1",
        tag="Paid",
        keys=("a", "b"),
        properties={"colour": "red"},
        delivery_timestamp_ms=2_750,
    ).to_protobuf()
    system = message.system_properties
    assert (message.topic.name, message.body) == ("orders", b"x")
    assert dict(message.user_properties) == {"colour": "red"}
    assert (system.tag, list(system.keys)) == ("Paid", ["a", "b"])
    assert (system.message_id, system.born_host) == ("01AB", "10.0.0.1")
    assert system.message_type == pb.MessageType.DELAY
    assert system.body_encoding == pb.Encoding.IDENTITY
    assert (system.born_timestamp.seconds, system.born_timestamp.nanos) == (
        1,
        500_000_000,
    )
    assert (system.delivery_timestamp.seconds, system.delivery_timestamp.nanos) == (
        2,
        750_000_000,
    )
    assert not system.HasField("message_group")


def test_a_message_to_send_has_what_only_some_have():
    system = (
        OutgoingProxyMessage(
            topic="orders",
            body=b"x",
            msg_id="01AB",
            message_type=int(pb.MessageType.FIFO),
            born_timestamp_ms=1_500,
            message_group="g",
        )
        .to_protobuf()
        .system_properties
    )
    assert system.message_group == "g"
    assert not system.HasField("tag")
    assert not system.HasField("delivery_timestamp")
