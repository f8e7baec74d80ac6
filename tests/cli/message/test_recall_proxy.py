"""`rmq message recall --endpoints`: a message is recalled through a proxy."""

from __future__ import annotations

import json
import threading

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage
from rmqcli.cli.main import run
from rmqcli.units import format_rfc3339
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle
from tests.kit.proxy.scripted import ScriptedProxy
from tests.kit.terminal import typed

HANDLE = encode_recall_handle(
    RecallHandle(
        topic="later",
        broker_name="broker-a",
        timestamp_ms="1800000000001",
        message_id="7F0000010007D5EF0000000000000000",
    )
)


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True, settings={"recall_message_enable": True})
    cluster.create_topic("later", attributes={"message.type": "DELAY"})
    return cluster


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


def send_later(cluster):
    """Send a message that waits for an hour, through the proxy."""
    config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    with Producer(client=config) as producer:
        return producer.send(ProducerMessage("later", b"x", delay_ms=3_600_000))


def recall(server, ref, *flags):
    words = ["--endpoints", server.endpoints, "--plaintext", *flags]
    return run(["message", "recall", ref, *words])


def test_a_message_is_recalled_by_its_handle_after_it_was_confirmed(cluster, capsys):
    sent = send_later(cluster)
    with typed("no\n"):
        assert recall(cluster, sent.recall_handle) == 7
    asked = capsys.readouterr().err
    with Admin(namesrv=cluster.namesrv) as admin:
        (waiting,) = admin.delayed("later").messages
        assert waiting.due_ms is not None
        assert asked == (
            f"Message {sent.msg_id} of topic later, due"
            f" {format_rfc3339(waiting.due_ms)}, will not be delivered. Continue?"
            " [y/N] error: not confirmed: nothing was changed\n"
        )
        assert recall(cluster, sent.recall_handle, "--yes", "-o", "json") == 0
        assert admin.delayed("later").messages == []
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert row == {
        "topic": "later",
        "msg_id": sent.msg_id,
        "due_at": format_rfc3339(waiting.due_ms),
        "broker_name": "broker-a",
        "result": "accepted",
        "recall_handle": sent.recall_handle,
    }
    assert err == (
        "the recall was accepted; whether the message was still waiting is not known,"
        " because a proxy does not report it\n"
    )


def test_the_handle_that_send_shows_recalls_the_message(cluster, capsys):
    words = ["--endpoints", cluster.endpoints, "--plaintext", "-o", "json"]
    assert run(["send", "later", "x", "--delay", "1h", *words]) == 0
    (sent,) = json.loads(capsys.readouterr().out)
    assert recall(cluster, sent["recall_handle"], "--yes") == 0
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.delayed("later").messages == []


def test_the_due_time_is_that_of_the_handle(proxy, capsys):
    assert recall(proxy, HANDLE, "--yes", "-o", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["due_at"] == "2027-01-15T08:00:00.000Z"
    (asked,) = proxy.asked("RecallMessage")
    assert (asked.topic.name, asked.recall_handle) == ("later", HANDLE)


def test_an_id_needs_name_servers(proxy, capsys):
    ref = "7F0000010007D5EF0000000000000000"
    assert recall(proxy, ref, "--topic", "later", "--yes") == 2
    err = capsys.readouterr().err
    assert err == (
        f"error: {ref} is not a recall handle, and a proxy finds no message by its ID\n"
        "hint: give the recall handle, or --namesrv HOST:PORT\n"
    )
    assert proxy.asked("RecallMessage") == []


def test_a_handle_of_another_topic_is_refused(proxy, capsys):
    assert recall(proxy, HANDLE, "--topic", "orders", "--yes") == 2
    err = capsys.readouterr().err
    assert "the recall handle is of a message of topic later, not orders" in err
    assert proxy.asked("RecallMessage") == []


def test_a_refusal_of_the_broker_is_an_error(rmq_cluster_factory, capsys):
    settings = {"recall_message_enable": False}
    cluster = rmq_cluster_factory(proxy=True, settings=settings)
    cluster.create_topic("later", attributes={"message.type": "DELAY"})
    sent = send_later(cluster)
    assert recall(cluster, sent.recall_handle or HANDLE, "--yes") == 1
    err = capsys.readouterr().err
    assert "operation is forbidden" in err
    assert "hint: set recallMessageEnable=true on the broker" in err


def test_a_recall_without_an_answer_may_have_been_done(proxy, capsys):
    done = threading.Event()
    proxy.answers["RecallMessage"] = lambda _request, _context: done.wait(60)
    try:
        assert recall(proxy, HANDLE, "--yes", "--timeout", "300ms") == 6
    finally:
        done.set()
    err = capsys.readouterr().err
    assert "it may have been done" in err
    assert "see what waits: rmq delayed later" in err


def test_name_servers_of_the_environment_are_preferred(cluster, capsys, monkeypatch):
    """They show whether the message still waits."""
    sent = send_later(cluster)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", cluster.endpoints)
    assert run(["message", "recall", sent.recall_handle, "--yes", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["result"] == "recalled"
