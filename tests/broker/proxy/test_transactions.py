"""Transactions: ends and checks of undecided messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqcli.broker.faults import Answer
from rmqcli.testing import ManualClock
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.broker.proxy.test_sending import counts
from tests.kit.proxy.raw_client import (
    code_of,
    consumer_settings,
    message,
    producer_settings,
)
from tests.kit.waiting import wait_until

COMMIT, ROLLBACK = d.TransactionResolution.COMMIT, d.TransactionResolution.ROLLBACK


@pytest.fixture
def clock():
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def cluster(start, clock):
    cluster = start(
        clock=clock,
        settings={
            "transaction_check_interval_ms": 10_000,
            "transaction_timeout_ms": 1_000,
        },
    )
    cluster.create_topic("X", queues=1, attributes={"message.type": "TRANSACTION"})
    return cluster


def half(client, **system):
    sent = message("X", b"half", message_type=d.MessageType.TRANSACTION, **system)
    # The clock of the cluster stands still; it decides what is too young for a check.
    sent.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_000)
    return client.send(sent).entries[0]


def test_a_committed_message_is_in_its_topic(cluster, client):
    entry = half(client)
    assert counts(cluster, "X", 1) == [0]
    assert code_of(client.end_transaction("X", entry, COMMIT)) == "OK"
    wait_until(lambda: counts(cluster, "X", 1) == [1])


def test_a_rolled_back_message_is_not_checked(cluster, client):
    stream = client.telemetry(producer_settings("X"))
    first = half(client)
    assert code_of(client.end_transaction("X", first, ROLLBACK)) == "OK"
    second = half(client)
    cluster.advance(30_000)
    command = stream.receive().recover_orphaned_transaction_command
    assert command.transaction_id == second.transaction_id
    assert counts(cluster, "X", 1) == [0]


def test_an_orphan_is_checked_and_can_be_ended_then(cluster, client):
    stream = client.telemetry(producer_settings("X"))
    entry = half(client, tag="A")
    cluster.advance(40_000)
    command = stream.receive().recover_orphaned_transaction_command
    assert command.transaction_id == entry.transaction_id
    assert (command.message.topic.name, command.message.body) == ("X", b"half")
    assert command.message.system_properties.tag == "A"
    kind = command.message.system_properties.message_type
    assert kind == d.MessageType.TRANSACTION
    assert code_of(client.end_transaction("X", entry, COMMIT)) == "OK"
    wait_until(lambda: counts(cluster, "X", 1) == [1])


def test_a_late_end_without_a_check_is_refused(cluster, client):
    first, second = half(client), half(client)
    cluster.advance(30_000)
    assert code_of(client.end_transaction("X", first, COMMIT)) == "OK"
    wait_until(lambda: counts(cluster, "X", 1) == [1])
    cluster.advance(1)
    answer = client.end_transaction("X", second, COMMIT)
    assert code_of(answer) == "INTERNAL_SERVER_ERROR"
    assert counts(cluster, "X", 1) == [1]


def test_checks_go_to_one_of_the_producers_of_the_topic(cluster, client, connect):
    cluster.create_topic("Y", attributes={"message.type": "TRANSACTION"})
    other = connect(cluster)
    other.telemetry(producer_settings("Y"))
    stream = client.telemetry(producer_settings("X"))
    entry = half(other)
    cluster.advance(40_000)
    command = stream.receive().recover_orphaned_transaction_command
    assert command.transaction_id == entry.transaction_id


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(Answer(code=1, remark="busy"), "busy"), (Answer(code=0, body=b"{"), "JSON")],
    ids=["refused", "unreadable"],
)
def test_a_heartbeat_that_finds_no_brokers_is_repeated(
    cluster, client, caplog, bad, reason
):
    client.telemetry(producer_settings("X"))
    seen = cluster.faults.observe(code=RequestCode.HEART_BEAT)
    cluster.faults.next(bad, code=RequestCode.GET_BROKER_CLUSTER_INFO)
    cluster.advance(20_000)
    wait_until(lambda: "transaction heartbeat not sent" in caplog.text)
    assert reason in caplog.text
    cluster.advance(20_000)
    # There are two if it was the one after the settings that found no brokers.
    wait_until(lambda: len(seen.requests) in {1, 2})


def test_receives_go_on_after_the_last_producer_of_transactions_has_left(
    cluster, client, connect
):
    """The broker then closes the connection on which the producers were registered."""
    cluster.create_topic("T", queues=1)
    producer = connect(cluster)
    stream = producer.telemetry(producer_settings("X"))
    assert stream.answer is not None
    state = cluster.broker().state
    wait_until(lambda: cluster.call(state.clients.producer_groups) == ["X"])
    stream.end()
    producer.call(
        "NotifyClientTermination", s.NotifyClientTerminationRequest(group=None)
    )
    client.telemetry(consumer_settings("G", "T"))
    with ThreadPoolExecutor(1) as pool:
        while cluster.call(state.clients.producer_groups):
            received = pool.submit(client.receive, "G", "T", polling_ms=20_000)
            wait_until(lambda: cluster.call(lambda: len(state.pop_holds)) == 1)
            cluster.advance(10_000)
            client.send(message("T", b"1"))
            (handle,) = received.result().handles
            client.ack("G", "T", handle)
