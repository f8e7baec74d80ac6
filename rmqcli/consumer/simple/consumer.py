"""`SimpleConsumer`: receive messages, work on them, acknowledge them.

```python
from rmqcli import SimpleConsumer

with SimpleConsumer("billing", "orders", namesrv="127.0.0.1:9876") as consumer:
    for message in consumer.receive(max_messages=16, invisible_duration_ms=60_000):
        print(message.body)
        consumer.ack(message)
```

The broker hides a received message from the rest of the group for
`invisible_duration_ms`. A message that is not acknowledged by then is delivered again,
to any member; after the group's retries (16 by default) it becomes a dead letter.
`change_invisible` prolongs or shortens that time. No member owns a queue, so any number
of members can share the work of a topic, and there is no rebalance.

It needs brokers of 5.0 or later, and reaches them by their name servers or through a
proxy (`endpoints`); `Consumer` works with older ones, too. A group must not have
members of both kinds, because both move the same offsets.

| thread | runs | ended by |
|---|---|---|
| rmq-simple | sockets, timers, all requests (with `endpoints`: rmq-proxy) | close() |

Source: SimpleConsumer of apache/rocketmq-clients; over remoting the POP requests that
the proxy makes for it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rmqcli import tasks
from rmqcli.api.client import Client
from rmqcli.checked import check_int, check_type, checks_arguments
from rmqcli.client_id import new_client_id
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import client_config
from rmqcli.consumer.backend import not_started
from rmqcli.consumer.begin import parse_begin
from rmqcli.consumer.simple.received import ReceivedMessage
from rmqcli.consumer.simple.receiver import Receiver
from rmqcli.consumer.simple.remoting import RemotingPop
from rmqcli.consumer.subscriptions import subscriptions_of
from rmqcli.errors import AckError, ConfigError, RmqError, UsageError
from rmqcli.log import get_logger
from rmqcli.names import check_member_group
from rmqcli.position import Earliest, Latest
from rmqcli.process.end import OPEN_CLIENTS, StartedInBlock
from rmqcli.trace.setting import trace_topic
from rmqcli.transport.lookups import local_ip
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.simple.receiver import PopBackend
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.consumer.trace import DeliveryTraces
    from rmqcli.position import Position
    from rmqcli.wire.subscription import SubscriptionData

    #: how many messages were to be acknowledged; those that were not, with their errors
    AckOutcome: TypeAlias = tuple[int, list[tuple[ReceivedMessage, RmqError]]]

logger = get_logger(__name__)

MESSAGES_MAX: Final = 32  # More is refused (PopMessageProcessor).
INVISIBLE_MS_MIN: Final = 1_000
PROXY_INVISIBLE_MS_MIN: Final = 10_000  # ProxyConfig.minInvisibleTimeMillsForRecv
INVISIBLE_MS_MAX: Final = 12 * 60 * 60 * 1_000  # ProxyConfig.maxInvisibleTimeMills
AWAIT_MS_MAX: Final = 24 * 60 * 60 * 1_000
_TIMEOUT_MS_MAX: Final = 60 * 60 * 1_000
ACK_TIMEOUT_MS: Final = 10_000
#: How long a close waits for calls in other threads.
CLOSE_MS: Final = 5_000


class SimpleConsumer(StartedInBlock):
    """A member of `group` that requests its messages. Any thread may call its methods.

    `topics` is a topic or a `SubscriptionData` (see `sql`), an iterable of them, or a
    mapping from topic to a tag expression (`"A || B"`) or a `SubscriptionData`.
    `invisible_duration_ms` is the default of `receive`. In a queue that the group has
    never consumed, the consumer begins near the end (while the queue's first message is
    still in the broker's memory, there) or, with `consume_from="earliest"`, at the
    beginning. With `orderly` a queue delivers no message while an earlier one is
    hidden. `namesrv` is `host:port;host:port` (default: the environment's NAMESRV_ADDR,
    else 127.0.0.1:9876); pass `client` instead where credentials or TLS are needed.

    With `endpoints` (`host:port;host:port` of a proxy; default: the environment's
    ROCKETMQ_ENDPOINTS, if `namesrv` is not given) the consumer speaks gRPC over TLS. A
    proxy without TLS, or with a self-signed certificate, needs `client` with
    `plaintext=True` or `tls=TlsOptions(...)`. Through a proxy, the settings of the
    group determine whether it is orderly, a new group always begins near the end,
    `invisible_duration_ms` must be 10 s or more, and a receive waits for at least 1 s.

    With `trace=True` the consumer reports to the topic RMQ_SYS_TRACE_TOPIC that it has
    received a message, and that it has acknowledged it; see `Producer`. `trace="TOPIC"`
    names another topic. Through a proxy this raises UnsupportedError.

    Raises ConfigError for invalid settings, and TypeError for values of a wrong type.
    In a forked child process the consumers of the parent are closed.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        invisible_duration_ms: int = 30_000,
        orderly: bool = False,
        consume_from: str | Position = "latest",
        namesrv: str | None = None,
        endpoints: str | None = None,
        client: ClientConfig | None = None,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client_config = client_config(client, namesrv, endpoints)
        topic = trace_topic(trace, self._client_config)
        check_type(orderly, bool, "orderly")
        begin = parse_begin(consume_from)
        if begin not in (Earliest(), Latest()):
            raise ConfigError(
                "a SimpleConsumer can begin only at earliest or latest, not at"
                f" {begin}",
                hint="reset the group with Admin before it begins",
            )
        check_member_group(group)
        self.group = group
        self.client_id: str | None = None
        self._invisible_ms_min = INVISIBLE_MS_MIN
        if self._client_config.endpoints:
            self._invisible_ms_min = PROXY_INVISIBLE_MS_MIN
            _check_for_proxy(begin, orderly=orderly)
        self._invisible_ms = self._checked_invisible_ms(invisible_duration_ms)
        self._orderly = orderly
        self._from_min = begin == Earliest()
        self._clock = clock
        self._subscriptions = subscriptions_of(topics, clock.epoch_ms())
        self._traces: DeliveryTraces | None = None
        if topic is not None:
            from rmqcli.consumer.trace import DeliveryTraces
            from rmqcli.producer.remoting.trace import TraceDispatcher

            dispatcher = TraceDispatcher(self._client_config, topic, clock=clock)
            self._traces = DeliveryTraces(dispatcher, group, clock=clock)
        self._pid = os.getpid()
        self._network: PopBackend
        self._receiver: Receiver
        self._is_started = False
        self._is_closed = False
        #: calls under way; guarded by _changed, which is notified as they end
        self._in_flight = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        topics = sorted(self._subscriptions)
        return (
            f"SimpleConsumer({self.group!r}, {topics}, {self._client_config.servers})"
        )

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def start(self) -> None:
        """Start the consumer.

        Over remoting, nothing is sent before the first receive. A proxy is asked for
        routes and settings; this raises ConnectError, NotFoundError and other RmqErrors
        when that fails. Raises UsageError when the consumer was started or closed
        before.
        """
        with self._changed:
            if self._is_started or self._is_closed:
                raise UsageError(
                    "a consumer can be started only once",
                    hint="create a new SimpleConsumer",
                )
            self._network = network = self._make_network()
            self.client_id = network.client_id
            self._receiver = Receiver(
                network, network.runner, self._clock, self._subscriptions
            )
            self._is_started = True
        try:
            network.start()
        except BaseException:
            self.close()
            raise
        if self._traces is not None:
            self._traces.dispatcher.start()
        OPEN_CLIENTS.add(self)

    def _make_network(self) -> PopBackend:
        config, clock = self._client_config, self._clock
        if config.endpoints:
            from rmqcli.consumer.simple.proxy import ProxyPop  # loads gRPC

            return ProxyPop(
                config,
                group=self.group,
                subscriptions=self._subscriptions,
                clock=clock,
            )
        return RemotingPop(
            Client(config, clock=clock),
            group=self.group,
            client_id=new_client_id(ip=local_ip(config.namesrv[0]) or "127.0.0.1"),
            subscriptions=self._subscriptions,
            from_min=self._from_min,
            is_order=self._orderly,
        )

    @checks_arguments()
    def close(self, *, timeout_ms: int = CLOSE_MS) -> None:
        """End receives, wait for acks in progress, leave the group. Idempotent.

        A `receive` in another thread returns at once with the messages that it has,
        perhaps none. Messages that brokers delivered and that no `receive` has returned
        are given back. `timeout_ms` bounds the wait for calls in other threads; a call
        that has not ended by then raises an error. Messages that were received and not
        acknowledged can no longer be acknowledged, and will be delivered again.
        """
        with self._changed:
            if self._is_closed or not self._is_started:
                self._is_closed = True
                return
            self._is_closed = True
            if self._pid != os.getpid():
                return
        self._network.post(self._receiver.begin_close)
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight, timeout_ms / 1_000)
        limit_ms = self._client_config.timeout_ms
        give_back = self._receiver.give_back
        # A message that was on its way has come before the answer to the goodbye.
        for goodbye in (give_back(), self._network.leave(), give_back()):
            try:
                self._network.run(tasks.Within(goodbye, limit_ms)).result(
                    2 * limit_ms / 1_000
                )
            except (RmqError, FutureTimeoutError) as error:
                logger.warning(
                    "request failed during close group=%s error=%s", self.group, error
                )
        if not self._network.end():
            logger.error(
                "thread rmq-simple has not ended; a name lookup may still be running"
                " group=%s",
                self.group,
            )
        if self._traces is not None:
            self._traces.dispatcher.close()
        OPEN_CLIENTS.discard(self)

    # --- receiving ---

    def receive(
        self,
        max_messages: int = MESSAGES_MAX,
        *,
        invisible_duration_ms: int | None = None,
        await_ms: int = 20_000,
    ) -> list[ReceivedMessage]:
        """Receive up to `max_messages` (at most 32) messages of the subscribed topics.

        Returns as soon as there is a message, or an empty list after `await_ms`; 0 only
        checks for messages. No other member receives these messages for
        `invisible_duration_ms` (1 s to 12 h, over gRPC at least 10 s; None: the default
        of this consumer).

        These errors are raised at once: NotFoundError for a topic that does not exist,
        BrokerError for an expression that the broker cannot parse, DeniedError without
        permission, and UnsupportedError for a broker before 5.0. Brokers that cannot be
        reached are asked again until `await_ms` is over. If none has answered by then,
        the last TransportError is raised, up to the client's `timeout_ms` later. Raises
        ConfigError for arguments out of range, and UsageError before `start` and after
        `close`.
        """
        make = self._receiving(
            max_messages,
            invisible_duration_ms=invisible_duration_ms,
            await_ms=await_ms,
        )
        messages: list[ReceivedMessage] = self._run(make, on_left=self._put_back)
        return messages

    def _receiving(
        self,
        max_messages: int,
        *,
        invisible_duration_ms: int | None,
        await_ms: int | None,
    ) -> Callable[[], tasks.Task[list[ReceivedMessage]]]:
        """Check the arguments of `receive`, and return what makes its task."""
        max_messages = check_int(max_messages, "max_messages", 1, MESSAGES_MAX)
        wait_ms = check_int(await_ms, "await_ms", 0, AWAIT_MS_MAX)
        invisible_ms = self._invisible_ms
        if invisible_duration_ms is not None:
            invisible_ms = self._checked_invisible_ms(invisible_duration_ms)

        def receive() -> tasks.Task[list[ReceivedMessage]]:
            messages = yield from self._receiver.receive(
                max_messages, invisible_ms=invisible_ms, await_ms=wait_ms
            )
            if self._traces is not None:
                self._traces.received(messages)
            return messages

        return receive

    def _put_back(self, future: Future[list[ReceivedMessage]]) -> None:
        """Keep the messages of a receive for which its caller did not wait."""
        if future.exception() is None:
            messages = future.result()
            self._network.post(lambda: self._receiver.put_back(messages))

    def subscribe(self, topic: str, expression: str | SubscriptionData = "*") -> None:
        """Subscribe to another topic, or replace the expression of a subscribed topic.

        Receives in progress continue with the previous subscription. When the
        expression of a subscribed topic changes, this call waits for the end of
        requests that brokers hold with the previous expression (20 s at most), because
        these would skip messages that only the new one matches. Raises ConfigError for
        an invalid topic or expression.
        """
        changed = subscriptions_of({topic: expression}, self._clock.epoch_ms())
        with self._changed:
            self._subscriptions.update(changed)
            if not self._is_started or self._is_closed:
                return
            self._network.subscribed()
        self._run(lambda: self._receiver.settled(topic))

    @checks_arguments()
    def unsubscribe(self, topic: str) -> None:
        """Cancel the subscription of a topic. Raises ConfigError for the last one."""
        with self._changed:
            if set(self._subscriptions) == {topic}:
                raise ConfigError(f"{topic} is the only topic; close the consumer")
            self._subscriptions.pop(topic, None)
            if self._is_started:
                self._network.subscribed()

    @property
    def subscriptions(self) -> dict[str, SubscriptionData]:
        """The current subscriptions by topic; a copy."""
        return dict(self._subscriptions)

    # --- acknowledging ---

    def ack(
        self,
        messages: ReceivedMessage | Iterable[ReceivedMessage],
        *,
        timeout_ms: int = ACK_TIMEOUT_MS,
    ) -> None:
        """Acknowledge one message or several, so that they are not delivered again.

        Several messages in one call need few requests. A failure that is worth a retry
        is retried until `timeout_ms`. Raises AckError when not every message was
        acknowledged: its `failures` lists those that were not, each with its error
        (ReceiptHandleError when the invisible time is over), and they will be delivered
        again. Acknowledging a message twice has no effect. Raises TypeError for other
        objects, and UsageError for a message that another group received, before
        `start` and after `close`.
        """
        self._raise_failures(self._run(self._acking(messages, timeout_ms)))

    def _acking(
        self, messages: ReceivedMessage | Iterable[ReceivedMessage], timeout_ms: int
    ) -> Callable[[], tasks.Task[AckOutcome]]:
        """Check the arguments of `ack`, and return what makes its task."""
        if isinstance(messages, ReceivedMessage):
            messages = (messages,)
        asked = tuple(messages)
        for each in asked:
            self._check_message(each)
        timeout_ms = check_int(timeout_ms, "timeout_ms", 1, _TIMEOUT_MS_MAX)

        def ack() -> tasks.Task[AckOutcome]:
            failures = yield from self._receiver.ack(asked, timeout_ms=timeout_ms)
            if self._traces is not None:
                self._traces.acknowledged(asked, {id(each) for each, _ in failures})
            return len(asked), failures

        return ack

    def _raise_failures(self, outcome: AckOutcome) -> None:
        """Raise AckError unless every message was acknowledged."""
        count, failures = outcome
        if not failures:
            return
        message, error = failures[0]
        name = message.msg_id
        if count == 1:
            text = f"message {name} was not acknowledged: {error.message}"
        else:
            text = (
                f"{len(failures)} of {counted(count, 'message')} were not"
                f" acknowledged, the first of them {name}: {error.message}"
            )
        raise AckError(text, failures=tuple(failures), hint=error.hint) from error

    def change_invisible(
        self, message: ReceivedMessage, invisible_duration_ms: int
    ) -> None:
        """Hide a message for `invisible_duration_ms` from now on.

        Called in time, it gives longer work the time that it needs; a short time gives
        the message back. The message gets another receipt handle.

        Raises ConfigError for less than 1 s or more than 12 h, ReceiptHandleError when
        the invisible time is over, and TransportError when no answer came. Then it is
        unknown until when the message is hidden, and it cannot be acknowledged any
        more.
        """
        self._run(self._changing(message, invisible_duration_ms))

    def _changing(
        self, message: ReceivedMessage, invisible_duration_ms: int
    ) -> Callable[[], tasks.Task[None]]:
        """Check the arguments of `change_invisible`; return what makes its task."""
        self._check_message(message)
        invisible_ms = check_int(
            invisible_duration_ms,
            "invisible_duration_ms",
            INVISIBLE_MS_MIN,
            INVISIBLE_MS_MAX,
        )
        return lambda: self._receiver.change_invisible(message, invisible_ms)

    def _check_message(self, message: object) -> None:
        """Raise UsageError for a message of another group: brokers would not mind."""
        if not isinstance(message, ReceivedMessage):
            raise TypeError(
                f"{type(message).__name__} is not a message that receive() returned"
            )
        if message.lease.group != self.group:
            raise UsageError(
                f"message {message.msg_id} was received as group {message.lease.group},"
                f" and this consumer is a member of group {self.group}",
                hint="call the method of the consumer that received it",
            )

    def _checked_invisible_ms(self, value: object) -> int:
        return check_int(
            value, "invisible_duration_ms", self._invisible_ms_min, INVISIBLE_MS_MAX
        )

    def _run(
        self,
        make: Callable[[], tasks.Task[Any]],
        on_left: Callable[[Future[Any]], None] | None = None,
    ) -> Any:  # noqa: ANN401  # what the task returns
        """Run the task that `make` returns in the consumer's thread, and wait for it.

        When an interrupt ends the wait, `on_left` is called at the end of the task, or
        at once if it has ended.
        """
        future = self._begin(make)
        try:
            return future.result()
        except BaseException:
            if on_left is not None:
                future.add_done_callback(on_left)
            raise
        finally:
            self._end()

    def _begin(self, make: Callable[[], tasks.Task[Any]]) -> Future[Any]:
        """Run the task that `make` returns, and count its call until `_end`."""
        with self._changed:
            if not self._is_started:
                raise not_started()
            if self._is_closed or self._pid != os.getpid():
                raise UsageError("the consumer is closed")
            self._in_flight += 1
        try:
            return self._network.run(make())
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """Count the end of a call."""
        with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()


def _check_for_proxy(begin: Position, *, orderly: bool) -> None:
    """Raise ConfigError for settings that a proxy decides by itself."""
    if orderly:
        raise ConfigError(
            "orderly cannot be used with endpoints: a proxy uses the group's setting",
            hint="set consume_message_orderly of the group",
        )
    if begin != Latest():
        raise ConfigError(
            "consume_from cannot be used with endpoints: through a proxy, new"
            " groups begin near the end, and in a young topic at the first message",
            hint="reset the group with Admin and name servers before it begins",
        )
