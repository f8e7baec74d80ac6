"""`--delay LEVEL|DURATION`: the property that makes a broker deliver a message later.

Brokers up to 4.9 know only fixed levels; brokers from 5.0 on accept any duration.

Source: MessageStoreConfig.messageDelayLevel, ScheduleMessageService.parseDelayLevel,
TimerMessageStore in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import BrokerError, TextError, UnsupportedError
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.units import (
    DURATION_UNITS_MS,
    format_duration,
    parse_duration_ms,
    read_count,
)
from rmqcli.wire.version import V5_0_0, version_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.client import Client

LEVEL_MAX = 2**31 - 1
LEVELS_DEFAULT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_LEVEL = re.compile(r"([0-9]{1,9})([smhd])")


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay: either a level of the broker's table, or a duration."""

    level: int | None = None
    delay_ms: int | None = None


def parse_delay(text: str) -> Delay:
    """Parse `3` (a level) or `90s` (a duration). Raises TextError."""
    if text.isascii() and text.isdigit():
        level = int(text) if len(text) <= 10 else LEVEL_MAX + 1
        if not 1 <= level <= LEVEL_MAX:
            what = f"a delay level must be between 1 and {LEVEL_MAX}"
            hint = f"add a unit for a duration: {text}s"
            raise TextError(text, what, start=0, end=len(text), hint=hint)
        return Delay(level=level)
    delay_ms = parse_duration_ms(text)
    if not delay_ms:
        raise TextError(text, "must be greater than zero", start=0, end=len(text))
    return Delay(delay_ms=delay_ms)


def parse_delay_levels(text: str) -> list[int]:
    """The milliseconds of each level, beginning with level 1; 0 for invalid levels."""
    levels = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        levels.append(
            int(match[1]) * DURATION_UNITS_MS[match[2]] if match is not None else 0
        )
    return levels


def levels_of(settings: Mapping[str, str]) -> list[int]:
    """The milliseconds of each level of a broker with these settings."""
    return parse_delay_levels(settings.get("messageDelayLevel", LEVELS_DEFAULT))


def no_level(
    level: int, levels: Iterable[int], *, hint: str | Hint = ""
) -> UnsupportedError:
    """The error for a level that a broker lacks: it would use its last one instead."""
    known = " ".join(map(format_duration, levels))
    return UnsupportedError(
        f"delay level {level} does not exist: the broker has the levels {known}",
        hint=hint,
    )


def delay_properties(
    delay: Delay, *, version: int, settings: Mapping[str, str]
) -> dict[str, str]:
    """The properties to send to a broker with this version (an MQVersion ordinal).

    `settings` are those of the broker. Raises UnsupportedError when it cannot delay for
    exactly this duration, and for a level that it does not have: it would use its last.
    """
    levels = levels_of(settings)
    known = " ".join(map(format_duration, levels))
    if delay.level is not None:
        if delay.level > len(levels):
            hint = f"add a unit for a duration: {delay.level}s"
            raise no_level(delay.level, levels, hint=hint)
        return {"DELAY": str(delay.level)}
    delay_ms = delay.delay_ms or 0
    has_timers = version >= V5_0_0 and settings.get("timerWheelEnable") != "false"
    longest_s = read_count(settings.get("timerMaxDelaySec"))
    is_allowed = longest_s is None or delay_ms <= longest_s * 1000
    if has_timers and delay_ms % 1000 == 0 and is_allowed:
        return {"TIMER_DELAY_SEC": str(delay_ms // 1000)}
    if delay_ms in levels:
        return {"DELAY": str(levels.index(delay_ms) + 1)}
    wanted = f"a delay of {format_duration(delay_ms)} is not possible"
    if not has_timers:
        off = " has timerWheelEnable=false and" if version >= V5_0_0 else ""
        raise UnsupportedError(
            f"{wanted}: RocketMQ {version_name(version)}{off} only has the levels"
            f" {known}",
            hint="use one of these durations, or the number of a level",
        )
    if not is_allowed:
        raise UnsupportedError(
            f"{wanted}: the limit of the broker is"
            f" {format_duration((longest_s or 0) * 1000)}",
            hint="raise timerMaxDelaySec on the broker, or use a shorter delay",
        )
    raise UnsupportedError(f"{wanted}: it must be in whole seconds")


def resolve_delay(
    client: Client, delay: Delay, addresses: Iterable[str]
) -> dict[str, str]:
    """Return `delay_properties` for the brokers at `addresses`.

    Asks each broker for its version and levels. A level is not checked at a broker that
    refuses to tell. Raises UnsupportedError when a broker does not support the delay,
    or when the brokers need different properties; RmqError when a broker cannot be
    asked.
    """
    from rmqcli.api.calls.config import get_broker_config

    found: dict[str, str] | None = None
    for address in addresses:
        try:
            version = client.broker_version(address)
            settings = client.invoke(address, get_broker_config())
            properties = delay_properties(delay, version=version, settings=settings)
        except BrokerError:
            if delay.level is None:
                raise
            properties = {"DELAY": str(delay.level)}
        if found is not None and found != properties:
            raise UnsupportedError(
                "the topic's brokers differ in their versions or delay levels, so they"
                " need different properties for this delay",
                hint=Hint(
                    "choose queues of one broker with ",
                    Setting("queues", Blank("[QUEUE]")),
                ),
            )
        found = properties
    return found or {}
