"""Arrow batches are written as the same text as their rows, one after the other."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, NumericType

from rmqcli.cli.spark.sql import _columns, _data_row, _write_batch
from rmqcli.cli.ui.output import RowWriter
from rmqcli.spark.sql.session import ResultColumn
from tests.spark.sql.drawn_rows import Draw, arrow_array


class Terminal(io.TextIOWrapper):
    """A terminal, or a file, with an encoding, in memory."""

    def __init__(self, encoding: str = "utf-8", *, is_terminal: bool = False) -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding, newline="")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def written(self) -> bytes:
        self.flush()
        return self.raw_bytes.getvalue()


def columns_of(schema):
    return tuple(
        ResultColumn(
            field.name,
            is_number=isinstance(field.dataType, NumericType),
            is_binary=isinstance(field.dataType, BinaryType),
        )
        for field in schema
    )


def batch_of(drawn):
    arrays = [
        arrow_array(field.dataType, values)
        for field, values in zip(drawn.schema, drawn.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=drawn.schema.names)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32),
    output=st.sampled_from(["jsonl", "json", "csv"]),
    encoding=st.sampled_from(["utf-8", "ascii"]),
    is_terminal=st.booleans(),
    cut=st.integers(0, 5),
)
def test_batches_and_rows_of_random_schemas_are_written_as_the_same_bytes(
    seed, output, encoding, is_terminal, cut
):
    if output == "csv":
        encoding = "utf-8"  # a CSV has no way to escape
    drawn = Draw(seed, entries_max=4).rows()
    columns = columns_of(drawn.schema)
    found = []
    for is_by_batch in (True, False):
        out = Terminal(encoding, is_terminal=is_terminal)
        writer = RowWriter(
            columns=_columns(columns, is_table=False), fmt=output, stream=out
        )
        if is_by_batch:
            batch = batch_of(drawn)
            for part in (batch.slice(0, cut), batch.slice(cut)):
                _write_batch(writer, columns, part, fmt=output)
        else:
            writer.write(_data_row(columns, row) for row in drawn.rows)
        writer.close()
        found.append(out.written().decode(encoding, "surrogatepass"))
    assert found[0] == found[1], drawn.schema


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xe0\x80\x80", "\ufffd" * 3),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xc3", "\ufffd"),
    ],
)
def test_a_text_that_is_not_utf_8_is_replaced_as_java_does(raw, text):
    columns = (ResultColumn("s"),)
    batch = pa.record_batch([pa.array([raw, b"\xa4", None]).view(pa.string())], ["s"])
    out = Terminal()
    writer = RowWriter(
        columns=_columns(columns, is_table=False), fmt="jsonl", stream=out
    )
    _write_batch(writer, columns, batch, fmt="jsonl")
    lines = out.written().splitlines()
    assert [json.loads(line)["s"] for line in lines] == [text, "\ufffd", None]
