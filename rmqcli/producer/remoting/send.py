"""Send the requests of a Sender to brokers, with a lane for each queue.

A failed request that another broker may accept is retried there, at most twice, unless
the caller chose the queue. This can store a message twice, under one id, as Java's
producer can.

Source: DefaultMQProducerImpl.sendDefaultImpl, MessageBatch in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.api.runner import ClientRunner
from rmqcli.errors import BrokerError, RmqError, TransportError
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.lane import Lane, Slot, is_large, takes_batches
from rmqcli.producer.message import check_message
from rmqcli.producer.remoting.publisher import (
    PRODUCER_GROUP,
    Prepared,
    Publisher,
    Stored,
    may_be_one_message,
)
from rmqcli.producer.remoting.target import shard_of
from rmqcli.units import format_duration
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.properties import UNIQ_KEY, encode_properties

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.producer.ids import UniqueIds
    from rmqcli.producer.message import OutgoingMessage
    from rmqcli.producer.remoting.target import PublishTarget
    from rmqcli.producer.remoting.trace import SentTraces
    from rmqcli.producer.send import Answer

RETRIES_MAX: Final = 2  # retryTimesWhenSendFailed

#: Give up after this many consecutive requests without a connection.
DEAD_AFTER: Final = 5

MAX_MESSAGE_SIZE_DEFAULT: Final = 4 << 20  # maxMessageSize of brokers
#: The limits in the texts of brokers from 5.0 on.
_LIMIT: Final = re.compile(r"body length limit ([0-9]+)B")
_DELAY_LIMIT: Final = re.compile(r"bigger than the max delay ([0-9]+)ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The options of `RemotingSend`.

    `extra_properties`, such as a delay, are added to every message. With `is_fixed` the
    caller chose the queues, so no other queue is tried.
    """

    extra_properties: dict[str, str] = field(default_factory=dict, hash=False)
    shard_by: str | None = None
    is_fixed: bool = False

    @property
    def is_delayed(self) -> bool:
        return bool(self.extra_properties)


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


class RemotingSend:
    """Sends to the brokers of a topic. Implements SendNetwork; not thread-safe."""

    def __init__(
        self,
        client: Client,
        target: PublishTarget,
        *,
        options: SendOptions,
        ids: UniqueIds,
        rng: random.Random,
        traces: SentTraces | None = None,
    ) -> None:
        self._client = client
        self._topic = target.topic
        self._options = options
        self._ids = ids
        self._takes_batches = takes_batches(target.topic, is_delayed=options.is_delayed)
        self._runner = ClientRunner(client)
        self._publisher = Publisher(
            client,
            self._runner,
            config=ProducerConfig(),
            group=None,
            producer_group=PRODUCER_GROUP,
            client_id="",
            rng=rng,
            traces=traces,
        )
        self._publisher.note_target(target)
        self.lanes: list[Lane[Slot]] = [Lane(queue) for queue in target.queues]
        # Like Java, start at a random queue, so that short runs do not all use queue 0.
        self._next_lane = rng.randrange(len(self.lanes))

    def place(self, number: int, message: OutgoingMessage) -> tuple[Lane[Slot], Slot]:
        """See SendNetwork. Queues take turns, or a field of the message decides."""
        properties_bytes = check_message(message)
        lane = self._choose_lane(message)
        msg_id = self._ids.next_id()
        properties = {
            **message.properties,
            **self._options.extra_properties,
            UNIQ_KEY: msg_id,
        }
        slot = Slot(
            number=number,
            message=message,
            msg_id=msg_id,
            is_alone=not self._takes_batches or is_large(message),
            content=properties,
            properties_bytes=properties_bytes,
            queue=lane.queue,
        )
        return lane, slot

    def submit(
        self, lane: Lane[Slot], slots: list[Slot], on_done: Callable[[Answer], None]
    ) -> None:
        """See SendNetwork. `on_done` is called in the Sender's thread."""
        options = self._options
        is_chosen = options.is_fixed or options.shard_by is not None
        task = self._publisher.send(
            self._prepared(slots),
            queue=lane.queue if is_chosen else None,
            first=lane.queue,
            timeout_ms=self._client.config.timeout_ms,
            retry_times=RETRIES_MAX,
        )

        def ended(pending: tasks.Pending[Stored]) -> None:
            outcome = pending.outcome()
            answer = outcome.results() if isinstance(outcome, Stored) else outcome
            if isinstance(answer, BrokerError) and len(slots) == 1:
                explain_limit(answer, len(slots[0].message.body))
            if isinstance(answer, BrokerError) and not slots[0].message.body:
                answer.hint = (
                    answer.hint or "give the message a body: this broker may need one"
                )
            on_done(answer)

        tasks.start(task, self._runner).on_done(ended)

    def wait(self, timeout_ms: int) -> None:
        """See SendNetwork."""
        self._runner.turn(timeout_ms)

    def may_be_one_message(self, error: RmqError) -> bool:
        """See SendNetwork."""
        return may_be_one_message(error)

    def is_out_of_reach(self, error: TransportError, failed_in_a_row: int) -> bool:
        """See SendNetwork. One of several brokers may be unreachable for a while."""
        return failed_in_a_row >= DEAD_AFTER

    def _choose_lane(self, message: OutgoingMessage) -> Lane[Slot]:
        shard_by = self._options.shard_by
        if shard_by is not None:
            return self.lanes[shard_of(message, shard_by, shards=len(self.lanes))]
        lane = self.lanes[self._next_lane]
        self._next_lane = (self._next_lane + 1) % len(self.lanes)
        return lane

    def _prepared(self, slots: list[Slot]) -> Prepared:
        first = slots[0]
        # Brokers of 5.x fail on a request without a body, but accept a batch of one.
        is_batch = len(slots) > 1 or (self._takes_batches and not first.message.body)
        prepared = Prepared(
            topic=self._topic,
            msg_ids=tuple([slot.msg_id for slot in slots]),
            body=first.message.body,
            is_elsewhere=self._options.is_delayed,
            born_timestamp_ms=self._client.clock.epoch_ms(),
        )
        if not is_batch:
            return replace(
                prepared,
                properties=encode_properties(first.content),
                flag=first.message.flag,
            )
        items = (BatchItem(s.message.body, s.content, s.message.flag) for s in slots)
        return replace(prepared, body=encode_batch(items), is_batch=True)
