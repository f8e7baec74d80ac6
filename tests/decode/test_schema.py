"""Schemas are read in both of Spark's notations; types that cannot be columns fail."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rmqcli.decode.schema import ddl_of, ddl_type, parse_schema, simple_string
from rmqcli.errors import UsageError
from tests.kit.rows import each_row

DDL = (
    "id BIGINT NOT NULL COMMENT 'the id', `a b``c` string, price decimal(10, 2),"
    " at timestamp,\n local: timestamp_ntz,"
    " items ARRAY<STRUCT<sku: STRING, n INT>>, by map<string, array<double>>"
)
SHOWN = (
    "`id` bigint, `a b``c` string, `price` decimal(10,2), `at` timestamp,"
    " `local` timestamp_ntz, `items` array<struct<`sku`:string,`n`:int>>,"
    " `by` map<string,array<double>>"
)
STRUCT = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("a b`c", StringType()),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField(
            "items",
            ArrayType(
                StructType(
                    [StructField("sku", StringType()), StructField("n", IntegerType())]
                )
            ),
        ),
        StructField("by", MapType(StringType(), ArrayType(DecimalType(5, 1)))),
    ]
)


def test_ddl_is_read_and_written():
    assert ddl_of(parse_schema(DDL)) == SHOWN
    assert parse_schema(SHOWN) == parse_schema(DDL)
    kind = pa.struct([("a b", pa.list_(pa.string()))])
    assert ddl_type(kind) == "struct<`a b`:array<string>>"


def test_the_json_of_a_struct_type_is_parsed():
    kind = parse_schema(STRUCT.json())
    assert parse_schema(json.dumps(STRUCT.jsonValue(), indent=2)) == kind
    assert simple_string(kind) == STRUCT.simpleString()
    assert ddl_of(kind) == SHOWN.replace("array<double>", "array<decimal(5,1)>")


def test_arrow_types_equal_those_of_pyspark():
    kind = parse_schema(STRUCT.json())
    schema = from_arrow_schema(pa.schema([("value", kind)]))
    assert schema["value"].dataType.simpleString() == STRUCT.simpleString()
    for index, field in enumerate(STRUCT):
        assert to_arrow_type(field.dataType, timezone="UTC") == kind.field(index).type


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("byte", "tinyint"), ("short", "smallint"), ("INTEGER", "int"),
        ("long", "bigint"), ("real", "float"), ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"), ("timestamp_ltz", "timestamp"),
        ("date", "date"), ("binary", "binary"), ("boolean", "boolean"),
    ],
)  # fmt: skip
def test_synonyms_of_types_are_accepted(written, name):
    assert ddl_of(parse_schema(f"x {written}")) == f"`x` {name}"


@each_row(
    ("text", "words"),
    [
        ("", "expected the name of a field at the end of the text"),
        ("id", "expected a type at the end of the text"),
        ("id bigint,", "expected the name of a field at the end of the text"),
        (
            "id bigint name string",
            "expected a comma or the end of the text at 'name string'",
        ),
        ("id bigint NOT", "expected NULL after NOT"),
        ("id array<int", "expected > at the end of the text"),
        ("id variant", "bodies cannot be decoded to type 'variant'"),
        ("id varchar(10)", "to type 'varchar'"),
        ("id decimal(39,0)", "decimal(39,0) is not a valid Spark type"),
        ("id decimal(5,6)", "decimal(5,6) is not a valid Spark type"),
        ("m map<int,string>", "the keys of a map are int, not string"),
        ("id int, ID string", "fields 'id' and 'ID' clash"),
        ("s struct<>", "expected the name of a field at '>'"),
        ("x " + "array<" * 100, "nested more than 32 deep"),
        ("{", "not JSON"),
        ('{"type": "long"}', "is none of array, map and struct"),
        (
            '{"type": "array", "elementType": "long"}',
            'outermost type of the schema is not "struct"',
        ),
        ('{"type": "struct", "fields": []}', "a struct has no fields"),
        ('{"type": "struct", "fields": [{"type": "long"}]}', "has no name"),
        ('{"type": "struct", "fields": [{"name": "x"}]}', "is not the JSON of a type"),
        ('{"a":' * 50_000, "nested too deeply"),
        (", ".join(f"f{n} int" for n in range(2_001)), "more than 2000 fields"),
        ("id decimal(0,0)", "decimal(0,0) is not a valid Spark type"),
        ("id decimal(1000)", "expected a number at ')'"),
        ("id decimal(5 6)", "expected ) at '6)'"),
        ("id int COMMENT 5", "expected a string in quotes after COMMENT at '5'"),
        ("`` int", "expected the name of a field at '`` int'"),
        ("`\ud800` int", "expected the name of a field at"),
        ("id int " + "x" * 60, f"the end of the text at {'x' * 40!r}"),
        (
            '{"type": "struct", "fields": [{"name": "\\ud800", "type": "long"}]}',
            "has no name",
        ),
        (
            '{"type": "struct", "fields": [{"name": "x", "type": "decimal(5,-1)"}]}',
            "decimal(5,-1) is not a valid Spark type",
        ),
        (
            '{"type": "map", "keyType": "long", "valueType": "long"}',
            "the keys of a map are bigint, not string",
        ),
    ],
)
def test_an_error_says_why_a_schema_is_invalid(text, words):
    with pytest.raises(UsageError) as caught:
        parse_schema(text)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("decimal", "decimal(10,0)"),
        ("decimal(1,0)", "decimal(1,0)"),
        ("decimal( 38 , 38 )", "decimal(38,38)"),
    ],
)
def test_decimals_in_json_have_a_precision_and_a_scale(written, name):
    field = {"name": "x", "type": written}
    assert (
        ddl_of(parse_schema(json.dumps({"type": "struct", "fields": [field]})))
        == f"`x` {name}"
    )
    assert ddl_of(parse_schema(f"x {written}")) == f"`x` {name}"


def test_a_schema_may_have_2000_fields():
    kind = parse_schema(", ".join(f"f{n} int" for n in range(2_000)))
    assert kind.num_fields == 2_000


def nested_json(depth):
    """The JSON of a struct whose field is nested in arrays, in `depth` types."""
    kind: object = "long"
    for _ in range(depth - 1):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    field = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


def test_types_may_be_nested_thirty_two_deep():
    arrays = "array<" * 31 + "bigint" + ">" * 31
    assert ddl_of(parse_schema(f"x {arrays}")).replace("`", "") == f"x {arrays}"
    assert ddl_of(parse_schema(nested_json(32))).replace("`", "") == f"x {arrays}"
    for text in (f"x array<{arrays}>", nested_json(33)):
        with pytest.raises(UsageError, match="nested more than 32 deep"):
            parse_schema(text)
