"""`SimpleConsumer` through a proxy whose answers are scripted."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import grpc
import pytest

from rmqcli import (
    AckError,
    BrokerError,
    ClientConfig,
    ConnectError,
    DeniedError,
    DisconnectedError,
    NotFoundError,
    ReceiptHandleError,
    ReceivedMessage,
    SimpleConsumer,
    UsageError,
    connect,
    sql,
)
from rmqcli.broker import faults
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.simple.proxy import ProxyPop
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.inbox import PART, Inbox
from tests.kit.proxy.scripted import ScriptedProxy, status
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


@pytest.fixture
def inbox(proxy):
    made = Inbox(proxy)
    yield made
    made.end()


def consumer_of(proxy, topics="orders"):
    config = ClientConfig(
        endpoints=(proxy.endpoints,), plaintext=True, timeout_ms=PATIENCE_S * 1_000
    )
    return SimpleConsumer("billing", topics, client=config)


def test_a_receive_states_group_filter_and_times(proxy, inbox):
    topics = {"orders": "A || B", "payments": sql("payments", "amount > 5")}
    with consumer_of(proxy, topics) as consumer:
        inbox.put(1)
        (message,) = consumer.receive(7, invisible_duration_ms=15_000, await_ms=600_000)
        assert (message.body, message.delivery_attempt) == (b"1", 2)
        assert message.message_queue.broker_name == "broker-a"
        # The other request may still be under way.
        wait_until(lambda: len(proxy.asked("ReceiveMessage")) == 2)
        first, second = sorted(
            proxy.asked("ReceiveMessage"),
            key=lambda each: each.message_queue.topic.name,
        )
        assert (first.group.name, first.batch_size) == ("billing", 3)
        assert first.invisible_duration.seconds == 15
        assert first.long_polling_timeout.seconds == 20
        assert first.filter_expression.type == pb.FilterType.TAG
        assert first.filter_expression.expression == "A || B"
        assert second.filter_expression.type == pb.FilterType.SQL
        assert second.filter_expression.expression == "amount > 5"
        subscribed = {
            each.topic.name: (each.expression.type, each.expression.expression)
            for each in proxy.telemetry[0].settings.subscription.subscriptions
        }
        assert subscribed == {
            "orders": (pb.FilterType.TAG, "A || B"),
            "payments": (pb.FilterType.SQL, "amount > 5"),
        }
        ids = {metadata["x-mq-client-id"] for _, _, metadata in list(proxy.requests)}
        assert ids == {consumer.client_id}
    assert proxy.asked("NotifyClientTermination")


def test_a_close_ends_its_receives_before_the_proxy_learns_of_it(proxy, inbox):
    """A message that came while the proxy answered the goodbye stayed hidden."""
    contexts: list[grpc.ServicerContext] = []
    answer = proxy.answers["ReceiveMessage"]

    def receive(request, context):
        contexts.append(context)
        yield from answer(request, context)

    open_at_goodbye: list[int] = []

    def goodbye(_request, _context):
        open_at_goodbye.append(sum(each.is_active() for each in contexts))
        return service.NotifyClientTerminationResponse(status=status("OK"))

    proxy.answers["ReceiveMessage"] = receive
    proxy.answers["NotifyClientTermination"] = goodbye
    with consumer_of(proxy) as consumer:
        assert consumer.receive(await_ms=0) == []
        wait_until(lambda: inbox.waiting)
    assert len(contexts) == 1
    assert open_at_goodbye == [0]


def test_a_message_on_its_way_at_the_close_is_given_back(proxy, inbox):
    with consumer_of(proxy) as consumer, ThreadPoolExecutor(1) as pool:
        assert consumer.receive(await_ms=0) == []
        wait_until(lambda: inbox.waiting)
        with inbox.unread(1):
            closing = pool.submit(consumer.close)
        closing.result(PATIENCE_S)
    (given_back,) = proxy.asked("ChangeInvisibleDuration")
    assert given_back.receipt_handle == "handle 1"


def test_an_answer_that_comes_a_little_after_the_time_is_awaited(
    proxy, inbox, monkeypatch
):
    monkeypatch.setattr(ProxyPop, "poll_ms_min", 0)
    inbox.put(1)
    answer = proxy.answers["ReceiveMessage"]
    asked, may_answer = threading.Event(), threading.Event()

    def late(request, context):
        asked.set()
        assert may_answer.wait(PATIENCE_S)
        yield from answer(request, context)

    proxy.answers["ReceiveMessage"] = late
    with consumer_of(proxy) as consumer, ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(consumer.receive, await_ms=1)
        assert asked.wait(PATIENCE_S)
        still_waits = wait([receiving], timeout=0.05).not_done
        may_answer.set()
        assert still_waits
        (message,) = receiving.result(PATIENCE_S)
        assert message.body == b"1"


def test_only_the_session_says_loudly_that_a_proxy_is_away(proxy, inbox, caplog):
    caplog.set_level(logging.INFO, "rmqcli")
    inbox.put(1)
    with consumer_of(proxy) as consumer:
        consumer.receive(await_ms=600_000)
        inbox.end()
        proxy.stop()
        with pytest.raises((ConnectError, DisconnectedError)):
            consumer.receive(await_ms=100)
    levels = {
        each.levelname
        for each in caplog.records
        if each.getMessage().startswith("receive failed topic=orders broker=broker-a")
    }
    assert levels == {"INFO"}


def test_a_short_receive_leaves_its_request_to_the_next_one(proxy, inbox):
    with consumer_of(proxy) as consumer:
        assert consumer.receive(await_ms=0) == []
        inbox.put(1)
        (message,) = wait_until(lambda: consumer.receive(await_ms=0))
        assert message.body == b"1"
        (request, *_) = proxy.asked("ReceiveMessage")
        assert request.long_polling_timeout.seconds == 5


def test_many_acks_are_one_request_and_each_failure_is_told(proxy, inbox):
    def answer(request, _context):
        found = service.AckMessageResponse(status=status("MULTIPLE_RESULTS"))
        codes = {"handle 2": "INVALID_RECEIPT_HANDLE", "handle 3": "INTERNAL_ERROR"}
        for entry in request.entries:
            found.entries.add(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=status(codes.get(entry.receipt_handle, "OK"), "why"),
            )
        return found

    proxy.answers["AckMessage"] = answer
    inbox.put(1, 2, 3)
    with consumer_of(proxy) as consumer:
        messages = consumer.receive(await_ms=600_000)
        with pytest.raises(AckError, match="2 of 3 messages") as raised:
            consumer.ack(messages)
        assert [(m.msg_id, type(e)) for m, e in raised.value.failures] == [
            ("id 2", ReceiptHandleError),
            ("id 3", BrokerError),
        ]
        (request,) = proxy.asked("AckMessage")
        assert [each.receipt_handle for each in request.entries] == [
            "handle 1",
            "handle 2",
            "handle 3",
        ]
        proxy.answers.clear()
        consumer.ack(messages[2])
        assert len(proxy.asked("AckMessage")[1].entries) == 1


def test_a_hidden_message_is_acknowledged_by_its_new_handle(proxy, inbox):
    inbox.put(1)
    with consumer_of(proxy) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        consumer.change_invisible(message, 90_000)
        assert message.receipt_handle == "new handle"
        consumer.ack(message)
        (change,) = proxy.asked("ChangeInvisibleDuration")
        assert (change.message_id, change.invisible_duration.seconds) == ("id 1", 90)
        (ack,) = proxy.asked("AckMessage")
        assert ack.entries[0].receipt_handle == "new handle"


def test_each_request_names_the_group_the_topic_and_the_message(proxy, inbox):
    inbox.put(1)
    with consumer_of(proxy) as consumer:
        before_ms = SYSTEM_CLOCK.epoch_ms()
        (message,) = consumer.receive(invisible_duration_ms=15_000, await_ms=600_000)
        after_ms = SYSTEM_CLOCK.epoch_ms()
        assert before_ms + 15_000 <= message.invisible_until_ms <= after_ms + 15_000
        assert (message.topic, message.receipt_handle) == ("orders", "handle 1")
        before_ms = SYSTEM_CLOCK.epoch_ms()
        consumer.change_invisible(message, 90_000)
        after_ms = SYSTEM_CLOCK.epoch_ms()
        assert before_ms + 90_000 <= message.invisible_until_ms <= after_ms + 90_000
        consumer.ack(message)
    (change,) = proxy.asked("ChangeInvisibleDuration")
    (ack,) = proxy.asked("AckMessage")
    for asked in (change, ack):
        assert (asked.group.name, asked.topic.name) == ("billing", "orders")
    assert (change.message_id, change.receipt_handle) == ("id 1", "handle 1")
    assert [(each.message_id, each.receipt_handle) for each in ack.entries] == [
        ("id 1", "new handle")
    ]


def test_a_request_acknowledges_256_messages_of_one_topic(proxy, inbox):
    inbox.put(*range(257))
    messages: list[ReceivedMessage] = []
    with consumer_of(proxy) as consumer:
        while len(messages) < 257:
            messages += consumer.receive(await_ms=600_000)
        consumer.ack(messages)
    sizes = [len(each.entries) for each in proxy.asked("AckMessage")]
    assert sorted(sizes) == [1, 256]


@pytest.mark.parametrize("refused", [(), (1,), (256,)])
def test_failures_of_several_ack_requests_are_told_together(proxy, inbox, refused):
    """`refused` has the sizes of the requests that fail as a whole."""

    def answer(request, _context):
        if len(request.entries) in refused:
            return service.AckMessageResponse(status=status("FORBIDDEN"))
        found = service.AckMessageResponse(status=status("MULTIPLE_RESULTS"))
        for entry in request.entries:
            code = "INTERNAL_ERROR" if entry.message_id in ("id 3", "id 256") else "OK"
            found.entries.add(receipt_handle=entry.receipt_handle, status=status(code))
        return found

    proxy.answers["AckMessage"] = answer
    inbox.put(*range(257))
    messages: list[ReceivedMessage] = []
    with consumer_of(proxy) as consumer:
        while len(messages) < 257:
            messages += consumer.receive(await_ms=600_000)
        messages.sort(key=lambda each: int(each.body))
        with pytest.raises(AckError) as raised:
            consumer.ack(messages)
    failed = [each.msg_id for each, _ in raised.value.failures]
    first = [f"id {number}" for number in range(256)] if 256 in refused else ["id 3"]
    assert failed == [*first, "id 256"]


@pytest.mark.parametrize("permission", [pb.Permission.WRITE, pb.Permission.NONE])
def test_a_topic_that_cannot_be_read_is_an_error_with_its_reason(proxy, permission):
    def route(request, _context):
        answer = proxy.route(request.topic.name)
        for each in answer.message_queues:
            each.permission = permission
        return answer

    proxy.answers["QueryRoute"] = route
    with (
        consumer_of(proxy) as consumer,
        pytest.raises(DeniedError, match="topic orders has no readable queue") as found,
    ):
        consumer.receive(await_ms=600_000)
    assert (found.value.code, found.value.name) == (40300, "FORBIDDEN")


def test_a_receive_that_breaks_off_keeps_what_has_come(proxy, caplog):
    def answer(_request, context):
        part = PART()
        part.message.topic.name = "orders"
        part.message.system_properties.receipt_handle = "handle 1"
        yield part
        context.abort(grpc.StatusCode.INTERNAL, "broken")

    proxy.answers["ReceiveMessage"] = answer
    with consumer_of(proxy) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        assert message.receipt_handle == "handle 1"
    assert any(
        each.startswith("receive ended early topic=orders broker=broker-a messages=1")
        for each in caplog.messages
    )


def test_a_handle_that_the_proxy_refuses_to_change_is_an_error_of_its_own(proxy, inbox):
    proxy.answers["ChangeInvisibleDuration"] = lambda *_: (
        service.ChangeInvisibleDurationResponse(
            status=status("INVALID_RECEIPT_HANDLE", "expired")
        )
    )
    inbox.put(1)
    with consumer_of(proxy) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        with pytest.raises(ReceiptHandleError, match="expired"):
            consumer.change_invisible(message, 90_000)


def test_after_a_change_during_which_the_broker_was_lost_an_ack_is_refused(
    rmq_cluster_factory,
):
    """The ack had no effect and succeeded, and the message was delivered again."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    cluster.send("orders", ["a"])
    lost = faults.disconnect(is_handled=True)
    with consumer_of(cluster) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        cluster.faults.next(lost, code=RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        with pytest.raises(BrokerError, match="send request to"):
            consumer.change_invisible(message, 12_000)
        with pytest.raises(AckError, match="may have been changed") as raised:
            consumer.ack(message)
        ((_, reason),) = raised.value.failures
        assert type(reason) is ReceiptHandleError


def test_an_ack_during_which_the_broker_was_lost_is_repeated(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    cluster.send("orders", ["a"])
    lost = faults.disconnect(is_handled=True)
    with consumer_of(cluster) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        rule = cluster.faults.next(lost, code=RequestCode.ACK_MESSAGE)
        consumer.ack(message)
        assert rule.hits == 1


def test_an_ack_waits_for_a_proxy_that_is_away(proxy, inbox):
    inbox.put(1, 2)
    with consumer_of(proxy) as consumer:
        one, two = consumer.receive(await_ms=600_000)
        inbox.end()
        proxy.stop()
        with pytest.raises(AckError) as raised:
            consumer.ack(one, timeout_ms=300)
        ((_, error),) = raised.value.failures
        assert isinstance(error, ConnectError | DisconnectedError)
        back = threading.Timer(0.1, proxy.start)
        back.start()
        consumer.ack([one, two], timeout_ms=600_000)
        back.join()


def test_what_a_proxy_refuses_is_raised_at_once(proxy):
    proxy.answers["ReceiveMessage"] = lambda *_: iter(
        [PART(status=status("ILLEGAL_FILTER_EXPRESSION", "no"))]
    )
    with (
        consumer_of(proxy) as consumer,
        pytest.raises(BrokerError, match="ILLEGAL_FILTER_EXPRESSION"),
    ):
        consumer.receive(await_ms=600_000)


def test_a_busy_proxy_is_asked_again(proxy, inbox):
    inbox.put(1)
    answer = proxy.answers["ReceiveMessage"]
    turns = iter(["TOO_MANY_REQUESTS", "TOO_MANY_REQUESTS"])

    def busy(request, context):
        name = next(turns, None)
        if name is None:
            yield from answer(request, context)
        else:
            yield PART(status=status(name))

    proxy.answers["ReceiveMessage"] = busy
    with consumer_of(proxy) as consumer:
        (message,) = consumer.receive(await_ms=600_000)
        assert message.body == b"1"


def test_a_topic_that_does_not_exist_is_an_error_of_the_start(proxy):
    proxy.missing = {"orders"}
    consumer = consumer_of(proxy)
    with pytest.raises(NotFoundError):
        consumer.start()
    with pytest.raises(UsageError, match="is closed"):
        consumer.receive()


def test_subscriptions_that_change_are_stated(proxy, inbox):
    with consumer_of(proxy) as consumer:
        consumer.subscribe("payments", "Paid")

        def is_stated():
            topics = {
                each.topic.name: each.expression.expression
                for each in proxy.telemetry[-1].settings.subscription.subscriptions
            }
            return topics == {"orders": "*", "payments": "Paid"}

        wait_until(is_stated)


def test_a_cluster_by_its_proxy_has_simple_consumers_and_says_what_it_has_not(
    proxy, inbox, monkeypatch
):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    inbox.put(1)
    with connect(endpoints=proxy.endpoints, plaintext=True) as cluster:
        with cluster.simple_consumer("billing", "orders") as consumer:
            assert [each.body for each in consumer.receive()] == [b"1"]
        with pytest.raises(UsageError, match="Admin needs name servers"):
            cluster.admin()
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    with connect(endpoints=proxy.endpoints, plaintext=True) as cluster:
        cluster.admin()
