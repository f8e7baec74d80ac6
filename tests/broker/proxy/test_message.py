"""What the proxy makes of a message to send, and of one that is stored."""

from __future__ import annotations

import pytest

from rmqcli.broker.proxy.caller import Caller
from rmqcli.broker.proxy.message import (
    grpc_message,
    made_up_message,
    properties_of,
    sys_flag_of,
)
from rmqcli.broker.proxy.status import ProxyError
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.protobuf import definition_pb2 as d
from tests.kit.proxy.raw_client import message, ms
from tests.kit.rows import each_row

NOW_MS = 1_700_000_000_000
CALLER = Caller(
    client_id="c", language="JAVA", version="5", address="10.0.0.9:5", left_ms=None
)
#: The MD5 of b"hello".
DIGEST = "5D41402ABC4B2A76B9719D911017C592"


def properties(**system):
    return properties_of(message("T", **system), CALLER, NOW_MS)


def refused(**system):
    """The name of the code with which a message is refused; None if it is taken."""
    try:
        properties(**system)
    except ProxyError as error:
        return d.Code.Name(error.code)
    return None


def recovering(seconds):
    return {
        "message_type": d.MessageType.TRANSACTION,
        "orphaned_transaction_recovery_duration": ms(
            d.SystemProperties().orphaned_transaction_recovery_duration,
            int(seconds * 1_000),
        ),
    }


def stored(**fields):
    record = encode_message(MessageFields(topic="T", body=b"hello", **fields))
    (found,) = decode_messages(record)
    assert isinstance(found, StoredMessage)
    return found


def system_of(*, attempt=None, queue_offset=None, **fields):
    made = grpc_message(
        stored(**fields), topic="T", attempt=attempt, queue_offset=queue_offset
    )
    return made.system_properties


LIMIT = 16 * 1024


@each_row(
    ("system", "code"),
    [
        ({"user_properties": {"k": "v" * (LIMIT - 1)}}, None),
        ({"user_properties": {"k": "v" * LIMIT}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"user_properties": {"é": "é" * (LIMIT // 2 - 1)}}, None),
        (
            {"user_properties": {"é": "é" * (LIMIT // 2)}},
            "MESSAGE_PROPERTIES_TOO_LARGE",
        ),
        ({"tag": "t" * LIMIT}, None),
        ({"tag": "t" * (LIMIT + 1)}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"keys": ["k" * (LIMIT - 1), "k"]}, None),
        ({"keys": ["k" * LIMIT, "k"]}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        (
            {"tag": "t", "keys": ["k"], "user_properties": {"k": "v" * (LIMIT - 3)}},
            None,
        ),
        (
            {"tag": "t", "keys": ["k"], "user_properties": {"k": "v" * (LIMIT - 2)}},
            "MESSAGE_PROPERTIES_TOO_LARGE",
        ),
        (recovering(3_600.999), None),
        (recovering(3_601), "BAD_REQUEST"),
        ({"delivery_ms": NOW_MS + 86_400_000}, None),
        ({"delivery_ms": NOW_MS + 86_400_001}, "ILLEGAL_DELIVERY_TIME"),
        ({"message_group": "g" * 63}, None),
        ({"message_group": "g" * 64}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": "é" * 31}, None),
        ({"message_group": "é" * 32}, "ILLEGAL_MESSAGE_GROUP"),
        ({"priority": 0}, None),
        ({"priority": -1}, "INTERNAL_SERVER_ERROR"),
        ({"message_id": " "}, "ILLEGAL_MESSAGE_ID"),
        ({"user_properties": {"a\x01": "b"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ],
)
def test_a_message_is_taken_up_to_each_limit(system, code):
    assert refused(**system) == code


def test_a_message_has_the_properties_that_brokers_and_clients_need():
    sent = message(
        "T",
        tag="A",
        keys=["k1", "k2"],
        message_id="0123",
        delivery_attempt=3,
        born_host=" here ",
        trace_context="trace",
        user_properties={"colour": "blue"},
    )
    sent.system_properties.born_timestamp.FromMilliseconds(NOW_MS - 5)
    assert properties_of(sent, CALLER, NOW_MS) == {
        "colour": "blue",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "0123",
        "RECONSUME_TIME": "3",
        "PGROUP": "T",
        "TRACE_CONTEXT": "trace",
        "__BORNHOST": "here",
        "BORN_TIMESTAMP": "1699999999995",
    }


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ({"born_host": " "}, {"__BORNHOST": "10.0.0.9:5"}),
        ({"message_group": "g"}, {"__SHARDINGKEY": "g"}),
        ({"lite_topic": "x"}, {"__LITE_TOPIC": "x"}),
        ({"priority": 0}, {"_SYS_MSG_PRIORITY_": "0"}),
        ({"delivery_ms": NOW_MS + 1}, {"TIMER_DELIVER_MS": "1700000000001"}),
        (
            recovering(9.999),
            {"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "9"},
        ),
    ],
)
def test_each_kind_of_message_has_properties_of_its_own(system, expected):
    found = properties(**system)
    common = {"UNIQ_KEY", "RECONSUME_TIME", "PGROUP", "BORN_TIMESTAMP"}
    assert {key: found[key] for key in found.keys() - common} == {
        "__BORNHOST": "here",
        **expected,
    }


@pytest.mark.parametrize(
    ("encoding", "kind", "flag"),
    [
        (d.Encoding.IDENTITY, d.MessageType.NORMAL, 0),
        (d.Encoding.GZIP, d.MessageType.NORMAL, 1),
        (d.Encoding.IDENTITY, d.MessageType.TRANSACTION, 4),
        (d.Encoding.GZIP, d.MessageType.TRANSACTION, 5),
    ],
)
def test_the_flag_says_what_is_compressed_or_a_half_message(encoding, kind, flag):
    sent = message("T", body_encoding=encoding, message_type=kind)
    assert sys_flag_of(sent) == flag


def test_a_stored_message_without_properties_comes_with_what_the_record_has():
    found = grpc_message(
        stored(
            queue_id=3,
            queue_offset=7,
            commit_log_offset=0x20,
            reconsume_times=2,
            born_timestamp_ms=NOW_MS - 5,
            born_host="10.0.0.2:50",
            store_timestamp_ms=NOW_MS,
            store_host="10.0.0.1:10911",
        ),
        topic="asked",
    )
    expected = d.Message(
        topic=d.Resource(name="asked"),
        body=b"hello",
        system_properties=d.SystemProperties(
            message_id="0A00000100002A9F0000000000000020",
            body_digest=d.Digest(type=d.DigestType.MD5, checksum=DIGEST),
            body_encoding=d.Encoding.IDENTITY,
            message_type=d.MessageType.NORMAL,
            born_host="10.0.0.2:50",
            store_host="10.0.0.1:10911",
            queue_id=3,
            queue_offset=7,
            delivery_attempt=3,
        ),
    )
    expected.system_properties.born_timestamp.FromMilliseconds(NOW_MS - 5)
    expected.system_properties.store_timestamp.FromMilliseconds(NOW_MS)
    assert found == expected


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"reconsume_times": 5, "attempt": 1}, "delivery_attempt", 1),
        ({"queue_offset": 0}, "queue_offset", 0),
        ({"sys_flag": 1}, "body_encoding", d.Encoding.GZIP),
        ({"properties": {"KEYS": "a b"}}, "keys", ["a", "b"]),
        ({"properties": {"_SYS_MSG_PRIORITY_": "2147483647"}}, "priority", 2**31 - 1),
        ({"properties": {"__SHARDINGKEY": "g"}}, "message_group", "g"),
        ({"properties": {"__LITE_TOPIC": "x"}}, "lite_topic", "x"),
    ],
)
def test_what_a_stored_message_has_comes_with_it(fields, name, value):
    assert getattr(system_of(**fields), name) == value


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        ("1700000000001", 1_700_000_000_001),
        ("9" * 18, 253_402_300_799_999),
        *(("9" * 19, None), ("-1", None), ("soon", None), ("٣", None)),
    ],
)
def test_a_delivery_time_is_one_that_a_timestamp_can_be(text, due_ms):
    system = system_of(properties={"TIMER_DELIVER_MS": text})
    found = system.delivery_timestamp.ToMilliseconds()
    assert (found if system.HasField("delivery_timestamp") else None) == due_ms


@pytest.mark.parametrize(
    ("time_ms", "expected_ms"),
    [
        (-62_135_596_800_000, -62_135_596_800_000),
        (-62_135_596_800_001, -62_135_596_800_000),
        (253_402_300_799_999, 253_402_300_799_999),
        (253_402_300_800_000, 253_402_300_799_999),
    ],
)
def test_a_stored_time_may_be_any_number(time_ms, expected_ms):
    system = system_of(born_timestamp_ms=time_ms, store_timestamp_ms=time_ms)
    assert system.born_timestamp.ToMilliseconds() == expected_ms
    assert system.store_timestamp.ToMilliseconds() == expected_ms


@pytest.mark.parametrize("text", ["2147483648", "-1", "high"])
def test_a_priority_that_is_no_number_of_a_client_is_left_out(text):
    assert not system_of(properties={"_SYS_MSG_PRIORITY_": text}).HasField("priority")


def test_a_dead_letter_says_where_it_was():
    both = {"DLQ_ORIGIN_TOPIC": "T0", "DLQ_ORIGIN_MESSAGE_ID": "m"}
    letter = system_of(properties=both).dead_letter_queue
    assert (letter.topic, letter.message_id) == ("T0", "m")
    for name in both:
        one = system_of(properties={name: both[name]})
        assert not one.HasField("dead_letter_queue")


@pytest.mark.parametrize(
    ("topic", "namespace", "name"),
    [
        ("orders", "", "orders"),
        ("%DLQ%billing", "", "%DLQ%billing"),
        ("%orders", "", "%orders"),
        ("NS1%orders", "NS1", "orders"),
        ("NS1%orders%new", "NS1", "orders%new"),
        ("%DLQ%NS1%billing", "NS1", "%DLQ%billing"),
    ],
)
def test_the_topic_of_a_message_is_split_into_namespace_and_name(
    topic, namespace, name
):
    made = grpc_message(stored(), topic=topic, attempt=None, queue_offset=None)
    resource = d.Resource(resource_namespace=namespace, name=name)
    assert made.topic == resource
    assert made_up_message(topic, b"hello", None, NOW_MS).topic == resource


def test_a_made_up_message_looks_like_one_that_was_stored():
    found = made_up_message("T", b"hello", "A", 0xABC)
    expected = d.Message(
        topic=d.Resource(name="T"),
        body=b"hello",
        system_properties=d.SystemProperties(
            tag="A",
            message_id=f"01{0xABC:032X}",
            body_digest=d.Digest(type=d.DigestType.MD5, checksum=DIGEST),
            body_encoding=d.Encoding.IDENTITY,
            message_type=d.MessageType.NORMAL,
            delivery_attempt=1,
        ),
    )
    expected.system_properties.born_timestamp.FromMilliseconds(0xABC)
    expected.system_properties.store_timestamp.FromMilliseconds(0xABC)
    assert found == expected
