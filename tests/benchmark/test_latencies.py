"""Percentiles of durations are never too low, and at most 0.8 % too high."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.benchmark.latencies import Latencies


def counted(durations):
    latencies = Latencies()
    for each in durations:
        latencies.add(each)
    return latencies


def test_small_durations_are_exact():
    assert counted(range(1, 101)).summary() == {
        "count": 100,
        "min": 1,
        "mean": 50.5,
        "p50": 50,
        "p90": 90,
        "p99": 99,
        "p99_9": 100,
        "max": 100,
    }


def test_without_a_duration_nothing_is_known():
    assert Latencies().summary() == {
        "count": 0,
        "min": None,
        "mean": None,
        "p50": None,
        "p90": None,
        "p99": None,
        "p99_9": None,
        "max": None,
    }


@given(st.lists(st.integers(0, 2**40), min_size=1), st.floats(0, 100))
def test_a_percentile_is_at_most_a_little_too_high(durations, percent):
    exact = sorted(durations)[max(1, math.ceil(len(durations) * percent / 100)) - 1]
    found = counted(durations).percentile(percent)
    assert found is not None
    assert exact <= found <= exact + exact // 128
    assert found <= max(durations)


def test_several_messages_may_have_the_same_duration():
    latencies = Latencies()
    latencies.add(1, 99)
    latencies.add(1_000)
    summary = latencies.summary()
    assert (summary["count"], summary["p99"], summary["max"]) == (100, 1, 1_000)


def test_a_mean_has_one_digit_after_the_point():
    assert counted([1, 1, 2]).summary()["mean"] == 1.3


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError, match="duration_us is -1"):
        Latencies().add(-1)
