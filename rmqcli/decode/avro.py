"""Reads Avro bodies: each body is one value in Avro's binary encoding, no header.

Values are those of fastavro. Dates, times and decimals are read as such; all other
logical types are ignored. A body is corrupt when bytes follow the value, or when a
decimal has more digits than its type: fastavro itself would round it.

A schema may come from a server, and a body from anyone, so a schema is refused if a
short body could describe a value of any size, or any depth, which fastavro reads
without a limit.

Source: https://avro.apache.org/docs/1.12.0/specification.
"""

from __future__ import annotations

import decimal
import io
import json
from typing import TYPE_CHECKING, Any, Final

import fastavro

from rmqcli.decode.plain import plain_value, reason_of
from rmqcli.errors import DecodeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Logical types that are read as dates and times, with the types that have them.
TIMES: Final = frozenset(
    {
        ("int", "date"),
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "local-timestamp-millis"),
        ("long", "local-timestamp-micros"),
    }
)
_DEPTH_MAX: Final = 64
#: How many values that take no bytes (null, a record around others) a list may have for
#: each byte, and how many there may be outside of lists.
_FREE_PER_BYTE: Final = 4
_FREE_MAX: Final = 2_000
_BYTES: Final = {"float": 4, "double": 8}
#: What decimals are called in the schema that fastavro reads with, and how their value
#: is computed: no decimal that passes the check has more digits than a column.
_EXACT: Final = "rmqcli-exact-decimal"
_DIGITS_MAX: Final = 38
_DIGITS: Final = decimal.Context(prec=_DIGITS_MAX)
#: The marks of a schema that fastavro has parsed. It believes them, and checks nothing.
_PARSED: Final = frozenset({"__fastavro_parsed", "__named_schemas"})
#: The types that have a name, by which others may refer to them.
_NAMED: Final = ("record", "error", "enum", "fixed")


def avro_values(
    schema: bytes, referenced: Sequence[str] = ()
) -> Callable[[bytes], object]:
    """Return what reads the value of a body. Raises UsageError for a bad schema.

    `referenced` are schemas whose named types the schema may use, each after those that
    it uses itself.
    """
    text = _text(schema)
    read = AvroReader(_joined(text, referenced) if referenced else text).read

    def value(body: bytes) -> object:
        try:
            found = read(body)
        except Exception as error:  # noqa: BLE001  # fastavro has no common base class
            raise DecodeError(f"not of the Avro schema: {reason_of(error)}") from None
        return plain_value(found)

    return value


def _text(schema: bytes) -> str:
    try:
        return schema.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def load_schema(text: str) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON of a schema. Raises UsageError if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the Avro schema is not valid JSON: {error}") from None


def _read(schema: str) -> Any:  # noqa: ANN401  # JSON
    return _without_marks(load_schema(schema))


def _without_marks(schema: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a schema without `_PARSED` where fastavro would look for them."""
    if isinstance(schema, list):
        return [_without_marks(each) for each in schema]
    if isinstance(schema, dict):
        return {name: each for name, each in schema.items() if name not in _PARSED}
    return schema


def _parsed(written: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """Return a schema with the full names of its types, which are added to `named`."""
    try:
        return fastavro.parse_schema(written, named)
    except Exception as error:  # noqa: BLE001  # fastavro has no common base class
        raise UsageError(f"not an Avro schema: {error!r:.200}") from None


def _joined(schema: str, referenced: Sequence[str]) -> str:
    """Return a schema in which each named type is defined where it is used first."""
    named: dict[str, Any] = {}
    for each in referenced:
        _parsed(_read(each), named)
    return json.dumps(_defined(_parsed(_read(schema), named), named, set(), 0))


def _defined(
    schema: Any,  # noqa: ANN401  # JSON
    named: dict[str, Any],
    known: set[str],
    depth: int,
) -> Any:  # noqa: ANN401
    """Return a parsed type in which those of `named` are defined that are not known."""
    if depth > _DEPTH_MAX:
        raise UsageError(f"the types are nested more than {_DEPTH_MAX} deep")
    if isinstance(schema, list):
        return [_defined(each, named, known, depth + 1) for each in schema]
    if isinstance(schema, str):
        if schema not in named or schema in known:
            return schema
        schema = named[schema]
    if not isinstance(schema, dict):
        return schema
    kept = _without_marks(schema)
    name = kept.get("name")
    if isinstance(name, str) and kept.get("type") in _NAMED:
        if name in known:
            return name
        known.add(name)
    for part in ("items", "values"):
        if part in kept:
            kept[part] = _defined(kept[part], named, known, depth + 1)
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [
            {**field, "type": _defined(field["type"], named, known, depth + 1)}
            for field in kept["fields"]
        ]
    return kept


class AvroReader:
    """Reads bodies of a schema, which is given as JSON.

    `parsed` is the schema as `fastavro.parse_schema` returns it.
    """

    def __init__(self, schema: str) -> None:
        """Raises UsageError for a schema that is invalid or refused."""
        written = _read(schema)
        self.parsed = _parsed(written, {})
        if _Sizes().free(self.parsed, "the schema", 0) > _FREE_MAX:
            raise UsageError(f"the schema has more than {_FREE_MAX} null fields")
        self._schema = fastavro.parse_schema(_without_other_logical_types(written))

    def read(self, body: bytes) -> object:
        """Return the value of a body. May raise any Exception for a corrupt body."""
        file = io.BytesIO(body)
        value = fastavro.schemaless_reader(file, self._schema, None)
        if file.tell() != len(body):
            raise ValueError("bytes follow the record")
        return value


def is_decimal(schema: dict[str, Any]) -> bool:
    """Whether a type is a decimal that can be read as one."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema.get("type") in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= _DIGITS_MAX
        and 0 <= scale <= precision
    )


def is_time(schema: dict[str, Any]) -> bool:
    """Whether a type is read as a date or a time."""
    found = schema.get("type"), schema.get("logicalType")
    return all(isinstance(each, str) for each in found) and found in TIMES


def _exact_decimal(data: bytes, schema: dict[str, Any], _: object) -> decimal.Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10 ** schema["precision"]:
        raise ValueError("a decimal has more digits than its type")
    return decimal.Decimal(unscaled).scaleb(-schema.get("scale", 0), _DIGITS)


for _kind in ("bytes", "fixed"):
    fastavro.read.LOGICAL_READERS[f"{_kind}-{_EXACT}"] = _exact_decimal


def _without_other_logical_types(schema: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if is_decimal(schema):
        kept["logicalType"] = _EXACT
    elif not is_time(schema):
        kept.pop("logicalType", None)
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _without_other_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_without_other_logical_types(f) for f in kept["fields"]]
    return kept


class _Sizes:
    """Finds the types whose values may be much larger than their bytes.

    `free` returns the most values without bytes that a value of a type may contain,
    less `_FREE_PER_BYTE` for each byte that it takes then.
    """

    def __init__(self) -> None:
        #: full name -> what `free` returns
        self._named: dict[str, int] = {}
        self._open: set[str] = set()

    def free(self, schema: Any, where: str, depth: int) -> int:  # noqa: ANN401  # JSON
        """Raises UsageError for a type that is refused."""
        if depth > _DEPTH_MAX:
            raise UsageError(f"the types are nested more than {_DEPTH_MAX} deep")
        if isinstance(schema, list):
            each_free = [self.free(each, where, depth + 1) for each in schema]
            return max(each_free, default=0) - _FREE_PER_BYTE
        if isinstance(schema, str):
            if schema in self._open:
                raise UsageError(f"{where} contains itself ({schema})")
            if schema in self._named:
                return self._named[schema]
            return _free(0 if schema == "null" else _BYTES.get(schema, 1))
        kind = schema.get("type")
        if kind == "array":
            if self.free(schema["items"], where, depth + 1) > 0:
                raise UsageError(
                    f"{where} is an array whose elements are encoded in zero bytes, or"
                    " in few"
                )
            return _free(1)
        if kind == "map":
            key = _free(1)
            if key + self.free(schema["values"], where, depth + 1) > 0:
                raise UsageError(f"{where} is a map whose values take too few bytes")
            return _free(1)
        if kind in ("record", "error"):
            return self._record(schema, depth)
        size = schema.get("size") if kind == "fixed" else _BYTES.get(kind, 1)
        if type(size) is not int or size < 0:
            raise UsageError(f"{where} has the size {size!r:.40}")
        found = _free(0 if kind == "null" else size)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _record(self, schema: dict[str, Any], depth: int) -> int:
        name = schema["name"]
        self._open.add(name)
        found = 1
        for field in schema["fields"]:
            where = f"field {field['name']} of {name}"
            found += self.free(field["type"], where, depth + 1)
        self._open.discard(name)
        self._named[name] = found
        return found


def _free(size: int) -> int:
    return -_FREE_PER_BYTE * size if size else 1
