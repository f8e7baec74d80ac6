"""The messages of a Sender, sent to brokers in the caller's thread.

A failed request that another broker may accept is retried there, at most twice, unless
the caller chose the queue. This can store a message twice, under one id, as Java's
producer can.

Source: DefaultMQProducerImpl.sendDefaultImpl, MessageBatch in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.api.runner import ClientRunner
from rmqcli.errors import BrokerError
from rmqcli.model import MessageQueue
from rmqcli.producer.accumulator import Entry
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.lane import ALONE_BYTES
from rmqcli.producer.message import OutgoingMessage, checked_properties
from rmqcli.producer.patience import Outages, retry_for_ms
from rmqcli.producer.remoting.publisher import Publisher
from rmqcli.producer.remoting.requests import SendRequests, explain_limit
from rmqcli.producer.remoting.target import shard_of
from rmqcli.producer.send import WAIT_MS_MAX
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.ids import message_group_index
from rmqcli.wire.message.properties import (
    IGNORED_IN_BATCHES,
    SHARDING_KEY,
    UNIQ_KEY,
    encode_properties,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from rmqcli import tasks
    from rmqcli.api.client import Client
    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.remoting.target import PublishTarget
    from rmqcli.producer.remoting.trace import SentTraces

#: Of at most this many messages that may be stored twice the ids are kept.
IDS_KEPT: Final = 100
_UNIQ_KEY: Final = UNIQ_KEY.encode()


class StoredAgain:
    """Stored messages that a broker may have stored before, too.

    `count` counts all; a broker that loses its connections all the time may make
    millions, so only the first IDS_KEPT have their ids in `msg_ids`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.msg_ids: list[str] = []

    def add(self, msg_ids: Sequence[str]) -> None:
        """Note the messages of a request."""
        self.count += len(msg_ids)
        self.msg_ids += msg_ids[: IDS_KEPT - len(self.msg_ids)]


class RemotingSend(SendRequests):
    """Sends to the brokers of a topic. Implements SendNetwork; not thread-safe.

    The key of each message is its queue. `extra_properties`, such as a delay, are added
    to every message. With `shard_by` a field of each message decides about its queue.
    With `is_fixed` the caller chose the queues, so no other queue is tried.
    """

    def __init__(
        self,
        client: Client,
        target: PublishTarget,
        *,
        extra_properties: Mapping[str, str] | None = None,
        shard_by: str | None = None,
        is_fixed: bool = False,
        rng: random.Random,
        traces: SentTraces | None = None,
    ) -> None:
        self.stored_again = StoredAgain()
        self._client = client
        self._target = target
        self._shard_by = shard_by
        ip = local_ip(next(iter(target.addresses.values()))) or "127.0.0.1"
        self._ids = UniqueIds(ip, clock=client.clock, rng=rng)
        self._extra = encode_properties(extra_properties or {}).encode()
        self.clock = client.clock
        self.runner = ClientRunner(client)
        #: queues to which messages with a sharding key go; None: every queue is chosen
        self._keyed: set[MessageQueue] | None = None
        if not is_fixed and shard_by is None:
            self._keyed = set()
        publisher = Publisher(
            client,
            self.runner,
            config=ProducerConfig(),
            rng=rng,
            traces=traces,
            on_stored_again=self.stored_again.add,
        )
        publisher.note_target(target)
        super().__init__(publisher, only=self._keyed, is_delayed=bool(extra_properties))
        self.outages = Outages(
            client.clock,
            places=len({queue.broker_name for queue in target.queues}),
            retry_for_ms=retry_for_ms(client.config.timeout_ms),
        )
        # Like Java, start at a random queue, so that short runs do not all use queue 0.
        self._turn = rng.randrange(len(target.queues))

    def entry(self, message: OutgoingMessage) -> Entry:
        """See SendNetwork.

        Queues take turns, or a field of the message decides, or its sharding key: such
        as the message group of a message of a FIFO topic that is sent again.
        """
        body, properties = message.body, checked_properties(message)
        queue = self._choose(message)
        msg_id = self._ids.next_id()
        properties += b"%s%s\x01%s\x02" % (self._extra, _UNIQ_KEY, msg_id.encode())
        return Entry(
            self._target.topic,
            queue,
            (body, properties, message.flag),
            msg_id=msg_id,
            size_bytes=len(body) + len(properties),
            is_alone=len(body) >= ALONE_BYTES
            or not IGNORED_IN_BATCHES.isdisjoint(message.properties),
            timeout_ms=WAIT_MS_MAX,
            now_ms=self.clock.monotonic_ms(),
        )

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """See AccumulatorNetwork. The time limit begins with each attempt."""
        assert isinstance(place, MessageQueue)  # noqa: S101  # the places are queues
        limit_ms = min(timeout_ms, self._client.config.timeout_ms)
        body_bytes = len(entries[0].content[0])
        try:
            return (
                yield from self.outages.wait_out(
                    place.broker_name,
                    lambda: SendRequests.request(self, entries, place, limit_ms),
                )
            )
        except BrokerError as error:
            if len(entries) == 1:
                explain_limit(error, body_bytes)
            if not body_bytes:
                error.hint = (
                    error.hint or "give the message a body: this broker may need one"
                )
            raise

    def post(self, action: Callable[[], None]) -> None:
        """See SendNetwork."""
        action()

    def wait(self, timeout_ms: int) -> None:
        """See SendNetwork."""
        self.runner.turn(timeout_ms)

    def note_end(self, count: int) -> None:
        """See SendNetwork."""

    def _choose(self, message: OutgoingMessage) -> MessageQueue:
        queues = self._target.queues
        if self._shard_by is not None:
            return queues[shard_of(message, self._shard_by, shards=len(queues))]
        sharding_key = message.properties.get(SHARDING_KEY)
        if sharding_key and self._keyed is not None:
            index = message_group_index(sharding_key, len(queues))
            self._keyed.add(queues[index])
            return queues[index]
        self._turn = (self._turn + 1) % len(queues)
        return queues[self._turn]
