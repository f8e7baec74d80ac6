"""Whether two routes, read at different times, belong to the same cluster."""

from __future__ import annotations

import pytest

from rmqcli.admin.reset.cluster_identity import (
    ClusterIdentity,
    identity_json,
    identity_of,
    is_same_cluster,
    parse_identity,
)
from rmqcli.model import BrokerData, TopicRoute

THEN = ClusterIdentity(
    ("C",), {"a": ("10.0.0.1:10911", "10.0.0.2:10911"), "b": ("x:1",)}
)


def test_a_route_tells_names_and_addresses():
    brokers = (
        BrokerData(cluster="D", broker_name="b", addresses={0: "x:1"}),
        BrokerData(cluster="C", broker_name="a", addresses={1: "s:2", 0: "m:1"}),
    )
    found = identity_of(TopicRoute(topic="T", brokers=brokers, queues=()))
    assert found == ClusterIdentity(("C", "D"), {"a": ("m:1", "s:2"), "b": ("x:1",)})
    assert str(found) == "C, D (a m:1 s:2, b x:1)"


def test_a_large_cluster_is_described_in_one_line():
    brokers = {name: (f"{name}:1",) for name in "abcde"}
    assert str(ClusterIdentity(("C",), brokers)) == "C (a a:1, b b:1, c c:1 and 2 more)"


@pytest.mark.parametrize(
    ("names", "brokers", "is_same"),
    [
        (("C",), {"a": ("10.0.0.1:10911",)}, True),
        (("C",), {"a": ("10.0.0.2:10911",)}, True),  # only the slave remains
        (("C", "D"), {"a": ("other:1",), "b": ("x:1",), "c": ("y:1",)}, True),
        (("C",), {"a": ("10.0.0.1:10912",), "b": ("x:2",)}, False),  # all have moved
        (("D",), {"a": ("10.0.0.1:10911",)}, False),
        (("C",), {"b": ("10.0.0.1:10911",)}, False),  # now another broker's address
        (("C",), {}, False),
    ],
)
def test_one_unchanged_broker_of_the_same_cluster_name_decides(names, brokers, is_same):
    now = ClusterIdentity(names, brokers)
    assert is_same_cluster(THEN, now) is is_same
    assert is_same_cluster(now, THEN) is is_same


def test_a_file_keeps_it():
    assert parse_identity(identity_json(THEN)) == THEN


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "C",
        {},
        {"names": "C", "brokers": {}},
        {"names": [], "brokers": []},
        {"names": [], "brokers": {"a": "x:1"}},
    ],
)
def test_another_shape_is_an_error(data):
    with pytest.raises(TypeError):
        parse_identity(data)
