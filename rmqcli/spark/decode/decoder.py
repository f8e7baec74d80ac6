"""Batches of messages with two columns more: `value`, and `_corrupt_body`.

`value` is a struct with the fields of the schema, so none of them can clash with a
column of the message; `value.*` makes columns of them. A body that does not fit the
schema is null there, whole, and lies in `_corrupt_body` as it was, which is null for
all others. No body raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from rmqcli.spark.decode.build import CELLS_MAX, Builder, Leaf
from rmqcli.spark.decode.schema import count_fields, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.spark.decode.settings import Decoding

VALUE: Final = "value"
CORRUPT: Final = "_corrupt_body"

#: Bodies that are decoded at once, in bytes: as Python objects they may be 30 times
#: as large for a moment.
_BYTES_MAX: Final = 4 << 20


class Body(Protocol):
    """Reads the bodies of a format."""

    value_type: pa.StructType

    def read(self, body: bytes) -> object:
        """Return the value of a body. May raise any Exception for a bad one."""

    def leaf_of(self, kind: pa.DataType) -> Leaf:
        """How values become columns of a plain type."""


class BodyDecoder:
    """Appends the columns. Made anew in each worker: it cannot be pickled."""

    def __init__(self, decoding: Decoding) -> None:
        """Raises UsageError or ConfigError for a schema that cannot be used."""
        self._body = _body(decoding)
        self._fields = fields_of(self._body.value_type)
        cells = count_fields(self._body.value_type)
        # A list has at most a value for each byte, so only a body that is decoded alone
        # can exceed the limit of `Builder`, and never because of its neighbours.
        self._bytes_max = max(1, min(_BYTES_MAX, CELLS_MAX // cells))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a batch with the columns appended."""
        value = pa.field(VALUE, self._body.value_type)
        return schema.append(value).append(pa.field(CORRUPT, pa.binary()))

    def decode(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows with the columns, in pieces, and how many are corrupt."""
        schema = self.schema(batch.schema)
        for start, length in self._pieces(batch.column("body")):
            piece = batch.slice(start, length)
            value, corrupt = self._columns(piece.column("body").to_pylist())
            columns = [*piece.columns, value, corrupt]
            yield pa.RecordBatch.from_arrays(columns, schema=schema), value.null_count

    def _pieces(self, bodies: pa.Array) -> Iterator[tuple[int, int]]:
        """Yield start and length of runs of rows with few bytes, or of one row."""
        start = size = 0
        for index, length in enumerate(_lengths(bodies)):
            if index > start and size + length > self._bytes_max:
                yield start, index - start
                start, size = index, 0
            size += max(1, length)
        if start < len(bodies):
            yield start, len(bodies) - start

    def _columns(self, bodies: list[bytes]) -> tuple[pa.Array, pa.Array]:
        builder = Builder(self._body.leaf_of)
        read = self._body.read
        values: list[dict[str, Any] | None] = []
        for row, body in enumerate(bodies):
            value = None
            try:
                value = read(body)
            except Exception:  # noqa: BLE001  # what a library raises on damaged bytes
                value = None
            if type(value) is not dict:
                builder.bad.add(row)
                value = None
            values.append(value)
        rows = range(len(bodies))
        columns = [
            builder.column(
                [None if each is None else each.get(field.name) for each in values],
                rows,
                field.type,
            )
            for field in self._fields
        ]
        bad = builder.bad
        mask = pa.array([row in bad for row in rows], pa.bool_())
        value_column = pa.StructArray.from_arrays(
            columns, fields=self._fields, mask=mask
        )
        if not bad:
            return value_column, pa.nulls(len(bodies), pa.binary())
        kept = [body if row in bad else None for row, body in enumerate(bodies)]
        return value_column, pa.array(kept, pa.binary())


def _lengths(bodies: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    lengths: list[int] = pc.fill_null(pc.binary_length(bodies), 0).to_pylist()
    return lengths


def _body(decoding: Decoding) -> Body:
    """Load what reads a format; few programs need more than one."""
    decoding.check_packages()
    schema = decoding.known_schema
    if decoding.format == "avro":
        from rmqcli.spark.decode.avro_body import AvroBody

        return AvroBody(schema)
    if decoding.format == "protobuf":
        from rmqcli.spark.decode.protobuf_body import ProtobufBody

        return ProtobufBody(schema)
    from rmqcli.spark.decode.json_body import JsonBody

    return JsonBody(schema)
