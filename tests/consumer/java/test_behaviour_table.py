"""A listener's results have the same effects in Java's client and in ours."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqcli.engine.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from tests.conftest import start_cluster
from tests.consumer.collecting import consumer
from tests.consumer.java.groups import bodies_of, lag, send
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.rmq_versions("4.6.0", "5.5.0")]

GET_MAX_OFFSET = 30


@dataclass(frozen=True, kw_only=True)
class Row:
    """A result of the listener, and its expected effects on the messages a and b.

    Both messages fail in their first `fail_times` deliveries, in the way of `fail_as`.
    `a` and `b` have the expected reconsumeTimes of each delivery, in order. `retries`
    and `dead` count the messages in the retry topic and the dead-letter topic at the
    end.
    """

    name: str
    fail_as: str = "LATER"
    fail_times: int = 1
    orderly: bool = False
    a: tuple[int, ...] = (0, 1)
    b: tuple[int, ...] = (0, 1)
    retries: int = 0
    dead: int = 0
    options: dict[str, Any] = field(default_factory=dict)


ROWS = [
    Row(name="later", fail_times=2, a=(0, 1, 2), b=(0, 1, 2), retries=4),
    Row(name="null", fail_as="NULL", retries=2),
    Row(name="exception", fail_as="THROW", retries=2),
    Row(name="delay level 2", options={"delayLevel": 2}, retries=2),
    Row(name="delay level -1", options={"delayLevel": -1}, a=(0,), b=(0,), dead=2),
    Row(
        name="too often",
        fail_times=9,
        options={"maxReconsumeTimes": 1},
        retries=2,
        dead=2,
    ),
    Row(
        name="ackIndex",
        fail_as="ACK",
        options={"ackIndex": 0, "batchSize": 2},
        a=(0,),
        retries=1,
    ),
    Row(
        name="orderly suspend",
        orderly=True,
        fail_times=2,
        a=(0, 1, 2),
        b=(0, 1, 2),
    ),
    Row(name="orderly null", orderly=True, fail_as="NULL"),
    Row(name="orderly exception", orderly=True, fail_as="THROW"),
    Row(
        name="orderly too often",
        orderly=True,
        fail_times=9,
        options={"maxReconsumeTimes": 1},
        dead=2,
    ),
    Row(
        name="orderly rollback",
        orderly=True,
        fail_as="ROLLBACK",
        options={"autoCommit": False},
        a=(0, 0),
        b=(0, 0),
    ),
    Row(
        name="orderly suspend without autoCommit",
        orderly=True,
        options={"autoCommit": False},
    ),
    Row(
        name="orderly rollback with autoCommit",
        orderly=True,
        fail_as="ROLLBACK",
        a=(0,),
        b=(0,),
    ),
    Row(
        name="orderly commit with autoCommit",
        orderly=True,
        fail_as="COMMIT",
        a=(0,),
        b=(0,),
    ),
]


@pytest.fixture(scope="module")
def quick_cluster(rmq_version, tmp_path_factory):
    """A broker whose delay levels are short, so that tests need not wait."""
    directory = tmp_path_factory.mktemp(f"quick-{rmq_version}")
    conf = {"messageDelayLevel": " ".join(["1s"] * 18)}
    with start_cluster(rmq_version, directory, conf=conf) as cluster:
        yield cluster


class Ours:
    """A listener that fails as a row describes."""

    def __init__(self, row):
        self._row = row
        self.deliveries: list[tuple[str, int]] = []

    def __call__(self, messages, context):
        row, fails = self._row, False
        for message in messages:
            body = message.body.decode()
            before = [each for each in self.deliveries if each[0] == body]
            fails |= len(before) < row.fail_times
            self.deliveries.append((body, message.reconsume_times))
        auto_commit = row.options.get("autoCommit", True)
        if row.orderly:
            context.auto_commit = auto_commit
        if not fails:
            return True if auto_commit else ConsumeOrderlyStatus.COMMIT
        if row.fail_as == "THROW":
            raise ValueError("asked to")
        if row.fail_as == "NULL":
            return False  # None is success here
        return self._orderly() if row.orderly else self._concurrent(context)

    def _concurrent(self, context):
        options = self._row.options
        context.delay_level_when_next_consume = options.get("delayLevel", 0)
        if self._row.fail_as == "ACK":
            context.ack_index = options["ackIndex"]
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    def _orderly(self):
        if self._row.fail_as == "LATER":
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeOrderlyStatus[self._row.fail_as]


def stored(cluster, topic):
    """Return the max offset of queue 0 of `topic`; 0 if it does not exist."""
    words = {"topic": topic, "queueId": "0"}
    answer = cluster.ask(GET_MAX_OFFSET, words)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else 0


def outcome(cluster, group, topic, deliveries):
    """Return what is visible from outside after the group has consumed."""
    queues = lag(cluster, group).get("queues") or ()
    committed = {
        queue["topic"]: queue["committed"]
        for queue in queues
        if queue["topic"] == topic or stored(cluster, queue["topic"])
    }
    times = {
        body: tuple(times for each, times in deliveries if each == body)
        for body in ("a", "b")
    }
    return {
        "times": times,
        "retries": stored(cluster, f"%RETRY%{group}"),
        "dead": stored(cluster, f"%DLQ%{group}"),
        "committed": sorted(each for each in committed.values() if each is not None),
    }


def expected(row):
    return {
        "times": {"a": row.a, "b": row.b},
        "retries": row.retries,
        "dead": row.dead,
        "committed": sorted([2, row.retries] if row.retries else [2]),
    }


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_result_means_what_it_means_in_java(quick_cluster, row):
    cluster = quick_cluster
    topic = cluster.create_topic(queues=1)
    names = [f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("java", "ours")]
    for name in names:
        # Java would notice a topic that is created later only after up to 30 s.
        cluster.create_topic(f"%RETRY%{name}", queues=1)
    send(cluster, topic, ["a", "b"], queues=1)
    listener = Ours(row)
    settings: dict[str, Any] = {
        "orderly": row.orderly,
        "consume_message_batch_max_size": row.options.get("batchSize", 1),
        "max_reconsume_times": row.options.get("maxReconsumeTimes"),
        "persist_consumer_offset_interval_ms": 500,
    }
    java_options = {
        "orderly": row.orderly,
        "failAs": row.fail_as,
        "failTimes": row.fail_times,
        "failByCount": True,
        "consumeThreads": 1,
        **row.options,
    }
    wanted = expected(row)
    java = JavaConsumer(cluster, names[0], topic, **java_options)
    with (
        consumer(cluster, names[1], topic, listener, batch=True, **settings),
        java,
    ):

        def java_deliveries():
            bodies = bodies_of(java)
            times = [each["reconsumeTimes"] for each in java.messages]
            return list(zip(bodies, times, strict=True))

        def outcomes():
            return [
                outcome(cluster, names[0], topic, java_deliveries()),
                outcome(cluster, names[1], topic, listener.deliveries),
            ]

        try:
            wait_until(lambda: outcomes() == [wanted, wanted])
        except AssertionError:
            assert outcomes() == [wanted, wanted]
