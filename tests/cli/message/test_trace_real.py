"""`rmq message trace` on real brokers, with traces of Java's clients and of ours."""

from __future__ import annotations

import base64
import json
import uuid

import pytest

from rmqcli.cli.main import run
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture
def trace(real_cluster, capsys):
    """Run `rmq message trace`; return its exit code and the trace of one message."""

    def trace_(*words):
        capsys.readouterr()
        command = ["message", "trace", *words, "-n", real_cluster.namesrv, "-o", "json"]
        code = run(command)
        out = capsys.readouterr().out
        return code, json.loads(out)[0] if out else None

    return trace_


@pytest.fixture(autouse=True)
def trace_topic(real_cluster):
    """Let our client create the trace topic: Java's first trace may be lost with it."""
    topic = real_cluster.create_topic(queues=1)
    command = ["send", topic, "x", "--trace", "-n", real_cluster.namesrv]
    assert run(command) == 0


def events(found):
    """The reported events: what, status, group and attempt."""
    return [
        (each["event"], each["status"], each["group"], each["attempt"])
        for each in found["events"]
        if each["event"] != "stored"
    ]


def spec(topic, body, **more):
    return {"topic": topic, "bodyB64": base64.b64encode(body).decode(), **more}


def test_java_s_clients_and_ours_are_in_one_timeline(
    real_cluster, java_producer, trace
):
    topic = real_cluster.create_topic(queues=1)
    java, ours = (f"G-{uuid.uuid4().hex[:8]}" for _ in range(2))
    (sent,) = java_producer(
        real_cluster, [spec(topic, b"hello", keys="k1 k2")], trace=True
    )
    with JavaConsumer(
        real_cluster, java, topic, trace=True, failTimes=1, delayLevel=1
    ) as consumer:
        consumer.wait_for(2)
    assert (
        run(
            [
                *("consume", topic, "--group", ours, "--from", "earliest"),
                *("--count", "1", "--trace", "-n", real_cluster.namesrv),
            ]
        )
        == 0
    )
    found = {}

    def is_complete():
        code, found["trace"] = trace("k1", "--topic", topic)
        return code == 0 and len(events(found["trace"])) == 4

    wait_until(is_complete)
    assert found["trace"]["msg_id"] == sent["msgId"]
    assert sorted(events(found["trace"])[1:], key=str) == sorted(
        [
            ("delivered", "failed", java, 1),
            ("delivered", "success", java, 2),
            ("delivered", "success", ours, 1),
        ],
        key=str,
    )
    assert events(found["trace"])[0] == (
        *("produced", "success", "rmqcli-tests-producer"),
        None,
    )
    assert found["trace"]["missing"] == []


def test_a_batch_of_java_s_producer_is_found_by_a_scan(
    real_cluster, java_producer, trace
):
    topic = real_cluster.create_topic(queues=1)
    batch = [spec(topic, b"a"), spec(topic, b"b")]
    (sent,) = java_producer(real_cluster, [{"batch": batch}], trace=True)
    first, second = sent["msgId"].split(",")
    found = {}

    def is_there():
        code, found["trace"] = trace(second, "--topic", topic, "--scan")
        return code == 0

    wait_until(is_there)
    assert events(found["trace"]) == [
        ("produced", "success", "rmqcli-tests-producer", None)
    ]
    code, without = trace(first, "--topic", topic)
    assert (code, events(without)) == (3, [])
    assert "only a scan finds the report" in without["missing"][0]["reason"]


def test_a_message_that_was_sent_without_traces_says_so(real_cluster, trace, capsys):
    topic = real_cluster.create_topic(queues=1)
    namesrv = ("-n", real_cluster.namesrv)
    assert run(["send", topic, "x", "-o", "jsonl", *namesrv]) == 0
    msg_id = json.loads(capsys.readouterr().out)["msg_id"]

    def is_stored():
        code, found = trace(msg_id, "--topic", topic)
        return code == 3 and [e["event"] for e in found["events"]] == ["stored"]

    wait_until(is_stored)
