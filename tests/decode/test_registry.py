"""Bodies framed for a schema registry have the value that their schema gives them.

The registry here is a table of answers; `tests/cli/test_schema_registry.py` has one
that answers over HTTP. Bodies are written out byte by byte.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import sys
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2, text_format
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.decode import parse_decode
from rmqcli.errors import ConfigError, DecodeError, TextError

URL = "http://registry:8081"
SUBJECT_URL = "http://registry:8080/schema-registry/v1/subject/orders"
ORDER = (
    '{"type": "record", "name": "Order", "fields":'
    ' [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}]}'
)
#: {"id": 7, "who": "ab"} of ORDER
ORDER_BODY = b"\x0e\x04ab"
ORDER_VALUE = {"id": 7, "who": "ab"}
SHOP = """
name: "anything" package: "shop" syntax: "proto3"
message_type {
  name: "First"
  field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
}
message_type {
  name: "Second"
  nested_type { name: "Zero" }
  nested_type {
    name: "Inner"
    field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  }
}
"""


class Answers:
    """A registry with the given answers; `asked` is what was asked for, in order."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.kept = {}

    def once(self, key, make):
        if key not in self.kept:
            self.kept[key] = make(self.get)
        return self.kept[key]

    def get(self, url):
        self.asked.append(url)
        if url not in self.answers:
            raise DecodeError("no such answer")
        answer = self.answers[url]
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def decoder(answers, url=URL):
    """Return the decoder, and the registry that it asks."""
    registry = Answers(answers)
    opened = []

    def open_registry(address):
        opened.append(address)
        return registry

    decode = parse_decode(f"registry:{url}", open_registry)
    assert opened == [url.rstrip("/")]
    return decode, registry


def error_of(answers, body, url=URL):
    with pytest.raises(DecodeError) as caught:
        decoder(answers, url)[0].value(body)
    return caught.value.message


def descriptor(text):
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    return base64.b64encode(file.SerializeToString()).decode()


# --- Confluent's registry


def test_avro_has_the_value_of_the_schema_whose_id_the_body_begins_with():
    pytest.importorskip("fastavro")
    decode, registry = decoder({f"{URL}/schemas/ids/258": {"schema": ORDER}})
    for _ in range(3):
        assert decode.value(b"\0\0\0\x01\x02" + ORDER_BODY) == {"id": 7, "who": "ab"}
    assert decode.format == "registry"
    assert registry.asked == [f"{URL}/schemas/ids/258"]


def test_the_schema_of_one_body_does_not_read_another():
    pytest.importorskip("fastavro")
    answers = {
        f"{URL}/schemas/ids/1": {"schema": '"string"', "schemaType": "AVRO"},
        f"{URL}/schemas/ids/2": {"schema": '"bytes"', "schemaType": "AVRO"},
        f"{URL}/schemas/ids/4294967295": {"schema": '"int"'},
    }
    decode, _ = decoder(answers)
    assert decode.value(b"\0\0\0\0\x01\x04ab") == "ab"
    assert decode.value(b"\0\0\0\0\x02\x04ab") == "YWI="
    assert decode.value(b"\0\xff\xff\xff\xff\x03") == -2


def test_json_is_the_value_after_the_id():
    answer = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    decode, _ = decoder({f"{URL}/schemas/ids/3": answer})
    assert decode.value(b'\0\0\0\0\x03{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(DecodeError, match="not JSON: the body is empty"):
        decode.value(b"\0\0\0\0\x03")


@pytest.mark.parametrize(
    ("place", "message", "value"),
    [
        (b"\0", b"\x08\x05", {"n": 5}),
        (b"\x02\0", b"\x08\x05", {"n": 5}),  # the first type, written in full
        (b"\x80\x80\x80\x80\0", b"\x08\x05", {"n": 5}),  # a varint of 32 bits
        (b"\x02\x02", b"", {}),
        (b"\x04\x02\x02", b"\x0a\x02hi", {"text": "hi"}),
    ],
)
def test_protobuf_has_the_message_type_at_the_place_in_the_body(place, message, value):
    address = f"{URL}/schemas/ids/9"
    answers = {
        address: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
        f"{address}?format=serialized": {"schema": descriptor(SHOP)},
    }
    decode, _ = decoder(answers)
    assert decode.value(b"\0\0\0\0\x09" + place + message) == value


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (b"\x02\x04", "schema 9 has no message type [2]"),
        (b"\x04\x02\x04", "schema 9 has no message type [1, 2]"),
        (b"\x02\x01", "an index of the message type is negative"),
        (b"\x01", "the message type of the body is nested -1 deep"),
        (b"\x40" + b"\0" * 32, "schema 9 has no message type [0, 0, "),
        (b"\x42" + b"\0" * 33, "the message type of the body is nested 33 deep"),
        (b"\x80\x80\x80\x01", "the message type of the body is nested 1048576 deep"),
        (b"", "the body ends in its message type, or has none"),
        (b"\x04\x02", "the body ends in its message type, or has none"),
        (b"\x80" * 5 + b"\0", "the body ends in its message type, or has none"),
        (b"\0\x08", "not a shop.First: the bytes are not those of such a message"),
    ],
)
def test_a_message_type_that_the_schema_lacks_is_an_error(place, error):
    address = f"{URL}/schemas/ids/9"
    answers = {
        address: {"schema": "", "schemaType": "PROTOBUF"},
        f"{address}?format=serialized": {"schema": descriptor(SHOP)},
    }
    assert error_of(answers, b"\0\0\0\0\x09" + place).startswith(error)


def test_protobuf_imports_what_the_schema_refers_to_and_what_protobuf_brings():
    main = """
      package: "shop" syntax: "proto3"
      dependency: "item.proto" dependency: "google/protobuf/timestamp.proto"
      message_type {
        name: "Order"
        field { name: "item" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
                type_name: ".shop.Item" }
        field { name: "at" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
                type_name: ".google.protobuf.Timestamp" }
      }"""
    item = """
      package: "shop" syntax: "proto3"
      message_type {
        name: "Item"
        field { name: "sku" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      }"""
    address = f"{URL}/schemas/ids/5"
    referenced = f"{URL}/subjects/item%2Fvalue/versions/2?deleted=true"
    references = [{"name": "item.proto", "subject": "item/value", "version": 2}]
    answers = {
        address: {"schema": "", "schemaType": "PROTOBUF", "references": references},
        f"{address}?format=serialized": {
            "schema": descriptor(main),
            "references": references,
        },
        f"{referenced}&format=serialized": {"schema": descriptor(item)},
    }
    body = b"\0\0\0\0\x05\0" + b"\x0a\x03\x0a\x01x" + b"\x12\x02\x08\x01"
    decode, _ = decoder(answers)
    assert decode.value(body) == {
        "item": {"sku": "x"},
        "at": "1970-01-01T00:00:01.000Z",
    }
    del answers[f"{address}?format=serialized"]["references"]
    assert error_of(answers, body) == (
        "schema 5: schema-5.proto imports item.proto, which is not in the descriptor"
        " set"
    )


def test_a_registry_that_has_no_descriptors_says_so():
    answer = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    address = f"{URL}/schemas/ids/9"
    answers = {address: answer, f"{address}?format=serialized": answer}
    assert error_of(answers, b"\0\0\0\0\x09\0") == (
        "schema 9 is protobuf, and the registry does not return its descriptor"
    )


def reference(name, version=1):
    return {"name": name, "subject": name, "version": version}


def versions(**schemas):
    """Return the answers of subjects with one version each."""
    return {
        f"{URL}/subjects/{name}/versions/1?deleted=true": answer
        for name, answer in schemas.items()
    }


def test_avro_may_use_types_of_others_that_use_each_other():
    """A type that two schemas use is defined once, where it is used first."""
    pytest.importorskip("fastavro")
    money = '{"type": "fixed", "name": "Money", "namespace": "a", "size": 2}'
    item = (
        '{"type": "record", "name": "Item", "namespace": "a", "fields":'
        ' [{"name": "price", "type": "Money"}]}'
    )
    order = (
        '{"type": "record", "name": "Order", "namespace": "a", "fields":'
        ' [{"name": "items", "type": {"type": "array", "items": "Item"}},'
        ' {"name": "sum", "type": ["null", "a.Money"]}]}'
    )
    answers = {
        f"{URL}/schemas/ids/1": {
            "schema": order,
            "references": [reference("item"), reference("money")],
        },
        **versions(
            item={"schema": item, "references": [reference("money")]},
            money={"schema": money},
        ),
    }
    decode, registry = decoder(answers)
    value = {"items": [{"price": "AQI="}], "sum": "AwQ="}
    body = b"\0\0\0\0\x01" + b"\x02\x01\x02\0" + b"\x02\x03\x04"
    assert decode.value(body) == value
    assert len(registry.asked) == 3
    # a union of types that are all in other schemas
    answers[f"{URL}/schemas/ids/2"] = {
        "schema": '["a.Money", "a.Item"]',
        "references": [reference("money"), reference("item")],
    }
    assert decode.value(b"\0\0\0\0\x02" + b"\x02\x01\x02") == {"price": "AQI="}


def test_schemas_that_refer_to_each_other_are_refused():
    answers = {
        f"{URL}/schemas/ids/1": {"schema": '"a"', "references": [reference("a")]},
        **versions(
            a={"schema": '"b"', "references": [reference("b")]},
            b={"schema": '"a"', "references": [reference("a")]},
        ),
    }
    assert error_of(answers, b"\0\0\0\0\x01") == "schema 1 refers to itself, through a"


def test_a_schema_may_refer_to_50_others():
    pytest.importorskip("fastavro")
    names = [f"s{number}" for number in range(51)]
    schemas = versions(**{name: {"schema": '"int"'} for name in names})

    def answers(count):
        references = [reference(name) for name in names[:count]]
        return schemas | {
            f"{URL}/schemas/ids/1": {"schema": '"int"', "references": references}
        }

    assert decoder(answers(50))[0].value(b"\0\0\0\0\x01\x04") == 2
    assert error_of(answers(51), b"\0\0\0\0\x01\x04") == (
        "schema 1 refers to more than 50 others"
    )


def test_avro_without_its_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    answers = {f"{URL}/schemas/ids/1": {"schema": '"int"'}}
    assert error_of(answers, b"\0\0\0\0\x01\x04") == (
        "schema 1 is Avro, and the package fastavro is not installed"
        " (pip install 'rmqcli[decode]')"
    )


def test_a_slash_at_the_end_of_the_url_does_not_count():
    answers = {f"{URL}/schemas/ids/3": {"schemaType": "JSON"}}
    assert decoder(answers, f"{URL}//")[0].value(b"\0\0\0\0\x03[]") == []


def test_a_schema_that_refers_to_too_many_others_is_refused():
    names = [f"s{number}" for number in range(60)]
    schemas = {
        name: {"schema": '"int"', "references": [reference(after)]}
        for name, after in itertools.pairwise(names)
    }
    deep = {
        f"{URL}/schemas/ids/1": {"schema": '"int"', "references": [reference("s0")]},
        **versions(**schemas),
    }
    wide = {
        f"{URL}/schemas/ids/1": {
            "schema": '"int"',
            "references": [reference(name) for name in names],
        },
        **versions(**{name: {"schema": '"int"'} for name in names}),
    }
    for answers in (deep, wide):
        error = error_of(answers, b"\0\0\0\0\x01")
        assert error == "schema 1 refers to more than 50 others"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"<html>", "schema 1: not JSON: expected a value at line 1, column 1"),
        (b"", "schema 1: not JSON: the body is empty"),
        (b"[" * 10_000, "schema 1: the JSON is nested deeper than 200 levels"),
        ([], "schema 1: the answer is not a JSON object"),
        ({}, "schema 1: the answer has no schema"),
        ({"schema": 7}, "schema 1: the answer has no schema"),
        (
            {"schema": "x", "schemaType": "XML"},
            "schema 1 has the type 'XML', which is not supported",
        ),
        (
            {"schema": "x", "schemaType": ["AVRO"]},
            "schema 1 has the type ['AVRO'], which is not supported",
        ),
        (
            {"schema": '"int"', "references": [{"name": "a"}]},
            "schema 1: the references in the answer are not valid",
        ),
        (
            {"schema": '"int"', "references": "a"},
            "schema 1: the references in the answer are not valid",
        ),
    ],
)
def test_a_wrong_answer_is_an_error(answer, error):
    pytest.importorskip("fastavro")
    assert error_of({f"{URL}/schemas/ids/1": answer}, b"\0\0\0\0\x01") == error


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", "schema 1: the Avro schema is not valid JSON: "),
        ('"Gone"', "schema 1: not an Avro schema: UnknownType("),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}',
            "schema 1: field a of A contains itself (A)",
        ),
        (
            '{"type": "array", "items": "null"}',
            "schema 1: the schema is an array whose elements are encoded in zero bytes",
        ),
        (
            '{"type": "array", "items": ' * 10_000 + '"int"' + "}" * 10_000,
            "schema 1: the Avro schema is not valid JSON: maximum recursion depth",
        ),
        (
            '{"type": "array", "items": ' * 200 + '"int"' + "}" * 200,
            "schema 1: the types are nested more than 64 deep",
        ),
    ],
)
def test_a_schema_that_could_do_harm_is_refused(schema, error):
    pytest.importorskip("fastavro")
    answers = {f"{URL}/schemas/ids/1": {"schema": schema}}
    assert error_of(answers, b"\0\0\0\0\x01\0").startswith(error)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0", b"\x01\0\0\0\x01ab", b'{"a": 1}'])
def test_a_body_without_the_framing_is_an_error_and_nothing_is_asked(body):
    decode, registry = decoder({})
    with pytest.raises(DecodeError, match="not framed for a schema registry: the body"):
        decode.value(body)
    assert registry.asked == []


def test_what_was_compressed_may_be_framed():
    registry = Answers({f"{URL}/schemas/ids/3": {"schema": "", "schemaType": "JSON"}})
    decode = parse_decode(f"gzip+registry:{URL}", lambda _: registry)
    assert decode.value(gzip.compress(b"\0\0\0\0\x03[1]")) == [1]
    assert decode.format == "gzip+registry"


# --- RocketMQ's registry

#: A record ID of version 3, and what asks for it.
RECORD = 0x0904_5678_9ABC_0003
RECORD_URL = f"{SUBJECT_URL}/recordId/649739322240270339/schema"
RECORD_BYTES = b"\x09\x04\x56\x78\x9a\xbc\x00\x03"
RECORD_ANSWER = {"recordId": RECORD, "version": 3, "type": "AVRO", "idl": ORDER}


def test_avro_of_rocketmq_s_registry():
    pytest.importorskip("fastavro")
    decode, registry = decoder({RECORD_URL: RECORD_ANSWER}, SUBJECT_URL)
    for _ in range(2):
        assert decode.value(b"\x10" + RECORD_BYTES + ORDER_BODY) == ORDER_VALUE
    assert registry.asked == [RECORD_URL]


def test_json_of_rocketmq_s_registry_has_the_id_of_a_record_too():
    decode, _ = decoder({RECORD_URL: RECORD_ANSWER}, SUBJECT_URL)
    assert decode.value(RECORD_BYTES + b'{"id": 7}') == {"id": 7}
    assert error_of({}, RECORD_BYTES + b"7", SUBJECT_URL) == (
        "schema record 649739322240270339: no such answer"
    )


def test_a_record_id_may_be_1():
    answers = {f"{SUBJECT_URL}/recordId/1/schema": {"recordId": 1}}
    assert decoder(answers, SUBJECT_URL)[0].value(bytes(7) + b"\x01[]") == []
    answers[f"{SUBJECT_URL}/recordId/1/schema"] = {"recordId": True}
    assert "the registry answered with True" in error_of(
        answers, bytes(7) + b"\x01[]", SUBJECT_URL
    )


def test_a_record_of_another_subject_is_an_error():
    """The registry looks only at the version, and answers with its own schema."""
    other = RECORD_ANSWER | {"recordId": RECORD + (1 << 20)}
    for body in (b"\x10" + RECORD_BYTES + ORDER_BODY, RECORD_BYTES + b"7"):
        assert error_of({RECORD_URL: other}, body, SUBJECT_URL) == (
            "schema record 649739322240270339 is not of the subject orders: the"
            " registry answered with 649739322241318915"
        )


def test_a_record_of_another_type_is_an_error():
    answer = RECORD_ANSWER | {"type": "PROTOBUF"}
    body = b"\x10" + RECORD_BYTES + ORDER_BODY
    assert error_of({RECORD_URL: answer}, body, SUBJECT_URL) == (
        "schema record 649739322240270339 has the type 'PROTOBUF', but the body is Avro"
    )


@pytest.mark.parametrize(
    "body", [b"", b"\x10" + bytes(7), b"\xff" * 12, bytes(8), b'{"id": 17, "a": 1}']
)
def test_a_body_without_rocketmq_s_framing_is_an_error_and_nothing_is_asked(body):
    decode, registry = decoder({}, SUBJECT_URL)
    with pytest.raises(DecodeError, match="not framed for RocketMQ's schema registry"):
        decode.value(body)
    assert registry.asked == []


# --- URLs


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ftp://a", "registry: 'ftp://a' is not an http or https URL"),
        ("registry:8081", "registry: 'registry:8081' is not an http or https URL"),
        ("http://", "registry: 'http://' is not an http or https URL"),
        ("http://a:0", "registry: 'http://a:0' is not an http or https URL"),
        ("http://a:x", "registry: 'http://a:x' is not a URL"),
        ("http://a/b?c=d", "registry: 'http://a/b?c=d' has a query or a fragment"),
        ("http://a/#", "registry: 'http://a/#' has a query or a fragment"),
        ("http://a/b c", "registry: 'http://a/b c' has blanks, or letters that are"),
        ("http://a/\n", "registry: 'http://a/\\n' has blanks, or letters that are"),
        (
            "http://a/schema-registry/v1/",
            "registry: 'http://a/schema-registry/v1/' names no subject",
        ),
        (
            "http://a/schema-registry/v1/subject/orders/schema",
            "registry: 'http://a/schema-registry/v1/subject/orders/schema' does not",
        ),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused(url, error):
    with pytest.raises(ConfigError) as caught:
        decoder({}, url)
    assert caught.value.message.startswith(error)


@pytest.mark.parametrize(
    "url",
    ["http://me:hunter2@a", "https://hunter2@a/b", "http://me:hun/ter2@a", "me:h@a"],
)
def test_a_url_with_a_password_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError) as caught:
        decoder({}, url)
    assert caught.value.message == (
        "registry: the URL has a user or a password, which other users could see"
    )


def test_a_registry_is_no_format_where_nothing_can_ask_it():
    with pytest.raises(TextError, match="not a format of bodies") as caught:
        parse_decode(f"registry:{URL}")
    assert str(caught.value.hint) == (
        "write one of: json, avro:FILE, protobuf:FILE:MESSAGE, msgpack, cbor, gzip,"
        " gzip+FORMAT"
    )
    with pytest.raises(TextError, match="not a format of bodies"):
        parse_decode("registry:", lambda _: Answers({}))


# --- any answer

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "x"]), inner
        )
    ),
    max_leaves=12,
)
_SCHEMA = st.one_of(
    _JSON.map(json.dumps),
    st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
    st.text(max_size=20),
)


@given(
    schema=_SCHEMA,
    kind=st.sampled_from([None, "AVRO", "JSON", "PROTOBUF"]),
    body=st.binary(max_size=20),
)
def test_no_answer_and_no_body_raise_anything_else(schema, kind, body):
    pytest.importorskip("fastavro")
    answer = {"schema": schema, "schemaType": kind, "idl": schema, "type": "AVRO"}
    urls = [f"{URL}/schemas/ids/1", f"{URL}/schemas/ids/1?format=serialized"]
    references = [{"name": "a", "subject": "a", "version": 1}]
    answers = dict.fromkeys(urls, answer | {"references": references})
    answers |= versions(a=answer)
    answers[f"{URL}/subjects/a/versions/1?deleted=true&format=serialized"] = answer
    decode, _ = decoder(answers)
    with suppress(DecodeError):
        json.loads(decode(b"\0\0\0\0\x01" + body))
