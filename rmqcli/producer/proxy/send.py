"""The messages of a Sender, sent to a proxy, several batches at a time.

With a message group only one call is in flight, so that the messages keep their order.
The calls run in the thread of the session.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError
from rmqcli.producer.accumulator import Entry
from rmqcli.producer.message import SYSTEM_PROPERTIES, OutgoingMessage
from rmqcli.producer.patience import Outages, retry_for_ms
from rmqcli.producer.proxy.backend import ProxyCalls, goes_alone, outgoing
from rmqcli.producer.proxy.publisher import ProxyPublisher, check_size
from rmqcli.producer.send import WAIT_MS_MAX
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable, Sequence

    from rmqcli import tasks
    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.ids import ProxyMessageIds
    from rmqcli.proxy.message import OutgoingProxyMessage
    from rmqcli.proxy.session import Session

#: Calls in flight.
_CALLS_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySendOptions:
    """The options of `ProxySend`.

    `delay_ms` counts from the time at which a message is read. `born_host` is the
    address of this machine.
    """

    message_group: str | None = None
    delay_ms: int | None = None
    born_host: str = "127.0.0.1"


class ProxySend(ProxyCalls):
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
        super().__init__(
            session, ProxyPublisher(session, rng=rng), calls_max=_CALLS_MAX
        )
        self._topic = topic
        self._options = options
        self._timeout_ms = timeout_ms
        self._ids = ids
        self.clock = session.clock
        self.runner = session.via
        self.post = session.post
        self.outages = Outages(
            session.clock, places=1, retry_for_ms=retry_for_ms(timeout_ms)
        )
        #: set when messages have ended
        self._news = threading.Event()

    def prepare(self) -> None:
        """Request the topic's route. Raises NotFoundError for an unknown topic."""
        self._session.in_caller(lambda via: self._publisher.can_batch(self._topic, via))

    def entry(self, message: OutgoingMessage) -> Entry:
        """See SendNetwork."""
        content = self._outgoing(message)
        return Entry(
            self._topic,
            content.message_group,
            content,
            msg_id=content.msg_id,
            size_bytes=len(message.body),
            is_alone=goes_alone(content),
            timeout_ms=WAIT_MS_MAX,
            now_ms=self.clock.monotonic_ms(),
        )

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """See AccumulatorNetwork. The time limit begins with each attempt."""
        limit_ms = min(timeout_ms, self._timeout_ms)
        return self.outages.wait_out(
            str(self._session.access_point),
            lambda: ProxyCalls.request(self, entries, place, limit_ms),
        )

    def wait(self, timeout_ms: int) -> None:
        """See SendNetwork."""
        self._news.wait(timeout_ms / 1_000)
        self._news.clear()

    def note_end(self, count: int) -> None:
        """See SendNetwork. The messages end in this turn of the thread."""
        self._session.post(self._news.set)

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
