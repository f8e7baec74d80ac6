"""`rmq tail --last N` when many messages were stored in the same millisecond.

It shows exactly N messages: the last ones of each queue, in the order of the queues.
The output of the whole range ends with the same messages.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.testing import ManualClock

RETRY = "%RETRY%G"


@pytest.fixture(scope="module")
def cluster():
    """Topics T and Sparse, whose messages were all stored in the same millisecond.

    T has four messages in each of three queues. In Sparse, all five messages of queue 0
    have the tag W, and so have the first four and the last of the 200 in queue 1. The
    retry topic of group G has a message too, which a tail of T must not show.
    """
    clock = ManualClock(now_ms=1_700_000_000_000)
    with EmbeddedCluster(queues=3, clock=clock) as cluster:
        cluster.create_topic("T")
        cluster.create_topic("Sparse", queues=2)
        cluster.create_topic(RETRY, queues=1)
        cluster.create_group("G")
        for queue_id in range(3):
            cluster.send("T", ["x"] * 4, queue_id=queue_id)
        cluster.send("Sparse", ["x"] * 5, queue_id=0, tags="W")
        cluster.send("Sparse", ["x"] * 4, queue_id=1, tags="W")
        cluster.send("Sparse", ["x"] * 195, queue_id=1, tags="other")
        cluster.send("Sparse", ["x"], queue_id=1, tags="W")
        cluster.send(RETRY, ["x"])
        yield cluster


@pytest.fixture
def places(cluster, capfd):
    """Runs `rmq tail`, checks the topic, and returns queue ids and offsets."""

    def run_it(topic, *arguments):
        code = run(["tail", topic, *arguments, "-n", cluster.namesrv])
        out, err = capfd.readouterr()
        assert code == 0, err
        assert RETRY not in err
        records = [json.loads(line) for line in out.splitlines()]
        assert {record["topic"] for record in records} <= {topic}
        return [(record["queue_id"], record["queue_offset"]) for record in records]

    return run_it


ALL = [(queue_id, offset) for queue_id in range(3) for offset in range(4)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [(2, 3)]),
        (4, [(2, 0), (2, 1), (2, 2), (2, 3)]),
        (5, [(1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]),
        (9, [(0, 3), *ALL[4:]]),
        (11, ALL[1:]),
        (12, ALL),
        (13, ALL),
    ],
)
def test_ties_count_one_by_one(places, count, expected):
    assert places("T", "--last", str(count), "--no-follow") == expected


def test_the_whole_range_ends_with_the_same_messages(places):
    assert places("T", "--from", "earliest", "--to", "latest") == ALL


def test_ties_further_back_than_the_first_window_are_found(places):
    shown = places("Sparse", "--last", "5", "--tag", "W", "--no-follow")
    assert shown == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 199)]


@pytest.mark.parametrize("count", [6, 8, 10, 50])
def test_more_than_one_queue_has_are_filled_from_the_queue_before(places, count):
    expected = [(0, o) for o in range(5)] + [(1, 0), (1, 1), (1, 2), (1, 3), (1, 199)]
    shown = places("Sparse", "--last", str(count), "--tag", "W", "--no-follow")
    assert shown == expected[-count:]


def test_a_retry_topic_that_is_named_is_read(cluster, capfd):
    words = ["--last", "3", "--no-follow", "-n", cluster.namesrv]
    assert run(["tail", RETRY, *words]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line)["topic"] == RETRY
