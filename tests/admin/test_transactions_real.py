"""Transactions of a real broker that keeps their state in RocksDB."""

from __future__ import annotations

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.errors import PartialError
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("5.5.0")]

ROCKSDB = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}


def test_what_is_open_in_rocksdb_is_not_known(fresh_cluster):
    """No transaction seemed to be open, and no broker to have the half message."""
    cluster = fresh_cluster(conf=ROCKSDB)
    topic = cluster.create_topic()

    def send(producer, key, state):
        message = ProducerMessage(topic, b"x", keys=key)
        producer.send_in_transaction(message, lambda *_: state)

    with Admin(namesrv=cluster.namesrv) as admin:
        with Producer("shop", on_check=lambda _: None, namesrv=cluster.namesrv) as shop:
            send(shop, "done", LocalTransactionState.COMMIT_MESSAGE)
            wait_until(lambda: not admin.open_transactions(topic).errors)
            send(shop, "open", None)
        found = admin.open_transactions(topic)
        (half,) = wait_until(
            lambda: admin.find_messages("open", topic=topic, pending=True).messages
        )
        outcome = admin.message_outcome(half)

    assert (found.count, list(found.errors)) == (0, ["broker-a"])
    error = found.errors["broker-a"]
    assert isinstance(error, PartialError)
    assert "broker-a has 1 half message that may be open: it notes in RocksDB" in (
        error.message
    )
    assert outcome.stored.state == "unknown"
    assert "its broker notes that in RocksDB" in (outcome.stored.reason or "")
