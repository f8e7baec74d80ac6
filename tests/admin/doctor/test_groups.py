"""Each check of groups finds the trouble that is planted."""

from __future__ import annotations

import threading

import pytest

from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.admin.doctor.model import CheckStatus
from rmqcli.api.calls.config import update_and_create_subscription_group
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.clock import SystemClock
from rmqcli.config import ClientConfig
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import findings, heartbeat, only_finding, open_client
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import PATIENCE_S

HOUR_MS = 3_600_000


@pytest.fixture
def shop(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    return rmq_cluster


def commit(cluster, offset, queue_id=0):
    with open_client(cluster.namesrv) as client:
        client.invoke(
            cluster.broker().address,
            update_consumer_offset("billing", "orders", queue_id, commit_offset=offset),
        )


def member(cluster, topics, number):
    return consumer(
        cluster,
        "billing",
        topics,
        Seen(),
        heartbeat_broker_interval_ms=500,
        client_ip=f"10.0.0.{number}",
        instance_name="one",
    )


def test_members_that_subscribe_differently_are_a_problem(shop):
    with member(shop, {"orders": "A"}, 1), member(shop, {"orders": "B"}, 2):
        (found,) = findings(shop.namesrv, "subscriptions")
    assert (found.status, found.subject) == (CheckStatus.PROBLEM, "billing")
    assert found.evidence == (
        "members differ on orders: 10.0.0.1@one has A; 10.0.0.2@one has B"
    )


def test_members_that_subscribe_alike_are_no_problem(shop):
    with member(shop, {"orders": "A||B"}, 1), member(shop, {"orders": "B || A"}, 2):
        assert findings(shop.namesrv, "subscriptions") == []


def test_a_member_that_does_not_answer_makes_subscriptions_unknown(shop):
    with member(shop, {"orders": "A"}, 1), member(shop, {"orders": "A"}, 2):
        shop.faults.add(
            faults.answer(1, "no"), code=RequestCode.GET_CONSUMER_RUNNING_INFO
        )
        assert only_finding(shop, "subscriptions") == (
            "unknown",
            "billing",
            "no answer about its subscriptions: 10.0.0.1@one, 10.0.0.2@one",
        )


def test_two_members_with_the_same_id_are_a_problem(shop):
    # They would not answer, which is waited for.
    shop.faults.add(faults.answer(1, "no"), code=RequestCode.GET_CONSUMER_RUNNING_INFO)
    with open_client(shop.namesrv) as one, open_client(shop.namesrv) as other:
        heartbeat(one, "billing", "172.17.0.2@1")
        assert findings(shop.namesrv, "client-ids") == []
        heartbeat(other, "billing", "172.17.0.2@1")
        (found,) = findings(shop.namesrv, "client-ids")
    assert (found.status, found.subject) == (CheckStatus.PROBLEM, "billing")
    assert found.evidence.startswith("2 members have the id 172.17.0.2@1: 127.0.0.1:")


def test_groups_with_messages_and_without_members_are_found(shop):
    commit(shop, 0)
    commit(shop, 0, queue_id=1)
    assert findings(shop.namesrv, "no-member") == []
    shop.send("orders", ["a", "b", "c"], queue_id=0)
    (found,) = findings(shop.namesrv, "no-member")
    assert (found.status, found.subject) == (CheckStatus.WARNING, "billing")
    assert found.evidence.startswith("3 messages waiting, for ")
    with member(shop, {"orders": "*"}, 1):
        assert findings(shop.namesrv, "no-member") == []


def test_of_a_group_that_did_not_commit_everywhere_the_least_is_told(shop):
    shop.send("orders", ["a", "b", "c"], queue_id=0)
    shop.send("orders", ["d"], queue_id=1)
    commit(shop, 0)
    (found,) = findings(shop.namesrv, "no-member")
    assert found.evidence.startswith("at least 3 messages waiting, for ")
    with open_client(shop.namesrv) as client:
        config = SubscriptionGroupConfig(group_name="billing", consume_enable=False)
        change = update_and_create_subscription_group(config)
        client.invoke(shop.broker().address, change)
    assert only_finding(shop, "consume-disabled")[2] == (
        "it may not consume on broker-a, with at least 3 messages waiting"
    )


def test_a_group_whose_members_behind_proxies_are_not_told_may_have_some(shop):
    shop.send("orders", ["a"], queue_id=0)
    commit(shop, 0)
    shop.faults.add(
        faults.answer(16, "no permission"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="DefaultHeartBeatSyncerTopic",
    )
    status, subject, evidence = only_finding(shop, "no-member")
    assert (status, subject) == ("unknown", "billing")
    assert evidence.startswith("members behind proxies are not known: broker-a: ")


def test_offsets_beyond_the_end_of_a_queue_are_a_problem(shop):
    shop.send("orders", ["a"], queue_id=0)
    commit(shop, 7)
    assert only_finding(shop, "offsets-ahead") == (
        "problem",
        "billing",
        (
            "1 committed offset beyond the end of the queue: orders@broker-a:0 has 7,"
            " and ends at 1"
        ),
    )


def test_a_group_that_may_not_consume_is_found_while_messages_wait(shop):
    shop.create_group("billing", consume_enable=False)
    commit(shop, 0)
    assert findings(shop.namesrv, "consume-disabled") == []
    shop.send("orders", ["a"], queue_id=0)
    assert only_finding(shop, "consume-disabled") == (
        "warning",
        "billing",
        "it may not consume on broker-a, with 1 message waiting",
    )
    (found,) = findings(shop.namesrv, "consume-disabled")
    assert found.command == "rmq group resume billing"


def test_a_group_without_retry_queues_is_found(shop):
    """Brokers confirm what its members send back, and store nothing."""
    shop.create_group("billing", retry_queue_nums=0)
    assert only_finding(shop, "retry-queues") == (
        "warning",
        "billing",
        "it has no retry queue on broker-a",
    )


def test_a_group_that_may_not_consume_counts_what_waits_where_it_may_not(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    for name, count in (("broker-a", 5), ("broker-b", 2)):
        cluster.send("orders", ["x"] * count, broker=name)
    with open_client(cluster.namesrv) as client:
        for broker in cluster.brokers:
            call = update_consumer_offset("billing", "orders", 0, commit_offset=0)
            client.invoke(broker.address, call)
        config = SubscriptionGroupConfig(group_name="billing", consume_enable=False)
        change = update_and_create_subscription_group(config)
        client.invoke(cluster.broker("broker-b").address, change)
    assert only_finding(cluster, "consume-disabled") == (
        "warning",
        "billing",
        "it may not consume on broker-b, with 2 messages waiting",
    )


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
    ],
)
@pytest.mark.parametrize("name", ["no-member", "subscriptions", "expired-messages"])
def test_a_broker_that_does_not_tell_its_groups_leaves_them_unknown(shop, code, name):
    """Without any group from another broker, there was nothing to find: all was ok."""
    shop.faults.add(faults.answer(1, "no"), code=code)
    status, subject, evidence = only_finding(shop, name)
    assert (status, subject) == ("unknown", "broker-a")
    assert evidence.endswith("answered SYSTEM_ERROR: no")


@pytest.mark.parametrize("name", ["expired-messages", "no-member", "offsets-ahead"])
def test_a_denied_topic_leaves_the_groups_that_read_it_unknown(shop, name):
    commit(shop, 0)
    shop.faults.add(
        faults.answer(16, "no rights"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="orders",
    )
    status, subject, evidence = only_finding(shop, name)
    assert (status, subject) == ("unknown", "billing")
    assert evidence.startswith("broker-a: stats of topic orders: ")
    assert evidence.endswith("answered NO_PERMISSION: no rights")


def test_lite_topics_that_no_broker_measures_are_not_reported(rmq_cluster):
    rmq_cluster.create_topic("orders", attributes={"message.type": "LITE"})
    rmq_cluster.create_group("billing", attributes={"lite.bind.topic": "orders"})
    assert findings(rmq_cluster.namesrv, "offsets-ahead") == []


def test_a_broker_that_does_not_show_its_topics_may_have_dead_letters(shop):
    shop.faults.add(faults.answer(1, "no"), code=RequestCode.GET_ALL_TOPIC_CONFIG)
    status, subject, evidence = only_finding(shop, "dead-letters")
    assert (status, subject) == ("unknown", "broker-a")
    assert evidence.startswith("it does not show its topics: ")


def test_dead_letters_of_the_last_hour_are_found_and_older_ones_are_not(
    rmq_cluster_factory,
):
    clock = ManualClock()
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("%DLQ%billing", ["old", "older"])
    cluster.advance(2 * HOUR_MS)
    assert new_letters(cluster) == []
    cluster.send("%DLQ%billing", ["new", "newer", "newest"])
    assert new_letters(cluster) == ["3 dead letters in the last hour, 5 in all"]


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_letters_of_other_brokers_that_are_old_are_not_new(rmq_cluster_factory, like):
    """Each broker with old letters added one: the nearest that its search found."""
    clock = ManualClock()
    cluster = rmq_cluster_factory(brokers=3, clock=clock, like=like)
    cluster.create_topic("%DLQ%billing", queues=1)
    for broker in ("broker-a", "broker-b"):
        cluster.send("%DLQ%billing", ["old", "older"], queue_id=0, broker=broker)
    cluster.advance(2 * HOUR_MS)
    cluster.send("%DLQ%billing", ["new"], queue_id=0, broker="broker-c")
    assert new_letters(cluster) == ["1 dead letter in the last hour, 5 in all"]


MINUTE_MS = 60_000


@pytest.fixture
def mixed(rmq_cluster_factory):
    """Starts a cluster with dead letters in one queue, `ages` minutes old each."""

    def start(*ages, like, perm=6):
        clock = ManualClock()
        cluster = rmq_cluster_factory(clock=clock, like=like)
        cluster.create_topic("%DLQ%billing", queues=1, perm=perm)
        for age, later in zip(ages, (*ages[1:], 0), strict=True):
            cluster.send("%DLQ%billing", [f"{age} min"])
            cluster.advance((age - later) * MINUTE_MS)
        return cluster

    return start


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_a_letter_that_is_a_minute_too_old_is_not_new(mixed, like):
    """It is nearer to an hour ago than the next letter, so the search found it."""
    cluster = mixed(61, 10, like=like)
    assert new_letters(cluster) == ["1 dead letter in the last hour, 2 in all"]


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ((120, 61), []),
        ((50, 40), ["2 dead letters in the last hour, 2 in all"]),
        ((120, 50), ["1 dead letter in the last hour, 2 in all"]),
        # The nearest letter may be the first new one, or the last old one.
        ((120, 61, 20), ["at least 1 dead letter in the last hour, 3 in all"]),
        ((80, 59, 10), ["at least 1 dead letter in the last hour, 3 in all"]),
    ],
)
def test_new_letters_that_an_old_broker_does_not_show_are_counted_as_far_as_known(
    mixed, ages, expected
):
    """Up to 4.9.1, brokers refuse pulls of dead letters."""
    assert new_letters(mixed(*ages, like="4.6.0", perm=2)) == expected


def new_letters(cluster):
    return [f.evidence for f in findings(cluster.namesrv, "dead-letters")]


def test_letters_that_a_broker_does_not_count_are_unknown(shop):
    shop.create_topic("%DLQ%billing", queues=1)
    shop.send("%DLQ%billing", ["x"])
    shop.faults.add(
        faults.answer(1, "no"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="%DLQ%billing",
    )
    (found,) = findings(shop.namesrv, "dead-letters")
    assert (found.status, found.subject) == (CheckStatus.UNKNOWN, "billing")


def test_letters_of_a_broker_without_a_master_may_be_new(shop):
    """A slave tells how many there were, and rmq does not ask it when they came."""
    shop.create_topic("%DLQ%billing", queues=1)
    shop.send("%DLQ%billing", ["x"])
    shop.add_slave()
    shop.fail_over()
    assert only_finding(shop, "dead-letters") == (
        "unknown",
        "billing",
        "broker-a: broker-a currently has no master, and its slave may be behind",
    )


class NinetySecondsAhead(SystemClock):
    def epoch_ms(self):
        return super().epoch_ms() + 90_000


def test_a_listener_that_hangs_is_found_at_its_member(shop):
    """A message that is not finished for a minute holds up its queue."""
    entered, release = threading.Event(), threading.Event()

    def listen(*_):
        entered.set()
        release.wait(PATIENCE_S)

    def stuck(**settings):
        config = ClientConfig(namesrv=(shop.namesrv,))
        with Client(config, **settings) as client:
            (result,) = diagnose(client, only=["member-queues"]).results
        return [finding.evidence for finding in result.findings]

    shop.send("orders", ["a"], queue_id=0)
    with consumer(shop, "billing", "orders", listen) as one:
        try:
            assert entered.wait(PATIENCE_S)
            assert stuck() == []
            (found,) = stuck(clock=NinetySecondsAhead())
            member_id = one.client_id
            finding = f"1 queue of member {member_id}: a message is not finished"
            assert found == f"{finding} (STUCK_HEAD)"
        finally:
            release.set()
