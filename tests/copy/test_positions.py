"""A group goes on at the first message of the copy that it has not consumed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.copy.log import StoredRun
from rmqcli.copy.positions import count_uncopied, map_positions

A, B, T = ("a", 0), ("b", 0), ("t", 0)


def run(key, offsets, to, at):
    return StoredRun(key[0], key[1], tuple(offsets), to[0], to[1], at)


def test_a_committed_offset_becomes_the_place_of_its_copy():
    runs = [run(A, range(10, 15), T, 3), run(A, range(15, 20), T, 8)]
    assert map_positions(runs, {A: 10}) == {T: 3}
    assert map_positions(runs, {A: 17}) == {T: 10}
    assert map_positions(runs, {A: 20}) == {T: 13}


def test_an_offset_of_a_message_that_was_not_copied_becomes_the_next_copy():
    runs = [run(A, (3, 7, 9), T, 0)]
    assert map_positions(runs, {A: 4}) == {T: 1}
    assert map_positions(runs, {A: 100}) == {T: 3}


def test_without_an_offset_nothing_is_skipped():
    assert map_positions([run(A, range(5), T, 40)], {A: None}) == {T: 40}
    assert map_positions([run(A, range(5), T, 40)], {}) == {T: 40}


def test_of_two_queues_in_one_the_first_unread_message_counts():
    runs = [run(A, range(3), T, 0), run(B, range(3), T, 3), run(A, (3,), T, 6)]
    assert map_positions(runs, {A: 3, B: 1}) == {T: 4}
    assert map_positions(runs, {A: 4, B: 3}) == {T: 7}


def test_messages_of_others_between_copies_are_not_skipped():
    """The group went on behind what producers had sent to the target meanwhile."""
    runs = [run(A, range(5), T, 0), run(A, range(5, 8), T, 7)]
    assert map_positions(runs, {A: 3}) == {T: 3}
    assert map_positions(runs, {A: 6}) == {T: 5}
    assert map_positions(runs, {A: 8}) == {T: 5}


def test_messages_that_an_earlier_run_may_have_stored_are_skipped():
    """Where three offsets got no answer, up to three messages are their copies."""
    runs = [run(A, range(5), T, 0), run(A, range(5, 8), T, 8)]
    assert map_positions(runs, {A: 8}, {1: {A: 3}}) == {T: 11}
    assert map_positions(runs, {A: 8}, {1: {A: 2}}) == {T: 5}
    assert map_positions(runs, {A: 8}, {0: {A: 3}}) == {T: 5}
    assert map_positions(runs, {A: 8}, {2: {A: 3}}) == {T: 5}
    assert map_positions(runs, {A: 8}, {1: {B: 3}}) == {T: 5}
    assert map_positions(
        [*runs, run(B, range(1), T, 11)], {A: 8, B: 1}, {1: {B: 3}}
    ) == {T: 12}


def test_a_queue_without_copies_has_no_position():
    assert map_positions([], {A: 3}) == {}


def test_unread_offsets_without_a_copy_are_counted_once():
    runs = [run(A, (3, 7, 9), T, 0), run(A, (7, 9), T, 3), run(B, range(4), T, 5)]
    assert count_uncopied(runs, {A: range(4, 12), B: range(2, 4)}) == 6
    assert count_uncopied(runs, {A: range(10, 10), B: range(4, 4)}) == 0
    assert count_uncopied([], {A: range(5)}) == 5


@given(
    order=st.lists(st.sampled_from([A, B]), max_size=30),
    committed=st.fixed_dictionaries({A: st.integers(0, 40), B: st.integers(0, 40)}),
)
def test_no_unread_message_is_skipped_and_the_position_is_the_highest(order, committed):
    counts = {A: 0, B: 0}
    copies = []
    for key in order:
        copies.append((key, counts[key]))
        counts[key] += 1
    runs = [run(key, (offset,), T, at) for at, (key, offset) in enumerate(copies)]
    unread = [at for at, (key, offset) in enumerate(copies) if offset >= committed[key]]
    expected = {T: min(unread, default=len(order))} if order else {}
    assert map_positions(runs, committed) == expected
