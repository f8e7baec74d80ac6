"""JSON lines to messages: what tail prints comes back byte for byte, or not at all."""

from __future__ import annotations

import json

import pytest

from rmqcli.errors import UsageError
from rmqcli.producer.records import parse_record


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
            {"body_json": {"b": 1, "a": [1.5, None, "é"]}},
            '{"b":1,"a":[1.5,null,"é"]}'.encode(),
        ),
        # A body that is JSON's null is not an absent one.
        ({"body_json": None, "body_encoding": "json"}, b"null"),
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


@pytest.mark.parametrize(
    "name",
    [
        *("UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "TRAN_MSG", "DELAY"),
        *("REAL_TOPIC", "REAL_QID", "INNER_NUM", "INNER_BASE", "POP_CK"),
        *("MIN_OFFSET", "MAX_OFFSET", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "__CRC32#"),
    ],
)
def test_what_clients_and_brokers_wrote_is_not_sent_again(name):
    assert parsed({"body": "x", "properties": {name: "1"}}).properties == {}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object but a list"),
        ('"x"', "not a JSON object but text"),
        ("null", "not a JSON object but null"),
        ('{"body_json":NaN}', "NaN is not a JSON value"),
        # Python reads it as infinity, which JSON cannot express.
        ('{"body_json":[1e999]}', "too large to keep"),
        ("[" * 100_000, "nested too deeply"),
        ({"tags": "A"}, "one of body, body_json, body_b64 is needed: none"),
        ({"body": "x", "body_json": 1}, "body and body_json"),
        ({"body": None, "error": "crc"}, "it has no body: crc"),
        ({"body": 1}, "body is not text but a number"),
        ({"body": "\ud800"}, "body is not valid Unicode"),
        ({"body_b64": "a"}, "body_b64 is not base64"),
        ({"body_b64": "AP8=\n"}, "body_b64 is not base64"),
        ({"body": "x", "body_encoding": "rot13"}, "'rot13' is not one of"),
        ({"body": "x", "body_encoding": "json"}, "there is no body_json"),
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


def test_bytes_that_are_not_utf8_are_named():
    with pytest.raises(UsageError, match="line 3: not UTF-8"):
        parse_record(b'{"body":"\xff"}', source="line 3")
