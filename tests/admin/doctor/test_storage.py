"""Each check of storage finds what is deleted, or soon will be."""

from __future__ import annotations

import pytest

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import (
    findings,
    heartbeat,
    only_finding,
    open_client,
    plant_runtime,
    plant_settings,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("log", "queues", "expected"),
    [
        ("0.69", "0.1", None),
        ("0.70", "0.1", "warning"),
        ("0.1", "0.75", "warning"),
        ("0.80", "0.1", "problem"),
        ("0.92", "0.1", "problem"),
        ("0.1", "0.99", "problem"),
    ],
)
def test_a_disk_that_is_filling_up_is_found(rmq_cluster, log, queues, expected):
    plant_runtime(rmq_cluster, commitLogDiskRatio=log, consumeQueueDiskRatio=queues)
    found = findings(rmq_cluster.namesrv, "disk")
    assert [str(f.status) for f in found] == ([] if expected is None else [expected])


def test_a_commit_log_whose_disk_is_not_reported_is_unknown(rmq_cluster):
    """It may be another disk than that of the consume queues, which has room."""
    plant_runtime(rmq_cluster, commitLogDiskRatio="-1.0", consumeQueueDiskRatio="0.3")
    assert only_finding(rmq_cluster, "disk") == (
        "unknown",
        "broker-a",
        "it does not report the disk of its commit log",
    )


def test_the_lines_are_those_of_the_broker_s_settings(rmq_cluster):
    plant_runtime(rmq_cluster, commitLogDiskRatio="0.5")
    assert findings(rmq_cluster.namesrv, "disk") == []
    plant_settings(rmq_cluster, diskSpaceWarningLevelRatio="52")
    (found,) = findings(rmq_cluster.namesrv, "disk")
    assert str(found.status) == "problem"
    assert found.meaning.startswith("at 52 % it refuses messages")


def commit(cluster, group, topic, offset):
    with open_client(cluster.namesrv) as client:
        client.invoke(
            cluster.broker().address,
            update_consumer_offset(group, topic, 0, commit_offset=offset),
        )


@pytest.fixture
def old(rmq_cluster_factory):
    """A cluster in which group billing has left 3 of 4 messages unread for 60 h."""
    clock = ManualClock()
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["1", "2", "3", "4"])
    commit(cluster, "billing", "orders", 1)
    cluster.advance(60 * HOUR_MS)
    return cluster


def test_unread_messages_near_the_end_of_their_retention_are_counted(old):
    old.send("orders", ["fresh"])
    plant_settings(old, fileReservedTime="72")
    (found,) = findings(old.namesrv, "retention")
    assert (str(found.status), found.subject) == ("problem", "billing")
    assert found.evidence == (
        "3 unread messages of orders are near the end of the retention of 72 h; the"
        " oldest is 2d12h old"
    )
    assert found.meaning.startswith("the broker deletes what is unread from ")
    assert "in 12h" in found.meaning


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
@pytest.mark.parametrize("young_h", [5, 50])
def test_a_message_that_is_just_young_enough_is_not_endangered(
    rmq_cluster_factory, like, young_h
):
    """A search by time may find a message at either side of that time."""
    cluster = rmq_cluster_factory(clock=ManualClock(), like=like)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["read", "old", "older"])
    commit(cluster, "billing", "orders", 1)
    cluster.advance((60 - young_h) * HOUR_MS)
    cluster.send("orders", ["young"])
    cluster.advance(young_h * HOUR_MS)
    plant_settings(cluster, fileReservedTime="72")
    (found,) = findings(cluster.namesrv, "retention")
    assert found.evidence.startswith("2 unread messages of orders are near the end")


def test_a_long_retention_endangers_nothing(old):
    plant_settings(old, fileReservedTime="96")
    assert findings(old.namesrv, "retention") == []


def test_messages_beyond_their_retention_may_be_deleted_now(old):
    plant_settings(old, fileReservedTime="48")
    (found,) = findings(old.namesrv, "retention")
    assert found.meaning == "the broker deletes what is unread at any time now"


def test_a_count_that_the_broker_does_not_tell_is_not_made_up(old):
    plant_settings(old, fileReservedTime="72")
    old.faults.add(faults.answer(1, "no"), code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    (found,) = findings(old.namesrv, "retention")
    assert found.evidence.startswith("at least 1 unread message of orders")


def test_a_retention_that_is_not_shown_is_unknown_where_messages_wait(old):
    assert only_finding(old, "retention") == (
        "unknown",
        "broker-a",
        (
            "it does not show fileReservedTime, and group billing has unread messages"
            " there"
        ),
    )


def test_an_age_that_the_broker_does_not_tell_is_unknown(old):
    plant_settings(old, fileReservedTime="72")
    old.faults.add(faults.answer(1, "no"), code=RequestCode.QUERY_CONSUME_TIME_SPAN)
    assert only_finding(old, "retention") == (
        "unknown",
        "billing",
        "the age of its unread messages is not known",
    )


def test_messages_that_were_deleted_unread_are_found(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", list("abcde"))
    commit(rmq_cluster, "billing", "orders", 1)
    assert findings(rmq_cluster.namesrv, "expired-messages") == []
    rmq_cluster.broker().trim("orders", 3)
    assert only_finding(rmq_cluster, "expired-messages") == (
        "warning",
        "billing",
        (
            "2 messages of orders were deleted before the group read them; it has no"
            " member"
        ),
    )


def test_lost_messages_of_a_group_whose_members_are_not_known_are_a_problem(
    rmq_cluster,
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["a", "b"])
    commit(rmq_cluster, "billing", "orders", 0)
    rmq_cluster.broker().trim("orders", 1)
    rmq_cluster.faults.add(
        faults.answer(16, "no permission"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="DefaultHeartBeatSyncerTopic",
    )
    assert only_finding(rmq_cluster, "expired-messages") == (
        "problem",
        "billing",
        "1 message of orders was deleted before the group read it",
    )


def test_lost_messages_of_a_group_with_members_are_a_problem(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", list("abcde"))
    commit(rmq_cluster, "billing", "orders", 1)
    rmq_cluster.broker().trim("orders", 3)
    # The member would not answer, which is waited for.
    rmq_cluster.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_CONSUMER_RUNNING_INFO
    )
    with open_client(rmq_cluster.namesrv) as client:
        heartbeat(client, "billing", "10.0.0.1@1")
        assert only_finding(rmq_cluster, "expired-messages") == (
            "problem",
            "billing",
            "2 messages of orders were deleted before the group read them",
        )
