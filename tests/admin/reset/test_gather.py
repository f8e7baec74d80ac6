"""What a plan covers and reports, above all about the retry topic."""

from __future__ import annotations

import pytest

from rmqcli.admin.reset.apply import ResetRun
from rmqcli.admin.reset.gather import gather_plan
from rmqcli.admin.reset.target import (
    ResetRequest,
    Restore,
    Shift,
    ToOffsets,
    ToPosition,
)
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue
from rmqcli.position import (
    Ago,
    AtGroup,
    AtNow,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    PlusN,
)
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.consumer.collecting import committed

RETRY = "%RETRY%G"
QUEUE = MessageQueue("T", "broker-a", 0)
RETRY_QUEUE = MessageQueue(RETRY, "broker-a", 0)
WAITING = f"5 messages wait in {RETRY} and will still be delivered; include_retry"


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts clusters: G at 3 of 8 in T, and 5 messages in its retry topic."""

    def start(like="5.5.0", **options):
        cluster = rmq_cluster_factory(queues=1, like=like, **options)
        cluster.create_topic("T")
        cluster.create_topic(RETRY)
        cluster.create_group("G")
        cluster.create_group("H")
        cluster.send("T", ["x"] * 8, broker="broker-a")
        for _ in range(5):  # brokers refuse batches there
            cluster.send(RETRY, ["x"], broker="broker-a")
        with connect(cluster) as client:
            commit(cluster, client, 3)
            commit(cluster, client, 6, group="H")
        return cluster

    return start


def connect(cluster):
    return Client(ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000))


def commit(cluster, client, offset, *, topic="T", group="G"):
    call = update_consumer_offset(group, topic, 0, commit_offset=offset)
    client.invoke(cluster.broker().address, call)


def plan_of(client, target, **request):
    return gather_plan(
        client, ResetRequest(group="G", topic="T", target=target, **request)
    )


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7", "5.5.0"])
def test_messages_for_another_try_are_counted_where_nothing_was_committed(start, like):
    """For example, the only consumer failed all messages and was then stopped."""
    with connect(start(like)) as client:
        (warning,) = plan_of(client, ToPosition(Latest())).warnings
    assert warning.startswith(WAITING)


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (0, [WAITING]),
        (4, [f"1 message waits in {RETRY} and will still be delivered"]),
        (5, []),
        (9, []),
    ],
)
def test_what_was_committed_there_does_not_count(start, offset, words):
    cluster = start()
    with connect(cluster) as client:
        commit(cluster, client, offset, topic=RETRY)
        warnings = plan_of(client, ToPosition(Latest())).warnings
    assert len(warnings) == len(words)
    for warning, expected in zip(warnings, words, strict=True):
        assert warning.startswith(expected)


def test_messages_that_expired_there_do_not_count(start):
    cluster = start()
    with connect(cluster) as client:
        commit(cluster, client, 1, topic=RETRY)
        cluster.broker().trim(RETRY, 3)
        (warning,) = plan_of(client, ToPosition(Latest())).warnings
    assert warning.startswith(f"2 messages wait in {RETRY}")


def test_a_retry_topic_that_cannot_be_read_is_said(start):
    cluster = start()
    cluster.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_MAX_OFFSET, topic=RETRY
    )
    with connect(cluster) as client:
        plan = plan_of(client, ToPosition(Latest()))
    what = f"1 queue of {RETRY} could not be read: messages may wait there"
    assert plan.warnings == (f"{what}; include_retry=True resets that too",)
    assert not plan.unknown


def test_a_retry_topic_without_readable_queues_is_no_obstacle(start):
    cluster = start()
    cluster.create_topic(RETRY, queues=1, perm=0)
    with connect(cluster) as client:
        plan = plan_of(client, ToPosition(Latest()), include_retry=True)
    assert [each.queue for each in plan.queues] == [QUEUE]
    assert plan.warnings == ()


#: Every kind of target except those that name queues.
TARGETS = {
    "earliest": ToPosition(Earliest()),
    "latest": ToPosition(Latest()),
    "now": ToPosition(AtNow()),
    "time": ToPosition(AtTime(1, "1970-01-01T00:00:00.001Z")),
    "ago": ToPosition(Ago(3_600_000)),
    "offset": ToPosition(AtOffset(0)),
    "last": ToPosition(LastN(8)),
    "plus": ToPosition(PlusN(0)),
    "group": ToPosition(AtGroup("H")),
    "shift": Shift(-3),
    "restore": Restore({QUEUE: 0}),
    "offsets": ToOffsets({QUEUE: 0}),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_retry_topic_that_was_not_asked_for_is_never_set(start, name):
    """Whatever the target is, the reset does not touch the retry topic."""
    cluster = start()
    with connect(cluster) as client:
        commit(cluster, client, 2, topic=RETRY)
        plan = plan_of(client, TARGETS[name])
        assert [each.queue for each in plan.queues] == [QUEUE]
        writes = cluster.faults.observe(topic=RETRY)
        ResetRun(client, plan).execute()
    assert committed(cluster, "G", RETRY) == {0: 2}
    assert not writes.requests


@pytest.mark.parametrize("name", ["offset", "last", "plus", "group", "shift"])
def test_what_is_no_time_sends_the_retry_topic_to_its_end_never_to_0(start, name):
    """An offset of one topic has no meaning in another one."""
    cluster = start()
    with connect(cluster) as client:
        commit(cluster, client, 2, topic=RETRY)
        retry, main = plan_of(client, TARGETS[name], include_retry=True).queues
    assert (retry.queue, retry.committed, retry.target) == (RETRY_QUEUE, 2, 5)
    assert main.queue == QUEUE


@pytest.mark.parametrize(
    ("name", "target"),
    [("earliest", 0), ("latest", 5), ("now", 5), ("time", 0), ("ago", 0)],
)
def test_a_time_means_the_same_in_the_retry_topic(start, name, target):
    with connect(start()) as client:
        plan = plan_of(client, TARGETS[name], include_retry=True)
    retry = plan.queues[0]
    assert (retry.queue, retry.target) == (RETRY_QUEUE, target)
    assert plan.warnings == ()


def test_a_file_that_names_the_retry_topic_asks_for_it(start):
    with connect(start()) as client:
        for target in (Restore({RETRY_QUEUE: 4}), ToOffsets({RETRY_QUEUE: 4})):
            (retry,) = plan_of(client, target).queues
            assert (retry.queue, retry.target) == (RETRY_QUEUE, 4)


def test_a_reset_of_the_retry_topic_itself_is_one_of_a_topic(start):
    with connect(start()) as client:
        request = ResetRequest(group="G", topic=RETRY, target=ToPosition(AtOffset(1)))
        plan = gather_plan(client, request)
    assert [(each.queue, each.target) for each in plan.queues] == [(RETRY_QUEUE, 1)]
    assert plan.warnings == ()
