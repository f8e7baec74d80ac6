"""A message for a listener: the stored message and the queue of its pull.

Source: MessageExt, and DefaultMQPushConsumerImpl#resetRetryAndNamespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import DecodeFailure, InnerMessage, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.wire.subscription import SubscriptionData

RETRY_TOPIC: Final = "RETRY_TOPIC"  # MessageConst.PROPERTY_RETRY_TOPIC


@dataclass(slots=True, eq=False, repr=False)
class Origin:
    """The values that the messages of one pull share: their queue and its bounds."""

    message_queue: MessageQueue
    min_offset: int
    max_offset: int


class PulledMessage(StoredMessage):
    """A message from one of a broker's queues. Treat as immutable.

    `consume_start_ms` (monotonic) is set when a listener receives it.
    """

    __slots__ = ()

    origin: Origin
    consume_start_ms: int

    @property
    def message_queue(self) -> MessageQueue:
        """The queue from which it was pulled; for a retry, one of the retry topic."""
        return self.origin.message_queue

    @property
    def broker_name(self) -> str:
        """The broker from which it was pulled."""
        return self.origin.message_queue.broker_name

    @property
    def topic(self) -> str:
        """The topic to which it was first sent."""
        stored = self.origin.message_queue.topic
        if stored.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return self.properties.get(RETRY_TOPIC, stored)
        return stored


class PulledRecord(PulledMessage):
    """A message that is a record of its own."""

    __slots__ = ("consume_start_ms", "origin")

    @property
    def stored_topic(self) -> str:
        """The topic in which it is stored; for a retry, the retry topic."""
        return super(PulledMessage, self).topic


class PulledItem(PulledMessage, InnerMessage):
    """A message that is an item of an inner batch."""

    __slots__ = ("consume_start_ms", "origin")


class UndecodableMessage:
    """Bytes at a queue offset that cannot be decoded as a message.

    `queue_offset` is the offset in the bytes, or else the one of their position.
    `is_taken` says whether `on_undecodable` accepted it in its last call, in order.
    """

    __slots__ = (
        "body_bytes",
        "consume_start_ms",
        "failure",
        "is_taken",
        "origin",
        "queue_offset",
    )

    def __init__(self, failure: DecodeFailure, queue_offset: int) -> None:
        self.failure = failure
        self.queue_offset = queue_offset
        self.body_bytes = len(failure.raw)
        self.is_taken = False
        self.consume_start_ms: int
        self.origin: Origin

    def __repr__(self) -> str:
        return (
            f"UndecodableMessage(queue_offset={self.queue_offset},"
            f" body_bytes={self.body_bytes}, error={self.failure.error!r})"
        )

    @property
    def message_queue(self) -> MessageQueue:
        """The queue from which it was pulled."""
        return self.origin.message_queue


Readable = PulledRecord | PulledItem
Pulled = Readable | UndecodableMessage


def decode_pulled(
    body: bytes, origin: Origin, *, start_offset: int, subscription: SubscriptionData
) -> list[Pulled]:
    """The messages of a pull's answer that match the subscription, in order.

    Tags are compared as text, because brokers compare only their hashes. A record that
    cannot be decoded becomes an `UndecodableMessage` and always matches.
    """
    found = decode_messages(body, record_type=PulledRecord, item_type=PulledItem)
    tags = subscription.tags_set
    if tags and not subscription.class_filter_mode:
        found = [
            each
            for each in found
            if isinstance(each, DecodeFailure) or each.tags in tags
        ]
    try:
        for each in found:
            each.origin = origin  # type: ignore[union-attr]
    except (AttributeError, TypeError):  # a frozen class with slots: one or the other
        return _surfaced(found, origin, start_offset)
    return found  # type: ignore[return-value]


def _surfaced(
    found: Sequence[StoredMessage | DecodeFailure], origin: Origin, start_offset: int
) -> list[Pulled]:
    """The same with an `UndecodableMessage` for each failure, which takes no origin."""
    pulled: list[Pulled] = []
    expected = start_offset
    for each in found:
        if isinstance(each, DecodeFailure):
            stated = each.queue_offset
            is_credible = stated is not None and expected <= stated < origin.max_offset
            offset = stated if is_credible and stated is not None else expected
            message: Pulled = UndecodableMessage(each, offset)
        else:
            message = each  # type: ignore[assignment]
        message.origin = origin
        expected = message.queue_offset + 1
        pulled.append(message)
    return pulled
