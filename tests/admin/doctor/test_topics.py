"""Each check of topics finds the trouble that is planted."""

from __future__ import annotations

import pytest

from rmqcli import LocalTransactionState, Producer, ProducerMessage
from rmqcli.testing import ManualClock, Seed, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import (
    findings,
    only_finding,
    plant_runtime,
    plant_settings,
)
from tests.kit import raw
from tests.kit.waiting import wait_until


@pytest.fixture
def pair(rmq_cluster_factory):
    return rmq_cluster_factory(brokers=2)


def create(cluster, topic, broker, *, perm=6, queues=4, attributes=""):
    """Create a topic on one broker only."""
    answer = raw.ask(
        cluster.broker(broker).address,
        17,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": attributes,
        },
    )
    assert answer.code == 0, answer


def test_a_topic_without_a_route_is_found(pair):
    pair.create_topic("orders")
    pair.faults.add(
        faults.answer(17, "No topic route info"),
        code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        topic="orders",
    )
    assert only_finding(pair, "topic-route") == (
        "warning",
        "orders",
        "it is on broker-a, broker-b, and the name server has no route",
    )


def test_a_route_that_names_a_broker_without_the_topic_is_found(pair):
    pair.create_topic("orders")
    assert findings(pair.namesrv, "topic-route") == []
    # The name server keeps the route of a topic that the broker has deleted.
    pair.faults.add(
        faults.answer(0, body=b'{"topicConfigTable":{}}'),
        code=RequestCode.GET_ALL_TOPIC_CONFIG,
        broker="broker-b",
    )
    assert only_finding(pair, "topic-route") == (
        "warning",
        "orders",
        "its route names broker-b, where it does not exist",
    )


def test_topics_on_some_brokers_only_are_found(pair):
    pair.create_topic("everywhere")
    create(pair, "orders", "broker-a")
    create(pair, "payments", "broker-a")
    assert only_finding(pair, "topic-brokers") == (
        "warning",
        "broker-b",
        "it lacks 2 topics that another broker of its cluster has: orders, payments",
    )


def test_a_topic_that_nobody_can_send_to_is_found(pair):
    create(pair, "orders", "broker-a", perm=4)
    assert only_finding(pair, "topic-writable") == (
        "warning",
        "orders",
        "its permission is r, and it has 4 queues to write",
    )
    create(pair, "orders", "broker-b")  # one broker takes messages
    assert findings(pair.namesrv, "topic-writable") == []


def test_a_topic_may_be_written_on_a_broker_that_does_not_show_it(pair):
    create(pair, "orders", "broker-a", perm=4)
    create(pair, "orders", "broker-b")
    pair.faults.add(
        faults.answer(1, "no"),
        code=RequestCode.GET_ALL_TOPIC_CONFIG,
        broker="broker-b",
    )
    (found,) = findings(pair.namesrv, "topic-writable")
    assert (str(found.status), found.subject) == ("unknown", "broker-b")


def test_topics_whose_settings_differ_are_found(pair):
    create(pair, "orders", "broker-a")
    create(pair, "orders", "broker-b", perm=4, attributes="+message.type=FIFO")
    found = {f.evidence for f in findings(pair.namesrv, "topic-settings")}
    assert found == {
        "perm differs: r on broker-b; rw on broker-a",
        "attributes differs: message.type=FIFO on broker-b; none on broker-a",
    }


def test_a_topic_with_queues_that_no_consumer_reads_is_found(pair):
    """A producer wrote to all eight, and half of its messages were never delivered."""
    create(pair, "orders", "broker-a", queues=8)
    create(pair, "orders", "broker-b", queues=2)
    (found,) = findings(pair.namesrv, "topic-settings")
    assert found.evidence == "8 write queues on broker-a and 4 read queues"
    assert found.command == "rmq topic update orders --queues 8 --broker broker-a"


def test_orphaned_retry_and_dead_letter_topics_are_found(rmq_cluster):
    rmq_cluster.create_group("billing")
    for topic in (
        "%RETRY%billing",
        "%RETRY%billing_orders",  # POP's, of version 1
        "%RETRY%billing+orders",  # POP's, of version 2
        "%DLQ%billing",
        "%RETRY%CID_RMQ_SYS_TRANS",
    ):
        rmq_cluster.create_topic(topic)
    for name in ("orphaned-retry", "orphaned-letters"):
        assert findings(rmq_cluster.namesrv, name) == []
    rmq_cluster.create_topic("%RETRY%gone")
    rmq_cluster.create_topic("%DLQ%gone")
    assert only_finding(rmq_cluster, "orphaned-retry") == (
        "warning",
        "%RETRY%gone",
        "1 retry topic of groups that no broker knows: %RETRY%gone",
    )
    assert only_finding(rmq_cluster, "orphaned-letters") == (
        "warning",
        "%DLQ%gone",
        "1 topic of dead letters of groups that no broker knows: %DLQ%gone",
    )


def test_nothing_is_called_an_orphan_while_a_broker_does_not_tell_its_groups(pair):
    pair.create_topic("%RETRY%gone")
    pair.faults.add(
        faults.answer(1, "no"),
        code=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        broker="broker-b",
    )
    found = findings(pair.namesrv, "orphaned-retry")
    assert [(str(f.status), f.subject) for f in found] == [("unknown", "broker-b")]


def leaves(cluster):
    cluster.broker("broker-b").kill()


def loses_its_master(cluster):
    cluster.add_slave("broker-b")
    cluster.fail_over("broker-b")


@pytest.mark.parametrize("event", [leaves, loses_its_master])
def test_nothing_is_called_an_orphan_while_a_broker_cannot_tell_its_groups(pair, event):
    """That broker may have the group, and the hint is to delete the topic."""
    for topic in ("%RETRY%billing", "%DLQ%billing"):
        pair.create_topic(topic)
    for name in ("orphaned-retry", "orphaned-letters"):
        assert only_finding(pair, name)[0] == "warning"  # which remembers the brokers
    event(pair)
    for name in ("orphaned-retry", "orphaned-letters"):
        found = findings(pair.namesrv, name)
        assert [(str(f.status), f.subject) for f in found] == [("unknown", "broker-b")]


@pytest.mark.parametrize(
    ("behind", "unread", "expected"),
    [
        ("59", "0", []),
        ("60", "0", ["warning"]),
        ("600", "0", ["problem"]),
        ("0", "99999", []),
        ("0", "100000", ["warning"]),
        ("-5", "0", ["unknown"]),
    ],
)
def test_timers_that_are_late_are_found(rmq_cluster, behind, unread, expected):
    plant_runtime(
        rmq_cluster,
        runtime="[ 10 days, 0 hours, 0 minutes, 0 seconds ]",
        timerReadBehind=behind,
        timerOffsetBehind=unread,
    )
    found = findings(rmq_cluster.namesrv, "timer-backlog")
    assert [str(f.status) for f in found] == expected


def test_the_timer_of_a_broker_that_was_just_started_is_not_called_late(rmq_cluster):
    """A real 5.3.3 was 4d4h behind in its first seconds, without any message."""
    plant_runtime(rmq_cluster, timerReadBehind="360000", timerOffsetBehind="0")
    assert only_finding(rmq_cluster, "timer-backlog") == (
        "unknown",
        "broker-a",
        (
            "it was started lately, and its timer still goes through the time before:"
            " 4d4h are left"
        ),
    )


@pytest.fixture
def delayed(rmq_cluster_factory):
    """A cluster whose first messages of delay levels were stored 15 min ago.

    Levels 3 and 20 are 10 s.
    """
    levels = {"message_delay_level": f"1s 5s {'10s ' * 18}"}
    cluster = rmq_cluster_factory(clock=ManualClock(), settings=levels)
    cluster.create_topic("orders", queues=1)
    for level in ("3", "20"):
        cluster.send("orders", [Seed(body=b"x", properties={"DELAY": level})])
    cluster.advance(900_000)
    return cluster


@pytest.mark.parametrize("level", [3, 20])
def test_delayed_messages_that_are_late_are_found(delayed, level):
    assert findings(delayed.namesrv, "delay-backlog") == []  # they were delivered
    plant_runtime(delayed, **{f"scheduleMessageOffset_{level}": "0,1"})
    (found,) = findings(delayed.namesrv, "delay-backlog")
    assert found.evidence.startswith(
        "messages of 1 delay level are late, by up to 14m5"
    )
    assert str(found.status) == "problem"


def test_a_delay_level_that_cannot_be_read_is_unknown(delayed):
    plant_runtime(delayed, scheduleMessageOffset_3="0,1")
    delayed.faults.add(faults.answer(1, "no"), code=RequestCode.PULL_MESSAGE)
    assert only_finding(delayed, "delay-backlog") == (
        "unknown",
        "broker-a",
        "it does not show the messages, or the delays, of delay level 3",
    )


def test_a_setting_that_is_not_a_delay_does_not_end_the_diagnosis(delayed):
    plant_runtime(delayed, scheduleMessageOffset_3="0,1")
    plant_settings(delayed, messageDelayLevel="1s 5s soon")
    assert only_finding(delayed, "delay-backlog") == (
        "unknown",
        "broker-a",
        "it does not show the messages, or the delays, of delay level 3",
    )


def test_open_transactions_that_nobody_can_end_are_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory(
        settings={
            "transaction_timeout_ms": 1,
            "transaction_check_interval_ms": 50,
            "transaction_check_max": 1_000_000,
        }
    )
    cluster.create_topic("orders")
    undecided = LocalTransactionState.UNKNOW
    with Producer(
        "shop", namesrv=cluster.namesrv, on_check=lambda _: undecided
    ) as producer:
        message = ProducerMessage("orders", b"x")
        producer.send_in_transaction(message, lambda *_: undecided)
        wait_until(
            lambda: (
                [str(f.status) for f in findings(cluster.namesrv, "transactions")]
                == ["warning"]
            )
        )
        assert only_finding(cluster, "transactions")[1:] == (
            "shop",
            "open transactions on broker-a after 3 checks or more: 1",
        )
    assert only_finding(cluster, "transactions") == (
        "problem",
        "shop",
        "open transactions on broker-a: 1; no producer of the group is connected",
    )
