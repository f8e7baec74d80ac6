"""Queues of a broker that is away when tail starts are read, whole, when it is back."""

from __future__ import annotations

import time

import pytest

from rmqcli.admin.positions import ResolvedRange, resolve_ranges_each
from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.broker_return import BrokerReturn
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.follow import Follower, FollowOptions
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError, DeniedError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.position import Ago, AtOffset, Earliest, Latest
from rmqcli.testing import ManualClock
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.kit.waiting import PATIENCE_S

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
OLD = 5
MINUTE_MS = 60_000


@pytest.fixture
def cluster():
    """Two brokers with one queue each, in which OLD messages are a minute old."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    with EmbeddedCluster(brokers=2, queues=1, clock=clock) as cluster:
        cluster.create_topic("T")
        for name in ("broker-a", "broker-b"):
            cluster.send("T", ["old"] * OLD, broker=name)
        cluster.advance(MINUTE_MS)
        yield cluster


@pytest.fixture
def client(cluster):
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=500)
    with Client(config) as client:
        yield client


def plan_without_b(client, *, start, count):
    """Return a plan to follow both queues while broker-b is away, and its error."""
    started_ms = client.clock.monotonic_ms()
    found = resolve_ranges_each(client, [A, B], Latest(), Latest())
    ours, error = found[A], found[B]
    assert isinstance(ours, ResolvedRange)
    assert isinstance(error, RmqError)
    plan = TailPlan(
        ranges=(ours.offsets,),
        filter=TailFilter(),
        lost={B: error},
        start=start,
        started_ms=started_ms,
        follow=True,
        count=count,
        timeout_ms=PATIENCE_S * 1_000,
    )
    return plan, error


def render(queue, messages):
    return [(queue.broker_name[-1], message.queue_offset) for message in messages]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (None, 5),
        (Latest(), 5),
        (Earliest(), 0),
        (AtOffset(3), 3),
        (Ago(2 * MINUTE_MS), 0),
    ],
)
def test_they_come_back_from_where_they_were_wanted(cluster, client, start, first):
    hung = cluster.broker("broker-b")
    hung.hang()
    said: list[str] = []

    def say(text):
        said.append(text)
        if "retrying" in text:
            cluster.send("T", ["meanwhile"] * 3, broker="broker-b")
            hung.resume()
        if "answers" in text:
            cluster.send("T", ["after"] * 2, broker="broker-b")

    plan, error = plan_without_b(client, start=start, count=10 - first)
    batcher = Batcher(plan.filter, render, TailCounts())
    tail = Tail(client, plan, batcher, say=say)
    assert [item for items in tail.items() for item in items] == [
        ("b", offset) for offset in range(first, 10)
    ]
    address = hung.address
    assert said == [
        f"broker-b: {error.message}; retrying",
        f"broker-b answers; reading T@broker-b:0 from offset {first}",
    ]
    assert address in said[0]
    assert (tail.abandoned, tail.positions) == ({}, {A: 5, B: 10})


def test_others_are_read_while_a_broker_is_away(cluster, client):
    cluster.broker("broker-b").hang()
    plan, _ = plan_without_b(client, start=None, count=2)
    said: list[str] = []
    tail = Tail(
        client, plan, Batcher(plan.filter, render, TailCounts()), say=said.append
    )
    cluster.send("T", ["x"] * 2, broker="broker-a")
    assert [i for items in tail.items() for i in items] == [("a", 5), ("a", 6)]
    assert len(said) == 1
    assert list(tail.abandoned) == [B]


def test_what_a_broker_refuses_is_not_waited_for(client):
    said: list[str] = []
    lost = BrokerReturn(client, None, started_ms=0, say=said.append)
    lost.add({B: DeniedError("no", code=16, name="NO_PERMISSION")})
    assert (lost.is_over, lost.poll(), said) == (True, {}, [])


def test_a_queue_is_waited_for_although_another_one_was_refused(client):
    said: list[str] = []
    lost = BrokerReturn(client, None, started_ms=0, say=said.append)
    lost.add(
        {
            A: DeniedError("no", code=16, name="NO_PERMISSION"),
            B: ConnectError("cannot connect to 10.0.0.2:10911", address=""),
        }
    )
    assert (lost.is_over, said) == (
        False,
        ["broker-b: cannot connect to 10.0.0.2:10911; retrying"],
    )


def test_a_new_broker_does_not_show_old_messages(cluster, client):
    """The broker was away, and in no route, when tail started."""
    away = cluster.broker("broker-b")
    away.kill()
    assert client.route("T").read_queues() == [A]
    said: list[str] = []
    lost = BrokerReturn(
        client, None, started_ms=client.clock.monotonic_ms(), say=said.append
    )
    options = FollowOptions(route_every_ms=50)
    follower = Follower(
        client, {A: 5}, options, say=said.append, on_new_broker=lost.expect
    )
    away.restart()
    cluster.send("T", ["new"], broker="broker-b")
    seen: list[tuple[MessageQueue, int]] = []
    end = time.monotonic() + PATIENCE_S
    while not seen and time.monotonic() < end:
        for queue, offset in lost.poll().items():
            assert isinstance(offset, int)
            follower.add(queue, offset)
        for chunk in follower.poll(100):
            seen += [
                (chunk.queue, message.queue_offset)
                for message in decode_messages(chunk.body)
                if isinstance(message, StoredMessage)
            ]
    follower.stop()
    assert seen == [(B, OLD)]
    assert said == ["broker-b answers; reading T@broker-b:0 from offset 5"]
