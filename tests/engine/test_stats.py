"""The counts of a topic, and the rates that a member reports for it."""

from __future__ import annotations

from rmqcli.engine.stats import ConsumerStats, TopicStats
from rmqcli.wire.bodies.consumer import ConsumeStatus
from tests.engine.world import TOPIC, started


def count(stats, *, times=1):
    """Count ten pulls of two messages each, every fourth of which fails."""
    stats.pulls += 10 * times
    stats.pull_rt_ms += 40 * times
    stats.pulled += 20 * times
    stats.consume_ok += 15 * times
    stats.consume_failed += 5 * times
    stats.consume_rt_ms += 60 * times


def test_rates_are_those_since_the_seventh_sample_from_the_end():
    """The number of failed messages is that of the last hour, so it is larger."""
    stats = TopicStats()
    stats.sample(0)
    count(stats, times=100)
    stats.pull_rt_ms += 9_000
    stats.consume_rt_ms += 9_000
    for number in range(1, 4):
        stats.sample(number * 10_000)
    for number in range(4, 10):
        count(stats)
        stats.sample(number * 10_000)
    count(stats)
    assert stats.status(100_000) == ConsumeStatus(
        pull_rt=4.0,
        pull_tps=2.0,
        consume_rt=3.0,
        consume_ok_tps=1.5,
        consume_failed_tps=0.5,
        consume_failed_msgs=535,
    )


def test_failed_messages_are_counted_for_an_hour():
    stats = TopicStats()
    for number in range(500):
        stats.consume_failed += 1
        stats.sample(number * 10_000)
    assert stats.status(5_000_000).consume_failed_msgs == 360
    assert len(stats._samples) == 361  # the most that are kept


def test_where_nothing_happened_all_rates_are_0():
    stats = TopicStats()
    stats.sample(10_000)
    assert stats.status(10_000) == ConsumeStatus(
        pull_rt=0.0,
        pull_tps=0.0,
        consume_rt=0.0,
        consume_ok_tps=0.0,
        consume_failed_tps=0.0,
        consume_failed_msgs=0,
    )


def test_two_samples_at_the_same_time_count_as_a_millisecond_apart():
    stats = TopicStats()
    stats.sample(10_000)
    stats.pulled += 3
    assert stats.status(10_000).pull_tps == 3_000.0


def test_before_the_first_sample_mean_times_are_those_of_all_messages():
    stats = TopicStats()
    count(stats)
    found = stats.status(20_000)
    assert (found.pull_rt, found.consume_rt) == (4.0, 3.0)
    assert found.consume_failed_msgs == 5


def test_the_mean_time_of_consuming_counts_failed_messages_too():
    stats = TopicStats()
    stats.sample(0)
    stats.consume_failed, stats.consume_rt_ms = 2, 8
    assert stats.status(1_000).consume_rt == 4.0


def test_each_topic_has_its_own_counts_and_all_are_sampled():
    stats = ConsumerStats()
    first, second = stats.of("a"), stats.of("b")
    assert stats.of("a") is first is not second
    stats.sample(0)
    first.pulled, second.pulled = 10, 20
    assert [each.status(10_000).pull_tps for each in (first, second)] == [1.0, 2.0]
    assert (stats.flow_control_times, stats.span_flow_control_times) == (0, 0)
    assert (stats.offset_corrections, stats.retries) == (0, 0)


def test_a_member_counts_pulls_and_what_its_listener_did():
    """It counts the times of pulls and of the listener, and failures, by topic."""

    def act(messages, _):
        world.clock.advance(7)
        return messages[0].queue_offset != 1

    world = started(act=act)
    world.run(30)
    world.found([0, 1, 2])
    stats = world.member.stats.of(TOPIC)
    assert (stats.pulls, stats.pull_rt_ms, stats.pulled) == (1, 30, 3)
    assert (stats.consume_ok, stats.consume_failed) == (2, 1)
    assert stats.consume_rt_ms == 21
    assert world.member.stats.retries == 1
    world.run(1_000)
    world.found([3])
    assert (stats.pulls, stats.pulled, stats.consume_ok) == (2, 4, 3)
    assert stats.pull_rt_ms == 1_030
    assert stats.consume_rt_ms == 28
