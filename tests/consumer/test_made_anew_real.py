"""A member whose topic is made anew on real brokers of each version."""

from __future__ import annotations

import pytest

from rmqcli import ProducerMessage, connect
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def fill(cluster, topic, word, count):
    messages = [ProducerMessage(topic, f"{word} {n}".encode()) for n in range(count)]
    with connect(cluster.namesrv) as clients, clients.producer() as producer:
        producer.send_batch(messages)


@pytest.mark.parametrize("count", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_each_message_of_the_new_topic_is_consumed(real_cluster, new_topic, count):
    """Of 40 new messages none was consumed, and of 150 the last 50."""
    cluster, topic, seen = real_cluster, new_topic(queues=1), Seen()
    fill(cluster, topic, "old", 100)
    with consumer(cluster, f"G{topic}", topic, seen):
        seen.wait_for(100)
        with connect(cluster.namesrv) as clients, clients.admin() as admin:
            admin.delete_topic(topic)
        cluster.create_topic(topic, queues=1)
        fill(cluster, topic, "new", count)
        new = {f"new {n}" for n in range(count)}
        wait_until(lambda: new <= set(seen.bodies))


@pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")
def test_a_member_that_starts_afterwards_consumes_the_new_topic(
    real_cluster, new_topic
):
    """Brokers of 4.9.7 keep the group's offset, and correct it to the end of the new
    queue: none of the 40 messages was consumed."""
    cluster, topic, seen = real_cluster, new_topic(queues=1), Seen()
    fill(cluster, topic, "old", 100)
    with consumer(cluster, f"G{topic}", topic, seen):
        seen.wait_for(100)
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.delete_topic(topic)
    cluster.create_topic(topic, queues=1)
    fill(cluster, topic, "new", 40)
    with consumer(cluster, f"G{topic}", topic, seen):
        new = {f"new {n}" for n in range(40)}
        wait_until(lambda: new <= set(seen.bodies))
