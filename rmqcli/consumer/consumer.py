"""`Consumer`: a member of a consumer group, as a context manager.

```python
from rmqcli import Consumer


def handle(message):
    print(message.topic, message.queue_offset, message.body)


with Consumer("billing", "orders", handle, namesrv="127.0.0.1:9876") as consumer:
    consumer.wait()
```

A message is consumed when the listener returns. If the listener raises an exception or
returns False, the message is delivered again later, through the group's retry topic;
after 16 retries (by default) it becomes a dead letter. An orderly listener gets such a
message again in its place instead. Java clients may be members of the same group.
SystemExit, KeyboardInterrupt and GeneratorExit are treated like other exceptions: they
are logged as errors and end neither the thread nor the process. A listener ends the
consumer by calling `close`.

Listeners are plain functions. An `async def`, or a function that returns a coroutine or
a generator, would return before its work is done: it is a TypeError. Where only a call
shows it, the consumer closes, the message stays with the group, and `wait` and the end
of the `with` block raise the error.

Without a listener the consumer is iterated, `for message in consumer`: see `messages`.

When a program ends, its open consumers are closed as by `close`, which bounds the wait.
In a forked child the consumers of the parent are closed, without telling the brokers.
If a listener forks (as `multiprocessing` does, too) and returns or raises in the child,
the child ends as Python would.

With `endpoints` the consumer speaks gRPC to a proxy and calls the same listeners;
`proxy_member` then replaces the engine.

Source: DefaultMQPushConsumer in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from rmqcli.api.client import Client
from rmqcli.client_id import claim_client_id, new_client_id
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.config import ClientConfig
from rmqcli.consumer.iteration import HandOver, Messages
from rmqcli.consumer.local_offsets import LocalOffsetFile, local_offset_path
from rmqcli.consumer.peer_requests import PeerRequests
from rmqcli.consumer.remoting_network import RemotingNetwork
from rmqcli.consumer.threads import (
    ConsumeThreads,
    Latch,
    LeasingEngineThread,
    ListenerWorkers,
)
from rmqcli.engine.checks import check_config
from rmqcli.engine.config import ConsumerConfig, MessageModel
from rmqcli.engine.listener import Listener
from rmqcli.engine.member import Member
from rmqcli.engine.offset_store import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rmqcli.engine.push_consumer import PushConsumer
from rmqcli.errors import (
    DeadlineError,
    NotFoundError,
    RmqError,
    TransportError,
    UnsupportedError,
    UsageError,
)
from rmqcli.log import get_logger
from rmqcli.model import retry_topic
from rmqcli.process_end import OPEN_CONSUMERS
from rmqcli.tasks import All, start
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.subscription import SubscriptionData, parse_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from rmqcli.clock import Clock
    from rmqcli.consumer.proxy_member import ProxyMember
    from rmqcli.consumer.threads import EngineThread
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyContext,
        ConsumeOrderlyContext,
        ListenerResult,
    )
    from rmqcli.engine.message import Message, UndecodableMessage
    from rmqcli.engine.offset_store import OffsetStore
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

    Topics: TypeAlias = str | Iterable[str] | Mapping[str, str | SubscriptionData]
    OnMessage: TypeAlias = Callable[[Message], ListenerResult]
    OnBatch: TypeAlias = (
        Callable[[list[Message], ConsumeConcurrentlyContext], ListenerResult]
        | Callable[[list[Message], ConsumeOrderlyContext], ListenerResult]
    )
    OnQueues: TypeAlias = Callable[[list[MessageQueue]], None]


def not_joined(
    group: str,
    namesrvs: Collection[str],
    timeout_ms: int,
    *,
    reason: RmqError | None,
) -> DeadlineError:
    """The error of a start that took too long; `reason` is the last failure."""
    why = "" if reason is None else f": {reason.message}"
    hint = "" if reason is None else reason.hint
    return DeadlineError(
        f"no broker accepted a heartbeat of group {group} within {timeout_ms} ms{why}",
        address=";".join(namesrvs),
        hint=hint or "check that the brokers of the topics are online",
    )


def explained(error: RmqError, namesrvs: Collection[str]) -> RmqError:
    """Add a hint to an error if an argument may have caused it; return the error."""
    if isinstance(error, NotFoundError):
        if error.code == int(ResponseCode.TOPIC_NOT_EXIST):
            error.hint = (
                "check the topics argument, or create the topic; to wait until it"
                " exists, use start(wait_for_cluster=True)"
            )
    elif isinstance(error, TransportError) and error.address in namesrvs:
        error.hint = (
            "check the namesrv argument or NAMESRV_ADDR; to wait until a name server is"
            " available, use start(wait_for_cluster=True)"
        )
    return error


_NEAR_THE_END: Final = "new groups begin near the end"
_GENERATED_IDS: Final = "a proxy identifies clients by generated ids"
#: Settings that have no meaning through a proxy -> the reason, and what to do instead;
#: each may be empty.
_NOT_BY_PROXY: Final = {
    "message_model": ("", "give each program its own group"),
    "consume_from_where": (_NEAR_THE_END, "reset the group with Admin"),
    "consume_timestamp_ms": (_NEAR_THE_END, "reset the group with Admin"),
    "strategy": ("the proxy assigns the messages", ""),
    "max_reconsume_times": ("", "set the group's retryMaxTimes"),
    "post_subscription_when_pull": ("each receive request has its filter anyway", ""),
    "unit_mode": ("", ""),
    "client_ip": (_GENERATED_IDS, ""),
    "instance_name": (_GENERATED_IDS, ""),
    "unit_name": (_GENERATED_IDS, ""),
}


def _check_for_proxy(config: ConsumerConfig) -> None:
    """Raise UnsupportedError for a setting that has no meaning through a proxy."""
    default = ConsumerConfig()
    for name, (reason, hint) in _NOT_BY_PROXY.items():
        value = getattr(config, name)
        is_default = value == getattr(default, name)
        if name == "strategy":
            is_default = type(value) is type(default.strategy)
        if not is_default:
            raise UnsupportedError(
                f"{name} cannot be set for a consumer through a proxy"
                + (f": {reason}" if reason else ""),
                hint=f"{hint}, or use namesrv" if hint else "use namesrv",
            )


T = TypeVar("T")

logger = get_logger(__name__)

#: How long a close may take after its wait for listeners: for commits, unlocking and
#: unregistration, which all have deadlines. Then the engine ends, finished or not.
_GOODBYE_MS: Final = 12_000
#: How long `close` then waits for the engine's thread, before it logs an error.
_END_MS: Final = 2_000
_JOIN_MS: Final = 500
_LOOK_MS: Final = 500
_ASK_LOOK_MS: Final = 100


class Consumer:
    """A member of the consumer group `group`, which passes messages to a listener.

    Methods may be called from any thread, also from listeners.

    `topics` is a topic, an iterable of topics, or a mapping from topic to a tag
    expression (`"A || B"`) or a `SubscriptionData`; see `sql`. The listener is
    `on_message(message)`, which is called with one message at a time, or
    `on_batch(messages, context)`, which is called with up to
    `config.consume_message_batch_max_size` messages of one queue. Up to
    `config.consume_threads` threads call it at the same time. With neither, the
    consumer is iterated. With `orderly` the messages of each queue are delivered in
    their order, by one thread at a time. A listener that returns None has succeeded,
    unless `none_is_failure` is set. `namesrv` is `host:port;host:port` (default: the
    environment's NAMESRV_ADDR, else 127.0.0.1:9876); pass `client` instead where
    credentials or TLS are needed.

    With `endpoints` (`host:port;host:port` of a proxy; default: the environment's
    ROCKETMQ_ENDPOINTS, if `namesrv` is not given) the consumer speaks gRPC over TLS. A
    proxy without TLS, or with a self-signed certificate, needs `client` with
    `plaintext=True` or `tls=TlsOptions(...)`. Through a proxy:

    - Messages are `ProxyMessage`s, which have the attributes of `Message`. A body that
      was damaged in transit raises DecodeError when it is read.
    - Members share the messages of a topic, not its queues. There are no offsets:
      `seek`, `commit`, `offsets`, `lag` and `running_info` raise UnsupportedError.
    - The topics must exist. The settings of the group determine how often and when a
      failed message is delivered again. A new group begins near the end of the queues.
    - A FIFO group is consumed in order: one message of each message group at a time,
      and a failed message is retried in its place. `orderly` needs such a group.

    `on_undecodable` is called in a consume thread with a message that cannot be
    decoded; if it raises, it is called again later. The other functions are called in
    the thread that owns the engine (rmq-engine or one of the consume threads), so they
    must return quickly and not raise. `on_assigned(queues)` is called with queues that
    this member owns from now on, before their first messages. `on_revoked(queues)` is
    called with queues that it no longer owns, after the work on them has ended or was
    given up and their offsets were sent, also at the close. Both may be called for
    queues of the group's retry topic, and for one queue or several at a time.
    `on_failed` is called with what happened to each message that was not consumed, and
    `on_start` with the offset at which each queue begins. Through a proxy their thread
    is rmq-proxy, which all clients of proxies in the process share, and queue id -1
    stands for all queues of a broker.

    Raises ConfigError or UsageError for invalid settings, UnsupportedError for settings
    that are not possible through a proxy, and TypeError for functions that are declared
    with `async def`.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        on_message: OnMessage | None = None,
        *,
        on_batch: OnBatch | None = None,
        orderly: bool = False,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ConsumerConfig | None = None,
        client: ClientConfig | None = None,
        none_is_failure: bool = False,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
        on_failed: Callable[[FailedDelivery], None] | None = None,
        on_start: Callable[[QueueStart], None] | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if on_message is not None and on_batch is not None:
            raise UsageError("on_message and on_batch cannot be used together")
        if namesrv is not None and client is not None:
            raise UsageError("namesrv and client cannot be used together")
        if endpoints is not None and client is not None:
            raise UsageError("endpoints and client cannot be used together")
        self.group = group
        self.config = config or ConsumerConfig()
        self._clock = clock
        self._hand_over: HandOver | None = None
        #: why the listener is of no use; then the consumer closes
        self._misuse: TypeError | None = None
        call: Callable[..., object] | None
        call = on_message if on_message is not None else on_batch
        if call is None:
            call = self._hand_over = HandOver(clock)
            self.config = dataclasses.replace(
                self.config, consume_threads=1, consume_message_batch_max_size=1
            )
        self._listener = Listener(
            call=call,
            is_orderly=orderly,
            one_message=on_batch is None,
            none_is_failure=none_is_failure,
            on_undecodable=on_undecodable,
            on_failed=on_failed,
            on_start=on_start,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            reports_each=self._hand_over is not None,
            on_misuse=self._misused,
        )
        self._subscriptions = _subscriptions(topics, clock)
        check_config(group, self._subscriptions, self.config)
        self._client_config = client or ClientConfig.from_env(
            os.environ, namesrv=namesrv, endpoints=endpoints
        )
        is_by_proxy = bool(self._client_config.endpoints)
        if is_by_proxy:
            _check_for_proxy(self.config)
            if on_start is not None:
                raise UnsupportedError(
                    "a proxy does not report where queues begin, so on_start is not"
                    " supported",
                    hint="leave on_start out, or use namesrv",
                )
        elif self.config.message_model is MessageModel.CLUSTERING:
            retries = retry_topic(group)
            self._subscriptions[retries] = parse_subscription(
                retries, "*", sub_version=clock.epoch_ms()
            )
        #: replaces the engine when the consumer uses a proxy
        self._by_proxy: ProxyMember | None = None
        self._engine: PushConsumer | None = None
        self._requests: PeerRequests | None = None
        self._threads: ConsumeThreads | None = None
        self._engine_thread: EngineThread | None = None
        self._client: Client | None = None
        self._closed = Latch()
        #: the thread that is in `start` (threading.get_ident)
        self._starter: int | None = None
        self._is_started = False
        #: whether its threads run; then the engine's own thread carries out a close
        self._has_begun = False
        self._is_close_asked = False
        #: taken by the call of `_release` that gives threads and sockets back
        self._release_token = deque((True,))
        self.client_id: str | None = None

    def __repr__(self) -> str:
        topics = sorted(self._subscriptions.keys() - {retry_topic(self.group)})
        state = "closed" if self._closed.is_set else "open"
        return (
            f"Consumer({self.group!r}, {topics}, {self._client_config.servers},"
            f" {state if self._is_started else 'new'})"
        )

    def __enter__(self) -> Self:
        if not self._is_started or self._closed.is_set:
            self.start()
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self.close()
        if kind is None:
            self._raise_misuse()

    def start(
        self, *, timeout_ms: int = 30_000, wait_for_cluster: bool = False
    ) -> None:
        """Join the group and begin to consume.

        Returns when a broker has accepted this member's heartbeat, or when the consumer
        was closed in the meantime. When only some of the topics exist, a warning names
        the others, and they are consumed once they exist.

        Raises NotFoundError at once when every name server says that none of the topics
        exists, and ConnectError or DeadlineError at once when no name server answers.
        With `wait_for_cluster` it waits for the topics and the name servers instead.
        Raises DeadlineError when no broker has accepted a heartbeat within
        `timeout_ms`, for example while brokers restart, and other RmqErrors for what a
        broker refuses: through a proxy FilterError for an SQL expression that the
        broker cannot parse. After such an exception, or a KeyboardInterrupt, the
        consumer is closed and nothing is left behind.

        A consumer can be started only once: later calls raise UsageError and change
        nothing.
        """
        if self._is_started or self._closed.is_set:
            raise UsageError(
                "a consumer can be started only once", hint="create a new Consumer"
            )
        self._is_started = True
        self._starter = threading.get_ident()
        try:
            self._start(timeout_ms, wait_for_cluster=wait_for_cluster)
            self._starter = None
            if self._is_close_asked:
                self.close()
        except BaseException:
            self._starter = None
            self._abort()
            raise

    def _start(self, timeout_ms: int, *, wait_for_cluster: bool) -> None:
        if self._client_config.endpoints:
            self._start_by_proxy(timeout_ms, wait_for_cluster=wait_for_cluster)
            return
        self._build()
        if self._is_close_asked:
            self._release()
            return
        OPEN_CONSUMERS.add(self)
        engine = self._need_engine()
        assert self._threads is not None  # made by _build  # noqa: S101
        assert self._engine_thread is not None  # noqa: S101  # likewise
        self._threads.start()
        self._engine_thread.start(engine)
        self._has_begun = True
        ended = Latch()
        outcome: list[RmqError | None] = []

        def done(pending: Pending[None]) -> None:
            outcome.append(pending.outcome())
            ended.set()

        def begin() -> None:
            if not engine.is_closing:
                engine.start(wait_for_cluster=wait_for_cluster).on_done(done)

        self._post(begin)
        deadline = Deadline(self._clock, timeout_ms)
        namesrvs = self._client_config.namesrv
        # Waits in turns, because a start may never end after a close.
        while not (ended.wait(min(_ASK_LOOK_MS, deadline.left_ms())) or outcome):
            if self._is_close_asked:
                return
            if deadline.is_over():
                raise not_joined(
                    self.group, namesrvs, timeout_ms, reason=engine.start_error
                )
        error = outcome[0]
        # A close ends the requests of a start, which is not an error.
        if error is not None and not self._is_close_asked:
            raise explained(error, namesrvs)

    def _start_by_proxy(self, timeout_ms: int, *, wait_for_cluster: bool) -> None:
        from rmqcli.consumer.proxy_member import ProxyMember  # loads gRPC

        self._by_proxy = member = ProxyMember(
            self._client_config,
            group=self.group,
            subscriptions=self._subscriptions,
            config=self.config,
            listener=self._listener,
            clock=self._clock,
            on_end=self._release,
        )
        OPEN_CONSUMERS.add(self)
        member.start(
            timeout_ms=timeout_ms,
            wait_for_cluster=wait_for_cluster,
            is_cancelled=lambda: self._is_close_asked,
        )
        self.client_id = member.client_id
        self._has_begun = True

    def _abort(self) -> None:
        """Stop what `start` has started; it may have failed at any point."""
        self._is_close_asked = True
        if self._by_proxy is not None:
            self._by_proxy.abort()
            self._release()
            return
        engine_thread = self._engine_thread
        if engine_thread is None or self._engine is None:
            self._release()
            return
        engine_thread.post(lambda: self._close_engine(0))
        deadline = Deadline(self._clock, _JOIN_MS)
        while not engine_thread.has_run and not deadline.is_over():
            self._closed.wait(1)  # its thread may be about to run
        if engine_thread.has_run:
            self._has_begun = True
            self.close(timeout_ms=0)
        else:
            engine_thread.end()
            self._release()

    def _build(self) -> None:
        config, clock = self.config, self._clock
        namesrv = self._client_config.namesrv
        is_broadcasting = config.message_model is MessageModel.BROADCASTING
        self.client_id = new_client_id(
            ip=config.client_ip or local_ip(namesrv[0]) or "127.0.0.1",
            instance_name=config.instance_name,
            unit_name=config.unit_name,
            is_broadcasting=is_broadcasting,
        )
        if (
            not is_broadcasting
        ):  # broadcasting members keep their own offsets and share nothing
            claim_client_id(self, ";".join(namesrv), self.client_id)
        self._client = client = Client(self._client_config, clock=clock)
        network = RemotingNetwork(client)
        self._threads = threads = ConsumeThreads(
            config.consume_threads, self._listener, clock
        )
        self._engine_thread = engine_thread = self._make_engine_thread(client, threads)
        workers = ListenerWorkers(
            self._listener,
            clock,
            needs_lock=self._listener.is_orderly and not is_broadcasting,
            consume_threads=threads,
            engine_thread=engine_thread,
            # The engine is created after the workers, and before listeners run.
            consumed=lambda outcome: self._need_engine().consumed(outcome),
            consumed_orderly=lambda outcome: self._need_engine().consumed_orderly(
                outcome
            ),
        )
        member = Member(
            group=self.group,
            client_id=self.client_id,
            config=config,
            listener=self._listener,
            subscriptions=self._subscriptions,
            clock=clock,
            network=network,
            workers=workers,
            offsets=self._offset_store(network, is_broadcasting=is_broadcasting),
        )
        self._engine = engine = PushConsumer(member)
        self._requests = PeerRequests(
            engine,
            namesrv=";".join(namesrv),
            call=engine_thread.call,
            answer_later=client.remoting.answer_later,
        )
        client.remoting.set_request_handler(self._requests.handle)

    def _make_engine_thread(
        self, client: Client, consume_threads: ConsumeThreads
    ) -> EngineThread:
        """Create the thread that will own the engine; tests override this method."""
        return LeasingEngineThread(client, consume_threads, on_end=self._release)

    def _offset_store(
        self, network: RemotingNetwork, *, is_broadcasting: bool
    ) -> OffsetStore:
        if not is_broadcasting:
            return RemoteBrokerOffsetStore(self.group, network)
        assert self.client_id is not None  # noqa: S101  # made before
        path = local_offset_path(Path.home(), self.client_id, self.group)
        store = LocalFileOffsetStore(LocalOffsetFile(path))
        store.load()
        return store

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Leave the group: finish current work, commit, unregister. Idempotent.

        `timeout_ms` (None: the setting `await_termination_ms`) bounds the wait for
        listeners; of several calls, the one whose time is over first counts. When a
        listener has not returned by then, its message is not committed, and another
        member will get it.

        Safe to call from any thread, and from a signal handler whatever code it
        interrupted. When a listener calls it, or a signal handler that interrupted
        `start`, it returns at once, and the consumer is closed after the listener or
        `start` has ended; see `wait`. A KeyboardInterrupt ends the wait, not the close.
        """
        wait_ms = self.begin_close(timeout_ms=timeout_ms)
        if not self._closed.is_set:
            is_starting = self._starter == threading.get_ident() and not self._has_begun
            if is_starting or self._is_inside():
                return
            limit_ms = wait_ms + _GOODBYE_MS + _END_MS
            if not self._closed.wait(limit_ms):
                logger.error(
                    "consumer of group %s is not closed after %d ms: thread rmq-engine"
                    " does not end; is an allocation strategy still running?",
                    self.group,
                    limit_ms,
                )
                return
        if self._engine_thread is not None:
            self._engine_thread.join()
        if self._by_proxy is not None and not self._by_proxy.is_inside():
            self._by_proxy.join(_JOIN_MS)

    def begin_close(self, *, timeout_ms: int | None = None) -> int:
        """Begin to close without waiting; return how long it waits for listeners (ms).

        Takes no lock, because a signal handler must not. See `close`.
        """
        wait_ms = self.config.await_termination_ms
        if timeout_ms is not None:
            wait_ms = timeout_ms
        self._is_close_asked = True
        if self._hand_over is not None:
            self._hand_over.begin_close()
        if not self._is_started:
            self._closed.set()
        elif not self._has_begun or self._closed.is_set:
            pass
        elif self._by_proxy is not None:
            self._by_proxy.begin_close(wait_ms)
        else:
            self._post(lambda: self._close_engine(wait_ms))
        return wait_ms

    def _misused(self, error: TypeError) -> None:
        """Close, because no call of the listener does its work. In a consume thread."""
        if self._misuse is None:
            self._misuse = error
            logger.error("consumer of group %s closes: %s", self.group, error)
        self.begin_close()

    def _raise_misuse(self) -> None:
        if self._misuse is not None:
            raise self._misuse

    def _is_inside(self) -> bool:
        """Whether the caller is one of the threads that a close has to end."""
        if self._by_proxy is not None:
            return self._by_proxy.is_inside()
        engine_thread, threads = self._engine_thread, self._threads
        return (engine_thread is not None and engine_thread.is_current()) or (
            threads is not None and threads.is_current()
        )

    def _close_engine(self, wait_ms: int) -> None:
        """Inside the engine: close it, or shorten the wait of a close in progress."""
        engine, engine_thread = self._need_engine(), self._engine_thread
        assert engine_thread is not None  # made with the engine  # noqa: S101
        if engine.is_closing:
            engine.close_sooner(wait_ms)
            return
        engine.member.call_later(wait_ms + _GOODBYE_MS, engine_thread.end)
        engine.close(wait_ms).on_done(lambda _: engine_thread.end())

    def _release(self) -> None:
        """Give threads and sockets back, at the end of the engine's thread.

        Only the first call has an effect.
        """
        try:
            self._release_token.pop()
        except IndexError:
            return
        try:
            if self._hand_over is not None:
                self._hand_over.leave()
            if self._threads is not None:
                self._threads.stop(_JOIN_MS)
            if self._client is not None:
                self._client.close()
        finally:
            self._closed.set()
            OPEN_CONSUMERS.discard(self)

    def forget_after_fork(self) -> None:
        """In a forked child: become closed, sending nothing to the brokers."""
        self._release_token.clear()
        self._is_close_asked = True
        self._listener.is_orphaned = True
        if self._engine_thread is not None:
            self._engine_thread.forget_after_fork()
        if self._engine is not None:
            for process_queue in self._engine.member.process_queues.values():
                # so that its listener gets no more messages
                process_queue.drop("the process forked")
        self._closed = Latch()
        self._closed.set()

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the consumer is closed or time is up; return whether it is closed.

        With `timeout_ms` None the wait has no limit. Ctrl-C ends it with
        KeyboardInterrupt. Raises TypeError when the consumer was closed because its
        listener returned a coroutine.
        """
        if timeout_ms is not None:
            is_closed = self._closed.wait(timeout_ms)
        else:
            is_closed = True
            while not self._closed.wait(_LOOK_MS):
                pass  # in turns: an endless wait cannot be interrupted everywhere
        if is_closed:
            self._raise_misuse()
        return is_closed

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages without an idle timeout; see `messages`."""
        return self.messages()

    def messages(self, *, idle_timeout_ms: int | None = None) -> Iterator[Message]:
        """Iterate over the messages as they arrive, for a consumer without a listener.

        A message is consumed when the loop asks for the next one; its offset is then
        committed with the next periodic commit or at the close. When the loop is left
        by `break` or an exception, its message is not consumed: the next loop begins
        with it, and once the consumer is closed, another member gets it, or this group
        at its next start. No later message of its queue is committed. To have a message
        delivered again later, use a listener.

        The iteration ends when the consumer is closed, or when no message has arrived
        for `idle_timeout_ms`. Only one thread at a time may iterate. A close in another
        thread waits until the loop asks for the next message, but no longer than
        `await_termination_ms`. A loop that keeps a message for longer than
        `consume_timeout_ms` (15 minutes) gets it again, as a listener does. Raises
        UsageError before `start`, and for a consumer with a listener.
        """
        if self._by_proxy is None:
            self._need_engine()
        if self._hand_over is None:
            raise UsageError("a consumer with a listener cannot be iterated")
        return Messages(self._hand_over, idle_timeout_ms)

    def commit(self, *, timeout_ms: int = 10_000) -> None:
        """Commit the offsets of this member's queues, and wait until they are stored.

        Without this call they are committed every 5 s and at the close. The committed
        offset of a queue is that of the first message that is not consumed, so no
        message is skipped. A listener may call this method, but its current messages
        are not consumed yet.

        Raises TransportError or another RmqError for a broker that does not store an
        offset, and DeadlineError after `timeout_ms`. Raises UsageError for a consumer
        that is not running, and UnsupportedError through a proxy.
        """
        self._refuse_by_proxy(
            "commit",
            "leave it out: a message is acknowledged when its listener returns",
        )
        member = self._need_engine().member
        self._run(_commit(member), "commit", timeout_ms)

    def lag(self, *, timeout_ms: int = 10_000) -> dict[MessageQueue, int]:
        """Return how many messages of this member's queues are not consumed, by queue.

        The brokers are asked for the ends of the queues. Raises the errors of `commit`.
        For the whole group use Admin.lag.
        """
        self._refuse_by_proxy("lag", "ask Admin.lag, with name servers")
        member = self._need_engine().member
        return self._run(_lag(member), "lag", timeout_ms)

    def _run(self, task: Task[T], what: str, timeout_ms: int) -> T:
        """Run a task in the engine; return its result or raise its error."""
        engine_thread = self._engine_thread
        if engine_thread is None or self._closed.is_set:
            raise UsageError("the consumer is closed")
        if engine_thread.is_current():
            raise UsageError(f"callbacks such as on_assigned must not call {what}")
        ended = Latch()
        pendings: list[Pending[T]] = []

        def done(pending: Pending[T]) -> None:
            pendings.append(pending)
            ended.set()

        member = self._need_engine().member
        engine_thread.post(lambda: start(task, member).on_done(done))
        if self._threads is not None and self._threads.is_current():
            engine_thread.give_way()
        deadline = Deadline(self._clock, timeout_ms)
        while not (ended.wait(min(_ASK_LOOK_MS, deadline.left_ms())) or pendings):
            if self._closed.is_set:
                raise UsageError("the consumer is closed")
            if deadline.is_over():
                raise DeadlineError(
                    f"{what} of group {self.group} did not finish within"
                    f" {timeout_ms} ms",
                    address=";".join(self._client_config.namesrv),
                )
        return pendings[0].result()

    def pause(self) -> None:
        """Stop pulling. Messages that were already pulled are still consumed."""
        if self._by_proxy is not None:
            self._by_proxy.post(self._by_proxy.pause)
            return
        self._post(self._need_engine().pause)

    def resume(self) -> None:
        """Continue to pull after `pause`."""
        if self._by_proxy is not None:
            self._by_proxy.post(self._by_proxy.resume)
            return
        self._post(self._need_engine().resume)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Consume one of this member's queues from another offset, for the whole group.

        The current work on the queue ends without effect. A queue that this member does
        not own is ignored. Raises UsageError for a negative offset, and
        UnsupportedError through a proxy.
        """
        if offset < 0:
            raise UsageError(f"offset {offset} of {queue} is negative")
        self._refuse_by_proxy("seek", "reset the group with Admin, with name servers")
        engine = self._need_engine()
        self._post(lambda: engine.move({queue: offset}))

    def queues(self) -> list[MessageQueue]:
        """The queues that this member owns now, sorted, including retry queues.

        Through a proxy queue id -1 stands for all queues of a broker.
        """
        if self._by_proxy is not None:
            return self._by_proxy.queues()
        member = self._need_engine().member
        return sorted(
            self._ask(
                lambda: [
                    q for q, each in member.process_queues.items() if not each.dropped
                ]
            )
        )

    def offsets(self) -> dict[MessageQueue, int]:
        """The next offset to be consumed, for each queue that this member owns.

        Raises UnsupportedError through a proxy.
        """
        self._refuse_by_proxy("offsets", "ask Admin.lag, with name servers")
        offsets: dict[MessageQueue, int] = self._ask(
            self._need_engine().member.offsets.table.all
        )
        return offsets

    def running_info(self) -> ConsumerRunningInfo:
        """The state of this member as brokers request it (307).

        It has settings, subscriptions, queues and rates. Raises UnsupportedError
        through a proxy.
        """
        self._refuse_by_proxy("running_info", "see queues()")
        self._need_engine()
        assert self._requests is not None  # noqa: S101  # made with the engine
        info: ConsumerRunningInfo = self._ask(self._requests.running_info)
        return info

    def _ask(self, question: Callable[[], Any]) -> Any:  # noqa: ANN401  # as asked
        """Call `question` inside the engine; return its result or raise its error."""
        engine_thread = self._engine_thread
        if engine_thread is None or self._closed.is_set or engine_thread.is_current():
            return question()
        answered = Latch()
        answers: list[Any] = []
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                answers.append(question())
            except BaseException as error:  # noqa: BLE001  # it is the caller's
                errors.append(error)
            answered.set()

        engine_thread.post(ask)
        if self._threads is not None and self._threads.is_current():
            engine_thread.give_way()
        while not answered.wait(_ASK_LOOK_MS):
            if self._closed.is_set:
                return question()
        if errors:
            raise errors[0]
        return answers[0]

    def _refuse_by_proxy(self, what: str, hint: str) -> None:
        if self._client_config.endpoints:
            raise UnsupportedError(
                f"{what} is not possible through a proxy, which does not expose"
                " offsets",
                hint=hint,
            )

    def _post(self, action: Callable[[], None]) -> None:
        if self._engine_thread is not None and not self._closed.is_set:
            self._engine_thread.post(action)

    def _need_engine(self) -> PushConsumer:
        if self._engine is None:
            raise UsageError("the consumer was not started")
        return self._engine


def sql(topic: str, expression: str) -> SubscriptionData:
    """Return a subscription by SQL92, for brokers with `enablePropertyFilter`."""
    return parse_subscription(topic, expression, expression_type="SQL92")


def _subscriptions(topics: Topics, clock: Clock) -> dict[str, SubscriptionData]:
    if isinstance(topics, str):
        topics = {topics: "*"}
    elif not hasattr(topics, "items"):
        topics = dict.fromkeys(topics, "*")
    version = clock.epoch_ms()
    return {
        topic: parse_subscription(topic, each, sub_version=version)
        if isinstance(each, str)
        else each
        for topic, each in topics.items()
    }


def _live_queues(member: Member) -> list[MessageQueue]:
    return [q for q, each in member.process_queues.items() if not each.dropped]


def _commit(member: Member) -> Task[None]:
    """Commit the offsets of the member's queues, then read each of them back."""
    queues = [
        q for q in _live_queues(member) if member.offsets.table.get(q) is not None
    ]
    yield from member.offsets.persist_last(queues)
    stored = yield All([member.offsets.read(queue) for queue in queues])
    for outcome in stored:
        if isinstance(outcome, RmqError):
            raise outcome


def _lag(member: Member) -> Task[dict[MessageQueue, int]]:
    queues = _live_queues(member)
    ends = yield All([member.network.max_offset(queue) for queue in queues])
    lags = {}
    for queue, end in zip(queues, ends, strict=True):
        if isinstance(end, RmqError):
            raise end
        offset = member.offsets.table.get(queue)
        if offset is not None:
            lags[queue] = max(0, end - offset)
    return lags
