"""Which parts of queues are read for the last messages of several queues."""

from __future__ import annotations

from rmqcli.admin.tail.last import _End, _keys, _windows
from rmqcli.model import MessageQueue, OffsetRange

FIRST = MessageQueue("orders", "broker-a", 0)
SECOND = MessageQueue("orders", "broker-a", 1)


def test_what_precedes_a_message_without_a_time_is_read_if_the_next_is_young_enough():
    """One that cannot be decoded has no time, and looked older than all others."""
    ends = {
        FIRST: _End(0, 68, 32, stored=[(1, None), (5, 3_000)], items=["?", "d"]),
        SECOND: _End(0, 70, 32, stored=[(2, 1_000), (3, 2_000)], items=["a", "b"]),
    }
    assert _windows(ends, 3) == [
        OffsetRange(FIRST, 36, 68),
        OffsetRange(SECOND, 38, 70),
    ]
    ends[FIRST].stored = [(0, None), (1, 500)]
    ends[SECOND].stored = [(2, 1_000), (3, 1_500)]
    ends[FIRST].items = ["?", "d"]
    assert _windows(ends, 2) == []


def test_a_message_without_a_place_stays_between_its_neighbours():
    """It has neither a time, nor an offset by which its place would be known."""
    ends: dict[MessageQueue, _End[str]] = {
        FIRST: _End(0, 0, 32, stored=[(None, None), (5, 500), (None, None), (9, 900)]),
        SECOND: _End(0, 0, 32, stored=[(1, 100), (7, 700)]),
    }
    assert _keys(ends) == {FIRST: [500, 500, 700, 900], SECOND: [100, 700]}


def test_a_time_before_1970_and_places_that_are_unknown_are_no_special_numbers():
    """-1 stood for an unknown time and place, so that a real one was taken for it."""
    ends: dict[MessageQueue, _End[str]] = {
        FIRST: _End(0, 0, 32, stored=[(1, -1), (5, 500)]),
        SECOND: _End(0, 0, 32, stored=[(None, None)]),
    }
    assert _keys(ends) == {FIRST: [-1, 500], SECOND: [-1]}
    ends = {each: _End(0, 0, 32, stored=[(None, None)]) for each in (FIRST, SECOND)}
    assert _keys(ends) == {FIRST: [None], SECOND: [None]}
