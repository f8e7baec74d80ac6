"""The programs of the guide on DataFrames run unchanged."""

from __future__ import annotations

import pyarrow.dataset as ds
import pytest

from tests.kit import spark
from tests.kit.documents import program
from tests.producer.stored import bodies

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(spark.no_java() is not None, reason=spark.no_java() or ""),
]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders")
    cluster.create_group("warehouse")
    cluster.send("orders", ["a"] * 5, tags="New")
    cluster.send("orders", ["b"] * 3, tags="Paid")
    return cluster


def output_of(code, cluster, folder):
    """Run a program with this cluster; return what it printed."""
    return spark.output_of(code.replace("127.0.0.1:9876", cluster.namesrv), folder)


def test_a_batch_counts_tags(cluster, tmp_path):
    shown = output_of(program("dataframes", "Read a range"), cluster, tmp_path)
    assert " |-- queue_offset: long (nullable = true)" in shown
    assert "| New|    5|\n|Paid|    3|" in shown


def test_a_stream_reads_what_is_new(cluster, tmp_path):
    assert "batch 0 rows 8" in output_of(
        program("dataframes", "Read a stream"), cluster, tmp_path
    )
    cluster.send("orders", ["c"] * 2)
    assert "batch 1 rows 2" in output_of(
        program("dataframes", "Read a stream"), cluster, tmp_path
    )
    rows = ds.dataset(tmp_path / "orders", format="parquet").to_table()
    assert sorted(rows.column("body").to_pylist()) == (
        [b"a"] * 5 + [b"b"] * 3 + [b"c"] * 2
    )


def test_bodies_become_typed_columns(cluster, tmp_path):
    cluster.create_topic("payments")
    bodies = [f'{{"amount": {n}.5, "currency": "EUR"}}' for n in range(3)]
    cluster.send("payments", [*bodies, "no JSON"])
    shown = output_of(program("dataframes", "Typed columns"), cluster, tmp_path)
    assert " |    |-- amount: double (nullable = true)" in shown
    assert "|     EUR|        4.5|" in shown
    assert shown.endswith("1 corrupt\n")


def test_rows_are_written_to_another_topic(cluster, tmp_path):
    cluster.create_topic("paid-orders", queues=1)
    assert (
        output_of(program("dataframes", "Write rows as messages"), cluster, tmp_path)
        == "3 orders copied\n"
    )
    assert bodies(cluster, "paid-orders") == [b"b"] * 3
