"""When a queue is pulled, and with which request."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.config import ConsumerConfig
from rmqcli.engine.interfaces import PullAsk
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.engine.pull_room import PullRequest
from rmqcli.wire.pull_answer import PullStatus
from rmqcli.wire.subscription import parse_subscription
from tests.engine.world import (
    START_MS,
    TOPIC,
    queue_of,
    started,
    stored,
)

MIB = 1024 * 1024
NO_NEW, NO_MATCHED = PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG
ILLEGAL = PullStatus.OFFSET_ILLEGAL


def test_each_queue_has_one_pull():
    """The pull is sent as soon as the queue is assigned."""
    world = started(queues=3)
    asked = [call.args["ask"].queue for call in world.pulls()]
    assert sorted(asked) == [queue_of(0), queue_of(1), queue_of(2)]


def test_queues_do_not_wait_for_each_other():
    """Their pulls are answered in any order."""
    world = started(queues=2)
    world.found([0, 1], call=world.pull(1))
    assert [ask.queue_offset for ask in world.asked(1)] == [0, 2]
    assert [ask.queue_offset for ask in world.asked(0)] == [0]


def test_a_pull_asks_for_32_messages_held_15_s_and_waits_30_s():
    """The broker has the expression from the heartbeat."""
    world = started()
    assert world.asked() == [
        PullAsk(
            group="g",
            queue=queue_of(0),
            queue_offset=0,
            max_msg_nums=32,
            commit_offset=None,
            suspend_ms=15_000,
            timeout_ms=30_000,
            sub_version=START_MS,
            expression=None,
            expression_type="TAG",
        )
    ]


def test_a_pull_s_timeout_is_longer_than_a_broker_holds_it():
    """The timeout is 30 s. The broker holds a pull for 15 s and may notice its end up
    to 5 s later, and we allow 1 s more."""
    (ask,) = started().asked()
    assert (ask.suspend_ms, ask.timeout_ms) == (15_000, 30_000)
    assert ask.timeout_ms > ask.suspend_ms + 5_000 + 1_000


def test_messages_found_are_cached_and_consumed_and_the_next_pull_goes_out():
    """The next pull does not wait for the listener. Source: testHook."""
    world = started(tags="A")
    world.holds_work = True
    world.found([0, 1, 2], next_offset=5, tags="A")
    assert world.process_queue().msg_count == 3
    assert [ask.queue_offset for ask in world.asked()] == [0, 5]
    assert world.elapsed_ms == 0
    world.work()
    assert world.offsets_seen() == [0, 1, 2]
    assert world.process_queue().msg_count == 0
    assert world.offset() == 3


def test_the_next_pull_waits_for_pull_interval():
    world = started(pull_interval_ms=200)
    world.found([0])
    assert world.next_pull_after_ms() == 200


def test_messages_have_the_bounds_that_their_queue_had_when_they_were_pulled():
    """The bounds are min_offset and max_offset. Source:
    PullAPIWrapperTest.testProcessPullResult."""
    bounds = []

    def act(messages, _):
        origin = messages[0].origin
        bounds.append((messages[0].broker_name, origin.min_offset, origin.max_offset))

    world = started(act=act)
    body = stored(queue_of(), 7)
    world.answer(PullStatus.FOUND, 8, body=body, min_offset=3, max_offset=90)
    assert bounds == [("broker-a", 3, 90)]


def test_messages_of_tags_with_the_same_hash_are_left_out():
    """Brokers compare only hashes, which are equal for "Aa" and "BB". A message without
    tags is left out, too."""
    world = started(tags="Aa")
    body = b"".join(
        stored(queue_of(), offset, tags=tag)
        for offset, tag in enumerate(["Aa", "BB", None, "Aa"])
    )
    world.answer(PullStatus.FOUND, 4, body=body, max_offset=4)
    assert world.offsets_seen() == [0, 3]
    assert world.offset() == 4


def test_a_pull_of_which_no_message_has_the_tags_is_followed_by_the_next_at_once():
    """The commit offset moves with the next message that is consumed."""
    world = started(tags="Aa")
    world.found([0, 1, 2], tags="BB")
    assert world.elapsed_ms == 0
    assert world.asked()[-1].queue_offset == 3
    assert world.offset() is None
    assert world.process_queue().msg_count == 0
    world.answer(NO_NEW, 3)
    assert world.offset() == 3


# Flow control


def test_a_queue_with_more_than_1000_cached_messages_is_not_pulled():
    """The count is checked every 50 ms; then the queue is pulled once. Source:
    testPullMessageWithMsgCountFlowControl."""
    world = started()
    world.holds_work = True
    world.found(range(1_000))
    world.found([1_000])
    assert world.process_queue().msg_count == 1_001
    world.run(150)
    assert not world.pulls()
    world.work()
    assert world.next_pull_after_ms() == 50


def test_messages_over_the_threshold_are_cached_when_their_pull_was_sent_before():
    """The thresholds are checked before a pull, not when its messages arrive."""
    world = started(pull_threshold_for_queue=10)
    world.holds_work = True
    world.found(range(10))
    world.found(range(10, 42))
    assert world.process_queue().msg_count == 42
    assert not world.pulls()


def test_no_message_is_dropped_by_flow_control():
    """Pulls adapt to the listener's pace, and all messages arrive."""
    world = started(pull_threshold_for_queue=10)
    for start in range(0, 320, 32):
        if not world.pulls():
            world.next_pull_after_ms()
        world.found(range(start, start + 32))
    assert world.offsets_seen() == list(range(320))
    assert world.offset() == 320


@pytest.mark.parametrize(("last", "delay_ms"), [(MIB - 1, 0), (MIB, 50)])
def test_a_queue_with_more_cached_mib_than_set_is_not_pulled(last, delay_ms):
    """Whole MiB are compared: one byte less than 2 MiB is not over 1 MiB. Source:
    testPullMessageWithMsgSizeFlowControl."""
    world = started(pull_threshold_size_for_queue_mib=1)
    world.holds_work = True
    world.found([0], size=MIB)
    world.found([1], size=last)
    assert bool(world.pulls()) is (delay_ms == 0)
    if delay_ms:
        world.work()
        assert world.next_pull_after_ms() == delay_ms


@pytest.mark.parametrize(("second", "is_pulled"), [(2_000, True), (2_001, False)])
def test_a_queue_whose_cached_offsets_span_more_than_2000_is_not_pulled(
    second, is_pulled
):
    """Two messages can have such a span. Source:
    testPullMessageWithMaxSpanFlowControl."""
    world = started(pull_threshold_for_queue=65_535)
    world.holds_work = True
    world.found([0, second])
    assert bool(world.pulls()) is is_pulled
    if not is_pulled:
        world.run(50)
        assert not world.pulls()
        world.work()
        assert world.next_pull_after_ms() == 50


def test_the_span_does_not_hold_back_orderly_pulls():
    """The limit of the span is only for concurrent consumers."""
    world = started(orderly=True)
    world.holds_work = True
    world.found([0, 1, 9_000])
    assert world.pull().args["ask"].queue_offset == 9_001


def test_settings_changed_by_a_rebalance_count_from_the_next_pull():
    """Thresholds and subscriptions are read before every pull."""
    world = started()
    world.holds_work = True
    world.found(range(20))
    world.member.pull_threshold_for_queue = 10
    world.found(range(20, 30))
    assert not world.pulls()
    world.member.pull_threshold_for_queue = 1_000
    assert world.next_pull_after_ms() == 50


def cached_bytes(world):
    return sum(each.msg_size_bytes for each in world.member.process_queues.values())


def test_cached_bytes_max_limits_the_messages_of_all_queues_together():
    """RocketMQ's limits for each queue apply, too. Messages that arrive when there is
    no room are pulled again once there is room."""
    world = started(queues=2, cached_bytes_max=1_000)
    world.holds_work = True
    world.found([0], size=1_000, call=world.pull(0))
    assert not world.pulls(queue_of(0))
    world.found([0], size=10, call=world.pull(1))
    assert not world.pulls()
    assert cached_bytes(world) == 1_000
    world.work()
    assert world.next_pull_after_ms(1) == 50
    assert world.pull(1).args["ask"].queue_offset == 0
    world.found([0], size=10, call=world.pull(1))
    world.work()
    assert world.offset(1) == 1


def test_cached_bytes_max_is_64_mib_unless_set():
    assert ConsumerConfig().cached_bytes_max == 64 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("size", [64 * 1024, MIB, 4 * MIB])
def test_64_queues_whose_pulls_are_all_answered_at_once_hold_64_mib(size):
    """This is also true when all pulls were sent before the limit was reached."""
    world = started(queues=64)
    world.holds_work = True
    count = max(1, 2 * MIB // size)
    peak_bytes = 0
    for _ in range(2):
        for number in range(64):
            for call in world.pulls(queue_of(number)):
                first = call.args["ask"].queue_offset
                offsets = range(first, first + count)
                world.found(offsets, size=size, call=call, max_offset=1_000)
                peak_bytes = max(peak_bytes, cached_bytes(world))
        world.run(60)
    assert 57 * MIB < peak_bytes <= 64 * MIB
    # All queues get a turn when the listeners continue.
    end = min(8, 8 * MIB // size)
    for _ in range(200):
        world.work()
        world.run(60)
        for call in world.pulls():
            first = call.args["ask"].queue_offset
            offsets = range(first, min(first + count, end))
            if offsets:
                world.found(offsets, size=size, call=call, max_offset=end)
    assert all((world.offset(number) or 0) >= end for number in range(64))


@pytest.mark.parametrize("size", [999, 1_000, 5_000])
def test_a_message_larger_than_the_limit_is_consumed(size):
    world = started(queues=2, cached_bytes_max=1_000)
    world.holds_work = True
    world.found([0], size=200, call=world.pull(0))
    world.found([0], size=size, call=world.pull(1))
    assert cached_bytes(world) == 200
    world.work()
    assert world.next_pull_after_ms(1) == 50
    world.found([0], size=size, call=world.pull(1))
    assert cached_bytes(world) == size
    world.work()
    assert world.offset(1) == 1


def test_a_pull_that_needs_much_room_gets_it_before_later_pulls():
    """It waits for more room than the others need, and keeps its place in the queue."""
    world = started(queues=3, cached_bytes_max=1_000)
    world.holds_work = True
    world.found([0], size=600, call=world.pull(0))
    world.found([0], size=600, call=world.pull(1), max_offset=9)  # there is no room
    world.found([0], size=200, call=world.pull(2))
    world.run(60)  # from now on queue 1 waits for room
    world.found([1], size=10, call=world.pull(2))
    world.run(500)
    assert not world.pulls(queue_of(1))
    assert not world.pulls(queue_of(2)), "190 are free, but it is behind in the line"
    world.work()
    world.run(60)
    assert world.pull(1).args["ask"].queue_offset == 0


def test_a_pull_that_waits_for_room_is_not_taken_for_a_lost_one():
    world = started(queues=2, cached_bytes_max=1_000)
    world.holds_work = True
    world.found([0], size=1_000, call=world.pull(0))
    waiting = world.process_queue(0)
    world.run(150_000)
    assert world.process_queue(0) is waiting
    assert waiting.last_pull_ms > world.clock.now_ms - 51
    world.work()
    assert world.next_pull_after_ms(0) <= 50


def test_without_cached_bytes_max_no_pull_waits_for_room():
    world = started(queues=2, cached_bytes_max=None)
    world.holds_work = True
    world.found([0], size=70 * MIB, call=world.pull(0))
    assert world.pulls(queue_of(0))


# Queues that are not pulled


def test_a_dropped_queue_is_not_pulled_any_more():
    """Its PullRequest ends."""
    world = started()
    world.holds_work = True
    world.found(range(1_001))
    world.process_queue().drop("by the test")
    world.run(1_000)
    assert not world.pulls()


def test_an_answer_for_a_dropped_queue_is_ignored():
    world = started()
    process_queue, call = world.process_queue(), world.pull()
    process_queue.drop("by the test")
    world.found([0], call=call)
    assert process_queue.msg_count == 0
    assert not world.seen
    assert not world.pulls()


def test_an_answer_for_a_member_that_closes_is_ignored():
    """Messages that are consumed after the close has stopped waiting for listeners
    would not be committed."""
    world = started()
    process_queue = world.process_queue()
    world.member.is_running = False
    world.found([0])
    assert process_queue.msg_count == 0
    assert not process_queue.dropped
    assert not world.seen


@pytest.mark.injects_exceptions
def test_the_time_of_the_last_pull_of_a_dropped_queue_is_not_changed():
    world = started()
    process_queue: ProcessQueue[Any] = ProcessQueue(queue_of(1), 5)
    request = PullRequest(queue_of(1), process_queue, 0)
    process_queue.drop("by the test")
    world.engine.pulls.pull(request)
    assert process_queue.last_pull_ms == 5
    live: ProcessQueue[Any] = ProcessQueue(queue_of(1), 5)
    world.engine.pulls.pull(PullRequest(queue_of(1), live, 0))
    assert live.last_pull_ms == START_MS


def test_a_member_that_does_not_run_retries_its_pull_after_a_second():
    """This is not counted as flow control. Source: testPullMessageWithStateNotOk."""
    world = started()
    world.member.is_running = False
    world.found([0])
    assert not world.pulls()
    world.run(999)
    assert not world.pulls()
    world.member.is_running = True
    assert world.next_pull_after_ms() == 1


def test_a_paused_member_retries_its_pull_after_a_second():
    """Source: testPullMessageWithIsPause, testSuspend."""
    world = started()
    world.engine.pause()
    world.found([0])
    assert world.seen == [(queue_of(), [0])], "what was pulled is consumed"
    world.run(200_000)
    assert not world.pulls()
    assert world.process_queue().last_pull_ms > world.clock.now_ms - 1_001
    world.engine.resume()
    assert world.next_pull_after_ms() <= 1_000


def test_an_orderly_queue_without_its_lock_retries_its_pull_after_a_second():
    """Source: testPullMessageWithNotLocked."""
    world = started(orderly=True)
    world.process_queue().lock_lost()
    world.network.locked_by_others.add(queue_of())
    world.found([0])
    assert not world.pulls()
    world.network.locked_by_others.clear()
    world.run(999)
    assert not world.pulls()
    world.process_queue().lock_granted(world.clock.now_ms)
    assert world.next_pull_after_ms() == 1


def test_a_queue_without_a_subscription_retries_its_pull_after_a_second():
    """Source: testPullMessageWithSubscriptionDataIsNull."""
    world = started()
    known = world.member.subscriptions.pop(TOPIC)
    world.found([0])
    assert not world.seen
    assert not world.pulls()
    world.member.subscriptions[TOPIC] = known
    assert world.next_pull_after_ms() == 1_000


def test_a_pull_has_the_subscription_of_the_moment_it_is_sent():
    """This includes its version and its type."""
    world = started()
    world.member.subscriptions[TOPIC] = parse_subscription(
        TOPIC, "a > 1", expression_type="SQL92", sub_version=77
    )
    world.found([0])
    ask = world.asked()[-1]
    assert (ask.sub_version, ask.expression_type) == (77, "SQL92")


def test_the_first_pull_of_a_queue_reserves_no_room():
    """The size of its messages is not known yet: with 999 of 1,000 bytes in use,
    another pull is sent."""
    world = started(queues=2, cached_bytes_max=1_000)
    world.holds_work = True
    assert world.pulls(queue_of(0))
    world.found([0], size=999, call=world.pull(1))
    assert cached_bytes(world) == 999
    assert world.pulls(queue_of(1))


@pytest.mark.parametrize(("max_offset", "is_pulled"), [(1, True), (9, False)])
def test_a_pull_reserves_what_the_last_one_brought_if_the_queue_has_more(
    max_offset, is_pulled
):
    """With 2,000 of 3,000 bytes in use, no room is left when 1,000 are reserved."""
    world = started(queues=2, cached_bytes_max=3_000)
    world.holds_work = True
    world.found([0], size=1_000, call=world.pull(0), max_offset=max_offset)
    assert world.pulls(queue_of(0))
    world.found([0], size=1_000, call=world.pull(1))
    assert bool(world.pulls(queue_of(1))) is is_pulled
