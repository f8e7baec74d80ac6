"""How the stream of Arrow batches that Spark serves is read, without a JVM."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from pyspark.sql import types

from rmqcli.spark.sql import batches
from rmqcli.spark.sql.batches import arrow_type
from tests.kit.rows import each_row

NUMBERS = pa.schema([("n", pa.int32())])


@each_row(
    ("kind", "expected"),
    [
        (types.BinaryType(), pa.binary()),
        (types.BooleanType(), pa.bool_()),
        (types.ByteType(), pa.int8()),
        (types.ShortType(), pa.int16()),
        (types.IntegerType(), pa.int32()),
        (types.LongType(), pa.int64()),
        (types.FloatType(), pa.float32()),
        (types.DoubleType(), pa.float64()),
        (types.DecimalType(12, 3), pa.decimal128(12, 3)),
        (types.StringType(), pa.string()),
        (types.DateType(), pa.date32()),
        (types.TimestampType(), pa.timestamp("us", tz="UTC")),
        (types.NullType(), pa.null()),
        (types.ArrayType(types.LongType()), pa.list_(pa.int64())),
        (
            types.MapType(types.StringType(), types.ByteType()),
            pa.map_(pa.string(), pa.int8()),
        ),
        (
            types.StructType([types.StructField("a", types.DateType())]),
            pa.struct([("a", pa.date32())]),
        ),
    ],
)
def test_a_type_of_spark_is_shipped_as_one_of_arrow(kind, expected):
    assert arrow_type(kind) == expected


def read(schema, *arriving):
    """What is made of batches that arrive, each in a frame with its length."""
    frames = [each.serialize().to_pybytes() for each in arriving]
    stream = b"".join(struct.pack("!i", len(each)) + each for each in frames)
    partition = batches._Partition(schema)  # PySpark is its only caller
    return list(partition.load_stream(io.BytesIO(stream)))


def numbers(*values):
    return pa.record_batch([pa.array(values, pa.int32())], schema=NUMBERS)


@pytest.mark.parametrize(
    ("rows", "together"),
    [
        ([], []),
        ([3], [3]),
        ([500, 500, 1], [1_001]),
        ([8_191, 5], [8_196]),
        ([8_192, 5], [8_192, 5]),
        ([8_000, 192, 5], [8_192, 5]),
        ([8_192, 8_192], [8_192, 8_192]),
    ],
)
def test_small_batches_are_put_together_in_their_order(rows, together):
    start, arriving = 0, []
    for each in rows:
        arriving.append(numbers(*range(start, start + each)))
        start += each
    found = read(NUMBERS, *arriving)
    assert [each.num_rows for each in found] == together
    assert [n for each in found for n in each.column("n").to_pylist()] == [
        *range(start)
    ]


def test_batches_with_large_values_are_not_put_together():
    schema = pa.schema([("body", pa.binary())])
    large, small = bytes(5 << 20), b"x"
    arriving = [
        pa.record_batch([pa.array([each], pa.binary())], schema=schema)
        for each in (large, large, small, small)
    ]
    assert [each.num_rows for each in read(schema, *arriving)] == [2, 2]


def test_nested_values_come_as_they_were():
    rows = [
        {"a": [1, None], "m": [("k", [2])], "s": {"x": [], "y": None}},
        {"a": None, "m": None, "s": None},
        {"a": [], "m": [], "s": {"x": [3], "y": "z"}},
    ]
    schema = pa.schema(
        [
            ("a", pa.list_(pa.int32())),
            ("m", pa.map_(pa.string(), pa.list_(pa.int8()))),
            ("s", pa.struct([("x", pa.list_(pa.int64())), ("y", pa.string())])),
        ]
    )
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    (found,) = read(schema, batch, batch)
    assert found.schema == schema
    assert found.to_pylist() == [*rows, *rows]
    (empty,) = read(schema, batch.slice(0, 0))
    assert empty.to_pylist() == []
