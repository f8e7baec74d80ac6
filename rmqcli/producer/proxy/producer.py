"""The part of `Producer` that speaks gRPC, used when the producer has endpoints.

`Producer` counts sends in flight and checks that it is open; this class does the rest.
Blocking sends run in the caller's thread, `send_async` and the receipt of transaction
checks in the thread rmq-proxy, and `on_check` in rmq-check-N.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import RmqError, UnsupportedError, UsageError
from rmqcli.log import get_logger
from rmqcli.producer.ids import ProxyMessageIds
from rmqcli.producer.message import OutgoingMessage, check_message
from rmqcli.producer.proxy.publisher import ProxyPublisher, check_size
from rmqcli.proxy.message import OutgoingProxyMessage
from rmqcli.proxy.session import PRODUCER, Session
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.model import MessageQueue
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.producer.publish import SendResult
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.message import ProxyMessage

logger = get_logger(__name__)

# Numbers, because a look-up in an enumeration of protobuf runs Python code.
_NORMAL: Final = int(pb.MessageType.NORMAL)
_FIFO: Final = int(pb.MessageType.FIFO)
_DELAY: Final = int(pb.MessageType.DELAY)

_CHECKS_MAX: Final = 2_000  # as over the remoting protocol

#: The decision of a transaction: True commits, False rolls back, None is undecided.
Decision = bool | None


class ProxyProducer:
    """Sends through a proxy. Thread-safe.

    `on_check(message)` decides about a half message whose transaction is undecided for
    the broker. Without `on_check`, checks are ignored: another producer may answer.
    """

    def __init__(
        self,
        client: ClientConfig,
        config: ProducerConfig,
        *,
        on_check: Callable[[ProxyMessage], Decision] | None,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._clock = clock
        self._on_check = on_check
        self.session = Session(
            client,
            client_type=PRODUCER,
            on_orphaned=None if on_check is None else self._asked,
            clock=clock,
            rng=rng,
        )
        self._ids = ProxyMessageIds(clock=clock, rng=rng)
        self.publisher = ProxyPublisher(self.session, rng=rng)
        self._host = config.client_ip or local_ip(client.endpoints[0]) or "127.0.0.1"
        self._checks: ThreadPoolExecutor | None = None
        self._checks_open = 0  # used only by the I/O thread
        if on_check is not None:
            self._checks = ThreadPoolExecutor(1, thread_name_prefix="rmq-check")

    def close(self) -> None:
        """Stop the checks in progress and close the connections. Idempotent."""
        if self._checks is not None:
            self._checks.shutdown(wait=False, cancel_futures=True)
        self.session.close()

    # --- sending ---

    def send(self, message: ProducerMessage, timeout_ms: int) -> SendResult:
        """See Producer.send."""
        return self._send_now([self._prepared(message)], timeout_ms)[0][0]

    def send_async(
        self, message: ProducerMessage, timeout_ms: int
    ) -> Future[list[SendResult]]:
        """See Producer.send_async. The future's result is a list of one result."""
        session = self.session
        messages = [self._prepared(message)]

        def run() -> Any:  # noqa: ANN401  # a task
            found = yield from self.publisher.send(
                messages, timeout_ms=timeout_ms, via=session.via
            )
            return [result for result, _ in found]

        return session.run(run())

    def send_batch(
        self, messages: Sequence[ProducerMessage], timeout_ms: int
    ) -> list[SendResult]:
        """See Producer.send_batch."""
        if not messages or len({each.topic for each in messages}) != 1:
            topics = len({each.topic for each in messages})
            raise UsageError(
                f"a batch needs messages of one topic; these are of {topics}"
            )
        if any(each.is_delayed for each in messages):
            raise UsageError("delayed messages cannot be in a batch")
        if len({each.message_group for each in messages}) != 1:
            raise UsageError("the messages of a batch need one message_group")
        size = sum(len(each.body) for each in messages)
        if size > self._max_bytes:
            raise UsageError(
                f"a batch of {size} bytes is larger than the {self._max_bytes} that the"
                " proxy and max_message_size_bytes allow",
                hint="send it in several batches",
            )
        prepared = [self._prepared(each) for each in messages]
        return [result for result, _ in self._send_now(prepared, timeout_ms)]

    def send_half(
        self, message: ProducerMessage, timeout_ms: int
    ) -> tuple[SendResult, Endpoints]:
        """Store a half message; return its result, and the proxy that stored it.

        The telemetry stream to that proxy is opened before, so that it can ask about
        the transaction.
        """
        if message.message_group is not None:
            raise UsageError("a message of a transaction cannot have a message_group")
        self.session.add_topic(message.topic)
        self.session.open([message.topic], timeout_ms=timeout_ms)
        prepared = self._prepared(message, message_type=int(pb.MessageType.TRANSACTION))
        return self._send_now([prepared], timeout_ms)[0]

    def end_transaction(
        self,
        endpoints: Endpoints,
        message: ProducerMessage,
        half: SendResult,
        decision: Decision,
    ) -> None:
        """Commit or roll back; do nothing when there is no decision."""
        if decision is None:
            return
        is_commit = decision
        self.session.in_caller(
            lambda via: self.publisher.end_transaction(
                endpoints,
                topic=message.topic,
                msg_id=half.msg_id,
                transaction_id=half.transaction_id or "",
                is_commit=is_commit,
                from_check=False,
                via=via,
            )
        )

    def recall(self, topic: str, recall_handle: str) -> str:
        """See Producer.recall."""
        return self.session.in_caller(
            lambda via: self.publisher.recall(topic, recall_handle, via)
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """See Producer.queues."""
        found = self.session.in_caller(lambda via: self.publisher.queues(topic, via))
        return sorted(each.queue for each in found)

    # --- messages ---

    @property
    def _max_bytes(self) -> int:
        said = self.session.settings.max_body_bytes
        return min(said, self._config.max_message_size_bytes)

    def _send_now(
        self, messages: list[OutgoingProxyMessage], timeout_ms: int
    ) -> list[tuple[SendResult, Endpoints]]:
        return self.session.in_caller(
            lambda via: self.publisher.send(messages, timeout_ms=timeout_ms, via=via)
        )

    def _prepared(
        self, message: ProducerMessage, *, message_type: int | None = None
    ) -> OutgoingProxyMessage:
        check_size(message.body, max_bytes=self._max_bytes)
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
                hint="use delay_ms or deliver_at_ms instead of delay_level",
            )
        if message.delay_ms is not None:
            return self._clock.epoch_ms() + message.delay_ms
        return message.deliver_at_ms

    # --- checks of transactions ---

    def _asked(self, message: ProxyMessage, transaction_id: str) -> None:
        """Handle the proxy's check of a transaction. Runs in the I/O thread."""
        if self._checks_open >= _CHECKS_MAX:
            logger.warning(
                "check of a transaction ignored msg_id=%s: %d other checks are waiting",
                message.msg_id,
                self._checks_open,
            )
            return
        assert self._checks is not None  # made with on_check  # noqa: S101
        self._checks_open += 1
        try:
            self._checks.submit(self._check, message, transaction_id)
        except RuntimeError:  # the producer is being closed
            self._checks_open -= 1

    def _check(self, message: ProxyMessage, transaction_id: str) -> None:
        """Call `on_check` and send its answer to the proxy. Runs in rmq-check-N."""
        assert self._on_check is not None  # noqa: S101  # else nothing is checked
        decision: Decision = None
        try:
            decision = self._on_check(message)
        except Exception:
            logger.exception("on_check failed msg_id=%s", message.msg_id)
        try:
            if decision is not None:
                is_commit = decision
                self.session.in_caller(
                    lambda via: self.publisher.end_transaction(
                        message.endpoints,
                        topic=message.topic,
                        msg_id=message.msg_id,
                        transaction_id=transaction_id,
                        is_commit=is_commit,
                        from_check=True,
                        via=via,
                    )
                )
        except RmqError as error:
            logger.warning(
                "answer to a check not delivered msg_id=%s; the proxy will ask again:"
                " %s",
                message.msg_id,
                error,
            )
        finally:
            self.session.post(self._checked)

    def _checked(self) -> None:
        self._checks_open -= 1


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

    `message.properties` has only the user's properties. Raises UsageError for fields
    that the protocol does not support.
    """
    where = f"{message.source}: " if message.source else ""
    if message.flag:
        raise UsageError(f"{where}a flag cannot be sent through a proxy")
    if message_group is not None and delivery_timestamp_ms is not None:
        raise UsageError(f"{where}a message with a message_group cannot be delayed")
    check_message(message)
    if message_type is None:
        message_type = _NORMAL
        if message_group is not None:
            message_type = _FIFO
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
        properties=message.properties,
        message_group=message_group,
        delivery_timestamp_ms=delivery_timestamp_ms,
    )
