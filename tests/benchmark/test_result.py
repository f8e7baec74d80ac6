"""What a benchmark counts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rmqcli.benchmark.result import BenchResult, Meter
from rmqcli.clock import monotonic_us


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
        ({"quiet_ms": 6_000, "elapsed_ms": 60_000}, True),
        ({"quiet_ms": 7_100, "kind": "produce"}, False),
    ],
)
def test_a_group_that_waited_at_the_end_is_known(values, expected):
    assert result(**values).has_run_dry is expected


@pytest.mark.parametrize(
    ("values", "per_s", "bytes_per_s"),
    [
        ({"elapsed_ms": 8_000, "messages": 9_001, "body_bytes": 40}, 1_125.1, 5.0),
        ({"elapsed_ms": 1, "messages": 2, "body_bytes": 3}, 2_000.0, 3_000.0),
        ({"elapsed_ms": 0}, None, None),
    ],
)
def test_rates_are_those_of_a_second(values, per_s, bytes_per_s):
    found = result(**values)
    assert (found.messages_per_s, found.bytes_per_s) == (per_s, bytes_per_s)


@pytest.mark.parametrize(
    ("cpu", "expected"), [(None, False), (0.89, False), (0.9, True), (2.0, True)]
)
def test_a_process_that_had_no_time_left_may_have_been_the_limit(cpu, expected):
    assert result(cpu=cpu).is_client_bound is expected


def measured(meter):
    return meter.result("consume", "T", {}, latency_of="", ended_by="")


def let_pass(duration_us):
    """Wait that long, and return how long it took."""
    begin_us = monotonic_us()
    while monotonic_us() - begin_us < duration_us:
        pass
    return monotonic_us() - begin_us


def test_only_what_is_between_begin_and_end_counts_for_rates():
    meter = Meter()
    before_us = monotonic_us()
    meter.add(3, 30, since_us=before_us, status="SEND_OK")
    meter.begin()
    meter.add(2, 20, status="SEND_OK")
    meter.end()
    meter.add(5, 50, status="SLAVE_NOT_AVAILABLE")
    found = measured(meter)
    assert (found.warm_up_messages, found.messages, found.body_bytes) == (3, 2, 20)
    assert found.statuses == {"SEND_OK": 2, "SLAVE_NOT_AVAILABLE": 5}
    assert meter.done == 10


def test_a_latency_that_begins_in_the_warm_up_does_not_count():
    meter = Meter()
    early_us = monotonic_us() - 1
    meter.add(1, 1, since_us=early_us)
    meter.add(1, 1, duration_us=7)
    meter.begin()
    meter.add(1, 1, since_us=early_us)
    assert measured(meter).latency_us["count"] == 0
    assert measured(meter).messages == 1


def test_latencies_of_what_was_under_way_at_the_end_count():
    meter = Meter()
    meter.begin()
    since_us = monotonic_us()
    meter.add(2, 2, duration_us=7)
    meter.end()
    let_pass(2_000)
    meter.add(1, 1, since_us=since_us)
    latency = measured(meter).latency_us
    assert (latency["count"], latency["min"]) == (3, 7)
    assert 2_000 <= latency["max"] <= monotonic_us() - since_us


def test_a_measurement_begins_and_ends_once():
    meter = Meter()
    outer_us = monotonic_us()
    meter.begin()
    inner_us = let_pass(20_000)
    meter.begin()
    meter.end()
    outer_us = monotonic_us() - outer_us
    let_pass(20_000)
    meter.end()
    assert inner_us // 1000 <= measured(meter).elapsed_ms <= outer_us // 1000


def test_the_share_of_a_core_is_that_of_the_measurement():
    used_s = time.process_time()
    while time.process_time() - used_s < 0.05:
        pass  # what was used before does not count
    meter = Meter()
    outer_s = time.process_time()
    meter.begin()
    inner_s = time.process_time()
    while time.process_time() - inner_s < 0.05:
        pass
    inner_s = time.process_time() - inner_s
    meter.end()
    outer_s = time.process_time() - outer_s
    found = measured(meter)
    elapsed_s = found.elapsed_ms / 1000
    assert isinstance(found.cpu, float)
    assert 0.9 * inner_s / elapsed_s - 0.02 <= found.cpu
    assert found.cpu <= 1.1 * outer_s / elapsed_s + 0.02
    assert found.cpu == round(found.cpu, 2)


def test_the_time_since_the_last_message_is_measured():
    meter = Meter()
    meter.add(3, 3)
    meter.begin()
    before_ms = let_pass(5_000) // 1000
    meter.add(2, 2)
    after_ms = let_pass(5_000) // 1000
    found = measured(meter)
    assert after_ms <= found.quiet_ms <= found.elapsed_ms - before_ms


def test_without_a_message_all_of_the_time_was_quiet():
    meter = Meter()
    meter.begin()
    let_pass(5_000)
    found = measured(meter)
    assert found.quiet_ms == found.elapsed_ms >= 5


def test_everything_that_is_counted_adds_up():
    meter = Meter()
    meter.add(2, 20)
    meter.add(3, 30)
    meter.fail("busy", 4, is_unknown=True)
    meter.begin()
    meter.fail("busy", 5, is_unknown=True)
    meter.fail("busy", 6)
    for status in ("SEND_OK", "FLUSH_DISK_TIMEOUT", "SEND_OK"):
        meter.add(7, 70, duration_us=9, status=status)
    found = meter.result("send", "t", {}, latency_of="a send", ended_by="time")
    assert (meter.done, found.warm_up_messages) == (26, 5)
    assert (found.messages, found.body_bytes) == (21, 210)
    assert found.statuses == {"SEND_OK": 14, "FLUSH_DISK_TIMEOUT": 7}
    assert (found.failures, found.failed, found.unknown) == ({"busy": 15}, 15, 9)
    assert (found.latency_us["count"], found.latency_us["max"]) == (21, 9)
