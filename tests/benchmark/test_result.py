"""What a benchmark counts."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.benchmark.result import BenchResult, Meter


def test_after_twenty_reasons_of_failures_the_others_are_counted_together():
    meter = Meter()
    for number in range(22):
        meter.fail(f"r{number}")
    meter.fail("r0", 3, is_unknown=True)
    result = meter.result("produce", "T", {}, latency_of="", ended_by="")
    assert result.failures == {
        "r0": 4,
        **{f"r{number}": 1 for number in range(1, 20)},
        "other reasons": 2,
    }
    assert (result.failed, result.unknown) == (25, 3)


def result(**values):
    known: dict[str, Any] = {
        "kind": "consume", "topic": "T", "settings": {}, "elapsed_ms": 8_000,
        "quiet_ms": 0, "warm_up_messages": 0, "messages": 9_000, "body_bytes": 9_000,
        "statuses": {}, "failures": {}, "unknown": 0, "latency_us": {"count": 0},
        "latency_of": "", "cpu": 0.1, "ended_by": "time",
    }  # fmt: skip
    return BenchResult(**known | values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"quiet_ms": 7_100}, True),
        ({"quiet_ms": 1_000}, True),
        ({"quiet_ms": 999}, False),
        ({"quiet_ms": 1_000, "elapsed_ms": 60_000}, False),
        ({"quiet_ms": 7_100, "kind": "produce"}, False),
    ],
)
def test_a_group_that_waited_at_the_end_is_known(values, expected):
    assert result(**values).has_run_dry is expected


def test_the_time_since_the_last_message_is_measured():
    meter = Meter()
    meter.add(3, 3)
    meter.begin()
    meter.add(2, 2)
    found = meter.result("consume", "T", {}, latency_of="", ended_by="")
    assert (found.warm_up_messages, found.messages) == (3, 2)
    assert 0 <= found.quiet_ms <= found.elapsed_ms
