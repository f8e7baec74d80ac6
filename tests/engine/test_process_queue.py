"""ProcessQueue has the same results as Java's, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rmqcli.clock import Now
from rmqcli.engine.process_queue import ProcessQueue, QueueState
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import ProcessQueueInfo
from tests import golden_vectors
from tests.kit.rows import each_row

QUEUE = MessageQueue("orders", "broker-a", 0)
TRACES = golden_vectors.load("process-queue")


@dataclass(eq=False)
class Cached:
    queue_offset: int
    body_bytes: int = 1


def info_of(queue):
    return queue.fill_info(commit_offset=0, now=Now(0, 0))


def state_of(queue):
    info = info_of(queue)
    return {
        "msg_count": queue.msg_count,
        "msg_size": queue.msg_size_bytes,
        "max_span": queue.max_span(),
        "cached_msg_min_offset": info.cached_msg_min_offset,
        "cached_msg_max_offset": info.cached_msg_max_offset,
        "cached_msg_count": info.cached_msg_count,
        "cached_msg_size_in_mib": info.cached_msg_size_in_mib,
        "transaction_msg_min_offset": info.transaction_msg_min_offset,
        "transaction_msg_max_offset": info.transaction_msg_max_offset,
        "transaction_msg_count": info.transaction_msg_count,
    }


class Replay:
    """Carries out the operations of a trace.

    As in the program that recorded the traces, `remove` passes the message that was put
    first, and `consume_again` the message that was taken.
    """

    def __init__(self):
        self.queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
        self.known = {}

    def put(self, op):
        messages = [
            Cached(*each) for each in zip(op["offsets"], op["body_bytes"], strict=True)
        ]
        for each in messages:
            self.known.setdefault(each.queue_offset, each)
        return self.queue.put_message(messages)

    def messages(self, op):
        return [self.known.get(each, Cached(each)) for each in op["offsets"]]

    def remove(self, op):
        found = self.queue.remove_message(self.messages(op), 0)
        for each in op["offsets"]:
            self.known.pop(each, None)
        return -1 if found is None else found

    def take(self, op):
        taken = self.queue.take_messages(op["batch"], 0)
        self.known.update((each.queue_offset, each) for each in taken)
        return [each.queue_offset for each in taken]

    def commit(self, _):
        found = self.queue.commit()
        return "raises NoSuchElementException" if found is None else found

    def rollback(self, _):
        return self.queue.rollback()

    def contains(self, op):
        return self.queue.contains(Cached(op["offset"]))

    def consume_again(self, op):
        return self.queue.make_message_to_consume_again(self.messages(op))


@each_row("trace", TRACES, ids=lambda t: f"{t['rocketmq']}-{t['trace']}")
def test_each_operation_gives_what_java_s_gave(trace):
    replay = Replay()
    # Replaced messages make the size wrong. 4.9.8 resets it when the queue is empty,
    # 4.6.0 keeps the difference.
    kept_bytes = 0
    for number, op in enumerate(trace["ops"]):
        returned = getattr(replay, op["op"])(op)
        assert returned == op.get("returns"), (number, op)
        expected = dict(op["after"])
        has_message, _ = expected.pop("has_temp_message"), expected.pop("msg_acc_cnt")
        assert (replay.queue.first() is not None) is has_message, (number, op)
        if expected["msg_count"] == 0 and trace["rocketmq"] == "4.6.0":
            kept_bytes = expected["msg_size"]
        if kept_bytes:
            expected["msg_size"] -= kept_bytes
            expected["cached_msg_size_in_mib"] = expected["msg_size"] // 2**20
        assert state_of(replay.queue) == expected, (number, op)


def offsets_of(messages):
    return [each.queue_offset for each in messages]


def filled(*offsets, body_bytes=1):
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    queue.put_message([Cached(each, body_bytes) for each in offsets])
    return queue


def test_the_lowest_cached_offset_is_committed():
    """When no message is left, it is the highest offset plus one."""
    queue = filled(10, 11, 12)
    assert queue.remove_message([Cached(12)], 5) == 10
    assert queue.remove_message([Cached(10)], 6) == 11
    assert queue.remove_message([Cached(11)], 7) == 13
    assert queue.remove_message([Cached(11)], 8) is None
    assert queue.last_consume_ms == 8


def test_removing_nothing_returns_the_lowest_cached_offset():
    assert filled(14).remove_message([], 0) == 14


def test_only_the_first_put_asks_for_consumption():
    """`consuming` stays set until a take finds no message."""
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    assert queue.put_message([]) is False
    assert queue.put_message([Cached(1)]) is True
    assert queue.put_message([Cached(2)]) is False
    assert offsets_of(queue.take_messages(5, 0)) == [1, 2]
    assert queue.put_message([Cached(3)]) is False
    assert queue.commit() == 3
    assert offsets_of(queue.take_messages(5, 0)) == [3]
    assert queue.commit() == 4
    assert queue.take_messages(5, 0) == []
    assert queue.put_message([Cached(4)]) is True


def test_cached_count_and_size_are_as_in_java():
    """Source: ProcessQueueTest#testCachedMessageCount and #testCachedMessageSize."""
    queue = filled(*range(100), body_bytes=123)
    assert (queue.msg_count, queue.msg_size_bytes) == (100, 12_300)
    queue.take_messages(10, 0)
    queue.commit()
    assert (queue.msg_count, queue.msg_size_bytes) == (90, 90 * 123)
    queue.remove_message([Cached(99, 123)], 0)
    assert (queue.msg_count, queue.msg_size_bytes) == (89, 89 * 123)


def test_process_queue_info_is_as_in_java():
    """Source: ProcessQueueTest#testFillProcessQueueInfo."""
    queue = filled(*range(102_400), body_bytes=123)
    assert info_of(queue).cached_msg_size_in_mib == 12
    for taken, mib in ((10_000, 10), (10_000, 9), (80_000, 0)):
        queue.take_messages(taken, 0)
        queue.commit()
        assert info_of(queue).cached_msg_size_in_mib == mib


def test_the_span_does_not_count_taken_messages():
    queue = filled(1, 2, 5, 9)
    assert queue.max_span() == 8
    queue.take_messages(2, 0)
    assert queue.max_span() == 4


def test_the_first_message_is_the_lowest_one_of_all_pulls():
    queue = filled(4, 5)
    for offsets in ((8, 9), (1, 2)):
        queue.put_message([Cached(each) for each in offsets])
    first = queue.first()
    assert first is not None
    assert first.queue_offset == 1
    queue.remove_message([Cached(1)], 0)
    assert queue.first() is not None
    assert offsets_of(queue.take_messages(10, 0)) == [2, 4, 5, 8, 9]
    assert queue.first() is None


def test_a_limit_is_passed_only_by_more_than_its_value():
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 1_000)
    assert not queue.is_pull_expired(121_000)
    assert queue.is_pull_expired(121_001)
    assert not queue.is_lock_expired(31_000)
    assert queue.is_lock_expired(31_001)


def test_times_of_the_running_info_are_epoch_ms():
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 1_000)
    queue.last_pull_ms = 3_000
    info = queue.fill_info(commit_offset=7, now=Now(5_000, 1_700_000_005_000))
    assert (info.commit_offset, info.try_unlock_times) == (7, 0)
    assert info.last_pull_timestamp == 1_700_000_003_000
    assert info.last_lock_timestamp == 1_700_000_001_000


def summary_of(queue):
    """Return the parts of a state that the expected tables list."""
    return (
        queue.msg_count,
        queue.msg_size_bytes,
        cached_of(queue),
        queue.max_span(),
    )


def cached_of(queue):
    return [offset for offset in range(20) if queue.contains(Cached(offset))]


def test_a_concurrent_trace_recorded_with_java_4_6_gives_the_same_states():
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    assert queue.remove_message([Cached(5)], 0) is None
    assert summary_of(queue) == (0, 0, [], 0)
    twelve = Cached(12, 30)
    put = [Cached(10, 10), Cached(11, 20), twelve]
    assert queue.put_message(put) is True
    assert summary_of(queue) == (3, 60, [10, 11, 12], 2)
    assert queue.put_message([Cached(12, 99), Cached(13, 5)]) is False
    assert summary_of(queue) == (4, 65, [10, 11, 12, 13], 3)
    assert queue.remove_message([put[1]], 0) == 10
    assert summary_of(queue) == (3, 45, [10, 12, 13], 3)
    assert queue.remove_message([put[0]], 0) == 12
    assert summary_of(queue) == (2, 35, [12, 13], 1)
    assert queue.remove_message([twelve], 0) == 13
    assert summary_of(queue) == (1, 5, [13], 0)
    assert queue.remove_message([Cached(13, 5)], 0) == 14
    assert summary_of(queue) == (0, 0, [], 0)
    assert queue.remove_message([Cached(13, 5)], 0) is None
    assert queue.put_message([]) is False
    assert queue.put_message([Cached(14)]) is False
    assert queue.remove_message([], 0) == 14
    assert summary_of(queue) == (1, 1, [14], 0)


def test_an_orderly_trace_recorded_with_java_4_6_gives_the_same_states():
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)

    def state():
        return queue.msg_count, cached_of(queue), info_of(queue).transaction_msg_count

    def take(count):
        return queue.take_messages(count, 0)

    assert queue.put_message([Cached(each) for each in (1, 2, 3, 4, 5)]) is True
    assert offsets_of(take(2)) == [1, 2]
    assert (*state(), queue.max_span()) == (5, [3, 4, 5], 2, 2)
    assert queue.put_message([Cached(6)]) is False
    assert queue.commit() == 3
    assert state() == (4, [3, 4, 5, 6], 0)
    queue.make_message_to_consume_again(take(2))
    assert state() == (4, [3, 4, 5, 6], 0)
    take(2)
    take(1)
    queue.rollback()
    assert state() == (4, [3, 4, 5, 6], 0)
    assert offsets_of(take(10)) == [3, 4, 5, 6]
    assert queue.first() is None
    assert take(1) == []
    assert state() == (4, [], 4)
    assert queue.commit() == 7
    assert queue.commit() is None
    assert state() == (0, [], 0)
    assert queue.put_message([Cached(7)]) is True


def test_contains_and_rollback_are_as_in_java():
    """Source: ProcessQueueTest#testContainsMessage and #testRollback."""
    queue = filled(0, 1, 2)
    assert queue.contains(Cached(2))
    assert not queue.contains(Cached(3))
    taken = queue.take_messages(3, 0)
    assert queue.first() is None
    assert not queue.contains(taken[0])
    queue.rollback()
    assert queue.first() is not None
    assert info_of(queue).transaction_msg_count == 0


@pytest.mark.parametrize("removed", [[1, 2], [0, 1], [2, 3], [1, 3], [3, 0], [1, 1]])
def test_parts_of_a_pull_are_removed_as_the_same_list_and_as_another_one(removed):
    messages = [Cached(each, 10 + each) for each in range(4)]
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    queue.put_message(messages)
    left = [each for each in range(4) if each not in removed]
    assert queue.remove_message([messages[each] for each in removed], 0) == left[0]
    assert cached_of(queue) == left
    assert queue.msg_size_bytes == sum(10 + each for each in left)
    assert queue.remove_message(messages, 0) == 4
    assert (queue.msg_count, queue.msg_size_bytes) == (0, 0)


def test_a_message_returned_twice_is_there_once():
    queue = filled(1, 2, 3)
    taken = queue.take_messages(2, 0)
    queue.make_message_to_consume_again([*taken, taken[0]])
    assert offsets_of(queue.take_messages(9, 0)) == [1, 2, 3]


def test_the_size_of_a_replaced_message_is_subtracted_as_given_back():
    """Java adds the size of the message that was put first and subtracts that of the
    message that it is given; in a real queue both are equal."""
    queue, other = filled(1, body_bytes=10), Cached(1, 12)
    queue.put_message([Cached(2, 100)])
    queue.put_message([other])
    assert queue.msg_size_bytes == 110
    assert queue.remove_message([other], 0) == 2
    assert queue.msg_size_bytes == 98


def test_a_negative_size_is_rounded_towards_zero_as_in_java():
    """A larger message that replaces a smaller one adds nothing when it is put, but its
    own size is subtracted when it is removed."""
    queue = filled(10, 11, body_bytes=5)
    queue.put_message([Cached(10, 100)])
    queue.remove_message([Cached(10, 100)], 0)
    assert queue.msg_size_bytes == -90
    assert info_of(queue).cached_msg_size_in_mib == 0
    queue.put_message([Cached(12, 1)])
    queue.put_message([Cached(12, 2**20 + 2**19)])
    queue.remove_message([Cached(12, 2**20 + 2**19)], 0)
    assert info_of(queue).cached_msg_size_in_mib == -1


def test_the_process_queue_info_has_epoch_times():
    """A ProcessQueue has monotonic times, but the wire format has epoch
    milliseconds."""
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 1_000)
    queue.put_message([Cached(n, 600_000) for n in range(5, 10)])
    queue.take_messages(2, 1_500)
    queue.try_unlock_times = 4
    queue.last_lock_ms, queue.last_pull_ms = 1_200, 1_300
    queue.lock_lost()
    queue.drop("by the test")
    info = queue.fill_info(commit_offset=5, now=Now(2_000, 1_700_000_002_000))
    assert info == ProcessQueueInfo(
        commit_offset=5,
        cached_msg_min_offset=7,
        cached_msg_max_offset=9,
        cached_msg_count=3,
        cached_msg_size_in_mib=2,
        transaction_msg_min_offset=5,
        transaction_msg_max_offset=6,
        transaction_msg_count=2,
        locked=False,
        try_unlock_times=4,
        last_lock_timestamp=1_700_000_001_200,
        droped=True,
        last_pull_timestamp=1_700_000_001_300,
        last_consume_timestamp=1_700_000_001_500,
    )


ALLOWED = {
    (QueueState.ACTIVE, QueueState.RELEASED),
    (QueueState.ACTIVE, QueueState.RESTING),
    (QueueState.ACTIVE, QueueState.DROPPED),
    (QueueState.RELEASED, QueueState.RESTING),
    (QueueState.RELEASED, QueueState.DROPPED),
    (QueueState.RESTING, QueueState.DROPPED),
    (QueueState.DROPPED, QueueState.RESTING),
}
TO = {
    QueueState.ACTIVE: [],
    QueueState.RELEASED: [QueueState.RELEASED],
    QueueState.RESTING: [QueueState.RESTING],
    QueueState.DROPPED: [QueueState.DROPPED],
}


@each_row("before", list(QueueState))
@each_row("after", list(QueueState))
def test_only_the_transitions_of_the_table_are_possible(before, after):
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    for state in TO[before]:
        queue.change(state, "by the test")
    if before is after or (before, after) in ALLOWED:
        queue.change(after, "by the test")
        assert queue.state is after
    else:
        with pytest.raises(RuntimeError, match=f"become {after.name}"):
            queue.change(after, "by the test")
        assert queue.state is before
    assert queue.dropped == (queue.state in (QueueState.RESTING, QueueState.DROPPED))
    queue.validate()


def test_the_list_of_transitions_goes_on_with_the_queue_s_next_process_queue():
    first: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    first.change(QueueState.RESTING, "moved to 7")
    first.drop("its new offset is stored")
    second: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0, story=first.story)
    second.drop("given up")
    assert list(second.story) == [
        "ACTIVE -> RESTING: moved to 7",
        "RESTING -> DROPPED: its new offset is stored",
        "ACTIVE -> DROPPED: given up",
    ]


def test_the_list_of_transitions_is_bounded():
    queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
    for number in range(200):
        queue.change(QueueState.RESTING, str(number))
        queue.drop(str(number))
    assert len(queue.story) == 100
    assert queue.story[-1] == "RESTING -> DROPPED: 199"
