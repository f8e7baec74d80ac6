"""Orderly consumption: messages in the order of their queue, under its lock."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.listener import ConsumeOrderlyStatus, LeaveRest
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.engine.rebalance import HANDOVER_LOCKED_MS
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    RETRY,
    START_MS,
    TOPIC,
    deliveries,
    failing,
    no_answer,
    queue_of,
    refusal,
    started,
    stored,
)

SUCCESS = ConsumeOrderlyStatus.SUCCESS
COMMIT = ConsumeOrderlyStatus.COMMIT
ROLLBACK = ConsumeOrderlyStatus.ROLLBACK
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def orderly(act=lambda *_: SUCCESS, **options):
    return started(orderly=True, act=act, **options)


def script(*results, **context_settings):
    """Return a listener that returns these results in turn, and then SUCCESS."""
    left = list(results)

    def act(_, context):
        for name, value in context_settings.items():
            setattr(context, name, value)
        return left.pop(0) if left else SUCCESS

    return act


def test_messages_come_in_their_order_one_call_at_a_time():
    """Source: testPullMessage_SuccessWithOrderlyService."""
    world = orderly()
    world.found(range(40))
    world.found(range(40, 80))
    assert world.offsets_seen() == list(range(80))
    assert all(len(offsets) == 1 for _, offsets in world.seen)
    assert world.offset() == 80
    assert world.process_queue().msg_count == 0


def test_a_queue_that_is_being_consumed_is_not_begun_again():
    """There is one request at a time; the next one takes the messages that arrived
    meanwhile."""
    world = orderly()
    world.holds_work = True
    world.found([0, 1])
    world.found([2, 3])
    world.found([4])
    assert len(world.workers.requests) == 1
    world.work()
    assert world.offsets_seen() == [0, 1, 2, 3, 4]


def test_batches_are_as_large_as_set():
    world = orderly(consume_message_batch_max_size=3)
    world.found(range(7))
    assert [offsets for _, offsets in world.seen] == [[0, 1, 2], [3, 4, 5], [6]]


def test_two_queues_are_consumed_side_by_side():
    """Only messages of the same queue have an order."""
    world = orderly(queues=2)
    world.holds_work = True
    world.found([0, 1], call=world.pull(0))
    world.found([0, 1], call=world.pull(1))
    assert len(world.workers.requests) == 2


@pytest.mark.parametrize(
    "act",
    [
        lambda *_: SUSPEND,
        lambda *_: False,
        lambda *_: 1 / 0,
    ],
    ids=["suspend", "false", "raises"],
)
def test_a_message_that_failed_comes_again_after_a_second_before_those_behind_it(act):
    """The queue is suspended for 1,000 ms."""
    failures: list[int] = []

    def first_two(messages, context):
        if messages[0].queue_offset == 1 and len(failures) < 2:
            failures.append(world.elapsed_ms)
            return act(messages, context)
        return SUCCESS

    world = orderly()
    world.act = first_two
    world.found([0, 1, 2])
    assert world.offset() == 1
    assert world.process_queue().msg_count == 2
    world.found([3])
    world.run(999)
    assert world.offsets_seen() == [0, 1]
    world.run(1)
    assert world.offsets_seen() == [0, 1, 1]
    world.run(1_000)
    assert world.offsets_seen() == [0, 1, 1, 1, 2, 3]
    assert failures == [0, 1_000]
    assert world.offset() == 4


@pytest.mark.parametrize(
    ("asked_ms", "delay_ms"),
    [(None, 1_000), (0, 10), (10, 10), (5_000, 5_000), (99_000, 30_000)],
)
def test_a_queue_is_suspended_for_as_long_as_the_context_or_the_setting_says(
    asked_ms, delay_ms
):
    """The time is limited to the range of 10 to 30,000 ms."""
    act = script(SUSPEND, suspend_current_queue_time_ms=asked_ms)
    world = orderly(act)
    world.found([0])
    world.run(delay_ms - 1)
    assert world.offsets_seen() == [0]
    world.run(1)
    assert world.offsets_seen() == [0, 0]


@pytest.mark.parametrize("status", [COMMIT, ROLLBACK])
def test_commit_and_rollback_mean_success_with_auto_commit(status):
    """A warning is logged."""
    world = orderly(lambda *_: status)
    world.found([0, 1])
    assert world.offsets_seen() == [0, 1]
    assert world.offset() == 2


def test_without_auto_commit_success_commits_nothing_and_commit_everything_taken():
    act = script(SUCCESS, SUCCESS, COMMIT, SUCCESS, auto_commit=False)
    world = orderly(act)
    world.found(range(4))
    assert world.offset() == 3
    assert world.process_queue().msg_count == 1


def test_without_auto_commit_a_rollback_brings_back_all_messages_not_committed():
    act = script(SUCCESS, COMMIT, SUCCESS, ROLLBACK, auto_commit=False)
    world = orderly(act)
    world.found(range(4))
    assert world.offsets_seen() == [0, 1, 2, 3]
    assert world.offset() == 2
    world.run(999)
    assert world.offsets_seen() == [0, 1, 2, 3]
    world.run(1)
    assert world.offsets_seen() == [0, 1, 2, 3, 2, 3]
    assert world.process_queue().msg_count == 2


def test_without_auto_commit_a_suspend_brings_back_its_batch_only():
    """Messages that succeeded before it are not consumed again."""
    act = script(SUCCESS, SUSPEND, COMMIT, auto_commit=False)
    world = orderly(act)
    world.found([0, 1])
    assert world.offset() is None
    world.run(1_000)
    assert world.offsets_seen() == [0, 1, 1]
    assert world.offset() == 2


def test_a_listener_that_never_commits_stops_the_pulls():
    """As in Java, the queue is not pulled while more than a thousand of its messages
    are cached."""
    world = orderly(script(*[SUCCESS] * 3_000, auto_commit=False))
    world.found(range(1_001))
    assert world.process_queue().msg_count == 1_001
    world.run(60_000)
    assert not world.pulls()


# Giving messages up


def retries(world):
    return [call.args["message"] for call in world.network.of("send_retry")]


def test_without_max_reconsume_times_a_message_is_tried_without_end():
    """A limit of -1 is sent as 2^31-1 in requests."""
    world = orderly(lambda *_: SUSPEND)
    world.found([0, 1])
    world.run(100_000)
    assert world.offsets_seen() == [0] * 101
    assert not retries(world)


def test_after_its_tries_a_message_is_a_dead_letter_and_the_queue_goes_on():
    """The listener gets the message exactly 1 + N times. Then the member sends it as a
    producer would, never by CONSUMER_SEND_MSG_BACK (36), with a count that makes it a
    dead letter in brokers of all versions."""

    def act(messages, _):
        return messages[0].queue_offset != 1

    world = orderly(act, max_reconsume_times=3)
    world.found([0, 1, 2], body=b"hello", KEYS="k")
    world.run(3_000)
    assert world.offsets_seen() == [0, 1, 1, 1, 1, 2]
    (retry,) = retries(world)
    assert (retry.group, retry.topic, retry.body) == ("g", RETRY, b"hello")
    assert retry.properties == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F00000000000003E8",
        "RETRY_TOPIC": TOPIC,
        "RECONSUME_TIME": "4",
        "MAX_RECONSUME_TIMES": "3",
        "DELAY": "6",
    }
    assert (retry.reconsume_times, retry.max_reconsume_times) == (4, 3)
    assert not world.network.of("send_back")
    assert world.offset() == 3


def test_a_message_that_no_broker_takes_stays_and_holds_its_queue():
    """The listener gets the message repeatedly until a broker accepts it."""
    world = orderly(lambda *_: SUSPEND, max_reconsume_times=0)
    world.network.fail["send_retry"] = no_answer()
    world.found([0])
    world.run(5_000)
    assert world.offsets_seen() == [0] * 6
    assert world.offset() is None
    world.network.fail.clear()
    world.run(1_000)
    assert world.offset() == 1


def test_a_batch_comes_again_as_a_whole_when_one_of_its_messages_is_to_be_retried():
    """As in Java, messages of the batch that were given up are given up again."""
    world = orderly(
        lambda *_: SUSPEND, max_reconsume_times=1, consume_message_batch_max_size=2
    )
    body = stored(queue_of(), 0, times=1) + stored(queue_of(), 1)
    world.answer(PullStatus.FOUND, 2, body=body, max_offset=2)
    assert [each.reconsume_times for each in retries(world)] == [2]
    world.run(1_000)
    assert [offsets for _, offsets in world.seen] == [[0, 1], [0, 1]]
    assert [each.reconsume_times for each in retries(world)] == [2, 2, 2]
    assert world.offset() == 2


# Locks


def test_locks_are_renewed_after_1_s_and_then_each_20_s():
    """The age of the lock counts from the last renewal."""
    world = orderly()
    world.run(60_000)
    times = [call.at_ms - 1_000_000 for call in world.network.of("lock")]
    assert times == [0, 1_000, 21_000, 41_000]
    assert world.process_queue().last_lock_ms == 1_041_000


def test_a_lock_that_is_30_s_old_is_not_trusted():
    """The broker does not answer renewals, which are repeated every 3 s."""
    world = orderly()
    world.network.fail["lock"] = no_answer()
    world.run(30_000)
    world.found([0])
    assert world.offsets_seen() == [0]
    world.run(1)
    world.found([1])
    assert world.offsets_seen() == [0]
    world.run(10_000)
    assert world.offsets_seen() == [0]
    world.network.fail.clear()
    world.run(3_200)
    assert world.offsets_seen() == [0, 1]


def test_a_lock_lost_to_another_member_ends_consumption_between_two_calls():
    """Messages that the listener has not got go back to the queue."""
    world = orderly()

    def act(*_):
        world.process_queue().lock_lost()
        world.network.locked_by_others.add(queue_of())
        return SUCCESS

    world.act = act
    world.found([0, 1, 2])
    assert world.offsets_seen() == [0]
    assert world.process_queue().msg_count == 2
    assert world.offset() == 1
    world.run(20_000)
    assert world.offsets_seen() == [0]
    world.act = lambda *_: SUCCESS
    world.network.locked_by_others.clear()
    world.run(20_000)
    assert world.offsets_seen() == [0, 1, 2]


def test_locks_that_are_renewed_each_20_s_are_trusted_for_as_long_as_that_takes():
    """In five minutes with a message each second and renewals that are answered after
    half a second, the lock is never older than 21 s."""
    world = started(orderly=True)
    for offset in range(300):  # one message each second
        world.network.hold.add("lock")
        world.run(500)
        for call in world.network.of("lock"):
            if call.is_open:
                call.answer(set(call.args["queues"]))
        world.network.hold.clear()
        world.run(500)
        ages_ms = [
            world.clock.now_ms - each.last_lock_ms
            for each in world.member.process_queues.values()
        ]
        assert max(ages_ms) <= 21_000
        world.found([offset], call=world.pull(0))
        assert world.offset(0) == offset + 1, "it was consumed at once"
    renewals = [call.at_ms - START_MS for call in world.network.of("lock")]
    assert renewals[1:4] == [1_000, 21_000, 41_000]
    assert len(renewals) == 16


def test_a_lock_whose_renewal_is_refused_is_lost():
    """A lock whose renewal is not answered is not lost."""
    world = orderly()
    world.network.fail["lock"] = refusal()
    world.run(1_000)
    assert world.process_queue().locked
    world.network.fail.clear()
    world.network.locked_by_others.add(queue_of())
    world.run(20_000)
    assert not world.process_queue().locked


def test_broadcasting_needs_no_lock():
    """It is so in 5.3.2; in 4.6 such a member never pulls."""
    world = orderly(message_model=BROADCASTING)
    world.found([0, 1])
    world.run(60_000)
    world.found([2])
    assert world.offsets_seen() == [0, 1, 2]
    assert not world.network.of("lock")


def test_a_message_that_failed_comes_again_also_when_broadcasting():
    """It is retried in its place in the queue, and needs no retry topic."""
    world = orderly(script(SUSPEND), message_model=BROADCASTING)
    world.found([0])
    world.run(1_000)
    assert world.offsets_seen() == [0, 0]


# Losing the queue


def test_a_result_after_a_drop_commits_nothing():
    world = orderly()
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000 + HANDOVER_LOCKED_MS)
    world.settle()
    world.run(30_000)
    assert not world.network.of("update_offset")
    assert world.offset() is None


def test_a_queue_dropped_between_two_calls_gets_no_further_one():
    world = orderly()

    def act(*_):
        world.process_queue().drop("by the test")
        return SUCCESS

    world.act = act
    world.found([0, 1, 2])
    assert world.offsets_seen() == [0]


def test_the_next_process_queue_waits_for_the_work_of_the_one_before():
    """The queue is moved to another offset while a listener has its messages."""
    world = orderly()
    world.holds_work = True
    world.found([0, 1])
    (first,) = world.workers.requests
    world.engine.move({queue_of(): 0})
    world.run(1_000)
    world.found([0, 1], call=world.pulls()[-1])
    assert world.workers.requests == [first]
    world.work()
    assert world.offsets_seen() == [0, 1]
    assert world.offset() == 2


def test_a_queue_that_was_moved_is_consumed_once_its_old_work_has_ended():
    world = orderly()
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.engine.move({queue_of(): 0})
    world.run(1_000)
    world.found([0, 1], call=world.pulls()[-1])
    assert world.workers.requests == []
    world.settle()
    world.work()
    assert world.offsets_seen() == [0, 1, 0, 1]
    assert world.offset() == 2


def test_a_listener_that_raises_leave_rest_has_consumed_as_many_messages_as_it_says():
    """The other messages go back to their place. There is no such exception in Java."""

    def act(messages, _):
        raise LeaveRest(1)

    world = orderly(act, consume_message_batch_max_size=4)
    world.found(range(8))
    assert world.offset() == 1
    assert world.process_queue().msg_count == 7
    world.network.members = [ME]
    world.run(5_000)
    assert [offsets for _, offsets in world.seen] == [[0, 1, 2, 3]]


def test_pulls_go_on_while_a_queue_is_suspended():
    world = orderly(script(SUSPEND))
    world.found([0])
    world.answer(PullStatus.NO_NEW_MSG, 1)
    assert world.pulls()
    assert world.offset() is None


@pytest.mark.parametrize("status", [SUCCESS, SUSPEND])
def test_without_auto_commit_nothing_is_committed_that_the_listener_does_not_commit(
    status,
):
    """This is also true when the batch is given up and not consumed again."""

    def act(_, context):
        context.auto_commit = False
        return status

    world = started(orderly=True, act=act, max_reconsume_times=0)
    world.found([0, 1])
    world.run(5_000)
    assert world.offsets_seen()
    assert world.offset() is None
    assert world.process_queue().msg_count == 2


@pytest.mark.parametrize(
    ("locked", "age_ms", "expected"),
    [(True, 30_000, [0, 1, 2]), (True, 30_001, [0]), (False, 0, [0])],
)
def test_no_message_is_consumed_after_the_lock_was_lost_or_became_stale(
    locked, age_ms, expected
):
    """This holds within the messages that a thread has taken at once."""

    def act(messages, _):
        if messages[0].queue_offset == 0:
            world.clock.advance(1)
            process_queue = world.process_queue()
            process_queue.locked = locked
            process_queue.last_lock_ms = world.clock.now_ms - age_ms
            world.network.hold.add("lock")

    world = started(orderly=True, act=act)
    world.found([0, 1, 2])
    assert world.offsets_seen() == expected
    assert world.offset() == len(expected)


def test_the_lock_of_a_dropped_queue_is_not_renewed():
    """So its next owner waits at most as long as the broker keeps the lock."""
    world = started(orderly=True, queues=2)
    world.process_queue(1).drop("by the test")
    world.network.calls.clear()
    world.run(1_000)
    assert [call.args["queues"] for call in world.network.of("lock")] == [[queue_of(0)]]


def test_a_lock_that_was_not_asked_for_is_not_believed():
    world = started(orderly=True, queues=2)
    asked = world.process_queue(1)
    world.network.hold.add("lock")
    world.process_queue(0).drop("by the test")
    world.run(1_000)
    (renewal,) = [call for call in world.network.of("lock") if call.is_open]
    other: ProcessQueue[Any] = ProcessQueue(
        queue_of(0), world.clock.now_ms, locked=False
    )
    world.member.process_queues[queue_of(0)] = other
    asked.lock_lost()
    renewal.answer({queue_of(0), queue_of(1)})
    assert (other.locked, asked.locked) == (False, True)


def test_no_message_is_handed_out_under_a_stale_lock():
    world = started(orderly=True)
    world.holds_work = True
    world.process_queue().last_lock_ms -= 30_001
    world.found([0])
    assert world.workers.requests == []


def test_a_suspended_queue_is_not_begun_again_while_its_member_closes():
    world = started(orderly=True, queues=2, act=lambda *_: SUSPEND)
    world.found([0], call=world.pull(0))
    world.holds_work = True
    world.found([0], call=world.pull(1))
    world.close()
    world.run(3_000)
    assert [each.message_queue for each in world.workers.requests] == [queue_of(1)]


def test_a_renewed_lock_is_as_old_as_the_renewal_that_was_asked_for():
    world = started(orderly=True)
    world.network.hold.add("lock")
    world.run(1_000)
    asked_ms = world.clock.now_ms
    world.run(700)
    world.network.of("lock")[-1].answer({queue_of()})
    assert world.process_queue().last_lock_ms == asked_ms


# The size of requests, and the counts


@pytest.mark.parametrize(
    ("batch_size", "taken"), [(1, 128), (3, 126), (128, 128), (129, 129), (200, 200)]
)
def test_a_thread_takes_whole_batches_about_128_messages_at_once(batch_size, taken):
    world = orderly(consume_message_batch_max_size=batch_size)
    world.holds_work = True
    world.found(range(300))
    (request,) = world.workers.requests
    assert len(request.messages) == taken


def test_a_listener_of_one_message_gets_each_message_whatever_the_batch_size():
    world = orderly(one_message=True, consume_message_batch_max_size=4)
    world.found(range(3))
    assert [offsets for _, offsets in world.seen] == [[0], [1], [2]]
    assert world.offset() == 3


def test_consumed_and_failed_messages_are_counted_with_the_time_of_the_listener():
    """A batch that the listener itself commits counts as consumed, too."""

    def act(messages, context):
        world.clock.advance(5)
        context.auto_commit = messages[0].queue_offset < 4
        if messages[0].queue_offset == 2 and not failures:
            failures.append(world.elapsed_ms)
            return SUSPEND
        return SUCCESS if context.auto_commit else COMMIT

    failures: list[int] = []
    world = orderly(act, consume_message_batch_max_size=2)
    stats = world.member.stats.of(TOPIC)
    world.found(range(6))
    assert (stats.consume_ok, stats.consume_failed, stats.consume_rt_ms) == (2, 2, 10)
    world.run(1_010)
    assert (stats.consume_ok, stats.consume_failed, stats.consume_rt_ms) == (6, 2, 20)
    assert world.offset() == 6


# Reports to on_failed


def test_on_failed_is_called_with_messages_of_a_batch_that_brokers_refused_to_take():
    failed: list[object] = []
    world = orderly(
        lambda *_: SUSPEND,
        max_reconsume_times=0,
        consume_message_batch_max_size=2,
        on_failed=failed.append,
    )
    world.network.hold.add("send_retry")
    world.found([0, 1])
    error = no_answer()
    world.network.of("send_retry")[0].answer(error)
    world.network.of("send_retry")[1].answer(None)
    assert deliveries(failed) == [
        (0, "RETRY_HERE", 1, 0, error),
        (1, "DEAD_LETTER", None, None, None),
    ]
    assert world.offset() is None


def test_on_failed_is_called_for_each_retry_until_the_message_is_a_dead_letter():
    failed: list[object] = []
    world = orderly(lambda *_: SUSPEND, max_reconsume_times=2, on_failed=failed.append)
    world.found([0])
    world.run(2_000)
    assert deliveries(failed) == [
        (0, "RETRY_HERE", 1, 2, None),
        (0, "RETRY_HERE", 2, 2, None),
        (0, "DEAD_LETTER", None, None, None),
    ]
    assert world.offset() == 1


@pytest.mark.parametrize("ending", ["closing", "dropped"])
def test_on_failed_says_that_a_failed_message_is_left_to_the_next_owner(
    ending,
):
    failed: list[object] = []
    world = orderly(lambda *_: SUSPEND, on_failed=failed.append)
    world.holds_work = True
    world.found([0])
    world.consume()
    if ending == "closing":
        world.close()
    else:
        world.process_queue().drop("by the test")
    world.settle()
    assert deliveries(failed) == [(0, "QUEUE_LOST", None, None, None)]


def unreadable(offset):
    bad = bytearray(stored(queue_of(), offset))
    bad[4:8] = b"\x11\x22\x33\x44"  # an unknown magic
    return bytes(bad)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_an_unreadable_message_is_shown_again_when_on_undecodable_raises(batch_size):
    """The queue used to stand still, because its consumption ended with an
    AttributeError. Until on_undecodable returns, no later message is shown, counted as
    failed or given up."""
    failed: list[object] = []
    shown: list[int] = []

    def take_the_third_time(message):
        shown.append(world.elapsed_ms)
        if len(shown) < 3:
            raise ValueError("no place for it")

    world = orderly(
        max_reconsume_times=0,
        consume_message_batch_max_size=batch_size,
        on_undecodable=take_the_third_time,
        on_failed=failed.append,
    )
    body = unreadable(0) + stored(queue_of(), 1)
    world.answer(PullStatus.FOUND, 2, body=body, max_offset=2)
    world.run(1_999)
    assert world.offsets_seen() == []
    world.run(1)
    assert shown == [0, 1_000, 2_000]
    assert world.offsets_seen() == [1]
    assert world.offset() == 2
    assert (failed, retries(world)) == ([], [])


def test_a_failing_message_is_given_up_also_beside_an_unreadable_one():
    """The queue used to stand still, because its consumption ended with an
    AttributeError."""
    failed: list[object] = []
    shown: list[int] = []
    world = orderly(
        lambda *_: SUSPEND,
        max_reconsume_times=1,
        consume_message_batch_max_size=2,
        on_undecodable=lambda message: shown.append(message.queue_offset),
        on_failed=failed.append,
    )
    body = unreadable(0) + stored(queue_of(), 1)
    world.answer(PullStatus.FOUND, 2, body=body, max_offset=2)
    world.run(1_000)
    assert shown == [0, 0]
    assert world.offsets_seen() == [1, 1]
    assert deliveries(failed) == [
        (1, "RETRY_HERE", 1, 1, None),
        (1, "DEAD_LETTER", None, None, None),
    ]
    assert world.offset() == 2


def test_a_close_waits_for_an_orderly_message_that_is_being_given_up():
    world = orderly(lambda *_: SUSPEND, max_reconsume_times=0)
    world.network.hold.add("send_retry")
    world.found([0])
    world.close()
    world.run(1_000)
    assert world.closed == []
    world.network.of("send_retry")[0].answer(None)
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 1


# Repeated requests for a lock


def lock_times(world):
    return [call.at_ms - START_MS for call in world.network.of("lock")]


@pytest.mark.parametrize("refused", ["locked by another", "no answer"])
def test_a_missing_lock_is_asked_for_after_100_ms_and_then_each_3_s(refused):
    world = orderly()
    world.run(2_000)  # until after the first renewal
    if refused == "no answer":
        world.network.fail["lock"] = no_answer()
    else:
        world.network.locked_by_others.add(queue_of())
    world.process_queue().lock_lost()
    world.network.calls.clear()
    world.found([0])
    world.run(9_000)
    assert lock_times(world) == [2_100, 5_200, 8_300]
    world.network.fail.clear()
    world.network.locked_by_others.clear()
    world.run(409)
    assert lock_times(world)[3:] == [11_400]
    assert world.offsets_seen() == []
    world.run(1)
    assert world.offsets_seen() == [0]


def test_a_lock_that_is_lost_while_its_queue_is_consumed_is_asked_for_after_10_ms():
    def act(messages, _):
        if messages[0].queue_offset == 0:
            world.process_queue().lock_lost()
            world.network.calls.clear()

    world = orderly(act)
    world.run(2_000)
    world.found([0, 1])
    world.run(19)
    assert lock_times(world) == [2_010]
    assert world.offsets_seen() == [0]
    world.run(1)
    assert world.offsets_seen() == [0, 1]


@pytest.mark.parametrize("ending", ["closing", "dropped"])
def test_no_lock_is_asked_for_when_its_queue_was_lost_meanwhile(ending):
    world = orderly(queues=2)
    world.run(2_000)
    world.process_queue(0).lock_lost()
    world.found([0], call=world.pull(0))
    world.network.calls.clear()
    if ending == "closing":
        world.network.hold.add("update_offset")  # so that the close does not end
        world.found([0], call=world.pull(1))
        world.close()
    else:
        world.process_queue(0).drop("by the test")
    world.run(500)
    assert lock_times(world) == []


def test_a_moved_queue_begins_at_once_when_its_old_work_fails():
    """It does not wait for the second for which the old ProcessQueue would have been
    suspended."""
    world = orderly(lambda *_: SUSPEND)
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.engine.move({queue_of(): 0})
    world.run(1_000)
    world.found([0, 1], call=world.pulls()[-1])
    assert world.workers.requests == []
    world.settle()
    (request,) = world.workers.requests
    assert request.process_queue is world.process_queue()
    assert [each.queue_offset for each in request.messages] == [0, 1]


def test_a_warning_about_a_listener_names_the_queue(caplog):
    def act(messages, _):
        if messages[0].queue_offset == 0:
            return COMMIT
        raise ValueError("no")

    world = orderly(act)
    world.found([0, 1])
    assert caplog.messages == [
        "listener said COMMIT with auto_commit on orders@broker-a:0",
        "listener failed on orders@broker-a:0",
    ]


@pytest.mark.injects_exceptions
def test_a_queue_is_consumed_again_after_an_unexpected_error(caplog):
    """The queue used to stand still for ever when giving up a message raised an
    exception other than RmqError: its messages had been handed out, and were neither
    settled nor put back."""
    world = orderly(failing(1), max_reconsume_times=0)
    world.network.broken["send_retry"] = ZeroDivisionError("injected")
    world.found([0, 1, 2])
    assert world.offsets_seen() == [0, 1]
    assert "injected" in caplog.text
    world.network.broken.clear()
    world.run(61_000)
    world.found([1, 2], call=world.pulls()[-1])
    assert world.offsets_seen() == [0, 1, 1, 2]
    assert world.offset() == 3


@pytest.mark.injects_exceptions
def test_a_queue_is_consumed_again_after_its_messages_could_not_be_handed_out(caplog):
    """The queue used to count as being consumed, although no thread had its
    messages."""
    world = orderly()
    world.workers.error = ZeroDivisionError("injected")
    world.found([0, 1])
    assert "injected" in caplog.text
    world.workers.error = None
    world.run(61_000)
    world.found([0, 1])
    assert world.offsets_seen() == [0, 1]
    assert world.offset() == 2


@pytest.mark.injects_exceptions
def test_a_queue_is_consumed_again_after_an_outcome_that_cannot_be_settled(caplog):
    world = orderly()
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    (outcome,) = world.outcomes
    world.outcomes = []
    world.engine.consumed(outcome._replace(spent_ms="no number"))
    assert "a task failed unexpectedly" in caplog.text
    world.holds_work = False
    world.run(61_000)
    world.found([0, 1], call=world.pulls()[-1])
    assert world.offsets_seen() == [0, 1, 0, 1]
    assert world.offset() == 2
