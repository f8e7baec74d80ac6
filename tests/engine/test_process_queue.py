"""ProcessQueue does what Java's did, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.now import Now
from tests import golden_vectors

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
        "has_temp_message": queue.has_temp_message(),
        "msg_acc_cnt": queue.msg_acc_cnt,
        "cached_msg_min_offset": info.cached_msg_min_offset,
        "cached_msg_max_offset": info.cached_msg_max_offset,
        "cached_msg_count": info.cached_msg_count,
        "cached_msg_size_in_mib": info.cached_msg_size_in_mib,
        "transaction_msg_min_offset": info.transaction_msg_min_offset,
        "transaction_msg_max_offset": info.transaction_msg_max_offset,
        "transaction_msg_count": info.transaction_msg_count,
    }


class Replay:
    """Carries a trace's operations out.

    What is removed is the message that was put first, what is consumed again the one
    that was taken: as where the traces were made.
    """

    def __init__(self):
        self.queue: ProcessQueue[Cached] = ProcessQueue(0)
        self.known = {}

    def put(self, op):
        messages = [
            Cached(*each) for each in zip(op["offsets"], op["body_bytes"], strict=True)
        ]
        for each in messages:
            self.known.setdefault(each.queue_offset, each)
        return self.queue.put_message(
            messages, max_offset=op["last_message_max_offset"]
        )

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


@pytest.mark.parametrize("trace", TRACES, ids=lambda t: f"{t['rocketmq']}-{t['trace']}")
def test_it_does_what_java_did(trace):
    replay = Replay()
    # Messages that were replaced leave a difference, which 4.9.8 forgets when nothing
    # is left, and 4.6.0 keeps.
    kept_bytes = 0
    for number, op in enumerate(trace["ops"]):
        returned = getattr(replay, op["op"])(op)
        assert returned == op.get("returns"), (number, op)
        expected = dict(op["after"])
        if expected["msg_count"] == 0 and trace["rocketmq"] == "4.6.0":
            kept_bytes = expected["msg_size"]
        if kept_bytes:
            expected["msg_size"] -= kept_bytes
            expected["cached_msg_size_in_mib"] = expected["msg_size"] // 2**20
        assert state_of(replay.queue) == expected, (number, op)


def offsets_of(messages):
    return [each.queue_offset for each in messages]


def filled(*offsets, body_bytes=1):
    queue: ProcessQueue[Cached] = ProcessQueue(0)
    queue.put_message([Cached(each, body_bytes) for each in offsets])
    return queue


def test_lowest_left_is_what_is_committed():
    """S3-22 and 13.1: everything gone is the highest and one."""
    queue = filled(10, 11, 12)
    assert queue.remove_message([Cached(12)], 5) == 10
    assert queue.remove_message([Cached(10)], 6) == 11
    assert queue.remove_message([Cached(11)], 7) == 13
    assert queue.remove_message([Cached(11)], 8) is None
    assert queue.last_consume_ms == 8


def test_nothing_removed_is_the_lowest():
    assert filled(14).remove_message([], 0) == 14


def test_only_the_first_put_begins():
    """S4-19: `consuming` stays until a take finds nothing."""
    queue: ProcessQueue[Cached] = ProcessQueue(0)
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


def test_cached_count_and_size_as_upstream():
    """ProcessQueueTest#testCachedMessageCount and #testCachedMessageSize."""
    queue = filled(*range(100), body_bytes=123)
    assert (queue.msg_count, queue.msg_size_bytes) == (100, 12_300)
    queue.take_messages(10, 0)
    queue.commit()
    assert (queue.msg_count, queue.msg_size_bytes) == (90, 90 * 123)
    queue.remove_message([Cached(99, 123)], 0)
    assert (queue.msg_count, queue.msg_size_bytes) == (89, 89 * 123)


def test_process_queue_info_as_upstream():
    """ProcessQueueTest#testFillProcessQueueInfo."""
    queue = filled(*range(102_400), body_bytes=123)
    assert info_of(queue).cached_msg_size_in_mib == 12
    for taken, mib in ((10_000, 10), (10_000, 9), (80_000, 0)):
        queue.take_messages(taken, 0)
        queue.commit()
        assert info_of(queue).cached_msg_size_in_mib == mib


def test_span_does_not_count_what_was_taken():
    queue = filled(1, 2, 5, 9)
    assert queue.max_span() == 8
    queue.take_messages(2, 0)
    assert queue.max_span() == 4


def test_limits_are_exceeded_and_not_reached():
    queue: ProcessQueue[Cached] = ProcessQueue(1_000)
    assert not queue.is_pull_expired(121_000)
    assert queue.is_pull_expired(121_001)
    assert not queue.is_lock_expired(31_000)
    assert queue.is_lock_expired(31_001)


def test_clear_leaves_the_flags():
    queue = filled(1, 2)
    queue.take_messages(1, 0)
    queue.clear()
    assert (queue.msg_count, queue.msg_size_bytes, queue.max_span()) == (0, 0, 0)
    assert queue.commit() is None
    assert queue.locked
    assert queue.consuming


def test_times_are_told_as_epoch():
    queue: ProcessQueue[Cached] = ProcessQueue(1_000)
    queue.last_pull_ms = 3_000
    info = queue.fill_info(commit_offset=7, now=Now(5_000, 1_700_000_005_000))
    assert info.commit_offset == 7
    assert info.last_pull_timestamp == 1_700_000_003_000
    assert info.last_lock_timestamp == 1_700_000_001_000


@settings(max_examples=300)
@given(st.data())
def test_it_is_a_sorted_map_of_messages(data):
    """Any puts and removes, runs and overlaps: as one dict would."""
    queue: ProcessQueue[Cached] = ProcessQueue(0)
    model: dict[int, Cached] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            first = data.draw(st.integers(0, 30))
            steps = data.draw(st.lists(st.integers(1, 3), max_size=8))
            offsets = [first]
            for step in steps:
                offsets.append(offsets[-1] + step)
            messages = [Cached(each) for each in offsets]
            queue.put_message(messages)
            model.update((each.queue_offset, each) for each in messages)
        elif model:
            gone = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True))
            queue.remove_message([model.pop(each) for each in gone], 0)
        assert queue.msg_count == queue.msg_size_bytes == len(model)
        assert queue.max_span() == (max(model) - min(model) if model else 0)
        first = queue.first()
        assert (first is None) == (not model)
        assert first is None or first is model[min(model)]
        for offset in range(60):
            assert queue.contains(Cached(offset)) == (offset in model)
    assert [model[o] for o in sorted(model)] == queue.take_messages(1_000, 0)


@settings(max_examples=200)
@given(st.data())
def test_taking_returning_and_committing_keep_the_order(data):
    """Orderly: what is taken is always the lowest; nothing is lost or counted twice."""
    queue: ProcessQueue[Cached] = ProcessQueue(0)
    waiting: list[int] = []
    taken: list[int] = []
    at = 0
    for _ in range(data.draw(st.integers(1, 15))):
        match data.draw(st.integers(0, 4)):
            case 0:
                count = data.draw(st.integers(1, 5))
                queue.put_message([Cached(at + n) for n in range(count)])
                waiting += range(at, at + count)
                at += count
            case 1:
                count = data.draw(st.integers(1, 6))
                assert offsets_of(queue.take_messages(count, 0)) == waiting[:count]
                taken += waiting[:count]
                del waiting[:count]
            case 2:
                assert queue.commit() == (max(taken) + 1 if taken else None)
                taken = []
            case 3:
                queue.rollback()
                waiting, taken = sorted(waiting + taken), []
            case 4 if taken:
                back = data.draw(st.lists(st.sampled_from(taken), unique=True))
                queue.make_message_to_consume_again([Cached(each) for each in back])
                taken = [each for each in taken if each not in back]
                waiting = sorted(waiting + back)
        assert queue.msg_count == len(waiting) + len(taken)
        assert queue.has_temp_message() == bool(waiting)
