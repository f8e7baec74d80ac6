"""Where messages go: known topics, topics that a broker will create, shards."""

from __future__ import annotations

import pytest

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import BodyError, DeniedError, NotFoundError, UsageError
from rmqcli.model import BrokerData, QueueData, TopicRoute
from rmqcli.producer.message import OutgoingMessage
from rmqcli.producer.remoting.target import (
    find_target,
    queues_of_new_topic,
    shard_of,
)
from rmqcli.queue_selector import QueueSelector
from rmqcli.wire.bodies.route import parse_topic_route
from rmqcli.wire.codes import RequestCode
from tests.transport.peer import Peer


@pytest.mark.parametrize(
    ("body", "properties", "shard"),
    [
        # abs(String.hashCode()) % 8: "a" is 97, "7" is 55.
        (b'{"k":"a"}', {}, 1),
        (b'{"k":7}', {}, 7),
        (b'{"k":true}', {}, 6),  # "true" is 3569038
        ('{"k":{"b":"é","a":1}}'.encode(), {}, 1),  # {"a":1,"b":"é"} is -736879257
        (b'{"k":null}', {"k": "a"}, 1),
        (b"text", {"k": "a"}, 1),
        (b"[1]", {"k": "a"}, 1),
        # The hash is Integer.MIN_VALUE, whose abs stays negative in Java.
        (b'{"k":"polygenelubricants"}', {}, 0),
    ],
)
def test_shard(body, properties, shard):
    assert shard_of(OutgoingMessage(body, properties), "k", shards=8) == shard


@pytest.mark.parametrize(("group", "shard"), [("a", 0), ("group-1", 1), ("订单", 1)])
def test_a_message_group_goes_to_the_queue_of_proxies(group, shard):
    message = OutgoingMessage(b"x", {"__SHARDINGKEY": group})
    assert shard_of(message, "__SHARDINGKEY", shards=4) == shard


def test_a_message_without_the_field_is_named():
    with pytest.raises(
        UsageError, match="line 4: neither the body nor the properties have 'k'"
    ):
        shard_of(OutgoingMessage(b'{"j":1}', source="line 4"), "k", shards=8)


def route_of(perm=6, queues=2, topics=("T",)):
    counts = f'"perm":{perm},"readQueueNums":{queues},"writeQueueNums":{queues}'
    body = (
        '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:1"},"brokerName":"broker-a",'
        '"cluster":"C"}],"queueDatas":[{"brokerName":"broker-a",' + counts + "}]}"
    )

    brokers = (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"127.0.0.1:1"},'
        b'"brokerName":"broker-a","cluster":"C"}},'
        b'"clusterAddrTable":{"C":["broker-a"]}}'
    )

    def script(connection):
        for request in connection.requests():
            if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
                connection.answer(request, code=0, ext_fields={}, body=brokers)
                continue
            known = request.ext_fields["topic"] in topics
            connection.answer(
                request,
                code=0 if known else 17,
                ext_fields={},
                body=body.encode() if known else b"",
            )

    return script


def found_target(script, *selectors):
    with Peer(script) as peer, Client(ClientConfig(namesrv=(peer.address,))) as client:
        return find_target(client, "T", selectors, may_create=True)


def test_target_of_a_known_topic():
    target = found_target(route_of())
    assert [q.queue_id for q in target.queues] == [0, 1]
    assert target.addresses == {"broker-a": "127.0.0.1:1"}
    assert not target.is_new


def test_target_of_a_topic_that_will_be_created():
    """TBW102 has 8 queues and a new topic gets the 4 that a producer asks for."""
    target = found_target(route_of(perm=7, queues=8, topics=("TBW102",)))
    assert [q.queue_id for q in target.queues] == [0, 1, 2, 3]
    assert target.is_new


@pytest.mark.parametrize(("perm", "broker_id"), [(4, "0"), (7, "1")])
def test_a_topic_is_created_where_a_master_takes_messages(perm, broker_id):
    """TBW102 of broker-b is only read, or only a slave of broker-b is left."""
    route = parse_topic_route(
        "TBW102",
        b'{"brokerDatas":['
        b'{"brokerAddrs":{"0":"it:1"},"brokerName":"broker-a","cluster":"C"},'
        b'{"brokerAddrs":{"%s":"it:2"},"brokerName":"broker-b","cluster":"C"}],'
        b'"queueDatas":['
        b'{"brokerName":"broker-a","perm":7,"readQueueNums":8,"writeQueueNums":8},'
        b'{"brokerName":"broker-b","perm":%d,"readQueueNums":8,"writeQueueNums":8}]}'
        % (broker_id.encode(), perm),
    )
    found = queues_of_new_topic("T", route, queue_nums=2)
    assert [(q.topic, q.broker_name, q.queue_id) for q in found] == [
        ("T", "broker-a", 0),
        ("T", "broker-a", 1),
    ]


def test_no_topic_and_nobody_who_creates_it():
    with pytest.raises(NotFoundError) as caught:
        found_target(route_of(topics=()))
    assert "use: Admin.create_topic()" in caught.value.hint


def test_a_topic_that_may_only_be_read():
    with pytest.raises(DeniedError, match="no writable queue"):
        found_target(route_of(perm=4))


def test_a_queue_that_is_not_there():
    with pytest.raises(NotFoundError, match="queue 9 does not exist"):
        found_target(route_of(), QueueSelector(None, 9))


def fixed(text, *names):
    brokers = tuple(
        BrokerData(cluster="c", broker_name=name, addresses={0: f"{name}:1"})
        for name in names
    )
    queues = tuple(
        QueueData(broker_name=n, read_queue_nums=8, write_queue_nums=8, perm=6)
        for n in names
    )
    return TopicRoute(topic="T", brokers=brokers, queues=queues, order_topic_conf=text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # b-b is away; Java's producer leaves it in the list, which hashes count on.
        ("b-b:1;b-a:2", [("b-b", 0), ("b-a", 0), ("b-a", 1)]),
        ("b-a:1;", [("b-a", 0)]),
        ("b-a:0", []),
    ],
)
def test_queues_that_a_name_server_has_fixed_are_those_to_send_to(text, expected):
    """A key went to another queue than from Java's producers."""
    found = fixed(text, "b-a").write_queues()
    assert [(each.broker_name, each.queue_id) for each in found] == expected


@pytest.mark.parametrize("text", ["b-a", "b-a:x", ":1", "b-a:65536", "b-a:1;;b-b:1"])
def test_fixed_queues_that_cannot_be_read_are_an_error(text):
    with pytest.raises(BodyError, match="topic T has fixed queues that are not BROKER"):
        fixed(text, "b-a").write_queues()


def found_fixed(text):
    with Client(ClientConfig(namesrv=("127.0.0.1:1",))) as client:
        client.remember("T", fixed(text, "b-a"))
        return find_target(client, "T")


def test_a_target_of_fixed_queues_has_the_addresses_of_the_brokers_that_are_there():
    target = found_fixed("b-b:1;b-a:1")
    assert [each.broker_name for each in target.queues] == ["b-b", "b-a"]
    assert target.addresses == {"b-a": "b-a:1"}


def test_fixed_queues_of_which_no_broker_is_there_are_not_found():
    with pytest.raises(NotFoundError, match="broker b-b of topic T currently has no"):
        found_fixed("b-b:1")


@pytest.mark.slow
def test_more_fixed_queues_than_fit_into_memory_are_refused():
    text = ";".join(f"b{n}:65535" for n in range(20))
    with pytest.raises(BodyError, match="route with more than 1048576 fixed queues"):
        fixed(text, "b-a").write_queues()
