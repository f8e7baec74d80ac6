"""`rmq export` from real brokers: its rows are the messages, also after failures."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest

from rmqcli.admin.read.range import RangeReader
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.export.disk import walk_files
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.kit.java_program import fill
from tests.kit.waiting import wait_until
from tests.spark.export.processes import PROJECT, in_session

pytestmark = pytest.mark.spark


@contextmanager
def rmq_export(cluster, topic, path, *arguments):
    """Start `rmq export` as a process in a new session."""
    command = [sys.executable, "-m", "rmqcli", "export", topic, "--to-parquet"]
    command += [str(path), "-n", cluster.namesrv, "-o", "jsonl", *arguments]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def export(cluster, topic, path, *arguments, code=0):
    """Run `rmq export` to its end; return its summary and its stderr."""
    with rmq_export(cluster, topic, path, *arguments) as process:
        out, err = process.communicate()
    assert process.returncode == code, err
    return json.loads(out) if out else None, err


def stored(cluster, topic, *, queues):
    """Return every message of a topic by queue and offset, decoded one by one."""
    broker = cluster.broker_name()
    found = {}
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        from rmqcli.api.calls.offset import get_max_offset

        address = cluster.broker_address()
        ranges = []
        for queue_id in range(queues):
            queue = MessageQueue(topic, broker, queue_id)
            end = client.invoke(address, get_max_offset(topic, queue_id))
            ranges.append(OffsetRange(queue, 0, end))
        for chunk in RangeReader(client, ranges):
            for message in decode_messages(chunk.body):
                assert isinstance(message, StoredMessage)
                found[chunk.queue.queue_id, message.queue_offset] = message
    return found


def exported(path):
    """Return every row of a directory; fail if a message occurs twice."""
    found = {}
    for name in walk_files(str(path)):
        if name.endswith(".parquet"):
            for row in pq.ParquetFile(os.path.join(path, name)).read().to_pylist():
                key = (row["queue_id"], row["queue_offset"])
                assert key not in found
                found[key] = row
    return found


def mixed_specs(topic):
    chance = random.Random(4)
    specs = []
    for number in range(120):
        body = chance.choice(
            [b"plain", bytes(range(256)), b"[1, 2]", b"compress me " * 3000, b"\xe4"]
        )
        spec = {"topic": topic, "bodyB64": base64.b64encode(body).decode()}
        if number % 3:
            spec |= {"tags": "AB"[number % 2], "keys": f"k{number} other"}
        if number % 5 == 0:
            spec["properties"] = {"colour": "größer", "n": str(number)}
        specs.append(spec)
    batch = [{**spec, "topic": topic} for spec in specs[:10]]
    return [*specs, {"batch": batch}]


def test_rows_are_the_messages_field_for_field(
    real_cluster, new_topic, java_producer, tmp_path
):
    topic = new_topic(queues=3)
    answers = java_producer(real_cluster, mixed_specs(topic))
    assert [a for a in answers if "error" in a] == []
    summary, _ = export(real_cluster, topic, tmp_path / "out")
    messages, rows = stored(real_cluster, topic, queues=3), exported(tmp_path / "out")
    assert summary["rows"] == len(rows) == 130
    assert rows.keys() == messages.keys()
    for key, row in rows.items():
        message = messages[key]
        assert row["topic"] == message.topic == topic
        assert row["broker_name"] == real_cluster.broker_name()
        assert row["body"] == message.body
        assert dict(row["properties"]) == message.properties
        assert (row["tags"], row["keys"]) == (message.tags, message.keys)
        assert row["msg_id"] == message.msg_id
        assert row["born_host"] == message.born_host
        assert row["store_host"] == message.store_host
        assert _ms(row["born_timestamp"]) == message.born_timestamp_ms
        assert _ms(row["store_timestamp"]) == message.store_timestamp_ms
        assert row["commit_log_offset"] == message.commit_log_offset
        assert (row["flag"], row["sys_flag"]) == (message.flag, message.sys_flag)
        assert row["reconsume_times"] == message.reconsume_times


def _ms(time):
    return round(time.timestamp() * 1000)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_bodies_that_java_sent_become_columns(
    real_cluster, new_topic, java_producer, tmp_path
):
    topic, path = new_topic(queues=2), tmp_path / "out"
    texts = [json.dumps({"id": n, "text": "größer " * n * 10}) for n in range(80)]
    specs = [
        {"topic": topic, "bodyB64": base64.b64encode(text.encode()).decode()}
        for text in [*texts, "no JSON"]
    ]
    answers = java_producer(real_cluster, specs)
    assert [a for a in answers if "error" in a] == []
    decode = ("--decode", "json", "--infer", "10")
    summary, err = export(real_cluster, topic, path, *decode)
    assert (summary["rows"], summary["corrupt"]) == (81, 1)
    assert "1 of 81 bodies do not fit the schema" in err
    rows = exported(path).values()
    found = [row["value"] for row in rows if row["value"] is not None]
    assert sorted(map(json.dumps, found)) == sorted(
        json.dumps(json.loads(text)) for text in texts
    )
    assert [r["_corrupt_body"] for r in rows if r["value"] is None] == [b"no JSON"]
    other = ("--since-last", "--decode", "json", "--infer", "20")
    _, err = export(real_cluster, topic, path, *other, code=7)
    assert "decodes bodies as json, with another schema" in err


@pytest.mark.rmq_versions("5.5.0")
def test_since_last_and_tag_and_rerun(real_cluster, new_topic, tmp_path):
    topic, path = new_topic(queues=2), tmp_path / "out"
    fill(real_cluster, topic, 3000, batch_size=100)
    summary, _ = export(real_cluster, topic, path, "--tag", "TagA || TagC")
    assert (summary["rows"], summary["filtered"]) == (2000, 1000)
    again, err = export(real_cluster, topic, path, "--tag", "TagA || TagC")
    assert again == summary
    assert "nothing to do; --since-last exports the messages that came later" in err
    fill(real_cluster, topic, 600, batch_size=100)
    more, _ = export(real_cluster, topic, path, "--since-last")
    assert (more["rows"], more["filtered"]) == (400, 200)
    assert [(q["from"], q["to"]) for q in more["queues"]] == [(1500, 1800)] * 2
    assert len(exported(path)) == 2400
    none, err = export(real_cluster, topic, path, "--since-last")
    assert none["rows"] == 0
    assert "nothing new" in err


@pytest.mark.rmq_versions("5.5.0")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_a_signal_the_printed_command_finishes_the_run(
    real_cluster, new_topic, tmp_path, number
):
    topic, path = new_topic(queues=2), tmp_path / "out"
    fill(real_cluster, topic, 60_000, batch_size=500)
    with rmq_export(real_cluster, topic, path, "--rows-per-file", "2000") as process:
        wait_until(lambda: list(path.glob("*.parquet")))
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == 130, err
        wait_until(lambda: not in_session(process.pid))
    assert not (path / "_rmq" / "tmp").exists()
    assert not (path / "_SUCCESS").exists()
    found = re.search(r"resume with: (rmq export .*)", err)
    assert found is not None, err
    words = shlex.split(found[1])[1:]
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", *words, "-o", "json"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["rows"] == 60_000
    assert len(exported(path)) == 60_000


@pytest.mark.rmq_versions("5.5.0")
def test_ten_kills_and_a_resume_give_each_row_once(real_cluster, new_topic, tmp_path):
    topic, path = new_topic(queues=2), tmp_path / "out"
    fill(real_cluster, topic, 60_000, batch_size=500)
    chance = random.Random(7)
    arguments = ["--from", "earliest", "--to", "latest", "--rows-per-file", "2000"]
    for _ in range(10):
        with rmq_export(real_cluster, topic, path, *arguments, "--resume") as process:
            try:
                process.wait(chance.uniform(0.5, 6))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            wait_until(lambda: not in_session(process.pid))
    summary, _ = export(real_cluster, topic, path, *arguments, "--resume")
    assert summary["rows"] == 60_000
    assert len(exported(path)) == 60_000


@pytest.mark.rmq_versions("4.6.0")
def test_trimmed_queue_reports_the_gap(fresh_cluster, tmp_path):
    """The first commit log files of the broker are deleted, as by retention."""
    cluster = fresh_cluster(
        conf={"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
    )
    topic = cluster.create_topic(queues=1)
    fill(cluster, topic, 20_000, body_bytes=200, batch_size=50)
    cluster.stop_broker()
    logs = sorted((cluster.store_directory() / "commitlog").iterdir())
    assert len(logs) > 4
    for log in logs[:2]:
        log.unlink()
    cluster.start_broker()
    path = tmp_path / "out"
    summary, err = export(cluster, topic, path, "--from", "0", code=6)
    assert 1000 < summary["gaps"] < 10_000
    assert summary["rows"] + summary["gaps"] == 20_000
    assert "are not in the export" in err
    assert not (path / "_SUCCESS").exists()
    rows = exported(path)
    assert len(rows) == summary["rows"]
    [gap] = summary["queues"][0]["gaps"]
    assert gap["from"] == 0
    assert min(rows) == (0, gap["to"])
    again, _ = export(cluster, topic, path, "--from", "0", "--allow-gaps")
    assert again == summary
    assert (path / "_SUCCESS").exists()


@pytest.mark.rmq_versions("5.5.0")
def test_broker_that_dies_leaves_a_run_that_can_be_finished(fresh_cluster, tmp_path):
    cluster = fresh_cluster()
    topic, path = cluster.create_topic(queues=2), tmp_path / "out"
    fill(cluster, topic, 200_000, batch_size=500)
    arguments = ["--rows-per-file", "10000"]
    with rmq_export(cluster, topic, path, *arguments) as process:
        wait_until(lambda: list(path.glob("*.parquet")))
        cluster.kill_broker()
        _, err = process.communicate()
    assert process.returncode in (5, 6), err
    assert "--resume" in err
    cluster.start_broker()
    summary, _ = export(cluster, topic, path, "--resume")
    assert summary["rows"] == len(exported(path)) == 200_000
