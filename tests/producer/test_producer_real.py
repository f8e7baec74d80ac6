"""`Producer` and real brokers: every kind of message arrives as it was sent."""

from __future__ import annotations

import json
import random

import pytest

from rmqcli import (
    Admin,
    LocalTransactionState,
    Producer,
    ProducerConfig,
    ProducerMessage,
    SendStatus,
    UnsupportedError,
    select_by_hash,
)
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def found(cluster, topic):
    """All messages in the topic, by body."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return {message.body: message for message in admin.read(topic, to="latest")}


@pytest.mark.rmq_versions("4.9.7", "5.3.3", "5.5.0")
def test_a_body_of_the_largest_size_arrives_although_it_cannot_be_compressed(
    real_cluster,
):
    """A broker of 4.6.0 refuses it: there the limit is that of the whole record."""
    topic = real_cluster.create_topic()
    body = random.Random(0).randbytes(4 << 20)
    with Producer(namesrv=real_cluster.namesrv) as producer:
        producer.send(ProducerMessage(topic, body), timeout_ms=60_000)
    (message,) = found(real_cluster, topic).values()
    assert message.body == body
    assert message.sys_flag == 0


@pytest.mark.real_only
def test_messages_go_to_the_queues_that_the_name_server_has_fixed(real_cluster, capfd):
    """They went to all queues, and a key to another one than from Java's producer.

    The setting of the shared name server matters for topics with fixed queues only, and
    other tests send nothing to theirs.
    """
    topic = real_cluster.create_topic()
    broker = real_cluster.broker_name(0)
    to = ["-n", real_cluster.namesrv]
    change = ["nameserver", "config", "set", "--yes", *to]
    fixed = ["kv", "put", "ORDER_TOPIC_CONFIG", topic, f"{broker}:2", "--yes"]
    assert run(["nameserver", *fixed, *to]) == 0
    assert run([*change, "orderMessageEnable=true"]) == 0
    try:
        with Producer(namesrv=real_cluster.namesrv) as producer:
            sent = [producer.send(ProducerMessage(topic, b"x")) for _ in range(8)]
        capfd.readouterr()
        assert run(["send", topic, "x", "--count", "8", "-o", "json", *to]) == 0
        rows = json.loads(capfd.readouterr().out)
    finally:
        assert run([*change, "orderMessageEnable=false"]) == 0
    assert {each.queue and each.queue.queue_id for each in sent} == {0, 1}
    assert {row["queue_id"] for row in rows} == {0, 1}


def test_messages_arrive_as_they_were_sent(real_cluster):
    topic = real_cluster.create_topic()
    large = b"0123456789" * 2_000
    with Producer("shop", namesrv=real_cluster.namesrv) as producer:
        one = producer.send(
            ProducerMessage(
                topic,
                b"one",
                tags="Paid",
                keys=("a", "b"),
                properties={"colour": "red"},
                flag=3,
            )
        )
        producer.send(ProducerMessage(topic, large))
        chosen = producer.send(
            ProducerMessage(topic, b"by key"), selector=select_by_hash, arg="a"
        )
        batch = producer.send_batch(
            [ProducerMessage(topic, b"batch %d" % n, keys=f"k{n}") for n in range(10)]
        )
        futures = [
            producer.submit(ProducerMessage(topic, b"async %d" % n), timeout_ms=60_000)
            for n in range(100)
        ]
        assert {each.result().status for each in futures} == {SendStatus.SEND_OK}
        producer.send_oneway(ProducerMessage(topic, b"one way"))
        wait_until(lambda: b"one way" in found(real_cluster, topic))
    messages = found(real_cluster, topic)
    assert len(messages) == 114
    stored = messages[b"one"]
    assert (stored.tags, stored.keys, stored.flag) == ("Paid", "a b", 3)
    assert stored.properties["colour"] == "red"
    assert (stored.msg_id, stored.offset_msg_id) == (one.msg_id, one.offset_msg_id)
    assert stored.message_queue == one.queue
    assert stored.queue_offset == one.queue_offset
    assert messages[large].body_bytes < len(large)
    assert chosen.queue is not None
    assert chosen.queue.queue_id == 97 % 4
    for n, result in enumerate(batch):
        stored = messages[b"batch %d" % n]
        assert (stored.queue_offset, stored.msg_id, stored.keys) == (
            result.queue_offset,
            result.msg_id,
            f"k{n}",
        )


def test_delayed_messages_arrive_later(real_cluster):
    topic = real_cluster.create_topic()
    with Producer(namesrv=real_cluster.namesrv) as producer:
        level = producer.send(ProducerMessage(topic, b"level", delay_level=1))
        assert level.queue_offset is None
        expected = {b"level"}
        if real_cluster.version.startswith("4."):
            with pytest.raises(UnsupportedError):
                producer.send(ProducerMessage(topic, b"time", delay_ms=2_000))
        else:
            producer.send(ProducerMessage(topic, b"time", delay_ms=2_000))
            expected.add(b"time")
        wait_until(lambda: found(real_cluster, topic).keys() == expected)


def test_transactions_end_as_they_were_decided(fresh_cluster):
    cluster = fresh_cluster(conf={"transactionCheckInterval": 1_000})
    topic = cluster.create_topic()
    asked = []

    def on_check(message):
        asked.append(message.body)
        if message.body == b"rollback":
            # 5.x stores the ends every 3 s, and may check once more until then.
            return LocalTransactionState.ROLLBACK_MESSAGE
        return LocalTransactionState.COMMIT_MESSAGE

    with Producer("shop", namesrv=cluster.namesrv, on_check=on_check) as producer:
        for body, state in (
            (b"commit", LocalTransactionState.COMMIT_MESSAGE),
            (b"rollback", LocalTransactionState.ROLLBACK_MESSAGE),
            (b"unknown", LocalTransactionState.UNKNOW),
        ):
            result = producer.send_in_transaction(
                ProducerMessage(topic, body), lambda *_, state=state: state
            )
            assert result.local_transaction_state is state
        wait_until(lambda: found(cluster, topic).keys() == {b"commit", b"unknown"})
    assert b"unknown" in asked


@pytest.mark.rmq_versions("5.5.0")
def test_submitted_messages_with_a_priority_are_in_the_queue_of_their_priority(
    real_cluster,
):
    """A broker stores a batch in the queue of the request, whatever the priorities."""
    topic = real_cluster.create_topic(queues=4)
    config = ProducerConfig(linger_ms=300)
    with Producer(namesrv=real_cluster.namesrv, config=config) as producer:
        futures = [
            producer.submit(
                ProducerMessage(
                    topic, b"%d" % n, properties={"_SYS_MSG_PRIORITY_": str(n % 4)}
                )
            )
            for n in range(40)
        ]
        for each in futures:
            each.result()
    stored = found(real_cluster, topic)
    assert [stored[b"%d" % n].queue_id for n in range(40)] == [0, 1, 2, 3] * 10
