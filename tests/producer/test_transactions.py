"""Transactions: half messages, their ends, and the broker's checks of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rmqcli import Admin
from rmqcli.errors import UsageError
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.producer import Producer
from rmqcli.producer.transactions import LocalTransactionState
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies, stored

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW


def never_asked(*messages):
    raise AssertionError(messages)


def is_committed(cluster):
    """Whether x is stored; twice, if a check came before the last was answered."""
    return set(bodies(cluster, "orders")) == {b"x"}


@pytest.fixture
def impatient(rmq_cluster_factory):
    """A cluster that checks undecided transactions at once."""
    cluster = rmq_cluster_factory(
        settings={
            "transaction_timeout_ms": 1,
            "transaction_check_interval_ms": 50,
            "transaction_check_max": 1_000_000,
        }
    )
    cluster.create_topic("orders")
    return cluster


def test_a_commit_shows_the_message_and_a_rollback_does_not(rmq_cluster, rmq_topic):
    sent = ProducerMessage(rmq_topic, b"a" * 5_000, tags="Paid", keys="k")
    seen = []
    sends = rmq_cluster.faults.observe(code=RequestCode.SEND_MESSAGE_V2)

    def execute(message, result):
        seen.append((message, result.queue_offset, bodies(rmq_cluster, rmq_topic)))
        return COMMIT

    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, on_check=never_asked
    ) as producer:
        result = producer.send_in_transaction(sent, execute)
        undone = producer.send_in_transaction(
            ProducerMessage(rmq_topic, b"undone"), lambda *_: ROLLBACK
        )
    assert seen == [(sent, None, [])]
    # 4: the half of a transaction; 1: its body is compressed
    assert [each.command.ext_fields["f"] for each in sends.requests] == ["5", "4"]
    assert result.local_transaction_state is COMMIT
    assert undone.local_transaction_state is ROLLBACK
    (found,) = stored(rmq_cluster, rmq_topic)
    assert (found.body, found.tags, found.keys) == (b"a" * 5_000, "Paid", "k")
    assert found.msg_id == result.msg_id


@pytest.mark.parametrize("answer", [UNKNOW, None, "commit"])
def test_an_undecided_transaction_is_asked_for_until_it_is_decided(impatient, answer):
    asked = []

    def on_check(message):
        asked.append((message.topic, message.body, message.msg_id))
        return COMMIT if len(asked) > 1 else answer

    ends = impatient.faults.observe(code=RequestCode.END_TRANSACTION)
    with Producer("shop", namesrv=impatient.namesrv, on_check=on_check) as producer:
        result = producer.send_in_transaction(
            ProducerMessage("orders", b"x"), lambda *_: answer
        )
        assert result.local_transaction_state is UNKNOW
        wait_until(lambda: is_committed(impatient))
    assert asked[:2] == [("orders", b"x", result.msg_id)] * 2
    stated = [each.command.ext_fields for each in ends.requests]
    assert {each["transactionId"] for each in stated} == {result.msg_id}
    from_checks = [each["fromTransactionCheck"] for each in stated]
    assert from_checks.count("false") == 1
    assert from_checks.count("true") >= 2


@pytest.mark.injects_exceptions
def test_a_listener_that_fails_is_asked_again(impatient, caplog):
    asked = []

    def on_check(message):
        asked.append(message)
        if len(asked) == 1:
            raise ValueError("the database is away")
        return COMMIT

    with Producer("shop", namesrv=impatient.namesrv, on_check=on_check) as producer:
        producer.send_in_transaction(ProducerMessage("orders", b"x"), lambda *_: None)
        wait_until(lambda: is_committed(impatient))
    assert "on_check failed" in caplog.text


def test_what_execute_raises_is_raised_and_leaves_the_transaction_undecided(impatient):
    def execute(message, result):
        raise OSError("disk full")

    asked = []

    def on_check(message):
        asked.append(message.body)
        return ROLLBACK

    with Producer("shop", namesrv=impatient.namesrv, on_check=on_check) as producer:
        with pytest.raises(OSError, match="disk full"):
            producer.send_in_transaction(ProducerMessage("orders", b"x"), execute)
        wait_until(lambda: asked)
    assert set(asked) == {b"x"}
    assert stored(impatient, "orders") == []


def test_an_end_that_is_lost_is_made_good_by_the_check(impatient, caplog):
    impatient.faults.next(faults.disconnect(), code=RequestCode.END_TRANSACTION)
    with Producer(
        "shop", namesrv=impatient.namesrv, on_check=lambda _: COMMIT
    ) as producer:
        result = producer.send_in_transaction(
            ProducerMessage("orders", b"x"), lambda *_: COMMIT
        )
        assert result.local_transaction_state is COMMIT
        wait_until(lambda: is_committed(impatient))
    assert "end of transaction not delivered" in caplog.text


def test_another_producer_of_the_group_answers_for_one_that_has_left(impatient):
    with Producer("shop", namesrv=impatient.namesrv, on_check=lambda _: None) as first:
        first.send_in_transaction(ProducerMessage("orders", b"x"), lambda *_: None)
    with Producer(
        "shop", namesrv=impatient.namesrv, on_check=lambda _: COMMIT
    ) as second:
        second.send(ProducerMessage("orders", b"hello"))  # to connect to the broker
        wait_until(lambda: set(bodies(impatient, "orders")) == {b"hello", b"x"})


def test_a_half_message_that_is_not_safe_is_rolled_back_without_executing(rmq_cluster):
    place = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0"}
    rmq_cluster.create_topic("orders")
    rmq_cluster.faults.next(
        faults.answer(10, ext_fields={**place, "queueOffset": "0"}),
        code=RequestCode.SEND_MESSAGE_V2,
    )
    ends = rmq_cluster.faults.observe(code=RequestCode.END_TRANSACTION)
    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, on_check=never_asked
    ) as producer:
        result = producer.send_in_transaction(
            ProducerMessage("orders", b"x"), never_asked
        )
    assert result.local_transaction_state is ROLLBACK
    assert [each.command.ext_fields["commitOrRollback"] for each in ends.requests] == [
        "12"
    ]


def test_a_transaction_needs_a_group_a_listener_and_no_delay(rmq_cluster):
    with (
        Producer("shop", namesrv=rmq_cluster.namesrv) as producer,
        pytest.raises(UsageError, match="with group and on_check"),
    ):
        producer.send_in_transaction(ProducerMessage("orders", b"x"), lambda *_: None)
    with (
        Producer("shop", namesrv=rmq_cluster.namesrv, on_check=never_asked) as producer,
        pytest.raises(UsageError, match="cannot be delayed"),
    ):
        producer.send_in_transaction(
            ProducerMessage("orders", b"x", delay_level=1), lambda *_: None
        )


def test_a_transaction_without_a_function_stores_nothing(rmq_cluster, rmq_topic):
    """The half message was stored before the missing function was noticed."""
    nothing: Any = None
    with Producer("shop", namesrv=rmq_cluster.namesrv, on_check=never_asked) as shop:
        with pytest.raises(TypeError, match="execute is None"):
            shop.send_in_transaction(ProducerMessage(rmq_topic, b"x"), nothing)
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            assert admin.open_transactions(rmq_topic).scanned == 0


def test_only_an_end_that_is_decided_waits_for_an_answer(rmq_cluster, rmq_topic):
    """A real broker never answers the end of a transaction that is still unknown."""
    ends = rmq_cluster.faults.observe(code=RequestCode.END_TRANSACTION)
    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, on_check=never_asked
    ) as producer:
        halves = [
            producer.send_in_transaction(
                ProducerMessage(rmq_topic, b"x"), lambda *_, state=state: state
            )
            for state in (COMMIT, UNKNOW, ROLLBACK)
        ]
    assert [
        (each.command.ext_fields["commitOrRollback"], each.command.is_oneway)
        for each in ends.requests
    ] == [("8", False), ("0", True), ("12", False)]
    for number, (half, end) in enumerate(zip(halves, ends.requests, strict=True)):
        fields = end.command.ext_fields
        assert fields["msgId"] == fields["transactionId"] == half.msg_id
        assert fields["tranStateTableOffset"] == str(number)
        assert (fields["producerGroup"], fields["topic"]) == ("shop", rmq_topic)


def push_checks(cluster, producer, count, *, body=b"x", group="shop"):
    """Let the broker send `count` checks; return once all have arrived."""
    core = cluster.broker().state
    properties = {"PGROUP": group, "UNIQ_KEY": "7F00000100002A9F0000000000000000"}
    data = encode_message(
        MessageFields(topic="orders", body=body, properties=properties)
    )
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=0, commit_log_offset=0
    )

    def push():
        peer = core.clients.any_producer_peer("shop")
        for _ in range(count):
            core.push(peer, RequestCode.CHECK_TRANSACTION_STATE, header, body=data)

    producer.send(ProducerMessage("orders", b"connect"))
    cluster.call(push)
    producer.send(ProducerMessage("orders", b"its answer comes after the checks"))


def test_a_flood_of_checks_for_another_group_is_logged_once(rmq_cluster, caplog):
    rmq_cluster.create_topic("orders")
    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, on_check=never_asked
    ) as producer:
        push_checks(rmq_cluster, producer, 500, group="another")
    (line,) = [line for line in caplog.messages if "check of a transaction" in line]
    assert line.endswith(": it is for another group")


def test_checks_that_wait_are_bounded_in_bytes(rmq_cluster, caplog):
    rmq_cluster.create_topic("orders")
    may_end, asked = threading.Event(), []

    def on_check(message):
        may_end.wait()
        asked.append(message)
        return COMMIT

    with Producer("shop", namesrv=rmq_cluster.namesrv, on_check=on_check) as producer:
        for _ in range(17):  # a broker gives up a client that it has 64 MiB for
            push_checks(rmq_cluster, producer, 4, body=bytes(1 << 20))
        assert "63 other checks with 66," in caplog.text
        may_end.set()
        wait_until(lambda: len(asked) == 63, timeout_s=60)
        push_checks(rmq_cluster, producer, 1)
        wait_until(lambda: len(asked) == 64, timeout_s=60)
