"""The sink's writer and `rmq import` send to real brokers."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rmqcli import RocketMQDataSource
from tests.acceptance.command import rmq
from tests.acceptance.mixed import mixed_messages
from tests.kit.waiting import wait_until
from tests.spark.imports.exported import essence, export

pytestmark = pytest.mark.java

COUNT = 3_000


def messages_in(cluster, topic):
    """The number of messages in a topic's queues."""
    done = rmq("topic", "show", topic, "-o", "json", namesrv=cluster.namesrv)
    queues = json.loads(done.stdout)["queues"]
    return sum(q["max_offset"] - q["min_offset"] for q in queues)


def test_export_import_export_gives_equal_messages(real_cluster, new_topic, tmp_path):
    cluster = real_cluster
    topic, copy = new_topic(queues=4), new_topic(queues=4)
    sent = mixed_messages(COUNT, seed=11)
    lines = b"".join(json.dumps(m.record()).encode() + b"\n" for m in sent)
    rmq("send", topic, "--jsonl", "-", "-q", namesrv=cluster.namesrv, stdin=lines)
    wait_until(lambda: messages_in(cluster, topic) == COUNT)
    path = export(cluster.namesrv, topic, tmp_path / "out")
    arguments = ("import", copy, "--from-parquet", str(path), "-o", "json")
    summary = json.loads(rmq(*arguments, namesrv=cluster.namesrv).stdout)
    assert (summary["sent"], summary["unsure"]) == (COUNT, 0)
    wait_until(lambda: messages_in(cluster, copy) == COUNT)
    again = export(cluster.namesrv, copy, tmp_path / "again")
    assert essence(again) == essence(path)
    summary = json.loads(rmq(*arguments, namesrv=cluster.namesrv).stdout)
    assert (summary["before"], summary["sent"]) == (COUNT, 0)


def test_rows_of_the_sink_arrive(real_cluster, new_topic, tmp_path):
    """The writer sends empty, small and large bodies, and delayed rows."""
    cluster, topic = real_cluster, new_topic(queues=2)
    bodies = [b"", b"x" * 300_000, *(b"%d" % n for n in range(2_000))]
    rows = len(bodies)
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array(bodies, pa.binary()),
            "tags": pa.array(["A" if n % 2 else None for n in range(rows)]),
            "keys": pa.array([["k", str(n)] for n in range(rows)]),
            "properties": pa.array(
                [[("n", str(n))] for n in range(rows)],
                pa.map_(pa.string(), pa.string()),
            ),
            "delay": pa.array([1 if n % 500 == 7 else None for n in range(rows)]),
        }
    )
    source = RocketMQDataSource({"namesrv": cluster.namesrv, "topic": topic})
    writer = source.writer(from_arrow_schema(batch.schema), False)
    assert writer.write(iter([batch])).messages == rows
    wait_until(lambda: messages_in(cluster, topic) == rows)  # including delayed ones
    found = [row for q in essence(export(cluster.namesrv, topic, tmp_path)).values()
             for row in q]  # fmt: skip
    ours = {properties.pop("n"): (body, keys, tags)
            for body, keys, tags, _, properties in found}  # fmt: skip
    assert ours == {
        str(n): (body, f"k {n}", "A" if n % 2 else None)
        for n, body in enumerate(bodies)
    }
