"""Clean-ups show what would go, and look whether it is gone."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.testing import faults

CLEAN_EXPIRED, CLEAN_UNUSED = 306, 316


@pytest.fixture
def cluster(cluster):
    """On broker-a, queue 1 of `orders` has lost all its messages, queue 0 has not."""
    cluster.create_topic("orders", queues=2)
    broker = cluster.broker()
    cluster.send("orders", ["x", "y"], queue_id=1, broker="broker-a")
    end = broker.state.store.log_bounds()[1]
    cluster.send("orders", ["z"], queue_id=0, broker="broker-a")
    broker.state.store.trim(None, end)
    return cluster


def rows_of(rows):
    return [
        (row["broker_name"], row["topic"], row["queue_id"], row["result"])
        for row in rows
    ]


def bounds(cluster, queue_id):
    return cluster.broker().state.store.queue_bounds("orders", queue_id)


def test_expired_queues_are_shown_before_they_go(rmq, cluster):
    code, rows, err = rmq("broker", "clean-expired-queues")
    assert (code, rows) == (7, None)
    assert "broker-a: queue 1 of orders, which ends at 2" in err
    assert "queue 0" not in err
    assert bounds(cluster, 1) == (2, 2)
    code, rows, _ = rmq("broker", "clean-expired-queues", "--yes")
    assert code == 0
    assert rows_of(rows) == [("broker-a", "orders", 1, "removed")]
    assert bounds(cluster, 1) in (None, (0, 0))
    assert bounds(cluster, 0) == (0, 1)
    code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (code, rows) == (0, [])
    assert "nothing was changed: there are no expired queues" in err


def test_a_queue_that_the_broker_keeps_is_not_called_removed(rmq, cluster):
    cluster.faults.add(faults.answer(0), code=CLEAN_EXPIRED)
    code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (code, rows_of(rows)) == (6, [("broker-a", "orders", 1, "failed")])
    assert "broker-a confirmed the clean-up, but still has queue 1 of orders" in err


def test_a_broker_that_cannot_be_asked_has_a_row(rmq, cluster):
    cluster.faults.add(faults.answer(1, "no"), code=202, broker="broker-b")
    code, rows, _ = rmq("broker", "clean-expired-queues", "--yes")
    assert code == 6
    assert rows_of(rows) == [
        ("broker-a", "orders", 1, "removed"),
        ("broker-b", None, None, "failed"),
    ]


def test_queues_of_a_topic_that_is_gone_are_removed(rmq, cluster):
    """A topic whose settings are lost leaves its queues behind."""
    broker = cluster.broker()
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("billing", "orders", 0, commit_offset=1)
        client.invoke(broker.address, call)
    broker.state.topics.delete("orders")
    code, rows, err = rmq("broker", "clean-unused-topics")
    assert (code, rows) == (7, None)
    assert "broker-a: queue 0 of orders" in err
    code, rows, _ = rmq("broker", "clean-unused-topics", "--yes")
    assert (code, rows_of(rows)) == (0, [("broker-a", "orders", 0, "removed")])
    assert bounds(cluster, 0) is None


def test_brokers_are_told_even_if_no_unused_queue_is_known(rmq, cluster):
    told = cluster.faults.observe(code=CLEAN_UNUSED)
    code, rows, err = rmq("broker", "clean-unused-topics", "--yes")
    assert (code, rows) == (0, [])
    assert told.seen == 2
    assert "no queue without a topic was known; brokers do not say" in err


def test_the_library_does_the_same(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        steps = admin.clean_expired_queues()
        assert [(s.topic, s.queue_id, s.result) for s in steps] == [
            ("orders", 1, "removed")
        ]
        assert admin.clean_unused_topics() == []
