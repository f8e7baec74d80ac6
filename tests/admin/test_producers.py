"""Producers: those that are connected, and those whose messages a topic has."""

from __future__ import annotations

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.errors import NotFoundError, UnsupportedError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
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


def test_a_sender_that_is_gone_is_an_address_and_not_left_out(start):
    cluster = start()
    cluster.send("orders", [Seed(body=b"a")])
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.producers("orders").producers
    assert (row.client_id, row.group, row.messages) == (None, None, 1)
    assert row.address


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
