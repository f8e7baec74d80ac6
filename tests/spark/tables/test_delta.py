"""A table of Delta Lake whose log cannot be read, without Spark."""

from __future__ import annotations

import types
from typing import Any

import pytest

from rmqcli.errors import RefusedError
from rmqcli.spark.tables.delta import _LEFTOVER, DeltaTable


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
