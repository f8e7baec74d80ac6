"""Java's push consumer in POP mode works with the embedded cluster."""

from __future__ import annotations

import base64

import pytest

from tests.kit.java_program import JavaConsumer, java_producer, mqadmin
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("5.5.0")

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


def send(embedded, topic, count, **fields):
    specs = [
        {
            "topic": topic,
            "bodyB64": base64.b64encode(b"m-%d" % number).decode(),
            "tags": "TagA",
            **fields,
        }
        for number in range(count)
    ]
    sent = java_producer(embedded, specs)
    assert {each.get("sendStatus") for each in sent} == {"SEND_OK"}, sent


def bodies(messages):
    return sorted(base64.b64decode(m["bodyB64"]).decode() for m in messages)


def set_mode(embedded, topic, group, mode="POP"):
    mqadmin(embedded, "updateSubGroup", "-c", "DefaultCluster", "-g", group)
    arguments = ["-c", "DefaultCluster", "-t", topic, "-g", group, "-m", mode]
    printed = mqadmin(embedded, "setConsumeMode", *arguments, "-q", "0")
    assert "success" in printed, printed


def out(embedded):
    """The number of batches, on all brokers, that are not acknowledged yet."""
    cluster = embedded.cluster
    return cluster.call(
        lambda: sum(len(each.state.check_points) for each in cluster.brokers)
    )


def check_points(embedded, group):
    """The number of records that all brokers have stored in the revive topic."""
    cluster, found = embedded.cluster, 0
    for broker in cluster.brokers:
        for queue_id in range(8):
            bounds = cluster.call(
                lambda: broker.store.queue_bounds(REVIVE_TOPIC, queue_id)  # noqa: B023
            )
            found += bounds[1] if bounds else 0
    return found


def test_messages_are_popped_and_what_fails_comes_back(embedded):
    """The mode is set by mqadmin; the broker tells the consumer to pop."""
    topic = embedded.create_topic(queues=2)
    group = f"pop-{topic}"
    set_mode(embedded, topic, group)
    before = check_points(embedded, group)
    with JavaConsumer(
        embedded, group, topic, serverAssignment=True, failTimes=1
    ) as consumer:
        send(embedded, topic, 6)
        consumer.wait_for(12, timeout_ms=300_000)
        wait_until(lambda: out(embedded) == 0, "all acknowledged")
        messages = list(consumer.messages)
    twice = sorted([f"m-{n}" for n in range(6)] * 2)
    assert bodies(messages) == twice
    assert {each["topic"] for each in messages} == {topic}
    assert sorted(each["reconsumeTimes"] for each in messages) == [0] * 6 + [1] * 6
    assert check_points(embedded, group) > before


def test_a_group_in_pull_mode_gets_its_queues_from_the_broker(embedded):
    topic = embedded.create_topic(queues=2)
    send(embedded, topic, 8)
    with JavaConsumer(
        embedded, f"pull-{topic}", topic, serverAssignment=True
    ) as consumer:
        consumer.wait_for(8)
        assert bodies(consumer.messages) == [f"m-{n}" for n in range(8)]


def test_messages_are_popped_in_order(embedded):
    """A message that fails comes again before its successors."""
    topic = embedded.create_topic(queues=1)
    group = f"order-{topic}"
    set_mode(embedded, topic, group)
    with JavaConsumer(
        embedded,
        group,
        topic,
        serverAssignment=True,
        orderly=True,
        failTimes=1,
        failByCount=True,
    ) as consumer:
        send(embedded, topic, 3, brokerName="broker-a", queueId=0)
        consumer.wait_until(
            lambda: bodies(consumer.messages).count("m-2") >= 2,
            what="the last message twice",
            timeout_ms=300_000,
        )
        order = [
            base64.b64decode(each["bodyB64"]).decode() for each in consumer.messages
        ]
    last = {body: len(order) - 1 - order[::-1].index(body) for body in order}
    assert last["m-0"] < last["m-1"] < last["m-2"], order
