"""`Producer`: sends messages, from any number of threads, as a context manager.

```python
from rmqcli import Producer, ProducerMessage

with Producer(namesrv="127.0.0.1:9876") as producer:
    result = producer.send(ProducerMessage("orders", b'{"id": 7}', tags="Paid"))
    print(result.msg_id, result.queue, result.queue_offset)
```

`send` waits until the broker has stored the message, `submit` returns a future, and
`send_oneway` gets no answer. `send_batch` stores several messages of one topic with one
request. `send_in_transaction` stores a message that consumers see only when the local
transaction is committed. For transactions the producer needs a group and `on_check`:
the broker asks a producer of the group, perhaps in another process, about an undecided
transaction, and `on_check` answers.

Failed attempts are retried as by Java's producer; see `remoting.publisher`.

With `endpoints` the producer speaks gRPC to a proxy of RocketMQ 5. Then the proxy
chooses queues, and `message_group` keeps messages in order.

| thread | runs | ended by |
|---|---|---|
| that of the back end | sockets, timers, callbacks of futures | close() |
| rmq-trace | sockets and timers for traces, with `trace` | close() |
| rmq-check_0 | `on_check`, once a broker has asked; see `transactions` | close() |
| rmq-close | a close that a callback began | the end of the close |

The back end (`remoting.backend`, `proxy.backend`) names its thread.

Source: DefaultMQProducer, TransactionMQProducer and DefaultMQProducerImpl in
apache/rocketmq.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqcli.api.calls.send import SendStatus
from rmqcli.checked import check_callback, check_int, check_type, checks_arguments
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import client_config
from rmqcli.errors import ConfigError, RmqError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.names import check_group, check_topic
from rmqcli.process.end import OPEN_CLIENTS, StartedInBlock
from rmqcli.producer.backend import (
    ANY_QUEUE,
    QueueChoice,
    SendResult,
    SendsInFlight,
    closed,
)
from rmqcli.producer.config import TIMEOUT_MS_MAX, ProducerConfig
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.transactions import (
    LocalTransactionState,
    TransactionSendResult,
    decided,
    transaction_result,
    warn_of_end,
)
from rmqcli.trace.setting import trace_topic
from rmqcli.wire.ids import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.model import Message
    from rmqcli.producer.backend import MessageQueueSelector, ProducerBackend


def select_by_hash(
    queues: Sequence[MessageQueue],
    message: ProducerMessage,  # part of every selector's signature
    arg: object,
) -> MessageQueue:
    """The queue for the hash of `str(arg)`: equal arguments select the same queue.

    When the number of queues changes, an argument may select another queue. Raises
    ConfigError for None, which would put every message into the same queue.

    Source: SelectMessageQueueByHash in apache/rocketmq.
    """
    if arg is None:
        raise ConfigError("select_by_hash needs arg, such as an order's number")
    return queues[abs(java_string_hash(str(arg))) % len(queues)]


class Producer(StartedInBlock):
    """Sends messages. Every method may be called from any thread.

    `group` names the producers that may answer for each other's transactions; a
    producer without a group sends no heartbeats and has no transactions. `namesrv` is
    `host:port;host:port` (default: the environment's NAMESRV_ADDR, else
    127.0.0.1:9876); pass `client` instead where credentials or TLS are needed.
    `on_check(message)` is called in the thread rmq-check_0 for a half message of the
    group whose transaction is undecided for the broker. It returns a
    LocalTransactionState; an exception counts as UNKNOW, and the broker asks again.
    Brokers ask a producer that has sent to a topic of theirs or asked for its `queues`.

    With `endpoints` (`host:port;host:port` of a proxy; default: the environment's
    ROCKETMQ_ENDPOINTS, if `namesrv` is not given) the producer speaks gRPC over TLS. A
    proxy without TLS, or with a self-signed certificate, needs `client` with
    `plaintext=True` or `tls=TlsOptions(...)`. With a proxy `group` has no meaning:
    `on_check` receives the half messages of topics to which this producer has sent.

    With `trace=True` the producer reports each message that a broker has answered for,
    and how its transactions ended, to the topic RMQ_SYS_TRACE_TOPIC, from which
    `Admin.message_trace`, `rmq message trace`, `mqadmin queryMsgTraceById` and the
    dashboard read it; `trace="TOPIC"` names another topic. A trace never delays a
    message and never makes it fail: traces that cannot be written are dropped, with a
    line in the log. Through a proxy this raises UnsupportedError.

    Raises ConfigError for invalid settings, and TypeError for values of a wrong type.
    In a forked child process the producers of the parent are closed.
    """

    def __init__(
        self,
        group: str | None = None,
        *,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        on_check: Callable[[Message], LocalTransactionState | None] | None = None,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client_config = client_config(client, namesrv, endpoints)
        self._trace_topic = trace_topic(trace, self._client_config)
        check_type(config, (ProducerConfig, type(None)), "config")
        check_callback(on_check, "on_check")
        self.group = group
        self.config = config or ProducerConfig()
        self.client_id: str | None = None
        self._on_check = on_check
        self._clock = clock
        if group is not None:
            check_group(group, "producer group")
        elif on_check is not None and not self._client_config.endpoints:
            raise ConfigError(
                "on_check needs a group", hint="give the producer a group"
            )
        self._pid = os.getpid()
        #: made by start()
        self._backend: ProducerBackend | None = None
        #: guards the next two; a signal handler may close while `start` or `close` runs
        self._life = threading.RLock()
        self._is_started = False
        self._is_closed = False
        self._in_flight = SendsInFlight()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __repr__(self) -> str:
        group = "" if self.group is None else f"group={self.group!r}, "
        state = "closed" if self._is_closed else "open" if self._is_started else "new"
        return f"Producer({group}{self._client_config.servers}, {state})"

    def start(self) -> None:
        """Start the producer's thread. It contacts no broker before the first message.

        Raises UsageError when the producer has been started before.
        """
        with self._life:
            if self._is_started or self._is_closed:
                raise UsageError(
                    "a producer can be started only once", hint="create a new Producer"
                )
            self._backend = backend = self._made_backend()
            self.client_id = backend.client_id
            self._is_started = True
        backend.start()
        OPEN_CLIENTS.add(self)

    def _made_backend(self) -> ProducerBackend:
        client, in_flight, clock = self._client_config, self._in_flight, self._clock
        rng = random.Random()  # noqa: S311  # spreads load, keeps no secret
        if client.endpoints:
            from rmqcli.producer.proxy.backend import ProxyBackend

            return ProxyBackend(
                client,
                self.config,
                on_check=self._on_check,
                in_flight=in_flight,
                clock=clock,
                rng=rng,
            )
        from rmqcli.producer.remoting.backend import RemotingBackend

        return RemotingBackend(
            client,
            self.config,
            group=self.group,
            on_check=self._on_check,
            in_flight=in_flight,
            clock=clock,
            rng=rng,
            trace_topic=self._trace_topic,
        )

    @checks_arguments()
    def close(self, *, timeout_ms: int | None = None) -> None:
        """Wait for the sends in flight, leave the group, and close. Idempotent.

        `timeout_ms` (None: the setting `await_termination_ms`) bounds the wait for
        sends and for `on_check`; a send that has not ended by then fails with
        DisconnectedError or SendUnknownError. After this call every send raises
        UsageError. In a callback of a future it returns at once, and the producer is
        closed after the callback, in the thread rmq-close.
        """
        with self._life:
            was_open = self._is_started and not self._is_closed
            self._is_closed = True
        if not was_open or self._pid != os.getpid():
            return
        if timeout_ms is None:
            timeout_ms = self.config.await_termination_ms
        if self._backend is not None and self._backend.in_own_thread():
            # Not a daemon, so that the end of the process waits for it, too.
            threading.Thread(
                target=self._close, args=(timeout_ms,), name="rmq-close"
            ).start()
        else:
            self._close(timeout_ms)

    def _close(self, timeout_ms: int) -> None:
        """Wait for the sends in flight, and give threads and connections back."""
        if self._backend is not None:
            self._backend.hurry()
        self._in_flight.close(timeout_ms)
        if self._backend is not None:
            self._backend.close()
        OPEN_CLIENTS.discard(self)

    # --- sending ---

    def send(
        self,
        message: ProducerMessage,
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> SendResult:
        """Store a message and wait for the broker's answer.

        Queues take turns, unless `queue` is given or `selector(queues, message, arg)`,
        such as `select_by_hash`, chooses one; the selector runs in the caller's thread.
        With a chosen queue no other queue is tried. `timeout_ms` (None: the setting
        `send_msg_timeout_ms`) bounds all attempts together.

        A message whose status is not SEND_OK is stored, too; see SendResult. Raises
        SendUnknownError when it is unknown whether the message is stored. Any other
        error means that it is not stored: BrokerError when a broker refused it
        (NotFoundError, DeniedError, BusyError), ConnectError or DeadlineError when no
        broker could be reached in time, UnsupportedError when the broker does not
        support the delay, ConfigError when the message is too large or malformed.
        """
        backend = self._waited_for()
        _check_message(message)
        choice = _choice(queue, selector, arg)
        return backend.send(message, choice, self._timeout_ms(timeout_ms))

    def submit(
        self,
        message: ProducerMessage,
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> Future[SendResult]:
        """Send a message and return a future with the result or error of `send`.

        Messages that wait for a queue, or for a call to a proxy, share a request; with
        the setting `linger_ms` they wait for others. Queues take turns by request, and
        not by message as with `send`. Messages of one thread to one queue are stored in
        order, as long as none of them is retried. Callbacks of the future run in the
        back end's thread: they must return quickly, and may call submit but not send.
        Blocks while `async_messages_max` messages wait for their answers, except in a
        callback. The future cannot be cancelled.
        """
        backend = self._opened()
        _check_message(message)
        choice = _choice(queue, selector, arg)
        timeout_ms = self._timeout_ms(timeout_ms)
        # In the back end's own thread a wait would never end.
        self._in_flight.begin_async(
            self.config.async_messages_max, lambda: not backend.in_own_thread()
        )
        try:
            return backend.submit(message, choice, timeout_ms)
        except BaseException:
            self._in_flight.end_async(1)
            raise

    def send_batch(
        self,
        messages: Iterable[ProducerMessage],
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic with one request; return their results in order.

        Either all of them are stored, next to each other in one queue, or none. Raises
        ConfigError for no messages, for several topics, for delayed messages, and when
        together they are larger than `max_message_size_bytes`. Raises UnsupportedError
        for messages with a `message_group` or of a lite topic, and for those with a
        priority but no `queue`: a batch is not stored by them. Also raises the errors
        of `send`.
        """
        backend = self._waited_for()
        check_type(messages, Iterable, "messages")
        batch = list(messages)
        for each in batch:
            _check_message(each)
        _choice(queue, None, None)
        return backend.send_batch(batch, queue, self._timeout_ms(timeout_ms))

    def send_oneway(
        self,
        message: ProducerMessage,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> None:
        """Send a message without waiting for an answer; it may or may not be stored.

        Raises the errors of `send` that occur before sending, such as for an unknown
        topic or an unreachable name server. Raises UnsupportedError with endpoints,
        because the gRPC protocol has no such call.
        """
        _check_message(message)
        choice = _choice(queue, selector, arg)
        self._waited_for().send_oneway(message, choice)

    def send_in_transaction(
        self,
        message: ProducerMessage,
        execute: Callable[[ProducerMessage, SendResult], LocalTransactionState | None],
        *,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """Store a half message, run the local transaction, and commit or roll back.

        `execute(message, result)` runs in the caller's thread once the half message is
        stored, and its result is sent to the broker: consumers see the message after
        COMMIT_MESSAGE, and never after ROLLBACK_MESSAGE. The transaction stays
        undecided when `execute` returns UNKNOW or None or raises an exception, or when
        the decision does not reach the broker. The broker then asks `on_check` of a
        producer of the group, by default after a minute. An exception of `execute` is
        raised again after the broker has been told. A half message that is stored with
        a status other than SEND_OK is rolled back without calling `execute`, as in
        Java.

        Raises UsageError without a group and `on_check`, and ConfigError for a delayed
        message.
        Also raises the errors of `send`; then `execute` was not called.
        """
        if self._on_check is None:
            raise UsageError("a transaction needs a producer with group and on_check")
        _check_message(message)
        if message.is_delayed:
            raise ConfigError("a message of a transaction cannot be delayed")
        if execute is None:  # later, the half message would be stored
            raise TypeError("execute is None; it must be a function")
        check_callback(execute, "execute")
        backend = self._waited_for()
        with self._in_flight:
            half = backend.send_half(message, self._timeout_ms(timeout_ms))
            state = LocalTransactionState.ROLLBACK_MESSAGE
            try:
                if half.result.status is SendStatus.SEND_OK:
                    state = LocalTransactionState.UNKNOW
                    state = decided(execute(message, half.result))
            finally:
                try:
                    half.end(state)
                except RmqError as error:
                    warn_of_end(half.result, state, error)
            return transaction_result(half.result, state)

    @checks_arguments()
    def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a delayed message that has not been delivered yet; return its id.

        `recall_handle` is in the message's SendResult. This needs endpoints, and
        brokers with recallMessageEnable. Raises UnsupportedError without endpoints, and
        BrokerError when the broker does not recall messages, or has already delivered
        this message. After an error whose `may_be_done` is true it is unknown whether
        the message is recalled; recall it again.
        """
        return self._waited_for().recall(topic, recall_handle)

    @checks_arguments()
    def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted. Raises the errors of `send`."""
        check_topic(topic)
        return self._waited_for().queues(topic)

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.config.send_msg_timeout_ms
        return check_int(timeout_ms, "timeout_ms", 1, TIMEOUT_MS_MAX)

    def _opened(self) -> ProducerBackend:
        """The back end. Raises UsageError unless the producer is open."""
        if self._backend is None:
            raise UsageError("the producer is not started: use `with`, or call start")
        if self._pid != os.getpid():
            raise UsageError(
                "the producer belongs to the process that was forked",
                hint="create a Producer in each process",
            )
        if self._is_closed:
            raise closed()
        return self._backend

    def _waited_for(self) -> ProducerBackend:
        """The back end, for a call that waits. Raises UsageError in its own thread."""
        backend = self._opened()
        if backend.in_own_thread():
            raise UsageError(
                "a callback must not wait for the producer whose thread runs it",
                hint="use submit in callbacks",
            )
        return backend


def _check_message(message: ProducerMessage) -> None:
    if type(message) is not ProducerMessage:  # in a time that sends do not notice
        check_type(message, ProducerMessage, "message")


def check_arg(selector: object, arg: object) -> None:
    """Raise ConfigError for an argument of a selector that is not given."""
    if selector is None and arg is not None:
        raise ConfigError(
            "arg is given without a selector that it is for",
            hint="pass a selector, such as select_by_hash",
        )


def _choice(
    queue: MessageQueue | None, selector: MessageQueueSelector | None, arg: object
) -> QueueChoice:
    check_arg(selector, arg)
    if queue is None and selector is None:
        return ANY_QUEUE
    check_type(queue, (MessageQueue, type(None)), "queue")
    return QueueChoice(queue, selector, arg)
