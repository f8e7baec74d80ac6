"""Random rows of random schemas: as PySpark returns them, and as Arrow holds them."""

from __future__ import annotations

import decimal
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as t

from rmqcli.spark.sql.batches import arrow_type

TEXTS = (
    "", "x", "größer", "漢字 👩‍👩‍👧", 'say "no"', "back\\slash", "two\nlines", "\ttab",
    "\x00\x1f\x7f\x85", "\u202egnal\u2028", "\ufeff", " blank ", "=1+1", "-5", "a,b",
    "\r\n", "'quote", "{\"id\": 1, \"n\": [1, 2]}", "@", "\u3000wide\u3000", "\ufffd",
)  # fmt: skip
BINARY = (b"\xff\x00", b"\xed\xa0\x80", b"\xc3", b"\xa4", b"half \xe6\xbc")
NAMES = ("a", "b", "größe", 'quo"te', "a", "x,y", "\u202ename", "")
FLOATS = (0.0, -0.0, 1.5, 1e300, 5e-324, 1e16, 0.1, float("nan"), float("inf"), -2e-7)
LEAVES = (
    t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(),
    t.FloatType(), t.DoubleType(), t.StringType(), t.BinaryType(), t.DateType(),
    t.TimestampType(), t.DecimalType(10, 2), t.DecimalType(38, 18), t.DecimalType(5, 0),
    t.NullType(),
)  # fmt: skip
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


@dataclass(frozen=True)
class Rows:
    """`rows` are PySpark's; `columns` has the same values for `arrow_array`."""

    schema: t.StructType
    rows: list[tuple[Any, ...]]
    columns: list[list[Any]]


class Draw:
    """Draws rows, whose maps have at most `entries_max` entries.

    Several may have the same key, which Python's dicts lose.
    """

    def __init__(self, seed: int, *, entries_max: int) -> None:
        self._random = random.Random(seed)
        self._entries_max = entries_max

    def rows(self) -> Rows:
        """Up to thirty rows of up to six columns."""
        names = [f"c{n}" for n in range(self._random.randint(1, 6))]
        schema = t.StructType([t.StructField(name, self._kind(0)) for name in names])
        pairs = [
            [self._value(field.dataType) for field in schema]
            for _ in range(self._random.randint(1, 30))
        ]
        return Rows(
            schema,
            [tuple(row for row, _ in each) for each in pairs],
            [[each[n][1] for each in pairs] for n in range(len(names))],
        )

    def _kind(self, depth: int) -> t.DataType:
        shape = self._random.random()
        if depth > 2 or shape < 0.55:
            return self._random.choice(LEAVES)
        if shape < 0.7:
            return t.ArrayType(self._kind(depth + 1))
        if shape < 0.85:
            keys = t.StringType() if shape < 0.8 else self._random.choice(LEAVES[:-1])
            return t.MapType(keys, self._kind(depth + 1))
        names = self._random.choices(NAMES, k=self._random.randint(1, 3))
        return t.StructType(
            [t.StructField(name, self._kind(depth + 1)) for name in names]
        )

    def _value(self, kind: t.DataType, *, is_key: bool = False) -> tuple[Any, Any]:
        """A value as PySpark returns it, and for `arrow_array`."""
        drawn = self._random
        if not is_key and (isinstance(kind, t.NullType) or drawn.random() < 0.15):
            return None, None
        match kind:
            case t.ArrayType():
                each = [
                    self._value(kind.elementType) for _ in range(drawn.randint(0, 3))
                ]
                return [row for row, _ in each], [other for _, other in each]
            case t.MapType():
                return self._map(kind)
            case t.StructType():
                each = [self._value(field.dataType) for field in kind]
                row = Row(*kind.names)(*(row for row, _ in each))
                return row, [other for _, other in each]
            case t.BinaryType():
                found = drawn.choice((*BINARY, *(text.encode() for text in TEXTS)))
                return bytearray(found), found
            case t.TimestampType():
                moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                    days=drawn.randint(-700_000, 2_900_000),
                    microseconds=drawn.choice((0, 1000, 999_000, 1, 123_456)),
                )
                return moment, moment
        value = self._leaf(kind)
        return value, value

    def _leaf(self, kind: t.DataType) -> Any:
        drawn = self._random
        match kind:
            case t.BooleanType():
                return drawn.random() < 0.5
            case t.StringType():
                return drawn.choice(TEXTS)
            case t.FloatType():
                return drawn.choice((0.0, 1.5, 0.125, float("nan"), float("-inf")))
            case t.DoubleType():
                return drawn.choice(FLOATS)
            case t.DateType():
                return date(1970, 1, 1) + timedelta(days=drawn.randint(-700_000, 9**6))
            case t.DecimalType():
                digits = drawn.randint(0, 10**kind.precision - 1)
                few = drawn.choice((digits, digits % 1000 * 10**kind.scale, 5))
                few %= 10**kind.precision
                with decimal.localcontext() as context:
                    context.prec = 50
                    return decimal.Decimal(few).scaleb(-kind.scale)
        bits = _BITS[kind.typeName()]
        return drawn.choice((0, -1, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1))

    def _map(self, kind: t.MapType) -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
        keys: list[Any] = []
        for _ in range(self._random.randint(0, self._entries_max)):
            _, key = self._value(kind.keyType, is_key=True)
            if isinstance(key, float) and key == 0.0:
                key = abs(key)  # Spark's maps have no -0.0
            keys.append(key)
        each = [(key, self._value(kind.valueType)) for key in keys]
        return (
            {key: row for key, (row, _) in each},
            [(key, other) for key, (_, other) in each],
        )


def arrow_array(kind: t.DataType, values: list[Any]) -> pa.Array:
    """Values as an array. `pyarrow.array` knows no two fields of the same name."""
    match kind:
        case t.StructType():
            parts = [
                arrow_array(field.dataType, [each and each[n] for each in values])
                for n, field in enumerate(kind)
            ]
            absent = pa.array([each is None for each in values], pa.bool_())
            fields = list(arrow_type(kind))
            return pa.StructArray.from_arrays(parts, fields=fields, mask=absent)
        case t.ArrayType():
            inner = [item for each in values for item in each or ()]
            return pa.ListArray.from_arrays(
                _offsets(values), arrow_array(kind.elementType, inner)
            )
        case t.MapType():
            pairs = [pair for each in values for pair in each or ()]
            return pa.MapArray.from_arrays(
                _offsets(values),
                arrow_array(kind.keyType, [key for key, _ in pairs]),
                arrow_array(kind.valueType, [value for _, value in pairs]),
            )
    return pa.array(values, arrow_type(kind))


def _offsets(values: list[Any]) -> pa.Array:
    offsets: list[int | None] = []
    at = 0
    for each in values:
        offsets.append(None if each is None else at)
        at += len(each or ())
    return pa.array([*offsets, at], pa.int32())
