"""Avro bodies that fastavro writes are decoded, and damaged bodies never raise."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.errors import UsageError
from tests.decode.decoding import decode, decoder_of, is_corrupt, values
from tests.kit.doses import doses

fastavro = pytest.importorskip("fastavro")
from rmqcli.decode.avro_body import canonical  # noqa: E402  # loads fastavro
from rmqcli.decode.schema import ddl_of  # noqa: E402


def record(*fields, name="Order"):
    """The schema of a record whose fields are given as `(name, type)`."""
    return {
        "type": "record",
        "name": name,
        "namespace": "shop",
        "fields": [{"name": each, "type": kind} for each, kind in fields],
    }


ITEM = record(("sku", "string"), ("n", "int"), name="Item")
ORDER = record(
    ("id", "long"),
    ("small", "int"),
    ("note", ["null", "string"]),
    ("f", "float"),
    ("d", ["float", "double"]),
    ("l", ["int", "long"]),
    ("b", "boolean"),
    ("raw", "bytes"),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("was", ["null", "State"]),
    ("three", {"type": "fixed", "name": "Three", "size": 3}),
    ("first", ITEM),
    ("items", {"type": "array", "items": "Item"}),
    ("by", {"type": "map", "values": ["null", "long"]}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("at_us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("uid", {"type": "string", "logicalType": "uuid"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
)
AT = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)
ROW = {
    "id": 1 << 40, "small": -5, "note": "größer", "f": 1.5, "d": 2.5, "l": 7, "b": True,
    "raw": b"\0\xff", "state": "PAID", "was": None, "three": b"abc",
    "first": {"sku": "a", "n": 1}, "items": [{"sku": "b", "n": 2}],
    "by": {"k": 1, "l": None}, "at": AT, "at_us": AT, "day": date(2024, 2, 29),
    "clock": time(0, 0, 1), "uid": "12345678-1234-5678-1234-567812345678",
    "price": Decimal("12.34"),
}  # fmt: skip


def decoder(schema):
    return decoder_of(canonical(json.dumps(schema)), kind="avro")


def body_of(row, schema):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, row)
    return file.getvalue()


def test_a_value_of_every_type_is_decoded():
    [value] = values(decoder(ORDER), body_of(ROW, ORDER))
    shown = {"by": [("k", 1), ("l", None)], "clock": 1000}
    assert value == {**ROW, **shown}


def test_column_types_equal_those_of_from_avro():
    kind = decoder(ORDER)._body.value_type
    assert ddl_of(kind).replace("`", "") == (
        "id bigint, small int, note string, f float, d double, l bigint, b boolean,"
        " raw binary, state string, was string, three binary,"
        " first struct<sku:string,n:int>, items array<struct<sku:string,n:int>>,"
        " by map<string,bigint>, at timestamp, at_us timestamp, day date, clock int,"
        " uid string, price decimal(6,2)"
    )


@pytest.mark.parametrize("settings", [{"precision": 39, "scale": 2}, {"precision": 0}])
def test_a_decimal_that_no_column_can_hold_is_its_bytes(settings):
    """As Avro wants it for a logical type that is not valid."""
    price = {"type": "bytes", "logicalType": "decimal", **settings}
    schema = record(("price", price))
    assert ddl_of(decoder(schema)._body.value_type) == "`price` binary"


def test_precisions_and_scales_from_the_least_to_the_greatest_are_decimals():
    for precision, scale in ((1, 0), (1, 1), (38, 0), (38, 38)):
        price = {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": precision,
            "scale": scale,
        }
        kind = decoder(record(("price", price)))._body.value_type
        assert ddl_of(kind) == f"`price` decimal({precision},{scale})"


def test_a_decimal_without_a_scale_is_a_whole_number():
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4}
    kind = decoder(record(("price", price)))._body.value_type
    assert ddl_of(kind) == "`price` decimal(4,0)"


def test_a_precision_makes_no_decimal_of_another_type():
    schema = record(("n", {"type": "long", "precision": 5, "scale": 0}))
    assert ddl_of(decoder(schema)._body.value_type) == "`n` bigint"


def test_an_array_may_hold_values_that_are_null():
    schema = record(("some", {"type": "array", "items": ["null", "long"]}))
    [row] = values(decoder(schema), body_of({"some": [1, None, 3]}, schema))
    assert row == {"some": [1, None, 3]}


def test_equal_schemas_have_equal_canonical_text():
    spaced = json.dumps(dict(reversed(ORDER.items())), indent=2)
    assert canonical(spaced) == canonical(json.dumps(ORDER))


def test_a_damaged_body_is_kept_in_corrupt_body():
    body = body_of(ROW, ORDER)
    order = decoder(ORDER)
    for damaged in (b"", body[:-1], body + b"\0", b"\0\0\0\0\1" + body, b"{}"):
        assert is_corrupt(order, damaged)
    found = decode(order, body, body[:-1], body)
    assert found[0] == found[2]
    assert found[1] == (None, body[:-1])


def zigzag(number):
    """A number in Avro's encoding of a long."""
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number & ~0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ({"type": "array", "items": "long"}, zigzag(1 << 40) + b"\2" * 1000),
        ({"type": "array", "items": "long"}, b"\xff" * (4 << 20)),
        ("bytes", zigzag(1 << 60) + b"x"),
        ("bytes", zigzag(-1) + b"x"),
        ("string", zigzag(2) + b"\xff\xff"),
        ("int", zigzag(1 << 31)),
        ({"type": "long", "logicalType": "timestamp-millis"}, zigzag(1 << 60)),
    ],
)
def test_impossible_lengths_and_numbers_make_a_body_corrupt(kind, body):
    assert is_corrupt(decoder(record(("x", kind))), body)


@settings(max_examples=doses(4))
@given(st.binary(max_size=40))
def test_arbitrary_bytes_never_raise(body):
    assert len(decode(decoder(record(("x", ITEM), ("y", ["null", "long"]))), body)) == 1


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("[1", "the Avro schema is not valid JSON"),
        ('{"type": "recor"}', "not an Avro schema"),
        ('"string"', "the Avro schema is not a record"),
        (record(), "record shop.Order has no fields"),
        (record(("x", "null")), "field x of shop.Order has the type null"),
        (record(("x", ["int", "string"])), "is a union of 2 types, but a column has"),
        (record(("x", ["null", "Order"])), "field x of shop.Order contains itself"),
        (
            record(
                (
                    "x",
                    {
                        "type": "array",
                        "items": {"type": "fixed", "name": "Zero", "size": 0},
                    },
                )
            ),
            "field x of shop.Order is an array whose elements are encoded in zero",
        ),
    ],
)
def test_a_schema_that_columns_cannot_hold_is_refused(schema, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        canonical(schema if isinstance(schema, str) else json.dumps(schema))
