"""Iteration over a consumer; its commit, lag, on_assigned and on_revoked."""

from __future__ import annotations

import signal
import threading

import pytest

from rmqcli.admin.admin import Admin
from rmqcli.consumer.consumer import Consumer
from rmqcli.engine.queue_lag import LagState
from rmqcli.errors import (
    BrokerError,
    DeadlineError,
    DeniedError,
    PartialError,
    UsageError,
)
from rmqcli.model import MessageQueue
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def orders(rmq_cluster):
    """A topic with one queue, so that its messages have one order."""
    return rmq_cluster.create_topic("orders", queues=1)


def texts(messages):
    return [message.body.decode() for message in messages]


def test_a_loop_gets_every_message_and_commits_them(rmq_cluster, orders):
    rmq_cluster.send(orders, [f"{n}" for n in range(100)])
    with consumer(rmq_cluster, "g", orders, None) as some:
        found = texts(some.messages(idle_timeout_ms=1_000))
    assert found == [f"{n}" for n in range(100)]
    assert committed(rmq_cluster, "g", orders) == {0: 100}


def test_a_message_is_consumed_when_the_next_one_is_asked_for(rmq_cluster, orders):
    rmq_cluster.send(orders, ["a", "b", "c"])
    with consumer(rmq_cluster, "g", orders, None) as some:
        loop = iter(some)
        assert next(loop).body == b"a"
        some.commit()
        assert committed(rmq_cluster, "g", orders) in ({}, {0: 0})
        assert next(loop).body == b"b"
        some.commit()
        assert committed(rmq_cluster, "g", orders) == {0: 1}
    assert committed(rmq_cluster, "g", orders) == {0: 1}


def test_the_message_at_which_a_loop_is_left_is_not_committed(rmq_cluster, orders):
    rmq_cluster.send(orders, ["a", "b", "c"])
    with consumer(rmq_cluster, "g", orders, None) as some:
        for message in some:
            if message.body == b"b":
                break
    assert committed(rmq_cluster, "g", orders) == {0: 1}
    with consumer(rmq_cluster, "g", orders, None) as some:
        assert texts(some.messages(idle_timeout_ms=1_000)) == ["b", "c"]
    assert committed(rmq_cluster, "g", orders) == {0: 3}


def test_the_message_at_which_a_loop_raises_is_not_committed(rmq_cluster, orders):
    rmq_cluster.send(orders, ["a", "b"])

    def work():
        with consumer(rmq_cluster, "g", orders, None) as some:
            for message in some:
                assert message.body != b"b"

    with pytest.raises(AssertionError):
        work()
    assert committed(rmq_cluster, "g", orders) == {0: 1}


def test_a_second_loop_begins_with_the_message_at_which_the_first_was_left(
    rmq_cluster, orders
):
    rmq_cluster.send(orders, ["a", "b", "c"])
    with consumer(rmq_cluster, "g", orders, None) as some:
        first = iter(some)
        assert texts([next(first), next(first)]) == ["a", "b"]
        assert texts(some.messages(idle_timeout_ms=1_000)) == ["b", "c"]
    assert committed(rmq_cluster, "g", orders) == {0: 3}


def test_an_orderly_loop_keeps_the_order_and_commits(rmq_cluster, orders):
    rmq_cluster.send(orders, [f"{n}" for n in range(50)])
    with consumer(rmq_cluster, "g", orders, None, orderly=True) as some:
        found = texts(some.messages(idle_timeout_ms=1_000))
    assert found == [f"{n}" for n in range(50)]
    assert committed(rmq_cluster, "g", orders) == {0: 50}


def test_a_close_by_another_thread_ends_the_loop_with_its_message_consumed(
    rmq_cluster, orders
):
    rmq_cluster.send(orders, ["a", "b"])
    has_one, go_on = threading.Event(), threading.Event()
    found: list[bytes] = []

    def work():
        for message in some:
            found.append(message.body)
            has_one.set()
            go_on.wait(PATIENCE_S)

    with consumer(rmq_cluster, "g", orders, None) as some:
        thread = threading.Thread(target=work)
        thread.start()
        has_one.wait(PATIENCE_S)
        some.begin_close()
        go_on.set()
        thread.join()
    assert found == [b"a"]
    assert committed(rmq_cluster, "g", orders) == {0: 1}


def test_a_signal_handler_may_close_in_the_middle_of_the_loop(rmq_cluster, orders):
    rmq_cluster.send(orders, ["a", "b"])
    found: list[bytes] = []
    with consumer(rmq_cluster, "g", orders, None) as some:
        before = signal.signal(signal.SIGUSR2, lambda *_: some.close())
        try:
            for message in some:
                found.append(message.body)
                signal.raise_signal(signal.SIGUSR2)
        finally:
            signal.signal(signal.SIGUSR2, before)
    assert found == [b"a"]
    assert committed(rmq_cluster, "g", orders) in ({}, {0: 0})


def test_a_loop_ends_after_idle_timeout_ms_without_a_message(rmq_cluster, orders):
    with consumer(rmq_cluster, "g", orders, None) as some:
        ender = threading.Timer(0.2, some.close)
        ender.start()
        assert list(some) == []
        ender.join()


def test_iterating_a_consumer_with_a_listener_or_before_its_start_is_an_error(
    rmq_cluster, orders
):
    with pytest.raises(UsageError, match="was not started"):
        iter(consumer(rmq_cluster, "g", orders, None))
    with (
        consumer(rmq_cluster, "g", orders, Seen()) as some,
        pytest.raises(UsageError, match="with a listener cannot be iterated"),
    ):
        iter(some)


def lag_of(some, topic):
    return [each for each in some.lag(timeout_ms=2_000) if each.topic == topic]


def test_lag_counts_messages_that_are_not_consumed_as_admin_does(rmq_cluster, orders):
    rmq_cluster.send(orders, [f"{n}" for n in range(10)])
    with consumer(rmq_cluster, "g", orders, None) as some:
        loop = iter(some)
        for _ in range(4):
            next(loop)
        wait_until(lambda: [each.lag for each in lag_of(some, orders)] == [7])
        (here,) = lag_of(some, orders)
        assert (here.broker_name, here.queue_id) == ("broker-a", 0)
        assert (here.committed, here.min_offset, here.max_offset) == (3, 0, 10)
        assert (here.state, here.reason, here.expired) == (LagState.KNOWN, None, 0)
        assert here.client_id == some.client_id
        some.commit()
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            (there,) = admin.lag("g", topics=[orders]).queues
        assert type(there) is type(here)
        assert (there.key, there.lag, there.state) == (here.key, 7, LagState.KNOWN)
        assert there.committed == 3


@pytest.mark.parametrize(
    "code", [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET]
)
def test_the_lag_of_a_queue_whose_broker_does_not_answer_is_unknown(
    rmq_cluster, orders, code
):
    """It was an error for all queues."""
    rmq_cluster.send(orders, ["a"])
    with consumer(rmq_cluster, "g", orders, Seen()) as some:
        wait_until(lambda: [each.lag for each in lag_of(some, orders)] == [0])
        rmq_cluster.faults.add(faults.drop_request(), code=code)
        found = [each for each in some.lag(timeout_ms=200) if each.topic == orders]
        assert [(each.lag, each.state) for each in found] == [(None, LagState.UNKNOWN)]
        assert found[0].reason == "not finished within 200 ms"


def test_a_commit_that_no_broker_answers_is_an_error(rmq_cluster, orders):
    rmq_cluster.send(orders, ["a"])
    with consumer(rmq_cluster, "g", orders, Seen()) as some:
        queue = MessageQueue(orders, "broker-a", 0)
        wait_until(lambda: some.offsets().get(queue) == 1)
        rule = rmq_cluster.faults.add(
            faults.drop_request(), code=RequestCode.UPDATE_CONSUMER_OFFSET
        )
        with pytest.raises(
            DeadlineError, match="commit of group g did not finish within"
        ):
            some.commit(timeout_ms=200)
        rmq_cluster.faults.remove(rule)
        some.commit()
    assert committed(rmq_cluster, "g", orders) == {0: 1}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (faults.answer(1, remark="x"), BrokerError, "answered SYSTEM_ERROR: x"),
        (faults.answer(16), DeniedError, "answered NO_PERMISSION"),
        # What brokers from 5.1 on answer while a reset waits for the group.
        (
            faults.answer(0),
            PartialError,
            "offset 1 of orders@broker-a:0 was not stored: the broker has ",
        ),
    ],
)
def test_a_commit_that_is_not_stored_is_an_error(
    rmq_cluster, orders, answer, error, words
):
    rmq_cluster.send(orders, ["a"])
    with consumer(rmq_cluster, "g", orders, Seen()) as some:
        queue = MessageQueue(orders, "broker-a", 0)
        wait_until(lambda: some.offsets().get(queue) == 1)
        rule = rmq_cluster.faults.add(answer, code=RequestCode.UPDATE_CONSUMER_OFFSET)
        with pytest.raises(error) as caught:
            some.commit()
        assert words in str(caught.value)
        rmq_cluster.faults.remove(rule)
        some.commit()


def test_a_listener_may_commit_the_messages_before_its_own(rmq_cluster, orders):
    seen: list[int] = []

    def handle(message):
        some.commit()
        seen.append(committed(rmq_cluster, "g", orders).get(0, 0))

    rmq_cluster.send(orders, ["a", "b", "c"])
    with consumer(rmq_cluster, "g", orders, handle, consume_threads=1) as some:
        wait_until(lambda: len(seen) == 3)
    assert all(offset <= index for index, offset in enumerate(seen))


def test_on_assigned_and_on_revoked_are_called_with_queues(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=4)
    ours: set[MessageQueue] = set()
    history: list[tuple[str, MessageQueue]] = []

    def on_assigned(queues):
        ours.update(queues)
        history.extend(("+", queue) for queue in queues)

    def on_revoked(queues):
        ours.difference_update(queues)
        history.extend(("-", queue) for queue in queues)

    def handle(message):
        assert message.message_queue in ours
        history.append(("message", message.message_queue))

    def of_topic():
        return sorted(q.queue_id for q in ours if q.topic == topic)

    rmq_cluster.send(topic, [f"{n}" for n in range(40)])
    hooks = {"on_assigned": on_assigned, "on_revoked": on_revoked}
    with consumer(rmq_cluster, "g", topic, handle, **hooks):
        wait_until(lambda: sum(each[0] == "message" for each in history) == 40)
        assert of_topic() == [0, 1, 2, 3]
        with consumer(rmq_cluster, "g", topic, Seen()):
            wait_until(lambda: len(of_topic()) == 2)
        wait_until(lambda: len(of_topic()) == 4)
    assert ours == set()


@pytest.mark.injects_exceptions
def test_an_on_assigned_that_raises_is_logged_and_one_that_commits_is_refused(
    rmq_cluster, orders, caplog
):
    errors: list[str] = []

    def on_assigned(queues):
        try:
            some.commit()
        except UsageError as error:
            errors.append(error.message)
        raise ValueError(queues)

    seen = Seen()
    rmq_cluster.send(orders, ["a"])
    with consumer(rmq_cluster, "g", orders, seen, on_assigned=on_assigned) as some:
        seen.wait_for(1)
    assert errors[0] == "callbacks such as on_assigned must not call commit"
    assert "on_assigned failed" in caplog.text


def test_on_message_and_on_batch_cannot_be_used_together():
    with pytest.raises(
        UsageError, match="on_message and on_batch cannot be used together"
    ):
        Consumer("g", "t", print, on_batch=lambda messages, context: None)
