"""The effects of the answers to a pull: messages, none, another offset, an error."""

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
from tests.kit.rows import each_row

NO_NEW, NO_MATCHED = PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG
ILLEGAL = PullStatus.OFFSET_ILLEGAL
ANEW = "the topic was deleted and created again, or its broker has lost messages"


@pytest.mark.parametrize("error", [refusal(1), refusal(16), refusal(24), no_answer()])
def test_a_failed_pull_is_tried_again_after_a_second(error):
    """It begins at the same offset. Source: testPullMessageWithException."""
    world = started()
    world.found([0, 1])
    world.fail_pull(error)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 2


def test_the_delay_after_a_failure_is_a_setting():
    world = started(pull_time_delay_when_exception_ms=3_000)
    world.fail_pull()
    assert world.next_pull_after_ms() == 3_000


def test_a_broker_s_flow_control_delays_the_next_pull_by_20_ms():
    """The broker answers code 215, since 4.9.5."""
    world = started()
    world.fail_pull(refusal(215))
    assert world.next_pull_after_ms() == 20


def test_a_pull_that_could_not_be_sent_is_tried_again():
    """The network may raise before anything is sent."""
    world = World()
    world.network.broken["pull"] = no_answer()
    world.start()
    world.network.broken.clear()
    assert not world.pulls()
    assert world.next_pull_after_ms() == 1_000


@each_row(
    ("status", "next_offset", "body"),
    [
        (PullStatus.FOUND, 5, b""),
        (PullStatus.FOUND, -1, stored(queue_of(), 0)),
        (PullStatus.FOUND, 0, stored(queue_of(), 0)),
        (PullStatus.FOUND, 1, stored(queue_of(), 5)),
        (PullStatus.FOUND, 10, stored(queue_of(), 10)),
        (PullStatus.FOUND, 1_000_001, stored(queue_of(), 1_000_000)),
        (NO_NEW, -1, b""),
        (NO_NEW, 11, b""),
        (NO_NEW, 1_000_000, b""),
        (ILLEGAL, -1, b""),
        (ILLEGAL, 11, b""),
        (ILLEGAL, 2**63 - 1, b""),
    ],
)
def test_an_answer_with_offsets_outside_the_queue_counts_as_a_failed_pull(
    status, next_offset, body
):
    """The answer states bounds of 0 to 10, and the next offset or the messages lie
    outside of them."""
    world = started()
    world.answer(status, next_offset, body=body, max_offset=10)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 0
    assert world.offset() is None
    assert not world.seen


# Nothing found


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED])
def test_a_pull_without_matching_messages_is_followed_by_the_next_at_once(status):
    """The commit offset passes messages with other tags. Source:
    testPullMessageWithNoMatchedMsg."""
    world = started()
    world.answer(status, 40)
    assert world.elapsed_ms == 0
    assert world.pull().args["ask"].queue_offset == 40
    assert world.offset() == 40


@pytest.mark.parametrize(
    ("expression", "logged"),
    [
        (
            "*",
            ["from=0 to=6 messages=2 skipped=4", "from=6 to=40 messages=0 skipped=34"],
        ),
        ("A || B", []),
    ],
)
def test_offsets_without_a_message_are_logged_unless_a_filter_explains_them(
    caplog, expression, logged
):
    """Inside the bounds of its queue, a broker may name any next offset."""
    world = started(tags=expression)
    world.found([0, 5], tags="A")
    world.answer(NO_MATCHED, 40)
    lines = [line for line in caplog.messages if line.startswith("offsets skipped")]
    assert [line[line.index("from=") :] for line in lines] == logged


def test_the_commit_does_not_move_over_cached_messages_when_nothing_is_found():
    """Source: correctTagsOffset."""
    world = started()
    world.holds_work = True
    world.found([3])
    world.answer(NO_MATCHED, 900)
    assert world.offset() is None
    world.work()
    assert world.offset() == 4
    world.answer(NO_NEW, 900)
    assert world.offset() == 900


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED])
def test_neither_pull_nor_commit_move_back_when_nothing_is_found(status):
    """Only OFFSET_ILLEGAL moves an offset back."""
    world = started()
    world.found([0, 1, 2])
    world.answer(status, 1, max_offset=3)
    assert world.next_pull_after_ms() == (1_000 if status is NO_NEW else 50)
    assert world.pull().args["ask"].queue_offset == 3
    assert world.offset() == 3


def test_a_broker_that_answers_nothing_new_at_once_is_pulled_less_and_less_often():
    """Eight pulls follow at once, later ones after 50 ms, 100 ms, up to 1 s. Java
    repeats the pull in a tight loop."""
    world, delays = started(), []
    for _ in range(40):
        world.answer(NO_NEW, 0)
        delays.append(0 if world.pulls() else world.next_pull_after_ms())
    assert delays == [0] * 8 + list(range(50, 1_000, 50)) + [1_000] * 13
    world.found([0])
    world.answer(NO_NEW, 1)
    assert world.pulls()


# Commits that travel with pulls


def test_a_pull_carries_the_offset_to_commit():
    world = started()
    world.found([0, 1, 2])
    world.found([3])
    assert [ask.commit_offset for ask in world.asked()] == [None, None, 3]
    assert world.committed() == 3


def test_offset_0_is_committed_by_the_timer_and_by_no_pull():
    world = World()
    world.network.committed[queue_of()] = 0
    world.start()
    assert world.offset() == 0
    assert world.asked()[0].commit_offset is None
    world.run(10_000)
    commits = [call.args for call in world.network.of("update_offset")]
    assert commits == [{"queue": queue_of(), "offset": 0}]


def test_pulls_of_a_broadcasting_member_commit_nothing():
    """It stores its offsets in a local file."""
    world = started(message_model=BROADCASTING)
    world.found([0])
    world.found([1])
    assert [ask.commit_offset for ask in world.asked()] == [None, None, None]
    assert world.offset() == 2


# Offsets that brokers correct


def test_offset_illegal_begins_the_queue_anew_at_the_broker_s_offset():
    """The offset is stored, and as in 5.2 the queue begins with the next rebalance, a
    second later. Source: testPullMessageWithOffsetIllegal."""
    world = started()
    world.found([0, 1, 2])
    before = world.process_queue()
    world.answer(ILLEGAL, 700)
    assert before.dropped
    assert world.committed() == 700
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 700
    assert world.process_queue() is not before


def test_messages_that_were_pulled_before_their_successors_were_deleted_are_consumed():
    """They were dropped, although the member had them, and the group went past them."""
    world = started()
    world.holds_work = True
    world.found(range(3))
    world.answer(ILLEGAL, 700, min_offset=700, max_offset=900)
    assert world.pull().args["ask"].queue_offset == 700
    world.work()
    assert (world.offsets_seen(), world.offset()) == ([0, 1, 2], 3)
    world.found([700], max_offset=900)
    world.work()
    assert (world.offsets_seen(), world.offset()) == ([0, 1, 2, 700], 701)


def test_a_listener_that_ends_after_a_correction_cannot_undo_it():
    """The offset is frozen, and results of a dropped queue have no effect."""
    world = started()
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.answer(ILLEGAL, 700)
    world.settle()
    world.run(60_000)
    assert world.committed() == 700
    assert {call.args["offset"] for call in world.network.of("update_offset")} == {700}


def test_with_like_4_6_offset_illegal_a_corrected_queue_rests_for_10_s():
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


def test_a_correction_to_a_lower_offset_inside_the_bounds_is_followed():
    """After a fail-over to a broker that has fewer messages, new messages are stored at
    offsets that were consumed before. The consumer follows the correction, as in Java:
    otherwise it would silently lose the new messages, while following only repeats old
    ones."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    assert world.pull().args["ask"].queue_offset == 500
    world.answer(ILLEGAL, 0, min_offset=0, max_offset=400)
    assert world.committed() == 0
    world.next_pull_after_ms()
    assert world.pull().args["ask"].queue_offset == 0


@pytest.mark.parametrize("next_offset", [0, 99, 401, 2**63 - 1])
def test_a_correction_outside_the_bounds_is_not_followed(next_offset):
    """The answer states bounds of 100 to 400. The offset does not move, and nothing is
    committed."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    world.answer(ILLEGAL, next_offset, min_offset=100, max_offset=400)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 500
    assert world.committed() == 500


@pytest.mark.parametrize(("minimum", "maximum"), [(-1, 400), (300, 200)])
def test_an_answer_with_impossible_bounds_moves_no_offset(minimum, maximum):
    world = started()
    world.answer(ILLEGAL, 250, min_offset=minimum, max_offset=maximum)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 0


def test_offset_illegal_with_the_offset_that_was_asked_for_repeats_the_pull():
    """Slaves of 4.6.0 answer in this way."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    world.answer(ILLEGAL, 500, min_offset=0, max_offset=0)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 500


def test_an_empty_queue_stays_at_0():
    """4.6.0 answers that nothing is new at 0, with bounds of 0."""
    world = started()
    world.answer(NO_NEW, 0, min_offset=0, max_offset=0)
    assert world.pull().args["ask"].queue_offset == 0


@pytest.mark.parametrize(
    ("before", "to", "end", "said"),
    [
        (0, 7, 400, "offsets that are skipped: 7"),
        (300, 7, 400, "offsets that are consumed again: 293"),
        (500, 7, 400, f"{ANEW}; offsets that are consumed, maybe again: 393"),
    ],
)
def test_a_correction_is_logged(before, to, end, said, caplog):
    """The log line has both offsets and the bounds that the broker states. It called
    offsets "consumed again" of which none was consumed."""
    world = World()
    world.network.committed[queue_of()] = before
    world.start()
    world.answer(ILLEGAL, to, min_offset=7, max_offset=end)
    (record,) = [each for each in caplog.records if "offset corrected" in each.message]
    assert record.levelname == "WARNING"
    assert record.message.startswith(
        "offset corrected by the broker queue=orders@broker-a:0"
        f" from={before} to={to} min=7 max={end}; {said}"
    )


def test_a_pull_is_repeated_less_and_less_often_after_invalid_answers(caplog):
    world, delays = started(), []
    for _ in range(6):
        world.answer(NO_NEW, 1_000_000, max_offset=10)
        delays.append(world.next_pull_after_ms())
    assert delays == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]
    assert caplog.records[0].message == (
        "invalid pull result queue=orders@broker-a:0 offset=0 status=NO_NEW_MSG"
        " next=1000000 min=0 max=10 bytes=0; retrying in 1000 ms"
    )
    world.found([0])
    world.answer(NO_NEW, 1_000_000, max_offset=10)
    assert world.next_pull_after_ms() == 1_000


@pytest.mark.parametrize(
    ("tags", "next_offset", "expected"),
    [
        ("*", 3, 3),  # the usual answer
        ("*", 9, 3),  # without a filter, the offsets in between are pulled
        ("*", 1_000_000, 3),
        ("A", 9, 9),  # the broker has left out messages with other tags
        ("A", 10, 10),
        ("A", 11, 3),
        ("A", 1_000_000, 3),
    ],
)
def test_the_next_offset_may_skip_messages_only_with_a_filter(
    tags, next_offset, expected
):
    world = started(tags=tags)
    world.found([0, 2], next_offset=next_offset, max_offset=10, tags="A")
    assert world.pull().args["ask"].queue_offset == expected
    assert world.offset() == 3
    assert world.offsets_seen() == [0, 2]


def test_messages_newer_than_the_stated_end_are_believed_if_none_is_left_out():
    """A broker first reads its highest offset, and then messages that arrived since."""
    world = started()
    world.found([0, 1, 2], max_offset=1)
    assert world.offsets_seen() == [0, 1, 2]
    assert world.pull().args["ask"].queue_offset == 3


def test_a_next_offset_beyond_the_stated_end_is_asked_for_again_after_50_ms():
    """This is for NO_MATCHED_MSG: by then the broker states the new end."""
    world = started(tags="A")
    world.answer(NO_MATCHED, 12, max_offset=10)
    assert world.next_pull_after_ms() == 50
    assert world.pull().args["ask"].queue_offset == 0
    world.answer(NO_MATCHED, 12, max_offset=12)
    assert world.offset() == 12


@pytest.mark.parametrize("orderly", [False, True])
def test_messages_before_the_offset_asked_for_are_left_out(orderly):
    """An inner batch is delivered as a whole, even if only its end was pulled."""
    world = World(orderly=orderly)
    world.network.committed[queue_of()] = 5
    world.start()
    world.found([3, 4, 5, 6])
    assert world.offsets_seen() == [5, 6]
    assert world.offset() == 7


@pytest.mark.injects_exceptions
def test_a_queue_begins_anew_after_an_answer_that_raised_an_unexpected_error(caplog):
    """The queue does not stop, and no message is lost."""
    world = started()

    world.workers.error = ZeroDivisionError()
    world.found([0, 1])
    world.workers.error = None
    assert "ZeroDivisionError" in caplog.text
    world.run(1_000)
    assert world.pull().args["ask"].queue_offset == 0
    world.found([0, 1])
    assert world.offsets_seen() == [0, 1]


def test_repeated_corrections_follow_each_other_after_a_second():
    """Each correction needs a rebalance."""
    world = started()
    for _ in range(5):
        world.answer(ILLEGAL, 700)
        assert world.next_pull_after_ms() == 1_000
    world.found([700])
    assert world.offsets_seen() == [700]


# Undecodable messages


def test_an_undecodable_message_is_reported_and_its_neighbours_are_consumed():
    """The message is never skipped silently."""
    told: list[Any] = []
    world = started(on_undecodable=told.append)
    bad = bytearray(stored(queue_of(), 1))
    bad[4:8] = b"\x11\x22\x33\x44"  # an unknown magic
    body = stored(queue_of(), 0) + bytes(bad) + stored(queue_of(), 2)
    world.answer(PullStatus.FOUND, 3, body=body, max_offset=3)
    assert world.offsets_seen() == [0, 2]
    assert [(each.message_queue, each.queue_offset) for each in told] == [
        (queue_of(), 1)
    ]
    assert world.offset() == 3


def test_the_offset_does_not_pass_an_undecodable_message_whose_callback_raised():
    """The callback is called again after 5 s."""
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


def test_a_queue_that_was_lost_and_came_back_has_one_pull():
    """The pull that was under way when the queue was lost ends."""
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


@pytest.mark.parametrize("next_offset", [0, 11])
def test_an_answer_of_other_tags_only_must_move_forward_inside_the_queue(
    next_offset,
):
    """Otherwise the same pull would be repeated for ever."""
    world = started(tags="A")
    body = stored(queue_of(), 0, tags="B")
    world.answer(PullStatus.FOUND, next_offset, body=body, max_offset=10)
    assert world.next_pull_after_ms() == 1_000
    assert world.pull().args["ask"].queue_offset == 0


def test_messages_newer_than_the_stated_end_are_believed_at_any_offset():
    world = World()
    world.network.committed[queue_of()] = 5
    world.start()
    world.found([5, 6, 7], max_offset=6)
    assert world.offsets_seen() == [5, 6, 7]
    assert world.pull().args["ask"].queue_offset == 8


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (0, 6),  # an offset before its neighbour is not used
        (5, 6),
        (6, 6),
        (7, 7),  # the broker has left out messages with other tags
        (99, 99),
        (100, 6),  # the end of the queue
        (2**40, 6),
    ],
)
def test_an_unreadable_message_has_the_offset_that_it_states_if_that_is_possible(
    stated, expected
):
    """The queue has offsets from 0 to 100, and the message follows offset 5."""
    told: list[Any] = []
    world = World(on_undecodable=told.append, tags="A")
    world.network.committed[queue_of()] = 5
    world.start()
    bad = bytearray(stored(queue_of(), stated))
    bad[4:8] = b"\x11\x22\x33\x44"  # an unknown magic
    body = stored(queue_of(), 5, tags="A") + bytes(bad)
    world.answer(PullStatus.FOUND, 100, body=body, max_offset=100)
    assert [each.queue_offset for each in told] == [expected]
    assert [each.message_queue for each in told] == [queue_of()]


@pytest.mark.parametrize("good", [NO_NEW, PullStatus.FOUND])
def test_a_valid_answer_ends_the_growing_delays_after_invalid_ones(good):
    world = started()
    before = world.process_queue()

    def invalid():
        world.answer(NO_NEW, 1_000_000, max_offset=10)
        return world.next_pull_after_ms()

    assert [invalid(), invalid()] == [1_000, 2_000]
    if good is NO_NEW:
        world.answer(NO_NEW, 0)
    else:
        world.found([0])
    assert [invalid(), invalid()] == [1_000, 2_000]
    assert world.process_queue() is before


# Queues that were made anew


def ended(at_ms, *, first_new):
    """Return a world that has pulled 0 to 99, and whose queue then ends at 40."""
    world = started()
    world.network.at_times[queue_of()] = first_new
    world.found(range(100), at_ms=at_ms)
    world.answer(ILLEGAL, 40, max_offset=40)
    return world


@pytest.mark.parametrize("first_new", [0, 35, 40])
def test_a_queue_that_ends_before_what_was_pulled_begins_at_its_new_messages(first_new):
    """Brokers since 4.9.4 correct the offset to the end of the queue, and the messages
    of a topic that was deleted and created again were skipped."""
    world = ended(5_000, first_new=first_new)
    assert world.committed() == first_new
    (call,) = world.network.of("resolve")
    assert call.args["position"].epoch_ms == 5_001
    world.next_pull_after_ms()
    assert world.pull().args["ask"].queue_offset == first_new


def test_a_queue_whose_messages_have_no_store_times_begins_at_its_first_message():
    world = ended(0, first_new=3)
    assert world.committed() == 0
    assert not world.network.of("resolve")


@pytest.mark.parametrize("low", [0, 7])
def test_a_member_that_starts_beyond_the_end_of_a_queue_begins_at_its_first_message(
    low, caplog
):
    """The topic was deleted and created again while no member ran. Brokers since 4.9.4
    correct the offset to the end, and the member skipped all that was stored since."""
    world = World()
    world.network.committed[queue_of()] = 500
    world.start()
    world.answer(ILLEGAL, 400, min_offset=low, max_offset=400)
    assert world.committed() == low
    assert (
        f"offset corrected by the broker queue=orders@broker-a:0 from=500 to={low}"
        f" min={low} max=400; {ANEW}; offsets that are consumed, maybe again:"
        f" {400 - low}"
    ) in caplog.messages
    world.next_pull_after_ms()
    assert world.pull().args["ask"].queue_offset == low


def test_an_offset_beyond_the_end_that_a_program_sets_means_the_end():
    world = started()
    world.engine.move({queue_of(): 500})
    world.run()
    world.answer(ILLEGAL, 400, call=world.pulls()[-1], max_offset=400)
    assert world.committed() == 400


def test_once_messages_came_a_correction_commits_none_that_is_not_consumed():
    """An offset that a program had set was committed behind them as if it were meant.

    They tell no store time, so which messages are new is not known.
    """
    world = started()
    world.holds_work = True
    world.engine.move({queue_of(): 9})
    world.run()
    world.found(range(9, 11), call=world.pulls()[-1], at_ms=0)
    world.answer(ILLEGAL, 10, call=world.pulls()[-1], max_offset=10)
    assert world.committed() == 0


@pytest.mark.parametrize(("consumed", "begin"), [(20, 20), (0, 0), (100, 35)])
def test_messages_that_are_not_consumed_come_again_after_a_broker_lost_newer_ones(
    consumed, begin
):
    """Of 100 messages that were pulled, it lost the last 65. Those before that waited
    for a listener were dropped, and the offset went past them."""
    world = started()
    world.holds_work = True
    world.network.at_times[queue_of()] = 35
    if consumed:
        world.found(range(consumed), at_ms=5_000)
        world.work()
    if consumed < 100:
        world.found(range(consumed, 100), at_ms=5_000)
    world.answer(ILLEGAL, 40, max_offset=40)
    assert world.committed() == begin


def test_a_reset_that_a_broker_carries_out_needs_no_search():
    """It answers a pull with the new offset. The queue still ends behind that pull."""
    world = started()
    world.found(range(100), at_ms=5_000)
    world.answer(ILLEGAL, 20, max_offset=100)
    assert world.committed() == 20
    assert not world.network.of("resolve")


def test_a_queue_stays_where_it_is_until_the_search_for_new_messages_is_answered():
    world = started()
    world.network.fail["resolve"] = no_answer()
    world.found(range(100), at_ms=5_000)
    world.answer(ILLEGAL, 40, max_offset=40)
    assert world.offset() == 100
    assert not world.process_queue().dropped
    world.next_pull_after_ms()
    world.network.fail.clear()
    world.answer(ILLEGAL, 40, max_offset=40)
    assert world.committed() == 0


def doubting(error):
    """Return a world that has pulled 0 to 99, and then an error."""
    world = started()
    world.network.at_times[queue_of()] = 7
    world.found(range(100), at_ms=5_000)
    world.fail_pull(error)
    world.next_pull_after_ms()
    return world


def found_at_99(at_ms):
    return {"body": stored(queue_of(), 99, at_ms=at_ms), "max_offset": 200}


@pytest.mark.parametrize("error", [no_answer(), refusal(17)])
def test_a_broker_that_was_away_may_have_other_messages(error, caplog):
    """It was restarted with an empty store and filled, or the topic was created again:
    offset 100 was pulled next, and the 93 new messages before it were lost."""
    world = doubting(error)
    ask = world.pull().args["ask"]
    assert (ask.queue_offset, ask.max_msg_nums, ask.expression) == (99, 1, "*")
    assert (ask.commit_offset, ask.suspend_ms) == (None, 0)
    world.answer(PullStatus.FOUND, 100, **found_at_99(6_000))
    assert world.committed() == 7
    assert (
        f"another message is at an offset that was pulled: {ANEW}; beginning at the"
        " first message that is new or not consumed queue=orders@broker-a:0 offset=99"
        " from=100 to=7"
    ) in caplog.messages
    world.run(1_000)
    assert world.pull().args["ask"].queue_offset == 7


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (PullStatus.FOUND, found_at_99(5_000)),
        (PullStatus.FOUND, {"body": stored(queue_of(), 101), "max_offset": 102}),
        (ILLEGAL, {"min_offset": 100, "max_offset": 110}),
    ],
    ids=["the same message", "compacted", "trimmed"],
)
def test_a_broker_that_was_away_and_has_the_same_messages_is_pulled_on(status, answer):
    world = doubting(no_answer())
    world.answer(status, 100, **answer)
    assert world.pull().args["ask"].queue_offset == 100
    assert not world.network.of("resolve")


def test_a_broker_that_was_away_and_ends_before_what_was_pulled_is_not_pulled_on():
    """By the next pull it might end behind that."""
    world = doubting(no_answer())
    world.answer(ILLEGAL, 40, max_offset=40)
    assert world.committed() == 7


@pytest.mark.parametrize(
    ("status", "end"), [(NO_NEW, 99), (NO_MATCHED, 98), (ILLEGAL, 0)]
)
def test_a_slave_that_has_not_received_what_was_pulled_is_asked_until_it_has(
    status, end
):
    """Slaves of 4.6.0 answer that the offset is illegal, and repeat it."""
    world = doubting(no_answer())
    for _ in range(2):
        world.answer(status, 99, max_offset=end)
        assert world.next_pull_after_ms() == 1_000
        assert world.pull().args["ask"].queue_offset == 99
    world.answer(PullStatus.FOUND, 100, **found_at_99(5_000))
    assert world.pull().args["ask"].queue_offset == 100


def test_a_refused_pull_is_no_reason_to_compare():
    world = doubting(refusal(1))
    assert world.pull().args["ask"].queue_offset == 100


def test_a_topic_that_is_made_anew_during_a_pull_is_noticed_within_a_minute():
    """The broker answers the pull that it holds with messages of the new topic."""
    world = started()
    world.network.at_times[queue_of()] = 7
    world.found(range(100), at_ms=5_000)
    world.run(30_000)
    world.found([100, 101], at_ms=30_000)
    assert world.pull().args["ask"].queue_offset == 102
    world.run(30_000)
    world.found([102], at_ms=61_000)
    assert world.pull().args["ask"].queue_offset == 99
    world.answer(PullStatus.FOUND, 100, **found_at_99(20_000))
    assert world.committed() == 7


def test_a_queue_in_which_nothing_new_arrives_is_compared_too():
    """It may have been made anew with as many messages."""
    world = started()
    world.found(range(100), at_ms=5_000)
    for _ in range(4):
        assert world.pull().args["ask"].queue_offset == 100
        world.run(15_000)
        world.answer(NO_NEW, 100)
    assert world.pull().args["ask"].queue_offset == 99
    world.answer(PullStatus.FOUND, 100, **found_at_99(5_000))
    assert world.pull().args["ask"].queue_offset == 100
