"""The fast lines are those that encoding the record would give."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.admin.read.record import record_of
from rmqcli.admin.read.record_json import JsonLines
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)

BODIES = [
    b"",
    b"plain",
    b"\x00\xff",
    "naïve".encode(),
    b'{"id":1,"amount":1.5}',
    b'{"id":1,"amount":1.50}',
    b"[NaN]",
    b'{"a":1,"a":2}',
    b"[" * 100_000 + b"]" * 100_000,
    b'{"lone":"\\ud800"}',
    b'{"lone":"\xed\xa0\x80"}',
    b'{"a":1} ',
    b'{"a":1}{"b":2}',
    '{"a":1}'.encode("utf-16-le"),
    b"\x1b[2J\x7f",
]


def line_and_record(fields: MessageFields) -> tuple[str, dict[str, object]]:
    (message,) = decode_messages(encode_message(fields))
    (line,) = JsonLines().lines(QUEUE, [message])
    return line, record_of(QUEUE, message)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_each_kind_of_body(body: bytes) -> None:
    line, record = line_and_record(MessageFields(topic="orders", body=body))
    assert json.loads(line) == record


@pytest.mark.parametrize(
    "body", [b'{"id":1,"amount":1.5}', b'["\xc3\xa4",null]', b"{}"]
)
def test_compact_json_is_nested(body: bytes) -> None:
    line, record = line_and_record(MessageFields(topic="t", body=body))
    assert record["body_json"] == json.loads(body)
    assert f'"body_json":{body.decode()},' in line


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1} ',
        b'{"a":1}{"b":2}',
        b'{"a": 1}',
        b'{"a":1,"a":2}',
        b"[1.50]",
        b"[NaN]",
    ],
)
def test_what_would_not_be_written_so_is_text(body: bytes) -> None:
    _, record = line_and_record(MessageFields(topic="t", body=body))
    assert record["body"] == body.decode()


def test_an_amount_keeps_its_zero() -> None:
    line, _ = line_and_record(MessageFields(topic="t", body=b'{"amount":1.50}'))
    assert json.loads(line)["body"] == '{"amount":1.50}'


@settings(max_examples=300)
@given(
    properties=st.one_of(
        st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", 'q"', "XTAGS", "用户"]),
            st.text(max_size=8).filter(lambda text: "\x02" not in text),
        ),
        st.text(alphabet='\x01\x02aTAGS"\\ü', max_size=20),
    ),
    times=st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1)] * 2),
    place=st.integers(-(1 << 63), (1 << 63) - 1),
    hosts=st.tuples(*[st.sampled_from(["1.2.3.4:5", "[::1]:9", "0.0.0.0:0"])] * 2),
)
def test_any_message(
    properties: dict[str, str] | str,
    times: tuple[int, int],
    place: int,
    hosts: tuple[str, str],
) -> None:
    fields = MessageFields(
        topic="orders",
        body=b"x",
        properties=properties,
        born_timestamp_ms=times[0],
        store_timestamp_ms=times[1],
        commit_log_offset=place,
        born_host=hosts[0],
        store_host=hosts[1],
    )
    line, record = line_and_record(fields)
    assert json.loads(line) == record
    assert list(json.loads(line)) == list(record)


def test_what_cannot_be_decoded_is_a_record_with_its_bytes() -> None:
    data = bytearray(
        encode_message(MessageFields(topic="t", body=b"x", queue_offset=7))
    )
    data[4] ^= 0xFF  # the magic
    lines = JsonLines().lines(QUEUE, decode_messages(bytes(data)))
    record = json.loads(lines[0])
    assert record["broker_name"] == "broker-a"
    assert record["queue_offset"] in (7, None)
    assert record["error"]
    assert record["raw_b64"]
