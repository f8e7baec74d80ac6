"""`--delay`: a level, or a time that the broker keeps exactly, or a refusal."""

from __future__ import annotations

import pytest

from rmqcli.errors import TextError, UnsupportedError
from rmqcli.producer.delay import (
    LEVELS_DEFAULT,
    Delay,
    delay_properties,
    parse_delay,
    parse_delay_levels,
)
from rmqcli.wire.version import V4_6_0, V4_9_7, V5_0_0, V5_5_0

LEVELS = parse_delay_levels(LEVELS_DEFAULT)


def test_levels_are_those_of_java():
    assert (len(LEVELS), LEVELS[0], LEVELS[2], LEVELS[17]) == (
        18,
        1000,
        10_000,
        7_200_000,
    )
    assert parse_delay_levels("1d 5x") == [86_400_000, 0]


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("1", Delay(level=1)),
        ("20", Delay(level=20)),
        ("90s", Delay(delay_ms=90_000)),
        ("1h30m", Delay(delay_ms=5_400_000)),
    ],
)
def test_parse(text, delay):
    assert parse_delay(text) == delay


@pytest.mark.parametrize(
    "text", ["0", "", "-1", "soon", "0s", "٣", "9" * 30, "0" * 10 + "55"]
)
def test_a_bad_delay_is_a_usage_error(text):
    with pytest.raises(TextError):
        parse_delay(text)


@pytest.mark.parametrize(
    ("text", "version", "properties"),
    [
        ("3", V4_6_0, {"DELAY": "3"}),
        ("3", V5_5_0, {"DELAY": "3"}),
        ("10s", V4_9_7, {"DELAY": "3"}),
        ("2h", V4_6_0, {"DELAY": "18"}),
        ("10s", V5_0_0, {"TIMER_DELAY_SEC": "10"}),
        ("7s", V5_5_0, {"TIMER_DELAY_SEC": "7"}),
    ],
)
def test_properties(text, version, properties):
    found = delay_properties(parse_delay(text), version=version, settings={})
    assert found == properties


OTHER_LEVELS = {"messageDelayLevel": "1s 5s 7d"}
NO_TIMERS = {"timerWheelEnable": "false"}


@pytest.mark.parametrize(
    ("text", "settings", "properties"),
    [
        ("3", OTHER_LEVELS, {"DELAY": "3"}),
        ("20", {"messageDelayLevel": f"{LEVELS_DEFAULT} 1d 7d"}, {"DELAY": "20"}),
        ("5s", OTHER_LEVELS | NO_TIMERS, {"DELAY": "2"}),
        ("7d", OTHER_LEVELS | {"timerMaxDelaySec": "259200"}, {"DELAY": "3"}),
        ("1h", {"timerMaxDelaySec": "3600"}, {"TIMER_DELAY_SEC": "3600"}),
    ],
)
def test_what_a_broker_of_5_is_configured_for_decides(text, settings, properties):
    """A broker without timers, or with a shorter limit, still has its levels."""
    found = delay_properties(parse_delay(text), version=V5_5_0, settings=settings)
    assert found == properties


@pytest.mark.parametrize(
    ("text", "version", "settings", "words"),
    [
        ("7s", V4_9_7, {}, "RocketMQ 4.9.7 only has the levels 1s 5s 10s"),
        ("7ms", V5_5_0, {}, "must be in whole seconds"),
        (
            "7s",
            V5_5_0,
            OTHER_LEVELS | NO_TIMERS,
            "RocketMQ 5.5.0 has timerWheelEnable=false and only has the levels 1s 5s",
        ),
        ("90s", V5_5_0, {"timerMaxDelaySec": "60"}, "the limit of the broker is 1m"),
        ("4", V5_5_0, OTHER_LEVELS, "the broker has the levels 1s 5s 7d"),
        ("19", V4_9_7, {}, "delay level 19 does not exist"),
    ],
)
def test_a_delay_that_cannot_be_kept_is_refused(text, version, settings, words):
    with pytest.raises(UnsupportedError, match=words):
        delay_properties(parse_delay(text), version=version, settings=settings)
