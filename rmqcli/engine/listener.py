"""The listener: its contexts, its results, and how it is called.

Source: MessageListenerConcurrently, MessageListenerOrderly and their contexts and
statuses in apache/rocketmq.
"""

from __future__ import annotations

import enum
from concurrent.futures import Future
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rmqcli.checked import check_callback, check_int, check_returned, check_type
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import MessageQueue

#: The range of Java's int, which the protocol has.
_INT: Final = (-(2**31), 2**31 - 1)


class ConsumeConcurrentlyStatus(enum.Enum):
    """The result of a concurrent listener."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """The result of an orderly listener.

    COMMIT and ROLLBACK have a meaning only when `auto_commit` is off.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


#: What a listener may return; see `Listener`.
ListenerResult: TypeAlias = (
    bool | ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | None
)


class ConsumeConcurrentlyContext:
    """The context of one call, in which a listener may set more than its result.

    `delay_level_when_next_consume` is the delay level of failed messages; 0 lets the
    broker choose, and -1 sends them to the dead-letter queue at once. `ack_index` is
    the index of the last message that succeeded, with CONSUME_SUCCESS; None means all.

    To set a value of a wrong type is a TypeError, raised in the listener.
    """

    __slots__ = ("_ack_index", "_delay_level", "message_queue")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self._delay_level = 0
        self._ack_index: int | None = None

    @property
    def ack_index(self) -> int | None:
        """The index of the last message that succeeded; None: of the last message."""
        return self._ack_index

    @ack_index.setter
    def ack_index(self, value: int | None) -> None:
        check_type(value, (int, NoneType), "ack_index")
        self._ack_index = value

    @property
    def delay_level_when_next_consume(self) -> int:
        """The delay level of failed messages."""
        return self._delay_level

    @delay_level_when_next_consume.setter
    def delay_level_when_next_consume(self, value: int) -> None:
        name = "delay_level_when_next_consume"
        self._delay_level = check_int(value, name, *_INT)

    def __repr__(self) -> str:
        return (
            f"ConsumeConcurrentlyContext({self.message_queue}, ack_index="
            f"{self.ack_index}, delay_level_when_next_consume="
            f"{self.delay_level_when_next_consume})"
        )


class ConsumeOrderlyContext:
    """The context of one call, in which a listener may set more than its result.

    When `suspend_current_queue_time_ms` is None, the consumer's setting is used; it is
    10 to 30,000, and a value beyond becomes the nearest of these, as in Java.

    To set a value of a wrong type is a TypeError, raised in the listener.
    """

    __slots__ = ("_auto_commit", "_suspend_ms", "message_queue")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self._auto_commit = True
        self._suspend_ms: int | None = None

    @property
    def auto_commit(self) -> bool:
        """Whether the messages of a call that succeeds are committed."""
        return self._auto_commit

    @auto_commit.setter
    def auto_commit(self, value: bool) -> None:
        check_type(value, bool, "auto_commit")
        self._auto_commit = value

    @property
    def suspend_current_queue_time_ms(self) -> int | None:
        """How long the queue rests when its messages are to be consumed again."""
        return self._suspend_ms

    @suspend_current_queue_time_ms.setter
    def suspend_current_queue_time_ms(self, value: int | None) -> None:
        check_type(value, (int, NoneType), "suspend_current_queue_time_ms")
        self._suspend_ms = value

    def __repr__(self) -> str:
        return (
            f"ConsumeOrderlyContext({self.message_queue}, auto_commit="
            f"{self.auto_commit}, suspend_current_queue_time_ms="
            f"{self.suspend_current_queue_time_ms})"
        )


class LeaveRest(Exception):  # noqa: N818  # not an error: a listener's decision
    """Raised by a listener that stops because its consumer is about to close.

    The first `consumed` messages of the batch are done; the others are neither
    acknowledged nor sent back, so another member receives them unchanged. Other
    messages of the same pull wait until the consumer is closed. Java has no equivalent.
    """

    def __init__(self, consumed: int = 0) -> None:
        super().__init__(f"{consumed} of the batch consumed, the rest is left")
        self.consumed = consumed


@dataclass(slots=True, kw_only=True)
class Listener:
    """A listener and how it is called.

    `call` is called with (messages, context), or with `one_message` with a message
    only. It may return a status, True or False for success or failure, or None. Java
    treats null as a failure; here None is success, because a
    Python function that returns nothing has succeeded, and one that fails raises.

    `on_undecodable` is called with bytes that cannot be decoded; when it raises, the
    engine calls it again later. `on_failed` is called for each failed delivery,
    `on_start` for the first offset of each queue, and `on_assigned` and `on_revoked`
    when queues are assigned or revoked; see `reports`. With `reports_each` the outcome
    of each message is reported before the next call, which may take long. Unless
    `is_told_where`, a line in the log says where a new group begins. With
    `shares_slow_pulls` other threads help to consume the messages of a pull once its
    listener is slow; without it, a listener that raises LeaveRest has consumed all
    earlier messages. `wanted` says how many messages may still be consumed; through a
    proxy no more are received, because there each one that is given back counts as a
    failed delivery. With `is_async` a call returns an awaitable, whose result counts.
    In a forked child `is_orphaned` is set: an exception of the listener ends only that
    process.

    Raises TypeError for a function whose calls do not run it, such as `async def`. When
    only a result shows that, `on_misuse` is called with the TypeError: the consumer has
    to end, because none of its messages is ever consumed.
    """

    call: Callable[..., Any]
    is_orderly: bool = False
    one_message: bool = False
    on_undecodable: Callable[[UndecodableMessage], None] | None = None
    on_failed: Callable[[FailedDelivery], None] | None = None
    on_start: Callable[[QueueStart], None] | None = None
    on_assigned: Callable[[list[MessageQueue]], None] | None = None
    on_revoked: Callable[[list[MessageQueue]], None] | None = None
    reports_each: bool = False
    is_told_where: bool = True
    shares_slow_pulls: bool = True
    wanted: Callable[[], int | None] = lambda: None
    is_async: bool = False
    is_orphaned: bool = False
    on_misuse: Callable[[TypeError], None] | None = None

    def __post_init__(self) -> None:
        if not self.is_async:
            check_callback(self.call, "the listener")
        for name in (
            "on_undecodable",
            "on_failed",
            "on_start",
            "on_assigned",
            "on_revoked",
        ):
            check_callback(getattr(self, name), name)

    def check_result(self, result: object, name: str) -> None:
        """Raise LeaveRest for a result that shows that the call has not done its work.

        The message is then neither consumed nor sent back.
        """
        try:
            _check_done(result, name)
        except TypeError as error:
            if self.on_misuse is not None:
                self.on_misuse(error)
            raise LeaveRest from error


def _check_done(result: object, name: str) -> None:
    check_returned(result, name)
    if isinstance(result, Future):
        raise TypeError(
            f"{name} returned a future, {result!r}, whose work may still fail; call its"
            " result(), and return nothing"
        )
