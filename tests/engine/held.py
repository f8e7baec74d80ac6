"""Messages and a retry policy for the tests of `HeldMessages`."""

from __future__ import annotations

from dataclasses import dataclass

from rmqcli.model import MessageQueue

BROKER = MessageQueue("orders", "broker-a", -1)


@dataclass(eq=False)
class Delivery:
    """One delivery of a message by a proxy."""

    queue_offset: int
    queue_id: int = 0
    message_group: str | None = None
    delivery_attempt: int = 1
    body_bytes: int = 10
    receipt_handle: str = ""
    topic: str = "orders"

    @property
    def message_queue(self):
        return MessageQueue(self.topic, "broker-a", self.queue_id)

    @property
    def msg_id(self):
        return f"{self.topic}-{self.queue_id}-{self.queue_offset}"


@dataclass
class Retry:
    """A retry policy: three attempts, with delays of 1 s and 5 s."""

    max_attempts: int = 3

    def delay_ms(self, attempt):
        return (1_000, 5_000)[min(attempt, 2) - 1]
