"""Tests for every version of PySpark 4, which `python -m tests.spark.versions` runs.

Each feature that uses Spark is tested once: a batch, a stream that is restarted, frames
and streams that are used several times, the sink, SQL, an export that is resumed; and
also the private names of PySpark that rmqcli uses. The other tests cover the details,
with the installed version only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from rmqcli import RocketMQDataSource
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.options import Common
from rmqcli.cli.spark.sql import Ranges, SqlCommandOptions, run_statement
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError, RmqError, TextError, UsageError
from rmqcli.spark.sql.scans import narrow_scans
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode, ResponseCode
from tests.kit.spark import patiently
from tests.kit.waiting import PATIENCE_S
from tests.producer.stored import bodies
from tests.spark.source.test_session import last_lines
from tests.spark.sql.scans import check_queries, filled_cluster
from tests.spark.sql.test_batches import check_random_frames

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", [f"größer {n}" for n in range(100)], tags="New")
        cluster.send("orders", ["paid"] * 20, tags="Paid")
        yield cluster


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The file that a package makes when it is imported, in which Spark looks for one
    of its sources."""
    folder = tmp_path_factory.mktemp("path")
    found = folder / "imported"
    program = f"open({str(found)!r}, 'w').close()"
    (folder / "pyspark_other.py").write_text(program, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def session(imported):
    from rmqcli.spark.sql.session import sql_session

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        path = (os.environ.get("PYTHONPATH"), str(imported.parent))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        with sql_session() as session:
            yield session


@pytest.fixture
def spark(session):
    """The session that `rmq sql` starts, with our data source registered."""
    session._spark.dataSource.register(RocketMQDataSource)
    return session._spark


def test_the_version_is_the_one_that_is_to_be_tested():
    assert pyspark.__version__ == os.environ.get("RMQ_PYSPARK", pyspark.__version__)


def test_names_that_are_not_public_are_there(spark):
    from pyspark import daemon
    from pyspark.java_gateway import launch_gateway

    context = spark.sparkContext
    assert callable(launch_gateway)
    assert callable(daemon.manager)
    assert callable(context._accumulatorServer.handle_error)
    assert callable(context._accumulatorServer.shutdown)
    assert context._gateway.proc.poll() is None
    assert isinstance(context._gateway._gateway_client.is_connected, bool)
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        assert getattr(type(context), name) is not None
    assert type(spark)._instantiatedSession is spark
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert parser.parsePlan("select 1").getClass().getSimpleName() == "Project"


def read(spark, cluster, topic="orders", **options):
    reader = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    for name, value in {"subscribe": topic, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def test_a_batch(spark, cluster):
    frame = read(spark, cluster)
    found = patiently(lambda: frame.select("body", "tags", "store_timestamp").collect())
    assert len(found) == 120
    assert {bytes(row.body) for row in found if row.tags == "Paid"} == {b"paid"}
    chosen = frame.where("queue_id = 1 and tags = 'Paid'")
    assert patiently(chosen.union(frame).count) == 130


def test_an_error_has_two_lines(spark, cluster):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        read(spark, cluster, "nowhere")
    what, hint = last_lines(caught.value)
    assert what == "rmqcli.errors.NotFoundError: topic nowhere does not exist"
    assert hint == "hint: list topics with: Admin.topics()"


def test_a_stream_goes_on_at_its_checkpoint(spark, cluster, tmp_path):
    cluster.create_topic("stream", queues=2)

    def run():
        stream = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
        frame = stream.option("subscribe", "stream").option(
            "startingOffsets", "earliest"
        )
        writer = frame.load().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        patiently(lambda: writer.start().awaitTermination())
        found = ds.dataset(tmp_path / "rows", format="parquet").to_table()
        return sorted(found.column("body").to_pylist())

    cluster.send("stream", ["a", "b"])
    assert run() == [b"a", b"b"]
    cluster.send("stream", ["c"])
    assert run() == [b"a", b"b", b"c"]


def test_a_frame_and_a_stream_become_messages(spark, cluster, tmp_path):
    cluster.create_topic("written", queues=2)
    frame = read(spark, cluster).where("tags = 'Paid'").limit(3)

    def sink(writer):
        return writer.option("namesrv", cluster.namesrv).option("topic", "written")

    rows = frame.select("body", "tags", "keys", "properties")
    patiently(lambda: sink(rows.write.format("rocketmq")).mode("append").save())
    assert bodies(cluster, "written") == [b"paid"] * 3
    cluster.create_topic("source", queues=1)
    cluster.send("source", ["streamed"])
    stream = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    stream = stream.option("subscribe", "source").option("startingOffsets", "earliest")
    chosen = stream.load().selectExpr("body", "'k' AS sharding_key")
    writer = sink(chosen.writeStream.format("rocketmq")).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    patiently(lambda: writer.start().awaitTermination())
    assert sorted(bodies(cluster, "written")) == [*[b"paid"] * 3, b"streamed"]


def numbers(rows):
    return sorted(int(bytes(row.body)) for row in rows)


def test_each_use_of_a_frame_has_its_own_rows(spark, cluster):
    """Spark plans all before it runs one, and keeps what it planned for a `load()`."""
    cluster.create_topic("twice", queues=1)
    cluster.send("twice", ["1", "2", "3"], tags="Old")
    cluster.send("twice", ["4", "5"], tags="New")
    frame = read(spark, cluster, "twice")
    cluster.send("twice", ["6"], tags="New")
    later = read(spark, cluster, "twice")
    old, new = frame.where("tags = 'Old'"), frame.where("tags = 'New'")
    kept = frame.where("tags = 'New' and queue_offset > 3").cache()
    wanted = (
        (old, [1, 2, 3]),
        (new, [4, 5]),
        (frame.select("body"), [1, 2, 3, 4, 5]),
        (later.where("tags = 'New'"), [4, 5, 6]),
        (old.union(kept).union(later), [1, 1, 2, 2, 3, 3, 4, 5, 5, 6]),
        (
            old.alias("a").join(frame, "queue_id").select("a.body"),
            [*[1] * 5, *[2] * 5, *[3] * 5],
        ),
        (kept, [5]),
    )
    for each, _ in wanted:
        each._jdf.queryExecution().executedPlan()
    for each, rows in wanted:
        assert numbers(patiently(each.collect)) == rows
    kept.unpersist()
    bodies = [patiently(each.select("body").toArrow)["body"] for each in (new, old)]
    assert [each.to_pylist() for each in bodies] == [[b"4", b"5"], [b"1", b"2", b"3"]]


def test_each_use_of_a_stream_has_its_own_rows(spark, cluster):
    """One `load()` is read by two queries, twice by one, and joined with a batch."""
    cluster.create_topic("streams", queues=1)
    cluster.send("streams", ["1", "2", "3"], tags="Old")
    cluster.send("streams", ["4", "5"], tags="New")
    batch = read(spark, cluster, "streams")
    cluster.send("streams", ["6"], tags="New")
    stream = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    stream = stream.option("subscribe", "streams").option("startingOffsets", "earliest")
    frame = stream.load()
    old = frame.where("tags = 'Old'")
    wanted = {
        "old": (old, [1, 2, 3]),
        "new": (frame.where("tags = 'New'"), [4, 5, 6]),
        "both": (
            old.select("body").union(
                frame.join(batch.select("body"), "body").select("body")
            ),
            [1, 1, 2, 2, 3, 3, 4, 5],
        ),
    }

    def run_all():
        running = [
            rows.select("body").writeStream.format("memory").queryName(name)
            .trigger(availableNow=True).start()
            for name, (rows, _) in wanted.items()
        ]  # fmt: skip
        try:
            for query in running:
                query.awaitTermination()
        finally:
            for query in running:
                query.stop()

    patiently(run_all)
    for name, (_, rows) in wanted.items():
        assert numbers(spark.table(name).collect()) == rows


@pytest.fixture
def sql(session, cluster, capfd):
    """Run a statement as `rmq sql` does; returns its rows."""

    def run_it(text):
        namesrv = (cluster.namesrv,)
        common = Common(namesrv=namesrv, output="jsonl")

        def run_once():
            capfd.readouterr()
            with (
                Client(ClientConfig(namesrv=namesrv)) as client,
                Ranges(client, SqlCommandOptions(), warn=print) as ranges,
            ):
                run_statement(
                    common, SqlCommandOptions(), text, session=session, ranges=ranges
                )
            return capfd.readouterr().out

        return [json.loads(line) for line in patiently(run_once).splitlines()]

    return run_it


def test_sql(sql):
    assert sql("select tags, count(*) n from orders group by tags order by tags") == [
        {"tags": "New", "n": 100},
        {"tags": "Paid", "n": 20},
    ]
    text = "with o as (select * from orders) select body from o where queue_offset = 0"
    assert {row["body"] for row in sql(text)} == {"größer 0", "größer 1"}
    (plan,) = sql("explain select * from orders where queue_id = 1")
    assert "Filter (isnotnull(queue_id" in plan["plan"]
    assert len(sql("describe orders")) == 17


def test_no_package_is_imported_to_look_for_other_data_sources(sql, imported):
    assert sql("select count(*) n from orders") == [{"n": 120}]
    assert not imported.exists()


def test_each_scan_of_a_query_has_its_own_conditions_and_columns(session):
    with filled_cluster("orders") as cluster:
        assert check_queries(session, cluster, seed=7, count=24) == 41
        rule = cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic="orders")
        frame = session._spark.sql("select * from orders where queue_id = 2")
        assert len(patiently(narrow_scans(frame).collect)) == 51
        asked = {each.command.ext_fields["queueId"] for each in rule.requests}
        assert asked == {"2"}


def test_rows_are_written_by_columns(session):
    check_random_frames(session, seed=7, count=12)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("select * form orders", TextError, "syntax error at or near 'orders'"),
        ("select tag from orders", TextError, "`tag` cannot be resolved"),
        ("select * from a-b", TextError, "back quoted"),
        ("select * from nowhere", NotFoundError, "topic nowhere does not exist"),
        ("drop table orders", UsageError, "only queries can be run"),
        ("with a as (select 1) insert into b table a", UsageError, "only queries"),
        ("select cast('x' as int)", RmqError, "cannot be cast to"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_in_a_line(sql, text, kind, words):
    with pytest.raises(RmqError) as caught:
        sql(text)
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_an_export_is_resumed(cluster, tmp_path):
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "rmqcli", "export", "orders", "--to-parquet"]

    def export(*arguments):
        return subprocess.run(
            [*command, str(folder), "-n", cluster.namesrv, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    refused = cluster.faults.add(
        faults.answer(ResponseCode.NO_PERMISSION, "no"),
        nth=2,  # the first one notes the last message
        code=RequestCode.PULL_MESSAGE,
        topic="orders",
        queue_id=1,
    )
    failed = export()
    cluster.faults.remove(refused)
    assert failed.returncode == 6, failed.stderr
    assert "1 of 2 parts could not be written" in failed.stderr
    done = export("--resume", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 120
    assert ds.dataset(folder, format="parquet").count_rows() == 120
