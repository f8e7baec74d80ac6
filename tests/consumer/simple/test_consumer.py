"""`SimpleConsumer` refuses invalid arguments, and copes with faults of the broker."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from rmqcli import (
    AckError,
    ConfigError,
    ConnectError,
    DisconnectedError,
    NotFoundError,
    ReceiptHandleError,
    SimpleConsumer,
    TimeLimitError,
    TransportError,
    UnsupportedError,
    UsageError,
    connect,
    sql,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.simple import remoting
from rmqcli.testing import faults
from rmqcli.wire.bodies.pop import BatchAckMessageRequestBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.receipt_handle import decode_receipt_handle, encode_receipt_handle
from tests.kit.rows import each_row
from tests.kit.waiting import wait_until

NOWHERE = "127.0.0.1:1"


@each_row(
    ("options", "error", "why"),
    [
        ({"group": ""}, ConfigError, "name is empty"),
        ({"topics": []}, UsageError, "topics is empty"),
        ({"topics": "a b"}, ConfigError, "a b"),
        ({"topics": {"a": sql("b", "c > 1")}}, UsageError, "topic a is for topic b"),
        ({"topics": {"a": "||"}}, UsageError, "contains no tag"),
        ({"invisible_duration_ms": 999}, UsageError, "must be 1000 to 43200000"),
        ({"invisible_duration_ms": 43_200_001}, UsageError, "must be 1000 to"),
        ({"invisible_duration_ms": True}, TypeError, "must be an int"),
        ({"invisible_duration_ms": 1e4}, TypeError, "must be an int"),
        (
            {"consume_from": "-15m"},
            ConfigError,
            "can begin only at earliest or latest, not at -15m",
        ),
        ({"endpoints": "a:1"}, ConfigError, "namesrv and endpoints"),
        (
            {"namesrv": None, "endpoints": "a:1", "orderly": True},
            UsageError,
            "orderly cannot be used with endpoints",
        ),
        (
            {"namesrv": None, "endpoints": "a:1", "invisible_duration_ms": 9_999},
            UsageError,
            "must be 10000 to 43200000",
        ),
        (
            {
                "namesrv": None,
                "endpoints": "a:1",
                "consume_from": "earliest",
            },
            UsageError,
            "consume_from cannot be used with endpoints",
        ),
    ],
)
def test_settings_that_are_not_possible_are_refused(options, error, why):
    arguments = {"group": "g", "topics": "orders", "namesrv": NOWHERE} | options
    with pytest.raises(error, match=why):
        SimpleConsumer(**arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"max_messages": 0}, "max_messages is 0; it must be 1 to 32"),
        ({"max_messages": 33}, "max_messages is 33; it must be 1 to 32"),
        ({"await_ms": -1}, "await_ms is -1"),
        ({"await_ms": 10**12}, "await_ms is 1000000000000"),
        ({"invisible_duration_ms": 0}, "invisible_duration_ms is 0"),
        ({"invisible_duration_ms": 10**15}, "must be 1000 to 43200000"),
    ],
)
def test_arguments_of_a_receive_are_bounded(arguments, why):
    with (
        SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer,
        pytest.raises(UsageError, match=why),
    ):
        consumer.receive(**arguments)


def test_a_message_that_another_group_received_is_refused(rmq_cluster):
    """Brokers confirm the ack, and deliver the message again."""
    rmq_cluster.create_topic("orders", queues=1)
    namesrv = rmq_cluster.namesrv
    with (
        SimpleConsumer("billing", "orders", namesrv=namesrv) as billing,
        SimpleConsumer("audit", "orders", namesrv=namesrv) as audit,
    ):
        billing.receive(await_ms=1)
        rmq_cluster.send("orders", ["x"])
        (message,) = billing.receive(await_ms=20_000)
        text = "was received as group billing, and this consumer is a member of group"
        with pytest.raises(UsageError, match=text):
            audit.ack(message)
        with pytest.raises(UsageError, match=text):
            audit.change_invisible(message, 1_000)
        billing.ack(message)


def test_only_received_messages_are_acknowledged():
    with SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer:
        with pytest.raises(TypeError, match="str is not a message that receive"):
            consumer.ack(["handle"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="NoneType is not a message"):
            consumer.change_invisible(None, 1_000)  # type: ignore[arg-type]
        consumer.ack([])


def test_a_name_server_that_is_not_there_is_an_error_with_a_hint():
    with (
        SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer,
        pytest.raises(ConnectError) as raised,
    ):
        consumer.receive()
    assert "namesrv" in raised.value.hint


def test_a_consumer_is_started_once_and_closed_for_good():
    consumer = SimpleConsumer("g", "orders", namesrv=NOWHERE)
    with pytest.raises(UsageError, match="was not started"):
        consumer.receive()
    with consumer, pytest.raises(UsageError, match="can be started only once"):
        consumer.start()
    consumer.close()
    with pytest.raises(UsageError, match="is closed"):
        consumer.receive()
    with pytest.raises(UsageError, match="can be started only once"):
        consumer.start()


def test_subscriptions_can_change_but_not_end():
    with SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer:
        consumer.subscribe("payments", "A || B")
        assert set(consumer.subscriptions) == {"orders", "payments"}
        consumer.unsubscribe("orders")
        consumer.unsubscribe("orders")  # it is not subscribed any more
        with pytest.raises(UsageError, match="payments is the only topic"):
            consumer.unsubscribe("payments")
        assert consumer.subscriptions["payments"].tags_set == {"A", "B"}


def test_an_old_broker_is_refused_with_a_way_out(rmq_cluster_factory):
    cluster = rmq_cluster_factory(like="4.9.7")
    cluster.create_topic("orders")
    with (
        connect(cluster.namesrv) as connection,
        connection.simple_consumer("g", "orders") as consumer,
        pytest.raises(UnsupportedError, match="runs RocketMQ 4") as raised,
    ):
        consumer.receive(await_ms=600_000)
    assert raised.value.hint.startswith("use Consumer")


# --- with the embedded broker ---


@pytest.fixture
def topic(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    return "orders"


def consumer_of(cluster, topics="orders", **options):
    return SimpleConsumer("billing", topics, namesrv=cluster.namesrv, **options)


def test_what_is_acknowledged_is_done_and_what_is_not_comes_again(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a", "b", "c"])
    with consumer_of(rmq_cluster) as consumer:
        first = consumer.receive(invisible_duration_ms=1_000)
        assert [each.body for each in first] == [b"a", b"b", b"c"]
        consumer.ack(first[:2])
        (again,) = wait_until(consumer.receive)
        assert (again.body, again.delivery_attempt) == (b"c", 2)
        assert (again.topic, again.message_queue.topic) == (
            topic,
            "%RETRY%billing_orders",
        )
        # The broker's invisible time for the message began a little earlier than ours.
        wait_until(lambda: SYSTEM_CLOCK.epoch_ms() > first[2].invisible_until_ms)
        with pytest.raises(AckError, match="1 of 3 messages") as raised:
            consumer.ack(first)
        ((failed, error),) = raised.value.failures
        assert failed is first[2]
        assert isinstance(error, ReceiptHandleError)
        consumer.ack(again)


@pytest.mark.parametrize(
    ("begin", "where"),
    [
        ("latest", "CONSUME_FROM_LAST_OFFSET"),
        ("earliest", "CONSUME_FROM_FIRST_OFFSET"),
    ],
)
def test_operators_see_what_a_member_consumes_until_it_closes(
    rmq_cluster, topic, begin, where
):
    with connect(rmq_cluster.namesrv) as cluster:
        admin = cluster.admin()
        admin.start()
        admin.create_group("billing")
        topics = {topic: "A || B"}
        with consumer_of(rmq_cluster, topics, consume_from=begin) as consumer:
            consumer.receive(await_ms=0)
            wait_until(lambda: admin.group("billing").members)
            seen = admin.group("billing")
            assert (seen.consume_type, seen.message_model, seen.consume_from_where) == (
                "CONSUME_POP",
                "CLUSTERING",
                where,
            )
            assert [(each.topic, each.sub_string) for each in seen.subscriptions] == [
                (topic, "A || B")
            ]
        assert admin.group("billing").members == []


def test_a_member_leaves_only_when_its_last_heartbeat_is_answered(rmq_cluster, topic):
    """A broker that handled the heartbeat last knew the member for two minutes."""
    beats = rmq_cluster.faults.add(faults.delay(700), code=RequestCode.HEART_BEAT)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0)
        wait_until(lambda: beats.seen)
    assert SYSTEM_CLOCK.monotonic_ms() - began_ms >= 700


def test_a_member_repeats_its_heartbeats_and_asks_for_routes_again(
    rmq_cluster, topic, monkeypatch
):
    monkeypatch.setattr(remoting, "_HEARTBEAT_MS", 50)
    monkeypatch.setattr(remoting, "_ROUTES_MS", 50)
    beats = rmq_cluster.faults.observe(code=RequestCode.HEART_BEAT)
    routes = rmq_cluster.faults.observe(code=RequestCode.GET_ROUTEINFO_BY_TOPIC)
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0)
        wait_until(lambda: beats.seen >= 4 and routes.seen >= 4)


@pytest.mark.slow
def test_a_new_choice_of_tags_misses_no_message_while_a_receive_is_open(
    rmq_cluster, topic
):
    """A broker that still holds a receive with the old tags would count a message of
    the new ones as read."""
    rmq_cluster.create_topic("payments", queues=1)
    with consumer_of(rmq_cluster, {topic: "*", "payments": "Old"}) as consumer:
        held = rmq_cluster.faults.observe(
            code=RequestCode.POP_MESSAGE, topic="payments"
        )
        rmq_cluster.send(topic, ["x"])
        (message,) = consumer.receive(1, await_ms=2_000)
        assert message.body == b"x"
        wait_until(lambda: held.seen)
        consumer.subscribe("payments", "New")
        rmq_cluster.send("payments", ["paid"], tags="New")
        (paid,) = wait_until(consumer.receive)
        assert paid.body == b"paid"


def test_an_ack_whose_answer_is_lost_is_repeated(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a", "b"])
    with consumer_of(rmq_cluster) as consumer:
        one, two = consumer.receive()
        lost = faults.disconnect(is_handled=True)
        single = rmq_cluster.faults.next(lost, code=RequestCode.ACK_MESSAGE)
        consumer.ack(one)
        batch = rmq_cluster.faults.next(lost, code=RequestCode.ACK_MESSAGE)
        consumer.ack([one, two])
        assert (single.hits, batch.hits) == (1, 1)


@pytest.mark.parametrize(
    ("distance", "batched", "single"),
    [(4_095, {0, 4_095}, []), (4_096, {0}, ["4096"]), (-1, {0}, ["-1"])],
)
def test_an_offset_far_from_the_start_of_its_pop_is_acknowledged_alone(
    rmq_cluster, topic, distance, batched, single
):
    """A batch has a bit for each offset from the start of the pop on, so that a wrong
    handle could make a request of many megabytes."""
    rmq_cluster.send(topic, ["a", "b"])
    with consumer_of(rmq_cluster) as consumer:
        near, far = consumer.receive()
        handle = decode_receipt_handle(far.receipt_handle)
        far.lease.receipt_handle = encode_receipt_handle(
            replace(handle, offset=distance)
        )
        done = faults.answer(0)
        batches = rmq_cluster.faults.next(done, code=RequestCode.BATCH_ACK_MESSAGE)
        singles = rmq_cluster.faults.next(done, code=RequestCode.ACK_MESSAGE)
        consumer.ack([near, far])
        (batch,) = batches.requests
        body = decode_body(BatchAckMessageRequestBody, batch.command.body)
        assert [acks.bit_set for acks in body.acks or []] == [batched]
        assert [
            each.command.ext_fields["offset"] for each in singles.requests
        ] == single


def test_a_refused_ack_is_reported_and_can_be_repeated(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        (message,) = consumer.receive()
        refusal = faults.answer(1, "the disk is full")
        rmq_cluster.faults.next(refusal, code=RequestCode.ACK_MESSAGE)
        with pytest.raises(AckError, match="the disk is full"):
            consumer.ack(message)
        consumer.ack(message)


def test_a_message_is_hidden_for_the_time_of_the_change(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    changes = rmq_cluster.faults.observe(code=RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    with consumer_of(rmq_cluster) as consumer:
        (message,) = consumer.receive()
        before_ms = SYSTEM_CLOCK.epoch_ms()
        consumer.change_invisible(message, 90_000)
        after_ms = SYSTEM_CLOCK.epoch_ms()
        assert before_ms + 90_000 <= message.invisible_until_ms <= after_ms + 90_000
        consumer.ack(message)
    (change,) = changes.requests
    assert change.command.ext_fields["invisibleTime"] == "90000"


def test_a_consumer_that_has_received_nothing_acknowledges_another_ones_messages(
    rmq_cluster, topic
):
    rmq_cluster.send(topic, ["a", "b"])
    with consumer_of(rmq_cluster) as one, consumer_of(rmq_cluster) as other:
        a, b = one.receive()
        other.ack(a)
        with consumer_of(rmq_cluster) as third:
            third.change_invisible(b, 1_000)
        (again,) = one.receive()
        assert again.body == b"b"
        other.ack(again)
        assert one.receive(await_ms=0) == []


def test_a_message_that_was_on_its_way_at_the_close_is_given_back(rmq_cluster, topic):
    """It stayed hidden for the whole invisible time."""
    held = rmq_cluster.faults.add(faults.delay(200), code=RequestCode.POP_MESSAGE)
    rmq_cluster.faults.add(faults.delay(700), code=RequestCode.UNREGISTER_CLIENT)
    returned: Future[list[object]] = Future()
    with consumer_of(rmq_cluster, invisible_duration_ms=600_000) as consumer:
        threading.Thread(target=lambda: returned.set_result(consumer.receive())).start()
        wait_until(lambda: held.seen)
        rmq_cluster.send(topic, ["a"])
    assert returned.result() == []
    rmq_cluster.faults.clear()
    with consumer_of(rmq_cluster) as other:
        assert [each.body for each in other.receive()] == [b"a"]


def test_a_handle_stays_valid_when_no_name_server_tells_the_brokers_address(
    rmq_cluster, topic
):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as one, consumer_of(rmq_cluster) as other:
        (message,) = one.receive()
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        rmq_cluster.faults.next(faults.disconnect(), code=code)
        with pytest.raises(ConnectError, match=r"address of broker broker-a is not"):
            other.change_invisible(message, 60_000)
        rmq_cluster.faults.next(faults.disconnect(), code=code)
        other.ack(message)  # repeated when it fails


def test_after_a_change_whose_answer_is_lost_an_ack_is_refused(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        (message,) = consumer.receive()
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=code)
        with pytest.raises(DisconnectedError):
            consumer.change_invisible(message, 60_000)
        with pytest.raises(AckError, match="may have been changed"):
            consumer.ack(message)


def test_a_message_with_another_tag_of_the_same_hash_is_not_received(
    rmq_cluster, topic
):
    rmq_cluster.send(topic, ["other"], tags="BB")
    with consumer_of(rmq_cluster, {topic: "Aa"}) as consumer:
        assert consumer.receive(await_ms=100) == []
        rmq_cluster.send(topic, ["ours"], tags="Aa")
        (message,) = wait_until(consumer.receive)
        assert message.body == b"ours"


def test_a_message_whose_deliveries_are_used_up_becomes_a_dead_letter(
    rmq_cluster, topic
):
    with connect(rmq_cluster.namesrv) as cluster:
        admin = cluster.admin()
        admin.start()
        admin.create_group("billing", retry_max_times=0)
        rmq_cluster.send(topic, ["poison"])
        with consumer_of(rmq_cluster) as consumer:
            (message,) = consumer.receive(invisible_duration_ms=1_000)
            assert message.body == b"poison"

            def letters():
                assert consumer.receive(await_ms=100) == []
                try:
                    return list(admin.read("%DLQ%billing", to="latest"))
                except NotFoundError:
                    return []

            (letter,) = wait_until(letters)
    assert letter.body == b"poison"


def test_a_broker_that_is_gone_is_reported_and_waited_for(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        (message,) = consumer.receive()
        broker = rmq_cluster.broker()
        broker.kill()
        with pytest.raises(AckError) as raised:
            consumer.ack(message, timeout_ms=200)
        ((_, error),) = raised.value.failures
        assert isinstance(error, TransportError | TimeLimitError)
        with pytest.raises(TransportError):
            consumer.receive(await_ms=200)
        broker.restart()
        consumer.ack(message, timeout_ms=600_000)


def test_closing_gives_back_what_no_receive_has_returned(rmq_cluster, topic):
    rmq_cluster.create_topic("payments", queues=1)
    with consumer_of(rmq_cluster, ["orders", "payments"]) as consumer:
        consumer.receive(await_ms=0)
        results: list[object] = []
        thread = threading.Thread(
            target=lambda: results.extend(consumer.receive(1, await_ms=600_000))
        )
        thread.start()
        rmq_cluster.send("orders", ["o"])
        thread.join()
        rmq_cluster.send("payments", ["p"])  # it answers the held request
        wait_until(lambda: consumer._receiver._messages)
    with consumer_of(rmq_cluster, "payments") as consumer:
        (message,) = wait_until(consumer.receive)
        assert message.body == b"p"


def test_an_interrupt_just_after_messages_came_leaves_them_for_the_next_receive(
    rmq_cluster, topic
):
    def interrupt(frame, event, _argument):
        if frame.f_code is not Future.result.__code__:
            return None
        if event == "return":
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0, max_messages=1)
        rmq_cluster.send(topic, ["b"])
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.receive(await_ms=5_000)
        finally:
            sys.settrace(before)
        (message,) = consumer.receive(await_ms=0)
        assert (message.body, message.delivery_attempt) == (b"b", 1)


def test_a_forked_child_has_no_consumer(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        (message,) = consumer.receive()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                consumer.ack(message)
            except UsageError:
                consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        consumer.ack(message)
