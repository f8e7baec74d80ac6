"""Streams through a real Spark: batches, restarts, new queues, the group, kills."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader

from rmqcli import Admin
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.spark import no_java, patiently, spark_session
from tests.spark.source.kill_stream import kill_and_compare

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]
HAS_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        yield cluster


def run(spark, cluster, topic, folder, **options):
    """Write the available messages to Parquet; return the progress of each batch."""
    stream = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    given = {"subscribe": topic, "startingOffsets": "earliest", **options}
    for name, value in given.items():
        stream = stream.option(name, value)
    writer = (
        stream.load()
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )

    def ended():
        query = writer.start()
        query.awaitTermination()
        return query.recentProgress

    return patiently(ended)


def places(spark, folder):
    rows = spark.read.parquet(str(folder / "rows")).collect()
    return sorted((row.queue_id, row.queue_offset) for row in rows)


@pytest.mark.slow
def test_a_restarted_query_goes_on_and_takes_up_a_new_queue(spark, cluster, tmp_path):
    cluster.create_topic("restarted", queues=2)
    cluster.create_group("warehouse")
    cluster.send("restarted", ["m"] * 10)
    limit = {"maxOffsetsPerTrigger": "4"} if HAS_LIMITS else {}
    progress = run(
        spark, cluster, "restarted", tmp_path, commitGroup="warehouse", **limit
    )
    rows = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert rows == ([4, 4, 2] if HAS_LIMITS else [10])
    cluster.broker().set_queues("restarted", read=3, write=3)
    cluster.send("restarted", ["m"] * 2, queue_id=2)
    cluster.send("restarted", ["m"], queue_id=0)
    progress = run(spark, cluster, "restarted", tmp_path, commitGroup="warehouse")
    assert sum(each["numInputRows"] for each in progress) == 3
    assert places(spark, tmp_path) == [
        *((0, offset) for offset in range(6)),
        *((1, offset) for offset in range(5)),
        (2, 0),
        (2, 1),
    ]
    if HAS_LIMITS:
        [source] = progress[-1]["sources"]
        assert source["latestOffset"] == (
            '{"restarted": {"broker-a": {"0": 6, "1": 5, "2": 2}}}'
        )
        with Admin(namesrv=cluster.namesrv) as admin:
            lags = {q.queue_id: q.lag for q in admin.lag("warehouse").queues}
        assert {id_: lags[id_] for id_ in (0, 1, 2)} == {0: 0, 1: 0, 2: 0}


@pytest.mark.slow
def test_a_stream_keeps_the_schema_inferred_at_its_start(spark, cluster, tmp_path):
    cluster.create_topic("typed", queues=1)
    cluster.send("typed", ['{"id": 1}', '{"id": 2}'])
    run(spark, cluster, "typed", tmp_path, decode="json", decodeInfer="5")
    cluster.send("typed", ['{"id": 3}', '{"id": "text"}'])
    run(spark, cluster, "typed", tmp_path, decode="json", decodeInfer="2")
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("queue_offset")
    found = [
        (row.id, row._corrupt_body) for row in rows.select("value.id", "*").collect()
    ]
    assert found == [(1, None), (2, None), (3, None), (None, b'{"id": "text"}')]


@pytest.mark.slow
def test_a_checkpoint_of_another_topic_ends_the_query(spark, cluster, tmp_path):
    for topic in ("one", "two"):
        cluster.create_topic(topic, queues=1)
        cluster.send(topic, ["m"])
    run(spark, cluster, "one", tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, cluster, "two", tmp_path)
    assert (
        "rmqcli.errors.ConfigError: the checkpoint belongs to topic one, but the query"
        " subscribes to two\nhint: start the query with a new checkpointLocation"
    ) in str(caught.value)


@pytest.mark.slow
def test_of_a_topic_that_was_created_again_every_message_is_in_the_rows(
    spark, cluster, tmp_path
):
    cluster.create_topic("again", queues=2)
    cluster.send("again", [f"old {n}" for n in range(300)])
    run(spark, cluster, "again", tmp_path, failOnDataLoss="false")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("again")
    cluster.create_topic("again", queues=2)
    for start in (0, 90):
        cluster.send("again", [f"new {n}" for n in range(start, start + 90)])
        progress = run(spark, cluster, "again", tmp_path, failOnDataLoss="false")
        assert sum(each["numInputRows"] for each in progress) == 90
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(bytes(row.body).decode() for row in rows) == sorted(
        [f"old {n}" for n in range(300)] + [f"new {n}" for n in range(180)]
    )


@pytest.mark.slow
def test_a_killed_query_loses_and_repeats_nothing(tmp_path):
    """`python -m tests.spark.source.kill_stream` does this with twenty kills."""
    found = kill_and_compare(str(tmp_path), kills=2, seed=3)
    assert (found["missing"], found["repeated"], found["wrong"]) == (0, 0, 0)
    assert found["rows"] == found["messages"] == 1_000
