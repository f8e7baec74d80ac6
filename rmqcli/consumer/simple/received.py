"""`ReceivedMessage`: a message with the lease under which a consumer has it.

Source: MessageView of the RocketMQ 5 clients, MessageExt with its POP_CK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending


@dataclass(slots=True, kw_only=True)
class Lease:
    """Under which handle, and until when, a message is hidden from its group.

    Belongs to the thread that runs the consumer's tasks; other threads read single
    fields.
    """

    topic: str
    #: where it lies: for a delivery that is not the first, perhaps in a retry topic
    queue: MessageQueue
    receipt_handle: str
    delivery_attempt: int
    #: monotonic, when the answer that brought or renewed the handle arrived
    since_ms: int
    invisible_ms: int
    #: the same end by this machine's clock, for people
    invisible_until_epoch_ms: int
    is_acked: bool = False
    #: a change of its invisible time that is not answered yet
    change: Pending[None] | None = None
    #: why the handle may be void: a change was sent, and no answer came
    doubt: RmqError | None = None

    def left_ms(self, now_ms: int) -> int:
        """How long the message stays hidden at most; 0 when it is visible again."""
        return max(0, self.since_ms + self.invisible_ms - now_ms)

    def renew(
        self, receipt_handle: str, invisible_ms: int, *, now_ms: int, epoch_ms: int
    ) -> None:
        """Take over what a change of the invisible time brought."""
        self.receipt_handle = receipt_handle
        self.since_ms = now_ms
        self.invisible_ms = invisible_ms
        self.invisible_until_epoch_ms = epoch_ms + invisible_ms


class Content(Protocol):
    """What remoting and gRPC messages have in common."""

    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> str | None: ...
    @property
    def msg_id(self) -> str | None: ...
    @property
    def queue_offset(self) -> int | None: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def born_host(self) -> str: ...
    @property
    def store_timestamp_ms(self) -> int | None: ...
    @property
    def store_host(self) -> str: ...


class ReceivedMessage:
    """A message out of `SimpleConsumer.receive`; to be acknowledged there.

    Until `invisible_until_ms` no other consumer of the group gets it. Treat as
    immutable; `change_invisible` alone replaces its handle and that time.
    """

    __slots__ = ("content", "lease")

    def __init__(self, content: Content, lease: Lease) -> None:
        self.content = content
        self.lease = lease

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it was delivered before."""
        return self.lease.topic

    @property
    def body(self) -> bytes:
        """The body as its producer gave it; inflated each time it is read.

        Raises DecodeError when it is damaged, or inflates to over 16 MiB.
        """
        return self.content.body

    @property
    def properties(self) -> dict[str, str]:
        """The properties; the same dict each time, which must not be changed.

        Over remoting those of the broker and the producer's client are among them.
        """
        return self.content.properties

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return self.content.tags

    @property
    def keys(self) -> str | None:
        """Its keys, separated by spaces."""
        return self.content.keys

    @property
    def msg_id(self) -> str | None:
        """The id that its producer gave it (UNIQ_KEY)."""
        return self.content.msg_id

    @property
    def broker_name(self) -> str:
        """The broker that it was received from."""
        return self.lease.queue.broker_name

    @property
    def message_queue(self) -> MessageQueue:
        """The queue it was received from: of a retry topic, for a later delivery."""
        return self.lease.queue

    @property
    def queue_offset(self) -> int | None:
        """Its place in the queue; None when a proxy does not say it."""
        return self.content.queue_offset

    @property
    def born_timestamp_ms(self) -> int:
        """When its producer made it, by the producer's clock, in epoch ms."""
        return self.content.born_timestamp_ms

    @property
    def born_host(self) -> str:
        """The host of its producer."""
        return self.content.born_host

    @property
    def store_timestamp_ms(self) -> int | None:
        """When the broker stored it, in epoch ms; None when a proxy does not say it."""
        return self.content.store_timestamp_ms

    @property
    def store_host(self) -> str:
        """The broker that stored it."""
        return self.content.store_host

    @property
    def receipt_handle(self) -> str:
        """What the broker knows this delivery by."""
        return self.lease.receipt_handle

    @property
    def delivery_attempt(self) -> int:
        """1 for the first delivery, 2 for the second."""
        return self.lease.delivery_attempt

    @property
    def invisible_until_ms(self) -> int:
        """When the message may be delivered again, in epoch ms by this machine."""
        return self.lease.invisible_until_epoch_ms

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, msg_id={self.msg_id!r}, "
            f"delivery_attempt={self.delivery_attempt})"
        )
