"""`rmq tail --last N` after a broker's clock was set back."""

from __future__ import annotations

import json

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK


class SetClock:
    """A clock whose time of day can be set, also back."""

    def __init__(self, now_ms):
        self.now_ms = now_ms

    def epoch_ms(self):
        return self.now_ms

    def monotonic_ms(self):
        return SYSTEM_CLOCK.monotonic_ms()

    def wait_ms(self, event, timeout_ms):
        return SYSTEM_CLOCK.wait_ms(event, timeout_ms)


@pytest.fixture
def cluster():
    """A topic with three queues, and messages of before and after an hour set back.

    The last messages of queue 2 came before it, and all of queue 1 afterwards.
    """
    clock = SetClock(1_700_000_000_000)
    with EmbeddedCluster(queues=3, clock=clock) as cluster:
        cluster.create_topic("T")
        for queue_id in (0, 2, 0, 2):
            cluster.send("T", ["x"], queue_id=queue_id)
            clock.now_ms += 1_000
        clock.now_ms -= 3_600_000
        for queue_id in (1, 0, 1):
            cluster.send("T", ["x"], queue_id=queue_id)
            clock.now_ms += 1_000
        yield cluster


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(0, 2), (1, 1)]),
        (3, [(1, 0), (0, 2), (1, 1)]),
        (5, [(0, 1), (2, 1), (1, 0), (0, 2), (1, 1)]),
        (9, [(0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (0, 2), (1, 1)]),
    ],
)
def test_the_messages_that_came_after_it_are_the_last(cluster, capfd, count, expected):
    """Earlier messages were shown in their place, because their times are larger."""
    words = ["--last", str(count), "--no-follow", "-n", cluster.namesrv]
    assert run(["tail", "T", *words]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(row["queue_id"], row["queue_offset"]) for row in records] == expected
