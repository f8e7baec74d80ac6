"""`SimpleConsumer` refuses what cannot be, before anything is sent."""

from __future__ import annotations

import pytest

from rmqcli import (
    ConfigError,
    ConnectError,
    ConsumeFromWhere,
    SimpleConsumer,
    UnsupportedError,
    UsageError,
    connect,
    sql,
)

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"group": ""}, ConfigError, "name is empty"),
        ({"topics": []}, UsageError, "topics is empty"),
        ({"topics": "a b"}, ConfigError, "a b"),
        ({"topics": {"a": sql("b", "c > 1")}}, UsageError, "subscription of a is one"),
        ({"topics": {"a": "||"}}, UsageError, "holds no tag"),
        ({"invisible_duration_ms": 999}, UsageError, "must be 1000 to 43200000"),
        ({"invisible_duration_ms": 43_200_001}, UsageError, "must be 1000 to"),
        ({"invisible_duration_ms": True}, UsageError, "must be an int"),
        ({"invisible_duration_ms": 1e4}, UsageError, "must be an int"),
        (
            {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP},
            UsageError,
            "cannot begin at CONSUME_FROM_TIMESTAMP",
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
                "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            },
            UsageError,
            "consume_from_where cannot be used with endpoints",
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
        ({"await_ms": 0.5}, "await_ms is 0.5; it must be an int"),
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


def test_only_received_messages_are_acknowledged():
    with SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer:
        with pytest.raises(UsageError, match="str is not a message that receive"):
            consumer.ack(["handle"])  # type: ignore[list-item]
        with pytest.raises(UsageError, match="NoneType is not a message"):
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
    with consumer, pytest.raises(UsageError, match="started once"):
        consumer.start()
    consumer.close()
    with pytest.raises(UsageError, match="is closed"):
        consumer.receive()
    with pytest.raises(UsageError, match="started once"):
        consumer.start()


def test_subscriptions_can_change_but_not_end():
    with SimpleConsumer("g", "orders", namesrv=NOWHERE) as consumer:
        consumer.subscribe("payments", "A || B")
        assert set(consumer.subscriptions) == {"orders", "payments"}
        consumer.unsubscribe("orders")
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
