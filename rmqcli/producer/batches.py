"""Send messages in batches, one request after the other, and wait out broker restarts.

This is for callers with many messages that may be sent twice: a sink or an import. A
request that fails because a broker is restarting, busy or silent is retried for a
while. If a request was not answered, its messages may then be stored twice; they are
counted.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.api.calls.send import SendStatus
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, SendUnknownError
from rmqcli.log import get_logger
from rmqcli.producer.lane import (
    ALONE_BYTES,
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    takes_batches,
)
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.patience import RETRY_FOR_MS, Patience, may_pass
from rmqcli.units import read_count
from rmqcli.wire.ids import message_group_index
from rmqcli.wire.message.properties import (
    IGNORED_IN_BATCHES,
    LITE_TOPIC,
    PRIORITY,
    SHARDING_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqcli.clock import Clock
    from rmqcli.model import MessageQueue
    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.producer import Producer

logger = get_logger(__name__)

M = TypeVar("M", bound=ProducerMessage)


class Gathered(Generic[M]):
    """Gathers messages of one topic into batches, in order. Not thread-safe.

    `has_queue` says whether the batches are for a queue that the caller has chosen.
    """

    def __init__(self, *, has_queue: bool) -> None:
        self._has_queue = has_queue
        self._messages: list[M] = []
        self._bytes = 0

    def add(self, message: M) -> Iterator[list[M]]:
        """Add a message; yield the batches that are now complete."""
        size = MESSAGE_OVERHEAD_BYTES + len(message.body)
        for name, value in message.properties.items():
            size += len(name) + len(value)
        alone = goes_alone(message, has_queue=self._has_queue)
        if alone or self._bytes + size > BATCH_BYTES_MAX:
            yield from self.rest()
        if alone:
            yield [message]
            return
        self._messages.append(message)
        self._bytes += size
        if len(self._messages) >= BATCH_MESSAGES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[list[M]]:
        """Yield a batch of the messages that were not yielded yet, if there are any."""
        if self._messages:
            messages, self._messages, self._bytes = self._messages, [], 0
            yield messages


def goes_alone(message: ProducerMessage, *, has_queue: bool) -> bool:
    """Whether the message cannot be in a batch, or is too large to gain from one.

    A broker looks at the lite topic, and at the priority, of single messages only, and
    by the priority it chooses another queue than the caller.
    """
    return (
        len(message.body) >= ALONE_BYTES
        or LITE_TOPIC in message.properties
        or (PRIORITY in message.properties and not has_queue)
        or not takes_batches(message.topic, is_delayed=message.is_delayed)
    )


def goes_apart(message: ProducerMessage) -> bool:
    """Whether the broker chooses the place of the message, by its delay or priority."""
    return message.is_delayed or PRIORITY in message.properties


def queue_by_content(
    message: ProducerMessage, queues: Sequence[MessageQueue], other: MessageQueue
) -> MessageQueue:
    """Return the queue in which a copy of a message belongs; `other` for most messages.

    A message of a message group belongs where a proxy stores the group among `queues`,
    which are sorted. One with a priority belongs to the queue of that number on the
    broker of `other`, or to its last one, as brokers store it.
    """
    message_group = message.properties.get(SHARDING_KEY)
    if message_group:
        return queues[message_group_index(message_group, len(queues))]
    priority = read_count(message.properties.get(PRIORITY), digits_max=9)
    if priority is None:
        return other
    of_broker = [each for each in queues if each.broker_name == other.broker_name]
    return of_broker[min(priority, len(of_broker) - 1)]


def send_gathered(
    producer: Producer, messages: Sequence[ProducerMessage], queue: MessageQueue | None
) -> list[SendResult]:
    """Send a batch from `Gathered`, once, to a queue (None: any). Raises as `send`."""
    first = messages[0]
    if len(messages) == 1 and goes_alone(first, has_queue=queue is not None):
        names = IGNORED_IN_BATCHES.intersection(first.properties)
        # In a batch a message with a priority keeps its queue.
        if queue is None or names != {PRIORITY}:
            return [producer.send(first, queue=queue)]
    # A single message is also sent as a batch: only there may bodies be empty.
    return producer.send_batch(messages, queue=queue)


@dataclass(slots=True)
class SentCounts:
    """Counts of the messages that are stored.

    `unsure` counts those of `stored` that may be stored twice, and `weak` those that
    the broker could not flush or replicate in time.
    """

    stored: int = 0
    unsure: int = 0
    weak: int = 0


@dataclass(slots=True, eq=False)
class BatchSender:
    """Sends batches with a producer that has been started. Not thread-safe."""

    producer: Producer
    retry_for_ms: int = RETRY_FOR_MS
    clock: Clock = SYSTEM_CLOCK
    counts: SentCounts = field(default_factory=SentCounts, init=False)
    #: topics to which messages were sent; if one is not found, a broker restarts
    _known: set[str] = field(default_factory=set, init=False)

    def send(
        self, messages: Sequence[ProducerMessage], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Store a batch of messages of one topic from `Gathered`.

        Returns where the last message was stored. Raises the errors of
        `Producer.send_batch`: at once when a retry cannot help, and otherwise after
        retrying for `retry_for_ms`.
        """
        return self._send(messages, queue, is_unsure=False)

    def send_apart(self, messages: Sequence[ProducerMessage]) -> None:
        """Store each message with a separate request, concurrently and in any order.

        This is for messages that `goes_apart` tells. Raises the errors of `send`, but
        only after all messages were tried.
        """
        futures = [self.producer.submit(each) for each in messages]
        failed = []
        for message, future in zip(messages, futures, strict=True):
            error = future.exception()
            if error is None:
                self._known.add(message.topic)
                self._count([future.result()], is_unsure=False)
            elif isinstance(error, RmqError):
                failed.append((message, error))
            else:
                raise error
        for message, error in failed:
            if not may_pass(error, is_known=message.topic in self._known):
                raise error
            is_unsure = isinstance(error, SendUnknownError)
            self._send([message], None, is_unsure=is_unsure)

    def _send(
        self,
        messages: Sequence[ProducerMessage],
        queue: MessageQueue | None,
        *,
        is_unsure: bool,
    ) -> SendResult:
        patience = Patience(self.clock, retry_for_ms=self.retry_for_ms)
        never = threading.Event()
        topic = messages[0].topic
        while True:
            try:
                results = send_gathered(self.producer, messages, queue)
            except RmqError as error:
                is_unsure = is_unsure or isinstance(error, SendUnknownError)
                pause_ms = patience.pause_ms(error, is_known=topic in self._known)
                logger.warning("batch sent again topic=%s error=%s", topic, error)
                self.clock.wait_ms(never, pause_ms)
            else:
                self._known.add(topic)
                self._count(results, is_unsure=is_unsure)
                return results[-1]

    def _count(self, results: list[SendResult], *, is_unsure: bool) -> None:
        counts = self.counts
        counts.stored += len(results)
        counts.unsure += len(results) if is_unsure else 0
        counts.weak += sum(each.status is not SendStatus.SEND_OK for each in results)
