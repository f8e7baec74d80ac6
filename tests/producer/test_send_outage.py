"""`Sender` while a broker is away: it waits, says so, and loses and doubles nothing."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pytest

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError
from rmqcli.producer.message import OutgoingMessage
from rmqcli.producer.patience import Outages
from rmqcli.producer.remoting.send import RemotingSend
from rmqcli.producer.remoting.target import find_target
from rmqcli.producer.send import Sender
from tests.producer.stored import stored

QUEUES = 3


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("T", queues=QUEUES)
    return cluster


@contextmanager
def sender_to(cluster, say=None, *, retry_for_ms=None, **options):
    """A Sender that waits for `retry_for_ms`, or else for six minutes."""
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000)
    with Client(config) as client:
        rng = random.Random(0)
        network = RemotingSend(
            client,
            find_target(client, "T"),
            rng=rng,
            **options,
        )
        if retry_for_ms is not None:
            network.outages = Outages(
                client.clock, places=len(cluster.brokers), retry_for_ms=retry_for_ms
            )
        yield Sender(network, say=say)


def numbered(first, last):
    return (OutgoingMessage(b"%d" % n) for n in range(first, last))


def check_queues(cluster, outcomes):
    """What is said to be stored is, where it is said to be, and in order."""
    said = [(n, o) for n, o in enumerate(outcomes) if o.status == "SEND_OK"]
    there = {(m.queue_id, m.queue_offset): int(m.body) for m in stored(cluster, "T")}
    for number, each in said:
        assert there[each.queue.queue_id, each.queue_offset] == number
    for queue_id in range(QUEUES):
        bodies = [n for place, n in sorted(there.items()) if place[0] == queue_id]
        assert bodies == sorted(set(bodies))
    unknown = {n for n, each in enumerate(outcomes) if each.status == "UNKNOWN"}
    assert set(there.values()) - unknown == {number for number, _ in said}


def test_a_restart_between_requests_is_waited_for_and_nothing_is_doubtful(cluster):
    broker = cluster.broker()
    notes = []

    def say(note):
        notes.append(note)
        if "retrying" in note:
            broker.restart()

    def messages():
        yield from numbered(0, 1_000)
        yield None
        broker.kill()
        yield from numbered(1_000, 4_000)

    with sender_to(cluster, say) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert len(outcomes) == 4_000
    assert {o.status for o in outcomes} == {"SEND_OK"}
    gone, back = notes
    assert gone.startswith("broker-a: cannot connect to 127.0.0.1:")
    assert gone.endswith("; retrying for up to 6m")
    assert back == "broker-a is back; continuing"
    check_queues(cluster, outcomes)


@pytest.mark.slow
def test_after_a_kill_only_the_requests_on_their_way_are_doubtful(cluster):
    broker = cluster.broker()

    def say(note):
        if "retrying" in note:
            broker.restart()

    def messages():
        yield from numbered(0, 1)
        yield None
        yield from numbered(1, 6_000)
        broker.kill()
        yield from numbered(6_000, 12_000)

    with sender_to(cluster, say) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert len(outcomes) == 12_000
    assert {o.status for o in outcomes} <= {"SEND_OK", "UNKNOWN"}
    assert sum(o.status == "UNKNOWN" for o in outcomes) <= QUEUES * 512
    check_queues(cluster, outcomes)


@pytest.mark.slow
def test_after_the_time_it_gives_up_and_reads_no_more(cluster):
    read = []

    def messages():
        yield from numbered(0, 10)
        yield None
        cluster.broker().kill()
        while True:
            read.append(1)
            yield OutgoingMessage(b"10")

    with sender_to(cluster, retry_for_ms=600) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert isinstance(sender.given_up, ConnectError)
    assert [o.status for o in outcomes[:10]] == ["SEND_OK"] * 10
    assert {o.status for o in outcomes[10:]} == {"NOT_SENT"}
    assert len(outcomes) == 10 + len(read) < 50_000
    cluster.broker().restart()
    check_queues(cluster, outcomes)


@pytest.mark.slow
def test_an_interrupt_while_it_waits_leaves_nothing_doubtful(cluster):
    broker = cluster.broker()

    def messages():
        yield from numbered(0, 10)
        yield None
        broker.kill()
        yield from numbered(10, 2_000)

    outcomes = []
    with sender_to(cluster) as sender:
        for some in sender.send(messages()):
            outcomes += some
            if sender._network.outages.waiting == QUEUES:
                break
        outcomes += sender.abandon()
    assert [o.status for o in outcomes] == ["SEND_OK"] * 10 + ["NOT_SENT"] * 1_990
    assert {o.error for o in outcomes} == {None}


def test_a_broker_that_is_gone_fails_its_chosen_queues_and_no_others(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("T", queues=1)

    def messages():
        for number in range(100):
            yield OutgoingMessage(b"%d" % number, {"k": str(number)})
            if number == 9:
                yield None
                cluster.broker("broker-b").kill()

    with sender_to(cluster, retry_for_ms=600, shard_by="k") as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert sender.given_up is None
    by_broker = {(o.queue.broker_name, o.status) for o in outcomes[10:]}
    assert by_broker == {("broker-a", "SEND_OK"), ("broker-b", "NOT_SENT")}
