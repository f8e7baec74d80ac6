"""Positions by time at their boundaries: now, before the first, after the last, ties.

`tail --from` and `reset-offset --to` resolve them on brokers that search like 4.6.0
(the nearest message, and never an offset after the last one) and like 5.5.0.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.api.calls.config import update_and_create_subscription_group
from rmqcli.api.calls.offset import query_consumer_offset, update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from tests.kit.java_program import fill, java_producer

BASE_MS = 1_700_000_000_000
RETRY = "%RETRY%G"
#: The position, and the offset of the first message stored at that time or later.
#: Messages 0 to 2 were stored 0, 1 and 2 s after BASE_MS, 3 to 52 together after 3 s,
#: 53 and 54 after 4 s; the current time is BASE_MS + 10 s.
BY_TIME = [
    ("earliest", 0),
    (f"@{BASE_MS - 1}", 0),
    ("-1h", 0),
    (f"@{BASE_MS}", 0),
    ("-10s", 0),
    (f"@{BASE_MS + 1}", 1),
    (f"@{BASE_MS + 2_000}", 2),
    (f"@{BASE_MS + 2_001}", 3),
    (f"@{BASE_MS + 3_000}", 3),
    ("-7s", 3),
    (f"@{BASE_MS + 3_001}", 53),
    (f"@{BASE_MS + 4_000}", 53),
    ("-6s", 53),
    (f"@{BASE_MS + 4_001}", 55),
    (f"@{BASE_MS + 3_600_000}", 55),
    ("-1ms", 55),
    ("now", 55),
    ("latest", 55),
]


@pytest.fixture(scope="module", params=["4.6.0", "5.5.0"])
def cluster(request):
    """Topic T with a filled and an empty queue, and group G.

    The retry topic of G has messages with the same store times as T.
    """
    clock = ManualClock(now_ms=BASE_MS)
    with EmbeddedCluster(like=request.param, queues=1, clock=clock) as cluster:
        cluster.create_topic("T", queues=2)
        cluster.create_topic(RETRY, queues=1)
        cluster.create_group("G")
        for count in (1, 1, 1, 50, 2):
            cluster.send("T", ["x"] * count, queue_id=0)  # as one batch
            for _ in range(count):
                cluster.send(RETRY, ["x"], queue_id=0)
            cluster.advance(1_000)
        cluster.advance(5_000)
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            for topic, queue_id in (("T", 0), ("T", 1), (RETRY, 0)):
                call = update_consumer_offset("G", topic, queue_id, commit_offset=0)
                client.invoke(cluster.broker().address, call)
        yield cluster


@pytest.fixture
def rmq(capfd):
    def run_it(cluster, *arguments):
        code = run([*arguments, "-n", cluster.namesrv])
        out, err = capfd.readouterr()
        assert code == 0, err
        return out

    return run_it


@pytest.mark.parametrize(("position", "offset"), BY_TIME)
def test_tail_begins_at_the_first_message_not_older(cluster, rmq, position, offset):
    out = rmq(cluster, "tail", "T", "--from", position, "--to", "latest")
    shown = [json.loads(line)["queue_offset"] for line in out.splitlines()]
    assert shown == list(range(offset, 55))


@pytest.mark.parametrize(("position", "offset"), BY_TIME)
def test_tail_ends_before_the_first_message_not_older(cluster, rmq, position, offset):
    out = rmq(cluster, "tail", "T", "--from", "earliest", "--to", position)
    shown = [json.loads(line)["queue_offset"] for line in out.splitlines()]
    assert shown == list(range(offset))


@pytest.mark.parametrize(("position", "offset"), BY_TIME)
def test_a_reset_goes_there_in_the_topic_and_in_the_retry_topic(
    cluster, rmq, position, offset
):
    words = ["--to", position, "--include-retry", "-o", "json"]
    plan = json.loads(rmq(cluster, "reset-offset", "G", "T", *words))
    targets = [(q["topic"], q["queue_id"], q["target"]) for q in plan["queues"]]
    assert sorted(targets) == [(RETRY, 0, offset), ("T", 0, offset), ("T", 1, 0)]


@pytest.mark.parametrize("position", ["0", "-100", "+3", "group:G"])
def test_a_position_that_is_no_time_takes_the_retry_topic_to_its_end(
    cluster, rmq, position
):
    words = ["--to", position, "--include-retry", "-o", "json"]
    plan = json.loads(rmq(cluster, "reset-offset", "G", "T", *words))
    targets = {q["topic"]: q["target"] for q in plan["queues"] if q["queue_id"] == 0}
    assert targets[RETRY] == 55


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_a_reset_to_now_leaves_nothing_to_consume_and_is_not_one_short(like, rmq):
    clock = ManualClock(now_ms=BASE_MS)
    with EmbeddedCluster(like=like, queues=2, clock=clock) as cluster:
        cluster.create_topic("T")
        cluster.create_topic(RETRY, queues=1)
        cluster.create_group("G")
        cluster.send("T", ["x"] * 7)
        for _ in range(3):
            cluster.send(RETRY, ["x"])
        cluster.advance(1_000)
        places = [("T", 0), ("T", 1), (RETRY, 0)]
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            address = cluster.broker().address
            for topic, queue_id in places:
                call = update_consumer_offset("G", topic, queue_id, commit_offset=1)
                client.invoke(address, call)
            words = ["--to", "now", "--include-retry", "--execute", "--yes"]
            rmq(cluster, "reset-offset", "G", "T", *words)
            committed = [
                client.invoke(address, query_consumer_offset("G", topic, queue_id))
                for topic, queue_id in places
            ]
    assert committed == [4, 3, 3]


@pytest.mark.timeout(300)
def test_on_a_real_broker_every_boundary_of_its_own_store_times(real_cluster, rmq):
    """The queue has batches, whose messages share a time, then single messages."""
    topic = real_cluster.create_topic(queues=1)
    fill(real_cluster, topic, messages=600, body_bytes=16, batch_size=100)
    spec = {"topic": topic, "bodyB64": "eA==", "brokerName": "broker-a", "queueId": 0}
    java_producer(real_cluster, [spec] * 5)
    whole = ["--from", "0", "--to", "latest", "--format", r"%d{ms}\n"]
    times = [int(line) for line in rmq(real_cluster, "tail", topic, *whole).split()]
    assert len(times) == 605
    assert max(map(times.count, times)) > 1  # there are ties
    group = f"G-{topic}"
    address = real_cluster.broker_address()
    queue = MessageQueue(topic, "broker-a", 0)
    with Client(ClientConfig(namesrv=(real_cluster.namesrv,))) as client:
        config = SubscriptionGroupConfig(group_name=group)
        client.invoke(address, update_and_create_subscription_group(config))
        call = update_consumer_offset(group, topic, 0, commit_offset=5)
        client.invoke(address, call)
    later_ms = SYSTEM_CLOCK.epoch_ms() + 3_600_000
    edges = {t + by for t in (*times[::100], times[-1]) for by in (-1, 0, 1)}
    positions = {f"@{at}": at for at in sorted(edges)}
    positions |= {"now": later_ms, f"@{later_ms}": later_ms, "latest": later_ms}
    for position, at in positions.items():
        # A linear search, unlike the one of brokers.
        expected = next((o for o, t in enumerate(times) if t >= at), len(times))
        plan = json.loads(
            rmq(
                real_cluster,
                "reset-offset",
                group,
                topic,
                "--to",
                position,
                "-o",
                "json",
            )
        )
        assert [q["target"] for q in plan["queues"]] == [expected], position
        ends = ["--from", position, "--to", "latest", "--format", r"%o\n"]
        shown = rmq(real_cluster, "tail", topic, *ends).split()
        assert [int(o) for o in shown] == list(range(expected, 605)), (position, queue)
