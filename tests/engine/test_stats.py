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
    stats = TopicStats(10_000)
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
    stats = TopicStats(0)
    for number in range(500):
        stats.consume_failed += 1
        stats.sample(number * 10_000)
    assert stats.status(5_000_000).consume_failed_msgs == 360
    assert len(stats._samples) == 361  # the most that are kept


def test_where_nothing_happened_all_rates_are_0():
    stats = TopicStats(10_000)
    assert stats.status(10_000) == ConsumeStatus(
        pull_rt=0.0,
        pull_tps=0.0,
        consume_rt=0.0,
        consume_ok_tps=0.0,
        consume_failed_tps=0.0,
        consume_failed_msgs=0,
    )


def test_seven_samples_at_the_same_time_count_as_a_millisecond():
    """They may be late, all of them, in a process that was stopped."""
    stats = TopicStats(10_000)
    for _ in range(7):
        stats.sample(20_000)
    stats.pulled += 3
    assert stats.status(20_000).pull_tps == 3_000.0


def test_the_first_rates_are_those_of_the_ten_seconds_before_the_first_message():
    """As Java's after its first sample. The machine's uptime does not matter."""
    stats = TopicStats(5_000_000)
    count(stats)
    assert stats.status(5_000_000) == ConsumeStatus(
        pull_rt=4.0,
        pull_tps=2.0,
        consume_rt=3.0,
        consume_ok_tps=1.5,
        consume_failed_tps=0.5,
        consume_failed_msgs=5,
    )
    assert stats.status(5_010_000).pull_tps == 1.0


def test_messages_that_failed_before_the_first_sample_are_counted_after_it():
    """The number fell from 5 to 0."""
    stats = TopicStats(5_000_000)
    count(stats)
    stats.sample(5_008_000)
    assert stats.status(5_008_000).consume_failed_msgs == 5


def test_the_mean_time_of_consuming_counts_failed_messages_too():
    stats = TopicStats(0)
    stats.consume_failed, stats.consume_rt_ms = 2, 8
    assert stats.status(1_000).consume_rt == 4.0


def test_each_topic_has_its_own_counts_and_all_are_sampled():
    stats = ConsumerStats(lambda: 10_000)
    first, second = stats.of("a"), stats.of("b")
    assert stats.of("a") is first is not second
    first.pulled, second.pulled = 10, 20
    assert [each.status(10_000).pull_tps for each in (first, second)] == [1.0, 2.0]
    for now_ms in range(20_000, 90_000, 10_000):
        stats.sample(now_ms)
    assert [each.status(90_000).pull_tps for each in (first, second)] == [0.0, 0.0]


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
    world.run(1_000)
    world.found([3])
    assert (stats.pulls, stats.pulled, stats.consume_ok) == (2, 4, 3)
    assert stats.pull_rt_ms == 1_030
    assert stats.consume_rt_ms == 28
