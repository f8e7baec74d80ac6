"""Many members, members with equal names, and brokers that restart or hang."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from tests.consumer.asking import Asking
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.engine_threads("plain", "leasing")

FAST: dict[str, Any] = {
    "pull_time_delay_when_exception_ms": 50,
    "heartbeat_broker_interval_ms": 200,
    "poll_namesrv_interval_ms": 200,
    "persist_consumer_offset_interval_ms": 200,
}


def test_a_client_id_has_address_process_and_a_unique_number(rmq_cluster, rmq_topic):
    """So two members in containers that have the same address and process id are not
    taken for one member."""
    ids = []
    for _ in range(5):
        with consumer(rmq_cluster, "g", rmq_topic, Seen()) as running:
            ids.append(running.client_id)
    assert len(set(ids)) == 5
    for client_id in ids:
        found = re.fullmatch(r"([0-9.]+)@([0-9]+)#([0-9]{10,})", client_id)
        assert found is not None, client_id
        assert found[1] == "127.0.0.1"  # the local address towards the name server
        assert found[2] == str(os.getpid())


def test_a_second_consumer_with_the_same_client_id_is_refused(rmq_cluster, rmq_topic):
    """Both would consume the same queues. It is accepted in another group, with another
    instance name, or after the first consumer has closed."""
    named = {"instance_name": "worker"}
    with consumer(rmq_cluster, "g", rmq_topic, Seen(), **named) as first:
        second = consumer(rmq_cluster, "g", rmq_topic, Seen(), **named)
        with pytest.raises(UsageError, match="in this process has the client id"):
            second.start()
        second.close()
        with consumer(rmq_cluster, "other", rmq_topic, Seen(), **named) as other:
            assert other.client_id == first.client_id
        with consumer(rmq_cluster, "g", rmq_topic, Seen(), instance_name="w2"):
            pass
    with consumer(rmq_cluster, "g", rmq_topic, Seen(), **named) as again:
        assert again.client_id == first.client_id


def test_a_message_that_always_fails_is_a_dead_letter_after_16_retries(
    rmq_cluster_factory, rmq_clock
):
    """This is also true with two members in the group."""
    levels = {"message_delay_level": " ".join(["1s"] * 18)}
    cluster = rmq_cluster_factory(clock=rmq_clock, settings=levels)
    topic = cluster.create_topic("T", queues=2)
    cluster.send(topic, ["bad"], queue_id=0)
    cluster.send(topic, ["bad"], queue_id=1)
    seen = Seen(lambda *_: False)
    with (
        consumer(cluster, "g", topic, seen),
        consumer(cluster, "g", topic, seen),
    ):

        def dead():
            cluster.advance(500)
            store = cluster.brokers[0].store
            bounds = cluster.call(lambda: store.queue_bounds("%DLQ%g", 0))
            return bounds is not None and bounds[1] == 2

        wait_until(dead)
    times = Counter(each.reconsume_times for each in seen.messages)
    assert times == dict.fromkeys(range(17), 2)


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
def test_after_a_broker_restarts_each_of_its_queues_has_an_owner(
    rmq_cluster_factory, orderly
):
    """No queue is left without an owner because each member takes it for another's."""
    cluster = rmq_cluster_factory(brokers=2)
    topic = cluster.create_topic("T", queues=4)
    seen = Seen()
    options: dict[str, Any] = FAST | {
        "orderly": orderly,
        "rebalance_interval_ms": 2_000,
    }
    with ExitStack() as stack:
        members = [
            stack.enter_context(consumer(cluster, "g", topic, seen, **options))
            for _ in range(3)
        ]

        def owned():
            return Counter(
                queue
                for member in members
                for queue in member.queues()
                if queue.topic == topic
            )

        every = {MessageQueue(topic, b, n) for b in NAMES for n in range(4)}
        wait_until(lambda: owned() == dict.fromkeys(every, 1))
        cluster.broker("broker-b").kill()
        gone = {queue for queue in every if queue.broker_name == "broker-b"}
        cluster.send(topic, ["while"], broker="broker-a")
        seen.wait_for(1)
        cluster.broker("broker-b").restart()
        wait_until(lambda: owned() == dict.fromkeys(every, 1))
        for queue in sorted(gone):
            cluster.send(
                topic, [f"{queue}"], broker="broker-b", queue_id=queue.queue_id
            )
        assert len(seen.wait_for(5)) == 5


NAMES = ("broker-a", "broker-b")


@pytest.mark.slow
def test_a_hundred_groups_are_not_affected_by_a_broker_that_hangs(rmq_cluster_factory):
    """Each group consumes, commits and notices a new queue while requests to the hung
    broker wait. In other clients, commits that are sent to it one after the other delay
    all of that."""
    cluster = rmq_cluster_factory(brokers=2)
    topic = cluster.create_topic("T", queues=1)
    seen = Seen()
    groups = [f"g{number}" for number in range(100)]
    # With the intervals of FAST a hundred members would send more requests than a busy
    # process can answer, and repeat the ones that time out.
    slow = {name: 2_000 for name in FAST if name.endswith("interval_ms")}
    settings = FAST | slow | {"consume_threads": 1}
    members = [consumer(cluster, group, topic, seen, **settings) for group in groups]
    try:
        for member in members:
            # With a hundred clients in one process on a busy machine, an answer may
            # take longer than the 3 s of a request's deadline.
            member.start(timeout_ms=400_000, wait_for_cluster=True)
        cluster.send(topic, ["first"], broker="broker-a")
        wait_until(lambda: seen.bodies.count("first") == 100)
        cluster.broker("broker-b").hang()
        cluster.send(topic, ["second"], broker="broker-a")
        wait_until(lambda: seen.bodies.count("second") == 100)
        wait_until(
            lambda: all(committed_at_a(cluster, g, topic) == {0: 2} for g in groups)
        )
        cluster.create_topic(topic, queues=2)
        cluster.send(topic, ["third"], broker="broker-a", queue_id=1)
        wait_until(lambda: seen.bodies.count("third") == 100)
    finally:
        cluster.broker("broker-b").resume()  # otherwise the closes wait for it
        closing = [threading.Thread(target=each.close) for each in members]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
    assert Counter(seen.bodies) == dict.fromkeys(["first", "second", "third"], 100)


def committed_at_a(cluster, group, topic):
    broker = cluster.broker("broker-a")
    table = cluster.call(lambda: broker.state.offsets.table())
    return table.get((topic, group), {})


def test_a_close_gives_the_locks_back_at_once(rmq_cluster):
    """Another client gets the locks without waiting for a minute."""
    topic = rmq_cluster.create_topic("T", queues=3)
    rmq_cluster.send(topic, ["x"])
    seen = Seen()
    queues = [MessageQueue(topic, "broker-a", number) for number in range(3)]
    with Asking(rmq_cluster.namesrv) as network:
        network.fetch_queues(topic)
        with consumer(rmq_cluster, "g", topic, seen, orderly=True):
            seen.wait_for(1)
            assert network.lock("g", "other", queues) == set()
        assert network.lock("g", "other", queues) == set(queues)


@pytest.mark.slow
@pytest.mark.parametrize("cached_bytes_max", [None, 16 * 1024])
def test_no_queue_waits_longer_for_its_turn_than_the_others_take(
    rmq_cluster, cached_bytes_max
):
    """With one thread and 16 full queues, the queue that is furthest behind is never
    more than a few pulls behind the queue that is furthest ahead.

    No queue reaches its own limit of messages. Such a queue would pause for 50 ms, in
    which the thread serves as many messages of the other queues as it can.
    """
    topic = rmq_cluster.create_topic("T", queues=16)
    count, pull = 320, 32
    for queue_id in range(16):
        rmq_cluster.send(topic, [b"x" * 100] * count, queue_id=queue_id)
    order: list[int] = []
    settings = {"consume_threads": 1, "cached_bytes_max": cached_bytes_max}
    with consumer(
        rmq_cluster, "g", topic, lambda m: order.append(m.queue_id), **settings
    ):
        wait_until(lambda: len(order) == 16 * count)
    assert committed(rmq_cluster, "g", topic) == dict.fromkeys(range(16), count)
    done = [0] * 16
    worst = 0
    for queue_id in order:
        done[queue_id] += 1
        worst = max(worst, max(done) - min(done))
    assert worst <= 5 * pull
