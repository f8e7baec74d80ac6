"""A producer that sends through the embedded proxy: what the brokers store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli import (
    ClientConfig,
    LocalTransactionState,
    NoBrokerError,
    NotFoundError,
    Producer,
    ProducerConfig,
    ProducerMessage,
    SendUnknownError,
)
from rmqcli.broker import faults
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies, stored

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ONE_ATTEMPT = ProducerConfig(
    retry_times_when_send_failed=0, retry_times_when_send_async_failed=0
)
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE


@pytest.fixture
def cluster():
    with EmbeddedCluster(proxy=ProxyOptions(remoting_port=0)) as made:
        made.create_topic("orders")
        yield made


def producer_of(cluster, *, by="gRPC", **options):
    client = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    if by == "remoting":
        client = ClientConfig(namesrv=(cluster.proxy.remoting_address,))
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


def lose_answers(cluster):
    """Have the broker store messages, and end the proxy's connection each time."""
    lost = faults.disconnect(is_handled=True)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        cluster.faults.add(lost, code=code)


@pytest.mark.parametrize("by", ["gRPC", "remoting"])
def test_a_proxy_that_lost_its_broker_may_have_stored_the_message(cluster, by):
    """It was called "not stored"."""
    lose_answers(cluster)
    with producer_of(cluster, by=by, config=ONE_ATTEMPT) as producer:
        with pytest.raises(SendUnknownError, match="send request to") as failure:
            producer.send(message(b"a"))
        ids = failure.value.msg_ids
        with pytest.raises(SendUnknownError, match="batch of 2 messages") as failure:
            producer.send_batch([message(b"b"), message(b"c")])
        ids += failure.value.msg_ids
    found = stored(cluster, "orders")
    assert {each.msg_id for each in found} == set(ids)
    assert bodies(cluster, "orders") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("by", ["gRPC", "remoting"])
def test_a_batch_is_not_halved_after_a_proxy_has_lost_its_broker(cluster, by):
    """Its halves stored every message a second time, and nothing said so."""
    lose_answers(cluster)
    together = replace(ONE_ATTEMPT, linger_ms=500)
    with producer_of(cluster, by=by, config=together) as producer:
        futures = [producer.submit(message(each)) for each in (b"a", b"b", b"c", b"d")]
        errors = [each.exception() for each in futures]
    assert [type(each) for each in errors] == [SendUnknownError] * 4
    assert bodies(cluster, "orders") == [b"a", b"b", b"c", b"d"]


def test_a_broker_to_which_a_proxy_cannot_connect_has_stored_nothing(cluster):
    refused = "connect to 10.0.0.1:10911 failed. RemotingConnectException"
    cluster.faults.add(faults.answer(1, refused), code=RequestCode.SEND_MESSAGE_V2)
    with producer_of(cluster) as producer, pytest.raises(NoBrokerError) as failure:
        producer.send(message())
    assert str(failure.value).endswith(
        f": the proxy {cluster.endpoints} cannot connect to the broker 10.0.0.1:10911"
    )
    assert stored(cluster, "orders") == []


def test_an_unknown_topic_is_not_created(cluster):
    with producer_of(cluster) as producer, pytest.raises(NotFoundError):
        producer.send(message(topic="nothing-like-it"))
    assert stored(cluster, "nothing-like-it") == []
