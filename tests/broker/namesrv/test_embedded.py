"""Brokers of this process register with its name server without requests."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.config import TopicConfig
from tests.broker.driving import START, Driver, need

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.state.broker import BrokerState


def config(nums):
    return TopicConfig(topic_name="t", read_queue_nums=nums, write_queue_nums=nums)


def embedded(
    name: str = "broker-a",
    *,
    on_topics_changed: Callable[[], None] | None = None,
    **fields: object,
) -> BrokerState:
    settings = BrokerSettings(broker_name=name, **fields)  # type: ignore[arg-type]  # TypeError names a wrong one
    return Driver(settings, on_topics_changed=on_topics_changed).broker


def test_a_broker_of_this_process_registers_its_topics():
    server = NameServer(START, requests=NAMESRV_REQUESTS)
    broker = embedded()
    broker.topics.put(config(4))

    server.register(broker, START)

    route = need(server.routes.route("t"))
    assert route.brokers[0].addresses == {0: "127.0.0.1:10911"}
    assert route.queues[0].write_queue_nums == 4
    assert need(server.routes.route("TBW102")).queues[0].perm == 7
    assert server.routes.clusters() == {"DefaultCluster": ["broker-a"]}


def test_a_changed_topic_changes_the_route():
    server = NameServer(START, requests=NAMESRV_REQUESTS)
    broker = embedded(on_topics_changed=lambda: server.register(broker, START))

    broker.topics.put(config(4))
    broker.topics.put(config(8))

    assert need(server.routes.route("t")).queues[0].read_queue_nums == 8


def test_a_broker_of_this_process_needs_no_heartbeat():
    server = NameServer(START, requests=NAMESRV_REQUESTS)
    server.register(embedded(), START)
    later = START._replace(monotonic_ms=10_000_000)

    assert server.run_due(later) == []

    assert server.routes.route("TBW102") is not None


def test_the_topics_of_an_unregistered_broker_are_forgotten():
    server = NameServer(START, requests=NAMESRV_REQUESTS)
    one, two = embedded(), embedded("broker-b", address="127.0.0.1:10921")
    server.register(one, START)
    server.register(two, START)

    server.unregister(one, START)

    assert [q.broker_name for q in need(server.routes.route("TBW102")).queues] == [
        "broker-b"
    ]
    assert "broker-a" not in server.routes.topics()


def test_a_slave_keeps_the_route_when_its_master_dies():
    server = NameServer(START, requests=NAMESRV_REQUESTS)
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
