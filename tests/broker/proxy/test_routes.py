"""QueryRoute and QueryAssignment: which queues there are, and what each allows."""

from __future__ import annotations

import pytest

from rmqcli.broker.proxy import routes
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import code_of, consumer_settings, message, resource

READ, WRITE, BOTH, NONE = "READ", "WRITE", "READ_WRITE", "NONE"
READABLE, WRITABLE = 4, 2


def permissions(queues):
    return [d.Permission.Name(each.permission) for each in queues]


def assignment(client, topic, group="G", endpoints=None):
    request = s.QueryAssignmentRequest(topic=resource(topic), group=resource(group))
    if endpoints is not None:
        request.endpoints.CopyFrom(endpoints)
    return client.call("QueryAssignment", request)


@pytest.mark.parametrize(
    ("read", "write", "perm", "expected"),
    [
        (2, 2, 6, [BOTH, BOTH]),
        (3, 1, 6, [READ, READ, BOTH]),
        (1, 3, 6, [WRITE, WRITE, BOTH]),
        (2, 0, 6, [READ, READ]),
        (2, 3, READABLE, [READ, READ]),
        (2, 3, WRITABLE, [WRITE] * 3),
        (2, 3, 0, [NONE] * 3),
        (3, 2, 0, [NONE] * 3),
        (0, 0, 0, [NONE]),
    ],
)
def test_each_queue_says_what_may_be_done_with_it(
    cluster, client, read, write, perm, expected
):
    cluster.create_topic("T", read_queue_nums=read, write_queue_nums=write, perm=perm)
    queues = client.route("T").message_queues
    assert permissions(queues) == expected
    assert [each.id for each in queues] == list(range(len(expected)))


@pytest.mark.parametrize(
    ("perm", "is_ordered", "expected"),
    [
        (6, False, [(-1, BOTH)]),
        (READABLE, False, [(-1, READ)]),
        (6, True, [(0, BOTH), (1, BOTH)]),
        (READABLE, True, [(0, READ), (1, READ)]),
    ],
)
def test_an_assignment_is_of_a_broker_or_of_each_queue_in_order(
    cluster, client, perm, is_ordered, expected
):
    cluster.create_topic("T", queues=2, perm=perm)
    cluster.create_group("G", consume_message_orderly=is_ordered)
    queues = [each.message_queue for each in assignment(client, "T").assignments]
    found = [each.id for each in queues]
    assert list(zip(found, permissions(queues), strict=True)) == expected
    assert {(each.broker.name, each.broker.id) for each in queues} == {("broker-a", 0)}


@pytest.mark.parametrize("fields", [{"perm": WRITABLE}, {"read_queue_nums": 0}])
def test_a_topic_that_cannot_be_read_has_no_assignment(cluster, client, fields):
    cluster.create_topic("T", **fields)
    client.telemetry(consumer_settings("G", "T"))
    assert code_of(assignment(client, "T")) == "FORBIDDEN"
    assert client.receive("G", "T").code == "FORBIDDEN"


def test_clients_are_told_the_address_that_they_asked(cluster, client):
    """Else that of the proxy, which may be behind another one."""
    cluster.create_topic("T", queues=1)
    asked = d.Endpoints(
        scheme=d.AddressScheme.IPv4, addresses=[d.Address(host="10.0.0.1", port=443)]
    )
    request = s.QueryRouteRequest(topic=resource("T"), endpoints=asked)
    (queue,) = client.call("QueryRoute", request).message_queues
    (assigned,) = assignment(client, "T", endpoints=asked).assignments
    assert queue.broker.endpoints == assigned.message_queue.broker.endpoints == asked
    (queue,) = client.route("T").message_queues
    (address,) = queue.broker.endpoints.addresses
    assert queue.broker.endpoints.scheme == d.AddressScheme.IPv4
    assert f"{address.host}:{address.port}" == cluster.endpoints


def test_receives_that_name_no_broker_take_turns(start, connect):
    cluster = start(brokers=3)
    cluster.create_topic("T", queues=1)
    client = connect(cluster)
    client.telemetry(consumer_settings("G", "T"))
    pops = cluster.faults.observe(code=200050)
    for name in ("broker-b", "", "", "gone", ""):
        for broker in ("broker-a", "broker-b", "broker-c"):
            cluster.send("T", ["x"], broker=broker)
        assert client.receive("G", "T", broker_name=name).code == "OK"
    first, *others = [each.broker for each in pops.requests]
    assert first == "broker-b"
    assert others == ["broker-a", "broker-b", "broker-c", "broker-a"]


def test_a_route_and_a_type_are_known_for_a_second(start, connect):
    clock = ManualClock()
    cluster = start(clock=clock)
    cluster.create_topic("T", queues=1)
    client = connect(cluster)
    asked = cluster.faults.observe(code=105)
    for passed_ms, count, queues in ((0, 1, 1), (1_000, 1, 1), (1, 2, 2)):
        cluster.advance(passed_ms)
        assert len(client.route("T").message_queues) == queues
        assert len(asked.requests) == count
        cluster.create_topic("T", queues=2)


def test_what_is_known_of_topics_is_bounded(cluster, client, monkeypatch):
    monkeypatch.setattr(routes, "KEPT_MAX", 2)
    for topic in ("A", "B", "C"):
        cluster.create_topic(topic, queues=1)
    asked = cluster.faults.observe(code=105)
    for topic, count in (("A", 1), ("B", 2), ("B", 2), ("C", 3), ("C", 3), ("A", 4)):
        client.route(topic)
        assert len(asked.requests) == count, topic


def test_a_topic_of_an_unknown_type_accepts_what_the_client_decides(cluster, client):
    cluster.create_topic("T", queues=1, attributes={"message.type": "other"})
    (queue,) = client.route("T").message_queues
    kinds = [d.MessageType.Name(each) for each in queue.accept_message_types]
    assert kinds == ["MESSAGE_TYPE_UNSPECIFIED"]
    answer = client.send(message("T"))
    assert code_of(answer) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    assert "the expected type is OTHER" in answer.status.message


def test_groups_are_known_if_any_broker_knows_them(start, connect):
    cluster = start(brokers=2, settings={"auto_create_subscription_group": False})
    cluster.create_topic("T", queues=2)
    client = connect(cluster)
    cluster.broker("broker-a").kill()
    cluster.create_group("G", consume_message_orderly=True)
    cluster.broker("broker-a").restart()
    answer = client.telemetry(consumer_settings("G", "T")).answer.settings
    assert answer.subscription.fifo
