"""One client of a RocketMQ proxy: its identity, its settings, and its connections.

The producer and the consumers are built on it and use:

| | |
|---|---|
| `Session(config, client_type=..., ...)` | creates a client; opens no connection |
| `open(topics)` | gets routes and opens telemetry, which a receive needs |
| `invoke(endpoints, rpc)` | makes a call of `rpc` in the caller's thread |
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

Source: ClientImpl in apache/rocketmq-clients.
"""

from __future__ import annotations

import logging
import os
import platform
import random
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli import tasks
from rmqcli.client_id import new_proxy_client_id
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import (
    BodyError,
    ConnectError,
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
from rmqcli.proxy.route import find_route
from rmqcli.proxy.settings import (
    CONSUMER_DEFAULTS,
    PRODUCER_DEFAULTS,
    ServerSettings,
    merged,
)
from rmqcli.proxy.telemetry import Telemetry
from rmqcli.proxy.via import CallerVia, IoVia
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.rpc import ProxyQueue, Received, ReceiveRpc, Rpc
    from rmqcli.proxy.via import Via
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")

logger = get_logger(__name__)

PRODUCER: Final = int(pb.ClientType.PRODUCER)
PUSH_CONSUMER: Final = int(pb.ClientType.PUSH_CONSUMER)
SIMPLE_CONSUMER: Final = int(pb.ClientType.SIMPLE_CONSUMER)

#: The most servers of one client; a route with more is a mistake.
SERVERS_MAX: Final = 512
ROUTES_MS: Final = 30_000
#: Extra time after unregistering, for actions that its end starts.
_AFTER_GOODBYE_MS: Final = 1_000
_POLLING_ASKED_MS: Final = 20_000
#: How long the end of receives waits for messages that are on their way.
_ON_ITS_WAY_MS: Final = 200


class Session:
    """See the module. Methods that do not say otherwise may be called from any thread.

    `group` and `subscriptions` (by topic) are for consumers. `on_orphaned` is called
    with a half message whose transaction is undecided for the broker, and the
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
        subscriptions: Mapping[str, SubscriptionData] | None = None,
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
        #: by topic; replaced as a whole
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
        self._io = io = io_thread()
        #: those of the I/O thread, from which alone `call_later` may be called
        self.run, self.post, self.call_later = io.run, io.post, io.call_later
        self.in_io_thread = io.is_current
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: servers are added under _lock by any thread, and removed in the I/O thread
        self._servers: dict[Endpoints, Telemetry] = {}
        #: those of servers that have left the routes, while receives are in flight
        self._retired: list[ProxyChannel] = []
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

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; from then on it sends nothing but its farewell."""
        return self._is_closed

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

    def submit(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """Make a call. May only be called from the I/O thread."""
        try:
            channel = self._server(endpoints).channel
        except RmqError as error:
            return tasks.failed(error)
        return channel.submit(rpc, timeout_ms or self.config.timeout_ms)

    def receive(
        self, endpoints: Endpoints, rpc: ReceiveRpc, timeout_ms: int | None = None
    ) -> tasks.Pending[Received]:
        """Receive messages. May only be called from the I/O thread."""
        try:
            channel = self._server(endpoints).channel
        except RmqError as error:
            return tasks.failed(error)
        return channel.receive(rpc, timeout_ms)

    def level_of(self, endpoints: Endpoints, error: RmqError) -> int:
        """The level at which to log that a call failed. Runs in the I/O thread.

        WARNING, or INFO where the server does not answer: that is logged once.
        """
        server = self._servers.get(endpoints)
        if server is None or not isinstance(error, TransportError):
            return logging.WARNING
        if isinstance(error, (ConnectError, DisconnectedError)):
            server.lose(error)
        return logging.INFO if server.is_lost else logging.WARNING

    def end_receives(self) -> tasks.Task[None]:
        """Begin no receive from now on, and wait until those in flight have ended.

        Runs in the I/O thread, before a client gives messages back, so that its own
        receives are not given them again.

        A message that a proxy sends before it learns of a cancellation is lost with the
        call, and hidden until its invisible time is over. So a receive is cancelled
        only when no answer has come for a while: then it probably waits for messages.
        Java waits until it ends by itself, which takes up to 20 s.
        """
        channels = [each.channel for each in self._servers.values()] + self._retired
        receives = [pending for each in channels for pending in each.stop_receives()]
        ended = tasks.All(receives)
        yield tasks.All([tasks.Within(ended, _ON_ITS_WAY_MS)])
        for each in channels:
            each.cancel_receives()
        yield ended

    # --- where things run ---

    @property
    def via(self) -> Via:
        """The Via of tasks that run in the I/O thread."""
        return IoVia(self.submit, self.call_later)

    def in_caller(self, make: Callable[[Via], tasks.Task[T]]) -> T:
        """Run the task that `make` returns in the caller's thread, to its end."""
        self._refuse_in_thread()
        return CallerVia(self.call_now, self.clock).run(make)

    # --- topics ---

    def route(self, topic: str, via: Via) -> tasks.Task[tuple[ProxyQueue, ...]]:
        """The queues of a topic, from the cache if possible.

        Raises as `find_route` does; a proxy creates no topics.
        """
        known = self._routes.get(topic)
        if known is not None:
            return known
        found = yield from find_route(topic, self.access_point, via)
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

    def subscribe(self, subscriptions: Mapping[str, SubscriptionData]) -> None:
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

    def _server(self, endpoints: Endpoints) -> Telemetry:
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
            found = self._servers[endpoints] = Telemetry(self, channel, self._rng)
        self.post(found.start)
        if not self._has_timers:
            self._has_timers = True
            self.post(self._keep_routes)
        return found

    def _keep_routes(self) -> None:
        tasks.repeat(
            lambda: None if self._is_closed else self._refresh_routes(),
            self._io,
            interval_ms=ROUTES_MS,
        )

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
                level = self.level_of(self.access_point, outcome)
                logger.log(
                    level, "route not refreshed topic=%s error=%s", topic, outcome
                )
        used = {each.endpoints for queues in self._routes.values() for each in queues}
        self._retired = [each for each in self._retired if each.is_receiving]
        for endpoints in self._servers.keys() - used - {self.access_point}:
            # Messages that it has sent, and is sending, are still for this client.
            server = self._servers.pop(endpoints)
            server.retire()
            self._retired.append(server.channel)

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
            entry.expression.CopyFrom(calls.filter_of(wanted))
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
