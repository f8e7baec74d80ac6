"""Batches through a real Spark: rows, pinned ranges, errors of two lines, pushdown."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.testing import Seed
from tests.kit.spark import no_java, spark_session
from tests.spark.source.reading import batch_reader, data_source, table_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]
BY_PLACE = [("queue_id", "ascending"), ("queue_offset", "ascending")]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.create_topic("payments", queues=1)
        cluster.create_topic("empty", queues=2)
        cluster.send(
            "orders",
            [
                Seed(
                    body=f"größer {n}".encode() * (1 + n % 5),
                    tags=None if n % 3 == 0 else "AB"[n % 2],
                    keys=[f"k{n}"] if n % 4 else (),
                    properties={"colour": "größer", "n": str(n)} if n % 5 else {},
                )
                for n in range(300)
            ],
        )
        cluster.send("payments", ["p0", "p1", "p2"])
        yield cluster


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def load(spark, cluster, subscribe="orders", **options):
    reader = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    for name, value in {"subscribe": subscribe, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def last_lines(error):
    """Return the last two lines of an error, without the text that Spark appends."""
    lines = [line for line in str(error).splitlines() if "SQLSTATE" not in line]
    return [line.strip() for line in lines if line.strip()][-2:]


def test_rows_are_those_of_the_readers_and_of_tail(spark, cluster):
    table = load(spark, cluster).toArrow()
    read = table_of(batch_reader(data_source(cluster)))
    assert table.num_rows == 300
    assert table.sort_by(BY_PLACE).equals(read.cast(table.schema).sort_by(BY_PLACE))
    tail = [sys.executable, "-m", "rmqcli", "tail", "orders", "-n", cluster.namesrv]
    done = subprocess.run(
        [*tail, "--from", "earliest", "--to", "latest", "-o", "jsonl"],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = {
        (each["queue_id"], each["queue_offset"]): each
        for each in map(json.loads, done.stdout.splitlines())
    }
    assert len(shown) == 300
    for row in table.to_pylist():
        message = shown[row["queue_id"], row["queue_offset"]]
        assert row["body"].decode() == message["body"]
        assert dict(row["properties"]) == message["properties"]
        for name in ("topic", "broker_name", "msg_id", "tags", "keys", "born_host"):
            assert row[name] == message[name], name


def test_decoded_columns_have_the_types_and_values_of_the_bodies(
    spark, cluster, tmp_path
):
    cluster.create_topic("typed", queues=1)
    kinds = {
        "id": ("BIGINT", "9007199254740993", 9007199254740993),
        "tiny": ("TINYINT", "-128", -128),
        "d": ("DOUBLE", "1.5", 1.5),
        "price": ("DECIMAL(6,2)", '"12.30"', Decimal("12.30")),
        "the `note`": ("STRING", '"größer"', "größer"),
        "raw": ("BINARY", '"AAE="', b"\0\1"),
        "day": ("DATE", '"2024-02-29"', date(2024, 2, 29)),
        "at": (
            "TIMESTAMP",
            '"2024-02-29T12:00:00.5+01:00"',
            datetime(2024, 2, 29, 11, 0, 0, 500_000, tzinfo=UTC),
        ),
        "local": (
            "TIMESTAMP_NTZ",
            '"2024-02-29T12:00:00"',
            datetime(2024, 2, 29, 12),  # noqa: DTZ001  # it has no zone
        ),
        "items": (
            "ARRAY<STRUCT<sku: STRING, n: INT>>",
            '[{"sku": "a", "n": 1}, null]',
            [{"sku": "a", "n": 1}, None],
        ),
        "by": ("MAP<STRING, ARRAY<DOUBLE>>", '{"k": [1, null]}', [("k", [1.0, None])]),
    }
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in kinds}
    schema = tmp_path / "schema.ddl"
    schema.write_text(", ".join(f"{quoted[n]} {k[0]}" for n, k in kinds.items()))
    body = ", ".join(f"{json.dumps(n)}: {kind[1]}" for n, kind in kinds.items())
    cluster.send("typed", [f"{{{body}}}", "no JSON", "{}"])
    decoding = {"decode": "json", "decodeSchema": str(schema)}
    frame = load(spark, cluster, "typed", **decoding).orderBy("queue_offset")
    rows = frame.select("value", "_corrupt_body").toArrow().to_pylist()
    assert rows[0]["value"] == {name: kind[2] for name, kind in kinds.items()}
    assert rows[1] == {"value": None, "_corrupt_body": b"no JSON"}
    assert rows[2]["value"] == dict.fromkeys(kinds)
    [flat] = frame.where("queue_offset = 0").select("value.*").collect()
    assert (flat["the `note`"], flat["items"][0].sku) == ("größer", "a")


def test_a_frame_keeps_its_range(spark, cluster):
    frame = load(spark, cluster, "payments")
    assert frame.count() == 3
    cluster.send("payments", ["p3"])
    assert frame.count() == 3
    assert load(spark, cluster, "payments", endingOffsets="3").count() == 3


def test_several_topics_and_an_empty_one(spark, cluster):
    frame = load(spark, cluster, "payments,empty", endingOffsets="3")
    assert [row.topic for row in frame.select("topic").distinct().collect()] == [
        "payments"
    ]
    assert load(spark, cluster, "empty").count() == 0


def test_min_partitions_makes_tasks(spark, cluster):
    assert load(spark, cluster, minPartitions="5").rdd.getNumPartitions() == 5


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        (
            {"startingOffsets": "first"},
            "UsageError: option startingOffsets: 'first': not a position",
            "hint: write earliest, latest, a position such as",
        ),
        (
            {"namesrv": "127.0.0.1:1"},
            "ConnectError: cannot connect to 127.0.0.1:1: connection refused",
            "hint: check the namesrv argument or NAMESRV_ADDR",
        ),
    ],
)
def test_an_error_of_the_load_ends_with_two_lines(spark, cluster, options, what, hint):
    with pytest.raises(PySparkException) as caught:
        load(spark, cluster, **options)
    lines = last_lines(caught.value)
    assert lines[0] == f"rmqcli.errors.{what}"
    assert lines[1].startswith(hint)


def test_an_error_of_a_worker_ends_with_two_lines(spark, cluster):
    cluster.create_topic("trimmed", queues=1)
    cluster.send("trimmed", ["a", "b", "c"])
    frame = load(spark, cluster, "trimmed")
    cluster.broker().trim("trimmed", 2)
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    text = str(caught.value)
    assert "trimmed@broker-a:0: offsets 0 to 1 are no longer on the broker\n" in text
    assert 'hint: to read what is left: .option("failOnDataLoss", "false")' in text
    frame = load(spark, cluster, "trimmed", startingOffsets="0", failOnDataLoss="false")
    assert [row.queue_offset for row in frame.collect()] == [2]


def test_a_topic_that_is_used_twice_keeps_the_rows_of_each_use(spark, cluster):
    frame = load(spark, cluster)
    chosen = frame.where("queue_id = 1 AND tags IN ('A', 'B')")
    assert chosen.union(frame).count() == chosen.count() + frame.count()
