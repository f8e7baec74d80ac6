"""The embedded cluster starts at once, does what a test asks, and leaves nothing."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.broker.faults import answer
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import BrokerError, ConnectError, UsageError
from rmqcli.testing import ManualClock
from rmqcli.wire.bodies.route import parse_topic_route
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.broker.wire_client import WireClient
from tests.kit.ports import need_ipv6
from tests.kit.waiting import wait_until

PULL, ROUTE, MAX_OFFSET = 11, 105, 30


@pytest.fixture
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


def route(cluster, topic):
    with WireClient(cluster.namesrv) as client:
        got = client.ask(ROUTE, topic=topic)
    return parse_topic_route(topic, got.body) if got.code == 0 else None


def pull(client, topic, queue_id, offset, *, suspend_ms=0):
    return client.ask(
        PULL,
        consumerGroup="g",
        topic=topic,
        queueId=queue_id,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=6 if suspend_ms else 4,
        commitOffset=0,
        suspendTimeoutMillis=suspend_ms,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )


def bodies(address, topic, queue_id=0, offset=0):
    with WireClient(address) as client:
        got = pull(client, topic, queue_id, offset)
    return bodies_in(got)


def bodies_in(command):
    messages = decode_messages(command.body)
    assert all(isinstance(m, StoredMessage) for m in messages)
    return [m.body for m in messages if isinstance(m, StoredMessage)]


def test_a_topic_has_its_queues_on_every_broker():
    with EmbeddedCluster(brokers=2, queues=4) as cluster:
        cluster.create_topic("orders")
        found = route(cluster, "orders")
        assert {q.broker_name for q in found.queues} == {"broker-a", "broker-b"}
        assert {q.read_queue_nums for q in found.queues} == {4}
        assert {b.addresses[0] for b in found.brokers} == {
            cluster.broker("broker-a").address,
            cluster.broker("broker-b").address,
        }


def test_send_returns_the_places_of_its_messages(cluster):
    cluster.create_topic("orders", queues=1)
    placed = cluster.send("orders", ["a", b"b", Seed(body=b"c", tags="T", keys="k")])
    assert [p.queue_offset for p in placed] == [0, 1, 2]
    assert len({p.msg_id for p in placed}) == 3
    assert bodies(cluster.broker().address, "orders") == [b"a", b"b", b"c"]


def test_sent_messages_go_to_all_queues_in_turn():
    with EmbeddedCluster(brokers=2, queues=2) as cluster:
        cluster.create_topic("orders")
        placed = cluster.send("orders", [str(n) for n in range(8)])
        assert {(p.broker_name, p.queue_id, p.queue_offset) for p in placed} == {
            (name, queue, offset)
            for name in ("broker-a", "broker-b")
            for queue in (0, 1)
            for offset in (0, 1)
        }


def test_a_sent_message_wakes_a_held_pull(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["first"])
    got = []

    def hold():
        with WireClient(cluster.broker().address) as client:
            got.append(pull(client, "orders", 0, 1, suspend_ms=15_000))

    thread = threading.Thread(target=hold)
    thread.start()
    cluster.send("orders", ["second"])
    thread.join(10)
    assert bodies_in(got[0]) == [b"second"]


def test_a_refused_send_raises_with_its_code(cluster):
    cluster.create_topic("orders")
    with pytest.raises(BrokerError, match=r"queueId\[99\] is illegal") as caught:
        cluster.send("orders", ["x"], queue_id=99)
    assert caught.value.code == 29


def test_many_starts_and_ends_leave_no_thread_and_are_fast():
    began = time.process_time()
    addresses = []
    for _ in range(10):
        with EmbeddedCluster() as cluster:
            addresses.append(cluster.namesrv)
        cluster.close()
    assert (time.process_time() - began) / 10 < 0.05
    assert not [t for t in threading.enumerate() if t.name == "rmq-broker-io"]
    host, port = addresses[0].split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_taken_port_leaves_nothing_behind(cluster):
    port = int(cluster.namesrv.split(":")[1])
    with pytest.raises(ConnectError, match="the port is taken"):
        EmbeddedCluster(namesrv_port=port)
    with pytest.raises(ConnectError, match="the port is taken"):
        EmbeddedCluster(broker_ports=(port,))
    names = [t.name for t in threading.enumerate()]
    assert names.count("rmq-broker-io") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokers": 0}, "brokers is 0; it must be 1 to 26"),
        ({"queues": 0}, "queues is 0; it must be 1 to 65535"),
        ({"flush": "maybe"}, "flush is 'maybe'; it must be 'async' or 'sync'"),
        ({"like": "4.5.0"}, "RocketMQ version '4.5.0' is not supported"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        EmbeddedCluster(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "folder"}, "store is 'folder', a str; it must be a Path or None"),
        ({"brokers": "2"}, "brokers is '2', a str"),
        ({"broker_ports": 10911}, "broker_ports is 10911, an int"),
    ],
)
def test_options_of_a_wrong_type_are_named(options, message):
    """A folder as a text was "unsupported operand type(s) for /: 'str' and 'str'"."""
    with pytest.raises(TypeError, match=re.escape(message)):
        EmbeddedCluster(**options)


@pytest.mark.parametrize("messages", ["abc", b"abc", None])
def test_a_text_is_not_a_list_of_messages(cluster, messages):
    """Each of its characters was stored as a message."""
    cluster.create_topic("orders", queues=1)
    with pytest.raises(TypeError, match=f"messages is {messages!r}"):
        cluster.send("orders", messages)
    with pytest.raises(TypeError, match="queues is '2', a str"):
        cluster.create_topic("orders", queues="2")
    assert bodies(cluster.broker().address, "orders") == []


def test_a_killed_broker_leaves_the_route_and_restarts_with_everything(cluster):
    broker = cluster.broker()
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["kept"])
    with WireClient(broker.address) as client:
        assert pull(client, "orders", 0, 0).code == 0
        broker.kill()
        assert client.is_closed_by_peer()
    assert route(cluster, "orders") is None
    with pytest.raises(UsageError, match="has no writable queue"):
        cluster.send("orders", ["x"])
    address = broker.address
    broker.restart()
    assert broker.address == address
    assert route(cluster, "orders") is not None
    cluster.send("orders", ["new"])
    assert bodies(address, "orders") == [b"kept", b"new"]


def test_the_accounts_of_a_broker_in_memory_survive_its_restart():
    """RocketMQ keeps them on the disk."""
    with EmbeddedCluster(settings={"authentication_enabled": True}) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            planned = admin.plan_user("alice", is_new=True, password="secret")
            assert admin.apply_definitions(planned).is_complete
        cluster.broker().restart()
        with Admin(namesrv=cluster.namesrv) as admin:
            assert [each.name for each in admin.accounts().entries] == ["alice"]


def test_a_hung_broker_answers_when_it_resumes(cluster):
    broker = cluster.broker()
    cluster.create_topic("orders", queues=1)
    with WireClient(broker.address) as client:
        client.ask(MAX_OFFSET, topic="orders", queueId=0)
        broker.hang()
        client.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.ask(MAX_OFFSET, topic="orders", queueId=0)
        broker.resume()
        client.sock.settimeout(10)
        assert client.receive().code == 0
    with WireClient(cluster.namesrv) as client:
        assert client.ask(ROUTE, topic="orders").code == 0


def test_trimmed_messages_are_gone(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", [str(n) for n in range(10)])
    cluster.broker().trim("orders", 4)
    assert bodies(cluster.broker().address, "orders", offset=4)[0] == b"4"
    with WireClient(cluster.broker().address) as client:
        got = pull(client, "orders", 0, 0)
    assert (got.code, got.ext_fields["nextBeginOffset"]) == (21, "4")


def test_shrinking_and_expanding_change_the_route(cluster):
    cluster.create_topic("orders", queues=4)
    cluster.broker().set_queues("orders", write=2)
    (queues,) = route(cluster, "orders").queues
    assert (queues.read_queue_nums, queues.write_queue_nums) == (4, 2)
    cluster.broker().set_queues("orders", read=8, write=8)
    (queues,) = route(cluster, "orders").queues
    assert (queues.read_queue_nums, queues.write_queue_nums) == (8, 8)
    with pytest.raises(UsageError, match="does not exist on broker broker-a"):
        cluster.broker().set_queues("nowhere", read=1)


def test_a_slave_is_behind_and_serves_after_a_fail_over(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", [str(n) for n in range(10)])
    slave = cluster.add_slave(behind=3)
    (broker,) = route(cluster, "orders").brokers
    assert broker.addresses == {0: cluster.broker().address, 1: slave.address}
    assert cluster.call(lambda: slave.store.queue_bounds("orders", 0)) == (0, 7)
    slave.set_behind(0)
    assert cluster.call(lambda: slave.store.queue_bounds("orders", 0)) == (0, 10)
    assert cluster.call(lambda: slave.store.log_bounds()) == cluster.call(
        lambda: cluster.broker().store.log_bounds()
    )
    assert cluster.fail_over() is slave
    (broker,) = route(cluster, "orders").brokers
    assert broker.addresses == {1: slave.address}
    assert len(bodies(slave.address, "orders")) == 10


def test_a_slave_follows(cluster):
    cluster.create_topic("orders", queues=1)
    slave = cluster.add_slave()
    cluster.send("orders", ["x"])
    wait_until(
        lambda: cluster.call(lambda: slave.store.queue_bounds("orders", 0)) == (0, 1)
    )


def test_a_fail_over_needs_a_slave(cluster):
    with pytest.raises(UsageError, match="broker-a has no slave"):
        cluster.fail_over()
    with pytest.raises(UsageError, match="broker broker-z:0 does not exist"):
        cluster.broker("broker-z")


def test_faults_apply_to_all_brokers_and_the_name_server(cluster):
    cluster.create_topic("orders")
    cluster.faults.next(answer(1, "down"), broker="namesrv", code=ROUTE)
    assert route(cluster, "orders") is None
    assert route(cluster, "orders") is not None


def test_a_manual_clock_moves_the_cluster():
    clock = ManualClock(1_700_000_000_000)
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", [Seed(body=b"late", delay_level=5)])  # 1 minute
        cluster.advance(59_000)
        assert cluster.call(
            lambda: cluster.broker().store.queue_bounds("orders", 0)
        ) in (None, (0, 0))
        cluster.advance(2_000)
        assert bodies(cluster.broker().address, "orders") == [b"late"]


def test_the_system_clock_cannot_be_moved(cluster):
    with pytest.raises(UsageError, match="not a ManualClock"):
        cluster.advance(1)


def messages_of(cluster):
    """The messages in queue 0 of T."""

    def read():
        store = cluster.broker().store
        units = store.units("T", 0, 0, 99)
        return list(decode_messages(store.read_units(units)))

    return cluster.call(read)


def test_old_clients_reach_a_broker_two_ports_below_its_own():
    with EmbeddedCluster(vip_channel=True) as cluster:
        cluster.create_topic("T", queues=1)
        host, _, port = cluster.broker().address.rpartition(":")
        with WireClient(f"{host}:{int(port) - 2}") as client:
            assert client.ask(MAX_OFFSET, topic="T", queueId=0).ext_fields == {
                "offset": "0"
            }


def test_a_cluster_of_an_ipv6_address_is_reached_by_each_address_that_it_names():
    need_ipv6()
    with EmbeddedCluster(host="::1", proxy=ProxyOptions(remoting_port=0)) as cluster:
        cluster.create_topic("T", queues=1)
        addresses = (
            *(cluster.namesrv, cluster.broker().address),
            *(cluster.endpoints, cluster.proxy.remoting_address),
        )
        for address in addresses:
            assert re.fullmatch(r"\[::1\]:[0-9]+", address), address
        for config in (
            ClientConfig(namesrv=(cluster.namesrv,)),
            ClientConfig(namesrv=(cluster.proxy.remoting_address,)),
            ClientConfig(endpoints=(cluster.endpoints,), plaintext=True),
        ):
            with Producer(client=config) as producer:
                producer.send(ProducerMessage("T", b"1"))
        stored = messages_of(cluster)
    hosts = [
        each.rpartition(":")[0] for m in stored for each in (m.born_host, m.store_host)
    ]
    assert hosts == ["[0:0:0:0:0:0:0:1]"] * 6
