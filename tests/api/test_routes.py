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


def test_an_address_is_that_of_a_broker_in_any_route():
    cache = RouteCache()
    cache.remember(route("A", broker(), broker("b-b", _0="b:1", _1="b:2")))
    cache.remember(route("B", broker(_0="a:1")))
    for address, is_known in (("b:2", True), ("a:1", True), ("c:1", False)):
        assert cache.has_broker_at(address) is is_known
    assert cache.brokers("A") == [broker("b-b", _0="b:1", _1="b:2")]
    assert cache.broker("b-c") is None
    assert cache.broker("b-b") == broker("b-b", _0="b:1", _1="b:2")
    assert cache.forget("C") is None


def test_the_address_of_a_master_comes_first():
    cache = RouteCache()
    cache.remember(route("A", broker(_1="slave:1", _0="master:1")))
    assert cache.addresses_by_broker() == {"b-a": ["master:1", "slave:1"]}


def test_a_broker_without_an_address_is_not_known():
    cache = RouteCache()
    cache.remember(route("A", broker()))
    assert cache.broker("b-a") is None
    assert cache.brokers("A") == []
    assert cache.brokers("B") == []
    assert cache.forget("A") == route("A", broker())
    assert cache.topics() == []
