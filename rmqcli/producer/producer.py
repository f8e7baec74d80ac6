"""`Producer`: sends messages, from any number of threads, as a context manager.

```python
from rmqcli import Producer, ProducerMessage

with Producer(namesrv="127.0.0.1:9876") as producer:
    result = producer.send(ProducerMessage("orders", b'{"id": 7}', tags="Paid"))
    print(result.msg_id, result.queue, result.queue_offset)
```

`send` waits until the broker has stored the message, `send_async` returns a future, and
`send_oneway` gets no answer. `send_batch` stores several messages of one topic with one
request. `send_in_transaction` stores a message that consumers see only when the local
transaction is committed. For transactions the producer needs a group and `on_check`:
the broker asks a producer of the group, perhaps in another process, about an undecided
transaction, and `on_check` answers.

Failed attempts are retried as by Java's producer; see `publish`.

With `endpoints` the producer speaks gRPC to a proxy of RocketMQ 5. Then the proxy
chooses queues, `message_group` keeps messages in order, blocking sends make their calls
in the caller's thread, and the thread rmq-proxy replaces rmq-producer in the table; see
`proxy.publisher`.

| thread | runs | ended by |
|---|---|---|
| rmq-producer | sockets, timers, callbacks of futures | close() |
| rmq-check-N | `on_check`, once a broker has asked | close() |
| rmq-close | a close that a callback began | the end of the close |

Source: DefaultMQProducer, TransactionMQProducer and DefaultMQProducerImpl in
apache/rocketmq.
"""

from __future__ import annotations

import enum
import os
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from rmqcli.api.calls.send import SendStatus
from rmqcli.api.client import Client
from rmqcli.api.task_thread import TaskThread
from rmqcli.callbacks import check_callback, check_returned
from rmqcli.client_id import new_client_id
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.engine.message import Message, MessageItem, Origin
from rmqcli.errors import RmqError, UnsupportedError, UsageError
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.process_end import OPEN_CLIENTS
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.lane import takes_batches
from rmqcli.producer.message import (
    OutgoingMessage,
    ProducerMessage,
    check_message,
    check_producer_group,
    checked_properties,
)
from rmqcli.producer.publish import Prepared, Publisher, SendResult
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.ids import decode_offset_msg_id, java_string_hash
from rmqcli.wire.message.batch import encode_item
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import UNIQ_KEY, encode_properties
from rmqcli.wire.message.system_flag import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.clock import Clock
    from rmqcli.producer.proxy.producer import ProxyProducer

    #: Chooses one of a topic's queues; the last argument is the `arg` of `send`.
    MessageQueueSelector: TypeAlias = Callable[
        [Sequence[MessageQueue], ProducerMessage, Any], MessageQueue
    ]

logger = get_logger(__name__)

#: A group that brokers know by default, so that they store nothing about a producer
#: without a group.
_INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"  # MixAll.CLIENT_INNER_PRODUCER_GROUP
_CHECKS_MAX: Final = 2_000  # TransactionMQProducer.checkRequestHoldMax


class LocalTransactionState(enum.Enum):
    """How a local transaction ended. Members keep Java's names."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    #: undecided or unknown: the broker will ask `on_check`
    UNKNOW = "UNKNOW"


_END_OF_STATE: Final = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOW: 0,
}


#: The decision to send to a proxy for a state; None when nothing is sent.
_DECISIONS: Final = {
    LocalTransactionState.COMMIT_MESSAGE: True,
    LocalTransactionState.ROLLBACK_MESSAGE: False,
    LocalTransactionState.UNKNOW: None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSendResult(SendResult):
    """A half message, and how its local transaction ended."""

    local_transaction_state: LocalTransactionState


def select_by_hash(
    queues: Sequence[MessageQueue],
    message: ProducerMessage,  # part of every selector's signature
    arg: object,
) -> MessageQueue:
    """The queue for the hash of `str(arg)`: equal arguments select the same queue.

    When the number of queues changes, an argument may select another queue.
    Source: SelectMessageQueueByHash in apache/rocketmq.
    """
    return queues[abs(java_string_hash(str(arg))) % len(queues)]


class Producer:
    """Sends messages. Every method may be called from any thread.

    `group` names the producers that may answer for each other's transactions; a
    producer without a group sends no heartbeats and has no transactions. `namesrv` is
    `host:port;host:port` (default: the environment's NAMESRV_ADDR, else
    127.0.0.1:9876); pass `client` instead where credentials or TLS are needed.
    `on_check(message)` is called in the thread rmq-check-1 for a half message of the
    group whose transaction is undecided for the broker. It returns a
    LocalTransactionState; an exception counts as UNKNOW, and the broker asks again.

    With `endpoints` (`host:port;host:port` of a proxy; default: the environment's
    ROCKETMQ_ENDPOINTS, if `namesrv` is not given) the producer speaks gRPC over TLS. A
    proxy without TLS, or with a self-signed certificate, needs `client` with
    `plaintext=True` or `tls=TlsOptions(...)`. With a proxy `group` has no meaning:
    `on_check` receives the half messages of topics to which this producer has sent.

    Raises ConfigError or UsageError for invalid settings. In a forked child process the
    producers of the parent are closed.
    """

    def __init__(
        self,
        group: str | None = None,
        *,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        on_check: Callable[[Any], LocalTransactionState | None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if namesrv is not None and client is not None:
            raise UsageError("namesrv and client cannot be used together")
        if endpoints is not None and client is not None:
            raise UsageError("endpoints and client cannot be used together")
        check_callback(on_check, "on_check")
        self.group = group
        self.config = config or ProducerConfig()
        self.client_id: str | None = None
        self._on_check = on_check
        self._clock = clock
        self._client_config = client or ClientConfig.from_env(
            os.environ, namesrv=namesrv, endpoints=endpoints
        )
        if group is not None:
            check_producer_group(group)
        elif on_check is not None and not self._client_config.endpoints:
            raise UsageError("on_check needs a group", hint="give the producer a group")
        #: created by start() when there are endpoints; then it replaces _thread
        self._proxy: ProxyProducer | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ids: UniqueIds  # guarded by _lock
        self._thread: TaskThread
        self._publisher: Publisher
        self._checks: ThreadPoolExecutor | None = None
        self._checks_open = 0  # used only by the producer's thread
        #: guards the next two; a signal handler may close while `start` or `close` runs
        self._life = threading.RLock()
        self._is_started = False
        self._is_closed = False
        self._in_flight = _SendsInFlight()

    def __repr__(self) -> str:
        group = "" if self.group is None else f"group={self.group!r}, "
        state = "closed" if self._is_closed else "open" if self._is_started else "new"
        return f"Producer({group}{self._client_config.servers}, {state})"

    def __enter__(self) -> Self:
        if not self._is_started:
            self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the producer's thread. It contacts no broker before the first message.

        Raises UsageError when the producer has been started before.
        """
        with self._life:
            if self._is_started or self._is_closed:
                raise UsageError(
                    "a producer can be started only once", hint="create a new Producer"
                )
            self._is_started = True
        config, clock = self.config, self._clock
        rng = random.Random()  # noqa: S311  # spreads load, keeps no secret
        if self._client_config.endpoints:
            self._start_proxy(rng)
            return
        client = Client(self._client_config, clock=clock)
        ip = config.client_ip or local_ip(self._client_config.namesrv[0]) or "127.0.0.1"
        self.client_id = new_client_id(
            ip=ip, instance_name=config.instance_name, unit_name=config.unit_name
        )
        self._ids = UniqueIds(ip, clock=clock, rng=rng)
        self._thread = TaskThread(client, "rmq-producer")
        self._publisher = Publisher(
            client,
            self._thread,
            config=config,
            group=self.group,
            producer_group=self.group or _INNER_GROUP,
            client_id=self.client_id,
            rng=rng,
        )
        if self._on_check is not None:
            self._checks = ThreadPoolExecutor(1, thread_name_prefix="rmq-check")
            client.remoting.set_request_handler(self._requested)
        self._thread.start()
        self._thread.post(self._publisher.start)
        OPEN_CLIENTS.add(self)

    def _start_proxy(self, rng: random.Random) -> None:
        from rmqcli.producer.proxy.producer import ProxyProducer

        on_check = self._on_check
        self._proxy = ProxyProducer(
            self._client_config,
            self.config,
            on_check=None
            if on_check is None
            else lambda message: _DECISIONS[_state(on_check(message))],
            clock=self._clock,
            rng=rng,
        )
        self.client_id = self._proxy.session.client_id
        self._proxy.session.start()
        OPEN_CLIENTS.add(self)

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
        if self._thread_is_current():
            # Not a daemon, so that the end of the process waits for it, too.
            threading.Thread(
                target=self._close, args=(timeout_ms,), name="rmq-close"
            ).start()
        else:
            self._close(timeout_ms)

    def _close(self, timeout_ms: int) -> None:
        """Wait for the sends in flight, and give threads and connections back."""
        self._in_flight.close(timeout_ms)
        if self._proxy is not None:
            self._proxy.close()
            OPEN_CLIENTS.discard(self)
            return
        if self._checks is not None:
            self._checks.shutdown(wait=False, cancel_futures=True)
        try:
            limit_s = self._client_config.timeout_ms / 1_000
            self._thread.run(self._publisher.leave()).result(limit_s)
        except (RmqError, TimeoutError) as error:
            logger.info(
                "producer not unregistered group=%s error=%s", self.group, error
            )
        if not self._thread.end():
            logger.error(
                "thread rmq-producer did not end; is the callback of a future still"
                " running?"
            )
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
        support the delay, UsageError when the message is too large or malformed.
        """
        self._refuse_in_thread()
        if self._proxy is not None:
            self._refuse_choice(queue, selector)
            with self._in_flight:
                return self._proxy.send(message, self._timeout_ms(timeout_ms))
        future = self._submit(
            message,
            queue=self._chosen(message, queue, selector, arg),
            timeout_ms=timeout_ms,
            retry_times=self.config.retry_times_when_send_failed,
        )
        results: list[SendResult] = future.result()
        return results[0]

    def send_async(
        self,
        message: ProducerMessage,
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> Future[SendResult]:
        """Send a message and return a future with the result or error of `send`.

        Messages of one thread to one queue are stored in order, as long as none of them
        is retried. Callbacks of the future run in the thread rmq-producer: they must
        return quickly, and may call send_async but not send. Blocks while
        `async_messages_max` messages wait for their answers, except in a callback. The
        future cannot be cancelled.
        """
        self._check_open()
        if not self._thread_is_current():
            self._in_flight.wait_for_room(self.config.async_messages_max)
        if self._proxy is not None:
            self._refuse_choice(queue, selector)
            self._in_flight.begin(is_async=True)
            try:
                inner = self._proxy.send_async(message, self._timeout_ms(timeout_ms))
            except BaseException:
                self._in_flight.end(is_async=True)
                raise
            inner.add_done_callback(lambda _: self._in_flight.end(is_async=True))
        else:
            inner = self._submit(
                message,
                queue=self._chosen(message, queue, selector, arg),
                timeout_ms=timeout_ms,
                retry_times=self.config.retry_times_when_send_async_failed,
                is_async=True,
            )
        outer: Future[SendResult] = _SendFuture()
        outer.set_running_or_notify_cancel()

        def ended(done: Future[list[SendResult]]) -> None:
            error = done.exception()
            if error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result()[0])

        inner.add_done_callback(ended)
        return outer

    def send_batch(
        self,
        messages: Iterable[ProducerMessage],
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic with one request; return their results in order.

        Either all of them are stored, next to each other in one queue, or none. Raises
        UsageError for no messages, for several topics, for delayed messages, and when
        together they are larger than `max_message_size_bytes`. Also raises the errors
        of `send`.
        """
        self._refuse_in_thread()
        if self._proxy is not None:
            self._refuse_choice(queue, None)
            with self._in_flight:
                return self._proxy.send_batch(
                    list(messages), self._timeout_ms(timeout_ms)
                )
        prepared = self._prepare_batch(list(messages))
        if queue is not None:
            _check_queue(queue, prepared.topic)
        future = self._run(
            prepared,
            queue=queue,
            timeout_ms=timeout_ms,
            retry_times=self.config.retry_times_when_send_failed,
        )
        results: list[SendResult] = future.result()
        return results

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
        self._refuse_in_thread()
        if self._proxy is not None:
            raise UnsupportedError(
                "a proxy answers every send; there is no send_oneway with endpoints",
                hint="use send_async and ignore its future",
            )
        chosen = self._chosen(message, queue, selector, arg)
        prepared = self._prepare(message)
        self._counted(self._publisher.send_oneway(prepared, queue=chosen)).result()

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

        Raises UsageError without a group and `on_check`, and for a delayed message.
        Also raises the errors of `send`; then `execute` was not called.
        """
        if self._on_check is None or (self.group is None and self._proxy is None):
            raise UsageError("a transaction needs a producer with group and on_check")
        if message.is_delayed:
            raise UsageError("a message of a transaction cannot be delayed")
        check_callback(execute, "execute")
        self._refuse_in_thread()
        if self._proxy is not None:
            return self._transact(self._proxy, message, execute, timeout_ms)
        assert self.group is not None  # noqa: S101  # checked above
        more = {"TRAN_MSG": "true", "PGROUP": self.group}
        prepared = self._prepare(message, more=more, sys_flag=TRANSACTION_PREPARED)
        (half,) = self._run(
            prepared,
            queue=None,
            timeout_ms=timeout_ms,
            retry_times=self.config.retry_times_when_send_failed,
        ).result()
        # The offset is in the broker's topic of half messages, not in the user's topic.
        result = replace(half, queue_offset=None)
        state = LocalTransactionState.ROLLBACK_MESSAGE
        try:
            if result.status is SendStatus.SEND_OK:
                state = LocalTransactionState.UNKNOW
                state = _state(execute(message, result))
        finally:
            self._end(message, half, state)
        return _transaction_result(result, state)

    def _transact(
        self,
        proxy: ProxyProducer,
        message: ProducerMessage,
        execute: Callable[[ProducerMessage, SendResult], LocalTransactionState | None],
        timeout_ms: int | None,
    ) -> TransactionSendResult:
        with self._in_flight:
            half, endpoints = proxy.send_half(message, self._timeout_ms(timeout_ms))
            state = LocalTransactionState.ROLLBACK_MESSAGE
            try:
                if half.status is SendStatus.SEND_OK:
                    state = LocalTransactionState.UNKNOW
                    state = _state(execute(message, half))
            finally:
                decision = _DECISIONS[state]
                try:
                    proxy.end_transaction(endpoints, message, half, decision)
                except RmqError as error:
                    _warn_of_end(half, state, error)
            return _transaction_result(half, state)

    def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a delayed message that has not been delivered yet; return its id.

        `recall_handle` is in the message's SendResult. This needs endpoints, and
        brokers with recallMessageEnable. Raises UnsupportedError without endpoints, and
        BrokerError when the broker does not recall messages, or has already delivered
        this message.
        """
        self._refuse_in_thread()
        if self._proxy is None:
            raise UnsupportedError(
                "messages can be recalled through a proxy only",
                hint="give the producer endpoints",
            )
        with self._in_flight:
            return self._proxy.recall(topic, recall_handle)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted. Raises the errors of `send`."""
        self._refuse_in_thread()
        if self._proxy is not None:
            with self._in_flight:
                return self._proxy.queues(topic)
        target = self._counted(self._publisher.target(topic)).result()
        return list(target.queues)

    # --- messages to requests ---

    def _prepare(
        self,
        message: ProducerMessage,
        *,
        more: dict[str, str] | None = None,
        sys_flag: int = 0,
    ) -> Prepared:
        config = self.config
        _refuse_message_group(message)
        if not message.body:
            raise UsageError("the message's body is empty, which brokers refuse")
        if len(message.body) > config.max_message_size_bytes:
            raise UsageError(
                f"a body of {len(message.body)} bytes is larger than"
                f" max_message_size_bytes, {config.max_message_size_bytes}"
            )
        msg_id = self._next_id()
        properties = {**message.all_properties(), **(more or {}), UNIQ_KEY: msg_id}
        check_message(OutgoingMessage(message.body, properties))
        body = message.body
        if len(body) >= config.compress_msg_body_over_howmuch_bytes:
            body = deflate_zlib(body, level=config.compress_level)
            sys_flag |= COMPRESSED
        return Prepared(
            topic=message.topic,
            msg_ids=(msg_id,),
            body=body,
            properties=encode_properties(properties),
            flag=message.flag,
            sys_flag=sys_flag,
            is_elsewhere=message.is_delayed,
            needs_timer=message.needs_timer,
            born_timestamp_ms=self._clock.epoch_ms(),
        )

    def _prepare_batch(self, messages: list[ProducerMessage]) -> Prepared:
        topics = {each.topic for each in messages}
        if len(topics) != 1:
            raise UsageError(
                f"a batch needs messages of one topic; these are of {len(topics)}"
            )
        topic = messages[0].topic
        is_delayed = any(each.is_delayed for each in messages)
        if not takes_batches(topic, is_delayed=is_delayed):
            raise UsageError("delayed messages and retry topics cannot be in a batch")
        for message in messages:
            _refuse_message_group(message)
        msg_ids = self._next_ids(len(messages))
        items = []
        for message, msg_id in zip(messages, msg_ids, strict=True):
            properties = message.all_properties()
            properties[UNIQ_KEY] = msg_id
            text = checked_properties(OutgoingMessage(message.body, properties))
            items.append(encode_item(message.body, text, flag=message.flag))
        body = b"".join(items)
        if len(body) > self.config.max_message_size_bytes:
            raise UsageError(
                f"a batch of {len(body)} bytes is larger than max_message_size_bytes,"
                f" {self.config.max_message_size_bytes}",
                hint="send it in several batches",
            )
        return Prepared(
            topic=topic,
            msg_ids=msg_ids,
            body=body,
            is_batch=True,
            born_timestamp_ms=self._clock.epoch_ms(),
        )

    def _next_id(self) -> str:
        return self._next_ids(1)[0]

    def _next_ids(self, count: int) -> tuple[str, ...]:
        self._check_open()
        with self._lock:
            return tuple([self._ids.next_id() for _ in range(count)])

    def _chosen(
        self,
        message: ProducerMessage,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        arg: object,
    ) -> MessageQueue | None:
        if selector is None:
            if queue is not None:
                _check_queue(queue, message.topic)
            return queue
        if queue is not None:
            raise UsageError("queue and selector cannot be used together")
        check_callback(selector, "selector")
        chosen = selector(self.queues(message.topic), message, arg)
        check_returned(chosen, "the selector")
        if not isinstance(chosen, MessageQueue):
            raise UsageError(f"the selector returned {chosen!r}, which is not a queue")
        _check_queue(chosen, message.topic)
        return chosen

    # --- the hand-over to the producer's thread ---

    def _submit(
        self,
        message: ProducerMessage,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        retry_times: int,
        is_async: bool = False,
    ) -> Future[list[SendResult]]:
        return self._run(
            self._prepare(message),
            queue=queue,
            timeout_ms=timeout_ms,
            retry_times=retry_times,
            is_async=is_async,
        )

    def _run(
        self,
        prepared: Prepared,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        retry_times: int,
        is_async: bool = False,
    ) -> Future[list[SendResult]]:
        task = self._publisher.send(
            prepared,
            queue=queue,
            timeout_ms=self._timeout_ms(timeout_ms),
            retry_times=retry_times,
        )
        return self._counted(task, is_async=is_async)

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.config.send_msg_timeout_ms
        if timeout_ms <= 0:
            raise UsageError(f"timeout_ms is {timeout_ms}; it must be greater than 0")
        return timeout_ms

    def _counted(self, task: Any, *, is_async: bool = False) -> Future[Any]:  # noqa: ANN401
        """Run a task, and count it as in flight so that `close` waits for it."""
        self._in_flight.begin(is_async=is_async)
        future = self._thread.run(task)
        future.add_done_callback(lambda _: self._in_flight.end(is_async=is_async))
        return future

    @staticmethod
    def _refuse_choice(
        queue: MessageQueue | None, selector: MessageQueueSelector | None
    ) -> None:
        if queue is not None or selector is not None:
            raise UsageError(
                "a proxy chooses the queue itself",
                hint="use message_group to keep messages in order",
            )

    def _check_open(self) -> None:
        if not self._is_started:
            raise UsageError("the producer is not started: use `with`, or call start")
        if self._pid != os.getpid():
            raise UsageError("the producer belongs to the process that was forked")
        if self._is_closed:
            raise _closed()

    def _thread_is_current(self) -> bool:
        if self._proxy is not None:
            return self._proxy.session.in_io_thread()
        return self._is_started and self._thread.is_current()

    def _refuse_in_thread(self) -> None:
        self._check_open()
        # With endpoints the session refuses it.
        if self._proxy is None and self._thread.is_current():
            raise UsageError(
                "a callback must not wait for the producer whose thread runs it",
                hint="use send_async in callbacks",
            )

    # --- transactions ---

    def _end(
        self, message: ProducerMessage, half: SendResult, state: LocalTransactionState
    ) -> None:
        """Send the decision to the broker. If that fails, it will ask `on_check`."""
        place = decode_offset_msg_id(half.offset_msg_id or "")
        header = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self.group or "",
            tran_state_table_offset=half.queue_offset or 0,
            commit_log_offset=place.commit_log_offset,
            commit_or_rollback=_END_OF_STATE[state],
            msg_id=half.msg_id,
            transaction_id=half.transaction_id,
        )
        assert half.queue is not None  # noqa: S101  # a broker's answer has it
        task = self._publisher.end_transaction(half.queue.broker_name, header)
        try:
            self._counted(task).result()
        except RmqError as error:
            _warn_of_end(half, state, error)

    def _requested(
        self, address: str, command: RemotingCommand
    ) -> RemotingCommand | None:
        """Handle a request of a broker. Runs in the producer's thread."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return RemotingCommand(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request code {command.code} is not supported",
            )
        header = from_ext_fields(CheckTransactionStateRequestHeader, command.ext_fields)
        found = decode_messages(
            command.body, record_type=Message, item_type=MessageItem
        )
        message = found[0] if found else None
        reason = ""
        if not self._publisher.is_broker(address):
            reason = "the peer is not a broker of our topics"
        elif not isinstance(message, Message):
            reason = "its message cannot be decoded"
        elif message.properties.get("PGROUP") != self.group:
            reason = "it is for another group"
        elif self._checks_open >= _CHECKS_MAX:
            reason = f"{self._checks_open} other checks are waiting"
        if reason or not isinstance(message, Message):
            logger.warning(
                "check of a transaction ignored address=%s: %s", address, reason
            )
            return None
        broker_name = self._publisher.broker_at(address)
        queue = MessageQueue(message.stored_topic, broker_name, message.queue_id)
        message.origin = Origin(queue, 0, 0)
        assert self._checks is not None  # made with the handler  # noqa: S101
        self._checks_open += 1
        self._checks.submit(self._check, address, header, message)
        return None

    def _check(
        self, address: str, header: CheckTransactionStateRequestHeader, message: Message
    ) -> None:
        """Call `on_check` and send its answer to the broker. Runs in rmq-check-N."""
        assert self._on_check is not None  # noqa: S101  # else nothing is checked
        state = LocalTransactionState.UNKNOW
        try:
            state = _state(self._on_check(message))
        except Exception:
            logger.exception("on_check failed msg_id=%s", message.msg_id)
        end = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self.group or "",
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_END_OF_STATE[state],
            from_transaction_check=True,
            msg_id=message.msg_id or message.offset_msg_id,
            transaction_id=header.transaction_id,
        )

        def ended(done: Future[None]) -> None:
            self._checks_open -= 1
            if done.exception() is not None:
                logger.warning(
                    "answer to a check not delivered msg_id=%s; the broker will ask"
                    " again: %s",
                    message.msg_id,
                    done.exception(),
                )

        task = self._publisher.end_transaction_at(address, end)
        self._thread.run(task).add_done_callback(ended)


class _SendFuture(Future[SendResult]):
    """The future of `send_async`, which takes only functions that a call runs."""

    def add_done_callback(self, fn: Callable[[Future[SendResult]], object]) -> None:
        """See Future. Raises TypeError for an `async def`."""
        check_callback(fn, "the callback")
        super().add_done_callback(
            lambda done: check_returned(fn(done), "the callback of a send's future")
        )


class _SendsInFlight:
    """The sends that have begun and not ended, for which `close` waits. Thread-safe.

    A `with` statement counts a send in the caller's thread.
    """

    def __init__(self) -> None:
        # Reentrant, because a signal handler may close the producer in any line here.
        self._lock = threading.RLock()
        #: notified by `close`, by the end of an asynchronous send, and once closed by
        #: any end
        self._ended = threading.Condition(self._lock)
        self._count = self._async_count = 0
        self._is_closed = False

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def begin(self, *, is_async: bool = False) -> None:
        """Count a send. Raises UsageError after `close`."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            self._count += 1
            self._async_count += is_async

    def end(self, *, is_async: bool = False) -> None:
        """Count the end of a send."""
        with self._lock:
            self._count -= 1
            self._async_count -= is_async
            if is_async or self._is_closed:
                self._ended.notify_all()

    def wait_for_room(self, async_max: int) -> None:
        """Wait while `async_max` asynchronous sends are in flight; not once closed."""
        with self._lock:
            self._ended.wait_for(
                lambda: self._async_count < async_max or self._is_closed
            )

    def close(self, timeout_ms: int) -> None:
        """Refuse further sends, and wait at most `timeout_ms` for those in flight."""
        with self._lock:
            self._is_closed = True
            self._ended.notify_all()
            self._ended.wait_for(lambda: not self._count, timeout_ms / 1_000)


def _closed() -> UsageError:
    return UsageError("the producer is closed")


def _transaction_result(
    half: SendResult, state: LocalTransactionState
) -> TransactionSendResult:
    values = {each.name: getattr(half, each.name) for each in fields(half)}
    return TransactionSendResult(**values, local_transaction_state=state)


def _warn_of_end(
    half: SendResult, state: LocalTransactionState, error: RmqError
) -> None:
    logger.warning(
        "end of transaction not delivered msg_id=%s state=%s; the broker will ask"
        " on_check: %s",
        half.msg_id,
        state.value,
        error,
    )


def _refuse_message_group(message: ProducerMessage) -> None:
    if message.message_group is not None:
        raise UsageError(
            "message_group needs a producer with endpoints",
            hint="use selector=select_by_hash with name servers",
        )


def _state(found: object) -> LocalTransactionState:
    """The decision of a listener; any other value counts as UNKNOW, as in Java."""
    if isinstance(found, LocalTransactionState):
        return found
    check_returned(found, "the transaction's function")
    if found is not None:
        logger.error(
            "a transaction listener returned %r, which is not a LocalTransactionState",
            found,
        )
    return LocalTransactionState.UNKNOW


def _check_queue(queue: MessageQueue, topic: str) -> None:
    if queue.topic != topic:
        raise UsageError(f"queue {queue} does not belong to topic {topic}")
