"""Live traffic for `rmq demo`: a producer, and a consumer that is slower than it.

The consumer is an ordinary `Consumer`, with one thread and a slow listener.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final

from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.consumer.consumer import Consumer
from rmqcli.demo.orders import GROUP, TOPIC, order_events
from rmqcli.engine.config import ConsumerConfig
from rmqcli.engine.listener import LeaveRest
from rmqcli.errors import RmqError
from rmqcli.producer.remoting.send import RemotingSend
from rmqcli.producer.remoting.target import find_target
from rmqcli.producer.send import Sender

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.config import ClientConfig
    from rmqcli.model import Message, MessageQueue
    from rmqcli.producer.message import OutgoingMessage

#: How many queues the topic has, on one broker.
QUEUES: Final = 4
#: How many messages exist before the tour begins, and the rates during the tour.
PAST_ORDERS: Final = 2_000
_SENT_PER_S: Final = 40
_CONSUMED_PER_S: Final = 20
_TURN_MS: Final = 100
#: Short, so that the user sees the offsets move; RocketMQ's default is 5 s.
_PERSIST_MS: Final = 500
#: Small, so that the one thread soon gets to every queue.
_PULL_BATCH: Final = 4
_UNDER_WAY_MS: Final = 5_000


class Traffic:
    """A producer and a consumer; `stop` ends both. `error` is the producer's error."""

    def __init__(self, config: ClientConfig, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._over = threading.Event()
        self._ready = threading.Event()
        self._producer = threading.Thread(target=self._guarded, name="orders")
        self._consumer = Consumer(
            GROUP,
            TOPIC,
            self._take,
            client=config,
            consume_from="earliest",
            consume_threads=1,
            config=ConsumerConfig(
                pull_batch_size=_PULL_BATCH,
                instance_name=f"{GROUP}-1",  # short: lag shows it in each line
                persist_consumer_offset_interval_ms=_PERSIST_MS,
            ),
        )
        self.error: RmqError | None = None
        self._consumed: set[MessageQueue] = set()

    def start(self) -> None:
        """Start both; return when past orders are stored and each queue has a commit.

        For the commits it waits about 6 s at most. Raises the error of the producer or
        the consumer.
        """
        self._producer.start()
        self._ready.wait()
        if self.error is not None:
            raise self.error
        self._consumer.start()
        deadline = Deadline(SYSTEM_CLOCK, _UNDER_WAY_MS)
        while not deadline.is_over() and len(self._consumed) < QUEUES:
            SYSTEM_CLOCK.wait_ms(self._over, _TURN_MS)
        SYSTEM_CLOCK.wait_ms(self._over, 2 * _PERSIST_MS)

    def stop(self) -> None:
        """End both. Idempotent."""
        self._over.set()
        self._consumer.close()
        if self._producer.ident is not None:
            self._producer.join()

    def _guarded(self) -> None:
        try:
            with Client(self._config) as client:
                self._produce(client)
        except RmqError as error:
            self.error = error
        finally:
            self._ready.set()

    def _produce(self, client: Client) -> None:
        rng = random.Random(self._seed)  # noqa: S311  # orders that look alive
        target = find_target(client, TOPIC)
        network = RemotingSend(client, target, shard_by="order", rng=rng)
        for _ in Sender(network).send(self._paced(rng)):
            pass

    def _paced(self, rng: random.Random) -> Iterator[OutgoingMessage | None]:
        events = order_events(rng)
        for _ in range(PAST_ORDERS):
            yield next(events)
        yield None
        self._ready.set()
        # Counted by time and not by turns, which take longer on a busy machine: the
        # consumer must not keep up.
        begun_ms, sent = SYSTEM_CLOCK.monotonic_ms(), 0
        while not SYSTEM_CLOCK.wait_ms(self._over, _TURN_MS):
            passed_ms = SYSTEM_CLOCK.monotonic_ms() - begun_ms
            for _ in range(_SENT_PER_S * passed_ms // 1000 - sent):
                yield next(events)
                sent += 1
            yield None

    def _take(self, message: Message) -> None:
        """The slow listener."""
        self._consumed.add(message.message_queue)
        if SYSTEM_CLOCK.wait_ms(self._over, 1_000 // _CONSUMED_PER_S):
            raise LeaveRest
