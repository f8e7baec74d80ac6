"""The kit itself: every version starts, works, and recovers from kills and stops."""

from __future__ import annotations

import base64

import pytest

from tests.kit import raw
from tests.kit.artefacts import VERSIONS
from tests.kit.java_program import JavaConsumer, fill, mqadmin


def spec(topic, body, **more):
    encoded = base64.b64encode(body).decode()
    return {"topic": topic, "bodyB64": encoded, **more}


@pytest.mark.rmq_versions(*VERSIONS)
def test_a_java_producer_and_consumer_meet(real_cluster, new_topic, java_producer):
    topic = new_topic(queues=2)

    answers = java_producer(
        real_cluster,
        [
            spec(topic, b"one", tags="A", keys="k1", properties={"p": "v"}),
            {"batch": [spec(topic, b"two"), spec(topic, b"three")]},
        ],
    )
    with JavaConsumer(real_cluster, f"g-{topic}", topic) as consumer:
        messages = consumer.wait_for(3)

    assert [a["sendStatus"] for a in answers] == ["SEND_OK", "SEND_OK"]
    bodies = sorted(base64.b64decode(m["bodyB64"]) for m in messages)
    assert bodies == [b"one", b"three", b"two"]


def test_a_blocked_java_consumer_that_stops_has_consumed_nothing(
    real_cluster, new_topic
):
    """Its messages must neither count as consumed nor go to the retry topic."""
    topic = new_topic(queues=1)
    group = f"g-{topic}"
    fill(real_cluster, topic, 10)

    with JavaConsumer(real_cluster, group, topic, block=True) as blocked:
        blocked.wait_until(lambda: blocked.is_blocked, what="blocked call")
    with JavaConsumer(real_cluster, group, topic, stopAfter=10) as consumer:
        messages = consumer.wait_for(10)

    assert sorted(m["queueOffset"] for m in messages) == list(range(10))
    assert {m["reconsumeTimes"] for m in messages} == {0}


def test_a_filler_that_fails_ends_and_says_why(real_cluster):
    """Its client's threads would keep Java running until the limit of 600 s."""
    with pytest.raises(RuntimeError, match="Can not find Message Queue"):
        fill(real_cluster, "no-such-topic", 10)


def test_mqadmin_talks_to_the_cluster(real_cluster, new_topic):
    assert new_topic() in mqadmin(real_cluster, "topicList")


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_killed_broker_comes_back_with_its_messages(fresh_cluster):
    cluster = fresh_cluster()
    topic = cluster.create_topic(queues=1)
    fill(cluster, topic, 100)

    cluster.kill_broker()
    cluster.start_broker()
    answer = cluster.ask(30, {"topic": topic, "queueId": "0"})

    assert answer.ext_fields["offset"] == "100"


@pytest.mark.rmq_versions("5.5.0")
def test_a_suspended_broker_does_not_answer_until_it_is_resumed(fresh_cluster):
    cluster = fresh_cluster()
    cluster.suspend_broker()
    with pytest.raises(OSError):  # noqa: PT011  # a time-out; its class varies
        raw.ask(cluster.broker_address(), 28, timeout_ms=500)
    cluster.resume_broker()

    assert cluster.ask(28).code == 0
