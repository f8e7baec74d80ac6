"""Conversion of Avro and protobuf values, whose types are already known, to columns."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Final

import pyarrow as pa

from rmqcli.spark.decode.build import Leaf
from rmqcli.spark.decode.schema import TIMESTAMP, TIMESTAMP_NTZ


def leaf_of(kind: pa.DataType) -> Leaf:
    """Return the conversion of values to a plain type, which never changes a value."""
    if pa.types.is_decimal(kind):
        return _DECIMAL
    return _LEAVES[kind]


def _wrong(value: object) -> Any:  # noqa: ANN401  # never returns
    raise ValueError(f"not a value of this type: {type(value).__name__}")


def _leaf(*exact: type) -> Leaf:
    return Leaf(frozenset(exact), _wrong)


_DECIMAL: Final = _leaf(decimal.Decimal, int)
_INT: Final = _leaf(int)
_LEAVES: Final = {
    pa.bool_(): _leaf(bool),
    pa.int32(): _INT,
    pa.int64(): _INT,
    pa.float32(): _leaf(float),
    pa.float64(): _leaf(float),
    pa.string(): _leaf(str),
    pa.binary(): _leaf(bytes),
    pa.date32(): _leaf(datetime.date),
    TIMESTAMP: _leaf(datetime.datetime, int),  # ints are microseconds
    TIMESTAMP_NTZ: _leaf(datetime.datetime),
}
