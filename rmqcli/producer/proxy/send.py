"""The messages of a Sender, sent to a proxy, several batches at a time.

With a message group only one call is in flight, so that the messages keep their order.
The calls run in the thread of the session.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from rmqcli.producer.ids import ProxyMessageIds
from rmqcli.producer.message import SYSTEM_PROPERTIES, OutgoingMessage
from rmqcli.producer.patience import Outages, retry_for_ms
from rmqcli.producer.proxy.backend import ProxyCalls, entry_of, outgoing
from rmqcli.producer.proxy.publisher import ProxyPublisher, check_size
from rmqcli.producer.send import WAIT_MS_MAX
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable, Sequence

    from rmqcli import tasks
    from rmqcli.producer.accumulator import Entry
    from rmqcli.producer.backend import SendResult
    from rmqcli.proxy.session import Session

#: Calls in flight.
_CALLS_MAX: Final = 4


class ProxySend(ProxyCalls):
    """Sends through a proxy. Implements SendNetwork; not thread-safe.

    `delay_ms` counts from the time at which a message is read.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        *,
        message_group: str | None = None,
        delay_ms: int | None = None,
        rng: random.Random,
    ) -> None:
        super().__init__(
            session, ProxyPublisher(session, rng=rng), calls_max=_CALLS_MAX
        )
        config = session.config
        self._topic = topic
        self._message_group = message_group
        self._delay_ms = delay_ms
        self._timeout_ms = config.timeout_ms
        self._ids = ProxyMessageIds(clock=session.clock, rng=rng)
        self._host = local_ip(config.endpoints[0]) or "127.0.0.1"
        self.clock = session.clock
        self.runner = session.via
        self.post = session.post
        self.outages = Outages(
            session.clock, places=1, retry_for_ms=retry_for_ms(config.timeout_ms)
        )
        #: set when messages have ended
        self._news = threading.Event()

    def prepare(self) -> None:
        """Request the topic's route. Raises NotFoundError for an unknown topic."""
        self.session.in_caller(lambda via: self.publisher.can_batch(self._topic, via))

    def entry(self, message: OutgoingMessage) -> Entry:
        """See SendNetwork."""
        now_ms = self.clock.epoch_ms()
        check_size(
            message.body,
            max_bytes=self.session.settings.max_body_bytes,
            where=f"{message.source}: " if message.source else "",
        )
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in (TAGS, KEYS) and name not in SYSTEM_PROPERTIES
        }
        content = outgoing(
            topic=self._topic,
            message=OutgoingMessage(
                message.body, properties, message.flag, message.source
            ),
            tag=message.properties.get(TAGS),
            keys=tuple(message.properties.get(KEYS, "").split()),
            message_group=self._message_group,
            delivery_timestamp_ms=None
            if self._delay_ms is None
            else now_ms + self._delay_ms,
            msg_id=self._ids.next_id(),
            now_ms=now_ms,
            host=self._host,
        )
        begun_ms = self.clock.monotonic_ms()
        return entry_of(content, timeout_ms=WAIT_MS_MAX, now_ms=begun_ms)

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """See AccumulatorNetwork. The time limit begins with each attempt."""
        limit_ms = min(timeout_ms, self._timeout_ms)
        return self.outages.wait_out(
            str(self.session.access_point),
            lambda: ProxyCalls.request(self, entries, place, limit_ms),
        )

    def wait(self, timeout_ms: int) -> None:
        """See SendNetwork."""
        self._news.wait(timeout_ms / 1_000)
        self._news.clear()

    def note_end(self, count: int) -> None:
        """See SendNetwork. The messages end in this turn of the thread."""
        self.session.post(self._news.set)
