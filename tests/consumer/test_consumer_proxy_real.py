"""`Consumer` makes the same guarantees through a real proxy as over remoting."""

from __future__ import annotations

import threading
import uuid

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Consumer,
    Producer,
    ProducerMessage,
    TlsOptions,
)
from tests.consumer.collecting import Seen
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.real_only,
]


class ClusterMode:
    """A proxy in front of a cluster, with the attributes of both that the tests use."""

    def __init__(self, cluster, proxy):
        self.namesrv, self.create_topic = cluster.namesrv, cluster.create_topic
        self.endpoints = proxy.endpoints


@pytest.fixture(params=["local", "cluster"])
def proxy(request, rmq_version):
    """A proxy of `rmq_version` in each of its modes."""
    if request.param == "local":
        return request.getfixturevalue("local_proxy")
    cluster = request.getfixturevalue("real_cluster")
    return ClusterMode(cluster, request.getfixturevalue("cluster_proxy"))


def config_of(proxy):
    return ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)


def new_group(proxy, **settings):
    """Create a group; a proxy requires that the group of a member exists."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, **settings)
    return group


def send(proxy, topic, bodies, **fields):
    with Producer(client=config_of(proxy)) as producer:
        for body in bodies:
            producer.send(ProducerMessage(topic, body.encode(), **fields))


def test_messages_are_consumed_once_and_failed_ones_again(proxy):
    topic, group = proxy.create_topic(), new_group(proxy)
    send(proxy, topic, [f"m{n}" for n in range(40)], tags="Paid", keys=("k",))
    seen = Seen(lambda message, times: not (message.body == b"m7" and times == 1))
    with Consumer(group, {topic: "Paid"}, seen, client=config_of(proxy)):
        seen.wait_for(40)
        wait_until(lambda: seen.bodies.count("m7") == 2)
    assert len(seen.bodies) == 41
    times = [each.reconsume_times for each in seen.messages if each.body == b"m7"]
    assert times == [0, 1]
    assert (seen.messages[0].tags, seen.messages[0].keys) == ("Paid", "k")
    # The group's next member does not get messages that were acknowledged.
    again = Seen()
    with Consumer(group, {topic: "Paid"}, again, client=config_of(proxy)):
        send(proxy, topic, ["last"], tags="Paid")
        again.wait_for(1)
    assert again.bodies == ["last"]


def test_messages_of_a_topic_in_a_namespace_are_consumed_once(proxy):
    """Their topic lacked its namespace, and their acks were for another topic.

    Each message was delivered again and again.
    """
    name = uuid.uuid4().hex[:12]
    topic, group = proxy.create_topic(f"NS1%{name}"), new_group(proxy)
    send(proxy, topic, ["a", "b"])
    seen = Seen()
    with Consumer(group, topic, seen, client=config_of(proxy)):
        seen.wait_for(2)
    again = Seen()
    with Consumer(group, topic, again, client=config_of(proxy)):
        send(proxy, topic, ["last"])
        again.wait_for(1)
    assert {each.topic for each in seen.messages} == {topic}
    assert again.bodies == ["last"]
    with Admin(namesrv=proxy.namesrv) as admin:
        lag = admin.lag(group)
    assert lag.total_lag == 0


def test_messages_are_consumed_over_tls(proxy):
    topic, group = proxy.create_topic(), new_group(proxy)
    send(proxy, topic, ["m"])
    client = ClientConfig(endpoints=(proxy.endpoints,), tls=TlsOptions(insecure=True))
    seen = Seen()
    with Consumer(group, topic, seen, client=client):
        seen.wait_for(1)
    assert seen.bodies == ["m"]


def test_attempts_that_are_used_up_make_a_dead_letter(proxy):
    topic, group = proxy.create_topic(), new_group(proxy, retry_max_times=1)
    send(proxy, topic, ["bad"])
    seen = Seen(lambda *_: False)
    failures: list[str] = []
    with Consumer(
        group,
        topic,
        seen,
        client=config_of(proxy),
        on_failed=lambda failed: failures.append(failed.fate.name),
    ):
        wait_until(lambda: failures == ["DELIVERED_AGAIN", "DEAD_LETTER"])
    assert [each.reconsume_times for each in seen.messages] == [0, 1]


def test_a_fifo_group_keeps_the_order_through_retries(proxy):
    topic = proxy.create_topic(attributes="+message.type=FIFO")
    group = new_group(proxy, consume_message_orderly=True, retry_max_times=1)
    for name in "ab":
        send(proxy, topic, [f"{name}{n}" for n in range(5)], message_group=name)
    seen = Seen(lambda message, _: message.body != b"a2")
    failures: list[str] = []
    with Consumer(
        group,
        topic,
        seen,
        client=config_of(proxy),
        orderly=True,
        on_failed=lambda failed: failures.append(failed.fate.name),
    ):
        seen.wait_for(10)
    assert [each for each in seen.bodies if each[0] == "a"] == [
        "a0",
        "a1",
        "a2",
        "a2",
        "a3",
        "a4",
    ]
    assert [each for each in seen.bodies if each[0] == "b"] == [
        "b0",
        "b1",
        "b2",
        "b3",
        "b4",
    ]
    assert failures == ["RETRY_HERE", "DEAD_LETTER"]


def test_a_close_gives_back_what_was_not_begun(proxy):
    topic, group = proxy.create_topic(queues=1), new_group(proxy)
    send(proxy, topic, [f"m{n}" for n in range(10)])
    begun, go_on = threading.Event(), threading.Event()
    first: list[str] = []

    def handle(message):
        begun.set()
        assert go_on.wait(400)
        first.append(message.body.decode())
        running.close()

    running = Consumer(group, topic, handle, client=config_of(proxy))
    with running:
        assert begun.wait(400)
        go_on.set()
        assert running.wait(400_000)
    second = Seen()
    with Consumer(group, topic, second, client=config_of(proxy)):
        left = {f"m{n}" for n in range(10)} - set(first)
        wait_until(lambda: left <= set(second.bodies))
    assert not set(first) & set(second.bodies)
