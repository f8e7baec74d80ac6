"""Reports to the program: assigned queues, first offsets, and failed deliveries.

The engine calls the functions of the `Listener` for them in its own thread. They must
return at once; what they raise is logged and has no effect.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeVar

from rmqcli.callbacks import call_back
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.listener import Listener
    from rmqcli.errors import RmqError
    from rmqcli.model import Message, MessageQueue

T = TypeVar("T")


class Fate(enum.Enum):
    """What happened to a message that its listener did not consume."""

    RETRY_TOPIC = "RETRY_TOPIC"  # stored in the group's retry topic
    DELIVERED_AGAIN = "DELIVERED_AGAIN"  # by its broker, after the delay (by proxy)
    RETRY_HERE = "RETRY_HERE"  # kept by this member, which tries it again
    DEAD_LETTER = "DEAD_LETTER"  # stored in the group's dead-letter queue
    GIVEN_UP = "GIVEN_UP"  # broadcasting has no retries
    QUEUE_LOST = "QUEUE_LOST"  # not committed: the queue's next owner gets it
    SENT_BACK_BEFORE = "SENT_BACK_BEFORE"  # in the retry topic since it timed out


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDelivery:
    """One failed delivery of one message, and what happened to the message.

    `retry` is the number of the next delivery, counted from 1, and `retries_max` the
    highest number (None: no limit); both are None where retries are not counted.
    `error` says why brokers did not accept the message; None when they did.
    """

    message: Message
    fate: Fate
    retry: int | None = None
    retries_max: int | None = None
    error: RmqError | None = None


class Start(enum.Enum):
    """What decided the offset from which a queue is consumed."""

    COMMITTED = "COMMITTED"  # the offset at the broker or in the local file
    FIRST = "FIRST"
    LAST = "LAST"
    TIME = "TIME"
    RETRIES = "RETRIES"  # a retry topic's queue begins at 0


@dataclass(frozen=True, slots=True)
class QueueStart:
    """The offset from which an assigned queue is consumed, and what decided it."""

    queue: MessageQueue
    queue_offset: int
    start: Start


def report_failed(listener: Listener, failed: FailedDelivery) -> None:
    """Call `on_failed` for a failed delivery."""
    _report(listener.on_failed, failed, "on_failed", message=failed.message)


def report_start(
    listener: Listener, queue: MessageQueue, queue_offset: int, start: Start
) -> None:
    """Call `on_start` for a queue that begins."""
    begun = QueueStart(queue, queue_offset, start)
    _report(listener.on_start, begun, "on_start", queue=queue)


def report_assigned(listener: Listener, queues: list[MessageQueue]) -> None:
    """Call `on_assigned` for queues of this member, before their first messages."""
    if queues:
        _report(listener.on_assigned, queues, "on_assigned", queues=queues)


def report_revoked(listener: Listener, queues: list[MessageQueue]) -> None:
    """Call `on_revoked` for queues that this member lost, after their last commit."""
    if queues:
        _report(listener.on_revoked, queues, "on_revoked", queues=queues)


def _report(
    callback: Callable[[T], None] | None, argument: T, name: str, **about: object
) -> None:
    if callback is not None:
        call_back(callback, argument, name, **about)
