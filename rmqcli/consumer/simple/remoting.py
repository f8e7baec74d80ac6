"""POP over remoting, for `SimpleConsumer`; implements `receiver.PopBackend`.

The broker distributes the messages, so there is no rebalance. A broker of 5.x leaves
two things to its clients, which this module does as the proxy does them: a message
whose tag merely has the same hash is acknowledged, and a message that has had all its
deliveries is copied to the dead-letter queue before it is acknowledged. (Java's
remoting client acknowledges it without a copy.)

Heartbeats make the member visible in `rmq groups` and `rmq lag`. Brokers do not need
them to answer.

Source: PopMessageResultFilterImpl and ProducerProcessor#forwardMessageToDeadLetterQueue
of the proxy, DefaultMQPushConsumerImpl#processPopResult of the client.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.api.broker_errors import lost_broker
from rmqcli.api.calls.client import (
    consumer_send_msg_back,
    send_heartbeat,
    unregister_client,
)
from rmqcli.api.calls.config import get_subscription_group_config
from rmqcli.api.calls.pop import (
    ack_message,
    batch_ack_message,
    change_invisible_time,
    pop_message,
)
from rmqcli.api.task_thread import TaskThread
from rmqcli.consumer.simple.received import MessageLease, ReceivedMessage
from rmqcli.errors import (
    ConnectError,
    DecodeError,
    DeniedError,
    DisconnectedError,
    NotFoundError,
    RmqError,
    TransportError,
    UnsupportedError,
    WireError,
)
from rmqcli.hint import Argument, Hint, LibraryCall
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import DecodeFailure, InnerMessage
from rmqcli.wire.receipt_handle import decode_receipt_handle, encode_receipt_handle
from rmqcli.wire.subscription import TAG, tag_matches
from rmqcli.wire.version import V5_0_0, V5_1_3

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.api.calls.pop import PopAnswer
    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute
    from rmqcli.wire.message.record import StoredMessage
    from rmqcli.wire.subscription import SubscriptionData

logger = get_logger(__name__)

_HEARTBEAT_MS: Final = 30_000  # ClientConfig.heartbeatBrokerInterval
_ROUTES_MS: Final = 30_000  # ClientConfig.pollNameServerInterval
_LEAVE_MS: Final = 1_000
_POLL_MS_MAX: Final = 20_000
#: How many acks one request has at most, and how far apart their offsets may be.
_ACKS_MAX: Final = 256
_ACK_SPAN_MAX: Final = 4_096
_RETRY_MAX_TIMES: Final = 16  # SubscriptionGroupConfig.retryMaxTimes
_TO_DEAD_LETTERS: Final = -1


class RemotingPop:
    """Implements `receiver.PopBackend`, with a thread of its own: rmq-simple."""

    poll_ms_max = _POLL_MS_MAX
    poll_ms_min = 0

    def __init__(
        self,
        client: Client,
        *,
        group: str,
        client_id: str,
        subscriptions: dict[str, SubscriptionData],
        from_min: bool,
        is_order: bool,
    ) -> None:
        self._client = client
        self._thread = TaskThread(client, "rmq-simple")
        self.runner: tasks.Runner = self._thread
        self.run, self.post = self._thread.run, self._thread.post
        self.end = self._thread.end
        self._group = group
        self.client_id = client_id
        self._subscriptions = subscriptions
        self._from_min = from_min
        self._is_order = is_order
        self._timeout_ms = client.config.timeout_ms
        self.answer_ms = client.config.timeout_ms
        self._routes: dict[str, TopicRoute] = {}
        #: topic -> the request for its route that is in progress
        self._asking: dict[str, tasks.Pending[TopicRoute]] = {}
        #: addresses of brokers to which a heartbeat was sent
        self._greeted: set[str] = set()
        #: broker address -> the last heartbeat to it, which may be in progress
        self._beats: dict[str, tasks.Pending[None]] = {}
        #: broker name -> the most deliveries of a message to the group
        self._attempts_max: dict[str, int] = {}
        self._has_left = False

    def start(self) -> None:
        """Start the thread and the periodic tasks. Nothing is sent yet."""
        self._thread.start()

        def begin() -> None:
            tasks.repeat(self._refresh, self.runner, interval_ms=_ROUTES_MS)
            tasks.repeat(self._heartbeats, self.runner, interval_ms=_HEARTBEAT_MS)

        self._thread.post(begin)

    def subscribed(self) -> None:
        """Do nothing: the next receive and the next heartbeat state the change."""

    # --- where topics are ---

    def sources(self, topic: str) -> tasks.Task[list[MessageQueue]]:
        """See PopNetwork. Raises NotFoundError for an unknown topic."""
        route = yield from self._route(topic)
        sources = _sources(route)
        if not sources:
            raise DeniedError(
                f"topic {topic} has no readable queue: no master is online, or its"
                " permissions do not allow it",
                code=ResponseCode.NO_PERMISSION,
                hint=Hint(
                    "read the topic's permissions with ", LibraryCall("Admin.topic")
                ),
            )
        return sources

    def _route(self, topic: str) -> tasks.Task[TopicRoute]:
        known = self._routes.get(topic)
        if known is not None:
            return known
        return (yield from self._fetched_route(topic))

    def _fetched_route(self, topic: str) -> tasks.Task[TopicRoute]:
        find = self._find(topic)
        route: TopicRoute = yield tasks.shared(self._asking, topic, find, self.runner)
        return route

    def _find(self, topic: str) -> tasks.Task[TopicRoute]:
        try:
            route = yield from self._client.ask_route(topic)
        except NotFoundError as error:
            error.hint = Hint("check ", Argument("topics"), ", or create the topic")
            raise
        if topic in self._routes and not _sources(route):
            return self._routes[topic]  # its brokers may be restarting
        self._client.remember(topic, route)
        self._routes[topic] = route
        return route

    def _refresh(self) -> tasks.Task[None]:
        """Fetch every topic's route again; after a failure the known one is kept."""
        for topic in set(self._routes) - set(self._subscriptions):
            del self._routes[topic]
            self._client.forget(topic)
        found = yield tasks.All([self._find(topic) for topic in list(self._routes)])
        for outcome in found:
            if isinstance(outcome, RmqError):
                logger.warning("route not refreshed error=%s", outcome)

    def _address(self, broker_name: str) -> str:
        broker = self._client.known_routes.broker(broker_name)
        if broker is None or broker.master_address is None:
            raise lost_broker(f"broker {broker_name} currently has no master")
        return broker.master_address

    def _address_for(self, message: ReceivedMessage) -> tasks.Task[str]:
        """Return where a message's broker is, of which another member may have told.

        Raises ConnectError when no name server answers: then nothing was sent.
        Source: DefaultMQPushConsumerImpl#ackAsync, #changePopInvisibleTimeAsync.
        """
        broker_name = message.broker_name
        try:
            return self._address(broker_name)
        except NotFoundError:
            pass
        try:
            yield from self._fetched_route(message.topic)
        except TransportError as error:
            raise ConnectError(
                f"the address of broker {broker_name} is not known: {error.message}",
                address=error.address,
                hint=error.hint,
            ) from error
        return self._address(broker_name)

    # --- receiving ---

    def receive(
        self,
        source: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        invisible_ms: int,
        poll_ms: int,
    ) -> tasks.Task[list[ReceivedMessage]]:
        """See PopNetwork. Raises UnsupportedError for a broker before 5.0."""
        address = self._address(source.broker_name)
        call = pop_message(
            self._group,
            source.topic,
            max_msg_nums=max_messages,
            invisible_ms=invisible_ms,
            poll_ms=poll_ms,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type or TAG,
            from_min=self._from_min,
            is_order=self._is_order,
        )
        self._greet(address)
        try:
            answer = yield tasks.Request(address, call, poll_ms + self._timeout_ms)
        except UnsupportedError as error:
            error.hint = "use Consumer, which works with every RocketMQ since 4.6"
            raise
        except (ConnectError, DisconnectedError):
            # A slave may be the master now. This receive does not wait for the route.
            tasks.start(self._fetched_route(source.topic), self.runner)
            raise
        messages = self._read(answer, source, invisible_ms)
        if not messages:
            return []
        attempts_max = yield from self._limit(
            source.broker_name, address, [each for _, each in messages]
        )
        wanted = []
        for stored, message in messages:
            if not tag_matches(subscription, message.tags):
                tasks.start(self.ack([message]), self.runner)
            elif message.delivery_attempt > attempts_max:
                tasks.start(
                    self._to_dead_letters(address, stored, message), self.runner
                )
            else:
                wanted.append(message)
        return wanted

    def _read(
        self, answer: PopAnswer, source: MessageQueue, invisible_ms: int
    ) -> list[tuple[StoredMessage, ReceivedMessage]]:
        """Return the messages of an answer, each as it is stored and with its lease."""
        clock = self._client.clock
        now_ms, epoch_ms = clock.monotonic_ms(), clock.epoch_ms()
        messages = []
        for stored in decode_messages(answer.body):
            try:
                if isinstance(stored, DecodeFailure):
                    raise DecodeError(stored.error)
                if isinstance(stored, InnerMessage):
                    raise DecodeError("it is an inner message of a batch record")
                handle = answer.handle_of(stored, source.broker_name)
            except WireError as error:
                # Without a handle it can be neither acknowledged nor given back.
                logger.error(  # noqa: TRY400  # the message says it all
                    "received message cannot be returned; it will be delivered again"
                    " topic=%s broker=%s offset=%s error=%s",
                    source.topic,
                    source.broker_name,
                    stored.queue_offset,
                    error,
                )
                continue
            stored_in = handle.real_topic(source.topic, self._group)
            lease = MessageLease(
                topic=source.topic,
                group=self._group,
                queue=MessageQueue(stored_in, source.broker_name, handle.queue_id),
                receipt_handle=encode_receipt_handle(handle),
                delivery_attempt=answer.deliveries_of(stored, handle) + 1,
                since_ms=now_ms,
                invisible_ms=invisible_ms,
                invisible_until_epoch_ms=epoch_ms + invisible_ms,
            )
            messages.append((stored, ReceivedMessage(stored, lease)))
        return messages

    def _limit(
        self, broker_name: str, address: str, messages: Sequence[ReceivedMessage]
    ) -> tasks.Task[int]:
        """Return how many times a message is delivered at most.

        The broker is asked for it only when a message has been delivered before.
        """
        attempts_max = _RETRY_MAX_TIMES + 1
        if all(message.delivery_attempt == 1 for message in messages):
            return attempts_max
        known = self._attempts_max.get(broker_name)
        if known is not None:
            return known
        try:
            config = yield tasks.Request(
                address, get_subscription_group_config(self._group)
            )
            attempts_max = self._attempts_max[broker_name] = max(
                1, config.retry_max_times + 1
            )
        except RmqError as error:
            logger.warning(
                "retryMaxTimes of group %s not read, %d is assumed error=%s",
                self._group,
                _RETRY_MAX_TIMES,
                error.message,
            )
        return attempts_max

    def _to_dead_letters(
        self, address: str, stored: StoredMessage, message: ReceivedMessage
    ) -> tasks.Task[None]:
        """Copy a message to the dead-letter queue, then acknowledge it."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=stored.commit_log_offset,
            group=self._group,
            delay_level=_TO_DEAD_LETTERS,
            origin_msg_id=stored.msg_id or stored.offset_msg_id,
            origin_topic=message.lease.queue.topic,
            max_reconsume_times=0,
        )
        try:
            yield tasks.Request(address, consumer_send_msg_back(header))
        except RmqError as error:
            logger.warning(
                "message not moved to the dead-letter queue, it will be delivered"
                " again queue=%s offset=%s error=%s",
                message.message_queue,
                message.queue_offset,
                error.message,
            )
            return
        logger.warning(
            "message moved to the dead-letter queue group=%s queue=%s offset=%s"
            " attempts=%d",
            self._group,
            message.message_queue,
            message.queue_offset,
            message.delivery_attempt - 1,
        )
        yield from self.ack([message])

    # --- acknowledging ---

    def log_level(self, source: MessageQueue, error: RmqError) -> int:
        """See PopNetwork."""
        return logging.WARNING

    def ack(
        self, messages: Sequence[ReceivedMessage]
    ) -> tasks.Task[list[RmqError | None]]:
        """See PopNetwork.

        Since 5.1.3 one request acknowledges up to 256 messages.
        """
        address = yield from self._address_for(messages[0])
        version = self._client.known_version(address)
        takes_batches = version is not None and version >= V5_1_3
        requests: list[tasks.Request[None]] = []
        #: for each message, the index of its request
        numbers: list[int] = []
        batch: list[tuple[int, str, str]] = []
        for at, message in enumerate(messages):
            lease = message.lease
            handle = decode_receipt_handle(lease.receipt_handle)
            span = (handle.offset or 0) - handle.start_offset
            numbers.append(-1)
            if takes_batches and len(messages) > 1 and 0 <= span < _ACK_SPAN_MAX:
                batch.append((at, lease.topic, lease.receipt_handle))
            else:
                numbers[at] = len(requests)
                call = ack_message(self._group, lease.topic, handle)
                requests.append(tasks.Request(address, call))
        for start in range(0, len(batch), _ACKS_MAX):
            part = batch[start : start + _ACKS_MAX]
            for at, _, _ in part:
                numbers[at] = len(requests)
            call = batch_ack_message(
                self._group,
                messages[0].broker_name,
                [(topic, decode_receipt_handle(text)) for _, topic, text in part],
            )
            requests.append(tasks.Request(address, call))
        outcomes = yield tasks.All(requests)
        return [outcomes[number] for number in numbers]

    def change_invisible(
        self, message: ReceivedMessage, invisible_ms: int
    ) -> tasks.Task[None]:
        """See PopNetwork."""
        lease = message.lease
        address = yield from self._address_for(message)
        handle = decode_receipt_handle(lease.receipt_handle)
        call = change_invisible_time(self._group, lease.topic, handle, invisible_ms)
        handle = yield tasks.Request(address, call)
        lease.renew(encode_receipt_handle(handle), invisible_ms, self._client.clock)

    # --- membership ---

    def leave(self) -> tasks.Task[None]:
        """Tell the brokers that this member leaves."""
        self._has_left = True
        yield tasks.All([self._leave(each) for each in self._greeted])

    def _leave(self, address: str) -> tasks.Task[None]:
        """Leave when the last heartbeat is answered.

        A broker handles the two in different threads: a heartbeat that it handles last
        would make the member known for two more minutes.
        """
        with contextlib.suppress(RmqError):
            yield tasks.Within(self._beats[address], _LEAVE_MS)
        call = unregister_client(self.client_id, consumer_group=self._group)
        yield tasks.Request(address, call, _LEAVE_MS)

    def _greet(self, address: str) -> None:
        if address not in self._greeted:
            self._greeted.add(address)
            self._beat(address)

    def _beat(self, address: str) -> tasks.Pending[None]:
        beat = tasks.start(self._heartbeat(address), self.runner)
        self._beats[address] = beat
        return beat

    def _heartbeat(self, address: str) -> tasks.Task[None]:
        if self._has_left:
            return  # it would make the member known again
        heartbeat = HeartbeatData(
            client_id=self.client_id,
            consumers=(
                ConsumerData(
                    group_name=self._group,
                    consume_type="CONSUME_POP",
                    message_model="CLUSTERING",
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET"
                    if self._from_min
                    else "CONSUME_FROM_LAST_OFFSET",
                    subscriptions=tuple(self._subscriptions.values()),
                ),
            ),
        )
        call = replace(send_heartbeat(heartbeat), needs_version=V5_0_0)
        try:
            yield tasks.Request(address, call)
        except UnsupportedError:
            self._greeted.discard(address)  # the receive reports it
        except RmqError as error:
            self._greeted.discard(address)
            logger.warning("heartbeat failed broker=%s error=%s", address, error)

    def _heartbeats(self) -> tasks.Task[None]:
        self._attempts_max.clear()  # the settings may change
        yield tasks.All([self._beat(each) for each in sorted(self._greeted)])


def _sources(route: TopicRoute) -> list[MessageQueue]:
    """One source for each broker of the route that can be read and has a master."""
    brokers = {broker.broker_name for broker in route.brokers if broker.master_address}
    return sorted(
        MessageQueue(route.topic, data.broker_name, -1)
        for data in route.queues
        if data.is_readable and data.read_queue_nums and data.broker_name in brokers
    )
