"""What `send` stores, `tail` and `export` give back, and `send --jsonl` stores again.

Ten thousand messages of mixed kinds: byte for byte, field for field.
"""

from __future__ import annotations

import base64
import json
import time

import pytest

from tests.acceptance.command import records, rmq
from tests.acceptance.mixed import Sent, mixed_messages
from tests.kit.records import body_of

pytestmark = pytest.mark.java

COUNT = 10_000
JAVA_BODY = "text of a Java producer, long enough to be compressed; " * 120
DELAYED = 5


#: Properties that brokers and clients add; all others are the user's.
SYSTEM_PROPERTIES = {
    "CLUSTER",
    "DELAY",
    "KEYS",
    "MSG_REGION",
    "REAL_QID",
    "REAL_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TRACE_ON",
    "UNIQ_KEY",
    "WAIT",
}


def sent_of(record):
    """Return what the producer set in a record, to compare it with what was sent."""
    user = {
        name: value
        for name, value in record["properties"].items()
        if name not in SYSTEM_PROPERTIES
    }
    number = int(user.pop("number"))
    return Sent(number, body_of(record), record["tags"], record["keys"], user)


def wait_for_count(cluster, topic, count):
    """Wait until the topic's queues hold `count` messages in all."""
    limit = time.monotonic() + 60
    while True:
        done = rmq("topic", "show", topic, "-o", "json", namesrv=cluster.namesrv)
        queues = json.loads(done.stdout)["queues"]
        have = sum(q["max_offset"] - q["min_offset"] for q in queues)
        if have >= count or time.monotonic() > limit:
            assert have == count
            return


def java_specs(topic, first_number):
    """Return a compressed message and a batch for the kit's Java producer.

    Also returns the messages as `Sent`.
    """

    def spec(number, body):
        encoded = base64.b64encode(body).decode()
        properties = {"number": str(number)}
        return {"topic": topic, "bodyB64": encoded, "properties": properties}

    single = spec(first_number, JAVA_BODY.encode())
    items = [spec(first_number + 1 + i, b"batched %d" % i) for i in range(20)]
    sent = [
        Sent(first_number, JAVA_BODY.encode()),
        *(Sent(first_number + 1 + i, b"batched %d" % i) for i in range(20)),
    ]
    return [single, {"batch": items}], sent


def test_ten_thousand_messages_come_back(
    real_cluster, new_topic, java_producer, tmp_path
):
    cluster = real_cluster
    topic, copy = new_topic(queues=4), new_topic(queues=4)
    sent = mixed_messages(COUNT, seed=7)
    lines = b"".join(json.dumps(m.record()).encode() + b"\n" for m in sent)
    done = rmq(
        "send", topic, "--jsonl", "-", "-o", "jsonl", namesrv=cluster.namesrv,
        stdin=lines,
    )  # fmt: skip
    results = records(done)
    assert [r["status"] for r in results] == ["SEND_OK"] * COUNT

    specs, from_java = java_specs(topic, COUNT)
    for answer in java_producer(cluster, specs):
        assert "error" not in answer
    sent += from_java
    for number in range(DELAYED):
        body = f"delayed {number}"
        number += COUNT + len(from_java)
        rmq(
            "send", topic, body, "--delay", "1", "--property", f"number={number}",
            namesrv=cluster.namesrv,
        )  # fmt: skip
        sent.append(Sent(number, body.encode()))
    wait_for_count(cluster, topic, len(sent))

    read = rmq(
        "tail", topic, "--from", "earliest", "--to", "latest", "-o", "jsonl",
        namesrv=cluster.namesrv,
    )  # fmt: skip
    rows = records(read)
    by_number = {m.number: m.essence() for m in sent}
    assert len(rows) == len(sent)
    assert {m.number: m.essence() for m in map(sent_of, rows)} == by_number
    for queue_id in range(4):
        offsets = [r["queue_offset"] for r in rows if r["queue_id"] == queue_id]
        assert offsets == list(range(len(offsets)))

    check_export(cluster, topic, rows, tmp_path / "parquet")

    again = rmq(
        "send", copy, "--jsonl", "-", "-q", "-o", "jsonl", namesrv=cluster.namesrv,
        stdin=read.stdout,
    )  # fmt: skip
    assert len(records(again)) == len(sent)
    copied = rmq(
        "tail", copy, "--from", "earliest", "--to", "latest", "-o", "jsonl",
        namesrv=cluster.namesrv,
    )  # fmt: skip
    copies = map(sent_of, records(copied))
    assert {m.number: m.essence() for m in copies} == by_number


def check_export(cluster, topic, rows, directory):
    """Export the topic, and compare the rows with tail's, field for field."""
    import pyarrow.parquet as pq

    rmq(
        "export", topic, "--to-parquet", str(directory), "--from", "earliest",
        "--to", "latest", namesrv=cluster.namesrv,
    )  # fmt: skip
    exported = {
        (row["broker_name"], row["queue_id"], row["queue_offset"]): row
        for file in sorted(directory.rglob("*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    }

    assert len(exported) == len(rows)
    for row in rows:
        found = exported[row["broker_name"], row["queue_id"], row["queue_offset"]]
        assert found["body"] == body_of(row)
        assert dict(found["properties"]) == row["properties"]
        for name in ("topic", "msg_id", "tags", "keys", "born_host", "store_host"):
            assert found[name] == row[name]
        for name in ("reconsume_times", "flag", "sys_flag", "commit_log_offset"):
            assert found[name] == row[name]
        for name in ("born_timestamp", "store_timestamp"):
            text = found[name].isoformat(timespec="milliseconds")
            assert text.replace("+00:00", "Z") == row[name]
