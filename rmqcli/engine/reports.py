"""What a member tells its owner besides messages: where queues begin, what failed.

Both are told in the engine's thread, through functions of the `Listener`, which must
return at once. What they raise is logged and changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Message, MessageItem
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

logger = get_logger(__name__)


class Fate(enum.Enum):
    """What became of a message that its listener did not consume."""

    RETRY_TOPIC = "RETRY_TOPIC"  # stored in the group's retry topic
    RETRY_HERE = "RETRY_HERE"  # kept by this member, which tries it again
    DEAD_LETTER = "DEAD_LETTER"  # stored in the group's dead letter queue
    GIVEN_UP = "GIVEN_UP"  # broadcasting has no retries
    QUEUE_LOST = "QUEUE_LOST"  # not committed: the queue's next owner gets it
    SENT_BACK_BEFORE = "SENT_BACK_BEFORE"  # it had timed out: it is in the retry topic


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDelivery:
    """One failed delivery of one message, and what became of the message.

    `retry` is the number of the next delivery, counted from 1, and `retries_max` how
    many there may be (None: no limit); both are None where nothing is tried again by
    number. `error` is why brokers did not take the message, if they did not.
    """

    message: Message | MessageItem
    fate: Fate
    retry: int | None = None
    retries_max: int | None = None
    error: RmqError | None = None


class Start(enum.Enum):
    """What decided where a queue is consumed from."""

    COMMITTED = "COMMITTED"  # the offset that the broker, or the local file, answered
    FIRST = "FIRST"
    LAST = "LAST"
    TIME = "TIME"
    RETRIES = "RETRIES"  # a retry topic's queue begins at 0


@dataclass(frozen=True, slots=True)
class QueueStart:
    """Where a queue is consumed from once it was assigned, and why."""

    queue: MessageQueue
    queue_offset: int
    start: Start


def tell_failed(member: Member, failed: FailedDelivery) -> None:
    """Tell the listener's owner what became of a message."""
    tell = member.listener.on_failed
    if tell is None:
        return
    try:
        tell(failed)
    except Exception:
        logger.exception("on_failed failed message=%s", failed.message)


def tell_start(
    member: Member, queue: MessageQueue, queue_offset: int, start: Start
) -> None:
    """Tell the listener's owner where a queue begins."""
    tell = member.listener.on_start
    if tell is None:
        return
    try:
        tell(QueueStart(queue, queue_offset, start))
    except Exception:
        logger.exception("on_start failed queue=%s", queue)


def tell_assigned(member: Member, queues: list[MessageQueue]) -> None:
    """Report queues that are ours from now on, before their first messages."""
    _tell_queues(member.listener.on_assigned, queues, "on_assigned")


def tell_revoked(member: Member, queues: list[MessageQueue]) -> None:
    """Report queues that are not ours any more; their offsets were sent."""
    _tell_queues(member.listener.on_revoked, queues, "on_revoked")


def _tell_queues(
    tell: Callable[[list[MessageQueue]], None] | None,
    queues: list[MessageQueue],
    name: str,
) -> None:
    if tell is None or not queues:
        return
    try:
        tell(queues)
    except Exception:
        logger.exception("%s failed queues=%s", name, queues)
