"""Brokers of this process at the name server."""

from __future__ import annotations

import dataclasses

from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.config import TopicConfig
from tests.broker.driving import START, Driver, need


def config(nums):
    return TopicConfig(topic_name="t", read_queue_nums=nums, write_queue_nums=nums)


def embedded(name="broker-a", **fields):
    return Driver(BrokerSettings(broker_name=name, **fields)).broker


def test_a_broker_brings_its_topics():
    server = NameServer(START)
    broker = embedded()
    broker.topics.put(config(4))

    server.register(broker, START)

    route = need(server.routes.route("t"))
    assert route.brokers[0].addresses == {0: "127.0.0.1:10911"}
    assert route.queues[0].write_queue_nums == 4
    assert need(server.routes.route("TBW102")).queues[0].perm == 7
    assert server.routes.clusters() == {"DefaultCluster": ["broker-a"]}


def test_a_change_of_topics_is_seen():
    server = NameServer(START)
    broker = embedded()
    broker.on_topics_changed = lambda: server.register(broker, START)

    broker.topics.put(config(4))
    broker.topics.put(config(8))

    assert need(server.routes.route("t")).queues[0].read_queue_nums == 8


def test_a_broker_of_this_process_needs_no_heartbeat():
    server = NameServer(START)
    server.register(embedded(), START)
    later = START._replace(monotonic_ms=10_000_000)

    assert server.run_due(later) == []

    assert server.routes.route("TBW102") is not None


def test_a_broker_that_leaves_takes_its_topics_along():
    server = NameServer(START)
    one, two = embedded(), embedded("broker-b", address="127.0.0.1:10921")
    server.register(one, START)
    server.register(two, START)

    server.unregister(one, START)

    assert [q.broker_name for q in need(server.routes.route("TBW102")).queues] == [
        "broker-b"
    ]
    assert "broker-a" not in server.routes.topics()


def test_a_slave_keeps_the_route_when_its_master_dies():
    server = NameServer(START)
    master = embedded()
    settings = dataclasses.replace(
        master.settings, broker_id=1, address="127.0.0.1:10931"
    )
    server.register(master, START)
    server.register(Driver(settings).broker, START)

    server.unregister(master, START)

    assert need(server.routes.route("TBW102")).brokers[0].addresses == {
        1: "127.0.0.1:10931"
    }
