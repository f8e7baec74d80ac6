"""Decode Avro bodies: each body is one record in Avro's binary encoding.

Column types are the ones that Spark's `from_avro` uses; an enum becomes a string. A
union must consist of one type and null, of `int` and `long`, or of `float` and
`double`. A body is corrupt when bytes follow the record, or when a schema registry's
header precedes it.

Source: https://avro.apache.org/docs/1.12.0/specification, SchemaConverters in
apache/spark (connector/avro).
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from rmqcli.decode.avro import AvroReader, is_decimal, is_time, load_schema
from rmqcli.decode.build import BodyReader, plain_leaf_of
from rmqcli.decode.schema import TIMESTAMP, TIMESTAMP_NTZ, check_type, struct_of
from rmqcli.errors import UsageError

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
_TIMES: Final = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": TIMESTAMP_NTZ,
    "local-timestamp-micros": TIMESTAMP_NTZ,
}
_WIDER: Final = (("int", "long"), ("float", "double"))


def canonical(text: str) -> str:
    """Return the schema as canonical JSON: equal schemas give equal text.

    Raises UsageError for a text that is not a schema whose bodies can be decoded.
    """
    found = json.dumps(load_schema(text), separators=(",", ":"), sort_keys=True)
    avro_body(found)
    return found


def avro_body(schema: str) -> BodyReader:
    """Return the reader of bodies with a schema that is given as JSON.

    Raises UsageError when the schema is invalid or has no column type.
    """
    reader = AvroReader(schema)
    kind = _Types().of(reader.parsed, "the schema")
    if not pa.types.is_struct(kind):
        raise UsageError("the Avro schema is not a record")
    return BodyReader(check_type(kind), reader.read, plain_leaf_of)


class _Types:
    """Column types of a schema as `fastavro.parse_schema` returns it.

    `AvroReader` limits how deeply a schema is nested, and `check_type` a column.
    """

    def __init__(self) -> None:
        #: full name -> column type
        self._named: dict[str, pa.DataType] = {}

    def of(self, schema: Any, where: str) -> pa.DataType:  # noqa: ANN401
        """Return the type of a schema. Raises UsageError when there is none."""
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            return self._named.get(schema) or self._plain(schema, where)
        kind = schema.get("type")
        if kind == "array":
            return pa.list_(self.of(schema["items"], where))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], where))
        if kind in ("record", "error"):
            return self._record(schema)
        if is_decimal(schema):
            found = pa.decimal128(schema["precision"], schema.get("scale", 0))
        elif is_time(schema):
            found = _TIMES[schema["logicalType"]]
        else:
            found = self._plain(kind, where)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _plain(self, name: object, where: str) -> pa.DataType:
        kind = _PLAIN.get(name) if isinstance(name, str) else None
        if kind is None:
            raise UsageError(
                f"{where} has the type {name!s:.60}, which no column can hold"
            )
        return kind

    def _record(self, schema: dict[str, Any]) -> pa.DataType:
        name = schema["name"]
        fields = [
            (
                field["name"],
                self.of(field["type"], f"field {field['name']} of {name}"),
            )
            for field in schema["fields"]
        ]
        if not fields:
            raise UsageError(f"record {name} has no fields")
        self._named[name] = struct_of(fields)
        return self._named[name]

    def _union(self, schemas: list[Any], where: str) -> pa.DataType:
        kept = [each for each in schemas if each not in ("null", {"type": "null"})]
        names = {each if isinstance(each, str) else "" for each in kept}
        for narrow, wide in _WIDER:
            if names == {narrow, wide}:
                return _PLAIN[wide]
        if len(kept) != 1:
            raise UsageError(
                f"{where} is a union of {len(kept)} types, but a column has one type"
            )
        return self.of(kept[0], where)
