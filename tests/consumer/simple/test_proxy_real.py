"""`SimpleConsumer` makes the same guarantees through a real proxy as over remoting."""

from __future__ import annotations

import threading
import uuid

import lz4.frame
import pytest

from rmqcli import (
    AckError,
    Admin,
    ClientConfig,
    NotFoundError,
    ReceiptHandleError,
    ReceivedMessage,
    SimpleConsumer,
    TimeLimitError,
    TransportError,
    UsageError,
    connect,
    sql,
)
from rmqcli.api.calls.send import send_message
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from tests.admin.dlq.letters import client_of
from tests.conftest import start_cluster
from tests.kit.messages import receive_all, send
from tests.kit.waiting import wait_until
from tests.kit.zstd import zstd

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.3.3", "5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture
def proxy(local_proxy):
    return local_proxy


def consumer_of(proxy, topics, **options):
    """Create a consumer of a new group; a proxy requires that the group exists."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, **options.pop("group_settings", {}))
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    return SimpleConsumer(group, topics, client=config, **options)


def test_messages_are_received_acknowledged_and_delivered_again(proxy):
    topic = proxy.create_topic()
    send(proxy, topic, [b"one"], tags="Paid", keys=("a", "b"), properties={"c": "red"})
    send(proxy, topic, [b"two", b"three"])
    with consumer_of(proxy, topic) as consumer:
        first = receive_all(consumer, 3, invisible_duration_ms=10_000)
        (one,) = [each for each in first if each.body == b"one"]
        assert (one.topic, one.tags, one.keys) == (topic, "Paid", "a b")
        assert one.properties["c"] == "red"
        assert (one.message_queue.topic, one.delivery_attempt) == (topic, 1)
        consumer.ack(one)
        again = receive_all(consumer, 2, invisible_duration_ms=600_000)
        assert {each.body for each in again} == {b"two", b"three"}
        assert {each.delivery_attempt for each in again} == {2}
        with pytest.raises(AckError, match="2 of 3 messages") as raised:
            consumer.ack(first)
        assert {type(e) for _, e in raised.value.failures} == {ReceiptHandleError}
        consumer.change_invisible(again[0], 1_000)
        consumer.ack(again[1])
        (third,) = receive_all(consumer, 1)
        assert (third.body, third.delivery_attempt) == (again[0].body, 3)
        consumer.ack(third)


def test_bodies_that_remoting_clients_compress_with_lz4_or_zstd_are_inflated(proxy):
    """The proxy says GZIP of them, as of all compressed bodies."""
    topic = proxy.create_topic(queues=1)
    with client_of(proxy) as client:
        for flag, body in (
            (0x101, lz4.frame.compress(b"lz4" * 500)),
            (0x201, zstd.compress(b"zstd" * 500)),
        ):
            header = SendMessageRequestHeaderV2(
                producer_group="G",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=flag,
                born_timestamp=1_800_000_000_000,
                flag=0,
                properties=f"UNIQ_KEY\x01{flag:032X}\x02",
                reconsume_times=0,
                unit_mode=False,
                max_reconsume_times=16,
                batch=False,
            )
            client.invoke(proxy.broker_address(), send_message(header, body))
    with consumer_of(proxy, topic) as consumer:
        found = {each.body for each in receive_all(consumer, 2)}
    assert found == {b"lz4" * 500, b"zstd" * 500}


def test_several_topics_with_tags_and_sql(proxy):
    orders, payments = proxy.create_topic(), proxy.create_topic()
    for tag in ("A", "B", "C"):
        send(proxy, orders, [tag.encode()], tags=tag)
    for n in (3, 7):
        send(proxy, payments, [b"%d" % n], properties={"amount": str(n)})
    topics = {orders: "A || C", payments: sql(payments, "amount > 5")}
    with consumer_of(proxy, topics) as consumer:
        found = receive_all(consumer, 3)
        consumer.ack(found)
        assert {each.body for each in found} == {b"A", b"C", b"7"}
        consumer.unsubscribe(orders)
        consumer.subscribe(payments)
        send(proxy, payments, [b"any"])
        found = receive_all(consumer, 1)
        assert [each.body for each in found] == [b"any"]


def test_a_short_receive_leaves_its_request_to_the_next_one(proxy):
    topic = proxy.create_topic()
    with consumer_of(proxy, topic) as consumer:
        assert consumer.receive(await_ms=0) == []
        send(proxy, topic, [b"late"])
        (message,) = receive_all(consumer, 1, await_ms=0)
        consumer.ack(message)


def test_a_group_in_order_waits_for_what_is_hidden(proxy):
    topic = proxy.create_topic(queues=1)
    send(proxy, topic, [b"%d" % n for n in range(3)])
    settings = {"consume_message_orderly": True}
    with consumer_of(proxy, topic, group_settings=settings) as consumer:
        first = receive_all(consumer, 1, max_messages=1)
        assert [each.body for each in first] == [b"0"]
        assert consumer.receive(await_ms=1_000) == []
        consumer.ack(first)
        second = receive_all(consumer, 2)
        assert [each.body for each in second] == [b"1", b"2"]


def test_a_receive_under_way_ends_at_the_close(proxy):
    consumer = consumer_of(proxy, proxy.create_topic())
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


def test_what_cannot_be_is_an_error_of_the_start(proxy):
    with pytest.raises(NotFoundError):
        consumer_of(proxy, "no-such-topic").start()
    with (
        connect(endpoints="127.0.0.1:1", plaintext=True) as cluster,
        pytest.raises(TransportError),
    ):
        cluster.simple_consumer("g", "orders").start()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"orderly": True}, "a proxy uses the group's setting"),
        (
            {"consume_from": "earliest"},
            "begin near the end",
        ),
        ({"invisible_duration_ms": 9_999}, "it must be 10000 to 43200000"),
    ],
)
def test_what_a_proxy_decides_is_refused(rmq_version, options, why):
    with pytest.raises(UsageError, match=why):
        SimpleConsumer("g", "orders", endpoints="127.0.0.1:8081", **options)


def test_a_proxy_that_dies_between_receive_and_ack_is_reported_and_waited_for(
    rmq_version, tmp_path
):
    with start_cluster(rmq_version, tmp_path, proxy=True) as cluster:
        topic = cluster.create_topic()
        send(cluster, topic, [b"a", b"b"])
        with consumer_of(cluster, topic) as consumer:
            messages = receive_all(consumer, 2, invisible_duration_ms=3_600_000)
            cluster.kill_broker()
            with pytest.raises(AckError, match="2 of 2") as raised:
                consumer.ack(messages, timeout_ms=1_000)
            for _, error in raised.value.failures:
                assert isinstance(error, TransportError | TimeLimitError)
            with pytest.raises(TransportError):
                consumer.receive(await_ms=500)
            restarted = threading.Thread(target=cluster.start_broker)
            restarted.start()
            consumer.ack(messages, timeout_ms=600_000)
            restarted.join()
            send(cluster, topic, [b"c"])
            seen: set[bytes] = set()

            def is_back():
                try:
                    found = consumer.receive(await_ms=1_000)
                except TransportError:
                    return False  # the telemetry stream is not open again yet
                seen.update(each.body for each in found)
                return b"c" in seen

            wait_until(is_back)
