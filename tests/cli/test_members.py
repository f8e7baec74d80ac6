"""`rmq group members`, `rmq group stack` and `rmq producers` on the command line."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout

import pytest

from rmqcli import Consumer, Producer, ProducerMessage
from rmqcli.admin.producers import ProducerRow
from rmqcli.cli.main import run
from rmqcli.cli.producers import COLUMNS
from rmqcli.cli.ui.output import row_of
from rmqcli.cli.ui.rich.table import fit_columns
from rmqcli.testing import faults
from rmqcli.wire.bodies.consumer import ConsumerRunningInfo
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode
from rmqcli.wire.command import RemotingCommand, encode_command
from rmqcli.wire.frame import SerializeType
from rmqcli.wire.subscription import SubscriptionData
from rmqcli.wire.version import V4_9_7
from tests.admin.lag.test_pop import heartbeat
from tests.admin.reset.member import FakeMember
from tests.admin.test_stacks import JAVA
from tests.broker.wire_client import WireClient
from tests.kit.terminal import Terminal
from tests.kit.waiting import wait_until


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    return cluster


@pytest.fixture
def rmq(cluster, capsys):
    def rmq_(*words, output="json"):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", output])
        out, err = capsys.readouterr()
        return code, json.loads(out) if output == "json" and out else out, err

    return rmq_


def member(cluster, topics):
    return Consumer("G", topics, print, namesrv=cluster.namesrv)


def test_members_show_when_they_started_and_whose_subscription_differs(cluster, rmq):
    with member(cluster, {"orders": "A"}) as one, member(cluster, {"orders": "B"}):
        wait_until(lambda: len(rmq("group", "members", "G")[1]) == 2)
        code, rows, err = rmq("group", "members", "G")
        _, text, _ = rmq("group", "members", "G", output="table")
    assert code == 0
    assert one.client_id in [row["client_id"] for row in rows]
    assert all(row["since"] > "2024" and row["reason"] is None for row in rows)
    assert "members have different subscriptions, so messages are lost" in err
    assert "orders (A)" in text
    assert "%RETRY%" not in text


@pytest.mark.parametrize("command", ["members", "show"])
def test_a_member_that_does_not_tell_its_subscriptions_is_a_missing_part(
    cluster, rmq, command
):
    """The exit code was 0, although what was asked for was null."""
    silent = faults.answer(1, "the client did not answer")
    cluster.faults.add(silent, code=RequestCode.GET_CONSUMER_RUNNING_INFO)
    with member(cluster, "orders"):
        wait_until(lambda: rmq("group", "members", "G")[1])
        code, _, err = rmq("group", command, "G")
    assert code == 6
    assert "the subscriptions of 1 of 1 member are not known: " in err
    assert "the client did not answer" in err


def test_a_member_that_receives_by_pop_need_not_tell_its_subscriptions(cluster, rmq):
    """A group of such members was always a partial answer."""
    cluster.create_group("G")
    with FakeMember(cluster, "G", topics=("orders",), consume_type="CONSUME_POP"):
        cluster.faults.add(faults.answer(3, "request type 307 not supported"), code=307)
        code, (row,), _ = rmq("group", "members", "G")
        assert rmq("group", "show", "G")[0] == 0
    assert (code, row["client_id"]) == (0, "10.0.0.1@1")
    assert row["subscriptions"] is None
    assert "does not support" in row["reason"]


def test_stacks_are_text_in_a_table_and_rows_elsewhere(cluster, rmq):
    with member(cluster, "orders") as running:
        wait_until(lambda: rmq("group", "members", "G")[1])
        code, text, err = rmq("group", "stack", "G", output="table")
        assert code == 0, err
        assert f"{running.client_id}: " in text
        assert "in no listener" in text
        assert "--all shows them" in err
        _, some, _ = rmq("group", "stack", "G", running.client_id)
        _, every, _ = rmq("group", "stack", "G", "--all")
    assert len(every) > len(some) >= 1
    assert {row["client_id"] for row in every} == {running.client_id}
    assert rmq("group", "stack", "G")[0] == 3


def running_info(dump):
    """Return the answer of a member that began at 1,700,000,000 s, with its threads."""
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUMER_START_TIMESTAMP": "1700000000000"},
        subscriptions=(
            SubscriptionData(topic="%RETRY%G"),
            SubscriptionData(topic="orders", sub_string="A || B"),
            SubscriptionData(topic="bills"),
        ),
        jstack=dump,
    )
    return faults.answer(0, body=encode_body(info))


@pytest.fixture
def pair(rmq_cluster_factory, capsys):
    """Two members of group G on two brokers, of which c2 does not tell about itself.

    Returns what runs a command and returns its exit code, stdout and stderr, with words
    in the place of addresses.
    """
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("G")
    about = RequestCode.GET_CONSUMER_RUNNING_INFO
    cluster.faults.add(running_info(JAVA), code=about, broker="broker-a")
    cluster.faults.add(faults.answer(1, "busy"), code=about, broker="broker-b")
    topics = ("orders", "%RETRY%G")

    def rmq_(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        for name in ("broker-a", "broker-b"):
            err = err.replace(cluster.broker(name).address, f"address of {name}")
        return code, re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:12345", out), err

    with (
        FakeMember(cluster, topics=topics, client_id="c1"),
        FakeMember(cluster, topics=topics, client_id="c2", broker="broker-b"),
    ):
        yield rmq_


UNTOLD = (
    "error: the subscriptions of 1 of 2 members are not known: running info of c2:"
    " address of broker-b answered SYSTEM_ERROR: busy\n"
)


def test_members_are_a_table_with_what_they_say_about_themselves(pair):
    code, out, err = pair("group", "members", "G")
    assert code == 6
    assert err == UNTOLD
    assert [re.split(" {2,}", line) for line in out.splitlines()] == [
        [
            *("CLIENT_ID", "ADDRESS", "LANGUAGE", "VERSION", "BROKERS", "PROXY"),
            *("SINCE", "SUBSCRIBES", "REASON"),
        ],
        [
            *("c1", "127.0.0.1:12345", "PYTHON", "4.9.8", "broker-a", "-"),
            *("2023-11-14T22:13:20.000Z", "bills, orders (A || B)", "-"),
        ],
        [
            *("c2", "127.0.0.1:12345", "PYTHON", "4.9.8", "broker-b", "-", "-", "-"),
            "running info of c2: 127.0.0.1:12345 answered SYSTEM_ERROR: busy",
        ],
    ]


def test_a_group_is_shown_with_its_members_subscriptions_and_settings(pair):
    code, out, err = pair("group", "show", "G")
    assert code == 6
    assert err == UNTOLD
    assert (
        out
        == """\
group G: CONSUME_PASSIVELY CLUSTERING CONSUME_FROM_FIRST_OFFSET
topics: orders

CLIENT_ID  ADDRESS          LANGUAGE  VERSION  BROKERS   PROXY  SINCE
c1         127.0.0.1:12345  PYTHON    4.9.8    broker-a  -      2023-11-14T22:13:20.000Z
c2         127.0.0.1:12345  PYTHON    4.9.8    broker-b  -      -

TOPIC     TYPE  EXPRESSION
%RETRY%G  TAG   *
orders    TAG   *

BROKER    CONSUME  BROADCAST  RETRY QUEUES  RETRY MAX
broker-a  yes      yes                   1         16
broker-b  yes      yes                   1         16
"""
    )
    _, out, _ = pair("group", "show", "G", "-o", "json")
    data = json.loads(out)
    assert data["subscriptions"][1] == {
        "topic": "orders",
        "expression_type": "TAG",
        "sub_string": "*",
        "sub_version": 0,
    }
    assert [each["topic"] for each in data["members"][0]["subscriptions"]] == [
        "%RETRY%G",
        "bills",
        "orders",
    ]
    assert data["configs"][1] == {
        "broker_name": "broker-b",
        "consume_enable": True,
        "consume_from_min_enable": True,
        "consume_broadcast_enable": True,
        "consume_message_orderly": False,
        "retry_queue_nums": 1,
        "retry_max_times": 16,
        "broker_id": 0,
        "which_broker_when_consume_slowly": 1,
        "notify_consumer_ids_changed_enable": True,
        "consume_timeout_minute": 15,
        "attributes": {},
        "retry_policy": {"type": "CUSTOMIZED"},
    }


def test_a_group_s_own_retry_policy_is_shown(cluster, rmq):
    """It was nowhere to be seen, although it says when failed messages come again."""
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000}}
    cluster.create_group("own", raw={"groupRetryPolicy": policy})
    cluster.create_group("usual")
    line = (
        'retry policy on broker-a: {"type": "EXPONENTIAL", "exponentialRetryPolicy":'
        ' {"initial": 1000}}\n'
    )
    assert line in rmq("group", "show", "own", output="table")[1]
    assert "retry policy" not in rmq("group", "show", "usual", output="table")[1]
    shown = rmq("group", "show", "own")[1]
    assert shown["configs"][0]["retry_policy"] == policy


STACKS = """\
c1: 2 threads WAITING (ConsumeMessageThread_G_1, ConsumeMessageThread_G_3)
  listener: shop.Listener.consumeMessage(Listener.java:9)
    at java.base@17.0.15/jdk.internal.misc.Unsafe.park(Native Method)
    at shop.Listener.consumeMessage(Listener.java:9)
    at app//org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService\
$ConsumeRequest.run(ConsumeMessageConcurrentlyService.java:402)
    at java.lang.Thread.run(Thread.java:840)

c1: 1 thread WAITING (ConsumeMessageThread_G_2)
  in no listener
    at java.util.concurrent.ThreadPoolExecutor.getTask(ThreadPoolExecutor.java:1062)
"""
OTHER_STACK = """
c1: 1 thread RUNNABLE (a thread with a name of more than forty characters)
  in no listener
    at java.lang.Thread.run(Thread.java:840)
"""
NOT_KNOWN = "running info of c2: address of broker-b answered SYSTEM_ERROR: busy"


@pytest.mark.parametrize(
    ("words", "others", "hidden"),
    [
        ([], "", "c1: 1 other thread not shown; --all shows them\n"),
        (["--all"], OTHER_STACK, ""),
    ],
)
def test_stacks_of_some_members_are_shown_and_the_other_one_is_named(
    pair, words, others, hidden
):
    code, out, err = pair("group", "stack", "G", *words)
    assert code == 6
    silent = f"\nc2: not known: {NOT_KNOWN}\n"
    silent = silent.replace("address of broker-b", "127.0.0.1:12345")
    assert out == STACKS + others + silent
    said = f"error: the stacks of 1 of 2 members are not known: {NOT_KNOWN}\n"
    assert err == hidden + said
    code, out, err = pair("group", "stack", "G", "c1", *words)
    assert (code, out, err) == (0, STACKS + others, hidden)


def test_stacks_are_rows_with_all_of_the_fields(pair):
    code, out, _ = pair("group", "stack", "G", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 6
    assert (
        list(map(list, rows))
        == [["client_id", "listener", "threads", "state", "frames", "error"]] * 3
    )
    assert rows[1] == {
        "client_id": "c1",
        "listener": None,
        "threads": ["ConsumeMessageThread_G_2"],
        "state": "WAITING",
        "frames": [
            "java.util.concurrent.ThreadPoolExecutor.getTask(ThreadPoolExecutor.java:1062)"
        ],
        "error": None,
    }
    assert {name for name, value in rows[2].items() if value is not None} == {
        "client_id",
        "error",
    }


def test_of_a_member_without_consume_threads_that_is_said(cluster, rmq):
    dump = "timer  TID: 7 STATE: RUNNABLE\ntimer  shop.Timer.run(Timer.java:1)\n"
    cluster.create_group("G")
    cluster.faults.add(running_info(dump), code=RequestCode.GET_CONSUMER_RUNNING_INFO)
    with FakeMember(cluster, client_id="c1"):
        found = rmq("group", "stack", "G", output="table")
    said = "c1 has no thread that calls listeners\n"
    assert found == (0, "", f"{said}c1: 1 other thread not shown; --all shows them\n")


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_group_without_members_is_no_mistake(cluster, rmq, output):
    cluster.create_group("G")
    found = rmq("group", "members", "G", output=output)
    listed = "" if output == "table" else []
    assert found == (0, listed, "no member of group G is online\n")


def test_producers_of_a_topic_say_how_much_was_read(cluster, rmq):
    with Producer("shop", namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: rmq("producers", "--group", "shop")[1])
        code, rows, err = rmq("producers", "orders")
    assert code == 0, err
    assert [(row["group"], row["messages"]) for row in rows] == [("shop", 1)]
    assert err == (
        "1 message read, at most 32 of each queue; producers that sent earlier ones"
        " only are not listed\n"
    )
    assert rmq("producers", "never")[0] == 3


@pytest.mark.parametrize("messages", [None, 3])
def test_messages_are_shown_only_where_a_topic_is_asked_about(messages):
    row = row_of(
        COLUMNS,
        ProducerRow(group=None, address="h:1", broker_name="b", messages=messages),
    )
    shown, hidden = fit_columns([row], COLUMNS, width=80)
    headings = [cells.column.heading for cells in shown]
    assert ("MESSAGES" in headings, hidden) == (messages is not None, [])


def test_it_is_said_why_senders_have_no_client(cluster, rmq):
    cluster.send("orders", ["a"])
    code, (row,), err = rmq("producers", "orders")
    reason = "the broker listed no producer at this address"
    assert (code, row["client_id"], row["reason"]) == (0, None, reason)
    assert err.endswith(f"\n1 row without a client ID: {reason}\n")


def test_producers_are_a_table_and_a_mistyped_group_is_named(cluster, rmq):
    assert rmq("producers", output="table") == (0, "", "no producers\n")
    none = "error: no producer of group shap is connected to a broker%s\n"
    hint = "hint: list the producers that are online with: rmq producers\n"
    asked = ("producers", "--group", "shap")
    assert rmq(*asked, output="table") == (3, "", none % "" + hint)
    with Producer("shop", namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: rmq("producers", "--group", "shop")[1])
        code, out, err = rmq("producers", output="table")
        meant = none % "; did you mean shop?"
        assert rmq(*asked, output="table") == (3, "", meant + hint)
        (row,) = rmq("producers")[1]
    assert (code, err) == (0, "")
    assert [re.split(" {2,}", line) for line in out.splitlines()] == [
        [
            *("GROUP", "CLIENT ID", "ADDRESS", "LANGUAGE", "VERSION", "BROKER"),
            *("LAST HEARTBEAT", "MESSAGES"),
        ],
        [
            *("shop", row["client_id"], row["address"], "PYTHON", "4.9.8", "broker-a"),
            *(row["last_heartbeat"], "-"),
        ],
    ]


def test_a_producer_in_java_is_shown_as_such(cluster, rmq):
    """RocketMQ's number of Java is 0."""
    producers = (ProducerData(group_name="shop"),)
    beat = HeartbeatData(client_id="c1", producers=producers)
    request = RemotingCommand(
        code=RequestCode.HEART_BEAT,
        language=LanguageCode.JAVA,
        version=V4_9_7,
        body=encode_body(beat),
    )
    with WireClient(cluster.broker().address) as client:
        client.sock.sendall(encode_command(request, SerializeType.JSON))
        assert client.receive().code == 0
        _, rows, _ = rmq("producers")
        _, text, _ = rmq("producers", output="table")
    assert [(row["language"], row["version"]) for row in rows] == [("JAVA", "4.9.7")]
    assert "JAVA" in text


def test_members_behind_proxies_that_brokers_do_not_tell_are_not_said_to_be_none(
    cluster, rmq
):
    """Proxies in cluster mode write their clients into a topic, which may be denied."""
    cluster.create_group("G")
    sent = cluster.send("orders", ["x"])[0]
    offsets = cluster.broker().state.offsets
    cluster.call(lambda: offsets.commit("G", "orders", 0, 1))
    assert rmq("groups")[1][0]["members"] == 0
    cluster.faults.add(
        faults.answer(16, "no permission"),
        code=202,
        topic="DefaultHeartBeatSyncerTopic",
    )
    code, rows, _ = rmq("groups")
    assert (code, rows[0]["members"]) == (6, None)
    told = "members behind proxies are not known: broker-a: "
    assert (rows[0]["error"], rows[0]["reason"].startswith(told)) == (None, True)
    code, _, err = rmq("group", "members", "G")
    assert (code, "no permission" in err) == (6, True)
    code, _, err = rmq("reset-offset", "G", "orders", "--to", "earliest")
    assert "warning: members behind proxies are not known: broker-a: " in err
    assert code == 0
    _, (row,), _ = rmq("message", "show", sent.msg_id)
    (group,) = row["groups"]
    assert group["verdict"] == "unknown"
    assert "members behind proxies are not known" in group["reason"]


def test_stacks_of_members_that_every_broker_denies_are_denied(rmq_cluster, capsys):
    """The exit code was 6, as if some of the members had been asked."""
    rmq_cluster.create_group("billing")
    denied = faults.answer(16, "no rights to billing")
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    rmq_cluster.faults.add(denied, code=code, group="billing")
    assert run(["group", "stack", "billing", "-n", rmq_cluster.namesrv]) == 4
    out, err = capsys.readouterr()
    assert (out, "no rights to billing" in err) == ("", True)


def test_on_a_narrow_terminal_a_member_shows_why_its_subscriptions_are_unknown(
    rmq_cluster, monkeypatch
):
    """The column was the first that a terminal of 80 columns hid."""
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    heartbeat(rmq_cluster, "10.20.30.40@vm-7221@0@1@8f872fa3")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    with redirect_stdout(screen):
        code = run(["group", "members", "billing", "-n", rmq_cluster.namesrv])
    heading, row, *_ = screen.getvalue().splitlines()
    assert code == 0
    assert ("REASON" in heading, "only its proxy talks to it" in row) == (True, True)
