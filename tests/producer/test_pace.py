"""`--rate`: sends are spread evenly, never faster, and each wait is announced."""

from __future__ import annotations

import pytest

from rmqcli.errors import TextError
from rmqcli.producer.pace import paced, parse_rate
from rmqcli.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("text", "rate"), [("50/s", 50), ("1", 1), ("1000000/s", 10**6)]
)
def test_parse(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("", 0, 1),
        ("0/s", 0, 1),
        ("50/m", 3, 4),
        ("50/", 3, 4),
        ("50/min", 3, 6),
        ("/s", 0, 1),
        ("1.5/s", 0, 3),
        ("-1/s", 0, 2),
        ("9999999/s", 0, 7),
        ("10000000/s", 0, 8),
    ],
)
def test_the_part_of_a_rate_that_is_wrong_is_marked(text, start, end):
    with pytest.raises(TextError) as caught:
        parse_rate(text)
    assert (caught.value.start, caught.value.end) == (start, end)


def times_of(items, clock, *, per_second):
    start_ms = clock.monotonic_ms()
    return [
        (item, clock.monotonic_ms() - start_ms)
        for item in paced(items, per_second=per_second, clock=clock)
    ]


def test_items_are_spread_over_the_second_and_pauses_are_said():
    found = times_of("abc", ManualClock(), per_second=2)
    assert found == [("a", 0), (None, 0), ("b", 500), (None, 500), ("c", 1000)]


@pytest.mark.parametrize(
    ("b_ms", "later_ms"), [(2_000, [2_000, 3_000]), (2_001, [3_001, 4_001])]
)
def test_a_second_s_delay_is_made_good_and_a_longer_one_is_not(b_ms, later_ms):
    clock = ManualClock()

    def items():
        yield "a"
        clock.advance(b_ms)
        yield from "bcd"

    found = times_of(items(), clock, per_second=1)
    assert [ms for item, ms in found if item] == [0, b_ms, *later_ms]


def test_a_late_item_does_not_make_the_next_ones_come_faster():
    clock = ManualClock()

    def items():
        yield "a"
        clock.advance(10_000)
        yield "b"
        yield "c"

    found = times_of(items(), clock, per_second=1)
    assert [pair for pair in found if pair[0]] == [
        ("a", 0),
        ("b", 10_000),
        ("c", 11_000),
    ]
