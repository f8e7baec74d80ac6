"""`rmq lag` while brokers hang, are down, or have deleted unread messages."""

from __future__ import annotations

import pytest

from tests.admin.lag.test_real import commit, lag, new_group, pick, queues_of
from tests.kit import raw
from tests.kit.java_program import fill

__all__ = ["lag"]  # the fixture

DELETE_BY_HAND = {"mappedFileSizeCommitLog": 1 << 20}


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_hung_broker_costs_its_own_rows(fresh_cluster, lag):
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic(queues=2)
    group = new_group(cluster, brokers=(0, 1))
    for broker in (0, 1):
        commit(cluster, group, topic, {0: 0, 1: 0}, broker=broker)
    cluster.suspend_broker(1)
    try:
        found, code = lag(cluster, group, "--timeout", "5s")
        whole, whole_code = lag(cluster, "--timeout", "5s")
        cluster.suspend_broker(0)
        silent, silent_code = lag(cluster, group, "--timeout", "5s")
    finally:
        cluster.resume_broker(0)
        cluster.resume_broker(1)
    rows = [pick(q, "broker_name", "queue_id", "state") for q in found[group]["queues"]]
    assert rows == [
        ("broker-a", 0, "OK"),
        ("broker-a", 1, "OK"),
        ("broker-b", 0, "UNKNOWN"),
        ("broker-b", 1, "UNKNOWN"),
    ]
    assert pick(found[group], "state", "total_lag", "known_lag") == ("UNKNOWN", None, 0)
    assert [e["broker_name"] for e in found[group]["errors"]] == ["broker-b"]
    reason = found[group]["queues"][2]["reason"]
    assert reason.startswith(f"no answer from {cluster.broker_address(1)}")
    assert code == 6
    assert pick(silent[group], "state", "total_lag") == ("UNKNOWN", None)
    names = sorted({q["broker_name"] for q in silent[group]["queues"]})
    assert (names, silent_code) == (["broker-a", "broker-b"], 6)
    whole_rows = whole[group]["queues"]
    assert [pick(q, "broker_name", "queue_id", "state") for q in whole_rows] == rows
    assert whole_code == 6


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
@pytest.mark.real_only
def test_a_killed_broker_is_missed_after_it_left_the_route(
    fresh_cluster, lag, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic(queues=2)
    group = new_group(cluster, brokers=(0, 1))
    fill(cluster, topic, 40, batch_size=5)
    for broker in (0, 1):
        commit(cluster, group, topic, {0: 0, 1: 0}, broker=broker)
    found, code = lag(cluster, group)
    assert (found[group]["total_lag"], code) == (40, 0)
    cluster.kill_broker(1)
    seen = {}

    def has_left():
        reading, _ = lag(cluster, group, "--no-memory", "--timeout", "10s")
        seen.update(reading.get(group, {}))
        return {q["broker_name"] for q in seen["queues"]} == {"broker-a"}

    # The name server forgets the broker as soon as its connection ends.
    raw.wait_until(has_left, timeout_ms=60_000, what=lambda: str(seen))
    rest = seen["total_lag"]
    found, code = lag(cluster, group)
    assert pick(found[group], "state", "total_lag", "known_lag") == (
        "UNKNOWN",
        None,
        rest,
    )
    lost = [q for q in found[group]["queues"] if q["broker_name"] == "broker-b"]
    assert [pick(q, "queue_id", "state") for q in lost] == [
        (0, "UNKNOWN"),
        (1, "UNKNOWN"),
    ]
    had = f"the group's queues there had {40 - rest} unread messages"
    assert had in found[group]["reason"]
    assert code == 6
    cluster.start_broker(1)
    found, code = lag(cluster, group)
    # The broker may have been killed before it wrote the offsets to its disk.
    back = [q for q in found[group]["queues"] if q["broker_name"] == "broker-b"]
    assert {pick(q, "state", "lag") for q in back} <= {
        ("KNOWN", 10),
        ("NO_COMMIT", None),
    }
    assert (len(back), code) == (2, 0)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
@pytest.mark.real_only
def test_deleted_messages_and_a_broker_that_is_gone(fresh_cluster, lag):
    cluster = fresh_cluster(conf=DELETE_BY_HAND)
    topic = cluster.create_topic(queues=1)
    group = new_group(cluster)
    fill(cluster, topic, 4000, body_bytes=700, batch_size=20)
    commit(cluster, group, topic, {0: 7})
    found, _ = lag(cluster, group)
    assert queues_of(found[group], topic)[0]["lag"] == 3993
    # Delete files as the broker does when they have expired, without waiting for it.
    cluster.stop_broker()
    log = cluster.store_directory() / "commitlog"
    for file in sorted(log.iterdir())[:2]:
        file.unlink()
    found, code = lag(cluster, group)
    assert (found, code) == ({}, 5)
    cluster.start_broker()
    raw.wait_until(
        lambda: (
            cluster.ask(30, {"topic": topic, "queueId": "0"}).ext_fields["offset"]
            == "4000"
        ),
        timeout_ms=60_000,
        what=lambda: "recovery of the queue",
    )
    found, code = lag(cluster, group)
    queue = queues_of(found[group], topic)[0]
    assert queue["min_offset"] > 1000
    assert pick(queue, "state", "committed", "max_offset") == ("EXPIRED", 7, 4000)
    assert queue["lag"] == 4000 - queue["min_offset"]
    assert queue["expired"] == queue["min_offset"] - 7
    assert 0 < queue["age_ms"] < 300_000
    assert code == 0
