"""What an answer to a pull leads to: messages, nothing, another offset, an error."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    World,
    no_answer,
    queue_of,
    refusal,
    started,
    stored,
)

NO_NEW, NO_MATCHED = PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG
ILLEGAL = PullStatus.OFFSET_ILLEGAL


@pytest.mark.parametrize("error", [refusal(1), refusal(16), refusal(24), no_answer()])
def test_a_failed_pull_is_tried_again_after_a_second(error):
    """S0-20, S1-01, S2-04, T1, testPullMessageWithException: 1000 ms, from the same
    offset."""
    world = started()
    world.found([0, 1])
    world.fail_pull(error)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 2


def test_the_delay_after_a_failure_is_a_setting():
    """T1."""
    world = started(pull_time_delay_when_exception_ms=3_000)
    world.fail_pull()
    assert world.next_pull_after_ms() == 3_000


def test_a_broker_that_asks_for_patience_is_asked_after_20_ms():
    """S1-01: code 215, since 4.9.5."""
    world = started()
    world.fail_pull(refusal(215))
    assert world.next_pull_after_ms() == 20


def test_a_pull_that_cannot_even_be_asked_is_tried_again():
    """S0-20, S2-17: a network may raise as well as answer."""
    world = World()

    def pull(ask, done):
        raise no_answer()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.network, "pull", pull)
        world.start()
    assert not world.pulls()
    assert world.next_pull_after_ms() == 1_000


@pytest.mark.parametrize(
    ("status", "next_offset", "body"),
    [
        (PullStatus.FOUND, 5, b""),
        (PullStatus.FOUND, -1, stored(queue_of(), 0)),
        (PullStatus.FOUND, 0, stored(queue_of(), 0)),
        (NO_NEW, -1, b""),
        (ILLEGAL, -1, b""),
    ],
)
def test_numbers_that_cannot_be_move_nothing(status, next_offset, body):
    """A wrong next offset, or nothing where something was found: as a failure."""
    world = started()
    world.answer(status, next_offset, body=body)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 0
    assert world.offset() is None
    assert not world.seen


# Nothing found


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED])
def test_nothing_new_and_nothing_that_fits_are_one(status):
    """S1-10, S1-11, S1-13, S2-04, testPullMessageWithNoMatchedMsg: pulled on at once,
    and the commit moves over what is of other tags."""
    world = started()
    world.answer(status, 40)
    assert world.elapsed_ms == 0
    assert world.pull().args["ask"].queue_offset == 40
    assert world.offset() == 40


def test_the_commit_does_not_move_over_what_is_still_cached():
    """S4-09: correctTagsOffset, only where nothing is cached."""
    world = started()
    world.holds_work = True
    world.found([3])
    world.answer(NO_MATCHED, 900)
    assert world.offset() is None
    world.work()
    assert world.offset() == 4
    world.answer(NO_NEW, 900)
    assert world.offset() == 900


def test_the_commit_does_not_move_back_when_nothing_is_found():
    """S4-09: it only increases."""
    world = started()
    world.found([0, 1, 2])
    world.answer(NO_NEW, 1)
    assert world.offset() == 3
    assert world.pull().args["ask"].queue_offset == 1


def test_a_broker_that_answers_nothing_new_at_once_is_not_asked_faster_and_faster():
    """Where Java spins: eight times at once, then after 50 ms, 100 ms, up to 1 s."""
    world, delays = started(), []
    for _ in range(40):
        world.answer(NO_NEW, 0)
        delays.append(0 if world.pulls() else world.next_pull_after_ms())
    assert delays == [0] * 8 + list(range(50, 1_000, 50)) + [1_000] * 13
    world.found([0])
    world.answer(NO_NEW, 1)
    assert world.pulls()


# Commits that travel with pulls


def test_the_offset_travels_with_the_pull():
    """S2-15."""
    world = started()
    world.found([0, 1, 2])
    world.found([3])
    assert [ask.commit_offset for ask in world.asked()] == [None, None, 3]
    assert world.committed() == 3


def test_an_offset_of_0_is_committed_by_the_timer_only():
    """T32."""
    world = World()
    world.network.committed[queue_of()] = 0
    world.start()
    assert world.offset() == 0
    assert world.asked()[0].commit_offset is None
    world.run(10_000)
    commits = [call.args for call in world.network.of("update_offset")]
    assert commits == [{"queue": queue_of(), "offset": 0}]


def test_broadcasting_commits_nothing_with_a_pull():
    """S2-10: offsets are in a file of ours."""
    world = started(message_model=BROADCASTING)
    world.found([0])
    world.found([1])
    assert [ask.commit_offset for ask in world.asked()] == [None, None, None]
    assert world.offset() == 2


# Offsets that brokers correct


def test_an_illegal_offset_is_corrected_at_once():
    """S4-10, T11, testPullMessageWithOffsetIllegal: as 5.2 does, stored, and the queue
    begun anew from there, after the second between two rebalances."""
    world = started()
    world.found([0, 1, 2])
    before = world.process_queue()
    world.answer(ILLEGAL, 700)
    assert before.dropped
    assert world.committed() == 700
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 700
    assert world.process_queue() is not before


def test_work_that_ends_late_cannot_undo_a_correction():
    """S4-12, T11: the offset is frozen, and results of a dropped queue are void."""
    world = started()
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.answer(ILLEGAL, 700)
    world.settle()
    world.run(60_000)
    assert world.committed() == 700
    assert {call.args["offset"] for call in world.network.of("update_offset")} == {700}


def test_as_before_5_2_a_corrected_queue_rests_for_10_s():
    """S4-10, S4-12, T11: the compatibility setting."""
    world = started(like_4_6_offset_illegal=True)
    world.found([0, 1, 2])
    world.run(11_000)
    world.answer(ILLEGAL, 700)
    assert world.process_queue().dropped
    world.run(9_999)
    assert world.committed() == 3
    assert not world.pulls()
    world.run(1)
    assert world.committed() == 700
    world.run(20_000)
    assert world.pull().args["ask"].queue_offset == 700


def test_where_a_broker_sends_us_there_we_go():
    """T12, A09: also back to 0, and it is logged as a warning."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    assert world.pull().args["ask"].queue_offset == 500
    world.answer(ILLEGAL, 0, min_offset=0, max_offset=400)
    assert world.committed() == 0
    world.next_pull_after_ms()
    assert world.pull().args["ask"].queue_offset == 0


def test_a_correction_is_told(caplog):
    """A09, A12: with both offsets and what the broker has."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    world.answer(ILLEGAL, 7, min_offset=7, max_offset=400)
    (record,) = [each for each in caplog.records if "corrects" in each.message]
    assert record.levelname == "WARNING"
    assert record.message == (
        "broker corrects orders@broker-a:0 from 500 to 7 (it has 7 to 400)"
    )


def test_corrections_without_end_do_not_spin():
    """A10: each costs a rebalance, so a second."""
    world = started()
    for _ in range(5):
        world.answer(ILLEGAL, 700)
        assert world.next_pull_after_ms() == 1_000
    world.found([700])
    assert world.offsets_seen() == [700]


# What cannot be read


def test_a_bad_message_is_told_and_its_neighbours_are_consumed():
    """A45: never skipped silently."""
    told: list[Any] = []
    world = started(on_undecodable=told.append)
    bad = bytearray(stored(queue_of(), 1))
    bad[4:8] = b"\x11\x22\x33\x44"  # no magic that there is
    body = stored(queue_of(), 0) + bytes(bad) + stored(queue_of(), 2)
    world.answer(PullStatus.FOUND, 3, body=body, max_offset=3)
    assert world.offsets_seen() == [0, 2]
    assert [(each.message_queue, each.queue_offset) for each in told] == [
        (queue_of(), 1)
    ]
    assert world.offset() == 3


def test_a_bad_message_that_nobody_took_is_not_passed():
    """A45: what the callback raises makes it be told again, after 5 s."""
    told = []

    def tell(message):
        told.append(world.elapsed_ms)
        if len(told) < 3:
            raise ValueError("no place for it")

    world = started(on_undecodable=tell)
    bad = bytearray(stored(queue_of(), 0))
    bad[4:8] = b"\x11\x22\x33\x44"
    body = bytes(bad) + stored(queue_of(), 1)
    world.answer(PullStatus.FOUND, 2, body=body, max_offset=2)
    assert world.offsets_seen() == [1]
    assert world.offset() == 0
    world.run(9_999)
    assert world.offset() == 0
    world.run(1)
    assert told == [0, 5_000, 10_000]
    assert world.offset() == 2


def test_a_queue_that_is_shared_again_has_one_pull():
    """Property (a), A02: the old pull of a queue that was lost and came back ends."""
    world = started()
    old = world.pull()
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000)
    assert not world.member.process_queues
    world.network.members = [ME]
    world.engine.rebalances.soon()
    world.run(1_000)
    new = [call for call in world.pulls() if call is not old]
    assert len(new) == 1
    world.found(range(50), call=old)
    assert world.offset() is None
    assert len(world.network.of("pull")) == 2
