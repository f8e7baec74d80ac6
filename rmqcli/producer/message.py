"""The message to send, and the checks that it must pass before it is sent.

RocketMQ drops properties without a value and cannot encode some characters. Such
messages are refused here, so that no part of a message is silently lost.

Users of the library create a `ProducerMessage`. An `OutgoingMessage` has the body and
the properties for a request.

Source: Message, Validators, MessageConst.STRING_HASH_SET and TopicValidator in
apache/rocketmq.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, field, fields
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.checked import check_int, check_type
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError
from rmqcli.names import check_topic
from rmqcli.position import check_epoch_ms
from rmqcli.wire.message.properties import (
    KEYS,
    PROPERTIES_BYTES_MAX,
    TAGS,
    UNIQ_KEY,
    encode_properties,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

#: Bytes reserved for properties that are added later: UNIQ_KEY and a delay by the
#: client, and MSG_REGION, TRACE_ON and CLUSTER by the broker.
PROPERTIES_RESERVE_BYTES = 512

#: Properties in which clients and brokers record how a message was sent and delivered.
#: When a stored message is sent again they are left out, and users cannot set them.
#: KEYS, TAGS, __SHARDINGKEY and BUYER_ID are not among them, because consumers and FIFO
#: topics use them.
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

#: System property -> the argument of `ProducerMessage` that sets it.
ARGUMENT_OF_PROPERTY: Final = {
    KEYS: "keys",
    TAGS: "tags",
    "DELAY": "delay_level",
    "TIMER_DELAY_SEC": "delay_ms",
    "TIMER_DELAY_MS": "delay_ms",
    "TIMER_DELIVER_MS": "deliver_at_ms",
}

DELAY_MS_MAX: Final = (2**31 - 1) * 1000  # the largest timerMaxDelaySec
_INT32_MAX: Final = (1 << 31) - 1
#: What a broker reads; it has only the levels of its messageDelayLevel.
DELAY_LEVEL_MAX: Final = _INT32_MAX


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """A message to send.

    `keys` are searchable; a key must not contain white space, which separates keys.
    At most one of the three delays may be given: `delay_level` is a level of the
    broker's table (by default 18: 1s 5s 10s 30s 1m ... 2h), `delay_ms` is a duration
    from now on, and `deliver_at_ms` is a time in epoch ms. The last two need
    RocketMQ 5.0, which delivers to the second, and at most three days later unless its
    brokers have another limit (timerMaxDelaySec).

    Messages of one `message_group` are stored in one queue of a FIFO topic, in the
    order in which they are sent. A `message_group` needs a proxy (`endpoints`).

    Raises ConfigError for values that RocketMQ would refuse or drop and for a
    `deliver_at_ms` that looks like seconds, and TypeError for a body that is not bytes.
    """

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    flag: int = 0
    delay_level: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    message_group: str | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        # Most messages have none of these, and a program makes many messages.
        if type(self.keys) is not tuple or self.keys:
            self._check_keys()
        if self.tags is not None:
            check_type(self.tags, str, "tags")
        if type(self.properties) is not dict:
            check_type(self.properties, Mapping, "properties")
        if self.message_group is not None:
            check_type(self.message_group, str, "message_group")
        if not isinstance(self.body, bytes):
            raise TypeError(
                f"body is a {type(self.body).__name__}; it must be bytes, for example"
                " text.encode()"
            )
        if self.properties:
            check_user_properties(self.properties)
        if self.flag != 0:
            check_int(self.flag, "flag", -_INT32_MAX - 1, _INT32_MAX)
        if self.message_group is not None and not self.message_group:
            raise ConfigError("message_group is empty")
        self._check_delay()

    def __repr__(self) -> str:
        """The settings that were given; of the body and the properties, the size."""
        given = [f"topic={self.topic!r}, body_bytes={len(self.body)}"]
        for each in fields(self)[2:]:
            value = getattr(self, each.name)
            if each.name == "properties":
                value = list(value)  # the names
            if value not in (None, (), [], 0):
                given.append(f"{each.name}={value!r:.200}")
        return f"ProducerMessage({', '.join(given)})"

    def _check_keys(self) -> None:
        if not isinstance(self.keys, str):
            # A list of keys must not change later, and the message has a hash.
            check_type(self.keys, (str, Iterable), "keys")
            object.__setattr__(self, "keys", tuple(self.keys))
        for key in self.key_list:
            check_type(key, str, "a key")
            if not key or key.split() != [key]:
                raise ConfigError(f"key {key!r} is empty or contains white space")

    def _check_delay(self) -> None:
        if not self.is_delayed:
            return
        given = {
            name: value
            for name in ("delay_level", "delay_ms", "deliver_at_ms")
            if (value := getattr(self, name)) is not None
        }
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} cannot be used together")
        maxima = {"delay_level": DELAY_LEVEL_MAX, "delay_ms": DELAY_MS_MAX}
        for name, value in given.items():
            check_int(value, name, 1, maxima.get(name, 2**63 - 1))
        if self.deliver_at_ms is not None:
            check_epoch_ms(self.deliver_at_ms, "deliver_at_ms")

    @property
    def key_list(self) -> tuple[str, ...]:
        """The keys as a tuple, also when `keys` is a single string."""
        return (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)

    @property
    def is_delayed(self) -> bool:
        """Whether the message has a delay."""
        return (
            self.delay_level is not None
            or self.delay_ms is not None
            or self.deliver_at_ms is not None
        )

    @property
    def needs_timer(self) -> bool:
        """Whether the delay needs a broker from 5.0 on."""
        return self.delay_ms is not None or self.deliver_at_ms is not None

    @property
    def has_settings(self) -> bool:
        """Whether tags, keys or a delay become properties."""
        return bool(self.tags or self.keys) or self.is_delayed

    def all_properties(self) -> dict[str, str]:
        """The user's properties, and the properties for tags, keys and delay."""
        found = dict(self.properties)
        if self.tags:
            found[TAGS] = self.tags
        if self.key_list:
            found[KEYS] = " ".join(self.key_list)
        return self._with_delay(found)

    def _with_delay(self, found: dict[str, str]) -> dict[str, str]:
        if self.delay_level is not None:
            found["DELAY"] = str(self.delay_level)
        if self.delay_ms is not None:
            found["TIMER_DELAY_MS"] = str(self.delay_ms)
        if self.deliver_at_ms is not None:
            found["TIMER_DELIVER_MS"] = str(self.deliver_at_ms)
        return found


@dataclass(frozen=True, slots=True)
class RecordMessage(ProducerMessage):
    """A message created from a record that was read: a row, or a stored message.

    `properties` must be the result of `record_properties`. It contains KEYS and TAGS,
    so that the white space between keys is preserved; `tags` and `keys` are not used.
    """

    def __post_init__(self) -> None:
        check_topic(self.topic)
        self._check_delay()

    def all_properties(self) -> dict[str, str]:
        """The properties, unchanged, and the property for the delay."""
        return self._with_delay(dict(self.properties))


@dataclass(slots=True)
class OutgoingMessage:
    """Body and properties of one message to send; treat as immutable.

    `properties` contains KEYS and TAGS, too. `source` says for errors where the message
    was read, e.g. `line 3`; None when there is only one message.
    """

    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    source: str | None = None


def check_user_properties(
    properties: Mapping[str, str],
    *,
    instead: Mapping[str, str] = ARGUMENT_OF_PROPERTY,
) -> None:
    """Raise ConfigError for names that are reserved for RocketMQ, as in Java's Message.

    `instead` maps such a name to the argument or option that sets it, for the hint.
    """
    for name in properties:
        check_type(name, str, "the name of a property")
        check_type(properties[name], str, f"property {name}")
        if name in SYSTEM_PROPERTIES or name in (KEYS, TAGS):
            way = instead.get(name)
            raise ConfigError(
                f"property {name} is RocketMQ's own",
                hint=f"use {way}" if way else "",
            )


def record_properties(
    given: Iterable[tuple[str, T]], *, tags: str | None, keys: str | None
) -> dict[str, T | str]:
    """The properties to send with a message that is created from a record.

    They include KEYS and TAGS. Properties without a value (None) are left out, and so
    are those in SYSTEM_PROPERTIES. `tags` and `keys` take precedence over the
    properties TAGS and KEYS.
    """
    properties: dict[str, T | str] = {
        name: value
        for name, value in given
        if value is not None and name not in SYSTEM_PROPERTIES
    }
    if tags:
        properties[TAGS] = tags
    # If the property has the same keys, keep it: it also has their white space.
    if keys and keys.split() != str(properties.get(KEYS, "")).split():
        properties[KEYS] = keys
    return properties


def check_message(message: OutgoingMessage) -> int:
    """Return the size of the encoded properties. Raises as `checked_properties`."""
    return len(checked_properties(message))


def checked_properties(message: OutgoingMessage) -> bytes:
    """Encode the properties for sending.

    Raises ConfigError, naming the source, for properties that would not arrive
    unchanged.
    """
    if not message.properties:
        return b""
    where = f"{message.source}: " if message.source else ""
    for name, value in message.properties.items():
        if not name or not value:
            raise ConfigError(
                f"{where}property {name!r} has no {'value' if name else 'name'}:"
                " RocketMQ would drop it"
            )
    try:
        properties = encode_properties(message.properties).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}a property is not valid Unicode") from None
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from None
    if len(properties) > PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES:
        raise ConfigError(
            f"{where}properties of {len(properties)} bytes are larger than the limit of"
            f" {PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES} bytes"
        )
    return properties


def with_settings(
    message: OutgoingMessage,
    *,
    tag: str | None,
    keys: Sequence[str],
    properties: Mapping[str, str],
) -> OutgoingMessage:
    """The message with the given settings, which override those of the message."""
    if tag is None and not keys and not properties:
        return message
    merged = {**message.properties, **properties}
    if tag is not None:
        merged[TAGS] = tag
    if keys:
        merged[KEYS] = " ".join(keys)
    return OutgoingMessage(message.body, merged, message.flag, message.source)
