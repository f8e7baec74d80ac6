"""`rmq reset-offset --include-retry` on real brokers: messages waiting for a retry."""

from __future__ import annotations

import pytest

from tests.cli.reset_offset.test_reset_offset import commit, committed, new_group, rmq
from tests.kit.java_program import java_producer

WAITING = 6


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def waiting(real_cluster):
    """A group at offset 3 of 8 in its topic, and at 2 of WAITING in its retry topic."""
    topic = real_cluster.create_topic(queues=1)
    group = new_group(real_cluster)
    retry = real_cluster.create_topic(f"%RETRY%{group}", queues=1)
    for name, count in ((topic, 8), (retry, WAITING)):
        spec = {"topic": name, "bodyB64": "eA==", "brokerName": "broker-a"}
        # Without maxReconsumeTimes, 4.6.0 assumes 0 and moves the message to the DLQ.
        spec |= {"queueId": 0, "maxReconsumeTimes": "16"}
        java_producer(real_cluster, [spec] * count)
    commit(real_cluster, group, topic, [3])
    commit(real_cluster, group, retry, [2])
    return group, topic, retry


def both(cluster, waiting):
    group, topic, retry = waiting
    return [*committed(cluster, group, topic, 1), *committed(cluster, group, retry, 1)]


def test_without_it_what_waits_is_told_and_left(real_cluster, waiting, capsys):
    group, topic, retry = waiting
    do = [group, topic, "--to", "latest", "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do)
    assert (code, len(done["queues"])) == (0, 1), err
    assert f"4 messages wait in {retry}" in done["warnings"][0]
    assert both(real_cluster, waiting) == [8, 2]


def test_what_waits_is_told_where_nothing_was_committed(real_cluster, waiting, capsys):
    """Members begin at the start of a retry topic, and will receive all of it."""
    _, topic, _ = waiting
    group = new_group(real_cluster)
    retry = real_cluster.create_topic(f"%RETRY%{group}", queues=1)
    spec = {"topic": retry, "bodyB64": "eA==", "brokerName": "broker-a", "queueId": 0}
    java_producer(real_cluster, [{**spec, "maxReconsumeTimes": "16"}] * WAITING)
    code, plan, err = rmq(real_cluster, capsys, group, topic, "--to", "latest")
    assert code == 0, err
    (warning,) = plan["warnings"]
    assert warning.startswith(f"{WAITING} messages wait in {retry} and will still be")
    assert "--include-retry" in warning


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to", "earliest"], [0, 0]),  # a time has a meaning in both topics
        (["--to", "-1h"], [0, 0]),
        (["--to", "latest"], [8, WAITING]),
        (["--to", "1"], [1, WAITING]),  # an offset does not: skip what waits
        (["--shift", "2"], [5, WAITING]),
    ],
)
def test_with_it_both_move_and_both_come_back(
    real_cluster, waiting, capsys, target, expected
):
    group, topic, retry = waiting
    do = [group, topic, *target, "--include-retry", "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do)
    assert code == 0, err
    rows = [(row["topic"], row["committed"], row["result"]) for row in done["queues"]]
    assert sorted(rows) == sorted([(topic, 3, "CONFIRMED"), (retry, 2, "CONFIRMED")])
    assert both(real_cluster, waiting) == expected
    undo = [group, topic, "--undo", "--execute", "--yes"]
    code, _, err = rmq(real_cluster, capsys, *undo)
    assert code == 0, err
    assert both(real_cluster, waiting) == [3, 2]
