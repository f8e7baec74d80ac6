"""One client of a RocketMQ proxy: its identity, its settings, and its connections.

The producer and the consumers are built on it and use:

| | |
|---|---|
| `Session(config, client_type=..., ...)` | creates a client; opens no connection |
| `open(topics)` | gets routes and opens telemetry, which a receive needs |
| `invoke(endpoints, rpc)` | makes a call of `rpc` in the caller's thread |
| `receive_now(endpoints, rpc)` | receives in the caller's thread |
| `submit(endpoints, rpc)`, `receive(...)` | do so in the I/O thread, as `Pending` |
| `run(task)`, `post(action)` | run something in the I/O thread, from any thread |
| `in_caller(task)` | runs a task in the caller's thread |
| `route(topic, via)` | returns the queues of a topic, cached and refreshed |
| `ready(endpoints)` | waits, in a task, for the settings of another server |
| `settings` | has the proxy's settings: retries, sizes, times |
| `close()` | unregisters from every proxy and closes the connections |

A task makes its calls by means of a `Via`, so that the same task can run in the I/O
thread or in the caller's thread. `on_...` functions are called in the I/O thread and
must return quickly.

Telemetry is one stream for each server. The client sends its settings first, and again
every five minutes, when they have changed, and when the server has lost them. A stream
that ends is reopened after a pause that grows and varies. Heartbeats are sent every
10 s; after three consecutive heartbeats without an answer, the client reconnects.

Source: ClientImpl, ClientSessionImpl in apache/rocketmq-clients; ClientActivity in
apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from rmqcli import tasks
from rmqcli.client_id import new_proxy_client_id
from rmqcli.clock import SYSTEM_CLOCK, Now
from rmqcli.errors import (
    BodyError,
    DeadlineError,
    DisconnectedError,
    RmqError,
    TimeLimitError,
    TransportError,
    UsageError,
)
from rmqcli.log import get_logger
from rmqcli.proxy import rpc as calls
from rmqcli.proxy.channel import ProxyChannel
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.io_thread import io_thread
from rmqcli.proxy.message import ProxyMessage
from rmqcli.proxy.metadata import VERSION, MetadataMaker, host_name
from rmqcli.proxy.settings import (
    CONSUMER_DEFAULTS,
    PRODUCER_DEFAULTS,
    ServerSettings,
    merged,
)
from rmqcli.proxy.status import OK, error_of
from rmqcli.server_requests import FloodLimit, thread_dump
from rmqcli.timers import Timers
from rmqcli.transport.backoff import Backoff
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.rpc import ProxyQueue, Received, ReceiveRpc, Rpc

T = TypeVar("T")

logger = get_logger(__name__)

PRODUCER: Final = int(pb.ClientType.PRODUCER)
PUSH_CONSUMER: Final = int(pb.ClientType.PUSH_CONSUMER)
SIMPLE_CONSUMER: Final = int(pb.ClientType.SIMPLE_CONSUMER)

#: The most servers of one client; a route with more is a mistake.
SERVERS_MAX: Final = 512
HEARTBEAT_MS: Final = 10_000
ROUTES_MS: Final = 30_000
SETTINGS_MS: Final = 300_000
#: Consecutive heartbeats without an answer before the client reconnects.
_SILENT_MAX: Final = 3
#: A stream that lasted this long shows that the server works.
_PROVED_MS: Final = 10_000
#: Extra time after unregistering, for actions that its end starts.
_AFTER_GOODBYE_MS: Final = 1_000
_POLLING_ASKED_MS: Final = 20_000


class Via(tasks.Runner, Protocol):
    """Where a task runs, and how it makes its calls."""

    def call(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """Make a call; the Pending always ends. `timeout_ms` None: the config's."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a group's subscription: tags `a || b`, `*`, or SQL92."""

    expression: str = "*"
    is_sql: bool = False


class Session:
    """See the module. Methods that do not say otherwise may be called from any thread.

    `group` and `subscriptions` (topic -> Filter) are for consumers. `on_orphaned` is
    called with a half message whose transaction is undecided for the broker, and the
    transaction's id. `on_verify` is called with a message to consume as a test, and a
    function that must be called with the outcome. `on_settings` is called with each
    change of `settings`.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        client_type: int,
        group: str | None = None,
        subscriptions: Mapping[str, Filter] | None = None,
        fifo: bool = False,
        on_orphaned: Callable[[ProxyMessage, str], None] | None = None,
        on_verify: Callable[[ProxyMessage, Callable[[bool], None]], None] | None = None,
        on_settings: Callable[[ServerSettings], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self.client_type = client_type
        self.group = group
        self.clock = clock
        self.access_point = parse_endpoints(config.endpoints)
        self.client_id = new_proxy_client_id(host_name())
        self.settings = (
            PRODUCER_DEFAULTS if client_type == PRODUCER else CONSUMER_DEFAULTS
        )
        self._fifo = fifo
        #: topic -> Filter; replaced as a whole
        self._subscriptions = dict(subscriptions or {})
        #: topics in the settings; replaced as a whole
        self.topics: tuple[str, ...] = tuple(self._subscriptions)
        self._on_orphaned = on_orphaned
        self._on_verify = on_verify
        self._on_settings = on_settings
        self._rng = rng or random.Random()  # noqa: S311  # spreads load only
        self._metadata = MetadataMaker(
            self.client_id, credentials=config.credentials, clock=clock
        )
        self._io = io_thread()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: servers are added under _lock by any thread, and removed in the I/O thread
        self._servers: dict[Endpoints, _Server] = {}
        self._routes: dict[str, tuple[ProxyQueue, ...]] = {}
        self._is_closed = False
        self._has_timers = False

    # --- life ---

    def start(self) -> None:
        """Open telemetry to the access point, without waiting for it."""
        self._server(self.access_point)

    def open(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Request the routes of `topics`, and wait for the settings of their servers.

        Raises the first error: ConnectError, NotFoundError, DeniedError and so on. Must
        not be called from the I/O thread.
        """
        self._refuse_in_thread()
        self.run(self._open(tuple(topics), timeout_ms)).result()

    def close(self) -> None:
        """Unregister from every server and close the connections. Idempotent.

        Unregistering may take the `timeout_ms` of the config, like any request. Calls
        in flight fail with DisconnectedError.
        """
        if self._is_closed or self._pid != os.getpid():
            self._is_closed = True
            return
        self._is_closed = True
        if self._io.is_current():
            tasks.start(self._leave(), self._io)
            return
        try:
            limit_ms = self.config.timeout_ms + _AFTER_GOODBYE_MS
            self._io.run(self._leave()).result(limit_ms / 1_000)
        except (RmqError, TimeoutError) as error:
            logger.info(
                "client not unregistered client=%s error=%s", self.client_id, error
            )

    def closing(self) -> tasks.Task[None]:
        """Do the same as `close`, as a task in the I/O thread."""
        if not self._is_closed:
            self._is_closed = True
            yield from self._leave()

    # --- calls ---

    def invoke(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> T:
        """Make a call in the caller's thread and wait for its answer.

        Raises RmqError: ConnectError when nothing was sent, DisconnectedError or
        DeadlineError when the server may have acted on it, and for example BrokerError
        for an answer that is not OK. Must not be called from the I/O thread.
        """
        self._refuse_in_thread()
        return self.call_now(endpoints, rpc, timeout_ms)

    def call_now(self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None) -> T:
        """As `invoke`, for a caller that is known not to be the I/O thread."""
        channel = self._server(endpoints).channel
        return channel.invoke(rpc, timeout_ms or self.config.timeout_ms)

    def receive_now(
        self, endpoints: Endpoints, rpc: ReceiveRpc, timeout_ms: int | None = None
    ) -> Received:
        """Receive in the caller's thread. Raises the errors of `invoke`.

        The default of `timeout_ms` is 3 s more than the time for which the server may
        hold the call. Must not be called from the I/O thread.
        """
        self._refuse_in_thread()
        return self._server(endpoints).channel.receive_now(rpc, timeout_ms)

    def submit(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """Make a call. May only be called from the I/O thread."""
        try:
            channel = self._server(endpoints).channel
        except RmqError as error:
            failed: tasks.Pending[T] = tasks.Pending()
            failed.fail(error)
            return failed
        return channel.submit(rpc, timeout_ms or self.config.timeout_ms)

    def receive(
        self, endpoints: Endpoints, rpc: ReceiveRpc, timeout_ms: int | None = None
    ) -> tasks.Pending[Received]:
        """Receive messages. May only be called from the I/O thread."""
        try:
            channel = self._server(endpoints).channel
        except RmqError as error:
            failed: tasks.Pending[Received] = tasks.Pending()
            failed.fail(error)
            return failed
        return channel.receive(rpc, timeout_ms)

    def end_receives(self) -> None:
        """Cancel the receives that wait for messages, and begin none from now on.

        In the I/O thread. Before a client gives messages back, so that its own receives
        are not given them again.
        """
        for each in self._servers.values():
            each.channel.end_receives()

    # --- where things run ---

    @property
    def via(self) -> Via:
        """The Via of tasks that run in the I/O thread."""
        return _IoVia(self)

    def run(self, part: tasks.Part) -> Future[Any]:
        """Run a task in the I/O thread; the future has its result or its RmqError."""
        return self._io.run(part)

    def post(self, action: Callable[[], None]) -> None:
        """Call `action` in the I/O thread."""
        self._io.post(action)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after `delay_ms`. May only be called from the I/O thread."""
        self._io.call_later(delay_ms, action)

    def in_io_thread(self) -> bool:
        """Whether the caller runs in the I/O thread, where it must not wait."""
        return self._io.is_current()

    def in_caller(self, make: Callable[[Via], tasks.Task[T]]) -> T:
        """Run the task that `make` returns in the caller's thread, to its end."""
        self._refuse_in_thread()
        return CallerVia(self).run(make)

    # --- topics ---

    def route(self, topic: str, via: Via) -> tasks.Task[tuple[ProxyQueue, ...]]:
        """The queues of a topic, from the cache if possible.

        Raises NotFoundError for a topic that does not exist: a proxy creates none.
        """
        known = self._routes.get(topic)
        if known is not None:
            return known
        found: tuple[ProxyQueue, ...] = yield via.call(
            self.access_point, calls.query_route(topic, self.access_point)
        )
        self._learn(topic, found)
        return found

    def ready(self, endpoints: Endpoints) -> tasks.Task[None]:
        """Wait until a server has answered the settings. Runs in the I/O thread.

        Before that the client cannot receive. Raises the error of the first attempt,
        and later DisconnectedError while the telemetry stream is lost.
        """
        server = self._server(endpoints)
        if not server.is_known:
            if server.opened.is_done:
                raise DisconnectedError(
                    f"the telemetry stream to {endpoints} is lost",
                    address=str(endpoints),
                )
            yield server.opened

    def forget_route(self, topic: str) -> None:
        """Drop the cached route, so that it is requested again when it is needed."""
        self._routes.pop(topic, None)

    def add_topic(self, topic: str) -> None:
        """Add a topic, to which messages are sent, to the client's settings."""
        if topic not in self.topics:
            with self._lock:
                if topic in self.topics:
                    return
                self.topics = (*self.topics, topic)
            self.post(self._send_settings)

    def subscribe(self, subscriptions: Mapping[str, Filter]) -> None:
        """Replace the subscriptions in the client's settings."""
        with self._lock:
            self._subscriptions = dict(subscriptions)
            self.topics = tuple(subscriptions)
        self.post(self._send_settings)

    # --- inside ---

    def _open(
        self, topics: tuple[str, ...], timeout_ms: int | None
    ) -> tasks.Task[None]:
        limit_ms = timeout_ms or 2 * self.config.timeout_ms
        try:
            yield tasks.Within(self._opened(topics), limit_ms)
        except TimeLimitError as error:
            raise DeadlineError(
                f"no settings from {self.access_point} within {limit_ms} ms",
                address=str(self.access_point),
            ) from error

    def _opened(self, topics: tuple[str, ...]) -> tasks.Task[None]:
        wanted = {self.access_point}
        for topic in topics:
            queues = yield from self.route(topic, self.via)
            wanted |= {each.endpoints for each in queues}
        servers = [self._server(each) for each in wanted]
        outcomes = yield tasks.All([each.opened for each in servers])
        outcomes += yield tasks.All([each.state_topics() for each in servers])
        for outcome in outcomes:
            if isinstance(outcome, RmqError):
                raise outcome

    def _server(self, endpoints: Endpoints) -> _Server:
        if self._is_closed:
            raise DisconnectedError("the client is closed", address=str(endpoints))
        found = self._servers.get(endpoints)
        if found is not None:
            return found
        if self._pid != os.getpid():
            raise UsageError("the client belongs to the process that was forked")
        with self._lock:
            found = self._servers.get(endpoints)
            if found is not None:
                return found
            if len(self._servers) >= SERVERS_MAX:
                raise BodyError(f"the proxy names over {SERVERS_MAX} servers")
            channel = ProxyChannel(
                endpoints, config=self.config, metadata=self._metadata, io=self._io
            )
            found = self._servers[endpoints] = _Server(self, channel, self._rng)
        self.post(found.start)
        if not self._has_timers:
            self._has_timers = True
            self.post(lambda: self._repeat(ROUTES_MS, self._refresh_routes))
        return found

    def _learn(self, topic: str, queues: tuple[ProxyQueue, ...]) -> None:
        self._routes[topic] = queues
        for each in {each.endpoints for each in queues}:
            self._server(each)

    def _refresh_routes(self) -> tasks.Task[None]:
        """Request every topic's route again; after a failure keep the known route."""
        topics = list(self._routes)
        rpcs = [calls.query_route(topic, self.access_point) for topic in topics]
        outcomes = yield tasks.All(
            [self.submit(self.access_point, rpc) for rpc in rpcs]
        )
        for topic, outcome in zip(topics, outcomes, strict=True):
            if not isinstance(outcome, RmqError):
                self._learn(topic, outcome)
            elif not self._is_closed:
                logger.warning("route not refreshed topic=%s error=%s", topic, outcome)
        used = {each.endpoints for queues in self._routes.values() for each in queues}
        for endpoints in self._servers.keys() - used - {self.access_point}:
            self._servers.pop(endpoints).close()

    def _repeat(self, interval_ms: int, make: Callable[[], tasks.Part]) -> None:
        """Run a task until `close`, each time `interval_ms` after its previous end."""

        def run() -> None:
            if not self._is_closed:
                tasks.start(make(), self._io).on_done(
                    lambda _: self._io.call_later(interval_ms, run)
                )

        self._io.call_later(interval_ms, run)

    def _leave(self) -> tasks.Task[None]:
        servers = list(self._servers.values())
        goodbye = calls.notify_client_termination(self.group)
        outcomes = yield tasks.All(
            [
                each.channel.submit(goodbye, self.config.timeout_ms)
                for each in servers
                if each.channel.has_answered
            ]
        )
        for outcome in outcomes:
            if isinstance(outcome, RmqError):
                logger.info(
                    "unregister failed client=%s error=%s", self.client_id, outcome
                )
        for each in servers:
            each.close()

    def _send_settings(self) -> None:
        for each in list(self._servers.values()):
            each.send_settings()

    def _refuse_in_thread(self) -> None:
        if self._io.is_current():
            raise UsageError(
                "a callback must not wait for the thread that runs it",
                hint="use submit in callbacks",
            )

    def settings_command(self, endpoints: Endpoints) -> service.TelemetryCommand:
        """The telemetry command with the settings of this client."""
        command = service.TelemetryCommand()
        settings = command.settings
        settings.client_type = self.client_type  # type: ignore[assignment]  # its number
        settings.access_point.CopyFrom(endpoints.to_protobuf())
        settings.request_timeout.FromMilliseconds(self.config.timeout_ms)
        agent = settings.user_agent
        agent.language = pb.Language.PYTHON
        agent.version = VERSION
        agent.platform = platform.system()
        agent.hostname = host_name()
        if self.client_type == PRODUCER:
            settings.publishing.max_body_size = self.settings.max_body_bytes
            settings.publishing.validate_message_type = True
            for topic in self.topics:
                settings.publishing.topics.add().name = topic
            return command
        subscription = settings.subscription
        subscription.group.name = self.group or ""
        subscription.fifo = self._fifo
        subscription.long_polling_timeout.FromMilliseconds(_POLLING_ASKED_MS)
        for topic, wanted in self._subscriptions.items():
            entry = subscription.subscriptions.add()
            entry.topic.name = topic
            entry.expression.type = (
                pb.FilterType.SQL if wanted.is_sql else pb.FilterType.TAG
            )
            entry.expression.expression = wanted.expression
        return command

    def take_settings(self, said: pb.Settings) -> None:
        """Apply the settings that a server sent. Runs in the I/O thread."""
        found = merged(self.settings, said)
        if found != self.settings:
            self.settings = found
            if self._on_settings is not None:
                self._on_settings(found)

    def take_orphaned(
        self, command: service.RecoverOrphanedTransactionCommand, endpoints: Endpoints
    ) -> None:
        """Pass a check of a transaction to `on_orphaned`. Runs in the I/O thread."""
        message = ProxyMessage(command.message, broker_name="", endpoints=endpoints)
        if self._on_orphaned is None:
            logger.warning(
                "check of a transaction ignored msg_id=%s: there is no on_check",
                message.msg_id,
            )
            return
        self._on_orphaned(message, command.transaction_id)

    def take_verify(
        self,
        command: service.VerifyMessageCommand,
        endpoints: Endpoints,
        answer: Callable[[pb.Status], None],
    ) -> None:
        """Pass a message to `on_verify`, and answer. Runs in the I/O thread."""
        if self._on_verify is None:
            answer(pb.Status(code=pb.Code.NOT_IMPLEMENTED))
            return

        def done(is_consumed: bool) -> None:  # a callback's argument
            code = pb.Code.OK if is_consumed else pb.Code.FAILED_TO_CONSUME_MESSAGE
            self.post(lambda: answer(pb.Status(code=code)))

        message = ProxyMessage(command.message, broker_name="", endpoints=endpoints)
        self._on_verify(message, done)


class _IoVia:
    """Makes the calls of tasks in the I/O thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.call = session.submit
        self.call_later = session.call_later

    def submit(self, request: tasks.Request[Any]) -> tasks.Pending[Any]:
        """See tasks.Runner."""
        raise RmqError(f"a proxy client cannot send {request.call.what}")


class CallerVia:
    """Runs one task in the caller's thread: its calls block, its sleeps wait."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timers = Timers()

    def run(self, make: Callable[[CallerVia], tasks.Task[T]]) -> T:
        """Run the task to its end. Raises its error."""
        clock = self._session.clock
        pending: tasks.Pending[T] = tasks.start(make(self), self)
        while not pending.is_done:
            due_ms = self._timers.next_ms()
            if due_ms is None:
                raise RuntimeError(
                    "the task waits for something that no runner provides"
                )
            left_ms = due_ms - clock.monotonic_ms()
            if left_ms > 0:
                clock.wait_ms(threading.Event(), left_ms)
            self._timers.run_due(Now(clock.monotonic_ms(), clock.epoch_ms()))
        return pending.result()

    def call(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """See Via."""
        pending: tasks.Pending[T] = tasks.Pending()
        try:
            pending.succeed(self._session.call_now(endpoints, rpc, timeout_ms))
        except RmqError as error:
            pending.fail(error)
        return pending

    def submit(self, request: tasks.Request[Any]) -> tasks.Pending[Any]:
        """See tasks.Runner."""
        raise RmqError(f"a proxy client cannot send {request.call.what}")

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See tasks.Runner."""
        due_ms = self._session.clock.monotonic_ms() + delay_ms
        self._timers.at(due_ms, lambda _: action())


class _Server:
    """Telemetry and heartbeats of one server. Used only in the I/O thread.

    `opened` ends with the outcome of the first attempt. `is_known` says whether the
    server has answered the settings.
    """

    def __init__(
        self, session: Session, channel: ProxyChannel, rng: random.Random
    ) -> None:
        self.channel = channel
        self.opened: tasks.Pending[None] = tasks.Pending()
        self.is_known = False
        self._session = session
        self._backoff = Backoff(rng)
        self._io = io_thread()
        self._stream: Any = None
        self._task: asyncio.Task[None] | None = None
        #: gRPC allows one write at a time
        self._writing = asyncio.Lock()
        #: the topics in the settings that were sent last
        self._stated: tuple[str, ...] = ()
        self._limit = FloodLimit()
        self._is_closed = False
        self._silent = 0

    def start(self) -> None:
        """Open the stream, and keep it open until `close`."""
        if not self._is_closed:
            self._task = self._io.spawn(self._keep_open())
            self._io.call_later(HEARTBEAT_MS, self._beat)
            self._io.call_later(SETTINGS_MS, self._remind)

    def close(self) -> None:
        """End the stream and the connection."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.cancel()
        if self._task is not None:
            self._task.cancel()
        self.opened.fail(self._closed())
        self.channel.close()

    def state_topics(self) -> tasks.Pending[None]:
        """Send the settings if they have topics that the server does not know yet.

        The Pending ends when gRPC has accepted the message.
        """
        pending: tasks.Pending[None] = tasks.Pending()
        stream = self._stream
        if stream is None or self._stated == self._session.topics:
            pending.succeed(None)
        else:
            command = self._command()
            done = self._io.spawn(self._send_safely(stream, command))
            done.add_done_callback(lambda _: pending.succeed(None))
        return pending

    def _command(self) -> service.TelemetryCommand:
        self._stated = self._session.topics
        return self._session.settings_command(self.channel.endpoints)

    def send_settings(self) -> None:
        """Send the settings again, if the stream is open."""
        if self._stream is not None and self.is_known:
            self._send(self._command())

    def reconnect(self) -> None:
        """Use a new connection, and open the stream on it."""
        self.channel.reconnect()
        if self._stream is not None:
            self._stream.cancel()

    # --- the stream ---

    async def _keep_open(self) -> None:
        address = self.channel.address
        failures = 0
        while not self._is_closed:
            started_ms = self._session.clock.monotonic_ms()
            try:
                await self._talk()
                error: RmqError = self._ended()
            except RmqError as failure:
                error = failure
            except grpc.RpcError as failure:
                timeout_ms = self._session.config.timeout_ms
                error = self.channel.error_of(failure, "telemetry", timeout_ms)
            except asyncio.CancelledError:
                if self._is_closed:
                    return
                error = DisconnectedError(
                    f"the telemetry stream to {address} was replaced", address=address
                )
            except Exception as failure:  # noqa: BLE001  # the client must continue
                error = tasks.unexpected(failure)
            finally:
                if self._stream is not None:
                    self._stream.cancel()
                    self._stream = None
            if self._is_closed:
                return
            was_known, self.is_known = self.is_known, False
            self.opened.fail(error)
            lasted_ms = self._session.clock.monotonic_ms() - started_ms
            if lasted_ms >= _PROVED_MS:
                self._backoff.succeeded()
                failures = 0
            delay_ms = self._backoff.failed()
            # The error of the first stream is raised in `open`, so it is not logged.
            is_news = was_known and not failures
            log = logger.warning if is_news else logger.info
            failures += 1
            log(
                "telemetry lost address=%s; reopening it in %d ms: %s",
                address,
                delay_ms,
                error,
            )
            await asyncio.sleep(delay_ms / 1_000)

    async def _talk(self) -> None:
        """Run one stream, from the settings to its end."""
        timeout_s = self._session.config.timeout_ms / 1_000
        self._stream = stream = await self.channel.telemetry()
        command = self._command()
        # Reading starts before the write: a server that refuses the client ends the
        # stream at once, and its status cannot be read after a failed write.
        reading = asyncio.ensure_future(stream.read())
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    await self._write(stream, command)
                    data = await reading
                except grpc.RpcError as error:
                    # INTERNAL is gRPC's code for a write after the end of the stream.
                    if error.code() is not grpc.StatusCode.INTERNAL:
                        raise
                    data = await _or_eof(reading)
                    if data is grpc.aio.EOF:
                        raise self._ended() from None
        except TimeoutError:
            raise DeadlineError(
                f"telemetry: no settings from {self.channel.address} within"
                f" {self._session.config.timeout_ms} ms",
                address=self.channel.address,
            ) from None
        finally:
            reading.cancel()
        while data is not grpc.aio.EOF:
            self.channel.has_answered = True
            self._take(service.TelemetryCommand.FromString(data))
            data = await stream.read()
        code = await stream.code()
        if code is not grpc.StatusCode.OK:
            raise DisconnectedError(
                f"{self.channel.address} ended the telemetry stream with {code.name}",
                address=self.channel.address,
            )

    def _take(self, command: service.TelemetryCommand) -> None:
        kind = command.WhichOneof("command")
        session, endpoints = self._session, self.channel.endpoints
        if kind is None and command.HasField("status") and command.status.code != OK:
            address = self.channel.address
            raise error_of(command.status, what="telemetry", address=address)
        if kind == "settings":
            self.is_known = True
            session.take_settings(command.settings)
            self.opened.succeed(None)
        elif kind == "recover_orphaned_transaction_command":
            session.take_orphaned(
                command.recover_orphaned_transaction_command, endpoints
            )
        elif not self._limit.takes(now_ms := session.clock.monotonic_ms()):
            if self._limit.is_news(now_ms):
                logger.warning(
                    "too many telemetry commands are ignored address=%s kind=%s",
                    self.channel.address,
                    kind,
                )
        elif kind == "print_thread_stack_trace_command":
            nonce = command.print_thread_stack_trace_command.nonce
            answer = service.TelemetryCommand(status=pb.Status(code=pb.Code.OK))
            answer.thread_stack_trace.nonce = nonce
            answer.thread_stack_trace.thread_stack_trace = thread_dump()
            self._send(answer)
        elif kind == "verify_message_command":
            nonce = command.verify_message_command.nonce
            session.take_verify(
                command.verify_message_command,
                endpoints,
                lambda status: self._answer_verify(nonce, status),
            )
        elif kind == "reconnect_endpoints_command":
            logger.info("asked to reconnect address=%s", self.channel.address)
            self.reconnect()
        else:
            logger.info("telemetry command ignored kind=%s", kind)

    def _answer_verify(self, nonce: str, status: pb.Status) -> None:
        answer = service.TelemetryCommand(status=status)
        answer.verify_message_result.nonce = nonce
        self._send(answer)

    def _send(self, command: service.TelemetryCommand) -> None:
        stream = self._stream
        if stream is not None and not self._is_closed:
            self._io.spawn(self._send_safely(stream, command))

    async def _send_safely(
        self,
        stream: Any,  # noqa: ANN401  # gRPC has no name for its type
        command: service.TelemetryCommand,
    ) -> None:
        # The reader of the stream learns why it ended, and reopens it.
        with suppress(grpc.RpcError, asyncio.CancelledError, asyncio.InvalidStateError):
            await self._write(stream, command)

    async def _write(
        self,
        stream: Any,  # noqa: ANN401  # gRPC has no name for its type
        command: service.TelemetryCommand,
    ) -> None:
        async with self._writing:
            await stream.write(command.SerializeToString())

    # --- heartbeats ---

    def _beat(self) -> None:
        if self._is_closed:
            return
        session = self._session
        rpc = calls.heartbeat(session.client_type, session.group)

        def ended(pending: tasks.Pending[bool]) -> None:
            outcome = pending.outcome()
            if isinstance(outcome, RmqError):
                self._unanswered(outcome)
            else:
                self._silent = 0
                if not outcome:
                    self.send_settings()
            self._io.call_later(HEARTBEAT_MS, self._beat)

        self.channel.submit(rpc, session.config.timeout_ms).on_done(ended)

    def _unanswered(self, error: RmqError) -> None:
        if self._is_closed:
            return
        logger.warning(
            "heartbeat failed address=%s error=%s", self.channel.address, error
        )
        self._silent += isinstance(error, TransportError)
        if self._silent >= _SILENT_MAX:
            self._silent = 0
            self.reconnect()

    def _remind(self) -> None:
        if not self._is_closed:
            self.send_settings()
            self._io.call_later(SETTINGS_MS, self._remind)

    def _ended(self) -> DisconnectedError:
        address = self.channel.address
        return DisconnectedError(
            f"{address} ended the telemetry stream", address=address
        )

    def _closed(self) -> DisconnectedError:
        return DisconnectedError(
            f"the connection to {self.channel.address} was closed",
            address=self.channel.address,
        )


async def _or_eof(reading: asyncio.Future[Any]) -> Any:  # noqa: ANN401  # bytes or EOF
    """The message that was read; EOF when the stream ended without one."""
    try:
        return await reading
    except grpc.RpcError:
        return grpc.aio.EOF
