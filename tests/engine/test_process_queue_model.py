"""A ProcessQueue, which keeps runs of messages, behaves like Java's two TreeMaps.

Operations are called in any order. The model below is ProcessQueue.java (5.5.0) in its
shortest form, with dicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.clock import Now
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.model import MessageQueue
from tests.kit.doses import doses

QUEUE = MessageQueue("orders", "broker-a", 0)


@dataclass(eq=False)
class Cached:
    queue_offset: int
    body_bytes: int


class TreeMaps:
    """The two TreeMaps of Java's ProcessQueue, as dicts."""

    def __init__(self):
        self.cached, self.taken = {}, {}
        self.count = self.size = self.highest = 0
        self.consuming = False

    def put(self, messages):
        for each in messages:
            if each.queue_offset not in self.cached:
                self.count += 1
                self.size += each.body_bytes
                self.highest = each.queue_offset
            self.cached[each.queue_offset] = each
        begins = bool(self.cached) and not self.consuming
        self.consuming = self.consuming or begins
        return begins

    def remove(self, messages):
        if not self.cached:
            return None
        for each in messages:
            if self.cached.pop(each.queue_offset, None):
                self.count -= 1
                self.size -= each.body_bytes
        if not self.count:
            self.size = 0
        return min(self.cached) if self.cached else self.highest + 1

    def take(self, count):
        taken = [self.cached.pop(each) for each in sorted(self.cached)[:count]]
        self.taken.update((each.queue_offset, each) for each in taken)
        if not taken:
            self.consuming = False
        return taken

    def commit(self):
        if not self.taken:
            return None
        last = max(self.taken)
        self.count -= len(self.taken)
        self.size -= sum(each.body_bytes for each in self.taken.values())
        if not self.count:
            self.size = 0
        self.taken = {}
        return last + 1

    def consume_again(self, messages):
        for each in messages:
            self.taken.pop(each.queue_offset, None)
            self.cached[each.queue_offset] = each

    def rollback(self):
        self.cached.update(self.taken)
        self.taken = {}


class Both:
    """A ProcessQueue and its model, on which the same methods are called."""

    def __init__(self, data):
        self.data = data
        self.queue: ProcessQueue[Cached] = ProcessQueue(QUEUE, 0)
        self.model = TreeMaps()
        self.pulls = []
        self.next_offset = 0

    def message(self, offset):
        return Cached(offset, self.data.draw(st.integers(0, 9)))

    def pull(self):
        """Put messages as a pull does: ascending offsets above all earlier ones."""
        steps = self.data.draw(st.lists(st.sampled_from([1, 1, 1, 4]), max_size=8))
        offsets = [self.next_offset]
        for step in steps:
            offsets.append(offsets[-1] + step)
        self.next_offset = offsets[-1] + 1
        self._put([self.message(each) for each in offsets])

    def put_anything(self):
        """Put offsets in any order: repeated, descending, between others, or none."""
        offsets = self.data.draw(st.lists(st.integers(0, self.next_offset + 3)))
        self._put([self.message(each) for each in offsets])

    def _put(self, messages):
        assert self.queue.put_message(messages) == self.model.put(messages)
        self.pulls.append(messages)

    def remove_a_pull(self):
        """Remove the list of a pull itself, or a copy or a slice of it."""
        if self.pulls:
            pull = self.data.draw(st.sampled_from(self.pulls))
            start = self.data.draw(st.integers(0, len(pull)))
            stop = self.data.draw(st.integers(start, len(pull)))
            part = pull if self.data.draw(st.booleans()) else pull[start:stop]
            self._remove(part)

    def remove_anything(self):
        offsets = self.data.draw(st.lists(st.integers(0, self.next_offset + 3)))
        self._remove([self.message(each) for each in offsets])

    def _remove(self, messages):
        assert self.queue.remove_message(messages, 0) == self.model.remove(messages)

    def take(self):
        count = self.data.draw(st.integers(0, 9))
        assert self.queue.take_messages(count, 0) == self.model.take(count)

    def commit(self):
        assert self.queue.commit() == self.model.commit()

    def rollback(self):
        self.queue.rollback()
        self.model.rollback()

    def consume_again(self):
        taken = list(self.model.taken.values())
        some = self.data.draw(st.lists(st.sampled_from(taken))) if taken else []
        self.queue.make_message_to_consume_again(some)
        self.model.consume_again(some)

    def consume_strangers_again(self):
        offsets = self.data.draw(st.lists(st.integers(0, self.next_offset + 3)))
        some = [self.message(each) for each in offsets]
        self.queue.make_message_to_consume_again(some)
        self.model.consume_again(some)

    def check(self):
        queue, model = self.queue, self.model
        cached, taken = sorted(model.cached), sorted(model.taken)
        assert queue.msg_count == model.count
        assert queue.msg_size_bytes == model.size
        assert queue.consuming == model.consuming
        assert queue.max_span() == (cached[-1] - cached[0] if cached else 0)
        assert queue.first() is (model.cached[cached[0]] if cached else None)
        for offset in range(self.next_offset + 4):
            assert queue.contains(Cached(offset, 0)) == (offset in model.cached)
        info = queue.fill_info(commit_offset=0, now=Now(0, 0))
        assert info.cached_msg_count == len(cached)
        assert info.cached_msg_min_offset == (cached[0] if cached else 0)
        assert info.cached_msg_max_offset == (cached[-1] if cached else 0)
        assert info.transaction_msg_count == len(taken)
        assert info.transaction_msg_min_offset == (taken[0] if taken else 0)
        assert info.transaction_msg_max_offset == (taken[-1] if taken else 0)


CONCURRENT = (
    Both.pull,
    Both.pull,
    Both.put_anything,
    Both.remove_a_pull,
    Both.remove_a_pull,
    Both.remove_anything,
)
ORDERLY = (
    Both.pull,
    Both.take,
    Both.take,
    Both.commit,
    Both.rollback,
    Both.consume_again,
    Both.consume_strangers_again,
    Both.put_anything,
)


def follow(data, operations):
    both = Both(data)
    for _ in range(data.draw(st.integers(1, 15))):
        data.draw(st.sampled_from(operations))(both)
        both.check()
    # The remaining messages are taken in order; each is the object that was put last.
    rest = [both.model.cached[each] for each in sorted(both.model.cached)]
    assert both.queue.take_messages(1_000, 0) == rest


@settings(max_examples=doses(3))
@given(st.data())
def test_concurrent_use_is_as_with_tree_maps(data):
    follow(data, CONCURRENT)


@settings(max_examples=doses(3))
@given(st.data())
def test_orderly_use_is_as_with_tree_maps(data):
    follow(data, ORDERLY)


@settings(max_examples=doses(3))
@given(st.data())
def test_any_use_is_as_with_tree_maps(data):
    follow(data, CONCURRENT + ORDERLY)


@settings(max_examples=doses(2))
@given(st.data())
def test_the_commit_offset_never_passes_a_cached_message(data):
    """The commit offset is at most the lowest cached offset, and never decreases."""
    both, committed = Both(data), 0
    for _ in range(data.draw(st.integers(1, 15))):
        data.draw(st.sampled_from((Both.pull, Both.remove_a_pull)))(both)
        found = both.queue.remove_message([], 0)
        if found is not None:
            assert committed <= found <= min(both.model.cached)
            committed = found


@settings(max_examples=doses(2))
@given(st.data())
def test_counts_and_sizes_are_of_what_is_cached_or_taken(data):
    """If no offset is put twice, counts and sizes are those of the cached messages."""
    operations = (
        Both.pull,
        Both.remove_a_pull,
        Both.take,
        Both.commit,
        Both.rollback,
        Both.consume_again,
    )
    both = Both(data)
    for _ in range(data.draw(st.integers(1, 15))):
        data.draw(st.sampled_from(operations))(both)
        held = [*both.model.cached.values(), *both.model.taken.values()]
        assert both.queue.msg_count == len(held)
        assert both.queue.msg_size_bytes == sum(each.body_bytes for each in held)
