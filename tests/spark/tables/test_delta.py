"""A table of Delta Lake whose log cannot be read, without Spark."""

from __future__ import annotations

import types
from typing import Any

import pytest

from rmqcli.errors import RefusedError
from rmqcli.spark.tables.delta import DeltaTable


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
