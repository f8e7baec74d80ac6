"""`rmq tail --follow` survives its broker: it loses and repeats no message."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from tests.acceptance.command import rmq

pytestmark = pytest.mark.java


class Follower:
    """A process of `rmq tail --follow`; `records` is a queue of its records."""

    def __init__(self, namesrv, topic):
        self.said: list[str] = []
        self.records: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rmqcli", "tail", topic),
                *("--from", "earliest", "--follow", "-o", "jsonl"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NAMESRV_ADDR": namesrv},
        )
        self.threads = [
            threading.Thread(target=self.read_out),
            threading.Thread(target=self.read_err),
        ]
        for thread in self.threads:
            thread.start()

    def read_out(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.put(json.loads(line))

    def read_err(self):
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    def take(self, count, *, timeout_s=90):
        """Wait for the next `count` records, and return them."""
        limit = time.monotonic() + timeout_s
        return [
            self.records.get(timeout=max(0.1, limit - time.monotonic()))
            for _ in range(count)
        ]

    def close(self):
        """Send SIGINT and wait; return the exit code and the remaining records."""
        self.process.send_signal(2)
        code = self.process.wait(120)
        for thread in self.threads:
            thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        left = []
        while not self.records.empty():
            left.append(self.records.get())
        return code, left


def send(cluster, topic, numbers):
    lines = "".join(f"message {n}\n" for n in numbers).encode()
    rmq("send", topic, "--lines", "-", namesrv=cluster.namesrv, stdin=lines)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_follower_goes_on_after_its_broker_was_killed(fresh_cluster):
    cluster = fresh_cluster()
    topic = cluster.create_topic(queues=3)
    send(cluster, topic, range(300))
    follower = Follower(cluster.namesrv, topic)
    try:
        got = follower.take(300)
        # SIGKILL does not lose the page cache, so the broker still has all 300.
        cluster.kill_broker()
        cluster.start_broker()
        send(cluster, topic, range(300, 600))
        got += follower.take(300)
    finally:
        code, left = follower.close()

    assert sorted(int(r["body"].split()[1]) for r in got) == list(range(600))
    assert left == []
    for queue_id in range(3):
        offsets = [r["queue_offset"] for r in got if r["queue_id"] == queue_id]
        assert offsets == list(range(len(offsets)))
    assert code == 130
    assert any("broker-a" in line for line in follower.said)
