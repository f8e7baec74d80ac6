"""Messages that are in the commit log, but no longer in their topic."""

from __future__ import annotations

import json

import pytest

from rmqcli import (
    Admin,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerMessage,
    RefusedError,
)
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import kill
from tests.kit.waiting import wait_until

ANOTHER = "(the topic was deleted and created again, or its broker has lost messages)"


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(params=["5.5.0", "4.6.0"])
def cluster(rmq_cluster_factory, request):
    cluster = rmq_cluster_factory(queues=1, like=request.param)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    return cluster


@pytest.fixture
def rmq(cluster, capsys):
    """Run a command; return exit code, JSON of stdout or None, and stderr."""

    def rmq_(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, " ".join(err.split())

    return rmq_


def send(cluster, *bodies, key="k"):
    with Producer(namesrv=cluster.namesrv) as producer:
        return [
            producer.send(ProducerMessage("orders", body.encode(), keys=(key,)))
            for body in bodies
        ]


def create_again(cluster, *bodies, key="k"):
    """Delete the topic, create it again, and send other messages to it."""
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("orders")
        admin.create_topic("orders", queue_nums=1)
    return send(cluster, *bodies, key=key)


def consumer(cluster, seen):
    return Consumer(
        "billing",
        "orders",
        lambda message: seen.append(message.body),
        config=ConsumerConfig(persist_consumer_offset_interval_ms=100),
        consume_from="earliest",
        namesrv=cluster.namesrv,
    )


def test_messages_of_the_topic_of_before_were_not_consumed(cluster, rmq):
    seen: list[bytes] = []
    with consumer(cluster, seen) as member:
        wait_until(member.queues)
        assert rmq("group", "pause", "billing", "--yes")[0] == 0
        old = send(cluster, "old1", "old2", "old3")
        create_again(cluster, "new1", "new2")
        assert rmq("group", "resume", "billing", "--yes")[0] == 0
        wait_until(lambda: sorted(seen) == [b"new1", b"new2"], seen, timeout_s=5)
        wait_until(
            lambda: (
                rmq("message", "show", "orders@broker-a:0:1")[1][0]["groups"][0][
                    "verdict"
                ]
                == "consumed"
            ),
            timeout_s=5,
        )
        code, rows, err = rmq("message", "show", "k", "-t", "orders", "-g", "billing")
    assert code == 0, err
    assert [row["body"] for row in rows] == ["old1", "old2", "old3", "new1", "new2"]
    for row, why in zip(
        rows,
        (
            "has another message at offset 0",
            "has another message at offset 1",
            "ends at 2",
        ),
        strict=False,
    ):
        assert row["stored"]["state"] == "removed"
        assert row["stored"]["reason"] == (
            "it is in the commit log, but no longer in the topic:"
            f" orders@broker-a:0 {why} {ANOTHER}"
        )
        (group,) = row["groups"]
        assert (group["verdict"], group["waiting_before"]) == ("unknown", None)
        assert group["reason"].startswith("it is no longer in the topic, and ")
    for row in rows[3:]:
        assert row["stored"]["state"] == "stored"
    assert rmq("message", "show", old[2].offset_msg_id)[1][0]["stored"]["state"] == (
        "removed"
    )


def test_a_trace_does_not_call_a_message_stored_that_left_its_topic(cluster, rmq):
    """It had the place of a message of the topic that was created again."""
    (old,) = send(cluster, "old")
    create_again(cluster, "new")
    cluster.create_topic("RMQ_SYS_TRACE_TOPIC", queues=1)
    _, (trace,), _ = rmq("message", "trace", old.msg_id, "-t", "orders")
    assert [(each["event"], each["status"]) for each in trace["events"]] == [
        ("stored", "removed")
    ]
    (gap,) = [each for each in trace["missing"] if each["part"] == "message"]
    assert gap["reason"] == (
        "it is in the commit log, but no longer in the topic: orders@broker-a:0 has"
        f" another message at offset 0 {ANOTHER}"
    )


def test_a_key_finds_the_messages_that_the_topic_has_now(cluster, rmq):
    send(cluster, "old1", "old2", "old3")
    create_again(cluster, "new1", "new2")
    code, rows, err = rmq("message", "find", "orders", "--key", "k")
    assert (code, [row["body"] for row in rows]) == (0, ["new1", "new2"])
    assert "2 found by the index" in err
    assert "3 more messages of the key are not shown: it is in the commit log" in err
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.messages_by_key("orders", "k")
    assert [each.body for each in found] == [b"new1", b"new2"]


def test_many_messages_of_a_key_are_compared_by_the_first_of_each_queue(cluster, rmq):
    send(cluster, *(f"m{n}" for n in range(20)))
    seen = cluster.faults.observe(broker="broker-a")
    code, rows, _ = rmq("message", "find", "orders", "--key", "k")
    assert (code, len(rows)) == (0, 20)
    codes = [each.command.code for each in seen.requests]
    # The other one is for the newest message, which the index must know.
    assert codes.count(RequestCode.PULL_MESSAGE) == 2


def test_a_message_that_is_no_longer_in_the_topic_is_not_resent(cluster, rmq):
    (old,) = send(cluster, "old1")
    create_again(cluster, "new1", key="other")
    seen: list[bytes] = []
    do = ["message", "resend", "-t", "orders", "--to-group", "billing", "--yes"]
    with consumer(cluster, seen):
        wait_until(lambda: seen == [b"new1"])
        for ref in (old.msg_id, old.offset_msg_id, "k"):
            code, _, err = rmq(*do, ref)
            assert code == 7, err
            assert "is in the commit log, but no longer in the topic" in err
    assert seen == [b"new1"]


def test_what_cannot_be_compared_is_not_called_stored(cluster, rmq):
    (sent,) = send(cluster, "a")
    cluster.faults.add(faults.answer(1, "busy"), code=RequestCode.PULL_MESSAGE)
    code, (row,), _ = rmq("message", "show", sent.msg_id, "-t", "orders")
    assert (code, row["stored"]["state"]) == (0, "unknown")
    assert "broker-a does not show what is at its place" in row["stored"]["reason"]
    code, rows, err = rmq("message", "find", "orders", "--key", "k")
    assert (code, len(rows)) == (0, 1)
    assert "1 message may no longer be in the topic: broker-a does not show" in err


@pytest.mark.parametrize("like", ["5.5.0", "4.6.0"])
def test_a_topic_that_cannot_be_read_shows_its_entries(
    rmq_cluster_factory, capsys, like
):
    cluster = rmq_cluster_factory(queues=1, like=like)
    cluster.create_topic("orders")
    (sent,) = send(cluster, "a")
    cluster.create_topic("orders", perm=2)
    do = ["message", "show", sent.msg_id, "-t", "orders", "-o", "json"]
    assert run([*do, "-n", cluster.namesrv]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    # Brokers of 4.6.0 answer without the entries.
    assert row["stored"]["state"] == {"5.5.0": "stored", "4.6.0": "unknown"}[like]


def test_a_letter_does_not_name_a_place_that_another_message_has(cluster, rmq):
    sent = send(cluster, "old1")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("%DLQ%billing", queue_nums=1)
    kill(cluster, "billing", "orders", sent)

    def origin():
        code, (row,), err = rmq("dlq", "show", "billing")
        assert code == 0, err
        return row["origin_topic"], row["origin_offset"]

    # Brokers of 4.6.0 do not write which message a letter was.
    is_old = cluster.options.like == "4.6.0"
    assert origin() == ("orders", None if is_old else 0)
    create_again(cluster, "new1")
    assert origin() == ("orders", None)


def test_a_letter_that_was_deleted_with_its_topic_is_no_verdict(cluster, rmq):
    sent = send(cluster, "a", "b")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("%DLQ%billing", queue_nums=1)
        kill(cluster, "billing", "orders", sent[:1])
        show = ("message", "show", sent[0].msg_id, "-t", "orders", "-g", "billing")
        ((group,),) = [row["groups"] for row in rmq(*show)[1]]
        assert (group["verdict"], group["where"]) == (
            "dead",
            "%DLQ%billing@broker-a:0:0",
        )
        admin.delete_topic("%DLQ%billing")
        admin.create_topic("%DLQ%billing", queue_nums=1)
        kill(cluster, "billing", "orders", sent[1:])
    ((group,),) = [row["groups"] for row in rmq(*show)[1]]
    assert (group["verdict"], group["where"]) == ("unknown", None)


def test_a_reset_does_not_go_by_a_message_of_the_topic_of_before(cluster):
    (old,) = send(cluster, "old1")
    create_again(cluster, "new1")
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(RefusedError, match="no longer in the topic"),
    ):
        admin.message_by_id("orders", old.msg_id)
