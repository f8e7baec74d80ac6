"""A raw client of apache.rocketmq.v2: requests as they are, answers as they come.

It knows the service's methods and the metadata, and nothing of how a client behaves; it
shares only the generated messages with the code under test. For embedded and real
proxies.
"""

from __future__ import annotations

import queue
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

import grpc

from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SERVICE = "apache.rocketmq.v2.MessagingService"
CALL_TIMEOUT_S = 20
_OVER = object()


def resource(name: str) -> d.Resource:
    return d.Resource(name=name)


def code_of(response: Any) -> str:
    """The name of the code in an answer's status."""
    return d.Code.Name(response.status.code)


def ms(target: Any, value_ms: int) -> Any:
    """Set a Duration or Timestamp, and return it."""
    target.FromMilliseconds(value_ms)
    return target


def message(topic: str, body: bytes = b"hello", **system: Any) -> d.Message:
    """A message as a client sends it; `system` are fields of SystemProperties."""
    users = system.pop("user_properties", {})
    due_ms = system.pop("delivery_ms", None)
    properties = d.SystemProperties(
        **{
            "message_id": f"01{uuid.uuid4().hex.upper()}",
            "message_type": d.MessageType.NORMAL,
            "body_encoding": d.Encoding.IDENTITY,
            "born_host": "here",
            **system,
        }
    )
    properties.born_timestamp.FromMilliseconds(int(time.time() * 1000))
    if due_ms is not None:
        properties.delivery_timestamp.FromMilliseconds(due_ms)
    return d.Message(
        topic=resource(topic),
        user_properties=users,
        system_properties=properties,
        body=body,
    )


def consumer_settings(
    group: str, *topics: str, kind: d.ClientType = d.ClientType.SIMPLE_CONSUMER
) -> d.Settings:
    """The settings that a consumer sends first."""
    return d.Settings(
        client_type=kind,
        request_timeout=ms(d.Settings().request_timeout, 3_000),
        subscription=d.Subscription(
            group=resource(group),
            subscriptions=[
                d.SubscriptionEntry(
                    topic=resource(topic),
                    expression=d.FilterExpression(
                        type=d.FilterType.TAG, expression="*"
                    ),
                )
                for topic in topics
            ],
        ),
    )


def producer_settings(*topics: str) -> d.Settings:
    """The settings that a producer sends first."""
    return d.Settings(
        client_type=d.ClientType.PRODUCER,
        publishing=d.Publishing(topics=[resource(topic) for topic in topics]),
    )


class GrpcClient:
    """One client id on one channel. `metadata` replaces or, with None, removes keys."""

    def __init__(
        self,
        endpoints: str,
        *,
        client_id: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
        root_certificate: bytes | None = None,
    ) -> None:
        self.client_id = client_id or f"raw@{uuid.uuid4().hex[:8]}"
        fields = {
            "x-mq-client-id": self.client_id,
            "x-mq-language": "PYTHON",
            "x-mq-client-version": "5.1.2",
            "x-mq-protocol": "v2",
            **(metadata or {}),
        }
        self.metadata: tuple[tuple[str, str | bytes], ...] = tuple(
            (k, v) for k, v in fields.items() if v is not None
        )
        # Without its own pool, channels of one process share a connection.
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
        ]
        if root_certificate is None:
            self.channel = grpc.insecure_channel(endpoints, options)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificate)
            self.channel = grpc.secure_channel(endpoints, credentials, options)
        self._streams: list[Telemetry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self.channel.close()

    def call(
        self, name: str, request: Any, *, timeout_s: float | None = CALL_TIMEOUT_S
    ) -> Any:
        """Make a unary call, and return the answer. Raises grpc.RpcError."""
        method = self._unary(name, request)
        return method(request, timeout=timeout_s, metadata=self.metadata)

    def _unary(self, name: str, request: Any) -> Any:
        return self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(s, f"{name}Response").FromString,
        )

    def start(
        self, name: str, request: Any, *, timeout_s: float | None = CALL_TIMEOUT_S
    ) -> Any:
        """Start a call whose answer is a stream: iterate over it, or cancel it."""
        method = self.channel.unary_stream(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(s, f"{name}Response").FromString,
        )
        return method(request, timeout=timeout_s, metadata=self.metadata)

    def telemetry(self, settings: d.Settings | None = None) -> Telemetry:
        """Open a telemetry stream; with settings, send them and await the answer."""
        stream = Telemetry(self)
        self._streams.append(stream)
        if settings is not None:
            stream.send(s.TelemetryCommand(settings=settings))
            stream.answer = stream.receive()
        return stream

    # --- shorthands ---

    def route(self, topic: str) -> Any:
        return self.call("QueryRoute", s.QueryRouteRequest(topic=resource(topic)))

    def send(self, *messages: d.Message) -> Any:
        return self.call("SendMessage", s.SendMessageRequest(messages=messages))

    def receive(
        self,
        group: str,
        topic: str,
        *,
        batch_size: int = 32,
        invisible_ms: int | None = 30_000,
        polling_ms: int = 5_000,
        timeout_s: float | None = CALL_TIMEOUT_S,
        expression: str = "*",
        sql: bool = False,
        auto_renew: bool = False,
        attempt_id: str | None = None,
        broker_name: str = "broker-a",
    ) -> Received:
        """Call ReceiveMessage, and read the answer to its end."""
        request = s.ReceiveMessageRequest(
            group=resource(group),
            message_queue=d.MessageQueue(
                topic=resource(topic), broker=d.Broker(name=broker_name)
            ),
            filter_expression=d.FilterExpression(
                type=d.FilterType.SQL if sql else d.FilterType.TAG,
                expression=expression,
            ),
            batch_size=batch_size,
            auto_renew=auto_renew,
            attempt_id=attempt_id,
        )
        if invisible_ms is not None:
            request.invisible_duration.FromMilliseconds(invisible_ms)
        request.long_polling_timeout.FromMilliseconds(polling_ms)
        return Received(self.start("ReceiveMessage", request, timeout_s=timeout_s))

    def ack(self, group: str, topic: str, *handles: str) -> Any:
        return self.start_ack(group, topic, *handles).result()

    def start_ack(self, group: str, topic: str, *handles: str) -> Any:
        """Call AckMessage, and return a future of the answer."""
        entries = [
            s.AckMessageEntry(message_id=f"m{n}", receipt_handle=handle)
            for n, handle in enumerate(handles)
        ]
        request = s.AckMessageRequest(
            group=resource(group), topic=resource(topic), entries=entries
        )
        method = self._unary("AckMessage", request)
        return method.future(request, timeout=CALL_TIMEOUT_S, metadata=self.metadata)

    def change(self, group: str, topic: str, handle: str, invisible_ms: int) -> Any:
        request = s.ChangeInvisibleDurationRequest(
            group=resource(group), topic=resource(topic), receipt_handle=handle
        )
        request.invisible_duration.FromMilliseconds(invisible_ms)
        return self.call("ChangeInvisibleDuration", request)

    def forward(self, group: str, topic: str, handle: str, message_id: str) -> Any:
        return self.call(
            "ForwardMessageToDeadLetterQueue",
            s.ForwardMessageToDeadLetterQueueRequest(
                group=resource(group),
                topic=resource(topic),
                receipt_handle=handle,
                message_id=message_id,
            ),
        )

    def heartbeat(self, group: str | None = None) -> Any:
        request = s.HeartbeatRequest(client_type=d.ClientType.SIMPLE_CONSUMER)
        if group is not None:
            request.group.CopyFrom(resource(group))
        return self.call("Heartbeat", request)

    def end_transaction(self, topic: str, entry: Any, resolution: Any) -> Any:
        return self.call(
            "EndTransaction",
            s.EndTransactionRequest(
                topic=resource(topic),
                message_id=entry.message_id,
                transaction_id=entry.transaction_id,
                resolution=resolution,
                source=d.TransactionSource.SOURCE_CLIENT,
            ),
        )


class Received:
    """The parts of one answer to ReceiveMessage, in their order."""

    def __init__(self, parts: Iterator[Any]) -> None:
        self.kinds: list[str] = []
        self.messages: list[Any] = []
        self.code = ""
        self.text = ""
        for part in parts:
            kind = part.WhichOneof("content")
            self.kinds.append(kind)
            if kind == "status":
                self.code = code_of(part)
                self.text = part.status.message
            elif kind == "message":
                self.messages.append(part.message)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    @property
    def handles(self) -> list[str]:
        return [each.system_properties.receipt_handle for each in self.messages]


class Telemetry:
    """One telemetry stream."""

    def __init__(self, client: GrpcClient) -> None:
        #: the first answer, if the stream was opened with settings
        self.answer: Any = None
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        method = client.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=s.TelemetryCommand.SerializeToString,
            response_deserializer=s.TelemetryCommand.FromString,
        )
        self.stream = method(iter(self._commands.get, _OVER), metadata=client.metadata)

    def send(self, command: Any) -> None:
        self._commands.put(command)

    def receive(self) -> Any:
        """Return the next command. Raises StopIteration at the end, or RpcError."""
        return next(self.stream)

    def receive_until(self, claim: Callable[[Any], bool]) -> Any:
        """Return the next command for which `claim` is true."""
        return next(command for command in self.stream if claim(command))

    def end(self) -> None:
        """End the client's side of the stream."""
        self._commands.put(_OVER)

    def close(self) -> None:
        self.end()
        self.stream.cancel()
