"""Merging by store time, without breaking a queue's order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.tail.merge import Batch, StoreTimeMerger
from rmqcli.model import MessageQueue

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def batch(times: list[int], start: int = 0, name: str = "") -> Batch[str]:
    offsets = list(range(start, start + len(times)))
    return Batch(times, offsets, [f"{name}{o}" for o in offsets], start + len(times))


def test_nothing_is_released_before_it_is_certain() -> None:
    merger: StoreTimeMerger[str] = StoreTimeMerger({A: 0, B: 0})
    merger.add(A, batch([1, 5, 9], name="a"))
    assert merger.release() == []
    merger.add(B, batch([4], name="b"))
    assert merger.release() == ["a0", "b0"]
    assert merger.positions == {A: 1, B: 1}
    merger.close(B)
    assert merger.release() == ["a1", "a2"]


def test_a_time_that_steps_back_does_not_break_the_queue() -> None:
    merger: StoreTimeMerger[str] = StoreTimeMerger({A: 0, B: 0})
    merger.add(A, batch([10, 3, 11], name="a"))
    merger.add(B, batch([5, 12], name="b"))
    assert merger.release(all_of_it=True) == ["b0", "a0", "a1", "a2", "b1"]


def test_a_limit_leaves_the_rest_where_it_was() -> None:
    merger: StoreTimeMerger[str] = StoreTimeMerger({A: 0, B: 100})
    merger.add(A, batch([1, 3, 5], name="a"))
    merger.add(B, batch([2, 4], 100, name="b"))
    assert merger.release(limit=3, all_of_it=True) == ["a0", "b100", "a1"]
    assert merger.positions == {A: 2, B: 101}
    assert merger.release(all_of_it=True) == ["b101", "a2"]


def test_what_was_filtered_out_moves_the_position_too() -> None:
    merger: StoreTimeMerger[str] = StoreTimeMerger({A: 0})
    merger.add(A, Batch([], [], [], 50))
    assert merger.release(all_of_it=True) == []
    assert merger.positions == {A: 50}


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=1, max_size=4))
def test_any_queues_in_any_pieces(queues: list[list[int]]) -> None:
    names = [MessageQueue("T", "b", index) for index in range(len(queues))]
    merger: StoreTimeMerger[str] = StoreTimeMerger(dict.fromkeys(names, 0))
    out: list[str] = []
    for at in range(0, 12, 3):
        for index, times in enumerate(queues):
            piece = times[at : at + 3]
            merger.add(names[index], batch(piece, at, f"{index}:"))
        out += merger.release()
    for name in names:
        merger.close(name)
    out += merger.release()
    for index, times in enumerate(queues):
        mine = [item for item in out if item.startswith(f"{index}:")]
        assert mine == [f"{index}:{o}" for o in range(len(times))]
    if all(times == sorted(times) for times in queues):
        stamps = [queues[int(i)][int(o)] for i, o in (x.split(":") for x in out)]
        assert stamps == sorted(stamps)
