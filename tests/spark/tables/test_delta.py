"""A table of Delta Lake whose log cannot be read, without Spark."""

from __future__ import annotations

import types
from typing import Any

import pytest

from rmqcli.errors import RefusedError
from rmqcli.spark.tables.delta import _LEFTOVER, DeltaTable
from rmqcli.spark.tables.record import TableRecord, record_to_json
from rmqcli.spark.tables.table import Commit, TableState

RUN = "20251009T085320Z-00c0ffee"


def table_with(*commits):
    """A table whose history has these (version, metadata), the newest first."""
    rows = [
        types.SimpleNamespace(version=v, userMetadata=text, operationMetrics={})
        for v, text in commits
    ]

    def sql(text):
        limit = text.partition(" LIMIT ")[2]
        found = rows[: int(limit)] if limit else rows
        return types.SimpleNamespace(collect=lambda: list(found))

    spark: Any = types.SimpleNamespace(sql=sql)
    return DeltaTable(spark, "db.orders")


def record_of(run_id):
    return record_to_json(
        TableRecord(
            run_id=run_id,
            sequence=6,
            cluster="c",
            topic="orders",
            tag=None,
            decode=None,
            read={},
            covered={},
            noted={},
        )
    )


@pytest.mark.parametrize("others", [0, 99, 100, 101, 250])
def test_a_commit_is_found_however_many_other_writers_made_since(others):
    since = [(6 + n, None) for n in range(others, 0, -1)]
    table = table_with(*since, (6, record_of(RUN)), (5, None))
    found = table.committed(RUN, TableState(position=5))
    assert found == Commit(version="6", rows=None, files=None, file_bytes=None)


@pytest.mark.parametrize("others", [1, 99, 100, 101, 250])
def test_a_run_without_a_commit_wrote_nothing(others):
    since = [(5 + n, None) for n in range(others, 1, -1)]
    table = table_with(*since, (6, record_of("another")), (5, None))
    with pytest.raises(RefusedError) as caught:
        table.committed(RUN, TableState(position=5))
    assert caught.value.message == (
        "another export committed to db.orders first, and nothing was written"
    )


def test_a_log_without_a_readable_commit_is_an_error_that_names_the_table():
    """DESCRIBE HISTORY was empty, and the export ended with an IndexError."""
    spark: Any = types.SimpleNamespace(
        catalog=types.SimpleNamespace(tableExists=lambda _: True),
        sql=lambda _: types.SimpleNamespace(collect=list),
    )
    with pytest.raises(RefusedError) as caught:
        DeltaTable(spark, "db.orders").state()
    assert caught.value.message == (
        "the log of db.orders has no commit that can be read"
    )


def test_what_a_killed_run_leaves_is_told_from_other_files():
    """The folder by which a run asks what executors see kept the next one out."""
    part = "part-00000-0f2b6c9e-4a5d-4c7b-9d3e-2f1a0b9c8d7e-c000.snappy.parquet"
    left = ["_delta_log", ".rmq-0123456789abcdef", part, f".{part}.crc"]
    others = ["orders.csv", ".rmq.toml", ".rmq-0123", "x.parquet"]
    assert [name for name in left + others if _LEFTOVER.fullmatch(name)] == left
