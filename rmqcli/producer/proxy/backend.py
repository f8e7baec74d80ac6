"""The back end of a `Producer` that talks to a proxy, over gRPC.

Blocking sends run in the caller's thread, and `submit` and the receipt of transaction
checks in the thread rmq-proxy. The proxy chooses queues.

Source: ProducerImpl in apache/rocketmq-clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RmqError, UnsupportedError
from rmqcli.hint import Argument, Hint, Setting
from rmqcli.producer.accumulator import Accumulator, Entry
from rmqcli.producer.backend import HalfMessage, QueueChoice, SendResult, one_topic_of
from rmqcli.producer.ids import ProxyMessageIds
from rmqcli.producer.lane import ALONE_BYTES
from rmqcli.producer.message import OutgoingMessage, check_message
from rmqcli.producer.proxy.publisher import (
    ProxyPublisher,
    check_size,
    may_be_one_message,
)
from rmqcli.producer.transactions import LocalTransactionState, TransactionChecks
from rmqcli.proxy.message import OutgoingProxyMessage
from rmqcli.proxy.rpc import end_transaction
from rmqcli.proxy.session import PRODUCER, Session
from rmqcli.transport.lookups import local_ip
from rmqcli.units import read_count
from rmqcli.wire.message.properties import PRIORITY, SHARDING_KEY
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable, Sequence
    from concurrent.futures import Future

    from rmqcli import tasks
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.model import MessageQueue
    from rmqcli.producer.backend import SendsInFlight
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.message import ProxyMessage
    from rmqcli.proxy.rpc import Rpc
    from rmqcli.proxy.via import Via

# Numbers, because a look-up in an enumeration of protobuf runs Python code.
_NORMAL: Final = int(pb.MessageType.NORMAL)
_FIFO: Final = int(pb.MessageType.FIFO)
_DELAY: Final = int(pb.MessageType.DELAY)
_PRIORITY: Final = int(pb.MessageType.PRIORITY)

#: Calls for submitted messages of one topic that may be in flight, apart from those of
#: message groups.
_CALLS_MAX: Final = 16
#: What limits the size of a body; the lower of the two counts.
_LIMITS: Final = "proxy and max_message_size_bytes allow"


class ProxyBackend:
    """Sends through a proxy. Implements ProducerBackend.

    `on_check` receives the half messages of topics to which this producer has sent.
    Without it, checks are ignored: another producer may answer.
    """

    def __init__(
        self,
        client: ClientConfig,
        config: ProducerConfig,
        *,
        on_check: Callable[[Any], object] | None,
        in_flight: SendsInFlight,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._in_flight = in_flight
        self._clock = clock
        self._checks = None if on_check is None else TransactionChecks(on_check)
        self._session = Session(
            client,
            client_type=PRODUCER,
            on_orphaned=None if on_check is None else self._asked,
            clock=clock,
            rng=rng,
        )
        self.client_id = self._session.client_id
        self._ids = ProxyMessageIds(clock=clock, rng=rng)
        self._publisher = ProxyPublisher(self._session, rng=rng)
        self._accumulator = Accumulator(
            ProxyCalls(self._session, self._publisher, calls_max=_CALLS_MAX),
            self._session.via,
            post=self._session.post,
            on_end=in_flight.end_async,
            linger_ms=config.linger_ms,
            clock=clock,
        )
        self.post, self.submit_by = self._session.post, self._accumulator.put_by
        self.in_own_thread = self._session.in_io_thread
        self._host = config.client_ip or local_ip(client.endpoints[0]) or "127.0.0.1"

    def start(self) -> None:
        """See ProducerBackend."""
        self._session.start()

    def hurry(self) -> None:
        """See ProducerBackend."""
        self._accumulator.linger(0)

    def close(self) -> None:
        """See ProducerBackend."""
        if self._checks is not None:
            self._checks.close()
        self._session.close()

    # --- sending ---

    def queues(self, topic: str) -> list[MessageQueue]:
        """See ProducerBackend."""
        with self._in_flight:
            found = self._session.in_caller(
                lambda via: self._publisher.queues(topic, via)
            )
        return sorted(each.queue for each in found)

    def send(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> SendResult:
        """See ProducerBackend."""
        _refuse_choice(choice)
        with self._in_flight:
            return self._send([self._prepared(message)], timeout_ms)[0][0]

    def submit(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> Future[SendResult]:
        """See ProducerBackend."""
        _refuse_choice(choice)
        prepared = self._prepared(message)
        now_ms = self._clock.monotonic_ms()
        entry = entry_of(prepared, timeout_ms=timeout_ms, now_ms=now_ms)
        self._accumulator.put(entry)
        return entry

    def send_batch(
        self,
        messages: Sequence[ProducerMessage],
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> list[SendResult]:
        """See ProducerBackend."""
        _refuse_choice(QueueChoice(queue))
        one_topic_of(messages)
        if any(each.is_delayed for each in messages):
            raise ConfigError("delayed messages cannot be in a batch")
        size = sum(len(each.body) for each in messages)
        if size > self._max_bytes:
            raise ConfigError(
                f"a batch of {size} bytes is larger than the {self._max_bytes} that the"
                f" {_LIMITS}",
                hint="send it in several batches",
            )
        prepared = [self._prepared(each) for each in messages]
        if len(prepared) > 1 and any(
            each.message_group is not None or each.priority is not None
            for each in prepared
        ):
            raise UnsupportedError(
                "messages with a message_group or a priority cannot be in a batch,"
                " because a proxy stores a batch in any queue of its topic",
                hint="send them one by one, with submit",
            )
        with self._in_flight:
            return [result for result, _ in self._send(prepared, timeout_ms)]

    def send_oneway(self, message: ProducerMessage, choice: QueueChoice) -> None:
        """Raises UnsupportedError: the gRPC protocol has no such call."""
        raise UnsupportedError(
            "a proxy answers every send; there is no send_oneway with endpoints",
            hint="use submit and ignore its future",
        )

    def send_half(self, message: ProducerMessage, timeout_ms: int) -> HalfMessage:
        """See ProducerBackend.

        The telemetry stream to the proxy is opened before, so that the proxy can ask
        about the transaction.
        """
        if message.message_group is not None:
            raise ConfigError("a message of a transaction cannot have a message_group")
        session = self._session
        session.add_topic(message.topic)
        session.open([message.topic], timeout_ms=timeout_ms)
        prepared = self._prepared(message, message_type=int(pb.MessageType.TRANSACTION))
        with self._in_flight:
            [(half, endpoints)] = self._send([prepared], timeout_ms)

        def end(state: LocalTransactionState) -> None:
            if state is not LocalTransactionState.UNKNOW:
                call = end_transaction(
                    topic=message.topic,
                    msg_id=half.msg_id,
                    transaction_id=half.transaction_id or "",
                    is_commit=state is LocalTransactionState.COMMIT_MESSAGE,
                    from_check=False,
                )
                session.invoke(endpoints, call)

        return HalfMessage(half, end)

    def recall(self, topic: str, recall_handle: str) -> str:
        """See ProducerBackend."""
        with self._in_flight:
            return self._session.in_caller(
                lambda via: self._publisher.recall(topic, recall_handle, via)
            )

    # --- messages ---

    @property
    def _max_bytes(self) -> int:
        said = self._session.settings.max_body_bytes
        return min(said, self._config.max_message_size_bytes)

    def _send(
        self, messages: list[OutgoingProxyMessage], timeout_ms: int
    ) -> list[tuple[SendResult, Endpoints]]:
        def make(via: Via) -> tasks.Task[list[tuple[SendResult, Endpoints]]]:
            return self._publisher.send(messages, timeout_ms=timeout_ms, via=via)

        return self._session.in_caller(make)

    def _prepared(
        self, message: ProducerMessage, *, message_type: int | None = None
    ) -> OutgoingProxyMessage:
        check_size(message.body, max_bytes=self._max_bytes, limits=_LIMITS)
        return outgoing(
            topic=message.topic,
            message=OutgoingMessage(
                message.body, dict(message.properties), message.flag
            ),
            tag=message.tags,
            keys=message.key_list,
            message_group=message.message_group,
            delivery_timestamp_ms=self._delivery_ms(message),
            message_type=message_type,
            msg_id=self._ids.next_id(),
            now_ms=self._clock.epoch_ms(),
            host=self._host,
        )

    def _delivery_ms(self, message: ProducerMessage) -> int | None:
        if message.delay_level is not None:
            raise UnsupportedError(
                "a proxy has no delay levels",
                hint=Hint("give a time, such as ", Setting("delay_ms", 60_000)),
            )
        if message.delay_ms is not None:
            return self._clock.epoch_ms() + message.delay_ms
        return message.deliver_at_ms

    def _asked(self, message: ProxyMessage, transaction_id: str) -> None:
        """Handle the proxy's check of a transaction. Runs in the I/O thread."""

        def answer(state: LocalTransactionState) -> Future[None] | None:
            if state is LocalTransactionState.UNKNOW:
                return None
            call = end_transaction(
                topic=message.topic,
                msg_id=message.msg_id,
                transaction_id=transaction_id,
                is_commit=state is LocalTransactionState.COMMIT_MESSAGE,
                from_check=True,
            )
            return self._session.run(self._told(message.endpoints, call))

        assert self._checks is not None  # made with on_check  # noqa: S101
        self._checks.ask(message, answer, body_bytes=len(message.body))

    def _told(self, endpoints: Endpoints, call: Rpc[None]) -> tasks.Task[None]:
        """Make a call in the I/O thread."""
        yield self._session.submit(endpoints, call)


@dataclass(eq=False)
class ProxyCalls:
    """The calls for the messages of an Accumulator. Implements AccumulatorNetwork.

    Messages without a message group have `calls_max` places, which are numbers: one for
    each call that may be in flight.
    """

    session: Session
    publisher: ProxyPublisher
    calls_max: int

    def open(self, topic: str) -> tasks.Task[bool]:
        """See AccumulatorNetwork."""
        return self.publisher.can_batch(topic, self.session.via)

    def places(self, topic: str) -> Sequence[int]:
        """See AccumulatorNetwork."""
        return range(self.calls_max)

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """See AccumulatorNetwork."""
        found = yield from self.publisher.send(
            [entry.content for entry in entries],
            timeout_ms=timeout_ms,
            via=self.session.via,
        )
        return [result for result, _ in found].__getitem__

    def may_be_one_message(self, error: RmqError) -> bool:
        """See AccumulatorNetwork."""
        return may_be_one_message(error)


def _refuse_choice(choice: QueueChoice) -> None:
    if choice.queue is not None or choice.selector is not None:
        raise ConfigError(
            "a proxy chooses the queue itself",
            hint=Hint("use ", Argument("message_group"), " to keep messages in order"),
        )


def entry_of(message: OutgoingProxyMessage, *, timeout_ms: int, now_ms: int) -> Entry:
    """The message as an Accumulator takes it. Its key is its message group.

    A proxy stores a batch in any queue of its topic, also one of a message group, whose
    messages would then be in several queues and lose their order, and one of messages
    with priorities, which are queues. So these are sent alone.
    """
    return Entry(
        message.topic,
        message.message_group,
        message,
        msg_id=message.msg_id,
        size_bytes=len(message.body),
        is_alone=message.message_group is not None
        or message.priority is not None
        or message.delivery_timestamp_ms is not None
        or len(message.body) >= ALONE_BYTES,
        timeout_ms=timeout_ms,
        now_ms=now_ms,
    )


def outgoing(
    *,
    topic: str,
    message: OutgoingMessage,
    tag: str | None,
    keys: tuple[str, ...],
    message_group: str | None,
    delivery_timestamp_ms: int | None,
    msg_id: str,
    now_ms: int,
    host: str,
    message_type: int | None = None,
) -> OutgoingProxyMessage:
    """Return the message in the form for a proxy; its fields decide its message type.

    `message.properties` has only the user's properties, and two of messages that are
    sent again: the sharding key of a FIFO topic is the message group of a message that
    has no other, and the priority of a PRIORITY topic that of one without a group. With
    a delay, or a given type, there is neither. Raises ConfigError for fields that the
    protocol does not support.
    """
    properties, priority = message.properties, None
    if message_type is None and delivery_timestamp_ms is None:
        if SHARDING_KEY in properties:
            properties = dict(properties)
            sharding_key = properties.pop(SHARDING_KEY)
            message_group = message_group or sharding_key or None
        if message_group is None:
            priority = read_count(properties.get(PRIORITY), digits_max=9)
        if priority is not None:
            properties = dict(properties)
            del properties[PRIORITY]
    where = f"{message.source}: " if message.source else ""
    if message.flag:
        raise ConfigError(f"{where}a flag cannot be sent through a proxy")
    if message_group is not None and delivery_timestamp_ms is not None:
        raise ConfigError(f"{where}a message with a message_group cannot be delayed")
    check_message(message)
    if message_type is None:
        message_type = _NORMAL
        if message_group is not None:
            message_type = _FIFO
        elif priority is not None:
            message_type = _PRIORITY
        elif delivery_timestamp_ms is not None:
            message_type = _DELAY
    return OutgoingProxyMessage(
        topic=topic,
        body=message.body,
        msg_id=msg_id,
        message_type=message_type,
        born_timestamp_ms=now_ms,
        born_host=host,
        tag=tag or None,
        keys=keys,
        properties=properties,
        message_group=message_group,
        priority=priority,
        delivery_timestamp_ms=delivery_timestamp_ms,
    )
