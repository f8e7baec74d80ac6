"""Open transactions: those without an end, and no others."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.cli.main import run
from rmqcli.errors import NotFoundError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW


@pytest.fixture
def start(rmq_cluster_factory):
    def start_(like="5.5.0", **settings):
        cluster = rmq_cluster_factory(
            like=like,
            settings={"transaction_check_interval_ms": 3_600_000, **settings},
        )
        cluster.create_topic("orders")
        cluster.create_topic("other")
        return cluster

    return start_


def shop(cluster, state=UNKNOWN):
    return Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: state)


def send(producer, body, state, topic="orders"):
    message = ProducerMessage(topic, body.encode(), keys=body)
    return producer.send_in_transaction(message, lambda *_: state)


def keys(found):
    return [each.keys for each in found.transactions]


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_only_transactions_without_an_end_are_open(start, like):
    cluster = start(like)
    with shop(cluster) as producer, Admin(namesrv=cluster.namesrv) as admin:
        assert admin.open_transactions("orders").count == 0
        send(producer, "committed", COMMIT)
        first = send(producer, "open", UNKNOWN)
        send(producer, "rolled-back", ROLLBACK)
        send(producer, "elsewhere", UNKNOWN, topic="other")
        send(producer, "open-too", UNKNOWN)
        wait_until(lambda: admin.open_transactions("orders").count == 2)
        found = admin.open_transactions("orders")
        assert keys(found) == ["open", "open-too"]
        assert (found.scanned, found.errors) == (5, {})
        open_ = found.transactions[0]
        assert open_.msg_id == first.msg_id
        assert (open_.producer_group, open_.checks, open_.checks_max) == ("shop", 0, 15)
        assert open_.producers is not None
        assert len(open_.producers) == 1
        assert keys(admin.open_transactions("orders", limit=1)) == ["open"]
        with pytest.raises(NotFoundError):
            admin.open_transactions("never")
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.open_transactions("orders").transactions[0].producers == ()


def test_a_transaction_that_was_checked_is_shown_once_with_its_checks(start):
    cluster = start(
        transaction_timeout_ms=1,
        transaction_check_interval_ms=50,
        transaction_check_max=1_000_000,
    )
    with shop(cluster) as producer, Admin(namesrv=cluster.namesrv) as admin:
        send(producer, "open", UNKNOWN)

        def checked():
            found = admin.open_transactions("orders").transactions
            return [each for each in found if each.checks >= 2]

        (open_,) = wait_until(checked)
    assert open_.keys == "open"
    assert open_.checks_max == 1_000_000


def test_a_transaction_that_ends_by_a_check_is_open_no_longer(start):
    cluster = start(
        transaction_timeout_ms=1,
        transaction_check_interval_ms=50,
        transaction_check_max=1_000_000,
    )
    with shop(cluster, COMMIT) as producer, Admin(namesrv=cluster.namesrv) as admin:
        send(producer, "late", UNKNOWN)
        wait_until(lambda: admin.open_transactions("orders").count == 0)
        wait_until(lambda: list(admin.read("orders")))
        assert admin.open_transactions("orders").count == 0


def test_the_command_shows_them_and_says_what_it_could_not_read(start, capsys):
    cluster = start()
    do = ["transactions", "orders", "-n", cluster.namesrv]
    with shop(cluster) as producer:
        send(producer, "open", UNKNOWN)
        capsys.readouterr()
        assert run([*do, "-o", "json"]) == 0
        out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert (row["keys"], row["producer_group"], row["checks"]) == ("open", "shop", 0)
    assert "1 open, 1 half message of all topics read" in err
    assert run(do) == 0
    assert "none" in capsys.readouterr().out  # no producer is connected any more
    cluster.faults.next(faults.answer(1, "no"), code=RequestCode.PULL_MESSAGE)
    assert run(do) == 6
