"""Every writer of records keeps to the published schema, for bodies of every kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from rmqcli.cli.ui.records.proxied import ProxyRecord
from rmqcli.decode import parse_decode
from rmqcli.model import MessageQueue
from rmqcli.proxy.endpoints import Endpoints
from rmqcli.proxy.message import ProxyMessage
from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.json import (
    BODY_FIELDS,
    EXTRA_FIELDS,
    RECORD_FIELDS,
    JsonWriter,
)
from rmqcli.wire.message.json_lines import write_lines
from rmqcli.wire.message.scan import read_columns
from rmqcli.wire.protobuf import definition_pb2 as pb
from tests.decode.decoding import WITHOUT_FILES
from tests.kit.doses import doses
from tests.kit.records import SCHEMA, body_of, checked_records
from tests.wire.message.bodies import BODIES

QUEUE = MessageQueue("orders", "broker-a", 3)
HERE = Endpoints("ipv4", (("127.0.0.1", 8081),))
FIELDS = dict((*RECORD_FIELDS, *BODY_FIELDS, *EXTRA_FIELDS))
DECODES = [None, *map(parse_decode, WITHOUT_FILES)]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
bodies = (
    st.sampled_from(BODIES)
    | st.binary(max_size=20)
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.builds(
        lambda value, indent, ascii_only: json.dumps(
            value, indent=indent, ensure_ascii=ascii_only
        ).encode("utf-8", "surrogatepass"),
        json_values,
        st.sampled_from([None, 0, 2]),
        st.booleans(),
    )
)


def stored(body: bytes, offset: int = 0, **fields: Any) -> bytes:
    return encode_message(
        MessageFields(topic="orders", body=body, queue_offset=offset, **fields)
    )


def test_the_schema_is_one_and_describes_the_fields_of_o_help_in_their_order():
    Draft202012Validator.check_schema(SCHEMA)
    described = {
        name: each["description"] for name, each in SCHEMA["properties"].items()
    }
    assert list(described.items()) == list(FIELDS.items())
    assert SCHEMA["required"] == [name for name, _ in (*RECORD_FIELDS, *BODY_FIELDS)]


@settings(max_examples=doses(6))
@given(raws=st.lists(bodies, min_size=1, max_size=4), decode=st.sampled_from(DECODES))
def test_both_writers_print_the_same_valid_records_with_the_same_bodies(raws, decode):
    """With and without a decoder, and whatever other bodies are in the chunk."""
    data = b"".join(stored(body, offset) for offset, body in enumerate(raws))
    writer = JsonWriter(decode)
    one_by_one = writer.lines(QUEUE, decode_messages(data))
    columns = read_columns(data)
    assert columns is not None
    assert write_lines(writer, QUEUE, columns) == one_by_one
    records = checked_records(line.encode() for line in one_by_one)
    assert [body_of(record) for record in records] == raws
    shapes = {tuple(record.keys() - {"decode_error"}) for record in records}
    assert len(shapes) == 1
    for record in records:
        assert ("value" in record) == (decode is not None)
        assert record.get("decode_error") is None or record["value"] is None


@given(
    raws=st.lists(bodies, min_size=1, max_size=4),
    decode=st.sampled_from(DECODES),
    limit=st.integers(4, 12),
)
def test_a_record_whose_body_is_cut_says_so_and_has_whole_characters(
    raws, decode, limit
):
    data = b"".join(stored(body, offset) for offset, body in enumerate(raws))
    writer = JsonWriter(decode, body_bytes_max=limit)
    lines = writer.lines(QUEUE, decode_messages(data))
    columns = read_columns(data)
    assert columns is not None
    assert write_lines(writer, QUEUE, columns) == lines
    for body, record in zip(raws, checked_records(lines), strict=True):
        shown = body_of(record)
        assert body.startswith(shown)
        assert len(shown) <= limit
        assert record.get("truncated", False) == (len(body) > limit)
        assert len(shown) > limit - 4 or shown == body


@given(body=bodies, decode=st.sampled_from(DECODES))
def test_records_of_a_proxy_and_of_compressed_bodies_keep_to_the_schema(body, decode):
    writer = JsonWriter(decode)
    compressed = decode_messages(stored(deflate_zlib(body), sys_flag=1))
    damaged = decode_messages(stored(b"no zlib" + body, sys_flag=1))
    lines = writer.lines(QUEUE, [*compressed, *damaged])
    message = pb.Message(topic=pb.Resource(name="orders"), body=body)
    proxied = ProxyRecord(ProxyMessage(message, broker_name="b", endpoints=HERE))
    good, bad, carried = checked_records([*lines, *writer.lines(QUEUE, [proxied])])
    assert body_of(good) == body_of(carried) == body
    assert bad["body"] is bad["body_b64"] is bad["body_encoding"] is None
    assert bad["error"].startswith("body is not valid zlib")


@pytest.mark.parametrize("decode", DECODES)
def test_bytes_that_are_no_record_keep_to_the_schema(decode):
    data = bytearray(stored(b"x"))
    data[4:8] = b"\x12\x34\x56\x78"
    for broken in (bytes(data), b"\xff" * 40):
        [record] = checked_records(
            JsonWriter(decode).lines(QUEUE, decode_messages(broken))
        )
        assert record["body_encoding"] is None
        assert record["raw_b64"]


@pytest.mark.parametrize(
    "change",
    [
        {"body_json": {}},
        {"body": None},
        {"body_b64": "eA=="},
        {"body_encoding": "json"},
        {"store_timestamp": "2026-01-02T03:04:05Z"},
        {"queue_offset": "7"},
        {"properties": {"a": 1}},
        {"decode_error": "no value"},
        {"value_format": "msgpack"},
        {"truncated": False},
        {"error": "no raw_b64"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_schema_refuses_a_record_of_another_shape(change):
    [line] = JsonWriter().lines(QUEUE, decode_messages(stored(b"x")))
    checked_records([line])
    with pytest.raises(ValidationError):
        checked_records([json.dumps(json.loads(line) | change)])
