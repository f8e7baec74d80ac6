"""What `rmq lag` asks embedded brokers of several versions, and what it reports."""

from __future__ import annotations

import json
import threading

import pytest

from rmqcli import Admin, ClientConfig
from rmqcli.admin.lag.explain import explain
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import BrokerFailure, GroupReading, compute_lag
from rmqcli.admin.lag.process_queues import read_running_info
from rmqcli.cli.main import run
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.errors import NoBrokerError
from rmqcli.model import MessageQueue
from rmqcli.testing import faults
from rmqcli.wire.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rmqcli.wire.subscription import SubscriptionData
from tests.admin.lag.test_embedded import commit, lag, pick
from tests.admin.reset.member import FakeMember
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

__all__ = ["lag"]  # the fixture

NOW_MS = 1_767_322_800_000


@pytest.fixture(params=["4.6.0", "4.9.7", "5.5.0"])
def cluster(rmq_cluster_factory, request):
    """A broker of each version, with ten messages in each of a topic's three queues."""
    found = rmq_cluster_factory(like=request.param)
    found.create_topic("orders", queues=3)
    for queue_id in range(3):
        found.send("orders", ["x"] * 10, queue_id=queue_id)
    return found


def queues(group, topic="orders"):
    names = ("queue_id", "committed", "max_offset", "lag", "state")
    return [pick(q, *names) for q in group["queues"] if q["topic"] == topic]


@pytest.mark.parametrize("named", [["billing"], []])
def test_an_offset_of_0_is_not_the_same_as_none(cluster, lag, named):
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {1: 0, 2: 4})
    found, code = lag(cluster, *named)
    assert queues(found["billing"]) == [
        (0, None, 10, None, "NO_COMMIT"),
        (1, 0, 10, 10, "KNOWN"),
        (2, 4, 10, 6, "KNOWN"),
    ]
    assert pick(found["billing"], "known_lag", "state") == (16, "STOPPED")
    assert code == 0


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_queue_beyond_the_write_queues_is_read_all_the_same(cluster, lag, named):
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {0: 10, 1: 10, 2: 3})
    cluster.broker().set_queues("orders", read=3, write=2)
    found, _ = lag(cluster, *named)
    assert queues(found["billing"])[2] == (2, 3, 10, 7, "KNOWN")
    assert found["billing"]["total_lag"] == 7


@pytest.mark.parametrize("named", [["billing"], []])
def test_messages_in_queues_that_were_removed_are_not_lag(cluster, lag, named):
    """No member can read them, whether one group is shown or all are."""
    cluster.create_group("billing")
    cluster.create_group("audit")
    commit(cluster, "billing", "orders", {0: 10, 1: 10, 2: 3})
    commit(cluster, "audit", "orders", {0: 10, 1: 10})
    cluster.broker().set_queues("orders", read=2, write=2)
    found, _ = lag(cluster, *named)
    assert queues(found["billing"]) == [(0, 10, 10, 0, "OK"), (1, 10, 10, 0, "OK")]
    assert {group["total_lag"] for group in found.values()} == {0}


def test_ages_are_asked_for_only_where_something_waits(cluster, lag):
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {0: 10, 1: 10, 2: 10})
    spans = cluster.faults.observe(code=303)
    found, _ = lag(cluster, "billing")
    assert [q["age_ms"] for q in found["billing"]["queues"]] == [0, 0, 0]
    assert len(spans.requests) == 0
    commit(cluster, "billing", "orders", {2: 9})
    found, _ = lag(cluster, "billing")
    assert [q["age_ms"] is None for q in found["billing"]["queues"]] == [False] * 3
    assert 0 <= found["billing"]["age_ms"] < 300_000


def test_an_unknown_group_is_not_found_and_beside_a_known_one_partial(cluster, lag):
    assert lag(cluster, "nobody") == ({}, 3)
    cluster.create_group("billing")
    found, code = lag(cluster, "billing", "nobody")
    assert (list(found), code) == (["billing"], 6)


def test_a_group_of_settings_alone_is_known(cluster, lag):
    cluster.create_group("billing")
    found, code = lag(cluster, "billing")
    assert pick(found["billing"], "state", "total_lag", "queues") == (
        "NO_COMMIT",
        None,
        [],
    )
    assert code == 0


def test_an_unknown_topic_is_not_found(cluster, lag):
    cluster.create_group("billing")
    assert lag(cluster, "billing", "--topic", "no-such-topic") == ({}, 3)


def silence(cluster):
    """Let broker-b end each connection without an answer."""
    cluster.faults.add(faults.disconnect(), broker="broker-b")


def test_a_topic_of_a_silent_broker_is_not_called_unknown(rmq_cluster_factory, lag):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("billing")
    cluster.send("orders", ["x"], broker="broker-b", queue_id=0)
    silence(cluster)
    found, code = lag(cluster, "billing", "--topic", "orders")
    assert pick(found["billing"], "state", "total_lag") == ("UNKNOWN", None)
    assert code == 6


def test_a_group_that_only_a_silent_broker_may_know_is_not_called_missing(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    silence(cluster)
    found, code = lag(cluster, "billing")
    assert pick(found["billing"], "state", "total_lag") == ("UNKNOWN", None)
    assert code == 6


def test_groups_that_only_a_silent_broker_knows_are_found_by_their_retry_topics(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.send("%RETRY%billing", ["again"], broker="broker-b", queue_id=0)
    silence(cluster)
    found, code = lag(cluster)
    assert pick(found["billing"], "state", "total_lag") == ("UNKNOWN", None)
    assert (list(found), code) == (["billing"], 6)


def test_a_named_group_shows_its_retry_queues_on_a_silent_broker_as_unknown(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.send("orders", ["x"], broker="broker-a", queue_id=0)
    commit(cluster, "billing", "orders", {0: 1})
    cluster.send("%RETRY%billing", ["again"], broker="broker-b", queue_id=0)
    silence(cluster)
    found, code = lag(cluster, "billing")
    assert [
        pick(each, "topic", "broker_name", "queue_id", "lag", "state")
        for each in found["billing"]["queues"]
        if each["broker_name"] == "broker-b"
    ] == [("%RETRY%billing", "broker-b", n, None, "UNKNOWN") for n in range(4)]
    assert code == 6


def test_a_group_that_only_the_silent_broker_knows_is_listed_beside_others(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("audit")
    cluster.send("%RETRY%billing", ["again"], broker="broker-b", queue_id=0)
    silence(cluster)
    found, code = lag(cluster)
    assert {group: each["state"] for group, each in found.items()} == {
        "audit": "UNKNOWN",
        "billing": "UNKNOWN",
    }
    assert found["billing"]["notes"] == []
    assert code == 6


def test_a_retry_topic_of_pop_on_a_silent_broker_is_listed_as_a_doubtful_group(
    rmq_cluster_factory, lag
):
    """POP gives group pg and topic inv the retry topic that a group pg_inv has."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("inv", queues=1)
    for retry in ("%RETRY%pg", "%RETRY%pg_inv", "%RETRY%a_b"):
        cluster.send(retry, ["again"], broker="broker-b", queue_id=0)
    silence(cluster)
    found, code = lag(cluster)
    doubt = (
        "pg_inv may not be a group: %RETRY%pg_inv is also what POP calls the retry"
        " topic of group pg for topic inv"
    )
    assert {group: each["notes"] for group, each in found.items()} == {
        "a_b": [],
        "pg": [],
        "pg_inv": [doubt],
    }
    assert {each["state"] for each in found.values()} == {"UNKNOWN"}
    assert code == 6


def test_a_retry_topic_of_pop_that_an_answering_broker_has_is_no_group(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("pg")
    cluster.create_topic("inv", queues=1)
    cluster.create_topic("%RETRY%pg_inv", queues=1)
    silence(cluster)
    found, code = lag(cluster)
    assert list(found) == ["pg"]
    assert code == 6


def test_all_groups_are_the_users_groups(cluster, lag):
    cluster.create_group("billing")
    found, _ = lag(cluster)
    assert list(found) == ["billing"]


def test_a_topic_alone_shows_the_groups_that_read_it(cluster, lag):
    for group in ("billing", "audit", "idle"):
        cluster.create_group(group)
    commit(cluster, "billing", "orders", {0: 1})
    cluster.create_topic("other", queues=1)
    commit(cluster, "audit", "other", {0: 0})
    commit(cluster, "billing", "other", {0: 0})
    found, _ = lag(cluster, "--topic", "orders")
    assert list(found) == ["billing"]
    assert {q["topic"] for q in found["billing"]["queues"]} == {"orders"}


@pytest.mark.parametrize("count", [32, 33])
def test_many_groups_by_name_are_those_and_no_others(cluster, lag, count):
    names = [f"G{number:02}" for number in range(count)]
    for name in [*names, "another"]:
        cluster.create_group(name)
        commit(cluster, name, "orders", {0: 10, 1: 10, 2: 9})
    found, code = lag(cluster, *names)
    assert list(found) == names
    assert {group["total_lag"] for group in found.values()} == {1}
    assert code == 0


def test_what_members_do_not_subscribe_to_any_more_does_not_count(cluster, lag):
    cluster.create_topic("left", queues=1)
    cluster.send("left", ["x"] * 5, queue_id=0)
    commit(cluster, "billing", "left", {0: 1})
    commit(cluster, "billing", "orders", {0: 10, 1: 10, 2: 10})
    with consumer(cluster, "billing", "orders", Seen()) as member:
        wait_until(lambda: len(member.queues()) == 4)
        for named in (["billing"], []):
            found, _ = lag(cluster, *named)
            topics = [t["topic"] for t in found["billing"]["topics"]]
            assert topics == ["%RETRY%billing", "orders"]
            assert found["billing"]["total_lag"] == 0


def test_owners_are_asked_for_one_group_and_not_for_many(cluster, lag):
    cluster.create_group("audit")
    commit(cluster, "audit", "orders", {0: 0})
    with consumer(cluster, "billing", "orders", Seen()) as member:
        wait_until(lambda: len(member.queues()) == 4)
        found, _ = lag(cluster, "billing")
        owners = {q["client_id"] for q in found["billing"]["queues"]}
        assert owners == {member.client_id}
        found, _ = lag(cluster, "billing", "audit")
        assert {q["client_id"] for q in found["billing"]["queues"]} == {None}
        assert found["billing"]["client_reason"] == (
            "members were not queried: name one group, or add --process-queues"
        )
        found, _ = lag(cluster, "billing", "audit", "--process-queues")
        owners = {q["client_id"] for q in found["billing"]["queues"]}
        assert owners == {member.client_id}


@pytest.mark.parametrize(("count", "asked_count"), [(16, 16), (17, 0)])
def test_members_of_large_groups_are_not_asked_unasked(
    rmq_cluster, lag, count, asked_count
):
    rmq_cluster.create_topic("orders", queues=1)
    members = [
        consumer(
            rmq_cluster,
            "billing",
            "orders",
            Seen(),
            instance_name=f"{n}",
            consume_threads=1,
        )
        for n in range(count)
    ]
    try:
        for member in members:
            member.start()
        asked = rmq_cluster.faults.observe(code=307)
        found, _ = lag(rmq_cluster, "billing")
        assert len(asked.requests) == asked_count
    finally:
        for member in members:
            threading.Thread(target=member.close).start()
    assert len(found["billing"]["members"]) == count


def test_a_group_is_asked_once_for_its_members_by_several_brokers(
    rmq_cluster_factory, lag
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    heartbeats = [
        cluster.faults.observe(code=34, broker=broker)
        for broker in ("broker-a", "broker-b")
    ]
    with consumer(cluster, "billing", "orders", Seen()):
        wait_until(lambda: all(each.requests for each in heartbeats))
        asked = cluster.faults.observe(code=307)
        found, _ = lag(cluster, "billing")
        assert len(asked.requests) == 1
    assert len(found["billing"]["members"]) == 1


def test_a_denied_group_may_read_a_topic_in_which_it_has_no_offset(rmq_cluster, lag):
    """It was left out, with "no consumer groups" and exit code 0."""
    rmq_cluster.create_topic("orders", queues=1)
    for group in ("audit", "billing"):
        rmq_cluster.create_group(group)
    denied = faults.answer(16, "no permission for billing")
    for code in (203, 208):
        rmq_cluster.faults.add(denied, code=code, group="billing")
    found, code = lag(rmq_cluster, "--topic", "orders")
    assert list(found) == ["billing"]
    assert pick(found["billing"], "state", "total_lag") == ("UNKNOWN", None)
    assert (code, "no permission for billing" in found["billing"]["reason"]) == (
        6,
        True,
    )


def test_who_may_ask_no_broker_is_denied(rmq_cluster, lag):
    rmq_cluster.create_group("billing")
    rmq_cluster.faults.add(faults.answer(16, "no permission"), broker="broker-a")
    for named in (["billing"], []):
        assert lag(rmq_cluster, *named) == ({}, 4)


@pytest.mark.parametrize("named", [["audit", "billing"], []])
def test_who_may_ask_for_some_groups_is_told_about_these(rmq_cluster, lag, named):
    """One denied group hid all the others behind exit code 4."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["x", "y"])
    for group in ("audit", "billing"):
        rmq_cluster.create_group(group)
        commit(rmq_cluster, group, "orders", {0: 1})
    for code in (203, 208):
        denied = faults.answer(16, "no permission for billing")
        rmq_cluster.faults.add(denied, code=code, group="billing")
    found, code = lag(rmq_cluster, *named)
    assert pick(found["audit"], "state", "total_lag") == ("STOPPED", 1)
    assert pick(found["billing"], "state", "total_lag") == ("UNKNOWN", None)
    assert "no permission for billing" in found["billing"]["reason"]
    assert code == 6


def test_a_table_of_groups_says_why_the_lag_of_some_is_unknown(rmq_cluster, capsys):
    """The row was UNKNOWN, and only JSON, or a run for that group, told why."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic("bills", queues=1)
    for group, topic in (("audit", "orders"), ("billing", "bills"), ("cash", "bills")):
        rmq_cluster.create_group(group)
        commit(rmq_cluster, group, topic, {0: 0})
    denied = faults.answer(16, "no permission for bills")
    rmq_cluster.faults.add(denied, code=202, topic="bills")
    assert run(["lag", "-n", rmq_cluster.namesrv]) == 6
    err = " ".join(capsys.readouterr().err.split())
    assert err.startswith("warning: billing, cash: unknown in 1 of 1 queue")
    assert err.count("no permission for bills") == 1


def test_the_age_of_a_group_is_a_least_one_where_a_topic_is_denied(rmq_cluster, capsys):
    """The message in the denied topic may be older than the one in the other topic."""
    rmq_cluster.create_group("billing")
    for topic in ("orders", "bills"):
        rmq_cluster.create_topic(topic, queues=1)
        rmq_cluster.send(topic, ["x"])
        commit(rmq_cluster, "billing", topic, {0: 0})
    denied = faults.answer(16, "no permission for bills")
    rmq_cluster.faults.add(denied, code=202, topic="bills")
    run(["lag", "billing", "-n", rmq_cluster.namesrv])
    _, err = capsys.readouterr()
    assert "oldest unread message at least " in " ".join(err.split())
    run(["lag", "-n", rmq_cluster.namesrv])
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[:4] == ["billing", "-", "-", "UNKNOWN"]
    run(["lag", "-n", rmq_cluster.namesrv, "-o", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["total_lag"], found["age_ms"]) == (None, None)
    assert (found["known_lag"], found["known_age_ms"] >= 0) == (1, True)
    ages = {each["topic"]: each["age_ms"] for each in found["topics"]}
    assert (ages["bills"], ages["orders"] >= 0) == (None, True)


def test_a_table_of_groups_says_why_their_members_are_unknown(rmq_cluster, capsys):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic("DefaultHeartBeatSyncerTopic", queues=1)
    for group in ("audit", "billing"):
        rmq_cluster.create_group(group)
        commit(rmq_cluster, group, "orders", {0: 0})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic="DefaultHeartBeatSyncerTopic")
    for words, named in ([], "audit, billing: "), (["billing"], "billing: "):
        # The exit code was 0.
        assert run(["lag", *words, "-n", rmq_cluster.namesrv]) == 6
        err = " ".join(capsys.readouterr().err.split())
        told = f"warning: {named}members behind proxies are not known: broker-a: "
        assert (told in err, "no permission" in err) == (True, True)


@pytest.mark.slow
def test_where_members_of_proxies_are_denied_the_others_are_not_said_to_be_all(
    rmq_cluster, lag, capsys
):
    """A group can have members at brokers and behind proxies; one kind was counted."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic("DefaultHeartBeatSyncerTopic", queues=1)
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic="DefaultHeartBeatSyncerTopic")
    with FakeMember(rmq_cluster, "billing"):
        found, code = lag(rmq_cluster, "billing")
        assert (len(found["billing"]["members"]), code) == (1, 6)
        reason = found["billing"]["members_reason"]
        assert reason.startswith("members behind proxies are not known: broker-a: ")
        assert run(["lag", "billing", "-n", rmq_cluster.namesrv]) == 6
        err = " ".join(capsys.readouterr().err.split())
        assert "members at least 1" in err
        assert "warning: billing: members behind proxies are not known: " in err


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_denied_age_is_a_missing_part(rmq_cluster, lag, named):
    """The reason was shown, and the exit code was 0."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["a", "b"])
    commit(rmq_cluster, "billing", "orders", {0: 1})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=303)
    found, code = lag(rmq_cluster, *named)
    (note,) = found["billing"]["notes"]
    assert note.startswith("broker-a: age is unknown: ")
    assert "no permission" in note
    assert pick(found["billing"], "age_ms", "total_lag") == (None, 1)
    assert code == 6


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_denied_dead_letter_topic_is_reported(rmq_cluster, lag, capsys, named):
    """The exit code was 0, and the table of all groups did not say why."""
    rmq_cluster.create_topic("orders", queues=1)
    for group in ("audit", "billing"):
        rmq_cluster.create_group(group)
        commit(rmq_cluster, group, "orders", {0: 0})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic="%DLQ%billing")
    found, code = lag(rmq_cluster, *named)
    (note,) = found["billing"]["notes"]
    assert note.startswith("broker-a: ")
    assert "%DLQ%billing" in note
    assert pick(found["billing"], "dead_letters", "total_lag") == (None, 0)
    assert code == 6
    capsys.readouterr()
    assert run(["lag", *named, "-n", rmq_cluster.namesrv]) == 6
    out, err = capsys.readouterr()
    assert err.count("%DLQ%billing") == 1
    assert "no permission" in err
    if named:
        assert "members 0, dead letters unknown" in err
    else:
        assert "warning: billing: broker-a: stats of topic %DLQ%billing" in err
        (row,) = (line for line in out.splitlines() if line.startswith("billing"))
        assert row.split() == ["billing", "0", "0ms", "OK", "1", "1", "0", "-"], row


def test_a_denied_retry_topic_is_reported(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", {0: 0})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic="%RETRY%billing")
    found, code = lag(rmq_cluster, "billing")
    assert pick(found["billing"], "state", "total_lag", "known_lag") == (
        "UNKNOWN",
        None,
        0,
    )
    row = found["billing"]["queues"][0]
    assert pick(row, "topic", "queue_id", "lag") == ("%RETRY%billing", None, None)
    assert "no permission" in row["reason"]
    assert code == 6


@pytest.mark.parametrize("named", [["audit", "billing"], []])
@pytest.mark.parametrize("topic", ["%RETRY%billing", "bills"])
def test_a_denied_topic_of_one_group_leaves_the_others_known(
    rmq_cluster, lag, named, topic
):
    """All groups of the broker were UNKNOWN for a topic that only one consumes."""
    for name in ("orders", "bills", "%RETRY%billing"):
        rmq_cluster.create_topic(name, queues=1)
        for body in ("x", "y"):
            rmq_cluster.send(name, [body])
    for group in ("audit", "billing"):
        rmq_cluster.create_group(group)
        commit(rmq_cluster, group, "orders", {0: 1})
    for name in ("bills", "%RETRY%billing"):
        commit(rmq_cluster, "billing", name, {0: 1})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic=topic)
    found, code = lag(rmq_cluster, *named)
    assert pick(found["audit"], "state", "total_lag") == ("STOPPED", 1)
    assert pick(found["billing"], "state", "total_lag", "known_lag") == (
        "UNKNOWN",
        None,
        2,
    )
    (row,) = (each for each in found["billing"]["queues"] if each["lag"] is None)
    assert pick(row, "topic", "queue_id", "committed") == (topic, 0, 1)
    assert "no permission" in row["reason"]
    assert code == 6


def test_a_queried_topic_that_is_denied_is_not_called_missing(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", {0: 0})
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=202, topic="orders")
    found, code = lag(rmq_cluster, "billing", "-t", "orders")
    assert (found["billing"]["state"], code) == ("UNKNOWN", 6)
    assert "no permission" in found["billing"]["reason"]


def test_a_topic_that_one_of_two_brokers_denies_is_unknown_only_there(
    rmq_cluster_factory, lag
):
    """Where the group never committed, that broker was UNKNOWN as a whole."""
    cluster = rmq_cluster_factory(brokers=2)
    for name in ("orders", "bills"):
        cluster.create_topic(name, queues=1)
    for group in ("audit", "billing"):
        cluster.create_group(group)
    commit(cluster, "audit", "bills", {0: 0})
    commit(cluster, "billing", "orders", {0: 0})
    denied = faults.answer(16, "no permission")
    cluster.faults.add(denied, code=202, topic="orders", broker="broker-b")
    found, code = lag(cluster)
    assert found["audit"]["state"] != "UNKNOWN"
    assert [
        pick(each, "topic", "broker_name", "queue_id")
        for each in found["billing"]["queues"]
        if each["state"] == "UNKNOWN"
    ] == [("orders", "broker-b", None)]
    assert code == 6


def queue(queue_id, committed, high, *, low=0, topic="T"):
    return QueueReading(
        topic=topic,
        broker_name="broker-a",
        queue_id=queue_id,
        committed=committed,
        min_offset=low,
        max_offset=high,
    )


def online(*client_ids, expression="*", model="CLUSTERING"):
    members = Members()
    members.add(
        ConsumerConnection(
            connections=tuple(
                Connection(
                    client_id=c, client_addr="127.0.0.1:1", language=0, version=409
                )
                for c in client_ids
            ),
            subscriptions={"T": SubscriptionData(topic="T", sub_string=expression)},
            message_model=model,
        )
    )
    return members


#: A group whose messages all failed a moment ago looks like this, too.
ALL_READ = (
    "G has read everything. Messages that failed are counted once their next try is"
    " due: brokers do not report them before."
)


def words(*readings, **more):
    return explain(compute_lag(GroupReading(group="G", queues=list(readings), **more)))


def test_a_group_beyond_the_end_of_a_queue_is_not_said_to_have_read_everything():
    """The topic was created again with three messages, after six were committed."""
    first, second = words(queue(0, 6, 3), queue(1, 3, 3))[:2]
    assert first == (
        "G has committed beyond the end of 1 queue, which holds 3 messages that it may"
        " not have read: these do not count as lag."
    )
    assert second.startswith("It committed offsets beyond the end of T@broker-a:0: ")
    assert words(queue(0, 6, 3), queue(1, 1, 3))[0] == "G has 2 messages to read."


def test_consumption_that_is_switched_off_is_explained_first(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["x"], queue_id=0, broker="broker-a")
    commit(cluster, "billing", "orders", {0: 0})
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.pause_group("billing", brokers=["broker-a"])
    words = ["lag", "billing", "--explain", "--no-memory", "-n", cluster.namesrv]
    assert run([*words, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    first, second = found["explain"][:2]
    assert first == (
        "Its consumption is switched off on broker-a: members get no messages from"
        " there. Switch it on with: rmq group resume billing"
    )
    assert second.startswith("billing has 1 message to read")


def test_a_member_that_has_not_committed_yet_is_not_said_to_start_later():
    held = ProcessQueueInfo(
        cached_msg_count=76, cached_msg_min_offset=24, cached_msg_max_offset=99
    )
    info = ConsumerRunningInfo(process_queues={MessageQueue("T", "broker-a", 0): held})
    client = read_running_info("c1", info, now_ms=0)
    said = words(
        queue(0, None, 100),
        queue(1, None, 5),
        members=online("c1"),
        clients={"c1": client},
    )
    assert said[1] == (
        "It has started in T@broker-a:0, and has not committed an offset there yet:"
        " the first message that c1 has not finished is at offset 24, and the queue"
        " ends at 100."
    )
    assert said[2].startswith("It never committed an offset in T@broker-a:1, ")


def test_queues_in_which_a_member_has_started_are_one_sentence_for_the_member():
    """The sentence came once for each queue: 16 times for a topic of 16 queues."""
    held = ProcessQueueInfo(
        cached_msg_count=3, cached_msg_min_offset=7, cached_msg_max_offset=9
    )
    clients = {}
    for name, numbers in (("c1", range(6)), ("c2", (6,))):
        of_it = {MessageQueue("T", "broker-a", number): held for number in numbers}
        info = ConsumerRunningInfo(process_queues=of_it)
        clients[name] = read_running_info(name, info, now_ms=0)
    said = words(
        *(queue(number, None, 10 + number) for number in range(7)),
        members=online("c1", "c2"),
        clients=clients,
    )
    assert said[1:3] == [
        (
            "It has started in 6 queues, and has not committed an offset there yet. The"
            " first messages that c1 has not finished: T@broker-a:0 at 7 of 10,"
            " T@broker-a:1 at 7 of 11, T@broker-a:2 at 7 of 12,"
            " T@broker-a:3 at 7 of 13, T@broker-a:4 at 7 of 14 and 1 more."
        ),
        (
            "It has started in T@broker-a:6, and has not committed an offset there yet:"
            " the first message that c2 has not finished is at offset 7, and the queue"
            " ends at 16."
        ),
    ]


def test_members_without_a_queue_are_counted():
    two = [queue(n, 10, 10) for n in (0, 1)]
    assert words(*two, members=online("a", "b")) == [
        ALL_READ,
        "2 members are online.",
    ]
    assert words(*two, members=online("a", "b", "c"))[2] == (
        "Only 2 of them can get a queue: there are no more queues."
    )
    broadcast = online("a", "b", "c", model="BROADCASTING")
    assert not any("Only" in each for each in words(*two, members=broadcast))


@pytest.mark.parametrize(("first", "is_told"), [(50, True), (49, False)])
def test_a_queue_with_half_of_the_lag_is_named(first, is_told):
    readings = [
        queue(0, 100 - first, 100),
        queue(1, 75, 100),
        queue(2, 50 + first, 125),
    ]
    lag = compute_lag(GroupReading(group="G", queues=readings))
    assert lag.total_lag == 100
    assert any("of it is in T@broker-a:0." in each for each in explain(lag)) is is_told


def test_a_share_of_an_unknown_lag_is_one_of_what_is_known():
    """It said that 100% was in one queue while another had never committed."""
    readings = [queue(0, 94, 100), queue(1, None, 100)]
    lag = compute_lag(GroupReading(group="G", queues=readings))
    assert lag.total_lag is None
    assert "100% of the known lag is in T@broker-a:0." in explain(lag)


def test_a_filter_is_explained_only_while_messages_wait():
    told = "It reads only A of T: messages with other tags count as lag until a pull"
    behind = words(queue(0, 5, 10), members=online("a", expression="A"))
    assert any(each.startswith(told) for each in behind)
    done = words(queue(0, 10, 10), members=online("a", expression="A"))
    assert not any(each.startswith("It reads only") for each in done)


def test_nothing_is_said_of_retries_and_dead_letters_where_there_are_none():
    assert words(queue(0, 10, 10), dead_letters=0) == [ALL_READ]


def test_an_age_that_is_not_known_is_not_that_of_an_empty_queue():
    readings = [queue(0, 5, 10), queue(1, 10, 10)]
    assert compute_lag(GroupReading(group="G", queues=readings)).age_ms is None
    readings = [queue(0, 10, 10), queue(1, 10, 10)]
    assert compute_lag(GroupReading(group="G", queues=readings)).age_ms == 0


def test_a_retry_topic_is_not_said_to_start_where_members_choose():
    found = words(queue(0, None, 7, topic="%RETRY%G"), queue(0, None, 0))
    assert found == [
        "G has 7 messages to read.",
        "7 of them failed before and wait for a retry.",
        "No member is online: nothing is read until one starts.",
    ]


def test_members_are_not_called_offline_while_a_broker_did_not_answer():
    failure = BrokerFailure(broker_name="b", address=None, message="no answer")
    (only,) = words(queue(0, 5, 10), failures=[failure])
    assert only == (
        "How far G is behind is unknown (5 messages at least): b: no answer."
    )


@pytest.mark.parametrize(("count", "end"), [(5, "T@broker-a:4"), (6, " and 1 more")])
def test_five_queues_are_named(count, end):
    found = words(*[queue(n, 3, 10, low=5) for n in range(count)])
    (lost,) = [each for each in found if "were deleted" in each]
    assert lost.startswith(
        f"{2 * count} messages were deleted before the group read them (T@"
    )
    assert f"{end}): the broker keeps" in lost


def test_five_stuck_queues_are_named():
    info = ConsumerRunningInfo(
        properties={},
        process_queues={
            MessageQueue("T", "broker-a", n): ProcessQueueInfo(
                cached_msg_count=1_001,
                last_pull_timestamp=NOW_MS,
                last_consume_timestamp=NOW_MS,
            )
            for n in range(7)
        },
    )
    clients = {"a": read_running_info("a", info, now_ms=NOW_MS)}
    found = words(queue(0, 5, 10), members=online("a"), clients=clients)
    (line,) = [each for each in found if "has stopped fetching" in each]
    assert line == (
        "a holds 7,007 unprocessed messages of T@broker-a:0, T@broker-a:1,"
        " T@broker-a:2, T@broker-a:3, T@broker-a:4 and 2 more (limit 1,000 per queue)"
        " and has stopped fetching: its listener is slow."
    )


def test_a_client_that_hangs_does_not_hold_up_the_rest(
    rmq_cluster, capsys, monkeypatch
):
    """The broker relays the query, and the client does not answer within a second."""
    monkeypatch.undo()  # restore the limit of one second
    rmq_cluster.create_topic("orders", queues=1)
    with consumer(rmq_cluster, "billing", "orders", Seen()) as member:
        wait_until(lambda: len(member.queues()) == 2)
        stuck, go_on = threading.Event(), threading.Event()

        def hold():
            stuck.set()
            go_on.wait(60)

        member._backend.engine_thread.post(hold)
        assert stuck.wait(20)
        try:
            where = ("-n", rmq_cluster.namesrv, "--timeout", "30s")
            code = run(["lag", "billing", "-o", "json", *where])
        finally:
            go_on.set()
    (group,) = json.loads(capsys.readouterr().out)
    assert group["notes"][0].startswith(f"{member.client_id} did not answer: ")
    assert "1000 ms" in group["notes"][0]
    assert code == 0


def said_of_removed_queues(notes):
    return [note for note in notes if "beyond the topic's queues" in note]


def test_messages_in_queues_that_were_removed_from_a_topic_are_told(
    cluster, capsys, tmp_path, monkeypatch
):
    """The lag dropped by them, without a word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {0: 10, 1: 4, 2: 7})

    def rmq(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    code, (found,) = rmq("lag", "billing")
    assert (found["total_lag"], said_of_removed_queues(found["notes"])) == (9, [])
    assert rmq("topic", "update", "orders", "--queues", "1", "--yes")[0] == 0
    told = (
        "queues 1, 2 of orders on broker-a are beyond the topic's queues: 9 messages"
        " that no consumer reads"
    )
    for words in (["lag", "billing"], ["lag", "billing"], ["lag"]):
        code, groups = rmq(*words)
        (found,) = (each for each in groups if each["group"] == "billing")
        assert (code, found["total_lag"]) == (0, 0)
        assert said_of_removed_queues(found["notes"]) == [told]
    run(["lag", "billing", "-n", cluster.namesrv, "-o", "csv"])  # has no column for it
    assert f"warning: billing: {told}" in capsys.readouterr().err
    code, judged = rmq("doctor", "--only", "removed-queues")
    (finding,) = judged["checks"][0]["findings"]
    assert (code, finding["evidence"]) == (1, told)
    assert finding["meaning"].endswith("fewer queues than before; with 3 they are read")
    rmq("topic", "update", "orders", "--queues", "3", "--yes")
    code, (found,) = rmq("lag", "billing")
    assert (found["total_lag"], said_of_removed_queues(found["notes"])) == (9, [])


def test_a_broker_is_asked_about_a_thousand_groups_at_a_time(rmq_cluster):
    """Questions about 10,000 groups at once took 50 MB of the asker."""

    def asking(timeout_ms):
        namesrv = (rmq_cluster.namesrv,)
        return Admin(client=ClientConfig(namesrv=namesrv, timeout_ms=timeout_ms))

    groups = [f"group-{number:04}" for number in range(1_001)]
    for group in groups:
        rmq_cluster.create_group(group)
    asked = rmq_cluster.faults.observe(code=203)
    with asking(60_000) as admin:
        told = admin.lags().groups
    assert [each.group for each in told] == groups
    assert {each.reading.dead_letters for each in told} == {0}
    assert len(asked.requests) == 1_001
    rmq_cluster.faults.add(faults.drop_request(), code=203, times=1)
    with asking(1_000) as admin, pytest.raises(NoBrokerError):
        admin.lags()
    assert len(asked.requests) <= 2_001


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_topic_that_is_deleted_meanwhile_has_no_lag(rmq_cluster, lag, named):
    """It was there when its ends were read, and not when the age was."""
    for topic in ("orders", "gone"):
        rmq_cluster.create_topic(topic, queues=1)
        rmq_cluster.send(topic, ["a", "b"])
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", {0: 1})
    commit(rmq_cluster, "billing", "gone", {0: 1})
    deleted = faults.answer(17, "topic[gone] not exist")
    rmq_cluster.faults.add(deleted, code=303, topic="gone")
    found, code = lag(rmq_cluster, *named)
    assert found["billing"]["notes"] == [
        "broker-a has no topic gone any more, but 1 offset of the group in it"
    ]
    assert [each["topic"] for each in found["billing"]["queues"]] == ["orders"]
    assert (found["billing"]["total_lag"], code) == (1, 0)
