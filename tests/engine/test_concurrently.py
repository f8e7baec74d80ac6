"""Messages consumed in any order: handed out, acknowledged, given up on."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.listener import ConsumeConcurrentlyStatus, LeaveRest
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    RETRY,
    TOPIC,
    no_answer,
    queue_of,
    refusal,
    started,
    stored,
)

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
MINUTE_MS = 60_000


def sent_back(world):
    return [call.args["message"] for call in world.network.of("send_back")]


def offsets_of(requests):
    return [each.commit_log_offset // 1_000 for each in requests]


def failing(*offsets):
    """A listener that fails for messages with these offsets."""

    def act(messages, _):
        return not any(each.queue_offset in offsets for each in messages)

    return act


# Handing out


@pytest.mark.parametrize(
    ("size", "calls"),
    [
        (1, [[0], [1], [2], [3], [4]]),
        (2, [[0, 1], [2, 3], [4]]),
        (5, [[0, 1, 2, 3, 4]]),
        (8, [[0, 1, 2, 3, 4]]),
    ],
)
def test_a_pull_is_shown_in_slices(size, calls):
    """S0-21, S1-05, S4-18, S4-21, testPullMessage_Success: one message by default."""
    world = started(consume_message_batch_max_size=size)
    world.found(range(5))
    assert [offsets for _, offsets in world.seen] == calls


def test_whatever_waits_for_a_thread_waits_there():
    """S0-31, T2, T3: nothing is refused or put back; thresholds hold pulls back."""
    world = started(consume_threads=1)
    world.holds_work = True
    for start in range(0, 960, 32):
        world.found(range(start, start + 32))
    assert len(world.workers.requests) == 30
    assert world.process_queue().msg_count == 960
    world.work()
    assert world.offsets_seen() == list(range(960))


def test_a_request_of_a_dropped_queue_is_not_shown():
    """S3-15, S4-20."""
    world = started()
    world.holds_work = True
    world.found([0, 1])
    world.process_queue().dropped = True
    world.work()
    assert not world.seen
    assert world.offset() is None


def test_a_queue_dropped_while_a_listener_works_ends_it():
    """S4-20: what was shown is void, the rest is not shown."""
    world = started()

    def act(messages, _):
        world.process_queue().dropped = True

    world.act = act
    world.found(range(5))
    assert world.offsets_seen() == [0]
    assert world.offset() is None


def test_the_context_has_the_queue_that_was_pulled():
    """S1-06, S3-16."""
    world = started(queues=2)
    world.found([4], call=world.pull(1))
    assert world.seen == [(queue_of(1), [4])]


def test_what_a_listener_does_to_its_list_is_its_own():
    """S0-24, S3-16: Java's list cannot be changed; here it is a copy."""

    def act(messages, _):
        messages.clear()

    world = started(act=act, consume_message_batch_max_size=8)
    world.found(range(5))
    assert world.offset() == 5
    assert world.process_queue().msg_count == 0


def test_a_retry_has_the_topic_it_was_sent_to():
    """S1-06: its own topic for the listener, the retry topic in the context."""
    topics = []

    def act(messages, context):
        topics.append((messages[0].topic, context.message_queue.topic))

    world = started(act=act, has_retry_route=True)
    retry_queue = queue_of(topic=RETRY)
    (call,) = world.pulls(retry_queue)
    body = stored(retry_queue, 0, times=1, RETRY_TOPIC=TOPIC)
    world.answer(PullStatus.FOUND, 1, call=call, body=body, max_offset=1)
    assert topics == [(TOPIC, RETRY)]


# What a listener says


@pytest.mark.parametrize("result", [SUCCESS, True, None])
def test_done_moves_the_offset_and_tells_the_broker_nothing_else(result):
    """S0-26, S0-28, S0-29, S1-07, S1-08, S3-17, S3-22, S3-23: success shows in the
    offset alone. None counts as done (Java takes null for a failure)."""
    world = started(act=lambda *_: result)
    world.found([0, 1])
    assert world.offset() == 2
    assert world.process_queue().msg_count == 0
    assert not sent_back(world)


def test_the_offset_is_that_of_the_lowest_that_is_left():
    """S0-29, S3-22, property (b): 10, 11, 12 as in the example of Java's lag."""
    world = started(act=failing(10))
    world.network.hold.add("send_back")
    world.found([10, 11, 12])
    assert world.offset() == 10
    world.network.of("send_back")[0].answer(None)
    assert world.offset() == 13


def raises(error):
    def act(*_):
        raise error

    return act


@pytest.mark.parametrize(
    "act",
    [
        lambda *_: LATER,
        lambda *_: False,
        lambda *_: 7,
        raises(ValueError("no")),
        raises(SystemExit(3)),
        raises(KeyboardInterrupt()),
        raises(MemoryError()),
    ],
    ids=["later", "false", "nonsense", "error", "exit", "interrupt", "memory"],
)
def test_anything_else_is_a_failure_and_sent_back(act):
    """S0-24, S0-26, S0-28, S1-25, S3-19, S3-21, A04: code 36, and only then gone."""
    world = started(act=act)
    world.found([3])
    (request,) = sent_back(world)
    assert (request.group, request.origin_topic) == ("g", TOPIC)
    assert request.commit_log_offset == 3_000
    assert request.origin_msg_id == "7F00000100002A9F0000000000000BB8"
    assert (request.broker_name, request.delay_level) == ("broker-a", 0)
    assert request.max_reconsume_times == 16
    assert world.offset() == 4
    assert world.process_queue().msg_count == 0


def test_none_is_a_failure_where_that_is_said():
    """S0-24: as in Java."""
    world = started(none_is_failure=True)
    world.found([0])
    assert offsets_of(sent_back(world)) == [0]


def test_a_listener_that_failed_does_not_cost_a_thread():
    """S1-24, S1-25: only one that blocks does; what failed leaves the cache."""
    world = started(act=failing(*range(64)))
    world.found(range(64))
    assert len(sent_back(world)) == 64
    assert world.process_queue().msg_count == 0
    world.found([64])
    assert world.offset() == 65


def test_a_listener_that_took_too_long_has_done_it_none_the_less():
    """S0-25: TIME_OUT is a label in Java; the outcome is the listener's."""
    world = started()

    def act(*_):
        world.clock.advance(16 * MINUTE_MS)
        return SUCCESS

    world.act = act
    world.found([0])
    assert world.offset() == 1
    assert not sent_back(world)


@pytest.mark.parametrize(
    ("ack_index", "failed"),
    [
        (None, []),
        (3, []),
        (99, []),
        (1, [2, 3]),
        (0, [1, 2, 3]),
        (-1, [0, 1, 2, 3]),
        (-9, [0, 1, 2, 3]),
    ],
)
def test_ack_index_says_how_much_of_a_batch_was_done(ack_index, failed):
    """S3-20, S3-21, T29: what is out of range is clamped, both ways."""

    def act(_, context):
        context.ack_index = ack_index
        return SUCCESS

    world = started(act=act, consume_message_batch_max_size=4)
    world.found(range(4))
    assert offsets_of(sent_back(world)) == failed
    assert world.offset() == 4
    assert world.member.stats.of(TOPIC).consume_failed == len(failed)
    assert world.member.stats.of(TOPIC).consume_ok == 4 - len(failed)


@pytest.mark.parametrize("level", [-1, 0, 5])
def test_the_delay_that_a_listener_wants_is_the_broker_s_to_give(level):
    """S3-19: of the context; -1 is the dead letters."""

    def act(_, context):
        context.delay_level_when_next_consume = level
        return LATER

    world = started(act=act, max_reconsume_times=3)
    world.found([0])
    (request,) = sent_back(world)
    assert (request.delay_level, request.max_reconsume_times) == (level, 3)


def test_broadcasting_forgets_what_failed():
    """S0-28, S3-18, S4-24."""
    world = started(act=failing(0, 1), message_model=BROADCASTING)
    world.found([0, 1])
    assert not sent_back(world)
    assert world.offset() == 2


def test_results_after_a_drop_are_void():
    """S0-27, S3-17, S3-23, T17, property (e): neither offset nor send-back."""
    world = started(act=failing(1))
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000)
    world.settle()
    world.run(30_000)
    assert not sent_back(world)
    assert not world.network.of("update_offset")


def test_a_send_back_that_ends_after_a_drop_commits_nothing():
    """Property (e)."""
    world = started(act=failing(0))
    world.network.hold.add("send_back")
    world.found([0])
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000)
    world.network.of("send_back")[0].answer(None)
    world.run(30_000)
    assert not world.network.of("update_offset")


# Sending back


def test_what_no_broker_takes_back_is_tried_here_again_after_5_s():
    """S1-08, S4-24, A04: it keeps the offset, and counts one try more."""
    times = []

    def act(messages, _):
        if messages[0].queue_offset == 1:
            times.append((world.elapsed_ms, messages[0].reconsume_times))
            return len(times) > 2
        return True

    world = started(act=act)
    world.network.fail |= {"send_back": refusal(), "send_retry": no_answer()}
    world.found([0, 1, 2])
    assert world.offset() == 1
    assert world.process_queue().msg_count == 1
    world.run(9_999)
    assert world.offset() == 1
    world.run(1)
    assert times == [(0, 0), (5_000, 1), (10_000, 2)]
    assert world.offset() == 3
    assert world.committed() in (None, 1)


def test_only_what_could_not_be_sent_back_is_tried_again():
    """S4-24: exactly those, in slices."""
    world = started(act=failing(1, 2), consume_message_batch_max_size=1)
    world.network.hold.add("send_back")
    world.network.fail["send_retry"] = refusal()
    world.found(range(4))
    first, second = world.network.of("send_back")
    first.answer(refusal())
    second.answer(None)
    world.network.hold.clear()
    assert world.offset() == 1
    world.seen.clear()
    world.run(5_000)
    assert world.offsets_seen() == [1]
    assert world.offset() == 4


def test_a_retry_here_ends_with_its_queue():
    """S4-20, T17: another member has it by then."""
    world = started(act=failing(0))
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.found([0])
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(20_000)
    assert world.offsets_seen() == [0]


@pytest.mark.parametrize(
    ("level", "times", "expected"), [(0, 0, 1), (3, 2, 3), (-1, 0, 17)]
)
def test_the_way_round_a_broker_that_refuses(level, times, expected):
    """S1-08, T20: as a producer, on a copy; -1 still means the dead letters, and the
    first id is not lost."""
    kept = []

    def act(messages, context):
        context.delay_level_when_next_consume = level
        kept.append(messages[0])
        return LATER

    world = started(act=act)
    world.network.fail["send_back"] = refusal()
    properties: dict[str, Any] = {"KEYS": "k", "TRAN_MSG": "true"}
    world.found([3], times=times, body=b"hello", **properties)
    (call,) = world.network.of("send_retry")
    retry = call.args["message"]
    assert (retry.group, retry.topic, retry.body) == ("g", RETRY, b"hello")
    assert retry.properties == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000BB8",
        "RETRY_TOPIC": TOPIC,
        "RECONSUME_TIME": str(expected),
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": str(3 + times),
    }
    assert (retry.reconsume_times, retry.max_reconsume_times) == (expected, 16)
    assert kept[0].properties == properties
    assert world.offset() == 4


def test_the_first_id_of_a_retry_stays():
    """T20."""
    world = started(act=failing(0))
    world.network.fail["send_back"] = refusal()
    world.found([0], ORIGIN_MESSAGE_ID="FIRST")
    (call,) = world.network.of("send_retry")
    assert call.args["message"].properties["ORIGIN_MESSAGE_ID"] == "FIRST"


def test_sending_back_holds_up_no_thread_and_no_other_message():
    """T21: Java's worker waits 5 s for it; here nobody does."""
    world = started(act=failing(0))
    world.network.hold.add("send_back")
    world.found([0])
    world.found([1, 2])
    assert world.offsets_seen() == [0, 1, 2]
    assert world.offset() == 0


# The sweep of what a listener has for too long


def with_a_stuck_listener(**options):
    """20 messages that were shown and of which no outcome comes."""
    world = started(consume_message_batch_max_size=32, **options)
    world.holds_work, world.hold_ms = True, 15_000
    world.found(range(20))
    world.consume()
    return world


def test_after_15_minutes_messages_are_sent_back_with_level_3():
    """S4-27: over 15 minutes, looked at each 15; at most 16 of a queue a sweep, and the
    offset is not touched (13.1: 20 expired, 16 sent, 4 left)."""
    world = with_a_stuck_listener()
    world.run(15 * MINUTE_MS)
    assert not sent_back(world)
    world.run(15 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == list(range(16))
    assert {each.delay_level for each in sent_back(world)} == {3}
    assert world.process_queue().msg_count == 4
    assert world.offset() is None
    world.run(15 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == list(range(20))


def test_what_was_swept_is_not_sent_back_again():
    """T10: its listener fails at last."""
    world = with_a_stuck_listener(act=lambda *_: LATER)
    world.run(30 * MINUTE_MS)
    assert len(sent_back(world)) == 16
    world.settle()
    assert offsets_of(sent_back(world)) == list(range(20))
    assert world.offset() == 20


def test_a_sweep_that_cannot_send_back_keeps_what_it_has():
    """S4-27: 16 tries, all of the first (13.1: 20 left)."""
    world = with_a_stuck_listener()
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.run(30 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == [0] * 16
    assert world.process_queue().msg_count == 20


def test_a_head_that_was_not_begun_ends_a_sweep_and_the_next_one_comes():
    """T9: in 4.6 that was the end of all sweeps."""
    world = started()
    world.holds_work, world.hold_ms = True, 15_000
    world.found([0, 1])
    world.run(45 * MINUTE_MS)
    assert not sent_back(world)
    world.consume()
    world.run(30 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == [0, 1]


def test_a_fresh_head_ends_a_sweep():
    """S4-27, testPopRequest: what is behind it stays, however old (13.1)."""
    world = with_a_stuck_listener()
    world.process_queue().first().consume_start_ms += 20 * MINUTE_MS
    world.run(30 * MINUTE_MS)
    assert not sent_back(world)
    assert world.process_queue().msg_count == 20


def test_a_queue_whose_work_is_slow_stays_ours():
    """A17: work in hand for 150 s, and no pull is lost meanwhile."""
    world = started(pull_threshold_for_queue=10)
    before = world.process_queue()
    world.holds_work = True
    world.found(range(20))
    world.run(150_000)
    assert world.process_queue() is before
    assert not before.dropped
    world.work()
    assert world.offsets_seen() == list(range(20))
    assert world.offset() == 20


# Threads that help, and a listener that leaves


def test_a_slow_request_is_shared():
    """S0-23, S1-25: one that blocks costs its thread and not the messages behind it."""
    world = started()
    world.holds_work = True
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)  # a thread took it, and does not come back
    taken = next(request.batches)
    world.workers.requests.clear()
    world.run(40)
    assert world.workers.shared == [request]
    world.work()
    assert taken.queue_offset == 0
    assert world.offsets_seen() == [1, 2, 3, 4]
    assert world.offset() == 0


def test_who_leaves_the_rest_has_done_what_it_says():
    """Ours: neither acknowledged nor sent back."""

    def act(messages, _):
        raise LeaveRest(2)

    world = started(act=act, consume_message_batch_max_size=4)
    world.found(range(8))
    assert world.offsets_seen() == [0, 1, 2, 3]
    assert world.offset() == 2
    assert not sent_back(world)
    world.network.members = [ME]
    world.close()
    world.run(100)
    assert world.closed == [None]
    assert world.committed() == 2
