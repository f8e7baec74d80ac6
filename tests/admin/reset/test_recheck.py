"""The last check before a reset: which offsets may have moved since, and how far."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli import Admin
from rmqcli.admin.reset.apply import recheck
from rmqcli.admin.reset.gather import gather_plan
from rmqcli.admin.reset.method import Mechanism
from rmqcli.admin.reset.target import (
    ResetRequest,
    Restore,
    Shift,
    ToOffsets,
    ToPosition,
)
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError, RefusedError, TransportError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset, Earliest
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import FakeMember

FIRST = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["x"] * 200)
        yield cluster


@pytest.fixture
def client(cluster):
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000)
    with Client(config) as client:
        commit(cluster, client, 30, 40)
        yield client


def commit(cluster, client, *offsets):
    for queue_id, offset in enumerate(offsets):
        call = update_consumer_offset("G", "T", queue_id, commit_offset=offset)
        client.invoke(cluster.broker().address, call)


def planned(client, target, *, is_live):
    """Return a plan, made as if members were live when `is_live`."""
    plan = gather_plan(client, ResetRequest(group="G", topic="T", target=target))
    mechanism = Mechanism.SERVER_RESET if is_live else Mechanism.COMMIT
    methods = {
        key: replace(method, is_live=is_live, mechanism=mechanism)
        for key, method in plan.methods.items()
    }
    return replace(plan, methods=methods)


@pytest.mark.parametrize("is_live", [True, False])
def test_what_has_not_moved_is_the_same_plan(client, is_live):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=is_live)
    assert recheck(client, plan, target) == plan


def test_what_a_live_consumer_commits_is_taken_over_and_said(cluster, client):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=True)
    commit(cluster, client, 35)
    first, second = recheck(client, plan, target).queues
    assert (first.committed, first.target, first.replayed) == (35, 0, 35)
    assert first.warnings == (
        "committed offset changed from 30 to 35 after the plan was made",
    )
    assert second == plan.queues[1]


@pytest.mark.parametrize(
    ("target", "is_live"),
    [
        (ToPosition(Earliest()), False),  # no member could have moved it
        (Shift(-5), True),  # relative to the old offset
        (ToOffsets({FIRST: 7}, {FIRST: 30}), True),  # the file names the old offset
        (ToPosition(AtOffset(33)), True),  # a skip of 3 would become a replay of 2
    ],
)
def test_other_drift_is_refused(cluster, client, target, is_live):
    plan = planned(client, target, is_live=is_live)
    commit(cluster, client, 35)
    moved = "T@broker-a:0: committed offset was 30, is now 35"
    with pytest.raises(RefusedError, match=moved):
        recheck(client, plan, target)


def test_a_queue_that_was_to_be_left_alone_may_move(cluster, client):
    target = ToPosition(AtOffset(40))  # the offset of the second queue
    plan = planned(client, target, is_live=False)
    commit(cluster, client, 30, 44)
    assert recheck(client, plan, target) == plan


def test_a_member_that_came_online_since_is_refused(cluster, client):
    """It stores its own offset again within seconds, after the commit was read back."""
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=False)
    with FakeMember(cluster, topics=("another",)):
        assert recheck(client, plan, target) == plan
    with (
        FakeMember(cluster),
        pytest.raises(
            RefusedError,
            match="since the plan was made, members of group G consume T at broker-a",
        ),
    ):
        recheck(client, plan, target)


def test_where_members_are_not_told_nothing_is_changed(cluster, client):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=False)
    cluster.faults.add(
        faults.answer(1, "busy"), code=RequestCode.GET_CONSUMER_CONNECTION_LIST
    )
    with pytest.raises(BrokerError, match="busy"):
        recheck(client, plan, target)


def test_a_broker_that_is_gone_is_an_error(cluster, client):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=True)
    cluster.broker().kill()
    with pytest.raises(TransportError):
        recheck(client, plan, target)


@pytest.fixture
def uncommitted(rmq_cluster_factory):
    """A cluster where the group has committed in the first of two queues only."""
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("T")
    cluster.create_group("G")
    cluster.send("T", ["x"] * 200)
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000)
    with Client(config) as client:
        commit(cluster, client, 30)
        yield cluster, client


def test_a_first_commit_of_a_live_consumer_is_taken_over(uncommitted):
    """The plan had no skip or replay in this queue that could have been reversed."""
    cluster, client = uncommitted
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=True)
    commit(cluster, client, 30, 8)
    first, second = recheck(client, plan, target).queues
    assert first == plan.queues[0]
    assert (second.committed, second.target, second.replayed) == (8, 0, 8)
    assert second.warnings == (
        "no offset was committed here before; an undo cannot restore that",
        "committed offset changed from none to 8 after the plan was made",
    )


def test_an_offset_that_is_gone_is_taken_over_from_live_consumers_only(uncommitted):
    cluster, client = uncommitted
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=True)
    away = planned(client, target, is_live=False)
    cluster.call(lambda: cluster.broker().state.offsets.delete_group("G"))
    first, second = recheck(client, plan, target).queues
    assert (first.committed, first.target, first.delta) == (None, 0, None)
    assert second == plan.queues[1]
    with pytest.raises(RefusedError, match="committed offset was 30, is now None"):
        recheck(client, away, target)


def test_a_consumer_that_arrives_at_the_target_by_itself_is_no_drift(cluster, client):
    target = ToPosition(AtOffset(35))
    plan = planned(client, target, is_live=True)
    commit(cluster, client, 35)
    first, _ = recheck(client, plan, target).queues
    assert (first.committed, first.delta, first.is_change) == (35, 0, False)


def test_every_queue_that_moved_is_counted(cluster, client):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=False)
    commit(cluster, client, 35, 45)
    with pytest.raises(RefusedError) as caught:
        recheck(client, plan, target)
    assert caught.value.message == (
        "offsets moved since the plan was made: T@broker-a:0: committed offset was 30,"
        " is now 35 and 1 more queue; nothing was changed"
    )
    assert caught.value.hint == "run it again"
    commit(cluster, client, 35, 40)
    with pytest.raises(RefusedError) as caught:
        recheck(client, plan, target)
    assert caught.value.message == (
        "offsets moved since the plan was made: T@broker-a:0: committed offset was 30,"
        " is now 35; nothing was changed"
    )


def test_store_times_of_other_messages_are_not_kept(cluster, client):
    target = ToPosition(Earliest())
    plan = planned(client, target, is_live=True)
    assert plan.queues[0].first_store_ms is not None
    assert plan.queues[0].last_store_ms is not None
    commit(cluster, client, 35)
    first, second = recheck(client, plan, target).queues
    assert (first.first_store_ms, first.last_store_ms) == (None, None)
    assert second.first_store_ms == plan.queues[1].first_store_ms
    assert second.last_store_ms == plan.queues[1].last_store_ms


def test_a_restore_is_absolute_too(cluster, client):
    target = Restore({FIRST: 5})
    plan = planned(client, target, is_live=True)
    commit(cluster, client, 35)
    (first,) = recheck(client, plan, target).queues
    assert (first.committed, first.target) == (35, 5)


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (15, "T@broker-a:0 ends at 15, but it ended at 100 when the plan was made: "),
        (100, "T@broker-a:0 has another message at offset 29 than the plan has seen "),
        (150, "T@broker-a:0 has another message at offset 29 than the plan has seen "),
    ],
)
def test_a_plan_for_a_topic_that_was_made_anew_since_is_refused(count, reason):
    """Up to 4.9 the committed offsets outlive the topic, and the plan was applied: to
    offsets of other messages, or beyond the end of a queue."""
    with EmbeddedCluster(queues=1, like="4.9.7") as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["old"] * 100)
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            commit(cluster, client, 30)
            target = ToPosition(AtOffset(10))
            plan = gather_plan(
                client, ResetRequest(group="G", topic="T", target=target)
            )
            recheck(client, plan, target)
            with Admin(namesrv=cluster.namesrv) as admin:
                admin.delete_topic("T")
            cluster.create_topic("T")
            cluster.send("T", ["new"] * count)
            with pytest.raises(RefusedError) as caught:
                recheck(client, plan, target)
    assert caught.value.message.startswith(reason)
    assert caught.value.message.endswith("or its broker has lost messages")
