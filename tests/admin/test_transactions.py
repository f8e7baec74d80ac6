"""Open transactions: those without an end, and no others."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.admin import transactions
from rmqcli.admin.transactions import open_transactions_of
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.half_messages import roll_back, send_half
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
        assert row["producer_group"] == "shop"
        assert err == "1 open, 1 half message of all topics read\n"
        send(producer, "second", UNKNOWN)
        assert run([*do, "--limit", "1"]) == 0
        out, err = capsys.readouterr()
        head, shown = out.splitlines()
        assert " ".join(head.split()) == (
            "AGE MSG ID KEYS GROUP CHECKS OF PRODUCERS BROKER"
        )
        assert shown.split()[1:] == [
            *(row["msg_id"], "open", "shop", "0", "15"),
            *(*row["producers"], "broker-a"),
        ]
        read = "2 open, 2 half messages of all topics read\n"
        assert err == f"{read}1 more not shown; see --limit\n"
    assert run(do) == 0
    out, err = capsys.readouterr()
    assert " none " in out  # no producer is connected any more
    assert err == read
    cluster.faults.next(faults.answer(1, "no"), code=RequestCode.PULL_MESSAGE)
    assert run(do) == 6
    assert capsys.readouterr().err.startswith("at least ")


def test_a_topic_without_open_transactions_says_so(start, capsys):
    assert run(["transactions", "orders", "-n", start().namesrv]) == 0
    said = "no open transactions\n0 open, 0 half messages of all topics read\n"
    assert capsys.readouterr() == ("", said)


# --- a producer that sends a half message again ---


@pytest.mark.parametrize("later_ms", [0, 3], ids=["rmq", "java"])
def test_the_first_half_message_stays_open_if_that_of_a_retry_ends(
    start, capsys, later_ms
):
    """A retry has the same id, so that the end of one hid the other.

    Java gives each attempt a born time of its own.
    """
    cluster = start()
    address = cluster.broker().address
    born_ms = SYSTEM_CLOCK.epoch_ms()
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        first = send_half(client, address, "orders", key="A1", born_ms=born_ms)
        again = send_half(
            client, address, "orders", key="A1", born_ms=born_ms + later_ms
        )
        roll_back(client, address, again)
    do = ["transactions", "orders", "-n", cluster.namesrv, "-o", "json"]
    capsys.readouterr()

    def shown():
        assert run(do) == 0
        return json.loads(capsys.readouterr().out)

    rows = wait_until(lambda: (rows := shown()) and len(rows) == 1 and rows)
    assert (rows[0]["msg_id"], rows[0]["half_offset"]) == ("A1", first.queue_offset)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        roll_back(client, address, first)
    wait_until(lambda: shown() == [])


def test_half_messages_that_are_checked_are_shown_once_each(start):
    cluster = start(
        transaction_timeout_ms=1,
        transaction_check_interval_ms=50,
        transaction_check_max=1_000_000,
    )
    address = cluster.broker().address
    born_ms = SYSTEM_CLOCK.epoch_ms() - 1_000
    with (
        Client(ClientConfig(namesrv=(cluster.namesrv,))) as client,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        for each in ("A1", "A1", "A1", "B2"):
            send_half(client, address, "orders", key=each, born_ms=born_ms)

        def checked():
            found = admin.open_transactions("orders").transactions
            return len(found) == 4 and min(each.checks for each in found) >= 2 and found

        found = wait_until(checked)
    assert sorted(each.msg_id for each in found) == ["A1", "A1", "A1", "B2"]


# --- what is read, and what brokers show ---


def test_records_of_ends_are_not_read_if_no_half_message_is_left(start, monkeypatch):
    """More of them than are read made it unknown which transactions are open."""
    cluster = start()
    with shop(cluster) as producer, Admin(namesrv=cluster.namesrv) as admin:
        send(producer, "elsewhere", COMMIT, topic="other")
        wait_until(lambda: admin.open_transactions("other").count == 0)
        monkeypatch.setattr(transactions, "SCANNED_MAX", 0)
        found = admin.open_transactions("orders")
    assert (found.count, found.errors) == (0, {})


@pytest.mark.parametrize(
    ("setting", "shown"), [("0", 0), ("15", 15), ("-1", None), (None, None)]
)
def test_the_most_checks_are_those_of_the_broker(start, setting, shown):
    """0 was shown as 15, the default."""
    cluster = start()
    changes = {} if setting is None else {"transactionCheckMax": setting}
    body = "".join(f"{name}={value}\n" for name, value in changes.items())
    cluster.faults.add(
        faults.answer(0, body=body.encode()), code=RequestCode.GET_BROKER_CONFIG
    )
    with shop(cluster) as producer, Admin(namesrv=cluster.namesrv) as admin:
        send(producer, "open", UNKNOWN)
        (found,) = admin.open_transactions("orders").transactions
    assert found.checks_max == shown


# --- several brokers, and what they do not tell ---


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two brokers with two open transactions each, and one that has ended."""
    cluster = rmq_cluster_factory(
        brokers=2, queues=1, settings={"transaction_check_interval_ms": 3_600_000}
    )
    cluster.create_topic("orders")
    with shop(cluster) as producer, Admin(namesrv=cluster.namesrv) as admin:
        for body in ("1", "2", "3", "4"):  # brokers take turns
            send(producer, body, UNKNOWN)
            # The next one is not stored in the same millisecond.
            now_ms = SYSTEM_CLOCK.epoch_ms()
            wait_until(lambda now_ms=now_ms: SYSTEM_CLOCK.epoch_ms() > now_ms)
        for body in ("5", "6"):
            send(producer, body, COMMIT)
        wait_until(lambda: admin.open_transactions("orders").count == 4)
    return cluster


def test_the_oldest_transactions_of_all_brokers_come_first(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.open_transactions("orders")
        assert keys(found) == ["1", "2", "3", "4"]
        brokers = [each.queue.broker_name for each in found.transactions]
        assert brokers[0] == brokers[2] != brokers[1] == brokers[3]
        assert [each.queue.queue_id for each in found.transactions] == [0] * 4
        some = admin.open_transactions("orders", limit=3)
        assert (keys(some), some.count, some.scanned) == (["1", "2", "3"], 4, 6)


def test_a_broker_that_is_not_read_is_named_and_none_at_all_is_an_error(pair):
    refused = faults.answer(16, "no permission")
    pair.faults.add(refused, code=RequestCode.GET_MIN_OFFSET, broker="broker-b")
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.open_transactions("orders")
        assert (found.count, list(found.errors)) == (2, ["broker-b"])
        assert {each.queue.broker_name for each in found.transactions} == {"broker-a"}
        pair.faults.add(refused, code=RequestCode.GET_MIN_OFFSET)
        found = admin.open_transactions("orders")
    assert (found.count, list(found.errors)) == (0, ["broker-a", "broker-b"])


def test_what_a_broker_does_not_tell_of_a_transaction_is_unknown(pair):
    refused = faults.answer(16, "no permission")
    for code in (
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
    ):
        pair.faults.add(refused, code=code, broker="broker-b")
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.open_transactions("orders").transactions
    told = {e.queue.broker_name: (e.checks_max, e.producers) for e in found}
    assert told == {"broker-a": (15, ()), "broker-b": (None, None)}


def test_no_more_half_messages_are_read_than_wanted(pair, monkeypatch):
    address = pair.broker("broker-a").address
    with Client(ClientConfig(namesrv=(pair.namesrv,))) as client:

        def read(scanned_max):
            return open_transactions_of(
                client, "broker-a", address, scanned_max=scanned_max
            )

        found = read(3)
        assert (found.count, found.scanned, found.errors) == (2, 3, {})
        found = read(1)
        assert (found.count, found.scanned) == (1, 1)
        assert str(found.errors["broker-a"]) == (
            "broker-a has 3 half messages to look at; not read: the 2 newest"
        )
        monkeypatch.setattr(transactions, "SCANNED_MAX", 0)
        found = read(3)
        assert found.count == 0
        assert str(found.errors["broker-a"]).startswith(
            "broker-a has 1 record of ended transactions, more than the 0"
        )
