"""Decode JSON bodies: each body is an object in UTF-8 that fits a Spark schema.

A field that is missing from the body is null, and a field that is not in the schema is
ignored. When a name occurs twice, the last value counts. A value fits a type when the
conversion loses no information: an integer type takes whole numbers in its range,
`decimal` takes numbers (also in a string) whose digits fit, times are in the form of
RFC 3339 (in UTC when no time zone is given), and `binary` takes base64. Only `double`
and `float` round; they take any number in their range. What a time has below a
microsecond is cut off. A `string` takes any value: a value that is not a string becomes
its JSON text, with all digits. `NaN` and `Infinity` are not JSON.

Source: JacksonParser in apache/spark, which rounds and accepts numbers as times.
"""

from __future__ import annotations

import base64
import decimal
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rmqcli.decode.build import BodyReader, Leaf, leaf
from rmqcli.decode.json import compact_json, json_reader
from rmqcli.decode.schema import TIMESTAMP, parse_schema, simple_string

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOAT32_MAX: Final = 3.4028234663852886e38
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,9})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
#: Precise enough for every decimal of Spark. A number that does not fit raises an error
#: instead of being rounded.
_EXACT: Final = decimal.Context(
    prec=76, traps=[decimal.Inexact, decimal.InvalidOperation]
)


def json_body(schema: str) -> BodyReader:
    """Return the reader of bodies with a schema: DDL, or the JSON of a StructType.

    Its `read` raises ValueError or ArithmeticError for a body that is not JSON, and
    RecursionError for one that is nested too deeply. Raises UsageError when the schema
    cannot be read.
    """
    kind = parse_schema(schema)
    kinds = simple_string(kind)
    exact = "decimal" in kinds or "string" in kinds
    read = json_reader(parse_float=decimal.Decimal if exact else None)
    return BodyReader(kind, lambda body: read(body.decode("utf-8")), _leaf_of)


def _leaf_of(kind: pa.DataType) -> Leaf:
    if pa.types.is_decimal(kind):
        return Leaf(frozenset(), _decimal_of(kind))
    return _LEAVES[kind]


def _float(value: object) -> float:
    if type(value) is int or type(value) in (float, decimal.Decimal):
        return float(value)  # type: ignore[arg-type]  # a number
    raise ValueError("not a number")


def _float32(value: object) -> float:
    number = _float(value)
    if abs(number) > _FLOAT32_MAX:
        raise ValueError("out of range")
    return number


def _text(value: object) -> str:
    return value if type(value) is str else _json_text(value)


def _json_text(value: object) -> str:
    """Return JSON in which numbers have the digits that they had in the body."""
    match value:
        case decimal.Decimal():
            return str(value)
        case list():
            return f"[{','.join(map(_json_text, value))}]"
        case dict():
            fields = [f"{compact_json(k)}:{_json_text(v)}" for k, v in value.items()]
            return f"{{{','.join(fields)}}}"
    return compact_json(value)


def _bytes(value: object) -> bytes:
    if type(value) is not str:
        raise ValueError("not base64")
    return base64.b64decode(value, validate=True)


def _date(value: object) -> date:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise ValueError("not a date")
    return date.fromisoformat(value)


def _moment(value: object) -> datetime:
    found = _TIME.fullmatch(value) if type(value) is str else None
    if found is None:
        raise ValueError("not a time")
    day, clock, fraction, zone = found.groups(default="")
    return datetime.fromisoformat(f"{day}T{clock}{fraction[:7]}{zone.upper()}")


def _timestamp(value: object) -> int:
    moment = _moment(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _US


def _timestamp_ntz(value: object) -> datetime:
    moment = _moment(value)
    if moment.tzinfo is not None:
        raise ValueError("a time with a time zone")
    return moment


def _decimal_of(kind: pa.DataType) -> Callable[[object], decimal.Decimal]:
    unit = decimal.Decimal(1).scaleb(-kind.scale)

    def convert(value: object) -> decimal.Decimal:
        if type(value) is str and not _NUMBER.fullmatch(value):
            raise ValueError("not a number")
        if type(value) not in (int, str, decimal.Decimal):
            raise ValueError("not a number")
        number = decimal.Decimal(value)  # type: ignore[arg-type]  # checked above
        return number.quantize(unit, context=_EXACT)

    return convert


_LEAVES: Final = {
    pa.bool_(): leaf(bool),
    pa.int8(): leaf(int),
    pa.int16(): leaf(int),
    pa.int32(): leaf(int),
    pa.int64(): leaf(int),
    pa.float32(): Leaf(frozenset(), _float32, is_finite=True),
    pa.float64(): Leaf(frozenset({float}), _float, is_finite=True),
    pa.string(): Leaf(frozenset({str}), _text),
    pa.binary(): Leaf(frozenset(), _bytes),
    pa.date32(): Leaf(frozenset(), _date),
    TIMESTAMP: Leaf(frozenset(), _timestamp),
    pa.timestamp("us"): Leaf(frozenset(), _timestamp_ntz),
}
