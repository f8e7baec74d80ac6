"""The offset from which a newly assigned queue is consumed."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.config import ConsumeFromWhere
from rmqcli.position import Ago, AtTime
from tests.engine.world import (
    BROADCASTING,
    FROM_FIRST,
    FROM_TIMESTAMP,
    RETRY,
    World,
    no_answer,
    queue_of,
    refusal,
)

FROM_LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
POLICIES = [FROM_LAST, FROM_FIRST, FROM_TIMESTAMP]
RETRY_QUEUE = queue_of(topic=RETRY)


def first_pulls(world):
    """Return the offset of each queue's first pull."""
    found: dict[Any, int] = {}
    for call in world.network.of("pull"):
        ask = call.args["ask"]
        found.setdefault(ask.queue, ask.queue_offset)
    return found


@pytest.mark.parametrize("where", POLICIES)
@pytest.mark.parametrize("stored", [0, 400])
def test_a_committed_offset_counts_whatever_consume_from_where_says(where, stored):
    """This includes offset 0, which brokers answer for new topics. Source:
    testComputePullFromWhereWithException_ne_minus1."""
    world = World(consume_from_where=where)
    world.network.committed[queue_of()] = stored
    world.network.ends[queue_of()] = 12_345
    world.start()
    assert first_pulls(world) == {queue_of(): stored}
    assert world.offset() == stored


@pytest.mark.parametrize(
    ("where", "expected"),
    [(FROM_LAST, 12_345), (FROM_FIRST, 0), (FROM_TIMESTAMP, 23_456)],
)
def test_without_a_committed_offset_consume_from_where_decides(where, expected):
    """If the first offset was trimmed, the broker corrects it later. Source:
    testComputePullFromWhereWithException_eq_minus1_last, _first, _timestamp."""
    world = World(consume_from_where=where)
    world.network.ends[queue_of()] = 12_345
    world.network.at_times[queue_of()] = 23_456
    world.start()
    assert first_pulls(world) == {queue_of(): expected}


@pytest.mark.parametrize("where", POLICIES)
def test_a_retry_queue_without_an_offset_begins_at_0(where):
    """This is also true with CONSUME_FROM_TIMESTAMP, where Java begins at the end and
    skips the waiting retries."""
    world = World(consume_from_where=where, has_retry_route=True)
    world.network.ends[RETRY_QUEUE] = world.network.at_times[RETRY_QUEUE] = 9
    world.start()
    assert first_pulls(world)[RETRY_QUEUE] == 0


@pytest.mark.parametrize("where", POLICIES)
def test_a_queue_that_is_empty_begins_at_0(where):
    world = World(consume_from_where=where)
    world.start()
    assert first_pulls(world) == {queue_of(): 0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Ago(30 * 60 * 1_000)),
        ({"consume_ago_ms": 5}, Ago(5)),
        ({"consume_timestamp_ms": 123_456}, AtTime(123_456, "123456")),
        ({"consume_timestamp_ms": 7, "consume_ago_ms": 5}, AtTime(7, "7")),
    ],
)
def test_the_time_is_half_an_hour_before_the_start_unless_it_is_set(settings, expected):
    world = World(consume_from_where=FROM_TIMESTAMP, **settings)
    world.start()
    (call,) = world.network.of("resolve")
    assert call.args["position"] == expected


def test_a_queue_that_is_assigned_later_begins_at_the_same_time():
    """The duration counts from the start of the consumer, not from the assignment."""
    world = World(consume_from_where=FROM_TIMESTAMP, consume_ago_ms=10_000)
    world.network.fail["query_offset"] = no_answer()
    world.start()
    assert not world.network.of("resolve")
    world.network.fail.clear()
    world.run(60_000)
    asked = [call.args["position"].ago_ms for call in world.network.of("resolve")]
    assert asked
    assert min(asked) > 10_000


@pytest.mark.parametrize("where", POLICIES)
@pytest.mark.parametrize("error", [refusal(1), refusal(17), no_answer()])
def test_only_a_broker_that_knows_of_no_offset_means_that_there_is_none(where, error):
    """This has been the rule since 5.0. Source: testReadOffset_WithException."""
    world = World(consume_from_where=where)
    world.network.fail["query_offset"] = error
    world.start()
    assert not first_pulls(world)


@pytest.mark.parametrize(
    ("where", "name"), [(FROM_LAST, "max_offset"), (FROM_TIMESTAMP, "resolve")]
)
def test_a_queue_waits_while_its_end_or_the_offset_of_a_time_is_not_known(where, name):
    """It does not begin at a guessed offset."""
    world = World(consume_from_where=where)
    world.network.fail[name] = no_answer()
    world.network.ends[queue_of()] = world.network.at_times[queue_of()] = 7
    world.start()
    assert not first_pulls(world)
    world.network.fail.clear()
    world.run(1_000)
    assert first_pulls(world) == {queue_of(): 7}


def test_a_negative_committed_offset_is_an_error():
    """A queue never begins below 0."""
    world = World()
    world.network.committed[queue_of()] = -3
    world.start()
    assert not first_pulls(world)


def test_a_broadcasting_member_begins_at_the_offset_in_its_file():
    """It queries no broker for the offset."""
    world = World(message_model=BROADCASTING, consume_from_where=FROM_LAST)
    world.network.ends[queue_of()] = 50
    world.file.offsets[queue_of()] = 33
    world.start()
    assert first_pulls(world) == {queue_of(): 33}
    assert not world.network.of("query_offset")


def test_the_offset_of_an_orderly_queue_is_queried_again_under_its_lock():
    """The previous owner may have committed since the first query."""
    world = World(orderly=True)
    world.network.hold.add("query_offset")
    world.start()
    (before,) = world.network.of("query_offset")
    before.answer(40)
    _, under_lock = world.network.of("query_offset")
    assert not first_pulls(world)
    under_lock.answer(25)
    assert first_pulls(world) == {queue_of(): 25}
    world.network.hold.clear()
    world.found([25])
    assert len(world.network.of("query_offset")) == 2


def test_an_orderly_queue_waits_while_its_offset_under_the_lock_is_not_known():
    """It waits for the delay of a failed pull."""
    world = World(orderly=True)
    world.network.hold.add("query_offset")
    world.start()
    world.network.of("query_offset")[0].answer(40)
    world.network.hold.clear()
    world.network.committed[queue_of()] = 40
    world.network.of("query_offset")[1].answer(no_answer())
    assert world.next_pull_after_ms() == 1_000
    assert first_pulls(world) == {queue_of(): 40}


@pytest.mark.parametrize("where", [FROM_LAST, FROM_TIMESTAMP])
@pytest.mark.parametrize("orderly", [False, True])
def test_messages_sent_between_two_starts_are_not_lost(where, orderly):
    """A member that closes before its first message has committed its first offset."""
    world = World(consume_from_where=where, orderly=orderly)
    world.network.ends[queue_of()] = world.network.at_times[queue_of()] = 5
    world.start()
    world.close()
    world.run(100)
    again = World(consume_from_where=where, orderly=orderly)
    again.network.ends[queue_of()] = again.network.at_times[queue_of()] = 6
    again.network.committed = world.network.committed
    again.start()
    assert first_pulls(again) == {queue_of(): 5}


def test_messages_sent_while_a_queue_is_being_locked_are_not_lost():
    """The end of the queue is queried once; Java queries it again under the lock."""
    world = World(consume_from_where=FROM_LAST, orderly=True)
    world.network.hold.add("max_offset")
    world.start()
    world.network.ends[queue_of()] = 6
    world.network.hold.clear()
    world.network.of("max_offset")[0].answer(5)
    assert first_pulls(world) == {queue_of(): 5}
    assert len(world.network.of("query_offset")) == 2


def test_a_broadcasting_member_stores_where_it_began():
    """It writes the offset to its file before its first message."""
    world = World(message_model=BROADCASTING, consume_from_where=FROM_LAST)
    world.network.ends[queue_of()] = 5
    world.start()
    world.close()
    world.run(100)
    assert world.file.offsets == {queue_of(): 5}


# Reports to on_start


def starts_of(found):
    return [(each.queue, each.queue_offset, each.start.name) for each in found]


@pytest.mark.parametrize(
    ("where", "offset", "start"),
    [
        (FROM_LAST, 12_345, "LAST"),
        (FROM_FIRST, 0, "FIRST"),
        (FROM_TIMESTAMP, 23_456, "TIME"),
    ],
)
def test_on_start_is_called_with_the_first_offset_of_a_queue_and_the_reason(
    where, offset, start
):
    found: list[Any] = []
    world = World(consume_from_where=where, has_retry_route=True, on_start=found.append)
    world.network.ends[queue_of()] = 12_345
    world.network.at_times[queue_of()] = 23_456
    world.start()
    assert sorted(starts_of(found)) == [
        (RETRY_QUEUE, 0, "RETRIES"),
        (queue_of(), offset, start),
    ]


@pytest.mark.parametrize("orderly", [False, True])
def test_on_start_is_called_once_for_a_queue_with_a_committed_offset(orderly):
    """This is also true when the offset is queried again under the queue's lock."""
    found: list[Any] = []
    world = World(orderly=orderly, on_start=found.append)
    world.network.committed[queue_of()] = 400
    world.start()
    assert starts_of(found) == [(queue_of(), 400, "COMMITTED")]
    assert first_pulls(world) == {queue_of(): 400}


@pytest.mark.injects_exceptions
def test_an_on_start_that_raises_changes_nothing(caplog):
    def fail(start):
        raise ZeroDivisionError("injected")

    world = World(on_start=fail)
    world.start()
    assert first_pulls(world) == {queue_of(): 0}
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.message == "on_start failed queue=orders@broker-a:0"


def test_the_second_query_under_the_lock_is_for_the_same_queue():
    world = World(orderly=True, queues=2)
    world.start()
    asked = [call.args["queue"] for call in world.network.of("query_offset")]
    assert sorted(asked) == [queue_of(0), queue_of(0), queue_of(1), queue_of(1)]
