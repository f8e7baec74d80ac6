"""A proxy with scripted answers: gRPC on a port of 127.0.0.1, in this process.

It is independent of `rmqcli.proxy` on purpose, and uses only the generated messages. It
is gRPC's threaded server, because a second event loop in the process would take events
away from the one that is tested.
"""

from __future__ import annotations

import queue
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any, Self

import grpc

from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVICE = "apache.rocketmq.v2.MessagingService"
UNARY = (
    "QueryRoute",
    "Heartbeat",
    "SendMessage",
    "QueryAssignment",
    "AckMessage",
    "ForwardMessageToDeadLetterQueue",
    "EndTransaction",
    "NotifyClientTermination",
    "ChangeInvisibleDuration",
    "RecallMessage",
    "SyncLiteSubscription",
)
OK = pb.Status(code=pb.Code.OK, message="OK")


def status(name: str, message: str = "") -> pb.Status:
    """A status by the name of its code."""
    return pb.Status(code=name, message=message)


class ScriptedProxy:
    """A server with one broker, `broker-a`, and four queues for every topic.

    `requests` lists the requests as (method, request, metadata), in order.
    `answers[method]` replaces an answer: a function of the request and gRPC's context,
    whose result is sent; for methods that answer with a stream it is a generator.
    `missing` are topics that it does not know.
    `telemetry` lists the commands that clients sent.
    """

    def __init__(
        self,
        *,
        tls: tuple[bytes, bytes] | None = None,
        clients_from: bytes | None = None,
    ) -> None:
        self._tls = tls
        #: the CA that must have signed the certificate of a client
        self._clients_from = clients_from
        self.requests: list[tuple[str, Any, dict[str, str]]] = []
        self.telemetry: list[service.TelemetryCommand] = []
        self.streams_opened = 0
        self.missing: set[str] = set()
        self.answers: dict[str, Callable[[Any, grpc.ServicerContext], Any]] = {}
        #: makes the answer to a client's settings; None: they are not answered
        self.settings: Callable[[pb.Settings], pb.Settings] | None = _settings
        self._streams: list[queue.Queue[service.TelemetryCommand | None]] = []
        self._lock = threading.Lock()
        self.port = 0
        self._server: grpc.Server | None = None
        self.start()

    @property
    def endpoints(self) -> str:
        """`127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        self._server = grpc.server(
            futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)]
        )
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda request, context, name=name: self._unary(name, request, context),
                request_deserializer=getattr(service, f"{name}Request").FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name in UNARY
        }
        handlers["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
            self._receive,
            request_deserializer=service.ReceiveMessageRequest.FromString,
            response_serializer=service.ReceiveMessageResponse.SerializeToString,
        )
        handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._telemetry,
            request_deserializer=service.TelemetryCommand.FromString,
            response_serializer=service.TelemetryCommand.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            key, chain = self._tls
            credentials = grpc.ssl_server_credentials(
                [(key, chain)],
                self._clients_from,
                require_client_auth=self._clients_from is not None,
            )
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    def stop(self) -> None:
        """End every call and stop listening, as a killed proxy does."""
        if self._server is not None:
            self.end_streams()
            self._server.stop(0).wait()
            self._server = None

    def end_streams(self) -> None:
        """End every telemetry stream."""
        with self._lock:
            streams, self._streams = self._streams, []
        for each in streams:
            each.put(None)

    def push(self, command: service.TelemetryCommand) -> None:
        """Send a command on every telemetry stream."""
        with self._lock:
            for each in self._streams:
                each.put(command)

    def asked(self, method: str) -> list[Any]:
        """The requests of one method, in order."""
        return [request for name, request, _ in list(self.requests) if name == method]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def route(self, topic: str, queues: int = 4) -> service.QueryRouteResponse:
        """Return the default answer to QueryRoute."""
        if topic in self.missing:
            return service.QueryRouteResponse(status=status("TOPIC_NOT_FOUND"))
        answer = service.QueryRouteResponse(status=OK)
        for queue_id in range(queues):
            answer.message_queues.append(self.queue(topic, queue_id))
        return answer

    def queue(self, topic: str, queue_id: int) -> pb.MessageQueue:
        """Return one of a topic's queues."""
        host = pb.Address(host="127.0.0.1", port=self.port)
        endpoints = pb.Endpoints(scheme=pb.AddressScheme.IPv4, addresses=[host])
        return pb.MessageQueue(
            topic=pb.Resource(name=topic),
            id=queue_id,
            permission=pb.Permission.READ_WRITE,
            broker=pb.Broker(name="broker-a", id=0, endpoints=endpoints),
            accept_message_types=[pb.MessageType.NORMAL],
        )

    # --- handlers ---

    def _unary(self, name: str, request: Any, context: grpc.ServicerContext) -> Any:
        self._note(name, request, context)
        script = self.answers.get(name)
        if script is not None:
            return script(request, context)
        if name == "QueryRoute":
            return self.route(request.topic.name)
        answer = getattr(service, f"{name}Response")(status=OK)
        if name == "SendMessage":
            for at, message in enumerate(request.messages):
                system = message.system_properties
                answer.entries.add(
                    status=OK,
                    message_id=system.message_id,
                    transaction_id=f"T-{system.message_id}",
                    offset=at,
                )
        elif name == "AckMessage":
            for entry in request.entries:
                answer.entries.add(
                    status=OK,
                    message_id=entry.message_id,
                    receipt_handle=entry.receipt_handle,
                )
        elif name == "ChangeInvisibleDuration":
            answer.receipt_handle = "new handle"
        elif name == "RecallMessage":
            answer.message_id = "recalled"
        return answer

    def _receive(
        self, request: Any, context: grpc.ServicerContext
    ) -> Iterator[service.ReceiveMessageResponse]:
        self._note("ReceiveMessage", request, context)
        script = self.answers.get("ReceiveMessage")
        if script is not None:
            yield from script(request, context)
            return
        yield service.ReceiveMessageResponse(status=status("MESSAGE_NOT_FOUND"))

    def _telemetry(
        self, commands: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[service.TelemetryCommand]:
        self._note("Telemetry", None, context)
        script = self.answers.get("Telemetry")
        if script is not None:
            yield from script(commands, context)
            return
        outbox: queue.Queue[service.TelemetryCommand | None] = queue.Queue()
        with self._lock:
            self._streams.append(outbox)
            self.streams_opened += 1

        def read() -> None:
            try:
                for command in commands:
                    self.telemetry.append(command)
                    if command.HasField("settings") and self.settings is not None:
                        answer = service.TelemetryCommand(status=OK)
                        answer.settings.CopyFrom(self.settings(command.settings))
                        outbox.put(answer)
            except Exception:  # noqa: BLE001  # however the client left
                pass
            outbox.put(None)

        threading.Thread(target=read, daemon=True).start()
        while (command := outbox.get()) is not None:
            yield command

    def _note(self, name: str, request: Any, context: grpc.ServicerContext) -> None:
        metadata = {
            str(key): str(value) for key, value in context.invocation_metadata()
        }
        self.requests.append((name, request, metadata))


def _settings(asked: pb.Settings) -> pb.Settings:
    """Return the client's settings as a proxy completes them, with short delays."""
    found = pb.Settings()
    found.CopyFrom(asked)
    found.backoff_policy.max_attempts = 3
    backoff = found.backoff_policy.exponential_backoff
    backoff.initial.FromMilliseconds(1)
    backoff.max.FromMilliseconds(5)
    backoff.multiplier = 2.0
    if asked.HasField("publishing"):
        found.publishing.max_body_size = 4 << 20
        found.publishing.validate_message_type = True
    else:
        found.subscription.receive_batch_size = 32
        found.subscription.long_polling_timeout.FromMilliseconds(20_000)
    return found
