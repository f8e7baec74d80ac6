"""Messages that RocketMQ would refuse, or lose silently, are refused before a send."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rmqcli.errors import ConfigError, UsageError
from rmqcli.names import check_topic
from rmqcli.producer.message import (
    OutgoingMessage,
    ProducerMessage,
    check_message,
    check_user_properties,
    with_settings,
)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%g", "%DLQ%g-1", "a|b", "x" * 127])
def test_topics_that_brokers_take(topic):
    check_topic(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "x" * 128,
        "../../x",
        "a/b",
        "a\0",
        "a b",
        "naïve",
        "\u202e",
        "a\n",
        "\x1b[2J",
    ],
)
def test_topics_that_no_broker_takes(topic):
    with pytest.raises(UsageError):
        check_topic(topic)


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "TRAN_MSG"])
def test_names_of_rocketmq_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} is RocketMQ's own"):
        check_user_properties({name: "x"})
    check_user_properties({"colour": "x", "__SHARDINGKEY": "s"})


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"a": ""}, "'a' has no value"),
        ({"": "a"}, "has no name"),
        ({"a\x01b": "c"}, "separator"),
        ({"a": "b\x02c"}, "separator"),
        ({"a": "\ud800"}, "not valid Unicode"),
        (
            {"a": "x" * 32_300},
            "properties of 32303 bytes are larger than the limit of 32255",
        ),
    ],
)
def test_properties_that_would_not_arrive(properties, words):
    with pytest.raises(UsageError, match="line 9: ") as caught:
        check_message(OutgoingMessage(b"", properties, source="line 9"))
    assert words in caught.value.message


def test_the_command_line_wins_over_the_record():
    message = OutgoingMessage(b"b", {"TAGS": "A", "KEYS": "k", "p": "1"}, 3, "line 1")
    assert with_settings(message, tag="B", keys=["x", "y"], properties={"q": "2"}) == (
        OutgoingMessage(
            b"b", {"TAGS": "B", "KEYS": "x y", "p": "1", "q": "2"}, 3, "line 1"
        )
    )
    assert with_settings(message, tag=None, keys=(), properties={}) is message


@pytest.mark.parametrize(
    ("name", "smallest", "largest"),
    [
        ("delay_level", 1, 2_147_483_647),
        ("delay_ms", 1, 2_147_483_647_000),
        ("deliver_at_ms", 100_000_000_000, 2**63 - 1),  # before it, seconds are meant
    ],
)
def test_a_delay_is_a_number_in_its_bounds(name, smallest, largest):
    make: Any = functools.partial(ProducerMessage, "T", b"")
    for value in (smallest, largest):
        make(**{name: value})
    for value in (0, smallest - 1, largest + 1):
        with pytest.raises(ConfigError, match=f"{name} "):
            make(**{name: value})


def test_a_property_s_name_and_value_are_texts():
    with pytest.raises(TypeError, match="the name of a property"):
        check_user_properties({1: "x"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="property a"):
        check_user_properties({"a": 1})  # type: ignore[dict-item]
