"""`--store DIR` on the folder of a real broker that is running and writes to it."""

from __future__ import annotations

import json
import subprocess
import sys

from rmqcli.cli.main import run
from tests.kit.java_program import fill
from tests.store.folders import state_of

MESSAGES = 2_000


def lines_of(capfd, *arguments):
    code = run([*map(str, arguments), "-o", "jsonl"])
    out, err = capfd.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_folder_is_read_while_its_broker_is_written_to(
    real_cluster, new_topic, capfd
):
    topic = new_topic()
    folder = real_cluster.store_directory()
    fill(real_cluster, topic, messages=1, body_bytes=64)
    command = ["-m", "rmqcli", "tail", topic, "--store", str(folder), "-q"]
    command += ["--from", "earliest", "-o", "jsonl"]
    command += ["--count", str(MESSAGES + 1), "--for", "60s"]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        fill(real_cluster, topic, messages=MESSAGES, body_bytes=64, batch_size=10)
        lines += process.stdout.readlines()
        assert process.wait(60) == 0
    followed = [json.loads(line) for line in lines]
    whole = ["--from", "earliest", "--to", "latest"]
    served = lines_of(capfd, "tail", topic, "-n", real_cluster.namesrv, *whole)
    assert len(served) == MESSAGES + 1
    found = lines_of(capfd, "tail", topic, "--store", folder, *whole)
    assert sorted(found, key=place_of) == sorted(served, key=place_of)
    assert sorted(followed, key=place_of) == sorted(served, key=place_of)


def place_of(record):
    return record["commit_log_offset"]


def test_topics_are_those_that_the_broker_tells(real_cluster, new_topic, capfd):
    """Its own ones, which no other test changes between the two listings."""
    ours = [new_topic(queues=3), new_topic(queues=1, perm=4), new_topic(order=True)]
    folder = real_cluster.store_directory()
    served, found = (
        [row for row in lines_of(capfd, "topics", *where) if row["topic"] in ours]
        for where in (("-n", real_cluster.namesrv), ("--store", folder))
    )
    assert [row["topic"] for row in found] == sorted(ours)
    assert found == served


def test_nothing_changes_in_the_folder_of_a_stopped_broker(fresh_cluster, capfd):
    cluster = fresh_cluster()
    cluster.create_topic("orders", queues=2)
    fill(cluster, "orders", messages=100, body_bytes=64)
    folder = cluster.store_directory()
    cluster.stop_broker()
    before = state_of(folder)
    found = lines_of(
        capfd, "tail", "orders", "--store", folder, "--from", "earliest", "--no-follow"
    )
    assert len(found) == 100
    lines_of(capfd, "lag", "--store", folder)
    assert state_of(folder) == before
