"""ReceiveMessage and what clients do with the messages they hold."""

from __future__ import annotations

import hashlib
import threading

import grpc
import pytest

from rmqcli.broker.proxy.receiving import polling_ms
from rmqcli.broker.proxy.status import ProxyError
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import (
    CALL_TIMEOUT_S,
    code_of,
    consumer_settings,
    message,
    ms,
    resource,
)
from tests.kit.waiting import wait_until

EPOCH_MS = 1_700_000_000_000


@pytest.fixture
def clock():
    return ManualClock(now_ms=EPOCH_MS)


@pytest.fixture
def still(start, clock):
    """A cluster whose clock stands still until the test moves it."""
    cluster = start(clock=clock)
    cluster.create_topic("T", queues=1)
    return cluster


@pytest.fixture
def consumer(still, connect):
    client = connect(still)
    client.telemetry(consumer_settings("G", "T"))
    return client


def test_a_message_comes_with_all_that_clients_need(still, consumer):
    sent = message(
        "T",
        b"body",
        tag="A",
        keys=["k1", "k2"],
        message_id="0123",
        trace_context="trace",
        user_properties={"colour": "blue"},
    )
    consumer.send(sent)
    received = consumer.receive("G", "T")
    assert received.kinds == ["status", "message", "delivery_timestamp"]
    (found,) = received.messages
    system = found.system_properties
    assert (found.topic.name, found.body) == ("T", b"body")
    assert dict(found.user_properties) == {"colour": "blue", "TRACE_CONTEXT": "trace"}
    assert (system.tag, list(system.keys), system.message_id) == (
        "A",
        ["k1", "k2"],
        "0123",
    )
    assert system.body_digest.type == d.DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert system.body_encoding == d.Encoding.IDENTITY
    assert system.message_type == d.MessageType.NORMAL
    assert (system.delivery_attempt, system.queue_id, system.queue_offset) == (1, 0, 0)
    assert system.store_timestamp.ToMilliseconds() == EPOCH_MS
    assert system.born_timestamp.seconds > 1_700_000_000
    assert system.store_host == still.broker().address
    assert system.born_host == "here"
    assert system.trace_context == "trace"
    assert f" {EPOCH_MS} 30000 " in system.receipt_handle
    assert len(system.receipt_handle.split(" ")) == 9


def test_an_acknowledged_message_does_not_come_back(still, consumer, clock):
    consumer.send(message("T", b"1"))
    received = consumer.receive("G", "T")
    answer = consumer.ack("G", "T", *received.handles)
    assert [code_of(answer), code_of(answer.entries[0])] == ["OK", "OK"]
    assert code_of(consumer.ack("G", "T", *received.handles)) == "OK"
    still.advance(40_000)
    consumer.send(message("T", b"2"))
    assert consumer.receive("G", "T").bodies == [b"2"]


def test_a_message_that_is_not_acknowledged_comes_back(still, consumer, clock):
    consumer.send(message("T", b"1"))
    first = consumer.receive("G", "T", invisible_ms=10_000)
    still.advance(15_000)
    again = consumer.receive("G", "T")
    (found,) = again.messages
    assert (found.topic.name, found.body) == ("T", b"1")
    assert found.system_properties.delivery_attempt == 2
    assert code_of(consumer.ack("G", "T", *first.handles)) == "INVALID_RECEIPT_HANDLE"
    assert code_of(consumer.ack("G", "T", *again.handles)) == "OK"


def test_a_changed_time_gives_a_new_handle(still, consumer, clock):
    consumer.send(message("T", b"1"))
    (handle,) = consumer.receive("G", "T", invisible_ms=10_000).handles
    changed = consumer.change("G", "T", handle, 60_000)
    assert code_of(changed) == "OK"
    assert changed.receipt_handle.split(" ")[2] == "60000"
    still.advance(30_000)
    assert code_of(consumer.ack("G", "T", changed.receipt_handle)) == "OK"
    still.advance(60_000)
    consumer.send(message("T", b"2"))
    assert consumer.receive("G", "T").bodies == [b"2"]


def test_a_forwarded_message_is_a_dead_letter(still, consumer):
    consumer.send(message("T", b"1", message_id="0123"))
    (handle,) = consumer.receive("G", "T").handles
    assert code_of(consumer.forward("G", "T", handle, "0123")) == "OK"
    found = consumer.receive("G2", "%DLQ%G")
    assert found.bodies == [b"1"]
    still.advance(60_000)
    consumer.send(message("T", b"2"))
    assert consumer.receive("G", "T").bodies == [b"2"]


def test_a_message_whose_attempts_are_used_up_is_a_dead_letter(still, connect):
    still.create_group("G", retry_max_times=1)
    client = connect(still)
    client.telemetry(consumer_settings("G", "T"))
    client.send(message("T", b"1"))
    for attempt in (1, 2):
        (found,) = client.receive("G", "T", invisible_ms=10_000).messages
        assert found.system_properties.delivery_attempt == attempt
        still.advance(20_000)
    forwarded = still.faults.observe(code=36)
    assert client.receive("G", "T").text == "no match message"
    wait_until(lambda: forwarded.seen)
    other = connect(still)
    other.telemetry(consumer_settings("G2", "%DLQ%G"))
    assert other.receive("G2", "%DLQ%G").bodies == [b"1"]


def test_tags_are_filtered(still, consumer):
    consumer.send(message("T", b"a", tag="A"))
    consumer.send(message("T", b"b", tag="B"))
    assert consumer.receive("G", "T", expression="B || C").bodies == [b"b"]


def test_sql_is_filtered(start, connect):
    cluster = start(settings={"enable_property_filter": True})
    cluster.create_topic("T", queues=1)
    client = connect(cluster)
    client.telemetry(consumer_settings("G", "T"))
    client.send(message("T", b"a", user_properties={"n": "1"}))
    client.send(message("T", b"b", user_properties={"n": "5"}))
    assert client.receive("G", "T", expression="n > 3", sql=True).bodies == [b"b"]


def test_a_batch_has_32_messages_at_most(still, consumer):
    for n in range(40):
        consumer.send(message("T", b"%d" % n))
    first = consumer.receive("G", "T", batch_size=1_000)
    assert len(first.messages) == 32
    assert consumer.receive("G", "T").bodies == [b"%d" % n for n in range(32, 40)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "code"), [(-1, "INTERNAL_SERVER_ERROR"), (0, "MESSAGE_NOT_FOUND")]
)
def test_a_batch_of_nothing(cluster, client, batch_size, code):
    cluster.create_topic("T")
    client.telemetry(consumer_settings("G", "T"))
    assert client.receive("G", "T", batch_size=batch_size).code == code


def test_a_held_receive_is_answered_by_a_message(cluster, client, connect):
    cluster.create_topic("T", queues=1)
    client.telemetry(consumer_settings("G", "T"))
    results = []
    thread = threading.Thread(
        target=lambda: results.append(client.receive("G", "T", polling_ms=20_000))
    )
    held = cluster.faults.observe(code=200050)
    thread.start()
    wait_until(lambda: held.seen)
    connect(cluster).send(message("T", b"1"))
    thread.join()
    assert results[0].bodies == [b"1"]


def test_a_held_receive_ends_with_its_polling_time(still, consumer):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(consumer.receive("G", "T", polling_ms=10_000))
    )
    held = still.faults.observe(code=200050)
    thread.start()
    wait_until(lambda: held.seen)
    still.call(lambda: None)
    still.advance(10_500)
    thread.join()
    assert (results[0].code, results[0].kinds) == (
        "MESSAGE_NOT_FOUND",
        ["status", "delivery_timestamp"],
    )


@pytest.mark.parametrize(
    ("polling_ms", "timeout_s", "least_ms", "most_ms"),
    [
        (10_000, 3_600, 10_000, 10_000),
        (1, 3_600, 5_000, 5_000),
        (3_600_000, 7_200, 20_000, 20_000),
        (20_000, 15, 5_000, 16_000),  # gRPC rounds a deadline up
    ],
    ids=["as asked", "at least 5 s", "at most 20 s", "not beyond the call"],
)
def test_a_broker_holds_a_receive_for_a_time_within_bounds(
    cluster, client, polling_ms, timeout_s, least_ms, most_ms
):
    cluster.create_topic("T", queues=1)
    client.telemetry(consumer_settings("G", "T"))
    client.send(message("T", b"1"))
    pops = cluster.faults.observe(code=200050)
    client.receive("G", "T", polling_ms=polling_ms, timeout_s=timeout_s)
    (pop,) = pops.requests
    assert least_ms <= int(pop.command.ext_fields["pollTime"]) <= most_ms


SETTINGS = d.Settings(request_timeout=ms(d.Settings().request_timeout, 6_000))


@pytest.mark.parametrize(
    ("left_ms", "asked_ms", "held_ms"),
    [
        *((5_000, 5_000, 5_000), (5_000, 20_000, 5_000), (19_999, 20_000, 19_999)),
        *((20_001, 30_000, 20_000), (60_000, 1, 5_000), (5_000, 0, 5_000)),
        # Without a time, half of the time that a request may take is left for the rest.
        *((10_000, None, 7_000), (7_999, None, 5_000), (30_000, None, 20_000)),
    ],
)
def test_a_receive_is_not_held_beyond_its_deadline(left_ms, asked_ms, held_ms):
    request = s.ReceiveMessageRequest()
    if asked_ms is not None:
        request.long_polling_timeout.FromMilliseconds(asked_ms)
    assert polling_ms(request, SETTINGS, "5.1.2", left_ms) == held_ms


@pytest.mark.parametrize(
    ("version", "code"),
    [
        *(("", d.Code.BAD_REQUEST), ("5.0.2", d.Code.BAD_REQUEST)),
        *((each, d.Code.ILLEGAL_POLLING_TIME) for each in ("5.0.3", "5.1.2")),
    ],
)
def test_too_short_a_deadline_has_a_code_that_the_client_knows(version, code):
    with pytest.raises(ProxyError) as refused:
        polling_ms(s.ReceiveMessageRequest(), SETTINGS, version, 4_999)
    assert refused.value.code == code


def test_a_message_for_a_client_that_went_away_comes_back(cluster, client, connect):
    cluster.create_topic("T", queues=1)
    client.telemetry(consumer_settings("G", "T"))
    held = cluster.faults.observe(code=200050)
    request = s.ReceiveMessageRequest(
        group=resource("G"),
        message_queue=d.MessageQueue(topic=resource("T")),
        batch_size=32,
    )
    request.invisible_duration.FromMilliseconds(3_600_000)
    request.long_polling_timeout.FromMilliseconds(20_000)
    call = client.start("ReceiveMessage", request, timeout_s=CALL_TIMEOUT_S)
    wait_until(lambda: held.seen)
    cluster.call(lambda: None)
    call.cancel()
    given_back = cluster.faults.observe(code=200053)
    connect(cluster).send(message("T", b"1"))
    wait_until(lambda: given_back.seen)
    assert client.receive("G", "T").bodies == [b"1"]


def test_settings_may_come_just_after_the_receive(cluster, client):
    cluster.create_topic("T", queues=1)
    client.send(message("T", b"1"))
    results = []
    thread = threading.Thread(target=lambda: results.append(client.receive("G", "T")))
    thread.start()
    client.telemetry(consumer_settings("G", "T"))
    thread.join()
    assert results[0].code == "OK"


def test_in_order_a_queue_waits_for_its_open_batch(still, connect):
    still.create_topic("F", queues=1, attributes={"message.type": "FIFO"})
    still.create_group("G", consume_message_orderly=True)
    client = connect(still)
    client.telemetry(consumer_settings("G", "F"))
    for n in range(3):
        client.send(message("F", b"%d" % n, message_group="g"))
    first = client.receive("G", "F", batch_size=2, attempt_id="one")
    assert first.bodies == [b"0", b"1"]
    again = client.receive("G", "F", batch_size=2, attempt_id="one")
    assert again.bodies == [b"0", b"1"]
    attempts = [each.system_properties.delivery_attempt for each in again.messages]
    assert attempts == [1, 1]
    client.ack("G", "F", *again.handles)
    assert client.receive("G", "F").bodies == [b"2"]


def test_in_order_each_message_counts_its_own_deliveries(still, connect):
    still.create_topic("F", queues=1, attributes={"message.type": "FIFO"})
    still.create_group("G", consume_message_orderly=True)
    client = connect(still)
    client.telemetry(consumer_settings("G", "F"))
    for n in range(2):
        client.send(message("F", b"%d" % n, message_group="g"))
    first = client.receive("G", "F", batch_size=1, invisible_ms=10_000)
    assert first.bodies == [b"0"]
    still.advance(11_000)
    both = client.receive("G", "F", batch_size=2)
    assert both.bodies == [b"0", b"1"]
    attempts = [each.system_properties.delivery_attempt for each in both.messages]
    assert attempts == [2, 1]


def test_the_proxy_renews_what_a_living_client_holds(still, consumer, clock):
    consumer.send(message("T", b"1"))
    received = consumer.receive("G", "T", auto_renew=True)
    renewed = still.faults.observe(code=200053)
    for n in range(12):
        still.advance(10_000)
        consumer.heartbeat("G")
        if n == 4:
            wait_until(lambda: renewed.seen == 1)
    consumer.send(message("T", b"2"))
    assert consumer.receive("G", "T").bodies == [b"2"]
    assert code_of(consumer.ack("G", "T", *received.handles)) == "OK"


def test_what_a_client_held_comes_back_when_it_leaves(still, consumer, connect, clock):
    consumer.send(message("T", b"1"))
    consumer.receive("G", "T", auto_renew=True)
    given_back = still.faults.observe(code=200053)
    request = s.NotifyClientTerminationRequest(group=resource("G"))
    consumer.call("NotifyClientTermination", request)
    wait_until(lambda: given_back.seen)
    still.advance(10_000)
    other = connect(still)
    other.telemetry(consumer_settings("G", "T"))
    assert other.receive("G", "T").bodies == [b"1"]


def test_each_broker_is_asked_by_its_name(start, connect):
    cluster = start(brokers=2)
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["b"], broker="broker-b")
    client = connect(cluster)
    client.telemetry(consumer_settings("G", "T"))
    found = client.receive("G", "T", broker_name="broker-b")
    assert found.bodies == [b"b"]
    assert " broker-b " in found.handles[0]
    assert code_of(client.ack("G", "T", *found.handles)) == "OK"


def test_pulls_by_offset_are_unimplemented_as_in_rocketmq(client):
    with pytest.raises(grpc.RpcError) as failed:
        list(client.start("PullMessage", s.PullMessageRequest()))
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
