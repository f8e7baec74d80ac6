"""Sends messages: batched, pipelined over queues, with an outcome for each in order.

Not a transaction: one that fails does not stop the others. A request that another
broker may take is tried there, twice at most, unless the queue was chosen by the
caller. That can store a message twice, under one id, as Java's producer can.

Source: DefaultMQProducerImpl.sendDefaultImpl, MessageBatch in apache/rocketmq.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.api.calls.config import AUTO_CREATE_TOPIC_KEY_TOPIC
from rmqcli.api.calls.send import send_batch_message, send_message
from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeniedError,
    DisconnectedError,
    RmqError,
    TransportError,
)
from rmqcli.model import MessageQueue
from rmqcli.producer.lane import Lane, SendOutcome, Slot, is_large, takes_batches
from rmqcli.producer.message import check_message
from rmqcli.producer.target import DEFAULT_TOPIC_QUEUE_NUMS, shard_of
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.properties import UNIQ_KEY, encode_properties

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from rmqcli.api.call import Call
    from rmqcli.api.calls.send import SendResult
    from rmqcli.api.client import Client, PendingCall
    from rmqcli.producer.ids import UniqueIds
    from rmqcli.producer.message import OutgoingMessage
    from rmqcli.producer.target import SendTarget

#: Built in, so that no broker keeps anything about us.
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"  # MixAll.CLIENT_INNER_PRODUCER_GROUP

ATTEMPTS_MAX = 3  # 1 + retryTimesWhenSendFailed

#: Requests that fail one after the other, for want of a connection, before giving up.
DEAD_AFTER = 5

#: What may wait for an answer, or for one before it, at one time.
WINDOW_MESSAGES_MAX = 8192
WINDOW_BYTES_MAX = 32 << 20

#: Outcomes kept because one before them is not known yet.
OUTCOMES_MAX = 65_536

_TURN_MS = 1000
_RETRY_CODES = (ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)
#: Here some message of a batch may be at fault: each is tried by itself.
_SPLIT_CODES = (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """`extra_properties` go with every message, such as a delay.

    `is_fixed`: the caller chose the queues, so none other is tried.
    """

    extra_properties: dict[str, str] = field(default_factory=dict, hash=False)
    shard_by: str | None = None
    is_fixed: bool = False

    @property
    def is_delayed(self) -> bool:
        return bool(self.extra_properties)


class Sender:
    """Sends to one topic. For one thread; `send` is to be called once."""

    def __init__(
        self,
        client: Client,
        target: SendTarget,
        *,
        options: SendOptions,
        ids: UniqueIds,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._target = target
        self._options = options
        self._ids = ids
        self._takes_batches = takes_batches(target.topic, is_delayed=options.is_delayed)
        self._lanes = [
            Lane(queue, target.addresses[queue.broker_name]) for queue in target.queues
        ]
        # Java starts anywhere, so that short runs do not all fill queue 0.
        self._next_lane = rng.randrange(len(self._lanes))
        #: in the order of the input; the first has no outcome, or was not given out
        self._slots: deque[Slot] = deque()
        self._next_number = 0
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._failed_in_a_row = 0
        #: why nothing more is sent: the brokers cannot be reached
        self.given_up: RmqError | None = None

    def send(
        self, messages: Iterable[OutgoingMessage | None]
    ) -> Iterator[list[SendOutcome]]:
        """Send all; outcomes in the order of the input, in lists as they come.

        A None among `messages` says that the next may take a while: what is before it
        is sent and answered first. Raises what `messages` raises, and UsageError for a
        message that cannot be sent, after the outcomes of those before it. Stops
        reading when no broker can be reached: then `given_up` says why.
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
                self._drain()
            while self._is_window_full():
                self._submit_idle()
                self._client.poll(_TURN_MS)
                yield self._take_ready()
            if self._slots and self._slots[0].outcome is not None:
                yield self._take_ready()
        self._drain()
        yield self._take_ready()
        if failure is not None:
            raise failure

    def abandon(self) -> list[SendOutcome]:
        """The outcomes not given out, when `send` was interrupted; at any moment of it.

        UNKNOWN is what was asked to be stored: whether it was will not be told here.
        """
        for slot in self._slots:
            if slot.outcome is None:
                status = "UNKNOWN" if slot.attempts else "NOT_SENT"
                self._fail(slot, None, status=status)
        return self._take_ready()

    def _accept(self, message: OutgoingMessage) -> None:
        properties_bytes = check_message(message)
        lane = self._choose_lane(message)
        msg_id = self._ids.next_id()
        slot = Slot(
            number=self._next_number,
            message=message,
            properties={
                **message.properties,
                **self._options.extra_properties,
                UNIQ_KEY: msg_id,
            },
            properties_bytes=properties_bytes,
            msg_id=msg_id,
            queue=lane.queue,
            is_alone=not self._takes_batches or is_large(message),
        )
        self._next_number += 1
        self._slots.append(slot)
        self._unanswered += 1
        self._unanswered_bytes += slot.cost_bytes
        lane.put(slot)
        if lane.is_full and not lane.in_flight:
            self._submit(lane)
            self._client.poll(0)

    def _choose_lane(self, message: OutgoingMessage) -> Lane:
        shard_by = self._options.shard_by
        if shard_by is not None:
            return self._lanes[shard_of(message, shard_by, shards=len(self._lanes))]
        lane = self._lanes[self._next_lane]
        self._next_lane = (self._next_lane + 1) % len(self._lanes)
        return lane

    def _is_window_full(self) -> bool:
        return self._unanswered > 0 and (
            self._unanswered >= WINDOW_MESSAGES_MAX
            or self._unanswered_bytes >= WINDOW_BYTES_MAX
            or len(self._slots) >= OUTCOMES_MAX
        )

    def _drain(self) -> None:
        while self._unanswered:
            self._submit_idle()
            if self._unanswered:
                self._client.poll(_TURN_MS)

    def _submit_idle(self) -> None:
        for lane in self._lanes:
            if not lane.in_flight and not lane.is_empty:
                self._submit(lane)

    def _take_ready(self) -> list[SendOutcome]:
        ready = []
        while self._slots and self._slots[0].outcome is not None:
            ready.append(self._slots[0].outcome)
            self._slots.popleft()
        return ready

    def _submit(self, lane: Lane) -> None:
        """Send what waits first for `lane`, which has nothing under way."""
        if self.given_up is not None:
            for slot in lane.take_all():
                self._fail(slot, self.given_up, status="NOT_SENT")
            return
        slots = lane.in_flight = lane.take()
        for slot in slots:
            slot.attempts += 1

        def on_done(pending: PendingCall[SendResult]) -> None:
            lane.in_flight = []
            try:
                result = pending.result()
            except RmqError as error:
                self._failed(lane, slots, error)
            else:
                self._failed_in_a_row = 0
                self._stored(slots, result, lane)
            if not lane.is_empty and not lane.in_flight:
                self._submit(lane)

        try:
            self._client.submit(lane.address, self._call(lane, slots), on_done=on_done)
        except RmqError as error:
            lane.in_flight = []
            self._failed(lane, slots, error)

    def _call(self, lane: Lane, slots: list[Slot]) -> Call[SendResult]:
        first = slots[0]
        # 5.x fails on a request without a body; as a batch of one it takes the message.
        is_batch = len(slots) > 1 or (self._takes_batches and not first.message.body)
        header = SendMessageRequestHeaderV2(
            producer_group=PRODUCER_GROUP,
            topic=self._target.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUE_NUMS,
            queue_id=lane.queue.queue_id,
            sys_flag=0,
            born_timestamp=self._client.clock.epoch_ms(),
            flag=0 if is_batch else first.message.flag,
            properties="" if is_batch else encode_properties(first.properties),
            reconsume_times=0,
            unit_mode=False,
            batch=is_batch,
        )
        if not is_batch:
            return send_message(header, first.message.body)
        items = (BatchItem(s.message.body, s.properties, s.message.flag) for s in slots)
        return send_batch_message(header, encode_batch(items))

    def _stored(self, slots: list[Slot], result: SendResult, lane: Lane) -> None:
        ids: tuple[str | None, ...] = result.offset_msg_ids
        if len(ids) != len(slots):
            ids = (None,) * len(slots)
        queue = MessageQueue(lane.queue.topic, lane.queue.broker_name, result.queue_id)
        for index, (slot, offset_msg_id) in enumerate(zip(slots, ids, strict=True)):
            self._finish(
                slot,
                SendOutcome(
                    number=slot.number,
                    msg_id=slot.msg_id,
                    source=slot.message.source,
                    queue=queue,
                    status=result.status.value,
                    offset_msg_id=offset_msg_id or None,
                    # A delayed message lies in another topic for now: this is not its
                    # offset here.
                    queue_offset=None
                    if self._options.is_delayed
                    else result.queue_offset + index,
                ),
            )

    def _failed(self, lane: Lane, slots: list[Slot], error: RmqError) -> None:
        """Try again where that makes sense, else note the failure. Never raises."""
        if isinstance(error, TransportError):
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= DEAD_AFTER:
                self.given_up = error
        if len(slots) > 1 and _may_be_one_message(error):
            for slot in slots:
                slot.is_alone = True
            lane.put_back(slots)
            return
        if not slots[0].message.body and isinstance(error, BrokerError):
            error.hint = (
                error.hint or "this broker may not take an empty body like this"
            )
        other = self._other_lane(lane)
        for slot in slots:
            if (
                other is None
                or slot.attempts >= ATTEMPTS_MAX
                or not _is_worth_retrying(error)
            ):
                self._fail(slot, error, status=_status_of(error))
            else:
                other.put(slot)
        if other is not None and not other.in_flight and not other.is_empty:
            self._submit(other)

    def _other_lane(self, lane: Lane) -> Lane | None:
        """Another broker's queue, else another queue; None when the caller chose."""
        options = self._options
        if options.is_fixed or options.shard_by is not None or self.given_up:
            return None
        at = self._lanes.index(lane)
        others = self._lanes[at + 1 :] + self._lanes[:at]
        for other in others:
            if other.address != lane.address:
                return other
        return others[0] if others else lane

    def _fail(self, slot: Slot, error: RmqError | None, *, status: str) -> None:
        self._finish(
            slot,
            SendOutcome(
                number=slot.number,
                msg_id=slot.msg_id,
                source=slot.message.source,
                queue=slot.queue,
                status=status,
                error=error,
            ),
        )

    def _finish(self, slot: Slot, outcome: SendOutcome) -> None:
        slot.outcome = outcome
        self._unanswered -= 1
        self._unanswered_bytes -= slot.cost_bytes


def _is_worth_retrying(error: RmqError) -> bool:
    """Whether Java's producer would try again: not when no answer came in time."""
    if isinstance(error, BrokerError):
        return error.retriable or error.code in _RETRY_CODES
    return isinstance(error, ConnectError | DisconnectedError)


def _may_be_one_message(error: RmqError) -> bool:
    return (
        isinstance(error, BrokerError)
        and not isinstance(error, DeniedError)
        and error.code in _SPLIT_CODES
    )


def _status_of(error: RmqError) -> str:
    if isinstance(error, BrokerError):
        return error.name
    if isinstance(error, TransportError) and not isinstance(error, ConnectError):
        return "UNKNOWN"
    return "NOT_SENT"
