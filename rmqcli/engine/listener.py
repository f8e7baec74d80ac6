"""What a listener is given and what it may return.

Source: MessageListenerConcurrently, MessageListenerOrderly and their contexts and
statuses in apache/rocketmq.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import MessageQueue


class ConsumeConcurrentlyStatus(enum.Enum):
    """The result of a concurrent listener."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """The result of an orderly listener.

    COMMIT and ROLLBACK mean something only where `auto_commit` is off.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class ConsumeConcurrentlyContext:
    """What a listener may set besides its result; one for each call.

    `delay_level_when_next_consume`: 0 lets the broker choose, over 0 is that delay
    level, -1 sends failed messages to the dead-letter queue at once. `ack_index`: with
    CONSUME_SUCCESS, the last message that succeeded; None means all.
    """

    __slots__ = ("ack_index", "delay_level_when_next_consume", "message_queue")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.delay_level_when_next_consume = 0
        self.ack_index: int | None = None


class ConsumeOrderlyContext:
    """What a listener may set besides its result; one for each call.

    `suspend_current_queue_time_ms` None: the consumer's setting.
    """

    __slots__ = ("auto_commit", "message_queue", "suspend_current_queue_time_ms")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.auto_commit = True
        self.suspend_current_queue_time_ms: int | None = None


class LeaveRest(Exception):  # noqa: N818  # no error: a listener's decision
    """Raised by a listener that stops, because its consumer is about to close.

    The first `consumed` messages of the batch are done; the others are neither
    acknowledged nor sent back, so another member gets them unchanged. Java has nothing
    like it. Until the consumer is closed, what was pulled with them waits too.
    """

    def __init__(self, consumed: int = 0) -> None:
        super().__init__(f"{consumed} of the batch consumed, the rest is left")
        self.consumed = consumed


@dataclass(slots=True, kw_only=True)
class Listener:
    """A listener and how it is called.

    `call` gets (messages, context), or with `one_message` just a message. It may return
    a status, True or False (done, not done), or None. Java takes null for a failure;
    here None is success unless `none_is_failure`: a Python function that returns
    nothing has succeeded, and one that fails raises.

    `on_undecodable` gets bytes that cannot be decoded; when it raises, the engine calls
    it again later. `on_failed` is called for each failed delivery, `on_start` for the
    first offset of each queue, `on_assigned` and `on_revoked` for queues that come and
    go: see `reports`. With `reports_each` each message's outcome is reported before the
    next call, which may take long. In a forked child
    `is_orphaned` is set: what the listener raises there ends that process only.
    """

    call: Callable[..., Any]
    is_orderly: bool = False
    one_message: bool = False
    none_is_failure: bool = False
    on_undecodable: Callable[[UndecodableMessage], None] | None = None
    on_failed: Callable[[FailedDelivery], None] | None = None
    on_start: Callable[[QueueStart], None] | None = None
    on_assigned: Callable[[list[MessageQueue]], None] | None = None
    on_revoked: Callable[[list[MessageQueue]], None] | None = None
    reports_each: bool = False
    is_orphaned: bool = False
