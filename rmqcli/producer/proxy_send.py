"""Sends messages by way of a proxy: batched, a few calls at a time, outcomes in order.

What `send` is to brokers: not a transaction, one that fails does not stop the others.
With a message group one call is under way at a time, so the messages keep their order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeniedError,
    RmqError,
    SendUnknownError,
    TransportError,
    UsageError,
)
from rmqcli.producer.lane import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    SendOutcome,
    is_large,
)
from rmqcli.producer.message import SYSTEM_PROPERTIES
from rmqcli.producer.proxy_producer import outgoing
from rmqcli.producer.proxy_publisher import ProxyPublisher, check_size
from rmqcli.producer.send import DEAD_AFTER, OUTCOMES_MAX
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from rmqcli.producer.ids import ProxyMessageIds
    from rmqcli.producer.message import OutgoingMessage
    from rmqcli.producer.publish import SendResult
    from rmqcli.proxy.message import OutgoingProxyMessage
    from rmqcli.proxy.session import Session

#: Calls under way at one time.
_CALLS_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySendOptions:
    """`delay_ms` counts from when a message is read. `born_host` is this machine."""

    message_group: str | None = None
    delay_ms: int | None = None
    born_host: str = "127.0.0.1"


@dataclass(slots=True)
class _Group:
    """Messages of one call, their numbers and sources, and their outcomes."""

    messages: list[OutgoingProxyMessage] = field(default_factory=list)
    numbers: list[tuple[int, str | None]] = field(default_factory=list)
    size_bytes: int = 0
    future: Future[Any] | None = None
    outcomes: list[SendOutcome] | None = None


class ProxySender:
    """Sends to one topic. For one thread; `send` is to be called once."""

    def __init__(
        self,
        session: Session,
        topic: str,
        *,
        options: ProxySendOptions,
        timeout_ms: int,
        ids: ProxyMessageIds,
        rng: random.Random,
    ) -> None:
        self._session = session
        self._topic = topic
        self._options = options
        self._timeout_ms = timeout_ms
        self._ids = ids
        self._publisher = ProxyPublisher(session, rng=rng)
        self._batch_max = 1
        self._calls_max = 1 if options.message_group is not None else _CALLS_MAX
        #: in the order of the input; the last one may still be filled
        self._groups: deque[_Group] = deque()
        self._filling = _Group()
        self._next_number = 0
        self._failed_in_a_row = 0
        #: why nothing more is sent: the proxy cannot be reached
        self.given_up: RmqError | None = None

    def prepare(self) -> None:
        """Ask for the topic's route. Raises NotFoundError for an unknown topic."""
        publisher = self._publisher
        can_batch = self._session.in_caller(
            lambda via: publisher.can_batch(self._topic, via)
        )
        if can_batch and self._options.delay_ms is None:
            self._batch_max = BATCH_MESSAGES_MAX

    def send(
        self, messages: Iterable[OutgoingMessage | None]
    ) -> Iterator[list[SendOutcome]]:
        """Send all; outcomes in the order of the input, in lists as they come.

        See `Sender.send`, which is the same for brokers.
        """
        failure: RmqError | None = None
        source = iter(messages)
        while self.given_up is None:
            try:
                message = next(source)
                if message is not None:
                    self._accept(message)
            except StopIteration:
                break
            except RmqError as error:
                failure = error
                break
            if message is None:
                yield self._drain()
            elif len(self._filling.messages) >= self._batch_max:
                self._submit()
                yield self._take_ready()
        yield self._drain()
        if failure is not None:
            raise failure

    def abandon(self) -> list[SendOutcome]:
        """The outcomes not given out, when `send` was interrupted; at any moment of it.

        UNKNOWN is what was asked to be stored: whether it was will not be told here.
        """
        if self._filling.messages:
            self._groups.append(self._filling)
            self._filling = _Group()
        found = []
        for group in self._groups:
            if group.outcomes is None:
                status = "NOT_SENT" if group.future is None else "UNKNOWN"
                group.outcomes = _failed(group, None, status)
            found += group.outcomes
        self._groups.clear()
        return found

    def _accept(self, message: OutgoingMessage) -> None:
        prepared = self._prepared(message)
        cost_bytes = len(message.body) + MESSAGE_OVERHEAD_BYTES
        group = self._filling
        if group.messages and (
            is_large(message) or group.size_bytes + cost_bytes > BATCH_BYTES_MAX
        ):
            self._submit()
            group = self._filling
        group.messages.append(prepared)
        group.numbers.append((self._next_number, message.source))
        group.size_bytes += cost_bytes
        self._next_number += 1

    def _prepared(self, message: OutgoingMessage) -> OutgoingProxyMessage:
        now_ms = self._session.clock.epoch_ms()
        options = self._options
        where = f"{message.source}: " if message.source else ""
        try:
            check_size(message.body, max_bytes=self._session.settings.max_body_bytes)
        except UsageError as error:
            raise UsageError(f"{where}{error.message}", hint=error.hint) from None
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in (TAGS, KEYS) and name not in SYSTEM_PROPERTIES
        }
        plain = type(message)(message.body, properties, message.flag, message.source)
        return outgoing(
            topic=self._topic,
            message=plain,
            tag=message.properties.get(TAGS),
            keys=tuple(message.properties.get(KEYS, "").split()),
            message_group=options.message_group,
            delivery_timestamp_ms=None
            if options.delay_ms is None
            else now_ms + options.delay_ms,
            msg_id=self._ids.next_id(),
            now_ms=now_ms,
            host=options.born_host,
        )

    def _submit(self) -> None:
        """Send what was gathered, once there is room for one more call."""
        group, self._filling = self._filling, _Group()
        if not group.messages:
            return
        self._groups.append(group)
        while sum(each.outcomes is None for each in self._groups) > self._calls_max:
            self._finish_first()
        while len(self._groups) * self._batch_max > OUTCOMES_MAX:
            self._finish_first()
        if self.given_up is not None:
            group.outcomes = _failed(group, self.given_up, "NOT_SENT")
            return
        session = self._session
        group.future = session.run(
            self._publisher.send(
                group.messages, timeout_ms=self._timeout_ms, via=session.via
            )
        )

    def _finish_first(self) -> None:
        """Wait for the first call that is under way."""
        for group in self._groups:
            if group.outcomes is None and group.future is not None:
                self._finish(group)
                return

    def _finish(self, group: _Group) -> None:
        assert group.future is not None  # noqa: S101  # it was sent
        try:
            found = group.future.result()
        except RmqError as error:
            if len(group.messages) > 1 and _may_be_one_message(error):
                group.outcomes = self._one_by_one(group)
                return
            self._note(error)
            group.outcomes = _failed(group, error, _status_of(error))
            return
        self._failed_in_a_row = 0
        group.outcomes = [
            _stored(number, source, result)
            for (number, source), (result, _) in zip(group.numbers, found, strict=True)
        ]

    def _one_by_one(self, group: _Group) -> list[SendOutcome]:
        """Some message of a batch may be at fault: each is tried by itself."""
        outcomes = []
        for (number, source), message in zip(
            group.numbers, group.messages, strict=True
        ):
            alone = _Group([message], [(number, source)])
            try:
                ((result, _),) = self._session.in_caller(
                    lambda via, message=message: self._publisher.send(  # type: ignore[misc]  # bound now
                        [message], timeout_ms=self._timeout_ms, via=via
                    )
                )
            except RmqError as error:
                outcomes += _failed(alone, error, _status_of(error))
            else:
                outcomes.append(_stored(number, source, result))
        return outcomes

    def _note(self, error: RmqError) -> None:
        if isinstance(error, TransportError):
            self._failed_in_a_row += 1
            # One attempt without a connection was several already.
            if isinstance(error, ConnectError) or self._failed_in_a_row >= DEAD_AFTER:
                self.given_up = error

    def _drain(self) -> list[SendOutcome]:
        self._submit()
        for group in self._groups:
            if group.outcomes is None:
                self._finish(group)
        return self._take_ready()

    def _take_ready(self) -> list[SendOutcome]:
        ready = []
        for group in self._groups:
            # What ended meanwhile costs no wait.
            if group.outcomes is None and group.future and group.future.done():
                self._finish(group)
        while self._groups and self._groups[0].outcomes is not None:
            ready += self._groups.popleft().outcomes or []
        return ready


def _stored(number: int, source: str | None, result: SendResult) -> SendOutcome:
    return SendOutcome(
        number=number,
        msg_id=result.msg_id,
        source=source,
        queue=None,
        status=result.status.value,
        queue_offset=result.queue_offset,
    )


def _failed(group: _Group, error: RmqError | None, status: str) -> list[SendOutcome]:
    return [
        SendOutcome(
            number=number,
            msg_id=message.msg_id,
            source=source,
            queue=None,
            status=status,
            error=error,
        )
        for (number, source), message in zip(group.numbers, group.messages, strict=True)
    ]


def _may_be_one_message(error: RmqError) -> bool:
    return isinstance(error, BrokerError) and not isinstance(error, DeniedError)


def _status_of(error: RmqError) -> str:
    if isinstance(error, SendUnknownError):
        return "UNKNOWN"
    if isinstance(error, BrokerError):
        return error.name
    return "NOT_SENT"
