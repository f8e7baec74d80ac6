"""The embedded proxy: a gRPC server in its own thread, in front of the cores.

The proxy is the only part of the embedded cluster that uses asyncio: grpc.aio is the
only gRPC server for Python that holds thousands of long polls and telemetry streams
without a thread for each.

Not imitated: channelz, PROXY protocol, TLS and plaintext on one port. A request may
have 16 MiB instead of 130 MiB, which no broker would store.

Source: `GrpcServerBuilder` and `GrpcMessagingApplication` in apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from rmqcli.broker.proxy.activity import Shared
from rmqcli.broker.proxy.brokers import BrokerLinks
from rmqcli.broker.proxy.caller import Caller, caller_of, check_signature
from rmqcli.broker.proxy.clients import Clients
from rmqcli.broker.proxy.handles import Handles
from rmqcli.broker.proxy.lite import LiteSubscriptions
from rmqcli.broker.proxy.message import made_up_message
from rmqcli.broker.proxy.receiving import Receiving
from rmqcli.broker.proxy.reflection import METHOD as REFLECTION_METHOD
from rmqcli.broker.proxy.reflection import SERVICE as REFLECTION_SERVICE
from rmqcli.broker.proxy.reflection import Reflection
from rmqcli.broker.proxy.remoting import RemotingPort
from rmqcli.broker.proxy.rights import Rights
from rmqcli.broker.proxy.routes import ProxyRoutes
from rmqcli.broker.proxy.sending import Sending
from rmqcli.broker.proxy.sessions import Sessions, StreamError
from rmqcli.broker.proxy.status import ProxyError, status_of
from rmqcli.broker.proxy.transactions import ProxyTransactions
from rmqcli.broker.server.connection import host_port
from rmqcli.errors import ConfigError, ConnectError, RmqError, UsageError
from rmqcli.log import get_logger
from rmqcli.process.grpc import is_of_another_loop, use_grpc
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.protobuf.definition_pb2 import Address, AddressScheme, Code, Endpoints
from rmqcli.wire.protobuf.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    from rmqcli.broker.proxy.options import ProxyOptions
    from rmqcli.broker.server.server import Server
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Unary: TypeAlias = Callable[[Caller, Any], Awaitable[Message]]
    Streaming: TypeAlias = Callable[[Caller, Any, Any], Awaitable[None]]

T = TypeVar("T")

logger = get_logger(__name__)

SERVICE: Final = "apache.rocketmq.v2.MessagingService"

_REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
_CALLS_MAX: Final = 20_000
_UNSERVED_S_MAX: Final = 300
_IDLE_MS_MAX: Final = 120_000  # grpcClientIdleTimeMills
_PING_MS_MIN: Final = 10_000
#: How often clients are expired and messages renewed: renewSchedulePeriodMillis.
_TICK_MS: Final = 5_000
_START_TIMEOUT_S: Final = 30
_CALL_TIMEOUT_S: Final = 30
_STOP_S: Final = 0.2

_SERVER_OPTIONS: Final = (
    # Two servers on one port would share its connections.
    ("grpc.so_reuseport", 0),
    # By default, gRPC cancels calls at random while more than 1,000 wait for the event
    # loop, and calls that wait for 30 s. On a busy machine, the streams of one client
    # are enough for that.
    ("grpc.server.max_pending_requests", _CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _CALLS_MAX),
    ("grpc.server_max_unrequested_time_in_server", _UNSERVED_S_MAX),
    ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_connection_idle_ms", _IDLE_MS_MAX),
    # Clients may ping as often as they like; RocketMQ's proxy closes a connection with
    # more than one ping in 5 min.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_MS_MIN),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class Proxy:
    """A running proxy: the constructor starts it. Close it before the cluster.

    Raises ConnectError when the port is taken, ConfigError for a certificate that
    cannot be used, and UsageError in a forked child in which gRPC does not work.
    Methods may be called from any thread except the proxy's own.
    """

    def __init__(
        self, options: ProxyOptions, *, host: str, server: Server, namesrv: str
    ) -> None:
        self.options = options
        self.host = host
        self.port = 0
        self._server = server
        self._namesrv = namesrv
        use_grpc()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_loop_failed)
        self._over = asyncio.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._activities: _Activities | None = None
        self._is_ticking = False
        #: whether another tick came while the work of the last one still ran
        self._is_due_again = False
        self._thread = threading.Thread(
            target=self._run, name="rmq-broker-grpc", daemon=True
        )
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            self._failure = RmqError(
                f"the proxy did not start within {_START_TIMEOUT_S} s"
            )
        if self._failure is not None:
            self._thread.join(_STOP_S)
            raise self._failure
        server.call(self._start_ticking)

    @property
    def address(self) -> str:
        """`host:port` at which clients reach the proxy."""
        return host_port(self.host, self.port)

    @property
    def remoting_address(self) -> str:
        """`host:port` that remoting clients use as name server.

        Raises UsageError for a proxy without such a port.
        """
        activities = self._activities
        if activities is None or not activities.remoting.address:
            raise UsageError(
                "the proxy has no remoting port",
                hint="start it with ProxyOptions(remoting_port=0)",
            )
        return activities.remoting.address

    def close(self) -> None:
        """Stop the server; running calls are cancelled. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_CALL_TIMEOUT_S)
            if self._thread.is_alive():
                logger.error("thread did not stop thread=rmq-broker-grpc")

    # --- requests to clients ---

    def thread_stack_trace(self, client_id: str) -> str:
        """Return the stack traces of a client's threads, as its library reports them.

        Raises RmqError when the client has no telemetry stream, or does not answer
        within 5 s.
        """
        answer = self._call(lambda all_: all_.clients.stack_trace(client_id))
        return answer.thread_stack_trace.thread_stack_trace

    def verify_message(
        self, client_id: str, topic: str, body: bytes, *, tag: str | None = None
    ) -> str:
        """Have a consumer consume a message for a test; return its status's name.

        `OK` means success, `FAILED_TO_CONSUME_MESSAGE` failure. Raises RmqError as
        `thread_stack_trace` does.
        """
        message = made_up_message(topic, body, tag, self._server.clock.epoch_ms())
        answer = self._call(lambda all_: all_.clients.verify(client_id, message))
        return Code.Name(answer.status.code)

    def client_ids(self) -> list[str]:
        """Return the ids of all known clients, sorted."""

        async def ids(activities: _Activities) -> list[str]:
            return activities.clients.ids()

        return self._call(ids)

    def _call(self, ask: Callable[[_Activities], Coroutine[Any, Any, T]]) -> T:
        activities = self._activities
        if activities is None or not self._thread.is_alive():
            raise RmqError("the proxy is closed")
        future = asyncio.run_coroutine_threadsafe(ask(activities), self._loop)
        try:
            return future.result(_CALL_TIMEOUT_S)
        except ProxyError as error:
            raise RmqError(error.message) from error

    # --- the thread ---

    def _run(self) -> None:
        try:
            # At the end, this cancels remaining tasks and closes the loop.
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # raised by the constructor
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        options = self.options
        server = grpc.aio.server(
            options=_SERVER_OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX
        )
        self.port = _listen(server, options, self.host)
        links, producers_links = self._links(), self._links()
        activities = self._activities = _Activities(
            links, producers_links, self._server, _endpoints(self.host, self.port)
        )
        server.add_generic_rpc_handlers(
            (_handlers(activities, options), _reflection_handler())
        )
        if options.remoting_port is not None:
            await activities.remoting.start(self.host, options.remoting_port)
        await server.start()
        self._started.set()
        try:
            await self._over.wait()
        finally:
            activities.remoting.close()
            await server.stop(_STOP_S)
            await _cancel_all_others()
            await links.close()
            await producers_links.close()

    def _links(self) -> BrokerLinks:
        own = _as_ip(self.host, self.port)
        return BrokerLinks(self._server, self._namesrv, own, self._asked)

    def _asked(self, address: str, command: RemotingCommand) -> None:
        """Handle a broker's request to the proxy: what clients must be told of."""
        activities = self._activities
        if activities is None:
            return
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            activities.transactions.checked(address, command)
        elif command.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            activities.lite.unsubscribed(command)

    def _start_ticking(self) -> None:
        now = self._server.now()
        self._server.timers.every(_TICK_MS, now, self._tick)

    def _tick(self, _now: Now) -> None:
        """Start periodic work in the proxy's thread.

        Called in the I/O thread, by the cluster's clock, which a test may move.
        """
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._run_due)

    def _run_due(self) -> None:
        activities = self._activities
        if activities is None:
            return
        if self._is_ticking:
            self._is_due_again = True
            return
        self._is_ticking, self._is_due_again = True, False
        task = self._loop.create_task(activities.run_due())
        task.add_done_callback(self._ticked)

    def _ticked(self, task: asyncio.Task[None]) -> None:
        self._is_ticking = False
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("periodic task of the proxy failed", exc_info=error)
        if self._is_due_again:
            self._run_due()


class _Activities:
    """The objects that serve the calls.

    Producers of transactions are registered through `producers_links`, because a broker
    closes the connection of a producer that is no longer named in heartbeats.
    """

    def __init__(
        self,
        links: BrokerLinks,
        producers_links: BrokerLinks,
        server: Server,
        own: Endpoints,
    ) -> None:
        clock = server.clock
        self.routes = ProxyRoutes(links, clock, own)
        self.clients = Clients(self.routes, clock)
        shared = Shared(links, self.routes, self.clients, clock)
        self.transactions = ProxyTransactions(shared, producers_links)
        self.lite = LiteSubscriptions(shared)
        self.clients.on_gone.append(self.lite.left)
        self.sessions = Sessions(shared, self.transactions, self.lite)
        self.sending = Sending(shared, self.transactions)
        self.handles = Handles(shared)
        self.receiving = Receiving(shared, self.handles)
        self.remoting = RemotingPort(links, self.routes, clock)

    async def run_due(self) -> None:
        self.clients.expire()
        self.remoting.expire()
        await self.handles.run_due()
        await self.transactions.run_due()


def _handlers(all_: _Activities, options: ProxyOptions) -> grpc.GenericRpcHandler:
    """Return the methods of the service; gRPC answers UNIMPLEMENTED to others."""
    access = _Access(options)
    unary: dict[str, Unary] = {
        "QueryRoute": all_.routes.query_route,
        "QueryAssignment": all_.routes.query_assignment,
        "Heartbeat": all_.sessions.heartbeat,
        "NotifyClientTermination": all_.sessions.notify_client_termination,
        "SendMessage": all_.sending.send_message,
        "RecallMessage": all_.sending.recall_message,
        "SyncLiteSubscription": all_.lite.sync_lite_subscription,
        "EndTransaction": all_.transactions.end_transaction,
        "AckMessage": all_.handles.ack_message,
        "ChangeInvisibleDuration": all_.handles.change_invisible_duration,
        "ForwardMessageToDeadLetterQueue": (
            all_.handles.forward_message_to_dead_letter_queue
        ),
    }
    table: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Telemetry": grpc.stream_stream_rpc_method_handler(
            _telemetry(all_.sessions, access),
            response_serializer=service.TelemetryCommand.SerializeToString,
        )
    }
    for name, call in unary.items():
        request, response = _classes(name)
        table[name] = grpc.unary_unary_rpc_method_handler(
            _unary(call, request, response, access),
            response_serializer=response.SerializeToString,
        )
    request, response = _classes("ReceiveMessage")
    table["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
        _stream(all_.receiving.receive_message, request, response, access),
        response_serializer=response.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, table)


def _reflection_handler() -> grpc.GenericRpcHandler:
    """Return the reflection service, which needs no account."""
    reflection = Reflection()

    async def serve(parts: AsyncIterator[bytes], context: Context) -> None:
        try:
            async for part in parts:
                request = ServerReflectionRequest.FromString(part)
                await context.write(reflection.answer(request))
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))

    method: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        serve, response_serializer=ServerReflectionResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler(
        REFLECTION_SERVICE, {REFLECTION_METHOD: method}
    )


def _classes(name: str) -> tuple[type[Message], type[Message]]:
    """Return the classes of a method's request and response."""
    request: type[Message] = getattr(service, f"{name}Request")
    response: type[Message] = getattr(service, f"{name}Response")
    return request, response


class _Access:
    """Checks accounts and their rights. Immutable."""

    def __init__(self, options: ProxyOptions) -> None:
        self._accounts = options.accounts
        self._rights = None if options.rights is None else Rights(options.rights)

    def caller(self, context: Context, request: Message | None = None) -> Caller:
        """Return the caller of a call that is allowed. Raises ProxyError.

        Without `request`, rights are not checked.
        """
        metadata = tuple(context.invocation_metadata() or ())
        account = check_signature(metadata, self._accounts)
        caller = caller_of(
            metadata, peer=context.peer(), left_s=context.time_remaining()
        )
        if self._rights is not None and account is not None and request is not None:
            self._rights.check(request, account=account, address=caller.address)
        caller.need_client_id()
        return caller


async def _cancel_all_others() -> None:
    """Cancel all other tasks (calls, renewals ...), and wait until they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _parsed(cls: type[Message], data: bytes, context: Context) -> Message:
    """Parse a request. Bytes that are not a request end the call with INTERNAL.

    Requests are parsed here, because grpcio would log the failure of a deserializer.
    """
    try:
        return cls.FromString(data)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INTERNAL, str(error))


def _unary(
    call: Unary,
    request: type[Message],
    response: type[Message],
    access: _Access,
) -> Callable[[bytes, Context], Awaitable[Message]]:
    async def answer(data: bytes, context: Context) -> Message:
        asked = await _parsed(request, data, context)
        try:
            return await call(access.caller(context, asked), asked)
        except Exception as error:  # noqa: BLE001  # becomes the answer's status
            return response(status=status_of(error))

    return answer


def _stream(
    call: Streaming,
    request: type[Message],
    response: type[Message],
    access: _Access,
) -> Callable[[bytes, Context], Awaitable[None]]:
    async def answer(data: bytes, context: Context) -> None:
        asked = await _parsed(request, data, context)
        try:
            caller = access.caller(context, asked)
        except ProxyError as error:
            await context.write(response(status=status_of(error)))
            return
        await call(caller, asked, context)

    return answer


def _telemetry(
    sessions: Sessions, access: _Access
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    async def serve(parts: AsyncIterator[bytes], context: Context) -> None:
        try:
            caller = access.caller(context)
            commands = _commands(parts, context, access)
            await sessions.telemetry(caller, commands, context)
        except ProxyError as error:
            await context.write(service.TelemetryCommand(status=status_of(error)))
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            code = grpc.StatusCode.INTERNAL
            if error.is_clients:
                code = grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, error.message)

    return serve


async def _commands(
    parts: AsyncIterator[bytes], context: Context, access: _Access
) -> AsyncIterator[service.TelemetryCommand]:
    """Yield the commands. Raises ProxyError at one that the caller may not send."""
    async for part in parts:
        command = service.TelemetryCommand.FromString(part)
        access.caller(context, command)
        yield command


def _listen(server: grpc.aio.Server, options: ProxyOptions, host: str) -> int:
    """Open the port; return its number. Raises ConnectError or ConfigError."""
    address = host_port(host, options.port)
    credentials = None
    if options.tls_cert is not None and options.tls_key is not None:
        pair = (_read(options.tls_key), _read(options.tls_cert))
        credentials = grpc.ssl_server_credentials([pair])
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        if credentials is not None:
            raise ConfigError(
                f"the proxy cannot serve TLS at {address} with the certificate "
                f"{options.tls_cert}",
                hint="check that the port is free and that the key matches the"
                " certificate",
            ) from error
        raise ConnectError(
            f"cannot listen on {address}: the port is taken",
            address=address,
            hint="stop the process that listens there, or choose another port for the"
            " proxy",
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read {path}: {reason}") from error


def _endpoints(host: str, port: int) -> Endpoints:
    scheme = AddressScheme.IPv6 if ":" in host else AddressScheme.IPv4
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])


def _as_ip(host: str, port: int) -> str:
    """Return the proxy's address as cores see it; brokers store it as a producer's."""
    is_ip = ":" in host or host.replace(".", "").isdigit()
    return host_port(host if is_ip else "127.0.0.1", port)


def _loop_failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not is_of_another_loop(context):
        logger.error(
            "error in the event loop of the proxy: %s",
            context.get("message"),
            exc_info=context.get("exception"),
        )
