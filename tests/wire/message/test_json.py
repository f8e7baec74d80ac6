"""Each message becomes one line of JSON with the values of its attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.model import MessageQueue
from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.json import BODY_FIELDS, RECORD_FIELDS, JsonWriter
from tests.kit.doses import doses
from tests.kit.rows import each_row
from tests.wire.message.bodies import BODIES
from tests.wire.message.records_as_dicts import record_as_dict

QUEUE = MessageQueue("orders", "broker-a", 3)


def line_of(data: bytes) -> str:
    (line,) = JsonWriter().lines(QUEUE, decode_messages(data))
    return line


def record_with(body: bytes, **fields: Any) -> bytes:
    return encode_message(MessageFields(topic="orders", body=body, **fields))


def assert_lines_say_what_the_messages_say(data: bytes) -> None:
    messages = decode_messages(data)
    lines = JsonWriter().lines(QUEUE, messages)
    found = [json.loads(line) for line in lines]
    assert found == [record_as_dict(QUEUE, message) for message in messages]
    for line, message in zip(found, messages, strict=True):
        assert list(line) == list(record_as_dict(QUEUE, message))  # in the same order


def test_a_record_character_by_character() -> None:
    data = encode_message(
        MessageFields(
            topic="stored under another name",
            body=b'say "hi"\n',
            queue_id=1,
            queue_offset=7,
            commit_log_offset=4096,
            flag=5,
            sys_flag=8,
            born_timestamp_ms=1_700_000_000_000,
            born_host="10.0.0.1:12345",
            store_timestamp_ms=1_700_000_000_123,
            store_host="10.0.0.2:10911",
            reconsume_times=2,
            properties={"UNIQ_KEY": "0A", "TAGS": "TagA", "KEYS": "k1 k2", "x": "ä"},
        )
    )
    assert line_of(data) == (
        '{"topic":"orders","broker_name":"broker-a","queue_id":3,"queue_offset":7,'
        '"commit_log_offset":4096,"msg_id":"0A",'
        '"offset_msg_id":"0A00000200002A9F0000000000001000",'
        '"tags":"TagA","keys":"k1 k2",'
        '"born_timestamp":"2023-11-14T22:13:20.000Z",'
        '"store_timestamp":"2023-11-14T22:13:20.123Z",'
        '"born_host":"10.0.0.1:12345","store_host":"10.0.0.2:10911",'
        '"reconsume_times":2,"flag":5,"sys_flag":8,"store_bytes":163,'
        '"properties":{"UNIQ_KEY":"0A","TAGS":"TagA","KEYS":"k1 k2","x":"ä"},'
        '"body":"say \\"hi\\"\\n","body_b64":null,"body_encoding":"utf-8"}'
    )


@each_row("length", [0xFE, 0xFF, 0x100, 0x1FF, 0x200, 0x7FFF])
@each_row("sys_flag", [0, 0x10])  # 0x10: the producer's host is IPv6
def test_properties_of_any_length_are_in_the_record(length: int, sys_flag: int) -> None:
    host = "[::1]:9" if sys_flag else "1.2.3.4:9"
    value = "v" * (length - len("k\x01\x02"))
    data = record_with(
        b"body", properties={"k": value}, sys_flag=sys_flag, born_host=host
    )
    assert f'"properties":{{"k":"{value}"}},"body":"body"' in line_of(data)


def test_an_undecodable_record_character_by_character() -> None:
    data = bytearray(record_with(b"x", queue_offset=7, commit_log_offset=9))
    data[4:8] = b"\x12\x34\x56\x78"
    line = line_of(bytes(data))
    start, raw = line.split('"raw_b64":')
    assert start == (
        '{"topic":"orders","broker_name":"broker-a","queue_id":3,"queue_offset":7,'
        '"commit_log_offset":9,"msg_id":null,"offset_msg_id":null,"tags":null,'
        '"keys":null,"born_timestamp":null,"store_timestamp":null,"born_host":null,'
        '"store_host":null,"reconsume_times":null,"flag":null,"sys_flag":null,'
        '"store_bytes":98,"properties":null,'
        '"body":null,"body_b64":null,"body_encoding":null,'
        '"error":"magic 0x12345678 is not that of a known message version",'
    )
    assert json.loads(raw[:-1])[:12] == "AAAAYhI0VngM"
    assert_lines_say_what_the_messages_say(bytes(data))
    assert_lines_say_what_the_messages_say(b"\xff" * 40)  # without a readable offset


def test_every_record_has_the_documented_keys_in_their_order() -> None:
    names = [name for name, _ in (*RECORD_FIELDS, *BODY_FIELDS)]
    for body in BODIES:
        assert list(json.loads(line_of(record_with(body)))) == names


@each_row("body", BODIES, ids=lambda body: repr(body[:20]))
def test_a_body_is_text_if_it_is_utf8_and_base64_if_not(body: bytes) -> None:
    assert_lines_say_what_the_messages_say(record_with(body))


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (b'{"a":1}', '"body":"{\\"a\\":1}","body_b64":null,"body_encoding":"utf-8"'),
        (b'{"a": 1}', '"body":"{\\"a\\": 1}","body_b64":null,"body_encoding":"utf-8"'),
        (b"\xff", '"body":null,"body_b64":"/w==","body_encoding":"base64"'),
        (b"", '"body":"","body_b64":null,"body_encoding":"utf-8"'),
    ],
)
def test_blanks_in_a_body_do_not_change_the_shape_of_its_record(
    body: bytes, members: str
) -> None:
    """A program that read `body` got null for compact JSON, and text for other JSON."""
    assert line_of(record_with(body)).endswith(f",{members}}}")


def test_the_items_of_an_inner_batch_have_a_line_each() -> None:
    items = encode_batch([BatchItem(b"one", {"TAGS": "A"}), BatchItem(b"[1]")])
    for host in ("1.2.3.4:5", "[::1]:5"):
        for sys_flag, body in ((0xC0, items), (0xC1, deflate_zlib(items))):
            data = record_with(body, sys_flag=sys_flag, born_host=host, queue_offset=4)
            assert_lines_say_what_the_messages_say(data)
            lines = JsonWriter().lines(QUEUE, decode_messages(data))
            assert [json.loads(line)["queue_offset"] for line in lines] == [4, 5]


def test_a_compressed_body_is_inflated_and_a_damaged_one_is_an_error() -> None:
    assert '"body":"hello"' in line_of(record_with(deflate_zlib(b"hello"), sys_flag=1))
    data = record_with(b"not zlib", sys_flag=1)
    assert '"body_encoding":null,"error":"body is not valid zlib' in line_of(data)
    assert_lines_say_what_the_messages_say(data)


@settings(max_examples=doses(6))
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
    sys_flag=st.sampled_from([0, 0, 1, 4, 0x40, 0x80, 0xC0]),
    body=st.sampled_from([b"x", b"{}", deflate_zlib(b"y"), encode_batch([])]),
)
def test_the_line_of_any_message_says_what_its_attributes_say(
    properties: dict[str, str] | str,
    times: tuple[int, int],
    place: int,
    hosts: tuple[str, str],
    sys_flag: int,
    body: bytes,
) -> None:
    data = record_with(
        body,
        properties=properties,
        sys_flag=sys_flag,
        born_timestamp_ms=times[0],
        store_timestamp_ms=times[1],
        commit_log_offset=place,
        born_host=hosts[0],
        store_host=hosts[1],
    )
    assert_lines_say_what_the_messages_say(data)
