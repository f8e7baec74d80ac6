"""`rmq topics`, `groups`, `group show` and `brokers`, mostly on real brokers."""

from __future__ import annotations

import json
import random
import re
import threading

import pytest

from rmqcli import ClientConfig, Producer, ProducerMessage
from rmqcli.admin.topic_counts import count_topics
from rmqcli.admin.topics import list_topics
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.bodies.config import TopicConfig, TopicConfigSerializeWrapper
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.kit import raw
from tests.kit.java_program import JavaConsumer
from tests.kit.messages import send
from tests.kit.waiting import wait_until


@pytest.fixture
def rmq(real_cluster, capsys):
    """`rmq(...)` runs a command; returns its JSON and stderr."""

    def call(*arguments, expect=0, allow=()):
        code = run([*arguments, "-o", "json", "-n", real_cluster.namesrv])
        out, err = capsys.readouterr()
        assert code in (expect, *allow), err
        return (json.loads(out) if out else None), err

    return call


def test_topics_are_listed_and_system_ones_only_when_asked(rmq, new_topic):
    topic = new_topic(queues=3)
    rows, err = rmq("topics")
    (row,) = [row for row in rows if row["topic"] == topic]
    assert row == {
        "topic": topic,
        "kind": "normal",
        "message_type": None,
        "perm": "rw",
        "read_queue_nums": 3,
        "write_queue_nums": 3,
        "order": False,
        "brokers": ["broker-a"],
        "error": None,
    }
    assert {row["kind"] for row in rows} == {"normal"}
    assert "system topics; --all shows them" in err
    rows, err = rmq("topics", "--all")
    kinds = {row["topic"]: row["kind"] for row in rows}
    assert kinds["TBW102"] == kinds["broker-a"] == kinds["DefaultCluster"] == "system"
    assert "--all" not in err
    # No topic that a broker creates itself may be listed as a user's topic.
    mine = [t for t, kind in kinds.items() if kind == "normal"]
    assert not [t for t in mine if t.lower().startswith(("rmq_sys", "schedule"))]


def test_brokers(rmq, real_cluster):
    (row,), _ = rmq("brokers")
    assert row["cluster"] == "DefaultCluster"
    assert (row["broker_name"], row["broker_id"], row["role"]) == (
        "broker-a",
        0,
        "MASTER",
    )
    assert row["address"] == real_cluster.broker_address()
    assert row["version"] == real_cluster.version
    # A broker that has just started has not measured its rates yet.
    assert row["in_tps"] is None or row["in_tps"] >= 0
    assert row["out_tps"] is None or row["out_tps"] >= 0
    assert row["uptime_ms"] >= 0
    assert row["error"] is None


def test_a_group_that_does_not_exist(rmq):
    group = f"G-{random.getrandbits(40):x}"
    _, err = rmq("group", "show", group, expect=3)
    assert json.loads(err)["error"]["code_name"] == "SUBSCRIPTION_GROUP_NOT_EXIST"
    # The query must not have created the group.
    rows, _ = rmq("groups")
    assert group not in {row["group"] for row in rows}


def test_a_live_consumer_is_shown(rmq, real_cluster, new_topic):
    topic = new_topic(queues=2)
    group = f"G-{random.getrandbits(40):x}"
    with JavaConsumer(real_cluster, group, topic) as consumer:
        # The consumer is shown after the broker has received its heartbeat.
        raw.wait_until(
            lambda: _members(rmq, group) == 1,
            timeout_ms=60_000,
            what=lambda: "heartbeat of the consumer",
        )
        rows, _ = rmq("groups")
        (row,) = [row for row in rows if row["group"] == group]
        assert row == {
            "group": group,
            "kind": "normal",
            "members": 1,
            "consume_type": "CONSUME_PASSIVELY",
            "message_model": "CLUSTERING",
            "brokers": ["broker-a"],
            "error": None,
            "reason": None,
        }
        data, _ = rmq("group", "show", group)
        (member,) = data["members"]
        assert member["client_id"] == consumer.client_id
        assert member["client_addr"].startswith("127.0.0.1:")
        assert (member["language"], member["version"]) == ("JAVA", real_cluster.version)
        assert topic in data["topics"]
        (subscription,) = [s for s in data["subscriptions"] if s["topic"] == topic]
        assert subscription["sub_string"] == "*"
        assert data["configs"][0]["retry_max_times"] == 16
        data, _ = rmq("topic", "show", topic)
        assert group in data["groups"]
    rows, _ = rmq("topics")
    assert f"%RETRY%{group}" not in {row["topic"] for row in rows}


def _members(rmq, group):
    rows, _ = rmq("groups")
    return next((row["members"] for row in rows if row["group"] == group), None)


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two brokers: topic orders has three messages, and topic steps is FIFO."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    cluster.create_topic("steps", queues=1, attributes={"message.type": "FIFO"})
    cluster.send("orders", ["a", "b", "c"], broker="broker-a", queue_id=1)
    return cluster


@pytest.fixture
def shown(pair, capsys):
    """Runs a command; returns its exit code, stdout with fixed addresses, stderr."""

    def call(*words):
        capsys.readouterr()
        code = run([*words, "-n", pair.namesrv])
        out, err = capsys.readouterr()
        out = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:12345", out)
        return code, re.sub(r"20\d\d-[-\d]*T[\d:.]*Z", "(time)", out), err

    return call


def test_topics_are_a_table_and_those_not_shown_are_counted_by_kind(pair, shown):
    table = """\
TOPIC   KIND    TYPE  PERM  READ  WRITE  BROKERS            ERROR
orders  normal  -     rw       4      4  broker-a,broker-b  -
steps   normal  FIFO  rw       2      2  broker-a,broker-b  -
"""
    hidden = "not shown: 17 system topics; --all shows them\n"
    assert shown("topics") == (0, table, hidden)
    pair.create_topic("%RETRY%billing", queues=1)
    pair.create_topic("%DLQ%billing", queues=1)
    hidden = "not shown: 1 dlq, 1 retry, 17 system topics; --all shows them\n"
    assert shown("topics") == (0, table, hidden)
    code, out, err = shown("topics", "--all")
    assert (code, len(out.splitlines()), err) == (0, 22, "")


def test_a_sample_adds_messages_and_rates(pair, shown):
    code, out, err = shown("topics", "--sample", "10ms")
    assert code == 0, err
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "TOPIC KIND TYPE PERM READ WRITE IN/S MESSAGES BROKERS ERROR REASON",
        "orders normal - rw 4 4 0.0 3 broker-a,broker-b - -",
        "steps normal FIFO rw 2 2 0.0 0 broker-a,broker-b - -",
    ]
    code, out, _ = shown("topics", "--sample", "10ms", "-o", "jsonl")
    orders = json.loads(out.splitlines()[0])
    assert orders.pop("sample_ms") >= 10
    assert orders == {
        "topic": "orders",
        "kind": "normal",
        "message_type": None,
        "perm": "rw",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "order": False,
        "rate_in": 0.0,
        "messages": 3,
        "brokers": ["broker-a", "broker-b"],
        "error": None,
        "reason": None,
    }


def test_messages_that_are_sent_during_a_sample_are_its_rate(pair, shown):
    ended = threading.Event()

    def send():
        while not ended.is_set():
            pair.send("orders", ["x"])

    def rate():
        code, out, err = shown("topics", "--sample", "100ms", "-o", "jsonl")
        assert code == 0, err
        return json.loads(out.splitlines()[0])["rate_in"]

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert wait_until(rate) > 0
    finally:
        ended.set()
        sender.join()


def test_a_sample_without_a_broker_has_no_number_of_its_topics(pair, shown):
    pair.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_TOPIC_STATS_INFO, broker="broker-b"
    )
    code, out, err = shown("topics", "--sample", "10ms", "-o", "jsonl")
    orders = json.loads(out.splitlines()[0])
    assert (code, orders["rate_in"], orders["messages"]) == (6, None, None)
    assert orders["reason"].startswith("broker-b: ")
    assert "not all numbers of 2 topics are known: broker-b: " in err
    code, out, _ = shown("topics", "--sample", "10ms")
    cells = out.splitlines()[1].split()
    assert (code, cells[0], cells[6:8]) == (6, "orders", ["-", "-"])


def test_what_offsets_cannot_tell_of_a_topic_is_no_failure(rmq_cluster, capsys):
    """A static topic has queues of its own, and a compacted one has gaps."""
    rmq_cluster.create_topic(
        "prices", queues=1, attributes={"cleanup.policy": "COMPACTION"}
    )
    rmq_cluster.send("prices", ["x"] * 5)
    settings = TopicConfigSerializeWrapper(
        topic_config_table={
            "prices": TopicConfig(
                topic_name="prices", attributes={"cleanup.policy": "COMPACTION"}
            ),
            "orders": TopicConfig(topic_name="orders"),
        },
        topic_queue_mapping_detail_map={"orders": {}},
    )
    told = faults.answer(0, body=encode_body(settings))
    rmq_cluster.faults.add(told, code=RequestCode.GET_ALL_TOPIC_CONFIG)
    words = ("topics", "--sample", "10ms", "-o", "jsonl", "-n", rmq_cluster.namesrv)
    assert run([*words]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["topic"], r["messages"], r["rate_in"], r["reason"]) for r in rows] == [
        ("orders", None, None, "offsets of a static topic do not tell its numbers"),
        (
            "prices",
            None,
            0.0,
            "offsets of a compacted topic do not tell how many messages it has",
        ),
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--sample 0s", "--sample must be greater than zero"),
        ("--sample 1s --store x", "--sample and --store cannot be used together"),
    ],
)
def test_a_sample_that_cannot_be_taken_is_refused(words, error, capsys):
    assert run(["topics", *words.split()]) == 2
    assert f"error: {error}" in capsys.readouterr().err


def test_a_sample_of_topics_on_real_brokers(rmq, real_cluster, new_topic):
    """The second sample has the messages of the first, and those sent in between."""
    topic = new_topic(queues=2)
    send(real_cluster, topic, [b"x"] * 7)
    ended = threading.Event()

    def fill():
        with Producer(namesrv=real_cluster.namesrv) as producer:
            while not ended.is_set():
                producer.send(ProducerMessage(topic, b"x"))

    def row_of_topic():
        # A topic that another test deletes or changes meanwhile may have no rate.
        rows, _ = rmq("topics", "--sample", "1s", allow=(6,))
        return next(row for row in rows if row["topic"] == topic)

    def is_at_rest():  # a broker counts a message a moment after it has confirmed it
        row = row_of_topic()
        return (row["messages"], row["rate_in"], row["reason"]) == (7, 0.0, None)

    wait_until(is_at_rest)
    filler = threading.Thread(target=fill)
    filler.start()
    try:
        after = wait_until(lambda: row if (row := row_of_topic())["rate_in"] else None)
    finally:
        ended.set()
        filler.join()
    assert after["messages"] > 7
    assert after["sample_ms"] >= 1_000


def test_topics_of_every_kind_have_numbers_on_real_brokers(real_cluster, new_topic):
    """Of the topics of groups and of users only its own: others may be compacted."""
    topic = new_topic(queues=1)
    of_group = (f"%RETRY%G-{topic}", f"%DLQ%G-{topic}")
    ours = {topic, *(new_topic(each, queues=1) for each in of_group)}
    with Client(ClientConfig(namesrv=(real_cluster.namesrv,))) as client:
        listed = list_topics(client)
        rows = [e for e in listed.topics if e.kind == "system" or e.topic in ours]
        counts = count_topics(client, listed, topics=rows)
    assert {row.kind for row in rows} == {"system", "retry", "dlq", "normal"}
    assert counts.topics.keys() >= {"TBW102", "broker-a"} | ours
    assert {each.reason for each in counts.topics.values()} == {None}


def test_a_cluster_without_topics_of_its_users_says_so(rmq_cluster, capsys):
    assert run(["topics", "-n", rmq_cluster.namesrv]) == 0
    hidden = "not shown: 15 system topics; --all shows them\n"
    assert capsys.readouterr() == ("", f"no topics\n{hidden}")


def test_a_topic_is_shown_with_its_settings_and_queues(pair, shown):
    table = """\
topic orders: normal, 4 queues, 3 messages
groups: none

BROKER    ADDRESS          READ  WRITE  PERM  IN ROUTE  ORDER  ATTRIBUTES  ERROR
broker-a  127.0.0.1:12345     2      2  rw    rw        no     {}          -
broker-b  127.0.0.1:12345     2      2  rw    rw        no     {}          -

BROKER    QUEUE  MIN  MAX  MESSAGES  LAST_UPDATE
broker-a      0    0    0         0  -
broker-a      1    0    3         3  (time)
broker-b      0    0    0         0  -
broker-b      1    0    0         0  -
"""
    assert shown("topic", "show", "orders") == (0, table, "")
    offsets = pair.broker().state.offsets
    for group in ("audit", "billing"):
        pair.call(lambda g=group: offsets.commit(g, "steps", 0, 0))
    code, out, _ = shown("topic", "show", "steps")
    assert (code, out.splitlines()[:2]) == (
        0,
        ["topic steps: FIFO, 2 queues, 0 messages", "groups: audit, billing"],
    )
    _, out, _ = shown("topic", "show", "steps", "-o", "json")
    data = json.loads(out)
    assert data.keys() == {
        *("topic", "kind", "message_type", "brokers", "queues", "groups", "errors"),
    }
    assert data["brokers"][1] == {
        "broker_name": "broker-b",
        "cluster": "DefaultCluster",
        "address": "127.0.0.1:12345",
        "read_queue_nums": 1,
        "write_queue_nums": 1,
        "perm": "rw",
        "route_perm": "rw",
        "order": False,
        "topic_filter_type": "SINGLE_TAG",
        "topic_sys_flag": 0,
        "attributes": {"message.type": "FIFO"},
        "error": None,
    }


def test_a_denied_topic_has_unknown_messages_and_groups(rmq_cluster, capsys):
    """The table said "0 messages, 1 queue unknown" and "groups: none"."""
    rmq_cluster.create_topic("orders", queues=1)
    denied = faults.answer(16, "no permission for orders")
    rmq_cluster.faults.add(
        denied, code=RequestCode.GET_TOPIC_STATS_INFO, topic="orders"
    )
    words = ["topic", "show", "orders", "-n", rmq_cluster.namesrv]
    assert run(words) == 4
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        "topic orders: normal, 1 queue, messages unknown",
        "groups: unknown",
    ]
    assert "error: stats of topic orders" in err
    run([*words, "-o", "json"])
    assert json.loads(capsys.readouterr().out)["groups"] is None


def test_of_a_topic_that_one_broker_denies_the_least_is_told(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.send("orders", ["x"], broker="broker-a")
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        commit = update_consumer_offset("billing", "orders", 0, commit_offset=0)
        client.invoke(cluster.broker("broker-a").address, commit)
    cluster.faults.add(faults.answer(16, "no permission"), broker="broker-b")
    assert run(["topic", "show", "orders", "-n", cluster.namesrv]) == 6
    assert capsys.readouterr().out.splitlines()[:2] == [
        "topic orders: normal, 2 queues, at least 1 message, 1 queue unknown",
        "groups: at least billing",
    ]


def test_of_a_topic_on_a_broker_that_has_left_the_least_is_told(
    rmq_cluster_factory, capsys
):
    """It said "1 queue, 1 message", as if the topic had been nowhere else."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    words = ["-n", cluster.namesrv]
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        commit = update_consumer_offset("billing", "orders", 0, commit_offset=0)
        for broker in ("broker-a", "broker-b"):
            cluster.send("orders", ["x"], broker=broker)
            client.invoke(cluster.broker(broker).address, commit)
        assert run(["lag", *words]) == 0
        cluster.broker("broker-b").kill()
        wait_until(lambda: "broker-b" not in client.cluster_info(refresh=True).brokers)
    capsys.readouterr()
    assert run(["topic", "show", "orders", *words]) == 6
    assert capsys.readouterr().out.splitlines()[:2] == [
        "topic orders: normal, at least 1 queue, at least 1 message",
        "groups: at least billing",
    ]


@pytest.mark.parametrize(
    "command", [["topics"], ["groups"], ["brokers"], ["topic", "show", "T"]]
)
def test_fields_are_listed(command, capsys):
    assert run([*command, "-o", "help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.split()) > 1 for line in lines)
