"""Ranges are pinned once, and are cut into partitions that cover them exactly."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.source.pinned import cut_ranges


def span(queue_id, start, end):
    return OffsetRange(MessageQueue("orders", "broker-a", queue_id), start, end)


def test_without_options_each_queue_with_messages_is_one_partition():
    ranges = [span(0, 5, 9), span(1, 7, 7), span(2, 0, 1)]
    assert cut_ranges(ranges) == [span(0, 5, 9), span(2, 0, 1)]


def test_min_partitions_cuts_the_longest_ranges():
    assert cut_ranges([span(0, 0, 90), span(1, 0, 10)], partitions_min=4) == [
        span(0, 0, 30),
        span(0, 30, 60),
        span(0, 60, 90),
        span(1, 0, 10),
    ]


def test_there_are_no_more_partitions_than_messages():
    assert cut_ranges([span(0, 3, 5)], partitions_min=9) == [
        span(0, 3, 4),
        span(0, 4, 5),
    ]
    assert cut_ranges([], partitions_min=9) == []


def test_max_records_cuts_every_longer_range():
    cut = cut_ranges([span(0, 0, 25), span(1, 0, 10)], records_max=10)
    assert [(each.start, each.end) for each in cut] == [
        (0, 8),
        (8, 16),
        (16, 25),
        (0, 10),
    ]


@given(
    sizes=st.lists(st.integers(0, 500), max_size=8),
    partitions_min=st.none() | st.integers(1, 40),
    records_max=st.none() | st.integers(1, 200),
)
def test_partitions_cover_each_range_once(sizes, partitions_min, records_max):
    ranges = [span(n, 3 * n, 3 * n + size) for n, size in enumerate(sizes)]
    cut = cut_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    assert all(len(each) > 0 for each in cut)
    if records_max is not None:
        assert all(len(each) <= records_max for each in cut)
    if partitions_min is not None:
        assert len(cut) >= min(partitions_min, sum(sizes))
    for each in ranges:
        own = [c for c in cut if c.queue == each.queue]
        assert sum(map(len, own)) == len(each)
        assert all(a.end == b.start for a, b in pairwise(own))
        assert not own or (own[0].start, own[-1].end) == (each.start, each.end)
