"""A producer that sends through the embedded proxy: what the brokers store."""

from __future__ import annotations

import pytest

from rmqcli import (
    ClientConfig,
    LocalTransactionState,
    NotFoundError,
    Producer,
    ProducerMessage,
)
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies, stored

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE


@pytest.fixture
def cluster():
    with EmbeddedCluster(proxy=True) as made:
        made.create_topic("orders")
        yield made


def producer_of(cluster, **options):
    client = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    return Producer(client=client, **options)


def message(body=b"x", topic="orders", **options):
    return ProducerMessage(topic, body, **options)


def test_a_message_is_stored_with_all_it_has(cluster):
    with producer_of(cluster) as producer:
        result = producer.send(
            message(b"hello", tags="Paid", keys=("a", "b"), properties={"x": "y"})
        )
    (found,) = stored(cluster, "orders")
    assert (found.body, found.tags, found.keys) == (b"hello", "Paid", "a b")
    assert (found.msg_id, found.properties["x"]) == (result.msg_id, "y")
    assert found.queue_offset == result.queue_offset


def test_a_batch_keeps_its_messages_apart(cluster):
    with producer_of(cluster) as producer:
        results = producer.send_batch(
            [message(b"%d" % n, tags=f"t{n}") for n in range(40)]
        )
    found = {each.msg_id: each for each in stored(cluster, "orders")}
    for number, result in enumerate(results):
        each = found[result.msg_id]
        assert (each.body, each.tags) == (b"%d" % number, f"t{number}")
        assert each.queue_offset == result.queue_offset
    assert len({each.queue_id for each in found.values()}) == 1


def test_futures_end_with_what_is_stored(cluster):
    with producer_of(cluster) as producer:
        futures = [
            producer.submit(message(b"%d" % n), timeout_ms=60_000) for n in range(100)
        ]
        ids = {each.result().msg_id for each in futures}
    assert {each.msg_id for each in stored(cluster, "orders")} == ids


def test_submitted_messages_of_a_group_lie_in_the_queue_of_their_group_in_order(
    cluster,
):
    """A proxy stores a batch in any queue, so that the group was in several of them."""
    cluster.create_topic("steps", queues=4, attributes={"message.type": "FIFO"})
    with producer_of(cluster) as producer:
        for _ in range(3):
            futures = [
                producer.submit(message(b"%d" % n, "steps", message_group="zzzzzzzz"))
                for n in range(20)
            ]
            for each in futures:
                each.result()
    found = sorted(stored(cluster, "steps"), key=lambda m: m.queue_offset)
    assert [each.queue_id for each in found] == [2] * 60
    assert [int(each.body) for each in found] == [*range(20)] * 3


def test_a_sharding_key_of_a_program_is_the_message_group(cluster):
    cluster.create_topic("steps", queues=4, attributes={"message.type": "FIFO"})
    properties = {"__SHARDINGKEY": "zzzzzzzz", "colour": "red"}
    with producer_of(cluster) as producer:
        for _ in range(3):
            producer.send(message(b"x", "steps", properties=properties))
    found = stored(cluster, "steps")
    assert [each.queue_id for each in found] == [2, 2, 2]
    assert {each.properties["__SHARDINGKEY"] for each in found} == {"zzzzzzzz"}
    assert {each.properties["colour"] for each in found} == {"red"}


def test_submitted_messages_with_a_priority_lie_in_the_queue_of_their_priority(
    cluster,
):
    cluster.create_topic("urgent", queues=4, attributes={"message.type": "PRIORITY"})
    with producer_of(cluster) as producer:
        futures = [
            producer.submit(
                message(
                    b"%d" % (n % 4),
                    "urgent",
                    properties={"_SYS_MSG_PRIORITY_": str(n % 4)},
                )
            )
            for n in range(20)
        ]
        for each in futures:
            each.result()
    found = stored(cluster, "urgent")
    assert len(found) == 20
    assert all(each.body == b"%d" % each.queue_id for each in found)


def test_a_transaction_is_committed_or_not(cluster):
    cluster.create_topic("paid", attributes={"message.type": "TRANSACTION"})
    with producer_of(cluster, on_check=lambda _message: None) as producer:
        for body, state in ((b"yes", COMMIT), (b"no", ROLLBACK)):
            producer.send_in_transaction(
                message(body, "paid"), lambda _message, _half, state=state: state
            )
        wait_until(lambda: bodies(cluster, "paid") == [b"yes"])


def test_an_unknown_topic_is_not_created(cluster):
    with producer_of(cluster) as producer, pytest.raises(NotFoundError):
        producer.send(message(topic="nothing-like-it"))
    assert stored(cluster, "nothing-like-it") == []
