"""`rmq lag` on the embedded cluster: messages waiting for a retry, and dead letters."""

from __future__ import annotations

import json
import threading

import pytest

from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.api.calls.client import send_heartbeat
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.subscription import SubscriptionData
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until


@pytest.fixture
def lag(capsys):
    """`lag(cluster, *arguments)` returns the groups by name, and the exit code."""

    def ask(cluster, *arguments):
        capsys.readouterr()
        where = () if "-n" in arguments else ("-n", cluster.namesrv)
        code = run(["lag", *arguments, *where, "-o", "json"])
        out = capsys.readouterr().out
        return {item["group"]: item for item in json.loads(out)} if out else {}, code

    return ask


def commit(cluster, group, topic, offsets, *, broker="broker-a"):
    """Commit offsets by queue id, as a member does."""
    core = cluster.broker(broker).state

    def do():
        for queue_id, offset in offsets.items():
            core.offsets.commit(group, topic, queue_id, offset)

    cluster.call(do)


def pick(row, *names):
    return tuple(row[name] for name in names)


@pytest.fixture
def waiting(rmq_cluster):
    """A cluster whose group has read its topic, and has 7 messages to be retried."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"] * 10)
    commit(rmq_cluster, "billing", "orders", {0: 5, 1: 5})
    rmq_cluster.create_topic("%RETRY%billing", queues=1)
    for _ in range(7):  # brokers refuse batches for retry topics
        rmq_cluster.send("%RETRY%billing", ["again"])
    return rmq_cluster


@pytest.mark.parametrize("named", [["billing"], []])
def test_messages_that_wait_for_another_try_are_lag_though_none_was_committed(
    waiting, lag, named
):
    found, code = lag(waiting, *named)
    group = found["billing"]
    assert pick(group, "total_lag", "known_lag") == (7, 7)
    (retry,) = [t for t in group["topics"] if t["retry"]]
    assert pick(retry, "topic", "lag", "state") == ("%RETRY%billing", 7, "NO_COMMIT")
    (queue,) = [q for q in group["queues"] if q["topic"] == "%RETRY%billing"]
    assert pick(queue, "committed", "max_offset", "lag") == (None, 7, 7)
    assert queue["age_ms"] is not None
    assert code == 0


@pytest.mark.parametrize("named", [["billing"], []])
def test_what_was_committed_of_a_retry_topic_is_not_lag(waiting, lag, named):
    commit(waiting, "billing", "%RETRY%billing", {0: 5})
    found, _ = lag(waiting, *named)
    assert found["billing"]["total_lag"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("named", [["billing"], []])
@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_members_that_do_not_subscribe_to_retries_hide_none(
    rmq_cluster_factory, lag, named, like
):
    """Pull consumers do not subscribe to them, but offsets committed there count."""
    cluster = rmq_cluster_factory(like=like)
    cluster.create_topic("orders", queues=1)
    cluster.create_topic("%RETRY%billing", queues=1)
    for _ in range(7):
        cluster.send("%RETRY%billing", ["again"])
    commit(cluster, "billing", "orders", {0: 0})
    commit(cluster, "billing", "%RETRY%billing", {0: 5})
    member = ConsumerData(
        group_name="billing",
        consume_type="CONSUME_ACTIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(SubscriptionData(topic="orders", sub_string="*"),),
        unit_mode=False,
    )
    heartbeat = HeartbeatData(client_id="puller", consumers=(member,))
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        client.invoke(cluster.broker().address, send_heartbeat(heartbeat))
        found, code = lag(cluster, *named, "--timeout", "3s")
    names = ("committed", "max_offset", "lag", "state")
    (retry,) = [q for q in found["billing"]["queues"] if q["topic"] != "orders"]
    assert pick(retry, *names) == (5, 7, 2, "KNOWN")
    assert pick(found["billing"], "total_lag", "state") == (2, "BEHIND")
    assert code == 0


def test_what_was_pulled_before_an_offset_was_set_ahead_is_not_in_flight(
    rmq_cluster, lag
):
    """Without a member nothing is in flight, whatever the broker remembers."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"] * 20)
    commit(rmq_cluster, "billing", "orders", {0: 5, 1: 5})
    core = rmq_cluster.broker().state
    for queue_id, pulled in ((0, 3), (1, 8)):
        rmq_cluster.call(
            lambda q=queue_id, at=pulled: core.offsets.commit_pull(
                "billing", "orders", q, at
            )
        )
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        reading = LagGatherer(client, LagQuery(groups=("billing",))).read()
    assert [queue.inflight for queue in reading.groups[0].queues] == [0, 3]
    found, _ = lag(rmq_cluster, "billing")
    assert [q["inflight"] for q in found["billing"]["queues"]] == [None, None]
    assert found["billing"]["inflight_reason"] == "no active members"


def test_an_empty_retry_topic_has_no_row(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", {0: 0})
    rmq_cluster.create_topic("%RETRY%billing", queues=1)
    found, _ = lag(rmq_cluster, "billing")
    assert [t["topic"] for t in found["billing"]["topics"]] == ["orders"]


def test_one_topic_asked_for_shows_no_retry_topic(waiting, lag):
    found, _ = lag(waiting, "billing", "--topic", "orders")
    assert [t["topic"] for t in found["billing"]["topics"]] == ["orders"]


@pytest.mark.parametrize("named", [["billing"], []])
def test_dead_letters_are_counted_on_all_brokers(rmq_cluster_factory, lag, named):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {0: 0})
    assert lag(cluster, *named)[0]["billing"]["dead_letters"] == 0
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("%DLQ%billing", ["dead"] * 3, broker="broker-a")
    cluster.send("%DLQ%billing", ["dead"] * 4, broker="broker-b")
    found, _ = lag(cluster, *named)
    assert pick(found["billing"], "dead_letters", "total_lag") == (7, 0)
    cluster.broker("broker-a").trim("%DLQ%billing", 2)
    assert lag(cluster, *named)[0]["billing"]["dead_letters"] == 5


def test_dead_letters_of_a_broker_that_hangs_are_unknown(rmq_cluster_factory, lag):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    commit(cluster, "billing", "orders", {0: 0})
    cluster.broker("broker-b").hang()
    found, code = lag(cluster, "billing", "--timeout", "700ms")
    assert (found["billing"]["dead_letters"], code) == (None, 6)


def test_retries_and_dead_letters_are_explained(waiting, capsys):
    waiting.create_topic("%DLQ%billing", queues=1)
    waiting.send("%DLQ%billing", ["dead"] * 3)
    assert run(["lag", "billing", "--explain", "-n", waiting.namesrv]) == 0
    shown = capsys.readouterr()
    assert "7 of them failed before and wait for a retry." in shown.out
    assert (
        "Its dead-letter topic holds 3 messages; read them with: rmq tail %DLQ%billing"
    ) in shown.out
    assert "lag 7, 7 of it in the retry topic" in shown.err
    assert shown.err.rstrip().endswith("members 0, dead letters 3")


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_broker_at_which_a_stopped_group_never_committed_has_rows(
    rmq_cluster_factory, lag, named
):
    """The broker was added, or lost its offsets. The group will read its queues."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["x"] * 8)
    commit(cluster, "billing", "orders", {0: 4})
    found, code = lag(cluster, *named)
    group = found["billing"]
    names = ("broker_name", "committed", "max_offset", "lag", "state")
    assert [pick(q, *names) for q in group["queues"]] == [
        ("broker-a", 4, 4, 0, "OK"),
        ("broker-b", None, 4, None, "NO_COMMIT"),
    ]
    assert pick(group, "state", "total_lag") == ("NO_COMMIT", None)
    assert code == 0


def test_a_broker_without_the_topic_has_no_rows(rmq_cluster_factory, lag):
    cluster = rmq_cluster_factory(brokers=2)
    core = cluster.broker("broker-a").state
    cluster.send("orders", ["x"] * 8, broker="broker-a", queue_id=0)
    cluster.create_group("billing")
    cluster.call(lambda: core.offsets.commit("billing", "orders", 0, 8))
    found, code = lag(cluster, "billing")
    assert {q["broker_name"] for q in found["billing"]["queues"]} == {"broker-a"}
    assert (found["billing"]["state"], code) == ("OK", 0)


def test_a_backlog_without_members_is_not_ok(rmq_cluster, lag, capsys):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"] * 9)
    commit(rmq_cluster, "billing", "orders", {0: 2})
    assert lag(rmq_cluster, "billing")[0]["billing"]["state"] == "STOPPED"
    for arguments, stream in ((["billing"], 1), ([], 0)):
        run(["lag", *arguments, "-n", rmq_cluster.namesrv])
        assert "STOPPED" in capsys.readouterr()[stream]


def test_a_backlog_with_members_is_behind_and_then_ok(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"] * 9)
    commit(rmq_cluster, "billing", "orders", {0: 2})
    go_on = threading.Event()
    with consumer(rmq_cluster, "billing", "orders", lambda _: go_on.wait(60)) as member:
        wait_until(lambda: len(member.queues()) == 2)
        found, _ = lag(rmq_cluster, "billing")
        go_on.set()
    assert pick(found["billing"], "state", "total_lag") == ("BEHIND", 7)
    often = {"persist_consumer_offset_interval_ms": 100}
    with consumer(rmq_cluster, "billing", "orders", Seen(), **often):
        wait_until(lambda: lag(rmq_cluster, "billing")[0]["billing"]["state"] == "OK")


def test_a_table_counts_the_queues_of_members(rmq_cluster, capsys):
    """A list without its middle read like the name of a queue that does not exist:
    `%RETRY%bill…@broker-a:3`."""
    rmq_cluster.create_topic("orders", queues=4)
    rmq_cluster.send("orders", ["x"] * 4)
    seen = Seen()
    with consumer(rmq_cluster, "billing", "orders", seen) as member:
        wait_until(lambda: len(seen.bodies) == 4 and len(member.queues()) == 5)
        assert run(["lag", "billing", "-n", rmq_cluster.namesrv]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["CLIENT", "ADDRESS", "VERSION", "LANGUAGE", "QUEUES"] in rows
    assert [row[-1] for row in rows if row[3:4] == ["PYTHON"]] == ["5"]


@pytest.mark.parametrize("named", [["billing"], []])
def test_the_lag_in_lite_topics_is_not_called_0_or_uncommitted(rmq_cluster, lag, named):
    """No request of `rmq lag` measures them; offsets are in topics `%LMQ%$...`."""
    rmq_cluster.create_topic("orders", attributes={"message.type": "LITE"})
    rmq_cluster.create_group("billing", attributes={"lite.bind.topic": "orders"})
    commit(rmq_cluster, "billing", "%LMQ%$orders$alice", {0: 5})
    found, code = lag(rmq_cluster, *named)
    group = found["billing"]
    assert pick(group, "total_lag", "state") == (None, "UNKNOWN")
    assert [q["topic"] for q in group["queues"]] == ["orders"]
    assert group["queues"][0]["reason"] == (
        "the lag in lite topics of orders is not measured"
    )
    assert group["notes"] == []
    assert code == 6
