"""Producers: those that are connected, and those whose messages a topic has."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, MessageQueue, Producer, ProducerMessage
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.errors import DeniedError, NotFoundError, UnsupportedError
from rmqcli.testing import faults
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.admin.message.damage import damage_record
from tests.broker.wire_client import WireClient
from tests.kit.waiting import wait_until


@pytest.fixture
def start(rmq_cluster_factory):
    def start_(like="5.5.0", **options):
        cluster = rmq_cluster_factory(like=like, queues=1, **options)
        cluster.create_topic("orders")
        cluster.create_topic("other")
        return cluster

    return start_


def test_the_senders_of_a_topic_are_listed_and_no_other_producers(start):
    cluster = start()
    with (
        Producer("shop", namesrv=cluster.namesrv) as shop,
        Producer("audit", namesrv=cluster.namesrv) as audit,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        for _ in range(3):
            shop.send(ProducerMessage("orders", b"a"))
        audit.send(ProducerMessage("other", b"b"))
        wait_until(lambda: len(admin.producers().producers) == 2)
        found = admin.producers("orders")
        (row,) = found.producers
        assert (row.group, row.messages, found.messages_read) == ("shop", 3, 3)
        assert (row.broker_name, found.errors) == ("broker-a", {})
        assert row.client_id is not None
        assert row.last_heartbeat_ms is not None
        assert [each.group for each in admin.producers().producers] == ["audit", "shop"]
        (row,) = admin.producers(group="audit").producers
        assert (row.group, row.messages) == ("audit", None)


def test_a_sender_that_is_not_listed_is_an_address_and_not_left_out(start):
    cluster = start()
    cluster.send("orders", [Seed(body=b"a")])
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders").producers
    assert (row.client_id, row.group, row.messages) == (None, None, 1)
    assert row.address
    assert row.reason == "the broker listed no producer at this address"


def test_a_sender_without_a_group_is_not_said_to_be_gone(start):
    """Brokers list groups, and it has joined none, as that of `rmq send`."""
    cluster = start()
    with (
        Producer(namesrv=cluster.namesrv) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        producer.send(ProducerMessage("orders", b"a"))
        (row,) = admin.producers("orders").producers
    assert (row.client_id, row.messages) == (None, 1)
    assert row.reason == "the broker listed no producer at this address"


def test_a_sender_behind_a_proxy_is_not_said_to_be_gone(start):
    """Proxies store the address of a gRPC client, and its topic as its group."""
    cluster = start()
    properties = {"__BORNHOST": "10.0.0.7", "PGROUP": "orders"}
    cluster.send("orders", [Seed(body=b"a", properties=properties)])
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders").producers
    assert (row.client_id, row.group, row.messages) == (None, "orders", 1)
    assert row.reason == "sent through a proxy, which does not tell who sent"


def test_a_sender_whose_broker_lists_no_producers_is_not_said_to_be_gone(start):
    cluster = start()
    cluster.send("orders", [Seed(body=b"a")])
    refused = faults.answer(16, "no")
    cluster.faults.add(refused, code=RequestCode.GET_ALL_PRODUCER_INFO)
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders").producers
    assert row.reason == "the broker did not list its producers"


@pytest.mark.parametrize(
    "listed",
    [
        "/[0:0:0:0:0:0:0:1]:%s",  # Java 14 and later
        "/0:0:0:0:0:0:0:1:%s",  # Java 8
        "/[0:0:0:0:0:0:0:1%%4]:%s",  # with the number of a network interface
        "localhost/[0:0:0:0:0:0:0:1]:%s",
        "[::1]:%s",  # the embedded broker
    ],
)
def test_a_sender_with_an_ipv6_address_is_found_as_its_broker_writes_it(start, listed):
    cluster = start(host="::1")
    with (
        Producer("shop", namesrv=cluster.namesrv) as shop,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        shop.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: admin.producers(group="shop").producers)
        (known,) = admin.producers(group="shop").producers
        address = listed % known.address.rpartition(":")[2]
        entry = {"clientId": "c1", "remoteIP": address, "language": "JAVA"}
        answer = faults.answer(0, body=json.dumps({"data": {"shop": [entry]}}).encode())
        cluster.faults.next(answer, code=RequestCode.GET_ALL_PRODUCER_INFO)
        (row,) = admin.producers("orders").producers
    assert (row.group, row.client_id, row.messages) == ("shop", "c1", 1)
    assert row.reason is None


def test_an_address_that_is_none_is_no_senders(start):
    cluster = start()
    cluster.send("orders", [Seed(body=b"a")])
    entry = {"clientId": "c1", "remoteIP": "nowhere", "language": "JAVA"}
    answer = faults.answer(0, body=json.dumps({"data": {"shop": [entry]}}).encode())
    cluster.faults.add(answer, code=RequestCode.GET_ALL_PRODUCER_INFO)
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders").producers
        (other,) = admin.producers().producers
    assert (row.client_id, row.messages) == (None, 1)
    assert other.address == "nowhere"


def test_a_record_that_cannot_be_read_is_named_because_its_sender_is_not_listed(start):
    cluster = start()
    cluster.send("orders", [Seed(body=b"good"), Seed(body=b"broken"), Seed(body=b"x")])
    damage_record(cluster, MessageQueue("orders", "broker-a", 0), "broken")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.producers("orders")
    assert found.messages_read == 2
    assert "a record of orders" in found.errors["broker-a"].message
    assert "cannot be read" in found.errors["broker-a"].message


def test_an_old_broker_lists_the_producers_of_a_group_only(start):
    cluster = start("4.6.0")
    with (
        Producer("shop", namesrv=cluster.namesrv) as shop,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        shop.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: admin.producers(group="shop").producers)
        (row,) = admin.producers(group="shop").producers
        assert (row.group, row.last_heartbeat_ms) == ("shop", None)
        assert admin.producers(group="never").producers == []
        found = admin.producers("orders")
        assert isinstance(found.errors["broker-a"], UnsupportedError)
        assert [(each.client_id, each.messages) for each in found.producers] == [
            (None, 1)
        ]


def test_a_broker_that_does_not_answer_is_named(start):
    cluster = start(brokers=2)
    refused = faults.answer(1, "no")
    with Admin(namesrv=cluster.namesrv) as admin:
        cluster.faults.next(
            refused, code=RequestCode.GET_ALL_PRODUCER_INFO, broker="broker-b"
        )
        assert list(admin.producers().errors) == ["broker-b"]
        with pytest.raises(NotFoundError):
            admin.producers("never")


# --- several brokers, some of which do not tell ---


@pytest.fixture
def pair(start):
    """Two brokers with 40 and 3 messages of senders that are gone."""
    cluster = start(brokers=2)
    cluster.send("orders", ["x"] * 40, broker="broker-a")
    cluster.send("orders", ["x"] * 3, broker="broker-b")
    return cluster


def senders(found):
    return [(e.broker_name, e.client_id, e.messages) for e in found.producers]


def test_the_newest_messages_of_each_queue_are_read(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.producers("orders")
        assert admin.producers("other").messages_read == 0
    assert senders(found) == [("broker-a", None, 32), ("broker-b", None, 3)]
    assert (found.messages_read, found.errors) == (35, {})


def test_large_messages_do_not_hide_the_newest_senders(start):
    """A broker bounds the bytes of an answer, and begins with the oldest messages."""
    cluster = start()
    body = b"x" * 100_000
    cluster.send("orders", [Seed(body=body)] * 31)
    with (
        Producer("shop", namesrv=cluster.namesrv) as shop,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        shop.send(ProducerMessage("orders", body))
        wait_until(lambda: admin.producers(group="shop").producers)
        found = admin.producers("orders")
    assert found.messages_read == 32
    assert ("shop", 1) in [(each.group, each.messages) for each in found.producers]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, ["broker-a"]),
        (RequestCode.PULL_MESSAGE, ["broker-a"]),
        (RequestCode.GET_ALL_PRODUCER_INFO, ["broker-a", "broker-b"]),
    ],
)
def test_what_one_broker_does_not_tell_leaves_its_rows_out_and_names_it(
    pair, code, rows
):
    pair.faults.add(faults.answer(16, "no"), code=code, broker="broker-b")
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.producers("orders")
    assert [each.broker_name for each in found.producers] == rows
    assert list(found.errors) == ["broker-b"]
    assert isinstance(found.errors["broker-b"], DeniedError)


def test_a_broker_that_does_not_tell_its_figures_tells_its_version(pair):
    """It was asked for them before its producers, and named for its refusal."""
    refused = faults.answer(16, "no")
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    pair.faults.add(refused, code=code, broker="broker-b")
    with Admin(namesrv=pair.namesrv) as admin:
        found = admin.producers("orders")
    assert [each.broker_name for each in found.producers] == ["broker-a", "broker-b"]
    assert found.errors == {}


def test_an_old_broker_that_does_not_tell_a_group_is_named(start):
    cluster = start("4.6.0", brokers=2)
    refused = faults.answer(16, "no")
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    cluster.faults.add(refused, code=code, broker="broker-b")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.producers(group="shop")
        assert (found.producers, list(found.errors)) == ([], ["broker-b"])
        assert sorted(admin.producers().errors) == ["broker-a", "broker-b"]


def test_the_senders_of_one_group_are_those_whose_messages_say_so(start):
    """Only messages of transactions name the group of their producer."""
    cluster = start()
    one = Seed(body=b"a", properties={"PGROUP": "shop"})
    cluster.send("orders", [one])
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders", group="shop").producers
        assert (row.group, row.messages) == ("shop", 1)
        assert admin.producers("orders", group="audit").producers == []


def test_a_sender_of_an_unknown_group_may_be_of_the_group_that_is_asked_for(start):
    cluster = start()
    with (
        Producer("audit", namesrv=cluster.namesrv) as audit,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        audit.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: admin.producers(group="audit").producers)
        assert admin.producers("orders", group="shop").producers == []
        cluster.send("orders", [Seed(body=b"b")])
        (row,) = admin.producers("orders", group="shop").producers
    assert (row.group, row.client_id, row.messages) == (None, None, 1)
    assert row.reason == "the broker listed no producer at this address"


def test_the_group_of_all_clients_is_shown_only_where_there_is_no_other(start):
    """Java's clients are in it besides their own, on the same connection."""
    cluster = start()

    def connect(client_id, *groups):
        client = WireClient(cluster.broker().address)
        producers = tuple(ProducerData(group_name=each) for each in groups)
        beat = HeartbeatData(client_id=client_id, producers=producers)
        answer = client.ask(RequestCode.HEART_BEAT, body=encode_body(beat))
        assert answer.code == 0
        return client

    inner = "CLIENT_INNER_PRODUCER"
    clients = [
        connect("c1", "shop", inner),
        connect("c2", inner),
        connect("c3", "audit"),
    ]
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.producers()
    for client in clients:
        client.sock.close()
    assert [(each.group, each.client_id) for each in found.producers] == [
        (inner, "c2"),
        ("audit", "c3"),
        ("shop", "c1"),
    ]
