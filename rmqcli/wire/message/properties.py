"""The text form of a message's properties: `name 0x01 value 0x02`, repeated.

RocketMQ 4.9.1 to 5.1.4 leave out the last 0x02; both forms are read. Nothing is
escaped, so a value may hold 0x01, but neither name nor value can hold 0x02.

Source: `MessageDecoder.string2messageProperties` and `messageProperties2String`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Largest encoded properties of one message, in bytes: the length is a signed 16-bit
#: number.
PROPERTIES_BYTES_MAX: Final = 32767

KEYS: Final = "KEYS"  # PROPERTY_KEYS, separated by spaces
TAGS: Final = "TAGS"  # PROPERTY_TAGS
#: the message group, in a FIFO topic
SHARDING_KEY: Final = "__SHARDINGKEY"  # PROPERTY_SHARDING_KEY
#: the number of the queue in which a broker (from 5.4 on) stores a single message
PRIORITY: Final = "_SYS_MSG_PRIORITY_"  # PROPERTY_PRIORITY
TRAN_MSG: Final = "TRAN_MSG"  # PROPERTY_TRANSACTION_PREPARED
UNIQ_KEY: Final = "UNIQ_KEY"  # PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
POP_CK: Final = "POP_CK"  # PROPERTY_POP_CK
#: The topic of a message that waits in one of the broker's own.
REAL_TOPIC: Final = "REAL_TOPIC"  # PROPERTY_REAL_TOPIC
#: Of a recall: what names the message.
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"  # PROPERTY_TIMER_DEL_UNIQKEY
#: Of an inner batch: its number of messages, and the queue offset of the first one.
INNER_NUM: Final = "INNER_NUM"  # PROPERTY_INNER_NUM
INNER_BASE: Final = "INNER_BASE"  # PROPERTY_INNER_BASE
#: A second queue that the message is in, and its offset there.
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
#: The lite topic, in a message of a topic of type LITE.
LITE_TOPIC: Final = "__LITE_TOPIC"  # PROPERTY_LITE_TOPIC
#: Brokers (from 5.4 and 5.5 on) heed these in single messages, and not in a batch.
IGNORED_IN_BATCHES: Final = frozenset((PRIORITY, LITE_TOPIC))
#: LiteUtil.LITE_TOPIC_PREFIX
LMQ_PREFIX: Final = "%LMQ%$"
_DIGITS_MAX: Final = 18


def parse_properties(text: str | bytes) -> dict[str, str]:
    """Return the properties in their order; a repeated name has its last value.

    Entries without a name, without a value or without 0x01 are left out, as in Java
    from 4.9.1 on (4.6.0 also leaves out values that hold 0x01, and keeps an empty
    name). Bytes that are not UTF-8 become U+FFFD. Never raises.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    properties: dict[str, str] = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if value and name:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """Return the text form, ending in 0x02; None values are left out as from 4.9 on.

    An empty value is written, but no reader returns it. Raises ValueError for a name
    with 0x01 or 0x02 in it, or a value with 0x02: they cannot be written.
    """
    entries: list[str] = []
    for name, value in properties.items():
        if value is None:
            continue
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise ValueError(f"property {name!r} holds a separator, 0x01 or 0x02")
        entries.append(f"{name}\x01{value}\x02")
    return "".join(entries)


def lmq_name(topic: str, lite_topic: str) -> str:
    """Return the name of the queue (LMQ) with the messages of one lite topic.

    Source: LiteUtil.toLmqName.
    """
    return f"{LMQ_PREFIX}{topic}${lite_topic}"


def lite_topic_of(lmq: str) -> tuple[str, str] | None:
    """Return the topic and the lite topic of an LMQ; None for any other name."""
    topic, separator, lite_topic = lmq.removeprefix(LMQ_PREFIX).partition("$")
    is_lmq = lmq.startswith(LMQ_PREFIX) and topic and separator and lite_topic
    return (topic, lite_topic) if is_lmq else None


def lmq_of(topic: str, properties: Mapping[str, str | None]) -> tuple[str, int] | None:
    """Return the LMQ that a stored message is in as well, and its offset there.

    None for most messages, and for a copy in another topic, such as a dead letter,
    which has the properties of the message that it was copied from.
    """
    name = properties.get(INNER_MULTI_DISPATCH)
    if name is None or not name.startswith(lmq_name(topic, "")) or "," in name:
        return None
    offset = properties.get(INNER_MULTI_QUEUE_OFFSET) or ""
    is_number = offset.isascii() and offset.isdecimal() and len(offset) <= _DIGITS_MAX
    return (name, int(offset)) if is_number else None


def without_property(text: str, name: str) -> str:
    """Return the text form without a property; the other entries stay as they are."""
    if name not in text:
        return text
    entries = text.split("\x02")
    return "\x02".join(each for each in entries if not each.startswith(f"{name}\x01"))
