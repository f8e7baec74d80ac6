"""The client with real proxies in local mode: what a scripted one cannot prove."""

from __future__ import annotations

import functools
import json
from contextlib import ExitStack

import pytest

from rmqcli import (
    BrokerError,
    ClientConfig,
    ConnectError,
    LocalTransactionState,
    NotFoundError,
    Producer,
    ProducerMessage,
    RmqError,
    SendUnknownError,
    TlsOptions,
    UnsupportedError,
)
from rmqcli.proxy import rpc
from rmqcli.proxy.session import SIMPLE_CONSUMER, Session
from rmqcli.wire.subscription import parse_subscription
from tests.kit import raw
from tests.kit.proxy.sessions import receive_now
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.rmq_versions("5.3.3", "5.5.0"), pytest.mark.real_only]


@pytest.fixture
def cluster(local_proxy):
    return local_proxy


@pytest.fixture
def client(cluster):
    return ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)


def create_group(cluster, group, **settings):
    body = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        **settings,
    }
    answer = cluster.ask(
        raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(body).encode()
    )
    assert answer.code == 0, answer.remark
    return group


@pytest.fixture
def open_consumer(client):
    """`open_consumer(group, topic, expression)`: an open session, and its queues."""
    with ExitStack() as stack:

        def make(group, topic, expression="*"):
            session = Session(
                client,
                client_type=SIMPLE_CONSUMER,
                group=group,
                subscriptions={topic: parse_subscription(topic, expression)},
            )
            stack.callback(session.close)
            session.open([topic])
            return session, session.in_caller(lambda via: session.route(topic, via))

        yield make


def drain(session, queue, group, *, count, expression="*", ack=True):
    """Receive `count` messages and acknowledge them."""
    found = []

    def more():
        call = rpc.receive_message(
            queue,
            group=group,
            batch_size=32,
            polling_ms=5_000,
            invisible_ms=30_000,
            subscription=parse_subscription(queue.queue.topic, expression),
        )
        messages = receive_now(session, queue.endpoints, call).messages
        found.extend(messages)
        if messages and ack:
            handles = [(each.msg_id, each.receipt_handle) for each in messages]
            acks = rpc.ack_messages(queue.queue.topic, group, handles)
            assert session.invoke(queue.endpoints, acks) == []
        return len(found) >= count

    wait_until(more)
    return found


def test_what_is_sent_is_received(cluster, client, open_consumer):
    topic = cluster.create_topic()
    group = create_group(cluster, f"G-{topic}")
    with Producer(client=client) as producer:
        result = producer.send(
            ProducerMessage(
                topic, b"hello", tags="Paid", keys=("a", "b"), properties={"x": "y"}
            )
        )
        producer.send(ProducerMessage(topic, b"other", tags="Open"))
        futures = [
            producer.submit(ProducerMessage(topic, b"%d" % n, tags="Paid"))
            for n in range(50)
        ]
        for each in futures:
            each.result()
    session, (queue, *_) = open_consumer(group, topic, "Paid")
    found = drain(session, queue, group, count=51, expression="Paid")
    (first,) = [each for each in found if each.body == b"hello"]
    assert (first.msg_id, first.tags, first.keys) == (result.msg_id, "Paid", "a b")
    assert first.properties == {"x": "y"}
    assert first.queue_offset == result.queue_offset
    assert (first.damage, first.delivery_attempt) == (None, 1)
    assert sorted(each.body for each in found if each is not first) == sorted(
        b"%d" % n for n in range(50)
    )


def test_a_batch_is_kept_apart_or_refused(cluster, client, open_consumer):
    topic = cluster.create_topic()
    group = create_group(cluster, f"G-{topic}")
    batch = [ProducerMessage(topic, b"%d" % n, tags=f"t{n}") for n in range(40)]
    with Producer(client=client) as producer:
        if cluster.version == "5.3.3":
            with pytest.raises(UnsupportedError, match="too old for batches"):
                producer.send_batch(batch)
            return
        results = producer.send_batch(batch)
    session, (queue, *_) = open_consumer(group, topic)
    found = drain(session, queue, group, count=40)
    assert {each.msg_id: each.tags for each in found} == {
        each.msg_id: f"t{n}" for n, each in enumerate(results)
    }
    offsets = {each.msg_id: each.queue_offset for each in found}
    assert [offsets[each.msg_id] for each in results] == [
        each.queue_offset for each in results
    ]


def test_messages_of_a_group_lie_in_one_queue_in_order(cluster, client, open_consumer):
    topic = cluster.create_topic(attributes="+message.type=FIFO")
    group = create_group(cluster, f"G-{topic}")
    with Producer(client=client) as producer:
        for number in range(10):
            message = ProducerMessage(topic, b"%d" % number, message_group="order-1")
            producer.send(message)
        futures = [
            producer.submit(
                ProducerMessage(topic, b"%d" % number, message_group="order-1")
            )
            for number in range(10, 30)
        ]
        for each in futures:
            each.result()
    session, (queue, *_) = open_consumer(group, topic)
    found = drain(session, queue, group, count=30)
    assert len({each.queue_id for each in found}) == 1
    found.sort(key=lambda each: each.queue_offset)
    assert [each.body for each in found] == [b"%d" % n for n in range(30)]
    assert {each.message_group for each in found} == {"order-1"}


@pytest.mark.rmq_versions("5.5.0")  # the first with priorities
def test_messages_with_a_priority_lie_in_its_queue(cluster, client, open_consumer):
    topic = cluster.create_topic(attributes="+message.type=PRIORITY")
    group = create_group(cluster, f"G-{topic}")
    with Producer(client=client) as producer:
        futures = [
            producer.submit(
                ProducerMessage(
                    topic,
                    b"%d" % (n % 4),
                    properties={"_SYS_MSG_PRIORITY_": f"{n % 4}"},
                )
            )
            for n in range(12)
        ]
        for each in futures:
            each.result()
    session, (queue, *_) = open_consumer(group, topic)
    found = drain(session, queue, group, count=12)
    assert sorted((each.body, each.queue_id, each.priority) for each in found) == [
        (b"%d" % n, n, n) for n in range(4) for _ in range(3)
    ]


def test_a_message_that_was_acknowledged_after_a_change_does_not_come_back(
    cluster, client, open_consumer
):
    """A proxy in local mode answers with the first offset of the batch that it changed.

    Brokers ignore an ack with it, except that of the first message.
    """
    topic = cluster.create_topic(queues=1)
    group = create_group(cluster, f"G-{topic}")
    with Producer(client=client) as producer:
        for body in (b"0", b"1", b"2", b"comes back"):
            producer.send(ProducerMessage(topic, body))
    session, (queue,) = open_consumer(group, topic)
    found = drain(session, queue, group, count=4, ack=False)
    handles = []
    for message in found:
        change = rpc.change_invisible_duration(
            topic=topic,
            group=group,
            msg_id=message.msg_id,
            receipt_handle=message.receipt_handle,
            invisible_ms=10_000,
        )
        handles.append((message.msg_id, session.invoke(queue.endpoints, change)))
    acks = rpc.ack_messages(topic, group, handles[:-1])
    assert session.invoke(queue.endpoints, acks) == []
    # The last change is the last to end, so the others would be here by then.
    again = drain(session, queue, group, count=1)
    assert [each.body for each in again] == [b"comes back"]


def test_a_delayed_message_can_be_recalled_where_that_is_allowed(cluster, client):
    topic = cluster.create_topic(attributes="+message.type=DELAY")
    with Producer(client=client) as producer:
        result = producer.send(ProducerMessage(topic, b"later", delay_ms=3_600_000))
        assert result.recall_handle
        with pytest.raises(BrokerError, match="recall failed, operation is forbidden"):
            producer.recall(topic, result.recall_handle)


def test_a_transaction_is_decided_at_once_or_by_the_check(
    cluster, client, open_consumer
):
    topic = cluster.create_topic(attributes="+message.type=TRANSACTION")
    group = create_group(cluster, f"G-{topic}")
    commit = LocalTransactionState.COMMIT_MESSAGE
    rollback = LocalTransactionState.ROLLBACK_MESSAGE
    checked = []

    def check(message):
        checked.append(message.body)
        return commit

    def decide(state, _message, _half):
        return state

    with Producer(client=client, on_check=check) as producer:
        for body, state in ((b"yes", commit), (b"no", rollback), (b"later", None)):
            producer.send_in_transaction(
                ProducerMessage(topic, body), functools.partial(decide, state)
            )
        # The broker checks at the earliest 6 s after the half message.
        wait_until(lambda: checked)
        session, (queue, *_) = open_consumer(group, topic)
        found = drain(session, queue, group, count=2)
    assert checked == [b"later"]
    assert sorted(each.body for each in found) == [b"later", b"yes"]


def test_unknown_topics_and_wrong_kinds_are_errors_of_their_own(cluster, client):
    topic = cluster.create_topic()
    with Producer(client=client) as producer:
        with pytest.raises(NotFoundError, match="topic nothing-like-it does not ex"):
            producer.send(ProducerMessage("nothing-like-it", b"x"))
        with pytest.raises(BrokerError, match="MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"):
            producer.send(ProducerMessage(topic, b"x", message_group="g"))


def test_tls_and_plaintext_on_one_port(cluster):
    topic = cluster.create_topic()
    message = ProducerMessage(topic, b"x")
    endpoints = (cluster.endpoints,)
    accepting = ClientConfig(endpoints=endpoints, tls=TlsOptions(insecure=True))
    with Producer(client=accepting) as producer:
        producer.send(message)
    with (
        Producer(client=ClientConfig(endpoints=endpoints)) as producer,
        pytest.raises(ConnectError, match="its certificate is not accepted"),
    ):
        producer.send(message)


def test_a_message_that_is_not_acknowledged_comes_again(cluster, client, open_consumer):
    topic = cluster.create_topic()
    group = create_group(cluster, f"G-{topic}")
    with Producer(client=client) as producer:
        producer.send(ProducerMessage(topic, b"again"))
    session, (queue, *_) = open_consumer(group, topic)
    (first,) = drain(session, queue, group, count=1, ack=False)
    call = rpc.change_invisible_duration(
        topic=topic,
        group=group,
        msg_id=first.msg_id,
        receipt_handle=first.receipt_handle,
        invisible_ms=1_000,
    )
    assert session.invoke(queue.endpoints, call) != first.receipt_handle
    (again,) = drain(session, queue, group, count=1)
    assert (again.body, again.delivery_attempt) == (b"again", 2)


def test_a_killed_proxy_loses_nothing(rmq_version, fresh_cluster):
    cluster = fresh_cluster(proxy=True)
    topic = cluster.create_topic()
    group = create_group(cluster, f"G-{topic}")
    client = ClientConfig(
        endpoints=(cluster.endpoints,), plaintext=True, timeout_ms=60_000
    )
    sure, unsure = [], []

    def send(producer, body, *, timeout_ms=60_000):
        try:
            producer.send(ProducerMessage(topic, body), timeout_ms=timeout_ms)
        except SendUnknownError:
            unsure.append(body)
        except RmqError:
            return False
        else:
            sure.append(body)
        return True

    session = Session(
        client,
        client_type=SIMPLE_CONSUMER,
        group=group,
        subscriptions={topic: parse_subscription(topic, "*")},
    )
    with Producer(client=client) as producer:
        session.open([topic])
        for number in range(20):
            assert send(producer, b"before %d" % number)
        cluster.stop_broker()
        send(producer, b"nobody is there", timeout_ms=2_000)
        cluster.start_broker()
        wait_until(lambda: send(producer, b"after", timeout_ms=5_000))
    (queue, *_) = session.in_caller(lambda via: session.route(topic, via))
    bodies: set[bytes] = set()

    def received():
        # Answered with an error until the new proxy has the client's settings.
        call = rpc.receive_message(
            queue, group=group, batch_size=32, polling_ms=5_000, invisible_ms=30_000
        )
        try:
            messages = receive_now(session, queue.endpoints, call).messages
        except RmqError:
            return False
        bodies.update(each.body for each in messages)
        return bodies >= set(sure)

    wait_until(received)
    session.close()
    assert bodies <= {*sure, *unsure}
