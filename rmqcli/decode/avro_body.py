"""Decode Avro bodies: each body is one record in Avro's binary encoding.

Column types are the ones that Spark's `from_avro` uses; an enum becomes a string. A
union must consist of one type and null, of `int` and `long`, or of `float` and
`double`. A body is corrupt when bytes follow the record, or when a schema registry's
header precedes it.

Source: https://avro.apache.org/docs/1.12.0/specification, SchemaConverters in
apache/spark (connector/avro).
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa

from rmqcli.decode.build import plain_leaf_of
from rmqcli.decode.schema import (
    DEPTH_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    check_type,
    struct_of,
)
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from rmqcli.decode.build import Leaf

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
}
_WIDER: Final = (("int", "long"), ("float", "double"))


def canonical(text: str) -> str:
    """Return the schema as canonical JSON: equal schemas give equal text.

    Raises UsageError for a text that is not a schema whose bodies can be decoded.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the Avro schema is not valid JSON: {error}") from None
    found = json.dumps(schema, separators=(",", ":"), sort_keys=True)
    AvroBody(found)
    return found


class AvroBody:
    """Reads Avro bodies with a schema that is given as JSON."""

    def __init__(self, schema: str) -> None:
        """Raises UsageError when the schema is invalid or has no column type."""
        written = json.loads(schema)
        try:
            parsed = fastavro.parse_schema(written)
        except Exception as error:  # noqa: BLE001  # fastavro has no common base class
            raise UsageError(f"not an Avro schema: {error!r:.200}") from None
        types = _Types()
        kind = types.of(parsed, "the schema", 0)
        if not pa.types.is_struct(kind):
            raise UsageError("the Avro schema is not a record")
        self.value_type: pa.StructType = check_type(kind)
        self._schema = fastavro.parse_schema(_without_other_logical_types(written))

    def read(self, body: bytes) -> object:
        """Return the record in a body. May raise any Exception for a corrupt body."""
        file = io.BytesIO(body)
        record = fastavro.schemaless_reader(file, self._schema, None)
        if file.tell() != len(body):
            raise ValueError("bytes follow the record")
        return record

    def leaf_of(self, kind: pa.DataType) -> Leaf:
        """Return the conversion of values to columns of a plain type."""
        return plain_leaf_of(kind)


def _is_decimal(schema: dict[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema.get("type") in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= 38
        and 0 <= scale <= precision
    )


def _without_other_logical_types(schema: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a schema without the logical types for which there is no column type."""
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    known = (schema.get("type"), schema.get("logicalType"))
    if not _is_decimal(schema) and not (
        isinstance(known[0], str) and known in _LOGICAL
    ):
        kept.pop("logicalType", None)
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _without_other_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_without_other_logical_types(f) for f in kept["fields"]]
    return kept


class _Types:
    """Column types of a schema as `fastavro.parse_schema` returns it."""

    def __init__(self) -> None:
        #: full name -> column type, and whether a value may be encoded in zero bytes
        self._named: dict[str, tuple[pa.DataType, bool]] = {}
        self._open: set[str] = set()

    def of(self, schema: Any, where: str, depth: int) -> pa.DataType:  # noqa: ANN401
        """Return the type of a schema. Raises UsageError when there is none."""
        kind, _ = self._of(schema, where, depth)
        return kind

    def _of(
        self,
        schema: Any,  # noqa: ANN401  # JSON
        where: str,
        depth: int,
    ) -> tuple[pa.DataType, bool]:
        """Return the type, and whether a value may be encoded in zero bytes."""
        if depth > DEPTH_MAX:
            raise UsageError(f"the types are nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            return self._union(schema, where, depth), False
        if isinstance(schema, str):
            if schema in self._open:
                raise UsageError(f"{where} contains itself ({schema})")
            if schema in self._named:
                return self._named[schema]
            return self._plain(schema, where)
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self._of(kind, where, depth + 1)
        if kind in ("array", "map"):
            item, is_empty = self._of(
                schema["items" if kind == "array" else "values"], where, depth + 1
            )
            if kind == "map":
                return pa.map_(pa.string(), item), False
            if is_empty:
                # A body of a few bytes could then claim a billion elements.
                raise UsageError(
                    f"{where} is an array whose elements are encoded in zero bytes"
                )
            return pa.list_(item), False
        if kind in ("record", "error"):
            return self._record(schema, depth)
        if _is_decimal(schema):
            found = pa.decimal128(schema["precision"], schema.get("scale", 0)), False
        elif (kind, schema.get("logicalType")) in _LOGICAL:
            found = _LOGICAL[kind, schema["logicalType"]], False
        else:
            found = self._plain(kind, where)
        if kind == "fixed":
            found = found[0], not schema.get("size")
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _plain(self, name: object, where: str) -> tuple[pa.DataType, bool]:
        kind = _PLAIN.get(name) if isinstance(name, str) else None
        if kind is None:
            raise UsageError(
                f"{where} has the type {name!s:.60}, which no column can hold"
            )
        return kind, False

    def _record(self, schema: dict[str, Any], depth: int) -> tuple[pa.DataType, bool]:
        name = schema["name"]
        self._open.add(name)
        fields, is_empty = [], True
        for field in schema["fields"]:
            where = f"field {field['name']} of {name}"
            kind, may_be_empty = self._of(field["type"], where, depth + 1)
            fields.append((field["name"], kind))
            is_empty = is_empty and may_be_empty
        self._open.discard(name)
        if not fields:
            raise UsageError(f"record {name} has no fields")
        self._named[name] = struct_of(fields), is_empty
        return self._named[name]

    def _union(self, schemas: list[Any], where: str, depth: int) -> pa.DataType:
        kept = [each for each in schemas if each not in ("null", {"type": "null"})]
        names = {each if isinstance(each, str) else "" for each in kept}
        for narrow, wide in _WIDER:
            if names == {narrow, wide}:
                return _PLAIN[wide]
        if len(kept) != 1:
            raise UsageError(
                f"{where} is a union of {len(kept)} types, but a column has one type"
            )
        return self.of(kept[0], where, depth + 1)
