"""Rows that Spark ships as Arrow batches are written like those that it pickles."""

from __future__ import annotations

import pytest

from rmqcli.cli.spark.sql import _columns, _data_row, _write_batch
from rmqcli.cli.ui.output import RowWriter
from rmqcli.spark.sql.batches import read_batches
from rmqcli.spark.sql.session import QueryResult
from rmqcli.spark.sql.statement import Statement
from tests.kit.spark import no_java, patiently
from tests.spark.sql.drawn_rows import Draw
from tests.spark.sql.test_lines import Terminal

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture
def session(sql_session):
    return sql_session


def written(session, frame, output):
    """What is written of a DataFrame by batches, and row by row."""
    result = QueryResult(session, frame, Statement("", ()))
    found = []
    for is_by_batch in (True, False):
        out = Terminal()
        writer = RowWriter(
            columns=_columns(result.columns, is_table=False), fmt=output, stream=out
        )
        if is_by_batch:
            for batch in patiently(lambda: list(read_batches(result._frame))):
                _write_batch(writer, result.columns, batch, fmt=output)
        else:
            rows = patiently(lambda: list(result._frame.toLocalIterator()))
            writer.write(_data_row(result.columns, row) for row in rows)
        writer.close()
        found.append(out.written().decode())
    return found


def by_batches(session, frame, output):
    """What is written of a DataFrame by batches."""
    result = QueryResult(session, frame, Statement("", ()))
    out = Terminal()
    columns = _columns(result.columns, is_table=False)
    writer = RowWriter(columns=columns, fmt=output, stream=out)
    for batch in patiently(lambda: list(read_batches(result._frame))):
        _write_batch(writer, result.columns, batch, fmt=output)
    writer.close()
    return out.written().decode()


def check_random_frames(session, *, seed, count):
    """Compare what is written of random DataFrames.

    Their maps have one entry at most: PySpark's rows lose the order of entries.
    """
    for number in range(seed, seed + count):
        drawn = Draw(number, entries_max=1).rows()
        frame = session._spark.createDataFrame(drawn.rows, drawn.schema)
        output = ("jsonl", "csv", "json")[number % 3]
        by_batch, by_row = written(session, frame, output)
        assert by_batch == by_row, (number, output, drawn.schema)


def test_random_frames_are_written_as_the_same_bytes(session):
    check_random_frames(session, seed=1, count=15)


#: What Python's values cannot hold, and the types that Spark casts to texts.
QUERY = """
select id,
  cast(unhex(elt(id % 9 + 1, 'FF', '61EDA08062', 'EDA0', 'E08080', 'F09F98', 'C3',
    '67C3B6C39F65', 'F09F9880', '22')) as string) text,
  unhex(elt(id % 4 + 1, 'FF', '67C3B6', 'EDA080', null)) bytes,
  from_json('{"a": 1, "b": null, "a": 3}', 'map<string, int>') repeated,
  cast(map(1.2, 'x', 1.3, cast(id as string)) as map<int, string>) as_int,
  map(named_struct('a', id), struct(id)) of_structs,
  named_struct('a', id, 'a', named_struct('b', unhex('C328'), 'b', true)) twice,
  map(timestamp_micros(id), timestamp_millis(id)) times, map(true, date'0001-01-01') d,
  array(double('nan'), float('-inf'), 1e16, 0.1) numbers, null nothing, array() empty,
  map() no_entries, timestamp_ntz'2026-01-02 03:04:05' ntz, interval 3 month months,
  cast(id as decimal(38, 0)) - 99999999999999999999999999999999999999 big,
  cast(id as decimal(38, 18)) / 7 fraction, chr(id) as character
from range(0, 700, 1, 3)
"""


@pytest.mark.parametrize(
    ("query", "line"),
    [
        (r"array(x'ff', cast(r'\xff' as binary), null)", '["/w==","XHhmZg==",null]'),
        (r"map(x'ff', 1, cast(r'\xff' as binary), 2)", '{"/w==":1,"XHhmZg==":2}'),
        ("struct(binary('a') a, map('k', binary('')) m)", '{"a":"YQ==","m":{"k":""}}'),
    ],
)
def test_binary_values_in_others_are_base64(session, query, line):
    frame = session._spark.sql(f"select {query} v")
    quoted = line.replace('"', '""')
    assert by_batches(session, frame, "jsonl") == f'{{"v":{line}}}\n'
    assert by_batches(session, frame, "csv") == f'v\r\n"{quoted}"\r\n'


@pytest.mark.parametrize("output", ["jsonl", "csv"])
def test_values_that_only_sql_can_make_are_written_as_the_same_bytes(session, output):
    by_batch, by_row = written(session, session._spark.sql(QUERY), output)
    assert by_batch == by_row
    assert by_batch.count("\n") >= 700


def test_a_map_keeps_its_order(session):
    by_batch, _ = written(
        session, session._spark.sql("select map('z', 1, 'a', 2, 'm', 3) m"), "jsonl"
    )
    assert by_batch == '{"m":{"z":1,"a":2,"m":3}}\n'


def test_maps_with_keys_that_python_cannot_hash_are_written(session):
    frame = session._spark.sql("select map(unhex('FF61'), 1) b, map(array(1), 2) a")
    assert by_batches(session, frame, "jsonl") == '{"b":{"/2E=":1},"a":{"[1]":2}}\n'


def test_the_rows_of_an_ordered_query_keep_their_order(session):
    frame = session._spark.sql("select id from range(0, 30000, 1, 7) order by id desc")
    batches = patiently(lambda: list(read_batches(frame)))
    ids = [each for batch in batches for each in batch.column("id").to_pylist()]
    assert ids == list(range(29999, -1, -1))
    assert max(batch.num_rows for batch in batches) <= 9_000
