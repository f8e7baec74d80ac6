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

Listeners are plain functions. An `async def`, or a function that returns a coroutine, a
generator or a future, would return before its work is done: it is a TypeError. Where
only a call shows it, the consumer closes, the message stays with the group, and `wait`
and the end of the `with` block raise the error.

Without a listener the consumer is iterated, `for message in consumer`: see `messages`.

When a program ends, its open consumers are closed as by `close`, which bounds the wait.
In a forked child the consumers of the parent are closed, without telling the brokers.
If a listener forks (as `multiprocessing` does, too) and returns or raises in the child,
the child ends as Python would.

With `endpoints` the consumer speaks gRPC to a proxy and calls the same listeners. What
differs lies in its back end; see `backend`.

Source: DefaultMQPushConsumer in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from rmqcli.checked import check_callback, check_int, check_type, checks_arguments
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import client_config
from rmqcli.consumer.backend import GOODBYE_MS, MemberParts, not_started
from rmqcli.consumer.begin import parse_begin, with_begin
from rmqcli.consumer.consume_threads import ConsumeThreads
from rmqcli.consumer.iteration import HandOver, MessageIterator
from rmqcli.consumer.latch import Latch
from rmqcli.consumer.remoting_backend import RemotingConsumerBackend
from rmqcli.consumer.subscriptions import subscriptions_of
from rmqcli.engine.config import RANGES, ConsumeFromWhere, ConsumerConfig
from rmqcli.engine.listener import Listener
from rmqcli.errors import ConfigError, UsageError, interrupt_behind
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.names import check_member_group
from rmqcli.process.end import OPEN_CONSUMERS, StartedInBlock
from rmqcli.trace.setting import trace_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.backend import ConsumerBackend, JobRunner, MakeBackend
    from rmqcli.consumer.iteration import Offered
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyContext,
        ConsumeOrderlyContext,
        ListenerResult,
    )
    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.queue_lag import QueueLag
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import Message
    from rmqcli.position import Position
    from rmqcli.producer.remoting.trace import TraceDispatcher
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

    OnMessage: TypeAlias = Callable[[Message], ListenerResult]
    OnBatch: TypeAlias = (
        Callable[[list[Message], ConsumeConcurrentlyContext], ListenerResult]
        | Callable[[list[Message], ConsumeOrderlyContext], ListenerResult]
    )
    OnQueues: TypeAlias = Callable[[list[MessageQueue]], None]

logger = get_logger(__name__)

#: How long `close` waits after the back end's time for it, before it logs an error.
_END_MS: Final = 2_000
_LOOK_MS: Final = 500
#: How much longer a close may take that waits for traces.
_TRACES_MS: Final = 6_000
_LATEST: Final = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


class Consumer(StartedInBlock):
    """A member of the consumer group `group`, which passes messages to a listener.

    Methods may be called from any thread, also from listeners.

    `topics` is a topic or a `SubscriptionData` (see `sql`), an iterable of them, or a
    mapping from topic to a tag expression (`"A || B"`) or a `SubscriptionData`. The
    listener is `on_message(message)`, which is called with one message at a time, or
    `on_batch(messages, context)`, which is called with up to `batch` messages of one
    queue. Up to `consume_threads` threads call it at the same time (default: 20). With
    neither, the consumer is iterated. With `orderly` the messages of each queue are
    delivered in their order, by one thread at a time. A listener that returns None has
    succeeded.

    A queue is consumed from the group's committed offset. Where there is none,
    `consume_from` decides: a position such as "earliest", "latest" (the default),
    "now", "-15m" (that long before the start, by the broker's clock) or
    "@2026-01-02T03:04:05Z". Brokers ignore it while a queue still has its first
    message: then a new group consumes the whole queue. `config` has the other settings.

    `namesrv` is `host:port;host:port` (default: the
    environment's NAMESRV_ADDR, else 127.0.0.1:9876); pass `client` instead where
    credentials or TLS are needed.

    With `endpoints` (`host:port;host:port` of a proxy; default: the environment's
    ROCKETMQ_ENDPOINTS, if `namesrv` is not given) the consumer speaks gRPC over TLS. A
    proxy without TLS, or with a self-signed certificate, needs `client` with
    `plaintext=True` or `tls=TlsOptions(...)`. Through a proxy:

    - A message's offset is None when the proxy does not report it, and a body that was
      damaged in transit raises DecodeError when it is read.
    - Members share the messages of a topic, not its queues. There are no offsets:
      `seek`, `commit`, `offsets`, `lag` and `running_info` raise UnsupportedError.
    - The topics must exist. The settings of the group determine how often and when a
      failed message is delivered again. A new group begins near the end of the queues,
      and in a young topic at the first message.
    - A FIFO group is consumed in order: one message of each message group at a time,
      and a failed message is retried in its place. `orderly` needs such a group.

    With `trace=True` the consumer reports each delivery to the topic
    RMQ_SYS_TRACE_TOPIC, before and after the call of the listener; see `Producer`.
    `trace="TOPIC"` names another topic. Through a proxy this raises UnsupportedError.

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

    Raises ConfigError for invalid settings, UnsupportedError for settings that are not
    possible through a proxy, and TypeError for values of a wrong type and for functions
    that are declared with `async def`.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        on_message: OnMessage | None = None,
        *,
        on_batch: OnBatch | None = None,
        orderly: bool = False,
        consume_from: str | Position | None = None,
        consume_threads: int | None = None,
        batch: int | None = None,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ConsumerConfig | None = None,
        client: ClientConfig | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
        on_failed: Callable[[FailedDelivery], None] | None = None,
        on_start: Callable[[QueueStart], None] | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if on_message is not None and on_batch is not None:
            raise ConfigError("on_message and on_batch cannot be used together")
        check_member_group(group)
        check_type(orderly, bool, "orderly")
        check_type(config, (ConsumerConfig, type(None)), "config")
        self._client_config = client_config(client, namesrv, endpoints)
        topic = trace_topic(trace, self._client_config)
        self.group = group
        self.config = _settings(
            config or ConsumerConfig(), consume_from, consume_threads, batch
        )
        self._clock = clock
        self._hand_over: Offered | None = None
        #: why the listener is of no use; then the consumer closes
        self._misuse: TypeError | None = None
        call: Callable[..., object] | None
        call = on_message if on_message is not None else on_batch
        if call is None:
            for name, given in (("consume_threads", consume_threads), ("batch", batch)):
                if given is not None:
                    raise ConfigError(f"{name} needs a listener")
            call = self._hand_over = self._make_hand_over()
            self.config = dataclasses.replace(
                self.config, consume_threads=1, consume_message_batch_max_size=1
            )
        self._traces: TraceDispatcher | None = None
        if topic is not None:
            call = self._traced(call, topic, one_message=on_batch is None)
        self._listener = Listener(
            call=call,
            is_orderly=orderly,
            one_message=on_batch is None,
            shares_slow_pulls=self._shares_slow_pulls,
            wanted=self._wanted,
            on_undecodable=on_undecodable,
            on_failed=on_failed,
            on_start=on_start,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            reports_each=on_message is None and on_batch is None,
            is_told_where=consume_from is not None
            or self.config.consume_from_where is not _LATEST,
            is_async=self._is_async,
            on_misuse=self._misused,
        )
        self._subscriptions = subscriptions_of(topics, clock.epoch_ms())
        self._backend = self._make_backend()
        self._closed = Latch()
        #: the thread that is in `start` (threading.get_ident)
        self._starter: int | None = None
        self._is_started = False
        self._is_close_asked = False
        #: taken by the call of `_release` that gives threads and sockets back
        self._release_token = deque((True,))

    def _traced(
        self, call: Callable[..., object], topic: str, *, one_message: bool
    ) -> Callable[..., Any]:
        """Make the dispatcher of traces, and a listener that reports its calls."""
        from rmqcli.consumer.trace import DeliveryTraces, traced_listener
        from rmqcli.producer.remoting.trace import TraceDispatcher

        if not self._is_async:
            check_callback(call, "the listener")
        self._traces = TraceDispatcher(self._client_config, topic, clock=self._clock)
        traces = DeliveryTraces(
            self._traces,
            self.group,
            clock=self._clock,
            consume_timeout_ms=self.config.consume_timeout_ms,
        )
        return traced_listener(
            call, traces, one_message=one_message, is_async=self._is_async
        )

    #: the back end without `endpoints`; tests use others
    _remoting_backend: ClassVar[MakeBackend] = RemotingConsumerBackend

    #: whether other threads help with the messages of a pull whose listener is slow
    _shares_slow_pulls: ClassVar[bool] = True

    #: whether calls of the listener return awaitables
    _is_async: ClassVar[bool] = False

    def _wanted(self) -> int | None:
        """How many messages may still be consumed; None without a limit."""
        return None

    def _make_backend(self) -> ConsumerBackend:
        make: MakeBackend = self._remoting_backend
        if self._client_config.endpoints:
            from rmqcli.consumer.proxy_backend import ProxyConsumerBackend  # loads gRPC

            make = ProxyConsumerBackend
        parts = MemberParts(
            client_config=self._client_config,
            group=self.group,
            subscriptions=self._subscriptions,
            config=self.config,
            listener=self._listener,
            runner=self._make_runner(),
            clock=self._clock,
            on_end=self._release,
        )
        return make(parts)

    def _make_hand_over(self) -> Offered:
        return HandOver(self._clock)

    def _make_runner(self) -> JobRunner:
        return ConsumeThreads(self.config.consume_threads, self._listener, self._clock)

    @property
    def client_id(self) -> str | None:
        """The id under which servers know this member; None before the start."""
        return self._backend.client_id

    @property
    def is_closed(self) -> bool:
        """Whether the consumer is closed, or was closed before its start."""
        return self._closed.is_set

    def __repr__(self) -> str:
        topics = sorted(self._subscriptions)
        state = "closed" if self.is_closed else "open"
        return (
            f"Consumer({self.group!r}, {topics}, {self._client_config.servers},"
            f" {state if self._is_started else 'new'})"
        )

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self.close()
        if kind is None:
            self.raise_misuse()

    @checks_arguments()
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
        `timeout_ms`, for example while brokers restart, DeniedError when brokers denied
        it until then, and other RmqErrors for what a broker refuses: through a proxy
        FilterError for an SQL expression that the broker cannot parse. After such an
        exception, or a KeyboardInterrupt, the consumer is closed and nothing is left
        behind.

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
            OPEN_CONSUMERS.add(self)
            if self._traces is not None:
                self._traces.start()
            self._backend.start(
                timeout_ms=timeout_ms,
                wait_for_cluster=wait_for_cluster,
                is_cancelled=lambda: self._is_close_asked,
            )
            self._starter = None
            if self._is_close_asked:
                self.close()
        except BaseException as error:
            self._starter = None
            self._abort()
            interrupt = interrupt_behind(error)
            if interrupt is not error:
                raise interrupt from None
            raise

    def _abort(self) -> None:
        """Stop what `start` has started; it may have failed at any point."""
        self._is_close_asked = True
        if self._backend.abort():
            self.close(timeout_ms=0)
        else:
            self._release()

    @checks_arguments()
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
            is_starting = (
                self._starter == threading.get_ident() and not self._backend.has_begun
            )
            if is_starting or self._backend.is_inside():
                return
            limit_ms = wait_ms + GOODBYE_MS + _END_MS
            if self._traces is not None:
                limit_ms += _TRACES_MS
            if not self._closed.wait(limit_ms):
                logger.error(
                    "consumer of group %s is not closed after %d ms: thread rmq-engine"
                    " does not end; is an allocation strategy still running?",
                    self.group,
                    limit_ms,
                )
                return
        self._backend.join()

    @checks_arguments()
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
        elif self._backend.has_begun and not self._closed.is_set:
            self._backend.begin_close(wait_ms)
        return wait_ms

    def _misused(self, error: TypeError) -> None:
        """Close, because no call of the listener does its work. In a consume thread."""
        if self._misuse is None:
            self._misuse = error
            logger.error("consumer of group %s closes: %s", self.group, error)
        self.begin_close()

    def raise_misuse(self) -> None:
        """Raise the TypeError because of which the consumer has closed, if any."""
        if self._misuse is not None:
            raise self._misuse

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
            self._backend.release()
            if self._traces is not None:
                self._traces.close()
        finally:
            self._closed.set()
            OPEN_CONSUMERS.discard(self)

    def forget_after_fork(self) -> None:
        """In a forked child: become closed, sending nothing to the brokers."""
        self._release_token.clear()
        self._is_close_asked = True
        self._listener.is_orphaned = True
        if self._traces is not None:
            self._traces.forget_after_fork()
        self._backend.forget_after_fork()
        self._closed = Latch()
        self._closed.set()

    @checks_arguments()
    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the consumer is closed or time is up; return whether it is closed.

        With `timeout_ms` None the wait has no limit. Ctrl-C ends it with
        KeyboardInterrupt. Raises TypeError when the consumer was closed because its
        listener returned a coroutine or a future, and UsageError before `start`.
        """
        if not (self._is_started or self._closed.is_set):
            raise not_started()
        if timeout_ms is not None:
            is_closed = self._closed.wait(timeout_ms)
        else:
            is_closed = True
            while not self._closed.wait(_LOOK_MS):
                pass  # in turns: an endless wait cannot be interrupted everywhere
        if is_closed:
            self.raise_misuse()
        return is_closed

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages without an idle timeout; see `messages`."""
        return self.messages()

    @checks_arguments()
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
        if not self._is_started:
            raise not_started()
        if not isinstance(self._hand_over, HandOver):
            raise UsageError("a consumer with a listener cannot be iterated")
        return MessageIterator(self._hand_over, idle_timeout_ms)

    @checks_arguments()
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
        self._backend.offsets_for("commit").commit(timeout_ms)

    @checks_arguments()
    def lag(self, *, timeout_ms: int = 10_000) -> tuple[QueueLag, ...]:
        """Return how far this member is behind in each of its queues, sorted.

        The values are those of Admin.lag(group).queues, which has the queues of all
        members. Here `committed` is the offset up to which this member has consumed,
        also where it is not committed yet; `age_ms` and `inflight` are None. The
        brokers are asked for the ends of the queues: where one does not answer within
        `timeout_ms`, the lag is None, the state UNKNOWN, and `reason` says why. Raises
        UsageError for a consumer that is not running, and UnsupportedError through a
        proxy.
        """
        return self._backend.offsets_for("lag").lag(timeout_ms)

    def pause(self) -> None:
        """Stop pulling. Messages that were already pulled are still consumed.

        Raises UsageError for a consumer that is not running, as `resume` and `seek` do.
        """
        self._not_closed().pause()

    def resume(self) -> None:
        """Continue to pull after `pause`."""
        self._not_closed().resume()

    @checks_arguments(MessageQueue=MessageQueue)
    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Consume one of this member's queues from another offset, for the whole group.

        The current work on the queue ends without effect. A queue that this member does
        not own is ignored. Raises ConfigError for a negative offset, and
        UnsupportedError through a proxy.
        """
        check_int(offset, "offset", 0, 2**63 - 1)
        self._not_closed().offsets_for("seek").seek(queue, offset)

    def _not_closed(self) -> ConsumerBackend:
        """The back end, for a change, which has no effect on a consumer that closed."""
        if self._closed.is_set:
            raise UsageError("the consumer is closed")
        return self._backend

    def queues(self) -> list[MessageQueue]:
        """The queues that this member owns now, sorted, including retry queues.

        Through a proxy queue id -1 stands for all queues of a broker. After the close
        there are none, and `offsets` and `running_info` tell what was last known.
        """
        return self._backend.queues()

    def offsets(self) -> dict[MessageQueue, int]:
        """The next offset to be consumed, for each queue that this member owns.

        Raises UnsupportedError through a proxy.
        """
        return self._backend.offsets_for("offsets").offsets()

    def running_info(self) -> ConsumerRunningInfo:
        """The state of this member as brokers request it (307).

        It has settings, subscriptions, queues and rates. Raises UnsupportedError
        through a proxy.
        """
        return self._backend.offsets_for("running_info").running_info()


def _settings(
    config: ConsumerConfig,
    consume_from: str | Position | None,
    consume_threads: int | None,
    batch: int | None,
) -> ConsumerConfig:
    """Return the settings with those that were given as arguments."""
    if consume_from is not None:
        config = with_begin(config, parse_begin(consume_from))
    if consume_threads is not None:
        check_int(consume_threads, "consume_threads", *RANGES["consume_threads"])
        config = dataclasses.replace(config, consume_threads=consume_threads)
    if batch is not None:
        check_int(batch, "batch", *RANGES["consume_message_batch_max_size"])
        config = dataclasses.replace(config, consume_message_batch_max_size=batch)
    return config
