"""Java's push consumer on a topic of batches (BatchCQ): retries and dead letters.

A broker cannot send part of a record back, so the client sends a copy of the message to
the retry topic itself. The embedded broker and a real one do the same.
"""

from __future__ import annotations

import base64

import pytest

from rmqcli import Admin, NotFoundError
from tests.kit.java_program import JavaConsumer, java_producer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("5.5.0")


@pytest.fixture(params=["embedded", "real"])
def brokers(request, rmq_version):  # which says that it needs Java
    name = {"embedded": "embedded", "real": "real_cluster"}[request.param]
    return request.getfixturevalue(name)


def filled(brokers):
    """A topic with two batches of three messages, on one queue of the first broker."""
    topic = brokers.create_topic(
        queues=1, brokers=[0], attributes="+queue.type=BatchCQ"
    )
    for first in (0, 3):
        batch = [
            {"topic": topic, "bodyB64": base64.b64encode(b"m-%d" % n).decode()}
            for n in range(first, first + 3)
        ]
        (sent,) = java_producer(brokers, [{"batch": batch}])
        assert sent["sendStatus"] == "SEND_OK"
    return topic


def deliveries(consumer):
    return sorted(
        (base64.b64decode(each["bodyB64"]).decode(), each["reconsumeTimes"])
        for each in consumer.messages
    )


def test_messages_of_a_batch_that_fail_come_again_and_then_are_dead_letters(brokers):
    topic = filled(brokers)
    group = f"g-{topic}"

    def dead():
        try:
            found = admin.read(f"%DLQ%{group}")
            return sorted(each.body.decode() for each in found)
        except NotFoundError:
            return []

    with Admin(namesrv=brokers.namesrv) as admin:
        options = {"failTimes": 99, "maxReconsumeTimes": 1}
        with JavaConsumer(brokers, group, topic, **options) as consumer:
            consumer.wait_for(12, timeout_ms=120_000)
            wait_until(lambda: len(dead()) >= 6, "dead letters")
        assert dead() == [f"m-{n}" for n in range(6)]
        assert deliveries(consumer) == [(f"m-{n}", t) for n in range(6) for t in (0, 1)]
        assert {each["topic"] for each in consumer.messages} == {topic}
