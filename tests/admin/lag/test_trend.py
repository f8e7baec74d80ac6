"""Rates, time to drain, the verdict on a group, and the text that explains it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.lag.explain import explain
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import BrokerFailure, GroupReading, compute_lag
from rmqcli.admin.lag.process_queues import read_running_info
from rmqcli.admin.lag.trend import Samples, compare, judge
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from tests.kit.rows import each_row


def online_members(model="CLUSTERING"):
    members = Members()
    members.add(
        ConsumerConnection(
            connections=(
                Connection(
                    client_id="c1", client_addr="127.0.0.1:1", language=0, version=409
                ),
            ),
            subscriptions={},
            message_model=model,
        )
    )
    return members


def lag_of(*offsets, online=False, low=0, topic="T", **more):
    queues = [
        QueueReading(
            topic=topic,
            broker_name="broker-a",
            queue_id=queue_id,
            committed=committed,
            min_offset=low,
            max_offset=high,
        )
        for queue_id, (committed, high) in enumerate(offsets)
    ]
    members = online_members() if online else None
    return compute_lag(
        GroupReading(group="G", queues=queues, **{"members": members, **more})
    )


@each_row(
    ("offsets", "online", "state"),
    [
        ([(10, 10)], True, "OK"),
        ([(10, 10)], False, "OK"),
        ([(5, 10)], True, "BEHIND"),
        ([(5, 10)], False, "STOPPED"),
        ([(10, 10), (9, 10)], False, "STOPPED"),
        ([(None, 10)], True, "NO_COMMIT"),
        ([(None, 10)], False, "NO_COMMIT"),
        ([(None, 10), (5, 10)], True, "NO_COMMIT"),
        ([(None, 10), (5, 10)], False, "STOPPED"),
        ([(None, 0), (5, 10)], True, "BEHIND"),
        ([(None, 0)], True, "NO_COMMIT"),
        ([(11, 10), (5, 10)], False, "AHEAD"),
        ([(11, 10), (5, 10)], True, "AHEAD"),
    ],
)
def test_the_state_of_a_group_by_one_sample(offsets, online, state):
    assert lag_of(*offsets, online=online).state == state


def test_deleted_messages_count_more_than_a_group_that_stands_still():
    assert lag_of((1, 10), low=3).state == "EXPIRED"


def test_a_backlog_with_unknown_members_is_behind():
    assert lag_of((5, 10), members_unknown="a folder was read").state == "BEHIND"


def test_retries_that_wait_are_a_backlog():
    """A group that never committed in its retry topic reads it from its start."""
    assert lag_of((None, 7), topic="%RETRY%G").state == "STOPPED"
    assert lag_of((None, 7), topic="%RETRY%G", online=True).state == "BEHIND"


@each_row(
    ("before", "after", "online", "state"),
    [
        ((10, 10), (10, 10), True, "OK"),
        ((10, 10), (60, 60), True, "OK"),
        ((10, 50), (50, 60), True, "OK"),  # all that waited is consumed
        ((10, 50), (49, 60), True, "BEHIND"),  # one of them still waits
        ((10, 50), (30, 60), True, "BEHIND"),
        ((10, 50), (15, 65), True, "BEHIND"),  # grew by 10: the floor
        ((10, 50), (15, 66), True, "GROWING"),  # grew by 11
        ((10, 50), (10, 50), True, "STALLED"),
        ((10, 50), (10, 90), True, "STALLED"),
        ((10, 50), (10, 50), False, "STOPPED"),
        ((10, 50), (30, 50), False, "BEHIND"),  # commits of a proxy's member
        ((10, 50), (50, 50), False, "OK"),
        ((10, 10), (10, 15), True, "OK"),  # new messages, not late yet
        ((10, 10), (10, 20), True, "OK"),
        ((10, 10), (10, 21), True, "GROWING"),  # more than came in one interval
        ((10, 10), (10, 15), False, "STOPPED"),
        ((10, 50), (5, 50), True, "REWOUND"),
        ((10, 10), (9, 10), False, "REWOUND"),
        ((None, 50), (None, 50), True, "NO_COMMIT"),
        ((None, 50), (10, 50), True, "BEHIND"),
        ((None, 50), (50, 50), True, "OK"),
        ((None, 0), (None, 0), True, "NO_COMMIT"),
        ((10, 50), (10, 40), True, "BEHIND"),  # created again: no rates
    ],
)
def test_the_state_of_a_group_by_two_samples(before, after, online, state):
    now = lag_of(after, online=online)
    trend = compare(lag_of(before).queues, now, elapsed_ms=10_000)
    assert trend.group.verdict == state
    assert judge(now, trend).state == state


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((10, 50), (50, 60), "OK"),
        ((10, 50), (30, 60), "BEHIND"),
        ((10, 50), (15, 66), "GROWING"),
        ((10, 50), (10, 50), "STALLED"),
        ((10, 50), (5, 50), "REWOUND"),
        ((None, 50), (None, 50), "NO_COMMIT"),
        ((None, 50), (10, 50), None),
        ((None, 0), (None, 0), "NO_COMMIT"),
    ],
)
def test_the_verdict_of_a_queue_by_two_samples(before, after, verdict):
    trend = compare(
        lag_of(before).queues, lag_of(after, online=True), elapsed_ms=10_000
    )
    assert trend.queues["T", "broker-a", 0].verdict == verdict


@pytest.mark.parametrize(
    ("elapsed_ms", "state"), [(9_999, "BEHIND"), (10_000, "STALLED")]
)
def test_no_group_is_stalled_before_its_members_had_time_to_commit_twice(
    elapsed_ms, state
):
    before, after = lag_of((10, 50)), lag_of((10, 90), online=True)
    assert compare(before.queues, after, elapsed_ms=elapsed_ms).group.verdict == state


@pytest.mark.parametrize(
    ("elapsed_ms", "state"), [(9_999, "BEHIND"), (10_000, "GROWING")]
)
def test_no_group_is_growing_before_its_members_had_time_to_commit_twice(
    elapsed_ms, state
):
    before, after = lag_of((10, 50)), lag_of((15, 90), online=True)
    assert compare(before.queues, after, elapsed_ms=elapsed_ms).group.verdict == state


def test_a_busy_healthy_group_does_not_grow_when_samples_fall_beside_its_commits():
    """At 1,000 messages/s and a commit every 5 s, with one sample right after a commit
    and one right before."""
    before, after = lag_of((10_000, 10_000)), lag_of((15_000, 20_000), online=True)
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "OK"
    later = lag_of((14_900, 20_001), online=True)
    assert compare(before.queues, later, elapsed_ms=10_000).group.verdict == "GROWING"


def test_a_folder_of_which_members_are_unknown_neither_stalls_nor_stops():
    before = lag_of((10, 50), members_unknown="a folder was read")
    after = lag_of((10, 50), members_unknown="a folder was read")
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "BEHIND"


def test_the_worst_queue_gives_the_groups_state():
    before = lag_of((10, 10), (0, 5), online=True)
    after = lag_of((20, 20), (0, 5), online=True)
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "STALLED"


def test_small_growth_in_many_queues_is_growth_of_the_group():
    before = lag_of(*[(10, 50)] * 6, online=True)
    after = lag_of(*[(15, 57)] * 6, online=True)
    trend = compare(before.queues, after, elapsed_ms=10_000)
    assert {each.verdict for each in trend.queues.values()} == {"BEHIND"}
    assert trend.group.verdict == "GROWING"
    after = lag_of(*[(15, 57)] * 5, (15, 55), online=True)
    assert compare(before.queues, after, elapsed_ms=9_999).group.verdict == "BEHIND"
    after = lag_of(*[(15, 57)] * 5, (15, 55), online=True)
    before = lag_of(*[(10, 50)] * 5, (10, 50), online=True)
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "BEHIND"


def test_a_queue_that_is_new_keeps_its_backlog_in_the_state():
    before = lag_of((10, 10))
    after = lag_of((10, 10), (3, 9), online=True)
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "BEHIND"
    after = lag_of((10, 10), (3, 9))
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "STOPPED"


def test_what_a_broker_did_not_tell_stays_unknown():
    failure = BrokerFailure(broker_name="b", address=None, message="no answer")
    before, after = lag_of((10, 50)), lag_of((50, 50), failures=[failure])
    assert compare(before.queues, after, elapsed_ms=10_000).group.verdict == "UNKNOWN"


def test_a_group_that_broadcasts_has_no_rate_of_commits():
    members = online_members("BROADCASTING")
    before, after = lag_of((0, 5), members=members), lag_of((0, 9), members=members)
    trend = compare(before.queues, after, elapsed_ms=10_000)
    assert (trend.group.verdict, trend.group.rate_out) == ("BROADCAST", None)


def test_rates_and_time_to_drain():
    trend = compare(lag_of((0, 100)).queues, lag_of((60, 120)), elapsed_ms=20_000)
    for each in (trend.group, trend.queues["T", "broker-a", 0]):
        assert (each.rate_in, each.rate_out, each.drain_ms) == (1.0, 3.0, 30_000)


@pytest.mark.parametrize("elapsed_ms", [-5, 0, 1])
def test_samples_of_one_moment_are_a_millisecond_apart(elapsed_ms):
    """Such as those on both sides of a clock that is set back."""
    trend = compare(
        lag_of((10, 20)).queues, lag_of((14, 21)), elapsed_ms=elapsed_ms
    ).group
    assert (trend.rate_in, trend.rate_out) == (1_000, 4_000)


def test_a_rate_of_one_message_in_a_minute_is_not_0():
    before, after = lag_of((0, 100)), lag_of((1, 102))
    trend = compare(before.queues, after, elapsed_ms=60_000)
    for each in (trend.group, trend.queues["T", "broker-a", 0]):
        assert (each.rate_in, each.rate_out) == (0.033, 0.017)
        assert each.verdict == "BEHIND"


def test_what_is_read_is_drained():
    trend = compare(lag_of((50, 100)).queues, lag_of((100, 100)), elapsed_ms=1000)
    assert (trend.group.drain_ms, trend.queues["T", "broker-a", 0].drain_ms) == (0, 0)
    trend = compare(lag_of((100, 100)).queues, lag_of((100, 100)), elapsed_ms=1000)
    assert (trend.group.drain_ms, trend.queues["T", "broker-a", 0].drain_ms) == (0, 0)


@pytest.mark.parametrize("after", [(10, 120), (20, 120)])
def test_what_does_not_drain_has_no_time(after):
    trend = compare(lag_of((0, 100)).queues, lag_of(after), elapsed_ms=1000).group
    assert trend.drain_ms is None


def test_rates_of_a_group_are_unknown_when_those_of_a_queue_are():
    before = lag_of((0, 100), (None, 100))
    after = lag_of((60, 120), (50, 120))
    trend = compare(before.queues, after, elapsed_ms=20_000).group
    assert (trend.rate_in, trend.rate_out, trend.drain_ms) == (None, None, None)


@pytest.mark.parametrize("first", [[], [(None, 0)], [(0, 0)]])
@pytest.mark.parametrize("committed", [0, None])
def test_a_queue_that_never_held_a_message_leaves_the_rates_known(first, committed):
    """For example, a retry topic that was created between the samples."""
    before = lag_of((5, 10), *first, online=True)
    after = lag_of((9, 40), (committed, 0), online=True)
    trend = compare(before.queues, after, elapsed_ms=10_000)
    assert (trend.group.rate_in, trend.group.rate_out) == (3.0, 0.4)
    (_, empty) = trend.queues.values()
    assert (empty.rate_in, empty.rate_out) == (0.0, 0.0)
    assert empty.verdict == ("NO_COMMIT" if committed is None else "OK")


def test_a_group_without_queues_has_no_rates():
    trend = compare(lag_of().queues, lag_of(), elapsed_ms=0).group
    assert (trend.rate_in, trend.verdict) == (None, "NO_COMMIT")


def states(samples, found, *, at_ms):
    trends = samples.take([found], at_ms=at_ms)
    return judge(found, trends.get("G")).state


def test_samples_are_compared_over_two_commit_intervals_at_least():
    """With `--watch 2s` and a commit every 5 s, most samples see no new commit."""
    samples = Samples()
    seen = []
    for second in range(0, 40, 2):
        committed = 100 * (second // 5)
        found = lag_of((committed, 20 + 20 * second), online=True)
        trends = samples.take([found], at_ms=second * 1000)
        seen.append(judge(found, trends.get("G")).state)
        if trends:
            assert trends["G"].group.rate_in == 20.0
            assert trends["G"].group.rate_out in (20.0, 30.0)
    assert set(seen) == {"OK", "BEHIND"}
    assert set(seen[5:]) == {"OK"}
    assert seen[:5] == ["BEHIND"] * 5


def test_a_group_that_stands_still_is_stalled_after_two_commit_intervals():
    samples = Samples()
    stuck = lag_of((10, 50), online=True)
    seen = [states(samples, stuck, at_ms=second * 1000) for second in range(0, 16, 2)]
    assert seen == ["BEHIND"] * 5 + ["STALLED"] * 3


def test_samples_far_apart_are_compared_one_with_the_next():
    samples = Samples()
    samples.take([lag_of((0, 100))], at_ms=0)
    samples.take([lag_of((60, 120))], at_ms=20_000)
    trend = samples.take([lag_of((100, 120))], at_ms=40_000)["G"].group
    assert (trend.rate_in, trend.rate_out) == (0.0, 2.0)


def test_a_clock_that_is_set_back_begins_anew():
    samples = Samples()
    stuck = lag_of((10, 50), online=True)
    samples.take([stuck], at_ms=100_000)
    assert samples.take([stuck], at_ms=50_000) == {}
    assert samples.take([stuck], at_ms=59_999) == {}
    assert samples.take([stuck], at_ms=60_000)["G"].group.verdict == "STALLED"


def test_a_group_that_comes_later_has_no_trend_at_first():
    samples = Samples()
    samples.take([], at_ms=0)
    assert samples.take([lag_of((10, 50))], at_ms=10_000) == {}


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (lag_of((10, 10)), "G has read everything."),
        (lag_of((5, 10)), "No member is online: nothing is read"),
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
    trend = compare(before.queues, after, elapsed_ms=20_000).group
    assert explain(after, trend)[-1] == (
        "BEHIND: 1 messages/s arrive, 3/s are consumed; the group will catch up in 30s."
    )


#: A queue of a group at one moment: committed, min and max offset, and whether its
#: broker answered.
_OFFSET = st.integers(0, 30)
_QUEUE = st.tuples(st.none() | _OFFSET, _OFFSET, _OFFSET, st.booleans())
_SAMPLE = st.tuples(
    st.lists(_QUEUE, min_size=1, max_size=3),
    st.sampled_from(["CLUSTERING", "BROADCASTING", None]),
    st.sampled_from(["T", "%RETRY%G"]),
)


def sampled(sample):
    queues, model, topic = sample
    return compute_lag(
        GroupReading(
            group="G",
            members=None if model is None else online_members(model),
            queues=[
                QueueReading(
                    topic=topic,
                    broker_name="broker-a",
                    queue_id=queue_id,
                    committed=committed,
                    min_offset=min(ends),
                    max_offset=max(ends),
                    inflight=3,
                    failure=None if is_known else "no answer",
                )
                for queue_id, (committed, *ends, is_known) in enumerate(queues)
            ],
        )
    )


@given(_SAMPLE, _SAMPLE, st.integers(1, 40_000))
def test_the_state_and_the_verdict_of_a_queue_never_contradict_each_other(
    first, second, elapsed_ms
):
    after = sampled(second)
    trend = compare(sampled(first).queues, after, elapsed_ms=elapsed_ms)
    for queue in after.queues:
        verdict = trend.queues[queue.key].verdict
        if queue.state == "OK":
            assert (queue.lag, verdict) == (0, "OK")
        elif queue.state == "KNOWN":
            assert queue.lag is not None
            assert queue.lag > 0
            assert verdict != "UNKNOWN"
        else:
            # Either the same, or something that is worse than the state.
            assert verdict not in ("OK", "BEHIND", "GROWING", None)
        if verdict == "UNKNOWN":
            assert queue.state == "UNKNOWN"
    assert judge(after, trend).state == trend.group.verdict


@given(_SAMPLE)
def test_nothing_is_in_flight_in_a_group_without_members(sample):
    _, model, _ = sample
    shown = {queue.inflight for queue in sampled(sample).queues}
    assert shown == {None if model is None else 3}


def test_a_member_whose_listener_is_slow_is_one_line():
    def held(cached):
        return ProcessQueueInfo(
            cached_msg_max_offset=cached - 1,
            cached_msg_count=cached,
            last_pull_timestamp=1_000,
            last_consume_timestamp=1_000,
        )

    def explained(*counts):
        info = ConsumerRunningInfo(
            properties={},
            subscriptions=(),
            process_queues={
                MessageQueue("orders", "broker-a", queue_id): held(count)
                for queue_id, count in enumerate(counts)
            },
        )
        clients = {"c1": read_running_info("c1", info, now_ms=1_000)}
        lines = explain(lag_of((5, 10), online=True, clients=clients))
        return [line for line in lines if line.startswith("c1")]

    assert explained(1_002) == [
        (
            "c1 holds 1,002 unprocessed messages of orders@broker-a:0 (limit 1,000) and"
            " has stopped fetching: its listener is slow."
        )
    ]
    assert explained(1_002, 7, 1_001) == [
        (
            "c1 holds 2,003 unprocessed messages of orders@broker-a:0,"
            " orders@broker-a:2 (limit 1,000 per queue) and has stopped fetching:"
            " its listener is slow."
        )
    ]


@pytest.mark.parametrize("apart_ms", [1_000, 10_000])
def test_groups_may_be_taken_out_of_a_sample_that_another_is_compared_with(apart_ms):
    samples = Samples(apart_ms=apart_ms)
    for at_ms in range(0, 30_000, apart_ms):
        then_ms, before = samples.baseline(at_ms=at_ms)
        assert (then_ms, before) == (
            (at_ms, {}) if at_ms < 10_000 else (at_ms - 10_000, {"billing": ()})
        )
        before.clear()
        samples.add({"billing": ()}, at_ms=at_ms)
