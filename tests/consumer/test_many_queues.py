"""Many empty queues each have their own held pull at the broker at the same time.

The broker's clock stands still, so no held pull times out. Therefore each message that
arrives was delivered by the pull of its own queue, before any other pull ended.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.testing import ManualClock
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]
QUEUES = 64
#: The queues that get a message, one after the other, including the first and the last.
CHOSEN = [*random.Random(64).sample(range(1, QUEUES - 1), 6), 0, QUEUES - 1]


@pytest.fixture
def cluster():
    clock = ManualClock(now_ms=1_700_000_000_000)
    with EmbeddedCluster(queues=QUEUES, clock=clock) as cluster:
        cluster.create_topic("T")
        yield cluster


def wait_for_holds(cluster, count):
    state = cluster.broker().state
    wait_until(lambda: cluster.call(lambda: len(state.holds)) == count)


def test_a_consumer_gets_a_message_of_any_of_64_queues_by_its_own_pull(cluster):
    seen = Seen()
    with consumer(cluster, "g", "T", seen):
        wait_for_holds(cluster, QUEUES + 1)  # the retry topic has one queue
        for count, queue_id in enumerate(CHOSEN, 1):
            cluster.send("T", [f"to {queue_id}"], queue_id=queue_id)
            seen.wait_for(count)
            assert seen.messages[-1].queue_id == queue_id
            wait_for_holds(cluster, QUEUES + 1)
    assert seen.bodies == [f"to {queue_id}" for queue_id in CHOSEN]


@pytest.mark.timeout(180)
def test_tail_shows_a_message_of_any_of_64_queues_by_its_own_pull(cluster):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rmqcli", "tail", "T", "--from", "latest"),
            *("-n", cluster.namesrv, "-o", "jsonl", "--count", str(len(CHOSEN))),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            wait_for_holds(cluster, QUEUES)
            for left, queue_id in zip(
                reversed(range(len(CHOSEN))), CHOSEN, strict=True
            ):
                cluster.send("T", ["x"], queue_id=queue_id)
                record = json.loads(process.stdout.readline())
                assert (record["queue_id"], record["queue_offset"]) == (queue_id, 0)
                if left:
                    wait_for_holds(cluster, QUEUES)
            assert process.wait(60) == 0
        finally:
            process.kill()
