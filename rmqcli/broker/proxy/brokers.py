"""Remoting connections from the proxy to the cores of its process.

A proxy of RocketMQ connects to brokers and name servers over TCP; here a pair of
sockets replaces the network. So faults, kills and hangs of a broker also affect the
proxy's clients, and the cores stay in their own thread. Use this in the proxy's event
loop.

Source: `MQClientAPIExt` and `ClusterMessageService` in apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from rmqcli.broker.proxy.status import ProxyError, internal_error
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import (
    ONEWAY_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rmqcli.wire.frame import FrameBuffer
from rmqcli.wire.header import Header, to_ext_fields
from rmqcli.wire.protobuf.definition_pb2 import Code
from rmqcli.wire.version import V5_5_0

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.server.server import Server

    #: (the broker's address, its request)
    OnRequest: TypeAlias = Callable[[str, RemotingCommand], None]

logger = get_logger(__name__)

#: MessagingProcessor.DEFAULT_TIMEOUT_MILLS is 2 s; this is longer for busy machines.
TIMEOUT_MS: Final = 3_000
#: The most bytes of requests that a broker, for example one that hangs, has not read.
_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
_OPAQUE_MAX: Final = (1 << 31) - 1


class _Link(asyncio.Protocol):
    """One connection: sends requests, and passes answers and the broker's requests on.

    Answers go to the callers of `ask`, requests of the broker to `on_request`.
    """

    def __init__(self, address: str, on_request: OnRequest) -> None:
        self.address = address
        self.is_lost = False
        self._is_closed = False
        self._on_request = on_request
        self._frames = FrameBuffer()
        self._opaques = itertools.cycle(range(1, _OPAQUE_MAX))
        self._answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._transport: asyncio.Transport | None = None
        #: frames to write once the connection is made
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_closed:
            self._transport.abort()
        for data in self._early:
            self._transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        try:
            commands = [decode_command(frame) for frame in self._frames.feed(data)]
        except RmqError as error:
            # An injected fault; RocketMQ's client closes the connection, too.
            logger.debug("link closed address=%s: %s", self.address, error.message)
            self.close()
            return
        for command in commands:
            if not command.is_response:
                self._on_request(self.address, command)
                continue
            answer = self._answers.pop(command.opaque, None)
            if answer is not None and not answer.done():
                answer.set_result(command)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(
                    internal_error(
                        f"send request to <{self.address}> failed."
                        " RemotingSendRequestException"
                    )
                )

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def send(self, command: RemotingCommand) -> None:
        """Write a request that gets no answer."""
        self._write(command, next(self._opaques))

    async def ask(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        opaque = next(self._opaques)
        answer = asyncio.get_running_loop().create_future()
        self._answers[opaque] = answer
        self._write(command, opaque)
        try:
            return await asyncio.wait_for(answer, timeout_ms / 1000)
        except TimeoutError:
            raise ProxyError(
                Code.PROXY_TIMEOUT,
                f"wait response on the channel <{self.address}> timeout,"
                f" {timeout_ms}(ms)",
            ) from None
        finally:
            self._answers.pop(opaque, None)

    def _write(self, command: RemotingCommand, opaque: int) -> None:
        data = encode_command(command, opaque=opaque)
        transport = self._transport
        if transport is None:
            self._early.append(data)
        elif transport.get_write_buffer_size() > _UNREAD_BYTES_MAX:
            self._answers.pop(opaque, None)
            raise ProxyError(
                Code.TOO_MANY_REQUESTS, f"broker {self.address} is not reading requests"
            )
        else:
            transport.write(data)


@dataclass(eq=False)
class BrokerLinks:
    """Connections to the cores, each made when it is first needed.

    `on_request` is called with the requests that brokers send to the proxy.
    `local_address` is the proxy's address as the cores see it.
    """

    server: Server
    namesrv: str
    local_address: str
    on_request: OnRequest
    links: dict[str, _Link] = field(default_factory=dict)

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        """Send a request to the core at `address`; return its answer of any code.

        Raises ProxyError: PROXY_TIMEOUT, TOO_MANY_REQUESTS when the core does not read
        its requests, or INTERNAL_SERVER_ERROR: "connect to" it failed, so that nothing
        was sent, or "send request to" it failed, so that it may have been handled.
        """
        link = await self._link(address)
        return await link.ask(_command(code, header, body), timeout_ms)

    async def tell(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Send a one-way request. Raises ProxyError as `ask` does."""
        link = await self._link(address)
        command = _command(code, header, body)
        command.flag = ONEWAY_FLAG
        link.send(command)

    async def pass_on(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a client's request as it is. Raises ProxyError as `ask` does."""
        link = await self._link(address)
        return await link.ask(command, timeout_ms)

    async def pass_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a client's one-way request. Raises ProxyError as `ask` does."""
        link = await self._link(address)
        link.send(command)

    async def close(self) -> None:
        """Close all connections; calls that wait for an answer fail."""
        links, self.links = self.links, {}
        for link in links.values():
            link.close()
        await asyncio.sleep(0)  # the event loop ends the connections in its next turn

    async def _link(self, address: str) -> _Link:
        port = next((p for p in self.server.ports if p.address == address), None)
        if port is None:
            raise internal_error(f"{address} does not belong to the proxy's cluster")
        if not port.listeners:
            raise internal_error(
                f"connect to {address} failed. RemotingConnectException"
            )
        link = self.links.get(address)
        if link is not None and not link.is_lost:
            return link
        # Stored at once, so that other callers share it while the connection is made.
        link = self.links[address] = _Link(address, self.on_request)
        sock = self.server.connect(port, self.local_address)
        loop = asyncio.get_running_loop()
        made = link
        await loop.create_connection(lambda: made, sock=sock)
        return link


def _command(code: int, header: Header | None, body: bytes) -> RemotingCommand:
    fields = {} if header is None else to_ext_fields(header)
    return RemotingCommand(
        code=code,
        language=int(LanguageCode.JAVA),
        version=V5_5_0,
        ext_fields=fields,
        body=body,
    )
