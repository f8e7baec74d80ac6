"""JSON lines to messages: what tail prints comes back byte for byte, or not at all."""

from __future__ import annotations

import json

import pytest

from rmqcli.decode import parse_decode
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from rmqcli.producer.records import parse_record
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.json import JsonWriter
from tests.decode.decoding import WITHOUT_FILES
from tests.kit.rows import each_row
from tests.wire.message.bodies import BODIES


def parsed(record):
    text = record if isinstance(record, str) else json.dumps(record)
    return parse_record(text.encode(), source="line 3")


@pytest.mark.parametrize(
    ("record", "body"),
    [
        ({"body": "hällo\n", "body_encoding": "utf-8"}, "hällo\n".encode()),
        ({"body": ""}, b""),
        ({"body": None, "body_b64": "AP8=", "body_encoding": "base64"}, b"\x00\xff"),
        ({"body_b64": ""}, b""),
        (
            {"value": {"b": 1, "a": [1.5, None, "é"]}},
            '{"b":1,"a":[1.5,null,"é"]}'.encode(),
        ),
        ({"value": "text", "body": None, "body_b64": None}, b'"text"'),
        ({"value": False}, b"false"),
        ({"value": 0, "body_encoding": "utf-8"}, b"0"),
        # As tail writes it with --decode json: the body is sent as it was.
        (
            {
                "body": '{ "a": 1.50, "b": 123456789012345678901 }',
                "body_encoding": "utf-8",
                "value": {"b": 123456789012345680000, "a": 1.5},
            },
            b'{ "a": 1.50, "b": 123456789012345678901 }',
        ),
        (
            {
                "body": "no JSON",
                "body_encoding": "utf-8",
                "value": None,
                "decode_error": "not JSON",
            },
            b"no JSON",
        ),
        ({"body": "null", "body_encoding": "utf-8", "value": None}, b"null"),
    ],
)
def test_body(record, body):
    assert parsed(record).body == body


def test_tags_keys_and_user_properties_are_taken_over():
    message = parsed(
        {
            "topic": "elsewhere",
            "queue_id": 3,
            "body": "x",
            "tags": "A",
            "keys": "k1  k2",
            "flag": 7,
            "properties": {
                "TAGS": "A",
                "KEYS": "k1  k2",
                "colour": "rot\x01grün",
                "__SHARDINGKEY": "s",
            },
        }
    )
    assert message.flag == 7
    assert message.source == "line 3"
    assert message.properties == {
        "TAGS": "A",
        "KEYS": "k1  k2",
        "colour": "rot\x01grün",
        "__SHARDINGKEY": "s",
    }


def test_keys_may_be_a_list():
    assert parsed({"body": "x", "keys": ["a", "b"]}).properties == {"KEYS": "a b"}


@each_row(
    "name",
    [
        *("UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "TRAN_MSG", "DELAY"),
        *("REAL_TOPIC", "REAL_QID", "INNER_NUM", "INNER_BASE", "POP_CK"),
        *("MIN_OFFSET", "MAX_OFFSET", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "__CRC32#"),
    ],
)
def test_what_clients_and_brokers_wrote_is_not_sent_again(name):
    assert parsed({"body": "x", "properties": {name: "1"}}).properties == {}


@each_row(
    ("record", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object but a list"),
        ('"x"', "not a JSON object but text"),
        ("null", "not a JSON object but null"),
        ('{"value":NaN}', "NaN is not a JSON value"),
        # Python reads it as infinity, which JSON cannot express.
        ('{"value":[1e999]}', "too large to keep"),
        ("[" * 100_000, "nested too deeply"),
        (
            {"tags": "A"},
            "exactly one of body, body_b64, value is needed: it has none",
        ),
        ({"value": None}, "exactly one of body, body_b64, value is needed"),
        ({"body": "x", "value": 1}, "it has body and value"),
        (
            {"body": "x", "body_b64": "eA==", "body_encoding": "utf-8"},
            "it has body and body_b64",
        ),
        ({"body_b64": "eA==", "body_encoding": "utf-8"}, "but there is no body"),
        (
            {"body": '{"a":1}', "body_encoding": "utf-8", "value": {"a": True}},
            "value is not the value of the body",
        ),
        (
            {"body": "no JSON", "body_encoding": "utf-8", "value": {}},
            "value is not the value of the body",
        ),
        (
            {"value": 1, "value_format": "cbor"},
            "value was read from cbor, and there is",
        ),
        ({"value": "\ud800"}, "value is not valid Unicode"),
        ({"body": None, "error": "crc"}, "it has no body: crc"),
        ({"body": 1}, "body is not text but a number"),
        ({"body": "\ud800"}, "body is not valid Unicode"),
        ({"body_b64": "a"}, "body_b64 is not base64"),
        ({"body_b64": "AP8=\n"}, "body_b64 is not base64"),
        ({"body": "x", "body_encoding": "rot13"}, "'rot13' is not one of"),
        ({"body": "x", "body_encoding": "json"}, "'json' is not one of utf-8, base64"),
        ({"body": "x", "body_encoding": ["utf-8"]}, "is not one of utf-8, base64"),
        ({"body": "x", "truncated": True}, "the body was cut"),
        ({"body": "x", "properties": []}, "properties are not an object but a list"),
        ({"body": "x", "properties": {"a": 1}}, "property 'a' is not text"),
        ({"body": "x", "tags": 1}, "tags are not text"),
        ({"body": "x", "keys": [1]}, "keys are not text but a list"),
        ({"body": "x", "flag": 1 << 31}, "not a whole number of 32 bits"),
        ({"body": "x", "flag": True}, "not a whole number"),
    ],
)
def test_a_bad_line_is_named(record, words):
    with pytest.raises(UsageError, match=r"^line 3: ") as caught:
        parsed(record)
    assert words in caught.value.message


@each_row("decode", [None, *map(parse_decode, WITHOUT_FILES)])
@each_row("body", BODIES, ids=range(len(BODIES)))
def test_a_body_that_tail_prints_is_sent_byte_for_byte(body, decode):
    data = encode_message(MessageFields(topic="T", body=body))
    queue = MessageQueue("T", "b", 0)
    [line] = JsonWriter(decode).lines(queue, decode_messages(data))
    assert parsed(line).body == body


def test_a_byte_order_mark_before_the_first_record_is_skipped():
    assert parse_record(b'\xef\xbb\xbf{"body":"x"}', source="line 1").body == b"x"


def test_bytes_that_are_not_utf8_are_named():
    with pytest.raises(UsageError, match="line 3: not UTF-8"):
        parse_record(b'{"body":"\xff"}', source="line 3")
