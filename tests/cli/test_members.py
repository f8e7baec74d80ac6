"""`rmq group members`, `rmq group stack` and `rmq producers` on the command line."""

from __future__ import annotations

import json
from contextlib import redirect_stdout

import pytest

from rmqcli import Consumer, Producer, ProducerMessage
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode
from rmqcli.wire.command import RemotingCommand, encode_command
from rmqcli.wire.frame import SerializeType
from rmqcli.wire.version import V4_9_7
from tests.admin.lag.test_pop import heartbeat
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


def test_producers_of_a_topic_say_how_much_was_read(cluster, rmq):
    with Producer("shop", namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("orders", b"a"))
        wait_until(lambda: rmq("producers", "--group", "shop")[1])
        code, rows, err = rmq("producers", "orders")
    assert code == 0, err
    assert [(row["group"], row["messages"]) for row in rows] == [("shop", 1)]
    assert "1 message read, at most 32 of each queue" in err
    assert rmq("producers", "never")[0] == 3


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
