"""The settings of a consumer that are accepted, and the errors for others."""

from __future__ import annotations

import pytest

from rmqcli import Consumer, SimpleConsumer
from rmqcli.engine.config import ConsumerConfig
from rmqcli.errors import ConfigError
from rmqcli.names import check_group, check_member_group, check_topic
from tests.kit.rows import each_row

#: The ranges of checkConfig in 4.6.0; None takes the place of Java's -1.
RANGES = [
    ("consume_threads", 1, 1_000),
    ("consume_concurrently_max_span", 1, 65_535),
    ("pull_threshold_for_queue", 1, 65_535),
    ("pull_threshold_size_for_queue_mib", 1, 1_024),
    ("pull_threshold_for_topic", 1, 6_553_500),
    ("pull_threshold_size_for_topic_mib", 1, 102_400),
    ("pull_interval_ms", 0, 65_535),
    ("pull_batch_size", 1, 1_024),
    ("consume_message_batch_max_size", 1, 1_024),
    ("suspend_current_queue_time_ms", 10, 30_000),
    ("heartbeat_broker_interval_ms", 100, 100_000),
    # Java does not have these settings, or does not check them.
    ("consume_timestamp_ms", 0, 253_402_300_799_999),
    ("max_reconsume_times", 0, 2_147_483_647),
    ("consume_timeout_ms", 1, 86_400_000),
    ("await_termination_ms", 0, 3_600_000),
    ("pull_time_delay_when_exception_ms", 10, 60_000),
    ("poll_namesrv_interval_ms", 100, 600_000),
    ("persist_consumer_offset_interval_ms", 100, 600_000),
    ("rebalance_interval_ms", 100, 600_000),
    ("cached_bytes_max", 1, 9_223_372_036_854_775_807),
]


def test_the_default_settings_are_java_s_and_are_accepted():
    config = ConsumerConfig()
    assert (config.consume_threads, config.pull_batch_size) == (20, 32)
    assert config.consume_concurrently_max_span == 2_000
    assert config.pull_threshold_for_queue == 1_000
    assert config.pull_threshold_size_for_queue_mib == 100
    assert config.consume_timeout_ms == 900_000
    assert config.pull_time_delay_when_exception_ms == 1_000


@each_row(("name", "low", "high"), RANGES)
def test_a_setting_may_have_the_ends_of_its_range_and_nothing_beyond(name, low, high):
    """Source: DefaultMQPushConsumerTest.testCheckConfig, checkConfigTest."""
    ConsumerConfig(**{name: low})
    ConsumerConfig(**{name: high})
    for value in (low - 1, high + 1):
        with pytest.raises(
            ConfigError, match=f"{name} is {value}; it must be {low} to"
        ):
            ConsumerConfig(**{name: value})


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("g" * 256, "256 characters"),
        ("a b", "not allowed"),
        ("\x1b[2J", "not allowed"),
        ("../x", "not allowed"),
        ("grüppe", "not allowed"),
        ("g\n", "not allowed"),
        ("DEFAULT_CONSUMER", "cannot be a group name"),
    ],
)
def test_names_that_brokers_refuse_are_refused_here(group, why):
    with pytest.raises(ConfigError, match=why):
        check_group(group)


def test_names_of_the_greatest_length_are_accepted():
    check_group("g" * 255)
    check_member_group("g" * 248)
    check_topic("t" * 127)


@pytest.mark.parametrize("kind", [Consumer, SimpleConsumer])
def test_a_group_whose_retry_topic_brokers_cannot_store_has_no_members(kind):
    """A broker accepted its heartbeats and did not register it, and `rmq consume`
    ended with exit code 0, having consumed nothing."""
    with pytest.raises(ConfigError, match="249 characters, more than 248"):
        kind("g" * 249, "orders", namesrv="127.0.0.1:9")


@pytest.mark.parametrize("topic", ["", "t" * 128, "a/b", "a b"])
def test_names_that_no_topic_can_have_are_refused(topic):
    with pytest.raises(ConfigError, match="topic"):
        check_topic(topic)


@pytest.mark.parametrize("name", ["client_ip", "instance_name"])
@pytest.mark.parametrize("text", ["", "a b", "a@b", "a\n"])
def test_parts_of_the_client_id_must_have_text_and_no_separators(name, text):
    with pytest.raises(ConfigError, match=name):
        ConsumerConfig(**{name: text})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"consume_threads": "x"},
            "consume_threads is 'x', a str; it must be an int",
        ),
        (
            {"max_reconsume_times": True},
            "max_reconsume_times is True, a bool; it must be an int or None",
        ),
        (
            {"like_4_6_offset_illegal": 1},
            "like_4_6_offset_illegal is 1, an int; it must be a bool",
        ),
        ({"client_ip": 1.5}, "client_ip is 1.5, a float; it must be a str or None"),
        (
            {"strategy": "AVG"},
            "strategy is 'AVG'; it must be an AllocateMessageQueueStrategy",
        ),
        (
            {"message_model": "CLUSTERING"},
            "message_model is 'CLUSTERING', a str; it must be a MessageModel",
        ),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused_where_it_is_made(settings, message):
    with pytest.raises(TypeError, match="it must be") as caught:
        ConsumerConfig(**settings)
    assert str(caught.value) == message
