"""Brokers query and reset our members, on behalf of mqadmin and `rmq lag`."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress

import pytest

from rmqcli.engine.listener import ConsumeConcurrentlyStatus
from rmqcli.wire.bodies.offset import GetConsumerStatusBody
from rmqcli.wire.body import decode_body
from tests.consumer.collecting import Seen, consumer
from tests.consumer.java.groups import is_committed, lag, send
from tests.kit.java_program import fill, mqadmin
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.rmq_versions("4.6.0", "5.5.0")]

#: The first multiple of 32 above 1000, the number of messages at which a queue is full.
CACHED = 1024


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def blocked(real_cluster, group):
    """A member in flow control: its listener blocks in the first message of a queue."""
    topic = real_cluster.create_topic(queues=1)
    fill(real_cluster, topic, 3000, body_bytes=64)
    released = threading.Event()
    seen = Seen(lambda *_: released.wait(60))
    options = {"consume_threads": 1}
    with consumer(real_cluster, group, topic, seen, **options) as running:

        def cached():
            queues = running.running_info().process_queues
            return sum(each.cached_msg_count for each in queues.values())

        wait_until(lambda: cached() == CACHED and seen.bodies)
        yield running, topic
        released.set()


def said(cluster, wanted, *words):
    """Run mqadmin until its output contains `wanted`; return the output.

    On a busy machine mqadmin may time out.
    """
    answers = []

    def says():
        answers.append(mqadmin(cluster, *words))
        return wanted in answers[-1]

    wait_until(says)
    return answers[-1]


def test_a_blocked_member_shows_what_it_holds(real_cluster, group, blocked):
    running, topic = blocked
    connection = mqadmin(real_cluster, "consumerConnection", "-g", group)
    assert running.client_id in connection
    assert "PYTHON" in connection
    assert topic in connection
    assert "ConsumeType: CONSUME_PASSIVELY" in connection
    words = ["consumerStatus", "-g", group, "-i", running.client_id]
    status = said(real_cluster, "cachedMsgCount=1024", *words)
    (line,) = (
        each
        for each in status.splitlines()
        if "cachedMsgCount=" in each and each.startswith(topic)
    )
    for part in (
        "commitOffset=0",
        "cachedMsgMinOffset=0",
        "cachedMsgMaxOffset=1023",
        "locked=false",
        "droped=false",
    ):
        assert part in line


def test_lag_shows_what_a_blocked_member_holds(real_cluster, group, blocked):
    running, topic = blocked
    rows = lag(real_cluster, group, "--process-queues")["process_queues"]
    (row,) = (row for row in rows if row["topic"] == topic)
    assert row["client_id"] == running.client_id
    shown = ("cached_count", "cached_min_offset", "cached_max_offset", "span")
    assert [row[name] for name in shown] == [1024, 0, 1023, 1023]
    assert (row["commit_offset"], row["dropped"]) == (0, False)
    assert row["flags"]


def test_a_broker_learns_where_a_member_is(real_cluster, group):
    """Code 223 makes the broker query the member (221) for its offsets in memory."""
    topic = real_cluster.create_topic(queues=8)
    send(real_cluster, topic, [f"m-{number:02}" for number in range(40)])
    seen = Seen()
    with consumer(real_cluster, group, topic, seen) as running:
        seen.wait_for(40)
        fields = {"topic": topic, "group": group, "clientAddr": running.client_id}

        def offsets():
            answer = real_cluster.ask(223, fields)
            table = decode_body(GetConsumerStatusBody, answer.body).consumer_table
            return [offset for _, offset in sorted(table[running.client_id].items())]

        wait_until(lambda: offsets() == [5] * 8)


def reset_until(reset, claim):
    """Call `reset`, and again up to two times if `claim` does not become true in time.

    On a busy machine mqadmin may report a timeout and still exit successfully.
    """
    said = ""
    for _ in range(3):
        said = reset()
        with suppress(AssertionError):
            wait_until(claim)
            return
    pytest.fail(f"no reset had an effect; the last said: {said}")


def test_a_reset_reaches_a_live_member(real_cluster, group):
    """4.6.0's broker sends it to members (220), and 5.5.0's answers a pull with it."""
    topic = real_cluster.create_topic(queues=8)
    bodies = [f"m-{number:02}" for number in range(40)]
    send(real_cluster, topic, bodies)
    seen = Seen()
    with consumer(real_cluster, group, topic, seen):
        assert seen.wait_for(40) == bodies
        wait_until(lambda: is_committed(real_cluster, group, topic))
        words = ["-g", group, "-t", topic, "-s", "0", "-f", "true"]
        reset_until(
            lambda: mqadmin(real_cluster, "resetOffsetByTime", *words),
            lambda: min(map(seen.bodies.count, bodies)) >= 2,
        )
        wait_until(lambda: is_committed(real_cluster, group, topic))


def test_a_busy_queue_goes_where_it_is_sent(real_cluster, group):
    """A pull under way may carry an older commit, and the broker's threads may race."""
    topic = real_cluster.create_topic(queues=1)
    fill(real_cluster, topic, 30_000, body_bytes=16)
    offsets = []

    def handle(message):
        offsets.append(message.queue_offset)

    with consumer(real_cluster, group, topic, handle) as running:
        wait_until(lambda: len(offsets) > 1_000)
        (queue,) = (each for each in running.queues() if each.topic == topic)
        for target in range(20):
            seen = len(offsets)
            running.seek(queue, target)
            wait_until(lambda seen=seen, target=target: target in offsets[seen:])
            seen = len(offsets)
            wait_until(lambda seen=seen: len(offsets) > seen + 1_000)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (None, "CR_SUCCESS"),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, "CR_LATER"),
        (ZeroDivisionError("why"), "CR_THROW_EXCEPTION"),
    ],
    ids=["success", "later", "raises"],
)
def test_a_message_is_consumed_directly(real_cluster, group, answer, result):
    """Code 309, which queryMsgById and the dashboard use; offsets do not move."""
    topic = real_cluster.create_topic(queues=8)
    (sent,) = send(real_cluster, topic, ["again"])
    wanted = threading.Event()

    def act(*_):
        if wanted.is_set() and isinstance(answer, Exception):
            raise answer
        return answer if wanted.is_set() else None

    seen = Seen(act)
    with consumer(real_cluster, group, topic, seen) as running:
        seen.wait_for(1)
        wait_until(lambda: is_committed(real_cluster, group, topic))
        wanted.set()
        words = ["-i", sent["offsetMsgId"], "-g", group, "-d", running.client_id]
        if real_cluster.version != "4.6.0":
            words += ["-t", topic]
        answer_of = mqadmin(real_cluster, "queryMsgById", *words)
        assert result in answer_of
        assert seen.bodies == ["again", "again"]
