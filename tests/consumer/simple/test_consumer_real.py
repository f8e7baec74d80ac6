"""`SimpleConsumer` works over remoting with real brokers of 5.x, and not of 4.x."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from rmqcli import (
    AckError,
    Admin,
    ConnectError,
    DisconnectedError,
    NotFoundError,
    Producer,
    ProducerMessage,
    ReceiptHandleError,
    ReceivedMessage,
    RmqError,
    SimpleConsumer,
    TransportError,
    UnsupportedError,
    UsageError,
    sql,
)
from tests.kit.messages import receive_all, send
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java

since_5 = pytest.mark.rmq_versions("5.3.3", "5.5.0")


def new_group():
    return f"g-{uuid.uuid4().hex[:12]}"


def consumer_of(cluster, topics, group=None, **options):
    options.setdefault("consume_from", "earliest")
    return SimpleConsumer(
        group or new_group(), topics, namesrv=cluster.namesrv, **options
    )


@pytest.mark.rmq_versions("4.6.0", "4.9.7")
def test_a_broker_of_4_is_refused_with_a_way_out(real_cluster):
    topic = real_cluster.create_topic()
    with (
        consumer_of(real_cluster, topic) as consumer,
        pytest.raises(UnsupportedError, match="the request needs 5") as raised,
    ):
        consumer.receive()
    assert raised.value.hint.startswith("use Consumer")


@since_5
def test_messages_are_received_as_they_were_sent_and_acknowledged_for_good(
    real_cluster,
):
    topic, group = real_cluster.create_topic(), new_group()
    with Producer(namesrv=real_cluster.namesrv) as producer:
        sent = producer.send(
            ProducerMessage(
                topic, b"one", tags="Paid", keys=("a", "b"), properties={"c": "red"}
            )
        )
    send(real_cluster, topic, [b"%d" % n for n in range(99)])
    with consumer_of(real_cluster, topic, group) as consumer:
        messages = receive_all(consumer, 100, invisible_duration_ms=10_000)
        assert len({each.msg_id for each in messages}) == 100
        (one,) = [each for each in messages if each.body == b"one"]
        assert (one.topic, one.tags, one.keys) == (topic, "Paid", "a b")
        assert one.properties["c"] == "red"
        assert (one.msg_id, one.message_queue) == (sent.msg_id, sent.queue)
        assert one.queue_offset == sent.queue_offset
        assert one.delivery_attempt == 1
        consumer.ack(messages[:50])
        for message in messages[50:60]:
            consumer.ack(message)
        consumer.ack(messages)  # acknowledging a message again is not an error
        assert consumer.receive(await_ms=20_000) == []


@since_5
def test_what_is_not_acknowledged_is_delivered_again(real_cluster):
    topic = real_cluster.create_topic()
    send(real_cluster, topic, [b"a", b"b", b"c"])
    with consumer_of(real_cluster, topic) as consumer:
        first = receive_all(consumer, 3, invisible_duration_ms=5_000)
        consumer.ack([each for each in first if each.body == b"a"])
        again = receive_all(consumer, 2)
        assert {each.body for each in again} == {b"b", b"c"}
        assert {each.delivery_attempt for each in again} == {2}
        assert {each.topic for each in again} == {topic}
        with pytest.raises(AckError, match="2 of 3 messages") as raised:
            consumer.ack(first)
        assert {m.body for m, _ in raised.value.failures} == {b"b", b"c"}
        assert {type(e) for _, e in raised.value.failures} == {ReceiptHandleError}
        consumer.ack(again)


@since_5
def test_another_instance_of_the_group_acknowledges_before_it_has_received(
    real_cluster,
):
    topic, group = real_cluster.create_topic(), new_group()
    send(real_cluster, topic, [b"a", b"b"])
    with (
        consumer_of(real_cluster, topic, group) as one,
        consumer_of(real_cluster, topic, group) as other,
    ):
        a, b = receive_all(one, 2, invisible_duration_ms=10_000)
        other.ack(a)
        other.change_invisible(b, 1_000)
        (again,) = receive_all(one, 1)
        assert again.msg_id == b.msg_id
        other.ack(again)


@since_5
def test_a_message_can_be_hidden_for_longer_and_given_back(real_cluster):
    topic = real_cluster.create_topic()
    send(real_cluster, topic, [b"long", b"back"])
    with consumer_of(real_cluster, topic) as consumer:
        messages = receive_all(consumer, 2, invisible_duration_ms=10_000)
        by_body = {each.body: each for each in messages}
        before = by_body[b"long"].receipt_handle
        consumer.change_invisible(by_body[b"long"], 120_000)
        assert by_body[b"long"].receipt_handle != before
        consumer.change_invisible(by_body[b"back"], 1_000)
        (back,) = receive_all(consumer, 1)
        assert (back.body, back.delivery_attempt) == (b"back", 2)
        consumer.ack([back, by_body[b"long"]])


@since_5
def test_used_up_deliveries_make_a_dead_letter(fresh_cluster):
    cluster = fresh_cluster()
    topic, group = cluster.create_topic(), new_group()
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group(group, retry_max_times=1)
        send(cluster, topic, [b"poison"])
        with consumer_of(cluster, topic, group) as consumer:
            for attempt in (1, 2):
                (message,) = receive_all(consumer, 1, invisible_duration_ms=2_000)
                assert message.delivery_attempt == attempt
            dead = f"%DLQ%{group}"

            def letters():
                assert consumer.receive(await_ms=500) == []
                try:
                    return list(admin.read(dead, to="latest"))
                except NotFoundError:
                    return []

            (letter,) = wait_until(letters)
            assert letter.body == b"poison"


@since_5
def test_tags_and_sql_choose_messages(real_cluster):
    orders, payments = real_cluster.create_topic(), real_cluster.create_topic()
    for tag in ("A", "B", "C"):
        send(real_cluster, orders, [tag.encode()], tags=tag)
    for n in (3, 7):
        send(real_cluster, payments, [b"%d" % n], properties={"amount": str(n)})
    topics = {orders: "A || C", payments: sql(payments, "amount > 5")}
    with consumer_of(real_cluster, topics) as consumer:
        found = receive_all(consumer, 3)
        consumer.ack(found)
        assert {each.body for each in found} == {b"A", b"C", b"7"}
        assert consumer.receive(await_ms=1_000) == []
        consumer.unsubscribe(orders)
        consumer.subscribe(payments)
        send(real_cluster, payments, [b"any"])
        (message,) = receive_all(consumer, 1)
        assert message.body == b"any"


@since_5
def test_an_expression_that_cannot_be_read_and_a_missing_topic_are_errors_at_once(
    real_cluster,
):
    topic = real_cluster.create_topic()
    with (
        consumer_of(real_cluster, {topic: sql(topic, "a >")}) as consumer,
        pytest.raises(RmqError, match="pop of topic"),
    ):
        consumer.receive(await_ms=600_000)
    with consumer_of(real_cluster, "no-such-topic") as consumer:
        with pytest.raises(NotFoundError) as raised:
            consumer.receive(await_ms=600_000)
        assert "topics argument" in raised.value.hint


@since_5
def test_a_held_receive_brings_a_message_as_soon_as_it_is_sent(real_cluster):
    topics = [real_cluster.create_topic() for _ in range(3)]
    with consumer_of(real_cluster, topics) as consumer:
        consumer.receive(await_ms=0)
        bodies: list[bytes] = []

        def receive():
            found = receive_all(consumer, 1, await_ms=600_000)
            bodies.extend(each.body for each in found)
            consumer.ack(found)

        for topic in topics:
            thread = threading.Thread(target=receive)
            thread.start()
            send(real_cluster, topic, [topic.encode()])
            thread.join()
        assert bodies == [topic.encode() for topic in topics]


@since_5
def test_threads_share_a_consumer_and_get_every_message_once(real_cluster):
    topics = [real_cluster.create_topic() for _ in range(2)]
    for topic in topics:
        send(real_cluster, topic, [b"%s %d" % (topic.encode(), n) for n in range(200)])
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def work(consumer):
        while sum(seen.values()) < 400:
            found = consumer.receive(7, await_ms=1_000, invisible_duration_ms=300_000)
            consumer.ack(found)
            with lock:
                seen.update(each.body for each in found)

    with consumer_of(real_cluster, topics) as consumer:
        threads = [threading.Thread(target=work, args=(consumer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 400
    assert set(seen.values()) == {1}


@since_5
def test_an_orderly_queue_waits_for_what_is_hidden(real_cluster):
    topic = real_cluster.create_topic(queues=1)
    send(real_cluster, topic, [b"%d" % n for n in range(4)])
    with consumer_of(real_cluster, topic, orderly=True) as consumer:
        first = receive_all(consumer, 2, max_messages=2)
        assert [each.body for each in first] == [b"0", b"1"]
        assert consumer.receive(await_ms=1_000) == []
        consumer.ack(first)
        second = receive_all(consumer, 2)
        assert [each.body for each in second] == [b"2", b"3"]
        consumer.change_invisible(second[1], 1_000)
        consumer.ack(second[0])
        (again,) = receive_all(consumer, 1)
        assert (again.body, again.delivery_attempt) == (b"3", 2)
        consumer.ack(again)


@since_5
def test_a_receive_under_way_ends_at_the_close(real_cluster):
    topic = real_cluster.create_topic()
    consumer = consumer_of(real_cluster, topic)
    consumer.start()
    results: list[list[ReceivedMessage]] = []
    thread = threading.Thread(
        target=lambda: results.append(consumer.receive(await_ms=600_000))
    )
    thread.start()
    wait_until(lambda: consumer._in_flight)
    consumer.close()
    thread.join()
    assert results == [[]]
    with pytest.raises(UsageError, match="closed"):
        consumer.receive()


@since_5
def test_the_member_is_seen_by_operators_and_gone_after_its_close(real_cluster):
    topic, group = real_cluster.create_topic(), new_group()
    with Admin(namesrv=real_cluster.namesrv) as admin:
        with consumer_of(real_cluster, topic, group) as consumer:
            consumer.receive(await_ms=0)

            def members():
                try:
                    return admin.group(group).members
                except NotFoundError:
                    return ()

            assert len(wait_until(members)) == 1
        wait_until(lambda: not members())


@since_5
def test_a_broker_that_dies_between_receive_and_ack_is_reported_or_waited_for(
    fresh_cluster,
):
    cluster = fresh_cluster()
    topic = cluster.create_topic()
    send(cluster, topic, [b"a", b"b"])
    with consumer_of(cluster, topic) as consumer:
        messages = receive_all(consumer, 2, invisible_duration_ms=600_000)
        cluster.kill_broker()
        with pytest.raises(AckError, match="2 of 2") as raised:
            consumer.ack(messages, timeout_ms=1_000)
        for _, error in raised.value.failures:
            assert isinstance(error, ConnectError | DisconnectedError)
        with pytest.raises(TransportError):
            consumer.receive(await_ms=500)
        restarted = threading.Thread(target=cluster.start_broker)
        restarted.start()
        consumer.ack(messages, timeout_ms=600_000)
        restarted.join()
        send(cluster, topic, [b"c"])
        # Acknowledged messages may come again: the broker had not flushed the acks.
        wait_until(
            lambda: b"c" in {each.body for each in consumer.receive(await_ms=1_000)}
        )


@since_5
def test_every_message_is_consumed_although_members_leave_without_acks(real_cluster):
    topic, group = real_cluster.create_topic(), new_group()
    send(real_cluster, topic, [b"%d" % n for n in range(60)])
    seen: set[bytes] = set()
    with consumer_of(real_cluster, topic, group) as leaver:
        leaver.receive(20, invisible_duration_ms=2_000)
    with consumer_of(real_cluster, topic, group) as consumer:

        def all_seen():
            found = consumer.receive(await_ms=2_000)
            consumer.ack(found)
            seen.update(each.body for each in found)
            return len(seen) == 60

        wait_until(all_seen)
