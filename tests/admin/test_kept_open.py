"""An Admin that a program keeps open answers as a new one would, at most 30 s late."""

from __future__ import annotations

import pytest

from rmqcli.admin.admin import Admin
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.model import compute_lag
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError, PartialError, TransportError
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    return cluster


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def admin(cluster, clock):
    with Admin(namesrv=cluster.namesrv, clock=clock) as admin:
        yield admin


def queues(admin):
    return [f"{q.broker_name}:{q.queue_id}" for q in admin.queues("orders")]


def brokers(admin):
    return [row.broker_name for row in admin.brokers()]


def test_a_queue_that_is_added_is_seen_after_30_seconds(cluster, admin, clock):
    assert queues(admin) == ["broker-a:0", "broker-b:0"]
    cluster.broker("broker-a").set_queues("orders", read=2)
    clock.advance(29_999)
    assert queues(admin) == ["broker-a:0", "broker-b:0"]
    clock.advance(1)
    assert queues(admin) == ["broker-a:0", "broker-a:1", "broker-b:0"]


def test_a_broker_that_leaves_and_comes_back_is_seen(cluster, admin, clock):
    assert brokers(admin) == ["broker-a", "broker-b"]
    assert queues(admin) == ["broker-a:0", "broker-b:0"]
    cluster.broker("broker-b").kill()
    clock.advance(30_000)
    assert brokers(admin) == ["broker-a"]
    assert queues(admin) == ["broker-a:0"]
    cluster.broker("broker-b").restart()
    clock.advance(30_000)
    assert brokers(admin) == ["broker-a", "broker-b"]
    assert queues(admin) == ["broker-a:0", "broker-b:0"]


def test_a_master_at_another_address_is_asked(rmq_cluster, clock):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["a"])
    rmq_cluster.add_slave()
    queue = MessageQueue("orders", "broker-a", 0)
    with Admin(namesrv=rmq_cluster.namesrv, clock=clock) as admin:
        assert admin.message_at(queue, 0).body == b"a"
        rmq_cluster.fail_over()
        with pytest.raises(TransportError):
            admin.message_at(queue, 0)
        clock.advance(30_000)
        assert admin.message_at(queue, 0).body == b"a"


def test_a_topic_that_is_deleted_is_not_found(cluster, admin, clock):
    assert queues(admin) == ["broker-a:0", "broker-b:0"]
    with Admin(namesrv=cluster.namesrv) as other:
        other.delete_topic("orders")
    clock.advance(30_000)
    for _ in range(2):
        with pytest.raises(NotFoundError, match="topic orders does not exist"):
            admin.queues("orders")


def test_a_broker_that_left_is_missed_in_the_lag_of_its_groups(cluster, admin):
    cluster.create_group("billing")
    cluster.send("orders", ["a"])
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for broker in cluster.brokers:
            commit = update_consumer_offset("billing", "orders", 0, commit_offset=0)
            client.invoke(broker.address, commit)
    assert admin.lag("billing").total_lag == 1
    cluster.broker("broker-b").kill()
    lag = admin.lag("billing")
    assert lag.total_lag is None
    assert lag.reason is not None
    assert "broker-b is no longer in the route" in lag.reason
    assert [(q.broker_name, q.lag) for q in lag.queues] == [
        ("broker-a", 1),
        ("broker-b", None),
    ]


def test_messages_of_a_topic_are_not_read_as_if_they_were_all(cluster):
    cluster.create_group("billing")
    for broker in cluster.brokers:
        cluster.send("orders", [broker.name], broker=broker.name, queue_id=0)
        offsets = broker.state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
    with Admin(namesrv=cluster.namesrv) as admin:
        bodies = sorted(message.body for message in admin.read("orders"))
        assert bodies == [b"broker-a", b"broker-b"]
        assert admin.lag("billing").total_lag == 2
    cluster.broker("broker-b").kill()
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(PartialError) as caught:
            next(admin.read("orders"))
        assert caught.value.message == (
            "groups had queues of orders on broker-b, which is no longer in the route"
        )
        (left,) = admin.read("orders", queues=admin.queues("orders"))
        assert left.body == b"broker-a"


def test_each_round_sees_the_queues_of_a_broker_that_does_not_answer(cluster):
    cluster.create_group("billing")
    cluster.broker("broker-b").hang()
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=700)
    with Client(config) as client:
        commit = update_consumer_offset("billing", "orders", 0, commit_offset=0)
        client.invoke(cluster.broker("broker-a").address, commit)
        gatherer = LagGatherer(client, LagQuery(groups=("billing",)))
        for queues in (1, 2):
            cluster.broker("broker-b").set_queues("orders", read=queues, write=queues)
            (group,) = gatherer.read().groups
            assert [
                (q.queue_id, q.lag)
                for q in compute_lag(group).queues
                if (q.topic, q.broker_name) == ("orders", "broker-b")
            ] == [(n, None) for n in range(queues)]
