"""A member whose topic is made anew: every message of the new topic is delivered."""

from __future__ import annotations

import shutil

import pytest

from rmqcli import connect
from rmqcli.model import MessageQueue
from rmqcli.wire.codes import RequestCode
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until
from tests.kit.wiped import wiped

#: Pulls that are held end soon, also without a message.
SETTINGS = {"long_polling_enable": False, "short_polling_time_mills": 50}
FAST = {"heartbeat_broker_interval_ms": 1_000, "pull_time_delay_when_exception_ms": 50}


def fill(cluster, word, count):
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", [f"{word} {n}" for n in range(count)])


@pytest.fixture(params=["4.6.0", "5.5.0"])
def cluster(rmq_cluster_factory, request):
    cluster = rmq_cluster_factory(like=request.param, settings=SETTINGS)
    fill(cluster, "old", 100)
    return cluster


def wait_for(seen, count):
    """Wait until each message of the new topic has come."""
    new = {f"new {n}" for n in range(count)}
    wait_until(lambda: new <= set(seen.bodies))


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
def test_a_topic_that_was_made_anew_with_fewer_messages_is_consumed_whole(
    cluster, orderly
):
    """The broker corrects the member's offset to the end of the queue, and the member
    consumed none of the new messages."""
    seen = Seen()
    with consumer(cluster, "G", "orders", seen, orderly=orderly, **FAST):
        seen.wait_for(100)
        with connect(cluster.namesrv) as clients, clients.admin() as admin:
            admin.delete_topic("orders")
        fill(cluster, "new", 40)
        wait_for(seen, 40)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, 100, 150])
def test_a_broker_that_was_restarted_with_an_empty_store_is_consumed_whole(
    cluster, rmq_cluster_factory, count
):
    """Of 150 new messages the first 100 were skipped, and nothing was logged."""
    seen = Seen()
    with consumer(cluster, "G", "orders", seen, **FAST):
        seen.wait_for(100)
        like = cluster.options.like
        new = wiped(cluster, rmq_cluster_factory, like=like, settings=SETTINGS)
        fill(new, "new", count)
        wait_for(seen, count)


def test_a_member_that_starts_after_its_topic_was_made_anew_consumes_it_whole(
    rmq_cluster_factory,
):
    """Brokers of 4.x keep the offsets of a deleted topic. The member began at the end
    of the new one, and consumed none of its messages."""
    cluster = rmq_cluster_factory(like="4.9.7", settings=SETTINGS)
    fill(cluster, "old", 100)
    seen = Seen()
    with consumer(cluster, "G", "orders", seen, **FAST):
        seen.wait_for(100)
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.delete_topic("orders")
    fill(cluster, "new", 40)
    again = Seen()
    with consumer(cluster, "G", "orders", again, **FAST):
        wait_for(again, 40)
        cluster.send("orders", ["new 40"])
        wait_for(again, 41)
    assert sorted(again.bodies) == sorted(f"new {n}" for n in range(41))


def test_a_member_that_starts_while_only_a_slave_that_is_behind_answers_waits(
    rmq_cluster_factory,
):
    """The slave has six of ten messages, all of which were consumed. None comes again:
    that it has not received what was committed does not mean that it has new ones."""
    settings = SETTINGS | {"offset_check_in_slave": True}
    cluster = rmq_cluster_factory(like="4.9.7", settings=settings)
    fill(cluster, "old", 10)
    seen = Seen()
    with consumer(cluster, "G", "orders", seen, **FAST):
        seen.wait_for(10)
    cluster.add_slave(behind=4)
    cluster.fail_over()
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    again = Seen()
    with consumer(cluster, "G", "orders", again, **FAST) as member:
        wait_until(lambda: len(pulls.requests) > 3)
        assert member.offsets()[MessageQueue("orders", "broker-a", 0)] == 10
    assert again.bodies == []


def test_messages_sent_after_a_broker_lost_its_newest_ones_are_consumed(
    rmq_cluster_factory, tmp_path
):
    """It lost five messages in a crash, and had stored eight by the next pull. Messages
    that were consumed do not come again."""
    cluster = rmq_cluster_factory(store=tmp_path / "a", flush="sync", settings=SETTINGS)
    fill(cluster, "old", 5)
    seen = Seen()
    with consumer(cluster, "G", "orders", seen, **FAST):
        seen.wait_for(5)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        for n in range(5, 10):
            cluster.send("orders", [f"old {n}"])
            seen.wait_for(n + 1)
        new = wiped(cluster, rmq_cluster_factory, store=tmp_path / "b")
        fill(new, "new", 8)
        wait_for(seen, 8)
    assert len(seen.bodies) == 18
