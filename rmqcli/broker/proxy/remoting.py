"""The proxy's port for remoting clients, which use it as name server and as brokers.

Routes name the proxy's own address for every broker, and what a client then asks of a
broker is passed on to it; the broker's name is in the request. The proxy itself keeps
the members of groups, of which brokers do not know.

Imitated: which requests are served; the codes and remarks; that members get no
notification when their group changes, so that it rebalances with the next round of each
member; that a request without a broker's name is refused, as clients before 4.9.5 send
it. Not imitated: TLS, gRPC on the same port, and transactions: a half message and its
end (37) are refused. So are 200051 and 200053, which RocketMQ's proxy never answers.

Source: `RemotingProtocolServer` and the classes of `proxy.remoting.activity` in
apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from rmqcli.broker.effects import Peer
from rmqcli.broker.namesrv.topics import route_body
from rmqcli.broker.profiles import profile_of
from rmqcli.broker.proxy.message import kind_of
from rmqcli.broker.proxy.status import ProxyError
from rmqcli.broker.request import (
    BrokerRequest,
    Refusal,
    Reply,
    answer_to,
    no_topic,
    system_error,
)
from rmqcli.broker.requests.connections import consumer_connection
from rmqcli.broker.server.connection import host_port
from rmqcli.broker.server.server import open_listener
from rmqcli.broker.state.clients import ConnectedMember, ConsumerGroup
from rmqcli.broker.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rmqcli.clock import Clock, Now
from rmqcli.errors import RmqError, WireError
from rmqcli.log import get_logger
from rmqcli.wire.bodies.consumer import GetConsumerListByGroupResponseBody
from rmqcli.wire.bodies.heartbeat import HeartbeatData, LockBatchRequestBody
from rmqcli.wire.bodies.route import parse_topic_route
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.frame import FrameBuffer, SerializeType
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
)
from rmqcli.wire.headers.client import UnregisterClientRequestHeader
from rmqcli.wire.headers.namesrv import GetRouteInfoRequestHeader
from rmqcli.wire.headers.pull import PullMessageRequestHeader
from rmqcli.wire.message.properties import parse_properties
from rmqcli.wire.protobuf.definition_pb2 import Code
from rmqcli.wire.version import V4_9_4

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmqcli.broker.proxy.brokers import BrokerLinks
    from rmqcli.broker.proxy.routes import ProxyRoutes

    _Handler: TypeAlias = Callable[
        [BrokerRequest], Awaitable["RemotingCommand | Reply"]
    ]

logger = get_logger(__name__)

_PROFILE: Final = profile_of("5.5.0")
_TIMEOUT_MS: Final = 3_000
#: How much longer than a broker may hold a request the proxy waits for its answer.
_HELD_MORE_MS: Final = 10_000
_MEMBER_EXPIRED_MS: Final = 120_000
#: A connection with more running requests, or more unread bytes, is not read from.
_RUNNING_MAX: Final = 1_000
_UNREAD_BYTES_MAX: Final = 4 * 1024 * 1024
_CONNECTIONS_MAX: Final = 10_000
_FLAG_SUBSCRIPTION: Final = 4  # PullSysFlag
#: AbstractRemotingActivity.PROXY_EXCEPTION_RESPONSE_CODE_MAP; all others become 1.
_CODES: Final = {
    Code.FORBIDDEN: ResponseCode.NO_PERMISSION,
    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: ResponseCode.MESSAGE_ILLEGAL,
    Code.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
}
_TRANSACTION: Final = "TRANSACTION"
_TRANSFER_FLAG: Final = "TRANSFER_FLAG"

_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
#: The requests whose fields have names of one letter.
_SHORT: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
#: RocketMQ's proxy reads a POP as a pull, and so refuses it: it lacks some fields.
_PULLS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
)
_PASSED_ON: Final = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.RECALL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_MAX_OFFSET,
)
_LOCKS: Final = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
#: Fields that every answer of the proxy has.
_OWN_FIELDS: Final = {"MSG_REGION": "", "TRACE_ON": "false"}


class RemotingPort:
    """Serves remoting clients, in the proxy's event loop.

    `start` opens the port and raises ConnectError when that is impossible.
    """

    def __init__(self, links: BrokerLinks, routes: ProxyRoutes, clock: Clock) -> None:
        self.address = ""
        self._links = links
        self._routes = routes
        self._clock = clock
        self._members = _Members()
        self._numbers = itertools.count(1)
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._handlers: dict[int, _Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._member_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._connections_of,
            **dict.fromkeys(_SENDS, self._send),
            **dict.fromkeys(_PULLS, self._pull),
            **dict.fromkeys(_PASSED_ON, self._pass_on),
            **dict.fromkeys(_LOCKS, self._lock),
        }

    async def start(self, host: str, port: int) -> None:
        """Open the port; 0 is any free one."""
        listener = open_listener(host, port)
        self.address = host_port(host, listener.getsockname()[1])
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, next(self._numbers)), sock=listener
        )

    def close(self) -> None:
        """Close the port and its connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    def expire(self) -> None:
        """Forget members without a heartbeat for 120 s."""
        self._members.expire(self._clock.monotonic_ms() - _MEMBER_EXPIRED_MS)

    # --- connections ---

    def opened(self, connection: _Connection) -> bool:
        """Record a connection; False if there are too many."""
        if len(self._connections) >= _CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: _Connection, peer: Peer | None) -> None:
        """Forget a connection and its members."""
        self._connections.discard(connection)
        if peer is not None:
            self._members.closed(peer)

    async def answer(
        self, peer: Peer, command: RemotingCommand
    ) -> RemotingCommand | None:
        """Return the answer to a request; None for one that gets no answer."""
        now = Now(self._clock.monotonic_ms(), self._clock.epoch_ms())
        request = BrokerRequest(peer, command, now)
        handler = self._handlers.get(command.code)
        reply: RemotingCommand | Reply
        try:
            if handler is None:
                reply = Reply(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {command.code} not supported",
                )
            else:
                reply = await handler(request)
        except Refusal as refusal:
            reply = Reply(refusal.code, refusal.remark)
        except ProxyError as error:
            code = _CODES.get(error.code, ResponseCode.SYSTEM_ERROR)
            reply = Reply(code, error.message)
        except RmqError as error:
            reply = Reply(ResponseCode.SYSTEM_ERROR, error.message)
        if command.is_oneway:
            return None
        if isinstance(reply, Reply):
            made = answer_to(request, reply, _PROFILE)
            if made is None:
                return None
            reply = made.command
        reply.ext_fields = {**reply.ext_fields, **_OWN_FIELDS}
        return reply

    # --- answered here ---

    async def _route(self, request: BrokerRequest) -> RemotingCommand | Reply:
        header = request.header(GetRouteInfoRequestHeader)
        found = await self._links.ask(
            self._links.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header
        )
        if found.code != ResponseCode.SUCCESS:
            return found
        route = parse_topic_route(header.topic, bytes(found.body))
        brokers = tuple(
            dataclasses.replace(
                broker, addresses=dict.fromkeys(broker.addresses, self.address)
            )
            for broker in route.brokers
        )
        route = dataclasses.replace(route, brokers=brokers)
        is_strict = request.command.version >= V4_9_4 or bool(
            header.accept_standard_json_only
        )
        return Reply(body=route_body(route, _PROFILE, is_strict=is_strict))

    async def _heartbeat(self, request: BrokerRequest) -> Reply:
        self._members.heartbeat(request, request.body(HeartbeatData))
        return Reply()

    async def _unregister(self, request: BrokerRequest) -> Reply:
        header = request.header(UnregisterClientRequestHeader)
        if header.consumer_group is not None:
            self._members.leave(request.peer, header.consumer_group)
        return Reply()

    async def _check_config(self, _request: BrokerRequest) -> Reply:
        return Reply()

    async def _member_ids(self, request: BrokerRequest) -> Reply:
        name = request.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._members.group(name)
        if group is None:
            raise system_error(f"the consumer group[{name}] has no members")
        ids = [member.client_id for member in group.members]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return Reply(body=encode_body(body))

    async def _connections_of(self, request: BrokerRequest) -> Reply:
        name = request.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._members.group(name)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{name}] not online",
            )
        return Reply(body=encode_body(consumer_connection(group)))

    # --- passed on to a broker ---

    async def _send(self, request: BrokerRequest) -> RemotingCommand | Reply:
        fields = request.command.ext_fields
        is_short = request.command.code in _SHORT
        topic = fields.get("b" if is_short else "topic", "")
        properties = parse_properties(fields.get("i" if is_short else "properties", ""))
        kind = kind_of(properties)
        if kind == _TRANSACTION:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the embedded proxy serves transactions over gRPC only",
            )
        is_checked = not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if is_checked and _TRANSFER_FLAG not in properties:
            await self._routes.check_type(topic, kind)
        return await self._pass_on(request)

    async def _pull(self, request: BrokerRequest) -> RemotingCommand | Reply:
        header = request.header(PullMessageRequestHeader)
        if not header.sys_flag & _FLAG_SUBSCRIPTION:
            header = self._subscribed(header)
            fields = {**request.command.ext_fields, **to_ext_fields(header)}
            request = dataclasses.replace(
                request,
                command=dataclasses.replace(request.command, ext_fields=fields),
            )
        held_ms = max(0, header.suspend_timeout_millis)
        return await self._pass_on(request, timeout_ms=held_ms + _HELD_MORE_MS)

    def _subscribed(self, header: PullMessageRequestHeader) -> PullMessageRequestHeader:
        """Add the subscription from the group's heartbeats. Raises Refusal."""
        group = self._members.group(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
            )
        return dataclasses.replace(
            header,
            sys_flag=header.sys_flag | _FLAG_SUBSCRIPTION,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
        )

    async def _lock(self, request: BrokerRequest) -> RemotingCommand | Reply:
        queues = request.body(LockBatchRequestBody).mq_set
        if not queues:
            # RocketMQ sets no code, so that it is an error's.
            raise system_error("MessageQueue set is empty")
        return await self._pass_to(request, queues[0].broker_name, _TIMEOUT_MS)

    async def _pass_on(
        self, request: BrokerRequest, *, timeout_ms: int = _TIMEOUT_MS
    ) -> RemotingCommand | Reply:
        name = request.command.ext_fields.get(
            "n" if request.command.code in _SHORT else "bname"
        )
        if name is None:
            raise Refusal(
                ResponseCode.VERSION_NOT_SUPPORTED, "Request doesn't have field bname"
            )
        return await self._pass_to(request, name, timeout_ms)

    async def _pass_to(
        self, request: BrokerRequest, broker_name: str, timeout_ms: int
    ) -> RemotingCommand | Reply:
        address = await self._routes.address_of(broker_name)
        if address is None:
            raise no_topic(f"cannot find broker {broker_name}")
        if request.command.is_oneway:
            await self._links.pass_oneway(address, request.command)
            return Reply()
        return await self._links.pass_on(address, request.command, timeout_ms)


class _Members:
    """The members of consumer groups, by connection."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def heartbeat(self, request: BrokerRequest, data: HeartbeatData) -> None:
        command = request.command
        language = LanguageCode.OTHER if command.language is None else command.language
        member = ConnectedMember(
            data.client_id, request.peer, int(language), command.version, request.now
        )
        for consumer in data.consumers:
            group = self._groups.setdefault(
                consumer.group_name, ConsumerGroup(consumer.group_name)
            )
            group.update(member, consumer, is_partial=data.without_sub)

    def leave(self, peer: Peer, name: str) -> None:
        group = self._groups.get(name)
        if group is not None:
            group.by_peer.pop(peer, None)
            if not group.by_peer:
                del self._groups[name]

    def closed(self, peer: Peer) -> None:
        for name in list(self._groups):
            self.leave(peer, name)

    def expire(self, before_ms: int) -> None:
        for group in list(self._groups.values()):
            for member in group.members:
                if member.seen.monotonic_ms < before_ms:
                    self.leave(member.peer, group.name)


class _Connection(asyncio.Protocol):
    """One client's connection. Each request is a task; answers come in any order."""

    def __init__(self, port: RemotingPort, number: int) -> None:
        self._port = port
        self._number = number
        self._peer: Peer | None = None
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._running: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        host, number, *_ = self._transport.get_extra_info("peername")
        self._peer = Peer(self._number, host_port(host, number))
        self._transport.set_write_buffer_limits(high=_UNREAD_BYTES_MAX)
        if not self._port.opened(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            commands = [decode_command(frame) for frame in self._frames.feed(data)]
        except WireError as error:
            logger.debug("connection of the proxy closed: %s", error.message)
            self.close()
            return
        for command in commands:
            if not command.is_response:
                task = asyncio.get_running_loop().create_task(self._serve(command))
                self._running.add(task)
                task.add_done_callback(self._served)
        if self._transport is not None and len(self._running) > _RUNNING_MAX:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.closed(self, self._peer)
        for task in self._running:
            task.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _serve(self, command: RemotingCommand) -> None:
        assert self._peer is not None  # noqa: S101  # set when the connection was made
        answer = await self._port.answer(self._peer, command)
        if answer is None or self._transport is None:
            return
        data = encode_command(answer, SerializeType.JSON, opaque=command.opaque)
        self._transport.write(data)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._resume()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("request of a remoting client failed", exc_info=error)
            self.close()

    def _resume(self) -> None:
        transport = self._transport
        if (
            transport is not None
            and not transport.is_closing()
            and len(self._running) <= _RUNNING_MAX
            and transport.get_write_buffer_size() <= _UNREAD_BYTES_MAX
        ):
            transport.resume_reading()
