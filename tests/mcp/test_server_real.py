"""`rmq mcp` against real brokers: the tools agree with what the library reads."""

from __future__ import annotations

import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from tests.admin.dlq.letters import client_of
from tests.kit.waiting import wait_until
from tests.mcp.conversation import call_tools

pytestmark = pytest.mark.java


def test_the_tools_read_a_real_cluster(real_cluster, tmp_path):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    namesrv = real_cluster.namesrv
    real_cluster.create_topic(topic, queues=1)
    with Admin(namesrv=namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=namesrv) as producer:
        for number in range(3):
            producer.send(ProducerMessage(topic, f"body {number}".encode()))
    with client_of(real_cluster, timeout_ms=30_000) as client:
        call = update_consumer_offset(group, topic, 0, commit_offset=1)
        client.invoke(real_cluster.broker_address(), call)

    def is_dispatched():
        with Admin(namesrv=namesrv) as admin:
            return admin.lag(group).total_lag == 2

    wait_until(is_dispatched)
    results = call_tools(
        tmp_path,
        namesrv,
        ("cluster", {}),
        ("doctor", {}),
        ("topics", {"filter": topic}),
        ("groups", {"filter": group}),
        ("lag", {"group": group}),
        ("tail", {"topic": topic, "last": 2}),
        ("message", {"ref": f"{topic}@broker-a:0:2", "groups": [group]}),
        ("dead_letters", {}),
        ("plan_reset", {"group": group, "topic": topic, "to": "latest"}),
        options=["--timeout", "20s", "--deadline", "2m"],
    )
    assert [each.is_error for each in results] == [False] * 9, results
    cluster, _, topics, groups, lag, tail, message, _, plan = (
        each.structured_content for each in results
    )
    assert [row["broker_name"] for row in cluster["brokers"]] == ["broker-a"]
    assert [row["topic"] for row in topics["topics"]] == [topic]
    assert [row["group"] for row in groups["groups"]] == [group]
    assert (lag["total_lag"], lag["state"]) == (2, "STOPPED")
    bodies = [row["untrusted"]["body"] for row in tail["messages"]]
    assert bodies == ["body 1", "body 2"]
    (verdict,) = message["messages"][0]["groups"]
    assert verdict["verdict"] == "waiting"
    (queue,) = plan["queues"]
    assert (queue["committed"], queue["target"]) == (1, 3)
