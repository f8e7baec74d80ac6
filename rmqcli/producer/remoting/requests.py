"""The requests for the messages of an Accumulator, and what brokers refuse in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.model import MessageQueue
from rmqcli.producer.lane import takes_batches
from rmqcli.producer.remoting.publisher import Prepared, may_be_one_message
from rmqcli.units import format_duration
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.batch import encode_items

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Sequence

    from rmqcli import tasks
    from rmqcli.errors import BrokerError, RmqError
    from rmqcli.producer.accumulator import Entry
    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.remoting.publisher import Publisher

#: What a batch has of a message: its body, its encoded properties and its flag.
BatchPart: TypeAlias = tuple[bytes, bytes, int]

MAX_MESSAGE_SIZE_DEFAULT: Final = 4 << 20  # maxMessageSize of brokers
#: The limits in the texts of brokers from 5.0 on.
_LIMIT: Final = re.compile(r"body length limit ([0-9]+)B")
_DELAY_LIMIT: Final = re.compile(r"bigger than the max delay ([0-9]+)ms")


@dataclass(eq=False)
class SendRequests:
    """Sends to the queues of brokers. Implements AccumulatorNetwork.

    The places are queues, and so are keys. For messages whose key is in `only` (None:
    that have a key) no other queue is tried; otherwise their queue is tried first.
    `is_delayed` is whether brokers keep all messages elsewhere until their time.
    """

    publisher: Publisher
    only: Container[MessageQueue] | None = None
    is_delayed: bool = False

    def open(self, topic: str) -> tasks.Task[bool]:
        """See AccumulatorNetwork."""
        yield from self.publisher.target(topic)
        return takes_batches(topic, is_delayed=self.is_delayed)

    def places(self, topic: str) -> Sequence[MessageQueue]:
        """See AccumulatorNetwork."""
        return self.publisher.known_queues(topic)

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """See AccumulatorNetwork."""
        assert isinstance(place, MessageQueue)  # noqa: S101  # the places are queues
        is_chosen = entries[0].key is not None and (
            self.only is None or place in self.only
        )
        stored = yield from self.publisher.send(
            self._together(entries),
            queue=place if is_chosen else None,
            first=place,
            timeout_ms=timeout_ms,
            retry_times=self.publisher.config.retry_times_when_send_async_failed,
        )
        return stored.result

    def may_be_one_message(self, error: RmqError) -> bool:
        """See AccumulatorNetwork."""
        return may_be_one_message(error)

    def _together(self, entries: Sequence[Entry]) -> Prepared:
        """One request for messages of one topic."""
        first = entries[0]
        if isinstance(first.content, Prepared):
            return first.content  # sent alone
        waited_ms = self.publisher.clock.monotonic_ms() - first.put_ms
        prepared = Prepared(
            topic=first.topic,
            msg_ids=tuple([each.msg_id for each in entries]),
            body=b"",
            is_elsewhere=self.is_delayed,
            born_timestamp_ms=self.publisher.clock.epoch_ms() - waited_ms,
        )
        body, properties, flag = first.content
        can_batch = takes_batches(first.topic, is_delayed=self.is_delayed)
        # Brokers of 5.x fail on a request without a body, but accept a batch of one.
        if len(entries) > 1 or (can_batch and not body):
            prepared.is_batch = True
            prepared.body = encode_items([each.content for each in entries])
        else:
            prepared.body = body
            prepared.properties = properties.decode()
            prepared.flag = flag
        return prepared


def explain_limit(error: BrokerError, body_bytes: int) -> None:
    """Say in the error that the body or the delay is above the limit, if it is.

    Brokers refuse other messages with the same code and text. Up to 4.9 the limit in
    the text is not the one that they apply.
    """
    if error.code != ResponseCode.MESSAGE_ILLEGAL:
        return
    if found := _DELAY_LIMIT.search(error.remark):
        limit = format_duration(int(found[1]))
        error.message = f"the delay is longer than the limit of the broker, {limit}"
        error.hint = "raise timerMaxDelaySec on the broker, or use a shorter delay"
        return
    found = _LIMIT.search(error.remark)
    limit_bytes = int(found[1]) if found else MAX_MESSAGE_SIZE_DEFAULT
    if body_bytes <= limit_bytes:
        return
    default = "" if found else ", unless its maxMessageSize was changed"
    error.message = (
        f"the body has {body_bytes:,} bytes; the limit of the broker is"
        f" {limit_bytes:,}{default}"
    )
    error.hint = "raise maxMessageSize on the broker, or send a smaller body"
