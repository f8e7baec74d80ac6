"""What a listener is given and what it may say.

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
    """What became of messages that were consumed in any order."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """What became of messages that were consumed in their order.

    COMMIT and ROLLBACK mean something only where `auto_commit` is off.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class ConsumeConcurrentlyContext:
    """What a listener may say besides its result; one for each call.

    `delay_level_when_next_consume`: 0 lets the broker choose, over 0 is that delay
    level, -1 sends failed messages to the dead letters at once. `ack_index`: with
    CONSUME_SUCCESS, the last message that succeeded; None means all.
    """

    __slots__ = ("ack_index", "delay_level_when_next_consume", "message_queue")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.delay_level_when_next_consume = 0
        self.ack_index: int | None = None


class ConsumeOrderlyContext:
    """What a listener may say besides its result; one for each call.

    `suspend_current_queue_time_ms` None: the consumer's setting.
    """

    __slots__ = ("auto_commit", "message_queue", "suspend_current_queue_time_ms")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.auto_commit = True
        self.suspend_current_queue_time_ms: int | None = None


class LeaveRest(Exception):  # noqa: N818  # no error: a listener's decision
    """Raised by a listener that will do no more, for its consumer is about to close.

    The first `consumed` messages of the batch are done; the others are neither
    acknowledged nor sent back, so somebody else gets them as they are. Java has nothing
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
    here None is success unless `none_is_failure`: a Python function that ends without
    saying anything has done its work, and one that has not raises.
    `on_undecodable` gets what cannot be read as a message; what it raises makes the
    engine try again. `on_failed` hears what became of each message that was not
    consumed, and `on_start` where each queue begins: see `reports`, also for
    `on_assigned` and `on_revoked`. With `reports_each` each message's outcome is
    reported before the next call, which may take long. In a forked child
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
