"""Spark Connect: the guide's program, the format rocketmq, and exports by a server.

The server's Python workers do not have rmqcli installed; clients send it.
"""

from __future__ import annotations

import re
import signal

import pyarrow.dataset as ds
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.errors import ConfigError
from rmqcli.spark.connect import check_client_packages
from rmqcli.spark.export.executors import PACKAGES
from rmqcli.spark.package import zip_package
from tests.kit import spark
from tests.kit.documents import program
from tests.kit.spark_cluster import ConnectServer, bare_python, executors_path
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.producer.stored import bodies
from tests.spark.export.inline import expected, offsets_in
from tests.spark.export.processes import ExportProcess

QUEUES = {0: (0, 9000), 1: (500, 9000)}


def _not_here() -> str | None:
    try:
        check_client_packages()
    except ConfigError as error:
        return error.message
    return spark.no_java()


pytestmark = [
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(_not_here() is not None, reason=_not_here() or ""),
    pytest.mark.xdist_group("spark-connect"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connect")
    path = executors_path(folder / "lib", packages=PACKAGES)
    with ConnectServer(folder / "spark", path=[path], python=bare_python()) as server:
        yield server


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.create_topic("copies", queues=1)
        cluster.send("orders", ["a"] * 5, tags="New")
        cluster.send("orders", ["b"] * 3, tags="Paid")
        yield cluster


def output_of(code, folder, server, cluster):
    """Run a client's program, which needs no Java; return what it printed."""
    zip_package(str(folder))
    code = code.replace("127.0.0.1:9876", cluster.namesrv)
    code = code.replace("sc://localhost:15002", server.url)
    return spark.output_of(code, folder, JAVA_HOME="/no/such")


def test_the_program_of_the_guide_reads_through_a_server(tmp_path, server, cluster):
    code = program("clusters", "Spark Connect")
    shown = output_of(code, tmp_path, server, cluster)
    assert "| New|    5|\n|Paid|    3|" in shown


STREAM_AND_SINK = """
from pyspark.sql import SparkSession

from rmqcli import RocketMQDataSource

spark = SparkSession.builder.remote("sc://localhost:15002").getOrCreate()
spark.addArtifacts("rmqcli.zip", pyfile=True)
spark.dataSource.register(RocketMQDataSource)
options = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}
query = (
    spark.readStream.format("rocketmq").options(**options)
    .option("startingOffsets", "earliest").load()
    .writeStream.format("parquet")
    .option("path", "FOLDER/rows").option("checkpointLocation", "FOLDER/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
orders = spark.read.format("rocketmq").options(**options).load()
copies = orders.where("tags = 'Paid'").select("body", "tags").write.format("rocketmq")
copies = copies.option("namesrv", "127.0.0.1:9876").option("topic", "copies")
copies.mode("append").save()
spark.stop()
"""


def test_a_stream_ends_with_the_available_messages_and_rows_become_messages(
    tmp_path, server, cluster
):
    program = STREAM_AND_SINK.replace("FOLDER", str(tmp_path))
    output_of(program, tmp_path, server, cluster)
    rows = ds.dataset(tmp_path / "rows", format="parquet").to_table()
    assert sorted(rows.column("body").to_pylist()) == [b"a"] * 5 + [b"b"] * 3
    assert bodies(cluster, "copies") == [b"b"] * 3


def test_an_export_by_a_server_writes_each_message_once(tmp_path, server):
    path = tmp_path / "out"
    env = {"JAVA_HOME": "/no/such"}
    with ExportProcess(path, QUEUES, options={"remote": server.url}, env=env) as export:
        summary = export.summary()
    assert summary["rows"] == 17_500
    assert offsets_in(path) == expected(QUEUES)
    words = export.errors.read_text().splitlines()
    # A busy machine may take long to start the first Python worker.
    usual = ("planned:", "progress:", "info: waiting for the Spark cluster")
    assert [w for w in words if not w.startswith(usual)] == []
    assert "offsets_done=17500, offsets=17500, tasks_done=6, tasks=6" in words[-1]


def test_an_interrupted_export_of_a_server_is_continued_by_the_same_command(
    tmp_path, server
):
    path = tmp_path / "out"
    queues = {0: (0, 60_000), 1: (500, 60_000)}
    options = {"remote": server.url}
    with ExportProcess(path, queues, options=options) as export:
        wait_until(lambda: re.search("offsets_done=[1-9]", export.errors.read_text()))
        export.process.send_signal(signal.SIGINT)
        assert export.process.wait(PATIENCE_S) != 0
    assert not (path / "_SUCCESS").exists()
    assert not (path / "_rmq" / "tmp").exists()
    with ExportProcess(path, queues, options=options) as export:
        summary = export.summary()
    assert summary["rows"] == 119_500
    assert offsets_in(path) == expected(queues)


def test_the_error_of_a_part_keeps_its_exit_code(tmp_path, server):
    path = tmp_path / "out"
    options = {"remote": server.url}
    source = {"fail_at": 8500}
    with ExportProcess(
        path, {0: (8000, 9000)}, options=options, source=source
    ) as export:
        assert export.process.wait(PATIENCE_S) == 5
    assert export.errors.read_text().splitlines()[-1] == (
        "DisconnectedError: the broker went away"
    )
