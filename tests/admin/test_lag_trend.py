"""Rates, time to drain, verdicts, and what is said of them."""

from __future__ import annotations

import pytest

from rmqcli.admin.lag import GroupReading, QueueReading, compute_lag
from rmqcli.admin.lag_explain import explain
from rmqcli.admin.lag_members import Members
from rmqcli.admin.lag_trend import Verdict, compare
from rmqcli.wire.bodies_consumer import Connection, ConsumerConnection


def lag_of(*offsets, online=False):
    members = None
    if online:
        members = Members()
        members.add(
            ConsumerConnection(
                connections=(Connection("c1", "127.0.0.1:1", 0, 409),),
                subscriptions={},
            )
        )
    queues = [
        QueueReading(
            topic="T",
            broker_name="broker-a",
            queue_id=queue_id,
            committed=committed,
            min_offset=0,
            max_offset=high,
        )
        for queue_id, (committed, high) in enumerate(offsets)
    ]
    return compute_lag(GroupReading(group="G", queues=queues, members=members))


@pytest.mark.parametrize(
    ("before", "after", "online", "verdict"),
    [
        ((10, 10), (10, 10), True, Verdict.OK),
        ((10, 10), (60, 60), True, Verdict.OK),
        ((10, 50), (30, 60), True, Verdict.OK),  # 40 behind, now 30
        ((10, 50), (15, 60), True, Verdict.OK),  # grew by 5: under the floor
        ((10, 50), (15, 66), True, Verdict.WARN),  # grew by 11
        ((10, 50), (10, 50), True, Verdict.STALL),
        ((10, 50), (10, 50), False, Verdict.STOP),
        ((10, 10), (10, 15), True, Verdict.OK),  # new messages, not late yet
        ((10, 50), (5, 50), True, Verdict.REWIND),
        ((None, 50), (None, 50), True, Verdict.UNKNOWN),
        ((None, 50), (10, 50), True, Verdict.UNKNOWN),
        ((None, 0), (None, 0), True, Verdict.OK),
    ],
)
def test_verdict(before, after, online, verdict):
    trend = compare(lag_of(before), lag_of(after, online=online), elapsed_ms=10_000)
    assert trend.group.verdict is verdict
    assert trend.queues["T", "broker-a", 0].verdict is verdict


def test_the_worst_queue_gives_the_groups_verdict():
    before = lag_of((10, 10), (0, 5), online=True)
    after = lag_of((20, 20), (0, 5), online=True)
    assert compare(before, after, elapsed_ms=1000).group.verdict is Verdict.STALL


def test_rates_and_time_to_drain():
    trend = compare(lag_of((0, 100)), lag_of((60, 120)), elapsed_ms=20_000).group
    assert (trend.rate_in, trend.rate_out, trend.drain_ms) == (1.0, 3.0, 30_000)


def test_what_does_not_drain_has_no_time():
    trend = compare(lag_of((0, 100)), lag_of((10, 120)), elapsed_ms=1000).group
    assert trend.drain_ms is None


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (lag_of((10, 10)), "G has read everything."),
        (lag_of((5, 10)), "Nobody is online: nothing will be read"),
        (lag_of((5, 10), online=True), "1 member is online."),
        (lag_of((15, 10), online=True), "committed offsets beyond the end of T@"),
        (lag_of((None, 7)), "T@broker-a:0, which hold 7 messages"),
        (lag_of((0, 90), (99, 100)), "99% of it is in T@broker-a:0."),
    ],
)
def test_explain_says_it_in_words(lag, words):
    assert any(words in sentence for sentence in explain(lag))


def test_explain_tells_the_trend():
    before, after = lag_of((0, 100)), lag_of((60, 120))
    trend = compare(before, after, elapsed_ms=20_000).group
    assert explain(after, trend)[-1] == (
        "OK: 1 messages/s come in, 3/s are done; it will have caught up in 30s."
    )
