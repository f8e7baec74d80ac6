"""Messages to be delivered later: by delay level, or at a time (5.x).

Such a message is stored in one of RocketMQ's own topics until then, and its properties
name the topic and queue to which it will be delivered.
Not imitated: flow control of the timer wheel.

Source: `HookUtils.handleScheduleMessage` (5.x), `CommitLog.asyncPutMessage` (4.x).
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import Refusal
from rmqcli.broker.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TOPIC_LENGTH_MAX
from rmqcli.errors import ConfigError
from rmqcli.files import file_name_fault
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY
from rmqcli.wire.message.system_flag import TRANSACTION_PREPARED, transaction_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.wire.message.encode import MessageFields

DELAY: Final = "DELAY"  # PROPERTY_DELAY_TIME_LEVEL
REAL_QID: Final = "REAL_QID"  # PROPERTY_REAL_QUEUE_ID
TIMER_OUT_MS: Final = "TIMER_OUT_MS"

TIMER_PRECISION_MS: Final = 1_000  # timerPrecisionMs
TIMER_DELAY_MS_MAX: Final = 3 * 24 * 3600 * 1000  # timerMaxDelaySec

DELIVER_MS: Final = "TIMER_DELIVER_MS"
DELAY_SEC: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"
_TIMER_KEYS: Final = (DELAY_SEC, DELAY_MS, DELIVER_MS)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])")
_DIGITS_MAX: Final = 18
_QUEUE_DIGITS_MAX: Final = 9


def delete_key(topic: str, unique_key: str, settings: BrokerSettings) -> str:
    """Return the key by which a deleting message names the message to delete.

    Source: TimerMessageStore.buildDeleteKey in 5.5.0.
    """
    has_topic = settings.append_topic_for_timer_delete_key
    return f"{topic}+{unique_key}" if has_topic else unique_key


class Delays:
    """How one broker delays messages: by level, and from 5.x on until a time.

    Raises ConfigError for levels that cannot be read.
    """

    def __init__(self, levels: str, *, has_timer: bool) -> None:
        self._delays_ms = parse_levels(levels)
        self._has_timer = has_timer

    @property
    def level_max(self) -> int:
        """The highest level; it also applies to messages with a higher level."""
        return len(self._delays_ms)

    def delay_ms(self, level: int) -> int | None:
        """The delay of a level; None for a level that does not exist."""
        if not 1 <= level <= len(self._delays_ms):
            return None
        return self._delays_ms[level - 1]

    def redirected(
        self, fields: MessageFields, properties: dict[str, str], now: Now
    ) -> MessageFields:
        """Return the message as it must be stored: unchanged, or in a topic for later.

        `properties` are the message's, and are modified. Raises Refusal(1) for a delay
        level that is not a number, and Refusal(13) for a time that is not a number or
        too far away, or for a deletion at a time that has passed.
        """
        if transaction_type(fields.sys_flag) & TRANSACTION_PREPARED:
            return fields
        level = delay_level(properties)
        if level > 0:
            if self._has_timer:
                for key in (DELIVER_MS, DELAY_SEC):
                    properties.pop(key, None)
            queue_id = min(level, self.level_max) - 1
            return _moved(fields, properties, SCHEDULE_TOPIC, queue_id)
        if self._has_timer and any(key in properties for key in _TIMER_KEYS):
            return _timed(fields, properties, now)
        return fields


def parse_levels(text: str) -> list[int]:
    """Return the delays of `messageDelayLevel` in ms, level 1 first.

    Raises ConfigError for text that cannot be read.
    """
    delays: list[int] = []
    for item in text.split():
        match = _LEVEL.fullmatch(item)
        if match is None:
            raise ConfigError(
                f"message_delay_level: {item!r} is not a whole number of seconds (s),"
                " minutes (m), hours (h) or days (d), such as 10s"
            )
        delays.append(int(match[1]) * _UNITS_MS[match[2]])
    if not delays:
        raise ConfigError("message_delay_level must have at least one delay")
    return delays


def delay_level(properties: dict[str, str]) -> int:
    """Return the level in the DELAY property, or 0 without it.

    Raises Refusal(1) if it is not a number: the answer to Java's NumberFormatException.
    """
    text = properties.get(DELAY)
    if text is None:
        return 0
    return _number(text, DELAY, ResponseCode.SYSTEM_ERROR)


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a delay, by level or time, valid or not."""
    return DELAY in properties or any(key in properties for key in _TIMER_KEYS)


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the topic and queue id for which a message waits.

    None if the properties lack them, or if they are invalid.
    """
    topic = properties.get(REAL_TOPIC)
    queue_id = properties.get(REAL_QID, "")
    if not topic or file_name_fault(topic) or len(topic.encode()) > TOPIC_LENGTH_MAX:
        return None
    if not queue_id.isdecimal() or len(queue_id) > _QUEUE_DIGITS_MAX:
        return None
    return topic, int(queue_id)


def _timed(
    fields: MessageFields, properties: dict[str, str], now: Now
) -> MessageFields:
    if TIMER_OUT_MS in properties:
        return fields
    due_ms = _due_ms(properties, now)
    if due_ms <= now.epoch_ms:
        if TIMER_DEL_UNIQKEY in properties:
            raise _illegal()
        return fields
    if due_ms - now.epoch_ms > TIMER_DELAY_MS_MAX:
        raise _illegal()
    # A time at a full second is set one step of the precision earlier, because the
    # timer wheel delivers one step late.
    properties[TIMER_OUT_MS] = str((due_ms - 1) // TIMER_PRECISION_MS * 1000)
    return _moved(fields, properties, TIMER_TOPIC, 0)


def _due_ms(properties: dict[str, str], now: Now) -> int:
    illegal = ResponseCode.MESSAGE_ILLEGAL
    for key, unit_ms in ((DELAY_SEC, 1_000), (DELAY_MS, 1)):
        if key in properties:
            return now.epoch_ms + _number(properties[key], key, illegal) * unit_ms
    return _number(properties[DELIVER_MS], DELIVER_MS, illegal)


def _moved(
    fields: MessageFields, properties: dict[str, str], topic: str, queue_id: int
) -> MessageFields:
    properties[REAL_TOPIC] = fields.topic
    properties[REAL_QID] = str(fields.queue_id)
    return dataclasses.replace(
        fields, topic=topic, queue_id=queue_id, properties=properties
    )


def _number(text: str, key: str, code: int) -> int:
    digits = text[1:] if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        if code == ResponseCode.MESSAGE_ILLEGAL:
            raise _illegal()
        raise Refusal(code, f'NumberFormatException: For input string: "{text[:40]}"')
    return int(text)


def _illegal() -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{TIMER_DELAY_MS_MAX}ms; or if set del msg, the delay time should be bigger "
        "than the current time",
    )
