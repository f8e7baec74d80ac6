"""A message on its way out, and what RocketMQ would not take or not keep.

Checked before anything is sent, so that nothing is lost without a word: RocketMQ drops
properties without a value, and cannot write some characters.

Source: Validators, Message.putUserProperty, MessageConst.STRING_HASH_SET and
TopicValidator in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.errors import UsageError
from rmqcli.wire.message.properties import (
    KEYS,
    PROPERTIES_BYTES_MAX,
    TAGS,
    UNIQ_KEY,
    encode_properties,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPIC_LENGTH_MAX = 127  # TopicValidator.TOPIC_MAX_LENGTH
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")

#: What is kept free for the properties that are added on the way: UNIQ_KEY, a delay,
#: and MSG_REGION, TRACE_ON and CLUSTER by the broker.
PROPERTIES_RESERVE_BYTES = 512

#: Properties that clients and brokers write about a message's travels. They are not
#: sent again with a record that was read somewhere, and `--property` cannot set them.
#: Kept, because consumers and FIFO topics use them: KEYS, TAGS, __SHARDINGKEY,
#: BUYER_ID.
SYSTEM_PROPERTIES = frozenset(
    (
        UNIQ_KEY,
        *("WAIT", "MSG_REGION", "TRACE_ON", "CLUSTER", "INSTANCE_ID", "MSG_TYPE"),
        *("MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
        *("DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "CONSUME_START_TIME"),
        *("TRAN_MSG", "PGROUP", "__transactionId__", "TRANSACTION_CHECK_TIMES"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET"),
        *("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
        *("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME"),
        *("PUSH_REPLY_TIME", "EXTEND_UNIQ_INFO", "DUP_INFO", "REDIRECT"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "TRACE_CONTEXT"),
        *("INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"),
        *("INNER_MULTI_QUEUE_OFFSET", "PROPERTY_FORWARD_QUEUE_ID"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "__BORNHOST", "BORN_TIMESTAMP"),
        *("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
        *("TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__CRC32#"),
    )
)

_HINTS = {
    KEYS: "use --key",
    TAGS: "use --tag",
    "DELAY": "use --delay",
    "TIMER_DELAY_SEC": "use --delay",
    "TIMER_DELAY_MS": "use --delay",
    "TIMER_DELIVER_MS": "use --delay",
}


@dataclass(slots=True)
class OutgoingMessage:
    """One message to store; treat as immutable.

    `properties` hold KEYS and TAGS too. `source` says where it was read, e.g.
    `line 3`, for errors; None where there is only one.
    """

    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    source: str | None = None


def check_topic(topic: str) -> None:
    """Raise UsageError for a name that no broker takes."""
    if not topic or len(topic) > TOPIC_LENGTH_MAX:
        raise UsageError(
            f"topic name of {len(topic)} characters: 1 to {TOPIC_LENGTH_MAX} are taken"
        )
    if not _TOPIC.fullmatch(topic):
        raise UsageError(
            f"topic {topic!r}: only letters, digits, '%', '|', '_' and '-' are taken"
        )


def check_user_properties(properties: Mapping[str, str]) -> None:
    """Raise UsageError for names that are RocketMQ's own, as Java's Message does."""
    for name in properties:
        if name in SYSTEM_PROPERTIES or name in (KEYS, TAGS):
            raise UsageError(
                f"property {name} is RocketMQ's own", hint=_HINTS.get(name, "")
            )


def check_message(message: OutgoingMessage) -> int:
    """Return how many bytes its properties take.

    Raises UsageError, naming the source, for what would not arrive as it is.
    """
    where = f"{message.source}: " if message.source else ""
    for name, value in message.properties.items():
        if not name or not value:
            raise UsageError(
                f"{where}property {name!r} has no {'value' if name else 'name'}:"
                " RocketMQ would drop it"
            )
    try:
        size = len(encode_properties(message.properties).encode())
    except UnicodeEncodeError:
        raise UsageError(f"{where}a property is not valid Unicode") from None
    except ValueError as error:
        raise UsageError(f"{where}{error}") from None
    if size > PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES:
        raise UsageError(
            f"{where}properties of {size} bytes are over the"
            f" {PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES} that fit"
        )
    return size


def with_settings(
    message: OutgoingMessage,
    *,
    tag: str | None,
    keys: Sequence[str],
    properties: Mapping[str, str],
) -> OutgoingMessage:
    """The message with what the command line says, which wins over what it had."""
    if tag is None and not keys and not properties:
        return message
    merged = {**message.properties, **properties}
    if tag is not None:
        merged[TAGS] = tag
    if keys:
        merged[KEYS] = " ".join(keys)
    return OutgoingMessage(message.body, merged, message.flag, message.source)
