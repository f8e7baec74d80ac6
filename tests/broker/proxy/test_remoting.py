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
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from tests.broker.proxy.remoting import PULL, SEND, TABLE, Stage, beat
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
        client.send(RequestCode.UPDATE_CONSUMER_OFFSET, frame_flag=2, **commit)
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


@pytest.mark.parametrize("leave", ["unregister", "close"])
def test_a_member_that_leaves_is_forgotten(cluster, leave):
    address = cluster.proxy.remoting_address
    fields = {"consumerGroup": f"left-by-{leave}"}

    def code():
        return raw.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields).code

    with raw.Link(address) as link:
        beat(link, "me", fields["consumerGroup"])
        assert code() == 0
        if leave == "unregister":
            asked = {"clientID": "me", **fields}
            assert link.ask(RequestCode.UNREGISTER_CLIENT, asked).code == 0
            assert code() == 1
    wait_until(lambda: code() == 1)


@pytest.mark.parametrize(
    ("kind", "expression", "found"),
    [("TAG", "A", b"1"), ("TAG", "*", b"12"), ("SQL92", "TAGS = 'A'", b"1")],
)
def test_a_pull_has_the_subscription_of_the_heartbeats(start, kind, expression, found):
    cluster = start(
        proxy=ProxyOptions(remoting_port=0),
        settings={"enable_property_filter": True},
    )
    cluster.create_topic("T", queues=1)
    cluster.create_group("g")
    for tag, body in (("A", "1"), ("B", "2")):
        cluster.send("T", [body], tags=tag)
    subscription = {
        "topic": "T",
        "subString": expression,
        "expressionType": kind,
        "tagsSet": ["A"] if expression == "A" else [],
        "codeSet": [65] if expression == "A" else [],
        "subVersion": 1,
    }
    with raw.Link(cluster.proxy.remoting_address) as link:
        beat(link, "me", "g", subscription=subscription)
        fields = {"consumerGroup": "g", "topic": "T", "bname": "broker-a"}
        pull = {**PULL, "queueId": "0", "maxMsgNums": "32", "sysFlag": "0"}
        answer = link.ask(RequestCode.PULL_MESSAGE, {**pull, **fields})
    assert answer.code == 0
    messages = decode_messages(answer.body)
    bodies = [each.raw_body for each in messages if isinstance(each, StoredMessage)]
    assert b"".join(bodies) == found


def test_a_half_message_is_refused(cluster):
    cluster.create_topic("halves", attributes={"message.type": "TRANSACTION"})
    fields = {
        **SEND,
        "topic": "halves",
        "bname": "broker-a",
        "properties": "TRAN_MSG\x01true\x02",
    }
    address = cluster.proxy.remoting_address
    answer = raw.ask(address, RequestCode.SEND_MESSAGE, fields, body=b"x")
    assert (answer.code, answer.remark) == (
        13,
        "the embedded proxy serves transactions over gRPC only",
    )


@pytest.mark.parametrize(("transferred", "code"), [("", 13), ("true", 0)])
def test_only_a_message_that_is_transferred_may_have_another_type(
    cluster, transferred, code
):
    topic = f"orderly{transferred}"
    cluster.create_topic(topic, attributes={"message.type": "FIFO"})
    mark = f"TRANSFER_FLAG\x01{transferred}\x02" if transferred else ""
    fields = {**SEND, "topic": topic, "bname": "broker-a", "properties": mark}
    address = cluster.proxy.remoting_address
    assert raw.ask(address, RequestCode.SEND_MESSAGE, fields, body=b"x").code == code


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [("short", "", 13), ("short", "x", 0), ("%RETRY%short", "x", 0)],
)
def test_a_request_with_short_names_is_checked_as_one_with_long_names(
    cluster, topic, group, code
):
    """A message needs a message group; a topic of retries has no type to check."""
    cluster.create_topic("short", attributes={"message.type": "FIFO"})
    cluster.create_topic("%RETRY%short")
    values = ["P", topic, "TBW102", "4", "0", "0", "0", "0"]
    values.append(f"__SHARDINGKEY\x01{group}\x02" if group else "")
    fields = {**dict(zip("abcdefghi", values, strict=True)), "n": "broker-a"}
    address = cluster.proxy.remoting_address
    sent = raw.ask(address, RequestCode.SEND_MESSAGE_V2, fields, body=b"x")
    assert sent.code == code


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
