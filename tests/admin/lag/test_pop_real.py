"""`rmq lag` of groups behind real proxies: what was received is not consumed.

Sent 100, received 24, acknowledged 5: 95 wait, wherever the 19 are at the moment.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Producer,
    ProducerMessage,
    ReceivedMessage,
    SimpleConsumer,
)
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.model import compute_lag
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from tests.admin.lag.test_embedded import lag, pick
from tests.conftest import start_cluster
from tests.kit.clients.member import GrpcMember
from tests.kit.proxy.real import RealProxy
from tests.kit.waiting import wait_until

__all__ = ["lag"]  # the fixture

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.3.3", "5.5.0"),
    pytest.mark.real_only,
]


class ClusterMode:
    """A proxy in front of a cluster, with the attributes of both that the tests use."""

    def __init__(self, cluster, proxy):
        self.namesrv, self.create_topic = cluster.namesrv, cluster.create_topic
        self.endpoints = proxy.endpoints


@pytest.fixture(scope="module", params=["local", "cluster"])
def proxy(request, rmq_version, tmp_path_factory):
    """A proxy in each of its modes, shared by the tests of this module."""
    directory = tmp_path_factory.mktemp(f"proxy-{rmq_version}")
    is_local = request.param == "local"
    with start_cluster(rmq_version, directory, proxy=is_local) as cluster:
        if is_local:
            yield cluster
            return
        with RealProxy(cluster) as made:
            yield ClusterMode(cluster, made)


@pytest.fixture
def orders(proxy):
    """A topic of two queues with 100 messages, and a group that has consumed none."""
    topic = proxy.create_topic(queues=2)
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=proxy.namesrv, group="filler") as producer:
        for number in range(100):
            producer.send(ProducerMessage(topic=topic, body=f"{number}".encode()))
    return topic, group


def test_of_100_messages_24_received_and_5_acknowledged_95_wait(proxy, orders, lag):
    """They are never fewer while the broker moves what was not acknowledged in time.

    Between copying them to the retry topic and recording it, they may count twice.
    """
    topic, group = orders
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    found: list[ReceivedMessage] = []
    with SimpleConsumer(
        group, topic, client=config, invisible_duration_ms=10_000
    ) as consumer:
        while len(found) < 24:
            found += consumer.receive(24 - len(found))
        consumer.ack(found[:5])
        for named in ([group], []):
            shown, code = lag(proxy, *named)
            row = shown[group]
            assert pick(row, "state", "total_lag", "known_lag") == ("BEHIND", 95, 95)
            assert pick(row["pop"], "inflight", "retry_lag") == (19, 0)
            (member,) = row["members"]
            is_local = not isinstance(proxy, ClusterMode)
            assert member["proxy"] == (None if is_local else proxy.endpoints)
            assert pick(row, "notes", "errors") == ([], [])
            assert code == 0
        seen = totals_until_moved(proxy, group, 19)
    assert seen in ({95}, {95, 114})
    row = lag(proxy, group)[0][group]
    assert pick(row["pop"], "inflight", "overdue", "retry_lag") == (0, 0, 19)
    assert row["total_lag"] == 95


def totals_until_moved(proxy, group, count):
    """Return every total lag that was seen until `count` wait in the retry topic."""
    totals = set()
    with Client(ClientConfig(namesrv=(proxy.namesrv,))) as client:
        gatherer = LagGatherer(client, LagQuery(groups=(group,)))

        def moved():
            (reading,) = gatherer.read().groups
            found = compute_lag(reading)
            totals.add(found.total_lag)
            return found.pop is not None and found.pop.retry_lag == count

        wait_until(moved, "messages in the retry topic")
    return totals


@pytest.mark.parametrize("who", ["java", "python"])
@pytest.mark.parametrize("kind", ["simple", "push"])
def test_what_an_official_client_has_not_acknowledged_is_lag(
    proxy, orders, lag, who, kind, tmp_path
):
    topic, group = orders
    member = GrpcMember(
        who,
        kind,
        endpoints=proxy.endpoints,
        group=group,
        topic=topic,
        directory=tmp_path,
    )
    sent = 100
    try:
        wait_until(lambda: len(member.bodies("done")) > 5, "messages")
        member.hold()
        with Producer(namesrv=proxy.namesrv, group="filler") as producer:

            def is_holding():
                """It may have consumed all of them before it was told to hold one."""
                nonlocal sent
                if len(set(member.bodies("done"))) == sent:
                    body = f"{sent}".encode()
                    producer.send(ProducerMessage(topic=topic, body=body))
                    sent += 1
                return member.bodies("holding")

            wait_until(is_holding, "a message that is held")

        def agrees():
            """Acknowledgements may still be under way."""
            row = lag(proxy, group)[0][group]
            waiting = sent - len(set(member.bodies("done")))
            return row["total_lag"] == waiting and row["pop"]["inflight"] > 0

        wait_until(agrees, "the lag")
        row = lag(proxy, group)[0][group]
        assert pick(row, "state", "notes") == ("BEHIND", [])
    finally:
        member.kill()


def drain(proxy, topic, group):
    """Consume until nothing waits; return the bodies, and how often each came."""
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    found: Counter[bytes] = Counter()
    with (
        SimpleConsumer(group, topic, client=config) as consumer,
        Client(ClientConfig(namesrv=(proxy.namesrv,))) as client,
    ):
        gatherer = LagGatherer(client, LagQuery(groups=(group,)))

        def is_empty():
            messages = consumer.receive(await_ms=1_000)
            consumer.ack(messages)
            found.update(message.body for message in messages)
            (reading,) = gatherer.read().groups
            return not messages and compute_lag(reading).total_lag == 0

        wait_until(is_empty, "an empty group")
    return found


@pytest.mark.parametrize("is_online", [True, False])
@pytest.mark.parametrize("target", ["earliest", "latest"])
def test_a_reset_is_confirmed_and_takes_effect_beside_what_is_handed_out(
    proxy, orders, lag, capsys, target, is_online
):
    """What was received and not acknowledged comes again, wherever the offsets are."""
    topic, group = orders
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    received: list[ReceivedMessage] = []
    consumer = SimpleConsumer(group, topic, client=config, invisible_duration_ms=10_000)
    consumer.start()
    while len(received) < 24:
        received += consumer.receive(24 - len(received))
    consumer.ack(received[:5])
    if not is_online:
        consumer.close()
    # A proxy in cluster mode tells the others later, in a topic.
    wait_until(
        lambda: bool(lag(proxy, group)[0][group]["members"]) == is_online,
        "its coming or leaving",
    )
    words = ["--to", target, "--execute", "--yes", "-n", proxy.namesrv]
    assert run(["reset-offset", group, topic, *words, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    plan = json.loads(out)
    assert {row["result"] for row in plan["queues"] if row["delta"]} == {"CONFIRMED"}
    assert "19 messages are handed out and not acknowledged" in err
    assert ("1 client is online" in err) == is_online
    consumer.close()
    found = drain(proxy, topic, group)
    handed_out = {message.body for message in received[5:]}
    if target == "latest":
        assert set(found) == handed_out
    else:
        assert len(found) == 100
        assert {body for body, times in found.items() if times > 1} <= handed_out


def test_what_an_orderly_group_has_not_acknowledged_is_lag(proxy, lag):
    topic, group = proxy.create_topic(queues=1), f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, consume_message_orderly=True)
    with Producer(namesrv=proxy.namesrv, group="filler") as producer:
        for number in range(10):
            producer.send(ProducerMessage(topic=topic, body=f"{number}".encode()))
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    with SimpleConsumer(
        group, topic, client=config, invisible_duration_ms=3_600_000
    ) as consumer:
        received: list[ReceivedMessage] = []
        while not received:
            received = consumer.receive(4)
        row = lag(proxy, group)[0][group]
        assert pick(row, "state", "total_lag", "notes") == ("BEHIND", 10, [])
        assert row["pop"]["inflight"] is None
        consumer.ack(received)
        left = 10 - len(received)
        wait_until(lambda: lag(proxy, group)[0][group]["total_lag"] == left)


@pytest.mark.rmq_versions("5.5.0")
def test_a_broker_that_keeps_check_points_elsewhere_does_not_tell(
    rmq_version, tmp_path, lag, capsys
):
    """Its lag is unknown; a reset takes effect, which a commit would not."""
    conf = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
    with start_cluster(rmq_version, tmp_path, proxy=True, conf=conf) as cluster:
        topic, group = cluster.create_topic(queues=1), "billing"
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group(group)
        with Producer(namesrv=cluster.namesrv, group="filler") as producer:
            for number in range(20):
                producer.send(ProducerMessage(topic=topic, body=f"{number}".encode()))
        config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
        received: list[bytes] = []
        with SimpleConsumer(
            group, topic, client=config, invisible_duration_ms=3_600_000
        ) as consumer:

            def receive(count):
                while len(received) < count:
                    messages = consumer.receive(count - len(received))
                    received.extend(each.body for each in messages)

            receive(5)
            receive(10)
            for named in ([group], []):
                shown, code = lag(cluster, *named)
                row = shown[group]
                assert pick(row, "state", "total_lag") == ("UNKNOWN", None)
                assert "popConsumerKVServiceEnable" in row["pop"]["reason"]
                assert code == 6
            words = ["--to", "earliest", "--execute", "--yes", "-n", cluster.namesrv]
            assert run(["reset-offset", group, topic, *words, "-o", "json"]) == 0
            (row,) = json.loads(capsys.readouterr().out)["queues"]
            assert row["result"] == "CONFIRMED"
            received.clear()
            receive(20)
        assert sorted(received, key=int) == [b"%d" % number for number in range(20)]
