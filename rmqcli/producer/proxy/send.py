"""Send the requests of a Sender to a proxy, several batches at a time.

With a message group only one call is in flight, so that the messages keep their order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import (
    ConfigError,
    ConnectError,
    RmqError,
    TransportError,
)
from rmqcli.producer.lane import Lane, Slot, is_large
from rmqcli.producer.message import SYSTEM_PROPERTIES, OutgoingMessage
from rmqcli.producer.proxy.backend import outgoing
from rmqcli.producer.proxy.publisher import (
    ProxyPublisher,
    check_size,
    may_be_one_message,
)
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from concurrent.futures import Future

    from rmqcli.producer.ids import ProxyMessageIds
    from rmqcli.producer.send import Answer
    from rmqcli.proxy.message import OutgoingProxyMessage
    from rmqcli.proxy.session import Session

#: Calls in flight.
_CALLS_MAX: Final = 4
#: Give up after this many consecutive requests that failed.
_DEAD_AFTER: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySendOptions:
    """The options of `ProxySend`.

    `delay_ms` counts from the time at which a message is read. `born_host` is the
    address of this machine.
    """

    message_group: str | None = None
    delay_ms: int | None = None
    born_host: str = "127.0.0.1"


class ProxySend:
    """Sends through a proxy. Implements SendNetwork; not thread-safe."""

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
        self._takes_batches = False
        calls_max = 1 if options.message_group is not None else _CALLS_MAX
        self.lanes: list[Lane[Slot]] = [Lane(None) for _ in range(calls_max)]
        self._filling = 0
        #: set when a call has ended
        self._news = threading.Event()

    def prepare(self) -> None:
        """Request the topic's route. Raises NotFoundError for an unknown topic."""
        publisher = self._publisher
        can_batch = self._session.in_caller(
            lambda via: publisher.can_batch(self._topic, via)
        )
        self._takes_batches = can_batch and self._options.delay_ms is None

    def place(self, number: int, message: OutgoingMessage) -> tuple[Lane[Slot], Slot]:
        """See SendNetwork. Fills one lane after the other."""
        content = self._outgoing(message)
        slot = Slot(
            number=number,
            message=message,
            msg_id=content.msg_id,
            is_alone=not self._takes_batches or is_large(message),
            content=content,
        )
        if self.lanes[self._filling].is_full:
            self._filling = (self._filling + 1) % len(self.lanes)
        return self.lanes[self._filling], slot

    def submit(
        self, lane: Lane[Slot], slots: list[Slot], on_done: Callable[[Answer], None]
    ) -> None:
        """See SendNetwork. `on_done` is called in the thread rmq-proxy."""
        session = self._session
        messages = [slot.content for slot in slots]

        def ended(future: Future[Any]) -> None:
            try:
                on_done([result for result, _ in future.result()])
            except RmqError as error:
                on_done(error)
            self._news.set()

        task = self._publisher.send(
            messages, timeout_ms=self._timeout_ms, via=session.via
        )
        session.run(task).add_done_callback(ended)

    def wait(self, timeout_ms: int) -> None:
        """See SendNetwork."""
        self._news.wait(timeout_ms / 1_000)
        self._news.clear()

    def may_be_one_message(self, error: RmqError) -> bool:
        """See SendNetwork."""
        return may_be_one_message(error)

    def is_out_of_reach(self, error: TransportError, failed_in_a_row: int) -> bool:
        """See SendNetwork. A call that fails to connect has made several attempts."""
        return isinstance(error, ConnectError) or failed_in_a_row >= _DEAD_AFTER

    def _outgoing(self, message: OutgoingMessage) -> OutgoingProxyMessage:
        now_ms = self._session.clock.epoch_ms()
        options = self._options
        where = f"{message.source}: " if message.source else ""
        try:
            check_size(message.body, max_bytes=self._session.settings.max_body_bytes)
        except ConfigError as error:
            raise ConfigError(f"{where}{error.message}", hint=error.hint) from None
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in (TAGS, KEYS) and name not in SYSTEM_PROPERTIES
        }
        plain = OutgoingMessage(message.body, properties, message.flag, message.source)
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
