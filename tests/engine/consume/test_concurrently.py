"""Concurrent consumption: messages are handed out, acknowledged and sent back."""

from __future__ import annotations

import pytest

from rmqcli.engine.consume.request import ConcurrentOutcome
from rmqcli.engine.listener import ConsumeConcurrentlyStatus, LeaveRest
from rmqcli.engine.rebalance import HANDOVER_MS
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    RETRY,
    TOPIC,
    failing,
    offsets_of,
    queue_of,
    sent_back,
    started,
    stored,
)

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
MINUTE_MS = 60_000


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
def test_a_listener_gets_the_messages_of_a_pull_in_batches(size, calls):
    """A batch has one message by default. Source: testPullMessage_Success."""
    world = started(consume_message_batch_max_size=size)
    world.found(range(5))
    assert [offsets for _, offsets in world.seen] == calls


def test_requests_that_wait_for_a_thread_are_never_refused_or_put_back():
    """Only the thresholds of the cache delay pulls."""
    world = started(consume_threads=1)
    world.holds_work = True
    for start in range(0, 960, 32):
        world.found(range(start, start + 32))
    assert len(world.workers.requests) == 30
    assert world.process_queue().msg_count == 960
    world.work()
    assert world.offsets_seen() == list(range(960))


def test_a_listener_gets_no_message_of_a_dropped_queue():
    world = started()
    world.holds_work = True
    world.found([0, 1])
    world.process_queue().drop("by the test")
    world.work()
    assert not world.seen
    assert world.offset() is None


def test_a_drop_while_a_listener_works_ends_the_request():
    """The result of the running call does not count, and the listener gets no further
    message of the request."""
    world = started()

    def act(messages, _):
        world.process_queue().drop("by the test")

    world.act = act
    world.found(range(5))
    assert world.offsets_seen() == [0]
    assert world.offset() is None


def test_the_context_has_the_queue_that_was_pulled():
    world = started(queues=2)
    world.found([4], call=world.pull(1))
    assert world.seen == [(queue_of(1), [4])]


def test_a_listener_may_change_the_list_of_messages_that_it_gets():
    """The list is a copy. In Java it cannot be changed."""

    def act(messages, _):
        messages.clear()

    world = started(act=act, consume_message_batch_max_size=8)
    world.found(range(5))
    assert world.offset() == 5
    assert world.process_queue().msg_count == 0


def test_a_retried_message_has_the_topic_to_which_it_was_first_sent():
    """Only the context of the call has the retry topic."""
    topics = []

    def act(messages, context):
        topics.append((messages[0].topic, context.message_queue.topic))

    world = started(act=act, has_retry_route=True)
    retry_queue = queue_of(topic=RETRY)
    (call,) = world.pulls(retry_queue)
    body = stored(retry_queue, 0, times=1, RETRY_TOPIC=TOPIC)
    world.answer(PullStatus.FOUND, 1, call=call, body=body, max_offset=1)
    assert topics == [(TOPIC, RETRY)]


# Results of a listener


@pytest.mark.parametrize("result", [SUCCESS, True, None])
def test_success_moves_the_offset_and_sends_nothing_else_to_the_broker(result):
    """Success is visible only in the offset. None means success, while in Java null is
    a failure."""
    world = started(act=lambda *_: result)
    world.found([0, 1])
    assert world.offset() == 2
    assert world.process_queue().msg_count == 0
    assert not sent_back(world)


def test_the_offset_is_that_of_the_lowest_message_that_is_not_consumed():
    """The offsets 10, 11 and 12 are the example in Java's documentation."""
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
def test_a_listener_that_returns_anything_else_has_failed_and_its_message_is_sent_back(
    act,
):
    """The request is CONSUMER_SEND_MSG_BACK (36). The message leaves the cache when the
    broker has confirmed that it has it."""
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


def test_a_listener_that_raises_ends_no_thread_and_leaves_nothing_cached():
    """A thread is occupied only while a listener blocks."""
    world = started(act=failing(*range(64)))
    world.found(range(64))
    assert len(sent_back(world)) == 64
    assert world.process_queue().msg_count == 0
    world.found([64])
    assert world.offset() == 65


def test_a_listener_that_took_longer_than_the_consume_timeout_still_succeeds():
    """TIME_OUT is only a label in Java; the listener's result counts."""
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
def test_ack_index_says_how_many_messages_of_a_batch_were_consumed(ack_index, failed):
    """An index outside the batch is clamped to the batch."""

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
def test_the_delay_level_of_the_context_is_sent_to_the_broker(level):
    """Level -1 means the dead-letter queue."""

    def act(_, context):
        context.delay_level_when_next_consume = level
        return LATER

    world = started(act=act, max_reconsume_times=3)
    world.found([0])
    (request,) = sent_back(world)
    assert (request.delay_level, request.max_reconsume_times) == (level, 3)


def test_a_message_that_failed_is_not_tried_again_when_broadcasting():
    world = started(act=failing(0, 1), message_model=BROADCASTING)
    world.found([0, 1])
    assert not sent_back(world)
    assert world.offset() == 2


def test_results_that_come_after_the_queue_was_dropped_have_no_effect():
    """No offset moves, and no message is sent back."""
    world = started(act=failing(1))
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000 + HANDOVER_MS)  # longer than the member waits for its listeners
    world.settle()
    world.run(30_000)
    assert not sent_back(world)
    assert not world.network.of("update_offset")


def test_a_send_back_that_ends_after_a_drop_commits_nothing():
    world = started(act=failing(0))
    world.network.hold.add("send_back")
    world.found([0])
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000 + HANDOVER_MS)
    world.network.of("send_back")[0].answer(None)
    world.run(30_000)
    assert not world.network.of("update_offset")


# Sharing of slow requests, and LeaveRest


def test_a_request_whose_listener_is_slow_is_shared_with_other_threads():
    """A call that blocks occupies its thread, but does not delay the messages after
    its own."""
    world = started()
    world.holds_work = True
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)  # a thread has taken the request, and blocks
    taken = next(request.batches)
    world.workers.requests.clear()
    world.run(39)
    assert world.workers.shared == []
    world.run(1)
    assert world.workers.shared == [request]
    world.work()
    assert taken.queue_offset == 0
    assert world.offsets_seen() == [1, 2, 3, 4]
    assert world.offset() == 0


def test_a_slow_request_is_shared_once_however_long_it_takes():
    """A second sharing would call more threads than there are batches to take."""
    world = started()
    world.holds_work = True
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)
    next(request.batches)
    world.run(40)
    assert world.workers.shared == [request]
    world.found(range(5, 10))  # so that there is something to check
    world.run(1_000)
    assert world.workers.shared == [request]


def test_requests_are_checked_every_20_ms_however_many_there_are():
    """A request is shared by the second check that finds its listener at work."""
    world = started()
    world.holds_work = True
    requests = []
    for offsets, ms in ((range(5), 21), (range(5, 10), 21), (range(10, 15), 17)):
        world.found(offsets)
        request = world.workers.requests[-1]
        request.begun.append(None)
        next(request.batches)
        requests.append(request)
        world.run(ms)
    assert world.workers.shared == requests[:1]
    world.run(1)
    assert world.workers.shared == requests[:2]
    world.run(19)
    assert world.workers.shared == requests[:2]
    world.run(1)
    assert world.workers.shared == requests


@pytest.mark.parametrize(("call_ms", "shared"), [(1, 0), (2, 1)])
def test_a_thread_whose_listener_takes_2_ms_shares_what_is_left_once(call_ms, shared):
    def act(*_):
        world.clock.now_ms += call_ms

    world = started(act=act)
    world.found(range(5))
    assert len(world.workers.shared) == shared
    assert world.offsets_seen() == [0, 1, 2, 3, 4]


def test_a_close_waits_for_both_threads_of_a_shared_request():
    world = started()
    world.holds_work = True
    world.found(range(4))
    (request,) = world.workers.requests
    world.workers.requests.clear()
    request.begun += [None, None]
    first, second = next(request.batches), next(request.batches)
    world.network.members = [ME]
    world.close(60_000)
    world.engine.consumed(ConcurrentOutcome(request, [first], [], 0))
    world.run(1_000)
    assert world.closed == []
    world.engine.consumed(ConcurrentOutcome(request, [second], [], 0))
    world.run(1_000)
    assert (world.closed, world.committed()) == ([None], 2)


def test_a_slow_request_is_not_shared_after_the_close_began():
    """The messages that its listener has not taken are left to other members."""
    world = started()
    world.holds_work = True
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)
    next(request.batches)
    world.close(60_000)
    world.run(1_000)
    assert world.workers.shared == []


def test_a_slow_request_is_not_shared_where_messages_are_consumed_in_turn():
    """Otherwise, of two threads, the one with the later message could finish first."""
    world = started(shares_slow_pulls=False)
    world.holds_work = True
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)
    next(request.batches)
    world.workers.requests.clear()
    world.run(1_000)
    assert world.workers.shared == []
    assert request.is_shared


def test_a_listener_that_raises_leave_rest_has_consumed_as_many_messages_as_it_says():
    """The other messages are neither acknowledged nor sent back. There is no such
    exception in Java."""

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


@pytest.mark.parametrize(("batch_size", "count"), [(1, 1), (4, 4), (4, 3)])
def test_a_single_batch_is_not_shared_however_long_it_takes(batch_size, count):
    """Another thread would find no batch that it could take."""
    world = started(consume_message_batch_max_size=batch_size)
    world.holds_work = True
    world.found(range(count))
    (request,) = world.workers.requests
    request.begun.append(None)
    next(request.batches)
    world.run(1_000)
    assert world.workers.shared == []


@pytest.mark.parametrize(
    ("batch_size", "is_shared"), [(1, False), (1, True), (2, True)]
)
def test_the_messages_of_a_failed_listener_are_counted_in_all(batch_size, is_shared):
    """They are counted over several pulls, and with or without sharing."""
    world = started(
        act=failing(1, 4),
        consume_message_batch_max_size=batch_size,
        shares_slow_pulls=is_shared,
    )
    world.found([0, 1, 2, 3])
    world.found([4, 5])
    stats = world.member.stats.of(TOPIC)
    failed = 2 * batch_size
    assert (stats.consume_ok, stats.consume_failed) == (6 - failed, failed)


@pytest.mark.injects_exceptions
def test_a_queue_is_consumed_again_after_an_outcome_that_cannot_be_settled(caplog):
    """The messages used to hold the offset for ever, and no listener got them again."""
    world = started()
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
