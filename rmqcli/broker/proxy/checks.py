"""Checks that the proxy makes before a broker sees a request: names, texts, durations.

Source: `GrpcValidator` and `Validators` in apache/rocketmq, `Durations` and
`Timestamps` in protobuf-java.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from rmqcli.broker.proxy.status import ProxyError, internal_error
from rmqcli.broker.topic_names import LEGAL_NAME, TOPIC_LENGTH_MAX, is_system_topic
from rmqcli.wire.protobuf.definition_pb2 import Code, Resource

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp


INVISIBLE_MS_MAX: Final = 12 * 3600 * 1000  # maxInvisibleTimeMills

_GROUP_LENGTH_MAX: Final = 120
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
#: System topics in the proxy's list that are not in the broker's list.
_SYSTEM_TOPICS: Final = frozenset({"CHECKPOINT_TOPIC"})
_LEGAL_TEXT: Final = "^[%|a-zA-Z0-9_-]+$"
_LITE_TOPIC_BYTES_MAX: Final = 64  # maxLiteTopicSize
_LEGAL_LITE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_DURATION_SECONDS_MAX: Final = 315_576_000_000
_TIMESTAMP_SECONDS: Final = range(-62_135_596_800, 253_402_300_800)
_NANOS_MAX: Final = 999_999_999


def checked_names(topic: Resource, group: Resource) -> tuple[str, str]:
    """Return the names of a topic and of a group. Raises ProxyError."""
    check_topic(topic.name)
    check_group(group.name)
    return topic.name, group.name


def check_topic(topic: str) -> None:
    """Raise ProxyError(ILLEGAL_TOPIC) for an illegal name or system topic."""
    fault = None
    if not topic.strip():
        fault = "The specified topic is blank"
    elif len(topic) > TOPIC_LENGTH_MAX:
        fault = (
            f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
        )
    elif not LEGAL_NAME.fullmatch(topic):
        fault = (
            f"The specified topic[{topic}] contains illegal characters, allowing only"
            f" {_LEGAL_TEXT}"
        )
    elif is_system_topic(topic) or topic in _SYSTEM_TOPICS:
        fault = "cannot access system topic"
    if fault is not None:
        raise ProxyError(Code.ILLEGAL_TOPIC, fault)


def check_group(group: str) -> None:
    """Raise ProxyError(ILLEGAL_CONSUMER_GROUP) for an illegal name or system group."""
    fault = None
    if not group.strip():
        fault = "the specified group is blank"
    elif len(group) > _GROUP_LENGTH_MAX:
        fault = (
            f"the specified group[{group}] is longer than group max length:"
            f" {_GROUP_LENGTH_MAX}."
        )
    elif not LEGAL_NAME.fullmatch(group):
        fault = (
            f"the specified group[{group}] contains illegal characters, allowing only"
            f" {_LEGAL_TEXT}"
        )
    elif group.startswith(_SYSTEM_GROUP_PREFIX):
        fault = "cannot use system consumer group"
    if fault is not None:
        raise ProxyError(Code.ILLEGAL_CONSUMER_GROUP, fault)


def check_lite_topic(lite_topic: str) -> None:
    """Raise ProxyError(ILLEGAL_LITE_TOPIC) for an illegal name."""
    fault = None
    if not lite_topic.strip():
        fault = "lite topic cannot be the char sequence of whitespace"
    elif len(lite_topic.encode()) > _LITE_TOPIC_BYTES_MAX:
        fault = f"lite topic exceed the max size {_LITE_TOPIC_BYTES_MAX}"
    elif not _LEGAL_LITE.fullmatch(lite_topic):
        fault = (
            "lite topic can only contain alphanumeric characters, hyphens(-), and"
            " underscores(_)"
        )
    if fault is not None:
        raise ProxyError(Code.ILLEGAL_LITE_TOPIC, fault)


def check_text(text: str, code: Code, what: str) -> None:
    """Raise ProxyError(`code`) for a text of blanks only or with control characters."""
    if text and not text.strip():
        raise ProxyError(code, f"{what} cannot be the char sequence of whitespace")
    if has_control_characters(text):
        raise ProxyError(code, f"{what} cannot contain control character")


def has_control_characters(text: str) -> bool:
    """Whether a text has one of Java's ISO control characters."""
    return not text.isprintable() and any(
        unicodedata.category(character) == "Cc" for character in text
    )


def check_invisible(invisible_ms: int, *, min_ms: int = 0) -> None:
    """Raise ProxyError(ILLEGAL_INVISIBLE_TIME) for a time that is out of range."""
    code = Code.ILLEGAL_INVISIBLE_TIME
    if invisible_ms < min_ms:
        raise ProxyError(code, f"the invisibleTime is too small. min is {min_ms}")
    if invisible_ms > INVISIBLE_MS_MAX:
        raise ProxyError(
            code, f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}"
        )


def duration_ms(duration: Duration) -> int:
    """Return a duration in ms, rounded towards zero; 0 if it is not set.

    Raises ProxyError(INTERNAL_SERVER_ERROR) for a value that protobuf does not allow.
    """
    seconds, nanos = duration.seconds, duration.nanos
    if (
        abs(seconds) > _DURATION_SECONDS_MAX
        or abs(nanos) > _NANOS_MAX
        or (seconds < 0 < nanos)
        or (nanos < 0 < seconds)
    ):
        raise internal_error("Duration is not valid")
    return seconds * 1000 + int(nanos / 1_000_000)


def timestamp_ms(timestamp: Timestamp) -> int | None:
    """Return a time in epoch ms; None for a value that protobuf does not allow."""
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if seconds not in _TIMESTAMP_SECONDS or not 0 <= nanos <= _NANOS_MAX:
        return None
    return seconds * 1000 + nanos // 1_000_000
