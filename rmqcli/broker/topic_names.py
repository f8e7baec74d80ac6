"""The names of RocketMQ's own topics, and the rules for names of topics and groups.

Source: `TopicValidator` and `MixAll` in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

logger = get_logger(__name__)

DEFAULT_TOPIC: Final = "TBW102"  # AUTO_CREATE_TOPIC_KEY_TOPIC
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

TOPIC_LENGTH_MAX: Final = 127

#: Topics that clients cannot write.
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        OFFSET_MOVED_EVENT,
    }
)

_SYSTEM_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {
    DEFAULT_TOPIC,
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
_SYSTEM_PREFIX: Final = "rmq_sys_"

LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    """Whether this is one of RocketMQ's own topics; not those named after a broker."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def topic_name_fault(topic: str) -> str | None:
    """Why a topic name is illegal, in RocketMQ's words; None for a legal name."""
    if not topic.strip():
        return "The specified topic is blank."
    if not LEGAL_NAME.fullmatch(topic):
        return (
            "The specified topic contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def is_stored_name(kind: str, name: str, fault_of: Callable[[str], str | None]) -> bool:
    """Whether a stored topic or group (`kind`) has a legal name; warns otherwise."""
    fault = fault_of(name)
    if fault is not None:
        logger.warning(
            "stored %s skipped %s=%.60r: the name %s", kind, kind, name, fault
        )
    return fault is None
