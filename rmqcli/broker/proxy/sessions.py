"""How clients register and leave: Telemetry, Heartbeat, NotifyClientTermination.

A telemetry stream begins with the client's settings, which the proxy answers with the
server's. Failures of a stream are gRPC statuses; failures of calls are statuses in the
answer's body.

Source: `ClientActivity` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_group, check_topic
from rmqcli.broker.proxy.clients import CONSUMER_TYPES, TelemetryStream
from rmqcli.broker.proxy.lite import LiteSubscriptions, check_bound
from rmqcli.broker.proxy.status import ProxyError, ok
from rmqcli.errors import UsageError
from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.protobuf.definition_pb2 import ClientType, Code, FilterType
from rmqcli.wire.subscription import SQL92, TAG, SubscriptionData, parse_subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.broker.proxy.clients import KnownClient, StreamWriter
    from rmqcli.broker.proxy.transactions import ProxyTransactions
    from rmqcli.wire.protobuf.definition_pb2 import FilterExpression, Settings


class StreamError(Exception):
    """Ends a telemetry stream. With `is_clients`, it is the client's mistake."""

    def __init__(self, message: str, *, is_clients: bool) -> None:
        super().__init__(message)
        self.message = message
        self.is_clients = is_clients


class Sessions(Activity):
    """Serves the three calls, in the proxy's event loop."""

    def __init__(
        self, shared: Shared, transactions: ProxyTransactions, lite: LiteSubscriptions
    ) -> None:
        super().__init__(shared)
        self._transactions = transactions
        self._lite = lite

    async def heartbeat(
        self, caller: Caller, request: service.HeartbeatRequest
    ) -> service.HeartbeatResponse:
        """Heartbeat: the client's type comes from its settings, not the request."""
        settings = await self._need_settings(caller)
        if settings.client_type == ClientType.PRODUCER:
            await self._join_producers(caller, settings)
        elif settings.client_type in CONSUMER_TYPES:
            check_group(request.group.name)
            caller.need_language()
            client = self._clients.alive(caller.client_id)
            self._clients.join(client, request.group.name)
        else:
            raise _unrecognized(ClientType.Name(settings.client_type))
        return service.HeartbeatResponse(status=ok())

    async def notify_client_termination(
        self, caller: Caller, request: service.NotifyClientTerminationRequest
    ) -> service.NotifyClientTerminationResponse:
        """NotifyClientTermination: forget the client."""
        caller.need_language()
        settings = await self._need_settings(caller)
        self._clients.leave(caller.client_id)
        if settings.client_type in CONSUMER_TYPES:
            check_group(request.group.name)
        elif settings.client_type != ClientType.PRODUCER:
            raise _unrecognized(ClientType.Name(settings.client_type))
        return service.NotifyClientTerminationResponse(status=ok())

    async def telemetry(
        self,
        caller: Caller,
        commands: AsyncIterator[service.TelemetryCommand],
        writer: StreamWriter,
    ) -> None:
        """Telemetry: serve one stream until the client ends it. Raises StreamError."""
        stream = TelemetryStream(writer)
        try:
            async for command in commands:
                kind = command.WhichOneof("command")
                if kind == "settings":
                    await self._settings(caller, command.settings, stream)
                elif kind in ("thread_stack_trace", "verify_message_result"):
                    self._clients.answered(getattr(command, kind).nonce, command)
        finally:
            stream.close()
            client = self._clients.find(caller.client_id)
            if client is not None and client.stream is stream:
                client.stream = None
                self._lite.left(client)

    async def _settings(
        self, caller: Caller, settings: Settings, stream: TelemetryStream
    ) -> None:
        try:
            answer = await self._negotiated(caller, settings, stream)
        except ProxyError as error:
            is_clients = Code.BAD_REQUEST <= error.code < Code.INTERNAL_ERROR
            raise _failed(error.message, is_clients=is_clients) from error
        except ValueError as error:
            raise _failed(str(error), is_clients=False) from error
        await stream.write(answer)

    async def _negotiated(
        self, caller: Caller, settings: Settings, stream: TelemetryStream
    ) -> service.TelemetryCommand:
        self._clients.check_size(settings)
        kind = settings.WhichOneof("pub_sub")
        if kind == "publishing":
            for topic in settings.publishing.topics:
                check_topic(topic.name)
            client = await self._join_producers(caller, settings)
        elif kind == "subscription":
            client = await self._join_consumers(caller, settings)
        else:
            raise StreamError(
                "there is no publishing or subscription data in settings",
                is_clients=True,
            )
        client.stream = stream
        self._clients.keep(client, settings)
        return service.TelemetryCommand(
            status=ok(), settings=await self._clients.settings_of(caller.client_id)
        )

    async def _join_producers(self, caller: Caller, settings: Settings) -> KnownClient:
        topics = [topic.name for topic in settings.publishing.topics]
        if topics:
            caller.need_language()
        client = self._clients.alive(caller.client_id)
        for topic in topics:
            self._clients.join_producers(client, topic)
        await self._transactions.subscribe(topics)
        return client

    async def _join_consumers(self, caller: Caller, settings: Settings) -> KnownClient:
        group = settings.subscription.group.name
        check_group(group)
        caller.need_language()
        await self._check_mode(settings, group)
        if settings.client_type not in CONSUMER_TYPES:
            is_known = settings.client_type in ClientType.values()
            kind = ClientType.Name(settings.client_type) if is_known else "UNRECOGNIZED"
            raise ValueError(f"Client type is not consumer, type: {kind}")
        for entry in settings.subscription.subscriptions:
            subscription_of(entry.topic.name, entry.expression)
        client = self._clients.alive(caller.client_id)
        self._clients.join(client, group)
        return client

    async def _check_mode(self, settings: Settings, group: str) -> None:
        """Raise ProxyError if the client's type or topic is not for the group."""
        kind = settings.client_type
        is_lite = kind == ClientType.LITE_PUSH_CONSUMER
        config = await self._routes.group(group)
        is_bound = config is not None and bool(config.attributes.get(LITE_BIND_TOPIC))
        if is_lite != is_bound and kind in CONSUMER_TYPES:
            fault = "regular group cannot use" if is_lite else "lite group must use"
            raise ProxyError(Code.ILLEGAL_CONSUMER_GROUP, f"{fault} LITE mode: {group}")
        if is_lite and settings.subscription.subscriptions:
            check_bound(
                config, group, settings.subscription.subscriptions[0].topic.name
            )

    async def _need_settings(self, caller: Caller) -> Settings:
        settings = await self._clients.settings_of(caller.client_id)
        if settings is None:
            raise _unrecognized("cannot find client settings for this client")
        return settings


def subscription_of(topic: str, expression: FilterExpression) -> SubscriptionData:
    """Return a client's subscription to a topic.

    Raises ProxyError(ILLEGAL_FILTER_EXPRESSION).
    """
    kind = SQL92 if expression.type == FilterType.SQL else TAG
    try:
        return parse_subscription(topic, expression.expression, expression_type=kind)
    except UsageError as error:
        raise ProxyError(Code.ILLEGAL_FILTER_EXPRESSION, error.message) from error


def _unrecognized(message: str) -> ProxyError:
    return ProxyError(Code.UNRECOGNIZED_CLIENT_TYPE, message)


def _failed(message: str, *, is_clients: bool) -> StreamError:
    return StreamError(
        f"process client telemetryCommand failed. {message}", is_clients=is_clients
    )
