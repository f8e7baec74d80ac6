"""`rmq reset-offset` while a broker does not answer.

The plan lists its queues as unknown, and the command changes nothing unless the user
names the other queues.
"""

from __future__ import annotations

import pytest

from tests.admin.lag.test_real import new_group
from tests.cli.reset_offset.test_reset_offset import commit, committed, rmq
from tests.kit import raw
from tests.kit.java_program import fill

BRIEF = ("--timeout", "5s")


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rows_of(document):
    names = ("broker_name", "queue_id", "committed", "result")
    return [tuple(row[name] for name in names) for row in document["queues"]]


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_hung_broker_costs_its_own_rows(fresh_cluster, capsys, tmp_path):
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic(queues=2)
    fill(cluster, topic, 400, body_bytes=8, batch_size=1)
    group = new_group(cluster, brokers=(0, 1))
    commit(cluster, group, topic, [30, 40])
    file = tmp_path / "plan.json"
    whole = [group, topic, "--to", "earliest", *BRIEF]
    do = ["--execute", "--yes"]
    half = ["--queue", "broker-a:0", "--queue", "broker-a:1"]
    cluster.suspend_broker(1)
    try:
        code, plan, err = rmq(cluster, capsys, *whole, "--out", str(file))
        assert (code, plan["mode"]) == (6, "plan"), err
        assert rows_of(plan) == [
            ("broker-a", 0, 30, None),
            ("broker-a", 1, 40, None),
            ("broker-b", 0, None, "UNKNOWN"),
            ("broker-b", 1, None, "UNKNOWN"),
        ]
        reason = plan["queues"][2]["warnings"][0]
        assert reason.startswith(f"no answer from {cluster.broker_address(1)}")
        assert set(plan["queues"][0]) == set(plan["queues"][2])
        assert f"2 queues of broker-b could not be read: {reason}" in plan["warnings"]
        assert "plan.json was not written" in err
        assert not file.exists()

        code, out, err = rmq(cluster, capsys, *whole, *do)
        assert (code, out) == (7, None)
        assert "2 of 4 queues could not be read: nothing was changed" in err
        assert f"reset the others only: {' '.join(half)}" in err
        assert committed(cluster, group, topic) == [30, 40]

        code, out, err = rmq(cluster, capsys, *whole, "--queue", "broker-b:1")
        assert (code, out) == (5, None)
        assert cluster.broker_address(1) in err

        code, done, err = rmq(cluster, capsys, *whole, *half, *do)
        assert (code, rows_of(done)) == (
            0,
            [("broker-a", 0, 30, "CONFIRMED"), ("broker-a", 1, 40, "CONFIRMED")],
        ), err
        assert "broker-b did not report its online members" in err
        assert committed(cluster, group, topic) == [0, 0]

        undo = [group, topic, "--undo", *do, *BRIEF]
        code, done, err = rmq(cluster, capsys, *undo)
        assert (code, len(rows_of(done))) == (0, 2), err
        assert committed(cluster, group, topic) == [30, 40]
    finally:
        cluster.resume_broker(1)
    raw.wait_until(
        lambda: rmq(cluster, capsys, *whole)[0] == 0,
        timeout_ms=60_000,
        what=lambda: "a broker that goes on",
    )
    code, done, err = rmq(cluster, capsys, *whole, *do)
    assert (code, len(rows_of(done))) == (0, 4), err
