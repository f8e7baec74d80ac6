"""Append the columns `value` and `_corrupt_body` to batches of messages.

`value` is a struct with the fields of the schema, so that no field can clash with a
column of the message; selecting `value.*` turns the fields into columns. When a body
does not fit the schema, `value` is null and `_corrupt_body` has the whole body,
unchanged; otherwise `_corrupt_body` is null. No body raises an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rmqcli.decode.build import CELLS_MAX, Builder
from rmqcli.decode.schema import count_fields, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.decode.build import BodyReader
    from rmqcli.decode.settings import Decoding

VALUE: Final = "value"
CORRUPT: Final = "_corrupt_body"

#: Bytes of bodies that are decoded at once. While they are Python objects they may take
#: 30 times as much memory.
_BYTES_MAX: Final = 4 << 20


class BodyDecoder:
    """Appends the columns. It cannot be pickled, so each worker creates its own."""

    def __init__(self, decoding: Decoding) -> None:
        """Raises UsageError or ConfigError for a schema that cannot be used."""
        self._body = _body(decoding)
        cells = count_fields(self._body.value_type)
        # A list has at most one element for each byte of its body. So only a body that
        # is decoded alone can exceed the limit of `Builder`; a body is never corrupt
        # because of other bodies in the batch.
        self._bytes_max = max(1, min(_BYTES_MAX, CELLS_MAX // cells))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a batch with the columns appended."""
        value = pa.field(VALUE, self._body.value_type)
        return schema.append(value).append(pa.field(CORRUPT, pa.binary()))

    def decode(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield pieces of the batch with the columns, and each one's corrupt rows.

        The second item of each pair is the number of corrupt rows in the piece.
        """
        schema = self.schema(batch.schema)
        for start, length in self._pieces(batch.column("body")):
            piece = batch.slice(start, length)
            value, corrupt = self._columns(piece.column("body").to_pylist())
            columns = [*piece.columns, value, corrupt]
            yield pa.RecordBatch.from_arrays(columns, schema=schema), value.null_count

    def _pieces(self, bodies: pa.Array) -> Iterator[tuple[int, int]]:
        """Yield start and length of runs of rows within the limit of bytes.

        A row whose body alone exceeds the limit is a run of its own.
        """
        start = size = 0
        for index, length in enumerate(_lengths(bodies)):
            if index > start and size + length > self._bytes_max:
                yield start, index - start
                start, size = index, 0
            size += max(1, length)
        if start < len(bodies):
            yield start, len(bodies) - start

    def _columns(self, bodies: list[bytes]) -> tuple[pa.Array, pa.Array]:
        kind, read, leaf_of = self._body

        def value_of(body: bytes) -> object:
            try:
                return read(body)
            except Exception:  # noqa: BLE001  # libraries raise anything on bad bytes
                return None

        builder = Builder(leaf_of)
        values = list(map(value_of, bodies))
        rows = range(len(bodies))
        built = builder.column(values, rows, kind)
        bad = builder.bad.union(row for row in rows if values[row] is None)
        mask = pa.array([row in bad for row in rows], pa.bool_())
        fields = fields_of(kind)
        columns = [built.field(index) for index in range(len(fields))]
        value_column = pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
        if not bad:
            return value_column, pa.nulls(len(bodies), pa.binary())
        kept = [body if row in bad else None for row, body in enumerate(bodies)]
        return value_column, pa.array(kept, pa.binary())


def _lengths(bodies: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    lengths: list[int] = pc.fill_null(pc.binary_length(bodies), 0).to_pylist()
    return lengths


def _body(decoding: Decoding) -> BodyReader:
    """Create the reader of a format, and import only the library that it needs."""
    decoding.check_packages()
    schema = decoding.known_schema
    if decoding.format == "avro":
        from rmqcli.decode.avro_body import avro_body

        return avro_body(schema)
    if decoding.format == "protobuf":
        from rmqcli.decode.protobuf_body import protobuf_body

        return protobuf_body(schema)
    from rmqcli.decode.json_body import json_body

    return json_body(schema)
