"""Receives, acks and changes through a proxy (gRPC), for `SimpleConsumer`.

Implements `receiver.PopBackend`. The proxy filters by tag, and moves a message to the
dead-letter queue after its last delivery. It holds a request for at least 5 s: a
shorter receive leaves its request open, and the next receive uses it.

Source: SimpleConsumerImpl in apache/rocketmq-clients; ReceiveMessageActivity in
apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.consumer.simple.received import MessageLease, ReceivedMessage
from rmqcli.errors import BrokerError, DeniedError, ReceiptHandleError, RmqError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.proxy.message import ProxyMessage
from rmqcli.proxy.rpc import ack_messages, change_invisible_duration, receive_message
from rmqcli.proxy.session import SIMPLE_CONSUMER, Session
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.rpc import AckFailure, ProxyQueue, Received
    from rmqcli.wire.subscription import SubscriptionData

logger = get_logger(__name__)

_POLL_MS_MIN: Final = 5_000  # ProxyConfig.grpcClientConsumerMinLongPollingTimeoutMillis
_POLL_MS_MAX: Final = 20_000  # grpcClientConsumerMaxLongPollingTimeoutMillis
#: How many acks go into one request.
_ACKS_MAX: Final = 256
_INVALID_HANDLE: Final = int(pb.Code.INVALID_RECEIPT_HANDLE)


class ProxyPop:
    """Implements `receiver.PopBackend`.

    Tasks run in the thread rmq-proxy, which all clients of proxies in this process
    share.
    """

    poll_ms_min = _POLL_MS_MIN
    poll_ms_max = _POLL_MS_MAX

    def __init__(
        self,
        config: ClientConfig,
        *,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        clock: Clock,
    ) -> None:
        self._group = group
        self._subscriptions = subscriptions
        self._clock = clock
        self._session = session = Session(
            config,
            client_type=SIMPLE_CONSUMER,
            group=group,
            subscriptions=subscriptions,
            clock=clock,
        )
        self.runner: tasks.Runner = session.via
        self.run, self.post = session.run, session.post
        self.client_id = session.client_id
        self.answer_ms = config.timeout_ms
        self._queues: dict[MessageQueue, ProxyQueue] = {}

    def start(self) -> None:
        """Get routes and settings. Raises the error of the first proxy that failed."""
        self._session.open(list(self._subscriptions))

    def subscribed(self) -> None:
        """Send the subscriptions, which have changed, to the proxies."""
        self._session.subscribe(self._subscriptions)

    def leave(self) -> tasks.Task[None]:
        """End the receives that are open; `end` unregisters the member."""
        yield from self._session.end_receives()

    def end(self) -> bool:
        """Tell every proxy that the member leaves, and close the connections."""
        self._session.close()
        return True

    # --- receiving ---

    def sources(self, topic: str) -> tasks.Task[list[MessageQueue]]:
        """See PopNetwork. Raises NotFoundError for an unknown topic."""
        queues = yield from self._session.route(topic, self._session.via)
        by_broker: dict[MessageQueue, ProxyQueue] = {}
        for each in queues:
            if each.is_readable:
                source = MessageQueue(topic, each.queue.broker_name, -1)
                by_broker.setdefault(source, each)
        if not by_broker:
            raise DeniedError(
                f"topic {topic} has no readable queue",
                code=int(pb.Code.FORBIDDEN),
                name="FORBIDDEN",
                hint=Hint(
                    "read the topic's permissions with ", LibraryCall("Admin.topic")
                ),
            )
        self._queues |= by_broker
        return sorted(by_broker)

    def receive(
        self,
        source: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        invisible_ms: int,
        poll_ms: int,
    ) -> tasks.Task[list[ReceivedMessage]]:
        """See PopNetwork."""
        queue = self._queues[source]
        yield from self._session.ready(queue.endpoints)
        rpc = receive_message(
            queue,
            group=self._group,
            batch_size=max_messages,
            polling_ms=poll_ms,
            subscription=subscription,
            invisible_ms=invisible_ms,
        )
        received: Received = yield self._session.receive(queue.endpoints, rpc)
        if received.error is not None:
            logger.warning(
                "receive ended early topic=%s broker=%s messages=%d error=%s",
                source.topic,
                source.broker_name,
                len(received.messages),
                received.error.message,
            )
        now_ms, epoch_ms = self._clock.monotonic_ms(), self._clock.epoch_ms()
        return [
            ReceivedMessage(
                message,
                MessageLease(
                    topic=source.topic,
                    group=self._group,
                    queue=message.message_queue,
                    receipt_handle=message.receipt_handle,
                    delivery_attempt=message.delivery_attempt,
                    since_ms=now_ms,
                    invisible_ms=invisible_ms,
                    invisible_until_epoch_ms=epoch_ms + invisible_ms,
                ),
            )
            for message in received.messages
        ]

    # --- acknowledging ---

    def log_level(self, source: MessageQueue, error: RmqError) -> int:
        """See PopNetwork."""
        return self._session.level_of(self._queues[source].endpoints, error)

    def ack(
        self, messages: Sequence[ReceivedMessage]
    ) -> tasks.Task[list[RmqError | None]]:
        """See PopNetwork. One request acknowledges up to 256 messages of one topic."""
        groups: dict[tuple[str, Endpoints], list[ReceivedMessage]] = {}
        for message in messages:
            key = message.topic, _content(message).endpoints
            groups.setdefault(key, []).append(message)
        parts = [
            (topic, endpoints, group[start : start + _ACKS_MAX])
            for (topic, endpoints), group in groups.items()
            for start in range(0, len(group), _ACKS_MAX)
        ]
        outcomes = yield tasks.All(
            [
                self._session.submit(
                    endpoints,
                    ack_messages(
                        topic,
                        self._group,
                        [(each.msg_id or "", each.receipt_handle) for each in part],
                    ),
                )
                for topic, endpoints, part in parts
            ]
        )
        errors: dict[str, RmqError] = {}
        for (_, _, part), outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                errors |= {each.receipt_handle: _explained(outcome) for each in part}
            else:
                failures: list[AckFailure] = outcome
                errors |= {
                    each.receipt_handle: _explained(each.error) for each in failures
                }
        return [errors.get(each.receipt_handle) for each in messages]

    def change_invisible(
        self, message: ReceivedMessage, invisible_ms: int
    ) -> tasks.Task[None]:
        """See PopNetwork."""
        lease = message.lease
        rpc = change_invisible_duration(
            topic=message.topic,
            group=self._group,
            msg_id=message.msg_id or "",
            receipt_handle=lease.receipt_handle,
            invisible_ms=invisible_ms,
        )
        try:
            handle = yield self._session.submit(_content(message).endpoints, rpc)
        except BrokerError as error:
            raise _explained(error) from error
        lease.renew(handle, invisible_ms, self._clock)


def _content(message: ReceivedMessage) -> ProxyMessage:
    content = message.content
    if not isinstance(content, ProxyMessage):
        raise ReceiptHandleError(
            f"message {message.msg_id} was not received through a proxy",
            hint="acknowledge it with the consumer that received it",
        )
    return content


def _explained(error: RmqError) -> RmqError:
    """Return the error, as ReceiptHandleError if the proxy refuses the handle."""
    if isinstance(error, BrokerError) and error.code == _INVALID_HANDLE:
        return ReceiptHandleError(
            f"{error.message}; the message will be delivered again"
        )
    return error
