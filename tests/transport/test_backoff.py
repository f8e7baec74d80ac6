"""The delays between attempts grow to at most 5 s, and are random."""

from __future__ import annotations

import random

from rmqcli.transport.backoff import Backoff


def test_delays_double_within_jitter_and_stay_under_the_last():
    backoff = Backoff(random.Random(0))

    delays = [backoff.failed() for _ in range(40)]

    bounds = [(100, 200), (200, 400), (400, 800), (800, 1600), (1600, 3200)]
    for delay, (low, high) in zip(delays, bounds, strict=False):
        assert low <= delay <= high
    assert all(2500 <= delay <= 5000 for delay in delays[5:])
    assert len(set(delays[5:])) > 10


def test_success_starts_over():
    backoff = Backoff(random.Random(0))
    for _ in range(10):
        backoff.failed()

    backoff.succeeded()

    assert backoff.failed() <= 200
