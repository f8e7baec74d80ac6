"""What a benchmark counts."""

from __future__ import annotations

from rmqcli.benchmark.result import Meter


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
