"""The checks of a member's calls, pulls and commits find what is wrong."""

from __future__ import annotations

import pytest

from rmqcli.engine.message import Origin, Pulled, decode_pulled
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.model import MessageQueue
from rmqcli.wire.subscription import parse_subscription
from tests.engine.world import stored
from tests.simulation.checker import RETRY_TOPIC, Checker
from tests.simulation.schedule import Schedule
from tests.simulation.watch import Watch, Working

QUEUE = MessageQueue("sim", "broker-a", 0)


def queue_locked_at(now_ms: int) -> ProcessQueue[Pulled]:
    return ProcessQueue(QUEUE, 0, last_lock_ms=now_ms)


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "count"),
    [(20_000, 30_000, 1), (9_000, 30_000, 0), (30_000, 9_000, 0)],
    ids=["nothing was lost", "the first's was", "the second's was"],
)
def test_two_calls_are_right_only_if_a_broker_forgot_a_lock(first_ms, second_ms, count):
    """The broker loses its locks at 10 s, and a third member locks the queue."""
    schedule = Schedule("1")
    checker, working = Checker(schedule), Working()
    schedule.run_until(31_000)
    batch = decode_pulled(
        stored(QUEUE, 0, body=b"0"),
        Origin(QUEUE, 0, 1),
        start_offset=0,
        subscription=parse_subscription("sim", "*", sub_version=0),
    )
    for name, locked_ms in (("m1", first_ms), ("m2", second_ms)):
        watch = Watch(
            schedule, checker, working, name=name, locks_lost_ms=lambda _: 10_000
        )
        watch.is_orderly = True
        watch.begins(QUEUE, queue_locked_at(locked_ms), batch)
    assert len(checker.violations) == count


@pytest.mark.parametrize(
    ("is_orderly", "is_asked", "is_pulled", "count"),
    [
        (True, True, False, 0),
        (True, False, False, 1),
        (True, True, True, 1),
        (False, True, False, 1),
    ],
    ids=["asked under the lock", "not asked", "asked after a pull", "no lock"],
)
def test_a_commit_goes_back_only_where_an_orderly_queue_s_offset_was_asked_for_again(
    is_orderly, is_asked, is_pulled, count
):
    """The previous owner's commit of 226 came late, so that the queue begins there
    under the lock, and not at 230."""
    schedule = Schedule("1")
    checker = Checker(schedule)
    watch = Watch(schedule, checker, Working(), name="m1", locks_lost_ms=lambda _: -1)
    watch.is_orderly = is_orderly
    process_queue = queue_locked_at(0)
    watch.asks(QUEUE)
    watch.commits(QUEUE, process_queue, 230)
    if is_pulled:
        watch.pulls(QUEUE, process_queue, 230)
    if is_asked:
        watch.asks(QUEUE)
    watch.commits(QUEUE, process_queue, 226)
    assert len(checker.violations) == count


@pytest.mark.parametrize(
    ("is_lost", "offset", "count"),
    [(False, 70, 0), (False, 71, 1), (True, 71, 0)],
    ids=["there", "elsewhere", "lost meanwhile"],
)
def test_what_was_reset_is_pulled_from_there(is_lost, offset, count):
    """Unless it was lost and gained again: then it begins at its committed offset."""
    checker = Checker(Schedule("1"))
    watch = Watch(
        Schedule("1"), checker, Working(), name="m1", locks_lost_ms=lambda _: -1
    )
    before, after = queue_locked_at(0), queue_locked_at(0)
    watch.moves(QUEUE, before, 70)
    watch.asks(QUEUE, before)  # the commit is read back
    if is_lost:
        watch.asks(QUEUE)
    watch.pulls(QUEUE, after, offset)
    watch.pulls(QUEUE, queue_locked_at(0), 99)
    assert len(checker.violations) == count


def test_what_a_reset_skips_is_waited_for_no_more():
    checker = Checker(Schedule("1"))
    place = (QUEUE.broker_name, QUEUE.topic, QUEUE.queue_id)
    for number in range(4):
        checker.stored(*place, number, 100 * number)
    checker.stored(QUEUE.broker_name, RETRY_TOPIC, 0, 1, 400)  # 1 was sent back
    checker.skipped_to(place, 2)
    assert list(checker.pending) == [1, 2, 3]
    assert checker.skipped == 1
    assert checker.first_unsettled(place) == 2
