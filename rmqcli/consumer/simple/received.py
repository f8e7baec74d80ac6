"""`ReceivedMessage`: a message with the lease under which a consumer holds it.

Source: MessageView of the RocketMQ 5 clients, MessageExt with its POP_CK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue
    from rmqcli.proxy.message import ProxyMessage
    from rmqcli.tasks import Pending
    from rmqcli.wire.message.record import StoredMessage


@dataclass(slots=True, kw_only=True)
class MessageLease:
    """The receipt handle of a message, and until when the message is hidden.

    Belongs to the thread that runs the consumer's tasks; other threads read single
    fields.
    """

    topic: str
    #: of the consumer that received it, and that alone can acknowledge it
    group: str
    #: where it is stored; for a later delivery, perhaps in a retry topic
    queue: MessageQueue
    receipt_handle: str
    delivery_attempt: int
    #: monotonic: when the answer with the current handle arrived
    since_ms: int
    invisible_ms: int
    #: the end of the invisible time by this machine's clock, for display
    invisible_until_epoch_ms: int
    is_acked: bool = False
    #: the id under which its delivery was reported, and when, with traces; epoch ms
    traced: tuple[str, int] | None = None
    #: a change of its invisible time that is not answered yet
    change: Pending[None] | None = None
    #: why the handle may be void: a change was sent, and no answer came
    doubt: RmqError | None = None

    def left_ms(self, now_ms: int) -> int:
        """How long the message stays hidden at most; 0 when it is visible again."""
        return max(0, self.since_ms + self.invisible_ms - now_ms)

    def renew(self, receipt_handle: str, invisible_ms: int, clock: Clock) -> None:
        """Apply the result of a change of the invisible time."""
        self.receipt_handle = receipt_handle
        self.since_ms = clock.monotonic_ms()
        self.invisible_ms = invisible_ms
        self.invisible_until_epoch_ms = clock.epoch_ms() + invisible_ms


class ReceivedMessage:
    """A message that `SimpleConsumer.receive` returned, to be acknowledged with `ack`.

    Until `invisible_until_ms` no other member of the group receives it. Treat as
    immutable; only `change_invisible` replaces its handle and that time.
    """

    __slots__ = ("content", "lease")

    def __init__(
        self, content: StoredMessage | ProxyMessage, lease: MessageLease
    ) -> None:
        self.content = content
        self.lease = lease

    @property
    def topic(self) -> str:
        """The topic to which it was sent, also for a later delivery."""
        return self.lease.topic

    @property
    def body(self) -> bytes:
        """The body as its producer sent it; decompressed at each access.

        Raises DecodeError when it is damaged, or decompresses to more than 16 MiB.
        """
        return self.content.body

    @property
    def raw_body(self) -> bytes:
        """The body as it was received, possibly compressed or damaged."""
        return self.content.raw_body

    @property
    def properties(self) -> dict[str, str]:
        """The properties; always the same dict, which must not be changed.

        Over remoting they include those that the broker and the producer's client have
        added.
        """
        return self.content.properties

    @property
    def tags(self) -> str | None:
        """Its tag, or None."""
        return self.content.tags

    @property
    def keys(self) -> str | None:
        """Its keys, separated by spaces, or None."""
        return self.content.keys

    @property
    def msg_id(self) -> str | None:
        """The id that its producer gave it (UNIQ_KEY), or None."""
        return self.content.msg_id

    @property
    def broker_name(self) -> str:
        """The name of the broker from which it was received."""
        return self.lease.queue.broker_name

    @property
    def message_queue(self) -> MessageQueue:
        """The queue from which it was received.

        For a later delivery it may be a queue of a retry topic.
        """
        return self.lease.queue

    @property
    def queue_id(self) -> int:
        """The id of that queue."""
        return self.lease.queue.queue_id

    @property
    def queue_offset(self) -> int | None:
        """Its offset in the queue; None when a proxy does not report it."""
        return self.content.queue_offset

    @property
    def born_timestamp_ms(self) -> int:
        """When its producer created it, by the producer's clock, in epoch ms."""
        return self.content.born_timestamp_ms

    @property
    def born_host(self) -> str:
        """The host of its producer."""
        return self.content.born_host

    @property
    def store_timestamp_ms(self) -> int | None:
        """When it was stored, in epoch ms; None when a proxy does not report it."""
        return self.content.store_timestamp_ms

    @property
    def store_host(self) -> str:
        """The broker that stored it."""
        return self.content.store_host

    @property
    def receipt_handle(self) -> str:
        """The handle by which the broker identifies this delivery."""
        return self.lease.receipt_handle

    @property
    def delivery_attempt(self) -> int:
        """The number of this delivery: 1 for the first one."""
        return self.lease.delivery_attempt

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before: `delivery_attempt` - 1."""
        return self.lease.delivery_attempt - 1

    @property
    def invisible_until_ms(self) -> int:
        """When the message may be delivered again, in epoch ms.

        The time is that of this machine's clock.
        """
        return self.lease.invisible_until_epoch_ms

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, msg_id={self.msg_id!r}, "
            f"delivery_attempt={self.delivery_attempt})"
        )
