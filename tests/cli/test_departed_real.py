"""A broker that was killed has left the route: resets and changes name it."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from tests.admin.lag.test_real import commit, new_group
from tests.kit import raw
from tests.kit.java_program import fill
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]

GONE = "it is no longer in the route"


def test_resets_and_changes_name_a_broker_that_was_killed(
    fresh_cluster, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic(queues=2)
    group = new_group(cluster, brokers=(0, 1))
    fill(cluster, topic, 40, batch_size=5)
    for broker in (0, 1):
        commit(cluster, group, topic, {0: 0, 1: 0}, broker=broker)

    def rmq(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    assert rmq("lag", group)[0] == 0

    def are_counted():  # brokers count messages a moment after they have confirmed them
        _, rows, _ = rmq("topics", "--sample", "10ms")
        (row,) = [row for row in rows if row["topic"] == topic]
        return (row["messages"], row["rate_in"], row["reason"]) == (40, 0.0, None)

    wait_until(are_counted)
    cluster.kill_broker(1)

    def has_left():
        route = raw.ask(cluster.namesrv, raw.GET_BROKER_CLUSTER_INFO).body
        return b"broker-b" not in route

    raw.wait_until(has_left, timeout_ms=60_000, what=lambda: "broker-b left the route")

    code, rows, err = rmq("topics", "--sample", "10ms")
    assert code == 6, err
    (row,) = [row for row in rows if row["topic"] == topic]
    assert (row["messages"], row["rate_in"]) == (None, None)
    assert row["reason"] == f"broker-b: {GONE}"

    words = ("reset-offset", group, topic, "--to", "latest")
    code, _, err = rmq(*words, "--queue", "broker-b:0")
    assert code == 6, err
    assert "broker broker-b is no longer in the route (last seen " in err
    code, reset, err = rmq(*words, "--include-retry", "--execute", "--yes")
    assert code == 6, err
    rows = [
        (q["broker_name"], q["result"], q["warnings"])
        for q in reset["queues"]
        if q["topic"] == topic
    ]
    assert rows == [
        ("broker-a", "CONFIRMED", []),
        ("broker-a", "CONFIRMED", []),
        ("broker-b", "NOT_ATTEMPTED", [GONE]),
        ("broker-b", "NOT_ATTEMPTED", [GONE]),
    ]
    said = "2 queues are not moved on broker-b: it is no longer in the route; if it was"
    assert said in err
    for change, result in (
        (("group", "create", f"{group}-2"), "created"),
        (("group", "update", group, "--max-retries", "3"), "changed"),
        (("group", "pause", group, "--yes"), "changed"),
        (("group", "resume", group, "--yes"), "changed"),
        (("topic", "update", topic, "--queues", "3"), "changed"),
        (("topic", "permission", topic, "r", "--yes"), "changed"),
        (("group", "delete", group, "--remove-offsets", "--yes"), "deleted"),
    ):
        code, steps, err = rmq(*change)
        assert code == 6, (change, err)
        assert [(s["server"], s["result"], s["error"]) for s in steps] == [
            ("broker-a", result, None),
            ("broker-b", "failed", GONE),
        ]
