"""What POP has handed out, read from logs as real brokers write them.

A real broker's check points and acknowledgements lie in the timer topic until they are
due, and then in the revive topic, too. The records are those of a broker of 5.5.0.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.lag import check_points
from rmqcli.admin.lag.check_points import HandedOut, read_handed_out
from rmqcli.api.client import Client
from rmqcli.api.runner import run_tasks
from rmqcli.config import ClientConfig
from rmqcli.errors import RmqError
from rmqcli.model import MessageQueue
from rmqcli.testing import Seed, faults
from rmqcli.testing.clock import ManualClock
from rmqcli.wire.codes import RequestCode

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
NOW_MS = 1_795_731_506_000


class Log:
    """Writes the logs of POP, and reads what is handed out."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.delay_ms = 0

    def check_point(self, *, start=0, count=3, pop_ms=NOW_MS, group="billing"):
        body = {
            "bm": 0,
            "bn": "broker-a",
            "c": group,
            "d": list(range(count)),
            "it": 30_000,
            "n": count,
            "pt": pop_ms,
            "q": 0,
            "reviveTime": pop_ms + 30_000,
            "ro": 0,
            "so": start,
            "sp": False,
            "t": "orders",
        }
        return "ck", body, pop_ms + 29_000

    def ack(self, *offsets, start=0, pop_ms=NOW_MS):
        body = {"bn": "broker-a", "c": "billing", "pt": pop_ms, "q": 0, "so": start}
        body["t"] = "orders"
        if len(offsets) == 1:
            return "ack", body | {"ao": offsets[0]}, pop_ms + 30_000
        return "bAck", body | {"ao": -1, "aol": list(offsets)}, pop_ms + 30_000

    def wait(self, *records):
        """Put records into the timer topic."""
        for tag, body, due_ms in records:
            properties = {
                "TAGS": tag,
                "TIMER_OUT_MS": str(due_ms // 1_000 * 1_000),
                "REAL_TOPIC": REVIVE_TOPIC,
                "REAL_QID": "0",
            }
            self._put("rmq_sys_wheel_timer", body, properties)

    def copy(self, *records):
        """Put records into the revive topic, as the timers do when they are due."""
        for tag, body, due_ms in records:
            properties = {"TAGS": tag, "TIMER_OUT_MS": str(due_ms // 1_000 * 1_000)}
            self._put(REVIVE_TOPIC, body, properties)

    def _put(self, topic, body, properties):
        message = Seed(body=json.dumps(body).encode(), properties=properties)
        self.cluster.send(topic, [message], queue_id=0)

    def done(self, offset):
        """Commit the offset of the last check point that the broker has revived."""
        offsets = self.cluster.broker().state.offsets
        group = check_points.REVIVE_GROUP
        self.cluster.call(lambda: offsets.commit(group, REVIVE_TOPIC, 0, offset))

    def read(self, *groups):
        config = ClientConfig(namesrv=(self.cluster.namesrv,))
        task = read_handed_out(
            self.cluster.broker().address,
            "broker-a",
            revive_queues=[MessageQueue(REVIVE_TOPIC, "broker-a", 0)],
            groups=groups,
            now_ms=NOW_MS,
        )
        with Client(config) as client:
            (found,) = run_tasks(client, [task])
        if isinstance(found, RmqError):
            raise found
        assert isinstance(found, HandedOut)
        return found

    def offsets(self):
        found = self.read()
        assert found.reason is None
        return sorted(found.offsets.get(("billing", "orders"), {}).get(0, ()))


@pytest.fixture
def log(rmq_cluster_factory):
    """The logs of a broker on which no time passes."""
    cluster = rmq_cluster_factory(clock=ManualClock(now_ms=NOW_MS))
    for topic in ("rmq_sys_wheel_timer", REVIVE_TOPIC):
        cluster.create_topic(topic, queues=1)
    return Log(cluster)


def test_a_check_point_that_waits_is_open_but_for_its_acknowledgements(log):
    log.wait(log.check_point(start=10, count=5), log.ack(11, start=10))
    assert log.offsets() == [10, 12, 13, 14]
    log.wait(log.ack(10, 14, start=10))
    assert log.offsets() == [12, 13]
    found = log.read()
    assert found.offsets["billing", "orders"][0] == {
        12: NOW_MS + 30_000,
        13: NOW_MS + 30_000,
    }


def test_an_acknowledgement_of_another_delivery_does_not_count(log):
    log.wait(log.check_point(), log.ack(0, pop_ms=NOW_MS - 1))
    assert log.offsets() == [0, 1, 2]


def test_a_copy_is_open_until_the_broker_has_revived_it(log):
    first, second = log.check_point(), log.check_point(start=3)
    log.wait(first, log.ack(1), second)
    log.copy(first, second, log.ack(1))
    assert log.offsets() == [0, 2, 3, 4, 5]
    log.done(0)
    assert log.offsets() == [3, 4, 5]
    log.done(1)
    assert log.offsets() == []


def test_a_check_point_before_the_newest_copy_is_done_and_one_after_it_is_not(log):
    old = log.check_point(pop_ms=NOW_MS - 10_000)
    new = log.check_point(start=3)
    log.wait(old, new)
    # The broker has revived the old one, whose copy was deleted, and much since.
    later = [log.ack(0, pop_ms=NOW_MS - 5_000 + n) for n in range(100)]
    log.copy(*later)
    log.done(99)
    assert log.offsets() == [3, 4, 5]


def test_what_is_due_with_the_newest_copy_is_searched_for_among_the_copies(log):
    """Many copies of one second: the one that is done lies far before the end."""
    old = log.check_point()
    log.wait(old)
    log.copy(old, *(log.ack(0, start=9, pop_ms=NOW_MS - 1_000) for _ in range(60)))
    log.done(60)
    assert log.offsets() == []


@pytest.mark.parametrize("topic", ["rmq_sys_wheel_timer", REVIVE_TOPIC])
def test_an_error_names_the_queue_that_could_not_be_read(log, topic):
    log.wait(log.check_point())
    log.copy(log.check_point())
    log.cluster.faults.add(
        faults.answer(1, "the disk is full"),
        code=RequestCode.PULL_MESSAGE,
        topic=topic,
    )
    with pytest.raises(RmqError, match=f"{topic}@broker-a:0"):
        log.read()


def test_only_the_groups_in_question_are_found(log):
    log.wait(log.check_point(), log.check_point(group="audit"))
    assert set(log.read("audit").offsets) == {("audit", "orders")}
    assert set(log.read().offsets) == {("audit", "orders"), ("billing", "orders")}


def test_records_that_are_no_check_points_are_skipped(log):
    log.wait(("ck", {"t": "orders"}, NOW_MS), ("ck", [], NOW_MS), ("ack", 7, NOW_MS))
    delayed = {"TAGS": "ck", "REAL_TOPIC": "orders", "TIMER_OUT_MS": str(NOW_MS)}
    log._put("rmq_sys_wheel_timer", log.check_point()[1], delayed)
    assert log.offsets() == []


def test_more_check_points_than_are_read_are_not_a_smaller_number(log, monkeypatch):
    monkeypatch.setattr(check_points, "_PAGES_MAX", 2)
    for start in range(0, 300, 3):
        log.wait(log.check_point(start=start))
    assert log.read().reason == (
        "its broker has more check points of POP than are read (64)"
    )
