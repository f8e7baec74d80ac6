"""Infer the schema of JSON bodies from a few of them.

The rules are those of Spark's JSON reader. Whole numbers are `bigint`, or
`decimal(38,0)` when one is out of the range of `bigint`; mixed with fractions they are
`double`. A field that is always null is `string`. Fields are sorted by name. Values
without a common type are `string`, which then holds their JSON text, and so is an
object that never has a field.

Source: JsonInferSchema in apache/spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmqcli.decode.json import read_json
from rmqcli.decode.schema import DEPTH_MAX, check_type, ddl_of, is_name, struct_of
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.decode.settings import Names

_BIGINT_MAX: Final = (1 << 63) - 1
_DECIMAL_MAX: Final = 10**38 - 1
_PLAIN: Final = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "decimal": pa.decimal128(38, 0),
    "double": pa.float64(),
    "string": pa.string(),
}
_NUMBERS: Final = ("bigint", "decimal", "double")  # from narrow to wide

#: None (null), a name of _PLAIN, the fields of an object, or a list of one element.
_Kind = Any


def infer_schema(bodies: Iterable[bytes], *, names: Names) -> str:
    """Return a schema, as DDL, that fits the JSON objects among the bodies.

    Raises UsageError when no body is a JSON object or no schema fits them.
    """
    merged: dict[str, _Kind] = {}
    count = 0
    for body in bodies:
        try:
            value = read_json(body.decode("utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            count += 1
            merged = _merge(merged, _kind_of(value, 0))
    if not merged:
        raise UsageError(
            f"{names.infer}: none of the messages is a JSON object"
            + (" with a field" if count else ""),
            hint=f"give a schema as {names.schema}",
        )
    try:
        return ddl_of(check_type(_type_of(merged)))
    except UsageError as error:
        raise UsageError(
            f"{names.infer}: {error.message}",
            hint=f"give a schema as {names.schema}",
        ) from None


def _kind_of(value: object, depth: int) -> _Kind:
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            if -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
                return "bigint"
            return "decimal" if abs(value) <= _DECIMAL_MAX else "string"
        case float():
            return "double"
        case dict() | list() if depth >= DEPTH_MAX - 1:
            return "string"
        case dict():
            return {
                name: _kind_of(each, depth + 1)
                for name, each in value.items()
                if is_name(name)
            }
        case list():
            kind: _Kind = None
            for each in value:
                kind = _merge(kind, _kind_of(each, depth + 1))
            return [kind]
    return "string"


def _merge(one: _Kind, other: _Kind) -> _Kind:
    """Return the kind that can hold the values of both kinds."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        for name, kind in other.items():
            one[name] = _merge(one[name], kind) if name in one else kind
        return one
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    return "string"


def _type_of(kind: _Kind) -> pa.DataType:
    if isinstance(kind, list):
        return pa.list_(_type_of(kind[0]))
    if isinstance(kind, dict) and kind:
        return struct_of((name, _type_of(each)) for name, each in sorted(kind.items()))
    return _PLAIN.get(kind if isinstance(kind, str) else "string", pa.string())
