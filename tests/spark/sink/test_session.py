"""The sink in a real Spark: batches, streams, save modes, and errors of two lines."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.testing import Seed
from tests.kit.spark import no_java, patiently, spark_session
from tests.producer.stored import stored
from tests.spark.source.test_session import last_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        yield cluster


def writer(frame, cluster, topic, mode="append"):
    found = frame.write.format("rocketmq").option("namesrv", cluster.namesrv)
    return found.option("topic", topic).mode(mode)


def test_rows_of_a_dataframe_become_messages(spark, cluster):
    cluster.create_topic("written", queues=2)
    frame = spark.range(0, 900, 1, 4).selectExpr(
        "concat('größer ', id) AS body",
        "if(id % 2 = 0, 'even', NULL) AS tags",
        "array(concat('k', id), 'all') AS keys",
        "map('n', string(id)) AS properties",
    )
    patiently(lambda: writer(frame, cluster, "written").save())
    found = {json.loads(m.properties["n"]): m for m in stored(cluster, "written")}
    assert sorted(found) == list(range(900))
    message = found[7]
    assert message.body == "größer 7".encode()
    assert (message.tags, message.keys) == (None, "k7 all")
    assert found[8].tags == "even"


def test_the_sink_accepts_the_rows_of_the_source(spark, cluster):
    cluster.create_topic("origin", queues=2)
    cluster.create_topic("copied", queues=1)
    cluster.send("origin", [Seed(body=b, tags="T", keys=["k"]) for b in (b"a", b"b")])
    read = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    frame = read.option("subscribe", "origin").load()
    chosen = frame.select("body", "tags", "keys", "properties", "flag")
    patiently(lambda: writer(chosen, cluster, "copied").save())
    found = stored(cluster, "copied")
    assert sorted(m.body for m in found) == [b"a", b"b"]
    assert {(m.tags, m.keys) for m in found} == {("T", "k")}
    with pytest.raises(PySparkException) as caught:
        writer(frame, cluster, "copied").save()
    what, hint = last_lines(caught.value)
    assert what == (
        "rmqcli.errors.UsageError: column broker_name is not a column of a message"
    )
    assert hint.startswith("hint: select only these columns: body, tags,")


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("overwrite", 'hint: write .mode("append")'),
        ("error", "ErrorIfExists"),
        ("ignore", "Ignore"),
    ],
)
def test_only_mode_append_is_accepted(spark, cluster, mode, what):
    cluster.create_topic("modes", queues=1)
    frame = spark.sql("SELECT 'a' AS body")
    with pytest.raises(PySparkException) as caught:
        writer(frame, cluster, "modes", mode).save()
    assert what in str(caught.value)
    assert stored(cluster, "modes") == []


def test_a_row_that_cannot_be_sent_fails_the_write(spark, cluster):
    cluster.create_topic("refused", queues=1)
    frame = spark.sql("SELECT CAST(NULL AS STRING) AS body")
    with pytest.raises(PySparkException) as caught:
        patiently(lambda: writer(frame, cluster, "refused").save())
    text = str(caught.value)
    assert "rmqcli.errors.UsageError: a row has no body: it is null\n" in text
    assert 'hint: leave such rows out: .where("body IS NOT NULL")' in text


def stream(spark, cluster, source, topic, folder):
    """A query that copies the available messages of one topic to another."""
    read = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    frame = read.option("subscribe", source).option("startingOffsets", "earliest")
    return (
        frame.load()
        .selectExpr("upper(string(body)) AS body", "keys", "properties")
        .writeStream.format("rocketmq")
        .option("namesrv", cluster.namesrv)
        .option("topic", topic)
        .option("checkpointLocation", str(folder))
        .outputMode("append")
        .queryName(f"{source} to {topic}")
        .trigger(availableNow=True)
    )


def test_a_stream_copies_new_messages(spark, cluster, tmp_path):
    cluster.create_topic("lower", queues=2)
    cluster.create_topic("upper", queues=2)
    for number in range(2):
        seeds = [Seed(body=b"%c%d" % (c, number), keys=["k"]) for c in b"ab"]
        cluster.send("lower", seeds)
        query = stream(spark, cluster, "lower", "upper", tmp_path)
        patiently(lambda: query.start().awaitTermination())  # noqa: B023
    found = stored(cluster, "upper")
    assert sorted(m.body for m in found) == [b"A0", b"A1", b"B0", b"B1"]
    assert {m.keys for m in found} == {"k"}


def test_a_stream_to_an_unknown_topic_ends_with_an_error_of_two_lines(
    spark, cluster, tmp_path
):
    cluster.create_topic("known", queues=1)
    cluster.send("known", ["a"])

    def run():
        stream(spark, cluster, "known", "nowhere", tmp_path).start().awaitTermination()

    with pytest.raises(StreamingQueryException) as caught:
        patiently(run)
    assert "rmqcli.errors.NotFoundError: " in str(caught.value)
    assert "nowhere" in str(caught.value)
