"""The proxy's remoting port: it is name server and broker to remoting clients."""

from __future__ import annotations

import json

import pytest

from rmqcli import (
    ClientConfig,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerMessage,
)
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import ConnectError, UsageError
from rmqcli.testing import ManualClock
from rmqcli.wire.codes import RequestCode
from tests.broker.proxy.remoting import TABLE, Stage, beat
from tests.broker.wire_client import WireClient
from tests.kit import raw
from tests.kit.waiting import wait_until


@pytest.fixture(scope="module")
def cluster():
    options = ProxyOptions(remoting_port=0)
    with EmbeddedCluster(brokers=2, queues=2, proxy=options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stage(cluster):
    def create_topic(name, kind):
        attributes = {} if kind is None else {"message.type": kind}
        cluster.create_topic(name, attributes=attributes)

    return Stage(cluster.proxy.remoting_address, create_topic)


@pytest.mark.parametrize("name", TABLE)
def test_embedded_proxy(stage, name):
    row = TABLE[name]
    assert row.act(stage) == row.expected


def test_a_route_names_the_proxy_for_every_broker(cluster):
    cluster.create_topic("routed")
    address = cluster.proxy.remoting_address
    answer = raw.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "routed"})
    brokers = json.loads(answer.body.replace(b'{0:"', b'{"0":"'))["brokerDatas"]
    assert {each["brokerName"]: each["brokerAddrs"] for each in brokers} == {
        "broker-a": {"0": address},
        "broker-b": {"0": address},
    }


def test_a_oneway_request_is_passed_on_and_not_answered(cluster):
    cluster.create_topic("committed", queues=1)
    cluster.create_group("g")
    place = {"consumerGroup": "g", "topic": "committed", "queueId": 0}
    with WireClient(cluster.proxy.remoting_address) as client:
        fields = {**place, "bname": "broker-a"}
        commit = {**fields, "commitOffset": 0}
        client.send(RequestCode.UPDATE_CONSUMER_OFFSET, flag=2, **commit)
        # Nothing else is received, and requests overtake each other.
        wait_until(
            lambda: client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields).code == 0
        )
    assert (
        cluster.call(lambda: cluster.broker().state.offsets.query("g", "committed", 0))
        == 0
    )


def test_a_producer_and_a_consumer_work_through_the_port(cluster):
    cluster.create_topic("orders")
    client = ClientConfig(namesrv=(cluster.proxy.remoting_address,))
    with Producer("shop", client=client) as producer:
        for number in range(20):
            producer.send(ProducerMessage("orders", b"%d" % number))
    found = set()
    config = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with Consumer("billing", "orders", client=client, config=config) as consumer:
        for message in consumer:
            found.add(message.body)
            if len(found) == 20:
                break
    assert found == {b"%d" % number for number in range(20)}


def test_a_member_without_a_heartbeat_for_120_s_is_forgotten(start):
    cluster = start(clock=ManualClock(), proxy=ProxyOptions(remoting_port=0))
    address = cluster.proxy.remoting_address
    with raw.Link(address) as silent, raw.Link(address) as alive:

        def members():
            code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            answer = alive.ask(code, {"consumerGroup": "g"})
            return json.loads(answer.body)["consumerIdList"] if answer.body else None

        beat(silent, "silent", "g")
        beat(alive, "alive", "g")
        cluster.advance(60_000)
        beat(alive, "alive", "g")
        cluster.advance(60_000)
        assert members() == ["silent", "alive"]
        cluster.advance(6_000)
        wait_until(lambda: members() == ["alive"])
        cluster.advance(60_000)
        wait_until(lambda: members() is None)


def test_a_killed_broker_fails_only_its_own_requests():
    options = ProxyOptions(remoting_port=0)
    with EmbeddedCluster(brokers=2, queues=1, proxy=options) as cluster:
        cluster.create_topic("T")
        address = cluster.proxy.remoting_address

        def ask(broker):
            fields = {"topic": "T", "queueId": "0", "bname": broker}
            return raw.ask(address, RequestCode.GET_MAX_OFFSET, fields)

        assert ask("broker-a").ext_fields["offset"] == "0"
        cluster.broker("broker-a").kill()
        assert ask("broker-a").code == 1
        assert ask("broker-b").ext_fields["offset"] == "0"
        cluster.broker("broker-a").restart()
        wait_until(lambda: ask("broker-a").code == 0)


def test_a_taken_port_is_named(cluster):
    taken = int(cluster.proxy.remoting_address.rpartition(":")[2])
    with pytest.raises(ConnectError, match="the port is taken"):
        EmbeddedCluster(proxy=ProxyOptions(remoting_port=taken))


def test_a_proxy_without_the_port_says_so():
    with (
        EmbeddedCluster(proxy=True) as cluster,
        pytest.raises(UsageError, match="the proxy has no remoting port"),
    ):
        assert cluster.proxy.remoting_address


def test_a_port_that_checks_no_accounts_is_refused_with_accounts():
    with pytest.raises(UsageError, match="does not check accounts"):
        ProxyOptions(remoting_port=0, accounts={"key": "secret"})
