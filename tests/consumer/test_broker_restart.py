"""A member while its broker is away: two lines of log, and every message after it."""

from __future__ import annotations

import logging

import pytest

from rmqcli import ClientConfig, Consumer, SimpleConsumer
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import TransportError
from tests.consumer.collecting import Seen, consumer
from tests.kit.ports import PortBlock
from tests.kit.waiting import wait_until


@pytest.fixture
def warnings(caplog):
    """The messages of our warnings and errors so far.

    gRPC's server, which is in this process, too, may have some of its own when it ends.
    """
    logger = logging.getLogger("rmqcli")
    was = logger.propagate
    logger.propagate = True  # the command line switches it off
    yield lambda: [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("rmqcli")
    ]
    logger.propagate = was


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_a_restarted_broker_is_a_line_when_it_goes_and_one_when_it_is_back(
    rmq_cluster_factory, warnings, like
):
    """After the restart it knows no member, and refuses pulls, until a heartbeat."""
    cluster = rmq_cluster_factory(like=like)
    cluster.create_topic("T", queues=4)
    cluster.create_group("G")
    seen = Seen()
    with consumer(
        cluster,
        "G",
        "T",
        seen,
        heartbeat_broker_interval_ms=1_000,
        pull_time_delay_when_exception_ms=50,
    ) as member:
        wait_until(lambda: len(member.queues()) >= 4)
        cluster.send("T", ["a"])
        seen.wait_for(1)
        broker = cluster.broker()
        broker.kill()
        wait_until(lambda: any("retrying" in each for each in warnings()))
        broker.restart()
        cluster.send("T", ["b"])
        wait_until(lambda: any("is back" in each for each in warnings()))
        seen.wait_for(2)
        gone, back = warnings()
    assert gone.startswith("broker-a: ")
    assert gone.endswith("; retrying")
    assert back == "broker-a is back; continuing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["push", "simple"])
def test_a_killed_proxy_is_a_line_when_it_goes_and_one_when_it_is_back(
    rmq_cluster_factory, warnings, caplog, kind
):
    """What fails in the meantime, again and again, is only in the detailed log."""
    caplog.set_level(logging.INFO, logger="rmqcli")
    ports = PortBlock()
    cluster = rmq_cluster_factory(proxy=ProxyOptions(port=ports.first))
    cluster.create_topic("T", queues=1)
    cluster.create_group("G")
    config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    seen, failed = Seen(), "receive failed"
    member: Consumer | SimpleConsumer
    if kind == "push":
        failed = "assignment not refreshed"  # after some receives, within 5 s
        member = Consumer("G", "T", seen, client=config)
    else:
        member = SimpleConsumer("G", "T", client=config)

    def told():
        return sum(each.startswith(failed) for each in caplog.messages)

    with member:
        cluster.proxy.close()
        if isinstance(member, SimpleConsumer):
            with pytest.raises(TransportError):
                member.receive(1, await_ms=2_000)
        wait_until(lambda: told() >= (1 if kind == "push" else 2))
        cluster._proxy = cluster._start_proxy()
        cluster.send("T", ["b"])
        wait_until(lambda: any("is back" in each for each in warnings()))
        if isinstance(member, SimpleConsumer):
            assert [each.body for each in member.receive(1)] == [b"b"]
        else:
            seen.wait_for(1)
    ports.close()
    assert warnings() == [
        f"connection to proxy {cluster.endpoints} is lost; retrying",
        f"proxy {cluster.endpoints} is back; continuing",
    ]


def test_a_close_without_an_answer_says_that_the_last_commit_is_not_confirmed(
    rmq_cluster_factory, warnings
):
    cluster = rmq_cluster_factory()
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["a"])
    seen = Seen()
    with consumer(
        cluster, "G", "T", seen, persist_consumer_offset_interval_ms=60_000
    ) as running:
        seen.wait_for(1)
        cluster.broker().kill()
    assert running._backend.is_confirmed is False
    (told,) = [each for each in warnings() if "commit" in each]
    assert told == (
        "the last commit is not confirmed, so messages may be consumed again"
        " queues=T@broker-a:0"
    )


def test_a_close_whose_commit_is_answered_says_nothing(rmq_cluster, warnings):
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send("T", ["a"])
    seen = Seen()
    with consumer(rmq_cluster, "G", "T", seen):
        seen.wait_for(1)
    assert warnings() == []
