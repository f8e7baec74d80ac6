"""Single bodies of each format become values of JSON, and no body does harm.

What a body may describe is bounded by its bytes: a few of them, from anyone, must not
fill the memory, end the process or run for minutes.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import sys
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.decode import parse_decode
from rmqcli.decode import protobuf as protobuf_reader
from rmqcli.decode.plain import plain_value
from rmqcli.errors import ConfigError, DecodeError, TextError, UsageError
from tests.kit.rows import each_row

_Field = descriptor_pb2.FieldDescriptorProto
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)


def error_of(name, body):
    with pytest.raises(DecodeError) as caught:
        parse_decode(name)(body)
    return caught.value.message


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


# --- names


@pytest.mark.parametrize(
    "text",
    ["", "avro", "avro:", "protobuf", "protobuf:f", "protobuf::M", "json:f", "cbor:x"],
)
def test_a_text_that_names_no_format_is_refused(text):
    with pytest.raises(TextError, match="not a format of bodies"):
        parse_decode(text)


def test_the_part_after_gzip_is_shown_where_it_is_wrong():
    with pytest.raises(TextError) as caught:
        parse_decode("gzip+jsn")
    error = caught.value
    assert (error.text, error.start, error.end) == ("gzip+jsn", 5, 8)


def test_a_file_that_is_missing_or_wrong_is_named_with_the_format(tmp_path):
    with pytest.raises(ConfigError, match=r"^protobuf:/nowhere:M: cannot read /n"):
        parse_decode("protobuf:/nowhere:M")
    pytest.importorskip("fastavro")
    path = written(tmp_path, "s.avsc", "{")
    with pytest.raises(UsageError, match=f"^avro:{path}: the Avro schema is not valid"):
        parse_decode(f"avro:{path}")


@pytest.mark.parametrize(
    ("name", "package"),
    [("msgpack", "msgpack"), ("cbor", "cbor2"), ("avro:f", "fastavro")],
)
def test_a_format_whose_package_is_not_installed_names_the_extra(
    name, package, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        parse_decode(name)
    kind = name.partition(":")[0]
    assert caught.value.message == (
        f"bodies cannot be decoded as {kind}: the package {package} is not installed"
    )
    assert caught.value.hint == "run: pip install 'rmqcli[decode]'"


# --- gzip


def test_gzip_gives_the_text_or_what_the_text_means():
    body = gzip.compress(b'{"a":1}') + gzip.compress(b"\n")
    assert parse_decode("gzip")(body) == '"{\\"a\\":1}\\n"'
    assert parse_decode("gzip+json")(body) == '{"a":1}'
    assert parse_decode("gzip+json").format == "gzip+json"
    assert error_of("gzip", gzip.compress(b"\xff")) == (
        "gzip: what was compressed is not UTF-8 at byte 0"
    )
    assert error_of("gzip+json", gzip.compress(b"x")).startswith("not JSON: expected")


def test_a_body_that_is_not_gzip_gives_the_reason():
    whole = gzip.compress(b"text")
    assert error_of("gzip", b"") == "not gzip: the body ends too early"
    assert error_of("gzip", b"text") == ("not gzip: the bytes do not begin as gzip's")
    assert error_of("gzip", whole[:-1]) == "not gzip: the body ends too early"
    assert error_of("gzip", whole + b"text") == (
        "not gzip: the bytes do not begin as gzip's"
    )
    assert error_of("gzip", whole[:-5] + b"\0" + whole[-4:]) == (
        "not gzip: the checksum of the text is wrong"
    )


def test_what_a_small_gzip_body_may_become_is_bounded():
    assert error_of("gzip", gzip.compress(bytes((16 << 20) + 1))) == (
        "gzip: more than 16 MiB"
    )
    half = gzip.compress(bytes(8 << 20))
    more = gzip.compress(bytes((8 << 20) + 1))
    assert error_of("gzip", half + more) == "gzip: more than 16 MiB"
    assert parse_decode("gzip").value(half + half) == "\0" * (16 << 20)
    assert parse_decode("gzip").value(gzip.compress(b"x") * 1_000) == "x" * 1_000
    assert error_of("gzip", gzip.compress(b"") * 1_001) == (
        "gzip: more than 1,000 members"
    )


# --- what JSON lacks


@each_row(
    ("value", "plain"),
    [
        (b"\x00\xff", "AP8="),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (decimal.Decimal("1.50"), "1.50"),
        (AT, "2026-01-02T03:04:05.678Z"),
        (AT.replace(microsecond=678001), "2026-01-02T03:04:05.678001Z"),
        (AT.replace(tzinfo=None), "2026-01-02T03:04:05.678"),
        (AT.date(), "2026-01-02"),
        ({1: "a", None: "b", False: "c"}, {"1": "a", "null": "b", "false": "c"}),
        ({b"k": (1, 2)}, {"aw==": [1, 2]}),
        ({(1, "x"): 1}, {'[1,"x"]': 1}),
        (1 << 64, 1 << 64),
    ],
    ids=repr,
)
def test_what_json_lacks_becomes_text(value, plain):
    found = plain_value(value)
    assert found == plain
    json.dumps(found, allow_nan=False)


def test_a_value_that_a_record_cannot_hold_is_refused():
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    key_below: list[object] = [{(1,): 1}]
    for _ in range(198):
        key_below = [key_below]
    assert str(plain_value(key_below[0])).count("[") == 199
    for value, words in [
        (deep, "deeper than 200 levels"),
        (key_below, "deeper than 200 levels"),
        ({"1": 1, 1: 2}, "two keys of a map have the same text"),
        (10**400, "a number is too large for a double"),
        (1j, "a value of the type complex has no form in JSON"),
        (
            datetime.datetime.max.replace(
                tzinfo=datetime.timezone(datetime.timedelta(hours=-1))
            ),
            "out of the range of years",
        ),
    ]:
        with pytest.raises(DecodeError, match=words):
            plain_value(value)


# --- MessagePack and CBOR


def test_messagepack_bodies_become_values():
    msgpack = pytest.importorskip("msgpack")
    decode = parse_decode("msgpack")
    value = {"id": 1, "raw": b"\xff", "at": AT, 7: [None, True, 1.5]}
    assert decode(msgpack.packb(value, datetime=True)) == (
        '{"id":1,"raw":"/w==","at":"2026-01-02T03:04:05.678Z","7":[null,true,1.5]}'
    )
    assert decode(b"\xd4\x05\x01") == '{"ext_type":5,"data":"AQ=="}'
    within = '{"a":[{"ext_type":5,"data":"AQ=="}]}'
    assert decode(b"\x81\xa1a\x91\xd4\x05\x01") == within
    assert decode.format == "msgpack"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not MessagePack: the body ends too early"),
        (b"\x01\x02", "not MessagePack: bytes follow the value"),
        (b"\xc1", "not MessagePack: a byte begins no value"),
        (b"\xa1\xff", "not MessagePack: a text is not UTF-8"),
        (b"\x81\x91\x01\x02", "not MessagePack: a key of a map is a list or a map"),
        (b"\xdd\xff\xff\xff\xff" * 1_000, "not MessagePack: the body ends too early"),
        (b"\x91" * 1_000_000, "not MessagePack: it is nested too deeply"),
        (b"\x91" * 300 + b"\x01", "the value is nested deeper than 200 levels"),
    ],
    ids=lambda each: repr(each[:10]),
)
def test_a_body_that_is_not_messagepack_gives_the_reason(body, words):
    pytest.importorskip("msgpack")
    assert error_of("msgpack", body).startswith(words)


def test_cbor_bodies_become_values():
    cbor2 = pytest.importorskip("cbor2")
    decode = parse_decode("cbor")
    value = {"id": 1, "raw": b"\xff", "at": AT, "price": decimal.Decimal("1.50"), 7: []}
    assert decode(cbor2.dumps(value)) == (
        '{"id":1,"raw":"/w==","at":"2026-01-02T03:04:05.678Z","price":"1.50","7":[]}'
    )
    for body, found in [
        ("f7", "null"),
        ("f0", '{"simple":16}'),
        ("d9d9f701", "1"),  # the tag that says: this is CBOR
        ("d903e80a", '{"tag":1000,"value":10}'),
        ("d90102820102", "[1,2]"),
        ("d81e820103", '"1/3"'),
        ("d8236161", '"a"'),  # a regular expression is not compiled
        ("c4821b00000000ffffffff03", '"3E+4294967295"'),
        ("9f0102ff", "[1,2]"),
        ("d901028301f5f4", "[1,true,false]"),
    ]:
        assert decode(bytes.fromhex(body)) == found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "not CBOR: the body ends too early"),
        ("0102", "not CBOR: bytes follow the value"),
        ("ff", "not CBOR: a list or a map ends before it began"),
        ("1c", "not CBOR: a byte begins no value"),
        ("61ff", "not CBOR: a text is not UTF-8"),
        ("d81c81d81d00", "not CBOR: references to other parts of the body"),
        ("d9010082616163d81900", "not CBOR: "),
        ("9bffffffffffffffff01", "not CBOR: the body ends too early"),
        ("5b000000ffffffffff01", "not CBOR: the body ends too early"),
        ("c2590200" + "ff" * 512, "a number is too large for a double"),
        ("81" * 1_000_000, "not CBOR: it is nested too deeply"),
        ("81" * 300 + "01", "the value is nested deeper than 200 levels"),
    ],
    ids=lambda each: each[:20],
)
def test_a_body_that_is_not_cbor_gives_the_reason(body, words):
    pytest.importorskip("cbor2")
    assert error_of("cbor", bytes.fromhex(body)).startswith(words)


def test_of_a_name_that_occurs_twice_the_last_value_counts(tmp_path):
    """As for most readers of JSON; the formats have maps without an order, too."""
    assert parse_decode("json")(b'{"a":1,"b":2,"a":3}') == '{"a":3,"b":2}'
    for name in ("msgpack", "cbor2", "fastavro"):
        pytest.importorskip(name)
    assert parse_decode("msgpack")(b"\x82\xa1a\x01\xa1a\x03") == '{"a":3}'
    assert parse_decode("cbor")(bytes.fromhex("a2616101616103")) == '{"a":3}'
    decode = avro_of(tmp_path, {"type": "map", "values": "int"})
    assert decode(b"\x04\x02a\x02\x02a\x06\x00") == '{"a":3}'


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("msgpack", "8201a161c3a162"),  # 1 and true
        ("msgpack", "8200a161c2a162"),  # 0 and false
        ("msgpack", "8201a161cb3ff0000000000000a162"),  # 1 and 1.0
        ("msgpack", "81a1618201a161c3a162"),
        ("cbor", "a2016161f56162"),
        ("cbor", "a2006161f46162"),
        ("cbor", "a2016161f93c006162"),
        ("cbor", "a16161a2016161f56162"),
        ("cbor", "bf016161f56162ff"),
        ("cbor", "a28101616181f56162"),  # [1] and [true]
    ],
)
def test_a_map_whose_keys_become_one_in_python_is_refused(name, body):
    """One of the two values was left out without a word."""
    pytest.importorskip({"cbor": "cbor2"}.get(name, name))
    assert error_of(name, bytes.fromhex(body)).endswith(
        "two keys of a map, such as 1 and true, cannot be told apart"
    )


@pytest.mark.parametrize(
    ("name", "body"), [("msgpack", "8201a161a131a162"), ("cbor", "a201616161316162")]
)
def test_a_map_whose_keys_have_the_same_text_is_refused(name, body):
    pytest.importorskip({"cbor": "cbor2"}.get(name, name))
    assert error_of(name, bytes.fromhex(body)) == "two keys of a map have the same text"


@given(body=st.binary(max_size=60))
def test_any_bytes_give_a_line_or_a_reason(body):
    for name, module in (("msgpack", "msgpack"), ("cbor", "cbor2")):
        pytest.importorskip(module)
        with suppress(DecodeError):
            json.loads(parse_decode(name)(body))


# --- Avro

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": ["null", "string", {"type": "array", "items": "int"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}


def avro_of(tmp_path, schema):
    pytest.importorskip("fastavro")
    return parse_decode(f"avro:{written(tmp_path, 's.avsc', json.dumps(schema))}")


def test_avro_bodies_become_values_whatever_union_they_have(tmp_path):
    """A column has one type; a record of JSON may have any of a union."""
    fastavro = pytest.importorskip("fastavro")
    decode = avro_of(tmp_path, ORDER)
    for paid in (None, "cash", [1, 2]):
        file = io.BytesIO()
        row = {"id": 1, "paid": paid, "at": AT, "raw": b"\xff"}
        fastavro.schemaless_writer(file, ORDER, row)
        body = file.getvalue()
        assert json.loads(decode(body)) == {
            "id": 1,
            "paid": paid,
            "at": "2026-01-02T03:04:05.678Z",
            "raw": "/w==",
        }
        for damaged, reason in (
            (body[:-1], "the body ends too early"),
            (body + b"\0", "bytes follow the value"),
            (b"\2\x0a" + body, "a union or a symbol that the schema lacks"),
        ):
            with pytest.raises(
                DecodeError, match=r"^not of the Avro schema: "
            ) as caught:
                decode(damaged)
            assert caught.value.message.endswith(reason)
    assert decode.format == "avro"


@pytest.mark.parametrize(
    "kind", [{"type": "bytes"}, {"type": "fixed", "name": "Price", "size": 3}]
)
def test_a_decimal_of_avro_is_exact_or_refused(tmp_path, kind):
    """fastavro would round one of more digits than its type has."""
    price = {**kind, "logicalType": "decimal", "precision": 4, "scale": 2}
    decode = avro_of(tmp_path, price)

    def body_of(number):
        data = number.to_bytes(3, "big", signed=True)
        return data if kind["type"] == "fixed" else b"\x06" + data

    for number, found in (
        (9999, '"99.99"'),
        (-9999, '"-99.99"'),
        (1200, '"12.00"'),
        (-1, '"-0.01"'),
        (0, '"0.00"'),
    ):
        assert decode(body_of(number)) == found
    for number in (10_000, 12_345, -12_345):
        with pytest.raises(DecodeError) as caught:
            decode(body_of(number))
        assert caught.value.message == (
            "not of the Avro schema: a decimal has more digits than its type"
        )


def record(*types, name="R"):
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        # fastavro reads nested values without a limit, until the process crashes.
        (record(["null", "R"]), "field f0 of R contains itself"),
        ({"type": "array", "items": "null"}, "elements are encoded in zero bytes"),
        (
            {"type": "array", "items": record("int", *["null"] * 9)},
            "encoded in zero bytes, or in few",
        ),
        ({"type": "map", "values": record(*["null"] * 9)}, "take too few bytes"),
        (record(*["null"] * 2_001), "more than 2000 null fields"),
        ({"type": "fixed", "name": "F", "size": "4"}, ""),
        ({"type": "int", "logicalType": ["date"]}, None),
        (record("int", "int", record("long", name="S")), None),
        ({"type": "array", "items": record("int", ["null", "long"])}, None),
    ],
)
def test_a_schema_of_which_few_bytes_could_be_a_large_value_is_refused(
    tmp_path, schema, words
):
    if words is None:
        avro_of(tmp_path, schema)
        return
    with pytest.raises(UsageError) as caught:
        avro_of(tmp_path, schema)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("kind", "nulls_max"),
    [
        # Four nulls for each byte, less one for the record itself.
        *(("int", 3), ("long", 3), ("string", 3), ("bytes", 3), ("boolean", 3)),
        *(("float", 15), ("double", 31)),
        ({"type": "double", "logicalType": "x"}, 31),
        ({"type": "fixed", "name": "F", "size": 5}, 19),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, 3),
        ({"type": "array", "items": "int"}, 3),
        ({"type": "map", "values": "int"}, 3),
        (record("int", name="S"), 2),
        # Its own byte says which branch it is, and null may be the branch.
        (["null", "int"], 2),
        (["int", "double"], 7),
    ],
    ids=str,
)
def test_elements_of_avro_have_four_values_without_bytes_for_each_byte(
    tmp_path, kind, nulls_max
):
    for container in ("items", "values"):
        # The key of a map has a byte, too.
        most = nulls_max + 4 * (container == "values")
        for count in (most, most + 1):
            element = record(kind, *["null"] * count)
            name = "array" if container == "items" else "map"
            schema = {"type": name, container: element}
            if count == most:
                avro_of(tmp_path, schema)
                continue
            with pytest.raises(
                UsageError, match=r"encoded in zero bytes|too few bytes"
            ):
                avro_of(tmp_path, schema)


def test_a_named_type_of_avro_counts_each_time_that_it_is_used(tmp_path):
    for size, count in ((1, 7), (2, 15)):
        named = {"type": "fixed", "name": "F", "size": size}
        element = record(named, "F", *["null"] * count)
        avro_of(tmp_path, {"type": "array", "items": element})
        element["fields"].append({"name": "more", "type": "null"})
        with pytest.raises(UsageError, match="encoded in zero bytes"):
            avro_of(tmp_path, {"type": "array", "items": element})


def test_a_record_of_avro_may_have_1999_null_fields(tmp_path):
    """The record itself is the value without bytes that makes 2,000."""
    decode = avro_of(tmp_path, record(*["null"] * 1_999))
    assert decode.value(b"") == {f"f{at}": None for at in range(1_999)}
    with pytest.raises(UsageError, match="more than 2000 null fields"):
        avro_of(tmp_path, record(*["null"] * 2_000))


def test_logical_types_that_are_not_read_are_ignored_wherever_they_are(tmp_path):
    """fastavro would make a UUID of a text, and fail where the text is none."""
    uid = {"type": "string", "logicalType": "uuid"}
    text = b"\x02x"
    for schema, body, value in [
        (uid, text, "x"),
        (["null", uid], b"\x02" + text, "x"),
        ({"type": "array", "items": uid}, b"\x02" + text + b"\0", ["x"]),
        ({"type": "map", "values": uid}, b"\x02" + text + text + b"\0", {"x": "x"}),
        (record(uid), text, {"f0": "x"}),
    ]:
        assert avro_of(tmp_path, schema).value(body) == value


def test_avro_does_not_believe_the_marks_of_fastavro(tmp_path):
    """A schema with them is read unchecked: here, of an array of nothing."""
    pytest.importorskip("fastavro")
    record = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}
    nothing = {"type": "array", "items": "null"}
    marked = record | {
        "__fastavro_parsed": True,
        "__named_schemas": {"A": record, "B": nothing},
    }
    for schema in (marked, [marked]):
        with pytest.raises(UsageError, match="not an Avro schema: UnknownType"):
            avro_of(tmp_path, schema)


# --- protobuf


def protobuf_set():
    """A set with message shop.Node: a tree with a time, an enum and a map."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3"
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    node = file.message_type.add(name="Node")
    entry = node.nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_Field.TYPE_INT64, label=1)
    node.field.add(name="id", number=1, type=_Field.TYPE_UINT64, label=1)
    for name, number, label in (("left", 2, 1), ("children", 3, 3)):
        node.field.add(
            name=name, number=number, type=_Field.TYPE_MESSAGE, label=label,
            type_name=".shop.Node",
        )  # fmt: skip
    node.field.add(
        name="state", number=4, type=_Field.TYPE_ENUM, label=1, type_name=".shop.State"
    )
    node.field.add(
        name="by", number=5, type=_Field.TYPE_MESSAGE, label=3,
        type_name=".shop.Node.ByEntry",
    )  # fmt: skip
    return descriptor_pb2.FileDescriptorSet(file=[file])


def node_of(files):
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(files.file[0].SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Node"))


def test_a_number_of_an_enum_with_several_names_becomes_the_first_one(tmp_path):
    """As in the JSON of protobuf itself, and in Spark's from_protobuf."""
    files = protobuf_set()
    state = files.file[0].enum_type[0]
    state.options.allow_alias = True
    state.value.add(name="SENT", number=1)
    state.value.add(name="SHIPPED", number=1)
    path = written(tmp_path, "shop.pb", files.SerializeToString())
    decode = parse_decode(f"protobuf:{path}:shop.Node")
    found = decode.value(node_of(files)(state=1).SerializeToString())
    assert isinstance(found, dict)
    assert found["state"] == "SENT"


def test_protobuf_bodies_become_values_of_any_shape(tmp_path):
    files = protobuf_set()
    path = written(tmp_path, "shop.pb", files.SerializeToString())
    decode = parse_decode(f"protobuf:{path}:shop.Node")
    node = node_of(files)(id=(1 << 64) - 1)
    node.children.add(id=2, state=9)
    node.by["a"] = 3
    leaf: dict[str, object] = {
        "id": 2,
        "left": None,
        "children": [],
        "state": "9",
        "by": {},
    }
    assert json.loads(decode(node.SerializeToString())) == {
        "id": 18446744073709551615,
        "left": None,
        "children": [leaf],
        "state": "NEW",
        "by": {"a": 3},
    }
    assert error_of(f"protobuf:{path}:shop.Node", b"\x08").startswith(
        "not a shop.Node: "
    )
    with pytest.raises(UsageError, match="message Gone is not in the descriptor set"):
        parse_decode(f"protobuf:{path}:Gone")


def test_what_a_small_protobuf_body_may_become_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(protobuf_reader, "FIELDS_MAX", 50)
    path = written(tmp_path, "shop.pb", protobuf_set().SerializeToString())
    decode = parse_decode(f"protobuf:{path}:shop.Node")
    decode(b"\x1a\x00" * 9)
    with pytest.raises(DecodeError, match="its messages have more than 50 fields"):
        decode(b"\x1a\x00" * 10)
    deep = b""
    for _ in range(200):
        deep = b"\x12" + bytes([len(deep) % 128 | 128, len(deep) >> 7]) + deep
    with pytest.raises(DecodeError, match=r"^not a shop\.Node: "):
        decode(deep)
