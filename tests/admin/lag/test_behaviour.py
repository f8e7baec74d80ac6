"""Verdicts by behaviour: single histories, properties, and simulated days."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.lag.behaviour import History, observe, observed_ms
from rmqcli.admin.lag.model import GroupReading, compute_lag
from rmqcli.engine.queue_lag import QueueReading
from tests.admin.lag.behaviour_day import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    WINDOW_MS,
    ClusterDay,
    judge_days,
    judge_planted_day,
    members,
)
from tests.kit.rows import each_row


def reading_of(*queues, online=True):
    """Queues as (committed, max offset); None is a queue whose broker is silent."""
    return compute_lag(
        GroupReading(
            group="G",
            members=members() if online else None,
            queues=[
                QueueReading(
                    topic="T",
                    broker_name="broker-a",
                    queue_id=queue_id,
                    committed=None if queue is None else queue[0],
                    min_offset=None if queue is None else 0,
                    max_offset=None if queue is None else queue[1],
                    failure="no answer" if queue is None else None,
                )
                for queue_id, queue in enumerate(queues)
            ],
        )
    )


def judged(*samples, every_ms=MINUTE_MS, online=True, history=None):
    """The last verdict of samples of all queues, or of the only one."""
    history, behaviour = history or History(), None
    for index, sample in enumerate(samples):
        queues = sample if isinstance(sample, list) else [sample]
        history, behaviour = observe(
            history,
            reading_of(*queues, online=online),
            at_ms=START_MS + index * every_ms,
            window_ms=WINDOW_MS,
        )
    return behaviour


STUCK = [(7, 10)] * 11


@each_row(
    ("samples", "verdict"),
    [
        ([(10, 10)], "OK"),  # nothing waits: no history is needed
        ([(7, 10)], "UNKNOWN"),
        ([(7, 10), (10, 15)], "OK"),  # what waited at first is consumed
        ([(7, 10), (9, 15)], "UNKNOWN"),  # one of them may have waited for hours
        ([(7, 10)] * 10, "UNKNOWN"),  # 9 minutes
        (STUCK, "STALLED"),  # 10 minutes
        ([(n, 20) for n in range(10)], "UNKNOWN"),
        ([(n, 20) for n in range(11)], "BEHIND"),
        ([*STUCK, (8, 20)], "GROWING"),
        ([*STUCK, (8, 10)], "BEHIND"),
        ([*STUCK, (10, 10)], "OK"),
        ([(7, 7), *STUCK[:10]], "OK"),
        ([(7, 7), *STUCK], "STALLED"),
        ([(10, 10), *STUCK[:10]], "OK"),  # three messages are consumed again
        # A night without messages, and one that has just come.
        ([(10, 10)] * 500 + [(10, 11)], "OK"),
        # More waits from sample to sample, and each message soon is consumed.
        ([(10 * n, 10 * n + 9 + n) for n in range(40)], "OK"),
        ([(n, 10 * n) for n in range(1, 40)], "GROWING"),
        ([(10 * n, 1_000) for n in range(40)], "BEHIND"),
        # The group went back: by more than a restart explains, or not.
        ([(5_000, 5_000)] * 3 + [(1_000, 5_000)], "REWOUND"),
        ([(5_000, 5_000)] * 3 + [(4_990, 5_000)], "OK"),
        ([(5_000, 5_000)] * 3 + [(1_000, 5_000), (5_001, 5_001)], "OK"),
        ([(n * 600, n * 600) for n in range(5)] + [(2_150, 3_000)], "OK"),
        ([(n * 600, n * 600) for n in range(5)] + [(2_000, 3_000)], "REWOUND"),
        ([(5, 5), (5_000, 9_000), (1_000, 9_000), (4_000, 9_000)], "REWOUND"),
        ([(5, 5), (5_000, 9_000), (1_000, 9_000), (6_000, 9_000)], "OK"),
        # After a window a rewind is a backlog as any other.
        (
            [(5, 5), (5_000, 9_000), *((10 * n, 9_000) for n in range(10))],
            "REWOUND",
        ),
        (
            [(5, 5), (5_000, 9_000), *((10 * n, 9_000) for n in range(13))],
            "BEHIND",
        ),
        # Retention deleted messages, or the topic was created again.
        ([(20, 10)], "AHEAD"),
        ([*STUCK, (0, 3)], "OK"),
        ([*STUCK, (7, 9)], "STALLED"),  # a broker that crashed lost the last message
        ([*STUCK, (7, 7), (7, 9)], "OK"),
        ([*STUCK, *([(0, 3)] * 11)], "STALLED"),
        ([(5_000, 5_000)] * 3 + [(0, 4_000)], "OK"),
        # One that has grown past its former end meanwhile looks like a rewind.
        ([(5_000, 5_000)] * 3 + [(0, 5_200)], "REWOUND"),
        # Nobody ever committed: where members start is not known.
        ([(None, 10)] * 20, "UNKNOWN"),
        ([(None, 0)], "OK"),
        ([(None, 0), (None, 3)], "OK"),
        ([(None, 0), *([(None, 3)] * 11)], "STALLED"),
        ([(None, 10), *([(None, 11)] * 11)], "STALLED"),
        ([(None, 10)] * 3 + [(2, 10)], "OK"),
    ],
)
def test_the_verdict_on_a_queue(samples, verdict):
    assert judged(*samples).verdict == verdict


def test_a_stuck_queue_does_not_hide_among_healthy_ones():
    samples = [[(100 * n, 100 * n), (7, 10), (90 * n, 90 * n + 5)] for n in range(11)]
    behaviour = judged(*samples)
    assert (behaviour.verdict, behaviour.reason) == (
        "STALLED",
        "T@broker-a:1: nothing consumed at offset 7 for 10m or more",
    )


def test_a_group_without_members_is_stopped():
    behaviour = judged(*STUCK, online=False)
    assert (behaviour.verdict, behaviour.reason) == (
        "STOPPED",
        (
            "T@broker-a:0: nothing consumed at offset 7 for 10m or more, and brokers"
            " know no member"
        ),
    )


def test_a_short_history_says_what_it_needs():
    assert judged((7, 10), (7, 10), (7, 10)).reason == (
        "a verdict needs 10m of history in 3 samples or more; so far there is 2m in 3"
        " samples"
    )


def test_the_other_reasons():
    back = judged((5_000, 5_000), (5_000, 5_000), (1_000, 5_000))
    assert back.reason == "T@broker-a:0 went back from offset 5000 to 1000"
    growing = judged(*([(n, 10 * n)] * 2 for n in range(1, 40)))
    assert growing.reason == (
        "T@broker-a:0 and 1 more queue: messages wait for 10m or more, and the lag does"
        " not shrink"
    )


def test_a_silent_broker_is_unknown_and_keeps_its_history():
    assert judged(*([(7, 10)] * 5), None).verdict == "UNKNOWN"
    assert judged(*([(7, 10)] * 5), None, None, *([(7, 10)] * 5)).verdict == "STALLED"
    # What is known to be bad is not hidden.
    samples = [[(7, 10), (5, 5)]] * 10 + [[(7, 10), None]]
    assert judged(*samples).verdict == "STALLED"


def test_a_queue_that_appears_is_given_the_window():
    before = [[(5, 5)]] * 3
    assert judged(*before, [(5, 5), (0, 9)]).verdict == "OK"
    assert judged(*before, [(5, 5), (None, 9)]).verdict == "OK"
    assert judged(*before, *([[(5, 5), (0, 9)]] * 11)).verdict == "STALLED"
    # After an incomplete first reading it is not known whether a queue is new.
    assert judged([(5, 5), None], [(5, 5), (0, 9)]).verdict == "UNKNOWN"


def test_a_queue_that_vanishes_is_forgotten():
    samples = [[(5, 5), (7, 10)]] * 11
    assert judged(*samples).verdict == "STALLED"
    assert judged(*samples, [(5, 5)]).verdict == "OK"
    assert judged(*samples, [(5, 5)], [(5, 5), (7, 10)]).verdict == "OK"


def test_hours_without_a_run_are_no_proof():
    """One message waited before the check was off, and another one does now."""
    assert judged((7, 8), (7, 10), every_ms=5 * HOUR_MS).verdict == "UNKNOWN"
    assert judged(*([(7, 8)] * 3), every_ms=5 * HOUR_MS).verdict == "STALLED"


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 400 * DAY_MS])
def test_a_clock_that_jumps_makes_nothing_stall(jump_ms):
    history, verdicts = History(), []
    for index in range(5):
        at_ms = START_MS + index * MINUTE_MS + (jump_ms if index >= 3 else 0)
        history, behaviour = observe(
            history, reading_of((7, 10)), at_ms=at_ms, window_ms=WINDOW_MS
        )
        verdicts.append(behaviour.verdict)
    assert verdicts == ["UNKNOWN"] * 5


@pytest.mark.slow
def test_samples_are_bounded_however_often_the_check_runs():
    history, verdicts = History(), []
    rng = random.Random(1)
    for index in range(20_000):
        back_ms = rng.choice([0, 0, 0, 0, HOUR_MS])
        history, behaviour = observe(
            history,
            reading_of((7, 10 + index)),
            at_ms=START_MS + index * 1_000 - back_ms,
            window_ms=WINDOW_MS,
        )
        (series,) = history.queues.values()
        assert len(series.points) <= 64
        verdicts.append(behaviour.verdict)
    assert verdicts[-1] == "STALLED"


def test_samples_are_bounded_if_the_clock_only_goes_back():
    history = History()
    for index in range(1_000):
        history, _ = observe(
            history,
            reading_of((7, 10 + index)),
            at_ms=START_MS - index * HOUR_MS,
            window_ms=WINDOW_MS,
        )
    (series,) = history.queues.values()
    assert len(series.points) == 64


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(-5, 30 * 60)),
        min_size=1,
        max_size=60,
    )
)
def test_no_queue_whose_messages_are_soon_consumed_is_bad(steps):
    """Whatever arrives: if all that waited at a sample is gone at the next one."""
    history, committed, high, at_s = History(), 0, 0, 0
    for came, waiting, gap_s in steps:
        committed, high, at_s = high, high + came + waiting, at_s + gap_s
        committed = max(committed, high - waiting)
        history, behaviour = observe(
            history,
            reading_of((committed, high)),
            at_ms=START_MS + at_s * 1000,
            window_ms=WINDOW_MS,
        )
        assert behaviour.verdict in ("OK", "UNKNOWN")


@given(st.lists(st.integers(-100, 20), min_size=3, max_size=200), st.integers(1, 9))
def test_a_queue_that_stands_still_is_found_whatever_arrives(arrivals, waiting):
    """After a window's time in samples, and not before it has passed."""
    history, high = History(), 10 + waiting
    for index, came in enumerate(arrivals):
        high += max(0, came)
        history, behaviour = observe(
            history,
            reading_of((10, high)),
            at_ms=START_MS + index * MINUTE_MS,
            window_ms=WINDOW_MS,
        )
        assert behaviour.verdict == ("STALLED" if index >= 10 else "UNKNOWN")
        (series,) = history.queues.values()
        assert observed_ms(series.points, WINDOW_MS) == MINUTE_MS * min(index, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_day_has_no_false_alarm_and_every_fault_is_found(seed):
    judge_days(seed)


@pytest.mark.slow
def test_a_day_of_a_cluster_has_no_false_alarm_and_every_fault_is_found():
    judge_planted_day(0, ClusterDay)


@pytest.mark.slow
@pytest.mark.nightly
def test_many_days_have_no_false_alarm_and_every_fault_is_found():
    for seed in range(2, 12):
        judge_days(seed)
