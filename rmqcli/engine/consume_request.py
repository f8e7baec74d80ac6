"""Messages of one queue on their way to the listener, and what became of them.

A request is what one pull brought (or one take of an orderly queue), not one message: a
hand-off between threads costs more than a message does. Several threads may work on a
concurrent request at once; each takes the next batch of it.

Source: the ConsumeRequest classes of both consume services.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqcli.engine.listener import ConsumeOrderlyStatus
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue


class ConcurrentRequest:
    """Messages that may be consumed in any order, in batches of `batch_size`.

    `batches` gives each of them once, to the thread that asks next; thread-safe.
    """

    __slots__ = (
        "batch_size",
        "batches",
        "begun",
        "checks",
        "ended",
        "is_cancelled",
        "is_shared",
        "left",
        "message_queue",
        "messages",
        "process_queue",
    )

    def __init__(
        self,
        message_queue: MessageQueue,
        process_queue: ProcessQueue[Pulled],
        messages: Sequence[Pulled],
        batch_size: int,
    ) -> None:
        self.message_queue = message_queue
        self.process_queue = process_queue
        self.messages = messages
        self.batch_size = batch_size
        #: set when the consumer closes: nothing more of it is begun
        self.is_cancelled = False
        #: how often the engine checked whether it is done
        self.checks = 0
        #: whether other threads were asked to help
        self.is_shared = len(messages) <= batch_size
        #: one entry for each thread, made before it reads `is_cancelled`
        self.begun: list[None] = []
        #: how many of these threads have reported their end
        self.ended = 0
        #: messages whose outcome the engine has not got yet
        self.left = len(messages)
        if batch_size == 1:
            self.batches: Iterator[Sequence[Pulled]] | Iterator[Pulled] = iter(messages)
        else:
            self.batches = iter(
                [
                    messages[at : at + batch_size]
                    for at in range(0, len(messages), batch_size)
                ]
            )


class Failed(NamedTuple):
    """A message to be consumed again.

    `delay_level` is what the listener's context said.
    """

    message: Pulled
    delay_level: int


class ConcurrentOutcome(NamedTuple):
    """What one thread did of a request: `done` includes those that `failed`.

    With `is_end` the thread has left the request; each thread says so once.
    """

    request: ConcurrentRequest
    done: Sequence[Pulled]
    failed: Sequence[Failed]
    spent_ms: int
    is_end: bool = True


class OrderlyRequest:
    """Messages taken from an orderly queue, to be consumed batch after batch."""

    __slots__ = (
        "batch_size",
        "is_cancelled",
        "message_queue",
        "messages",
        "process_queue",
    )

    def __init__(
        self,
        message_queue: MessageQueue,
        process_queue: ProcessQueue[Pulled],
        messages: Sequence[Pulled],
        batch_size: int,
    ) -> None:
        self.message_queue = message_queue
        self.process_queue = process_queue
        self.messages = messages
        self.batch_size = batch_size
        self.is_cancelled = False


class OrderlyOutcome(NamedTuple):
    """How far a thread came: `succeeded` messages, then maybe a batch that is special.

    `batch` is the one that ended it: it did not succeed, or its listener does not want
    it committed by itself. The rest was not shown to the listener.
    """

    request: OrderlyRequest
    succeeded: int
    batch: Sequence[Pulled]
    status: ConsumeOrderlyStatus | None
    auto_commit: bool
    suspend_ms: int | None
    spent_ms: int
