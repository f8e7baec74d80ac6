"""While one of two brokers hangs, a consumer keeps consuming from the other one.

LIMIT_S is long compared with the time that this takes (a few tenths of a second). It is
short compared with the time that a consumer would need that begins its topics one after
the other, each after the requests to the hung broker have timed out: 3 s or more for
each topic.
"""

from __future__ import annotations

import threading
import time

import pytest

from rmqcli.engine.allocate import AllocateMessageQueueAveragelyByCircle
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import wait_until

TOPICS = [f"t{number:02}" for number in range(12)]
QUEUES = 3
LIMIT_S = 8


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Two brokers, each with three queues of each topic."""
    cluster = rmq_cluster_factory(brokers=2)
    for topic in TOPICS:
        cluster.create_topic(topic, queues=QUEUES)
    return cluster


def send_to(cluster, broker, text):
    """Send one message to each queue of each topic on a broker."""
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            body = f"{text} {topic} {queue_id}"
            cluster.send(topic, [body], broker=broker, queue_id=queue_id)


def expected(text):
    return {f"{text} {topic} {number}" for topic in TOPICS for number in range(QUEUES)}


def has(seen, text):
    return expected(text) <= set(seen.bodies)


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
def test_a_start_consumes_from_the_healthy_broker(cluster, orderly):
    send_to(cluster, "broker-a", "first")
    cluster.broker("broker-b").hang()
    seen = Seen()
    running = consumer(cluster, "g", TOPICS, seen, orderly=orderly)
    began = time.monotonic()
    try:
        running.start()
        wait_until(lambda: has(seen, "first"))
        assert time.monotonic() - began < LIMIT_S
        assert len(seen.bodies) == 36
        # Commits and new messages do not wait for the other broker either.
        send_to(cluster, "broker-a", "second")
        wait_until(lambda: has(seen, "second"))
        wait_until(
            lambda: (
                [committed(cluster, "g", topic) for topic in TOPICS]
                == [{0: 2, 1: 2, 2: 2}] * len(TOPICS)
            )
        )
    finally:
        began = time.monotonic()
        running.close()
        assert time.monotonic() - began < 10  # await_termination_ms


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
def test_a_member_that_joins_gets_its_queues_of_the_healthy_broker(cluster, orderly):
    """The other members give queues up and the new member begins them while the other
    broker hangs."""
    seen = Seen()
    # By circle, each of three members gets one queue of each topic on each broker.
    by_circle = AllocateMessageQueueAveragelyByCircle()
    options = {"orderly": orderly, "strategy": by_circle}
    with (
        consumer(cluster, "g", TOPICS, seen, **options) as first,
        consumer(cluster, "g", TOPICS, seen, **options) as second,
    ):
        both = [(m, b) for m in (first, second) for b in ("broker-a", "broker-b")]
        wait_until(lambda: sorted(owned(*each) for each in both) == [12, 12, 24, 24])
        cluster.broker("broker-b").hang()
        began = time.monotonic()
        with consumer(cluster, "g", TOPICS, seen, **options) as third:
            wait_until(lambda: owned(third, "broker-a") == len(TOPICS))
            assert time.monotonic() - began < LIMIT_S
            members = (first, second, third)
            wait_until(lambda: [owned(m, "broker-a") for m in members] == [12] * 3)
            send_to(cluster, "broker-a", "x")
            wait_until(lambda: has(seen, "x"))
            cluster.broker("broker-b").resume()  # otherwise the closes wait for it
        assert len(seen.bodies) == 36


def owned(member, broker):
    """Return how many queues of a broker a member owns, without retry topics."""
    queues = [queue for queue in member.queues() if queue.topic in TOPICS]
    return sum(queue.broker_name == broker for queue in queues)


def test_a_broker_that_hangs_while_a_consumer_runs_is_consumed_again(cluster):
    """No message of the broker is lost."""
    seen = Seen()
    threads = threading.active_count()
    with consumer(cluster, "g", TOPICS, seen):
        send_to(cluster, "broker-b", "before")
        wait_until(lambda: has(seen, "before"))
        send_to(cluster, "broker-b", "during")
        cluster.broker("broker-b").hang()
        send_to(cluster, "broker-a", "other")
        wait_until(lambda: has(seen, "other"))
        cluster.broker("broker-b").resume()
        wait_until(lambda: has(seen, "during"))
    assert threading.active_count() <= threads
