"""Which address of a broker the client reads from, and which route it relies on."""

from __future__ import annotations

import pytest

from rmqcli.api.routes import RouteCache, reading_address
from rmqcli.model import BrokerData, TopicRoute


def broker(name="b-a", **addresses):
    table = {int(key[1:]): address for key, address in addresses.items()}
    return BrokerData(cluster="C", broker_name=name, addresses=table)


def route(topic, *brokers):
    return TopicRoute(topic=topic, brokers=brokers, queues=())


@pytest.mark.parametrize(
    ("suggested", "without", "found"),
    [
        (0, (), (0, "master:1")),
        (1, (), (1, "slave:1")),
        (2, (), (3, "slave:3")),  # the next id, as in Java
        (99, (), (0, "master:1")),  # unknown id, so the master
        (0, ("master:1",), (1, "slave:1")),
        (1, ("slave:1",), (0, "master:1")),
        (0, ("master:1", "slave:1", "slave:3"), None),
    ],
)
def test_a_suggested_broker_is_read_from_else_the_master(suggested, without, found):
    group = broker(_0="master:1", _1="slave:1", _3="slave:3")
    assert reading_address(group, suggested, without=without) == found


def test_a_slave_is_read_from_while_there_is_no_master():
    assert reading_address(broker(_3="slave:3", _2="slave:2")) == (2, "slave:2")
    assert reading_address(broker()) is None


def test_the_route_that_was_remembered_last_says_where_a_broker_is():
    cache = RouteCache()
    cache.remember(route("A", broker(_0="old:1")))
    cache.remember(route("B", broker(_0="new:1"), broker("b-b", _0="other:1")))
    assert cache.broker("b-a") == broker(_0="new:1")
    assert cache.addresses_by_broker() == {
        "b-a": ["new:1", "old:1"],
        "b-b": ["other:1"],
    }

    replaced = cache.remember(route("A", broker(_0="newest:1")))

    assert replaced == route("A", broker(_0="old:1"))
    assert cache.broker("b-a") == broker(_0="newest:1")
    assert cache.topics() == ["B", "A"]


def test_a_broker_without_an_address_is_not_known():
    cache = RouteCache()
    cache.remember(route("A", broker()))
    assert cache.broker("b-a") is None
    assert cache.brokers("A") == []
    assert cache.brokers("B") == []
    assert cache.forget("A") == route("A", broker())
    assert cache.topics() == []
