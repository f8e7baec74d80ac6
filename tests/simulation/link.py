"""Connections of simulated members, whose commands are lost, delayed and reordered.

`SimRemoting` takes the place of `transport.remoting.RemotingClient`, without sockets:
requests have deadlines, connections end, and peers refuse. Commands travel as objects;
their encoding is tested elsewhere.

On one connection commands arrive in order, unless the network conditions reorder them.
A request fails soon if the server is down, and late if the server is cut off.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqcli.broker.effects import Peer
from rmqcli.errors import ConnectError, DeadlineError, DisconnectedError
from rmqcli.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.errors import TransportError
    from rmqcli.transport.loop import PendingReply
    from tests.simulation.conditions import NetworkConditions
    from tests.simulation.schedule import Schedule
    from tests.simulation.server import SimServer

    Handler = Callable[[str, RemotingCommand], RemotingCommand | None]

_CONNECT_TIMEOUT_MS: Final = 3_000


class Cluster(Protocol):
    """The part of a cluster that connections use."""

    schedule: Schedule
    conditions: NetworkConditions
    servers: dict[str, SimServer]

    def next_peer(self) -> int:
        """Return a number that no connection has had."""


class Link:
    """One connection. `is_open` is the member's view of it."""

    __slots__ = (
        "address",
        "back_ms",
        "is_open",
        "peer",
        "remoting",
        "server",
        "there_ms",
        "waiting",
    )

    def __init__(
        self, remoting: SimRemoting, address: str, server: SimServer, peer: Peer
    ) -> None:
        self.remoting = remoting
        self.address = address
        self.server = server
        self.peer = peer
        self.is_open = True
        #: when the latest command arrives: at the server, and at the member
        self.there_ms = 0
        self.back_ms = 0
        self.waiting: dict[int, PendingReply[Any]] = {}


class SimRemoting:
    """The part of RemotingClient that `api.client.Client` uses, for one member.

    `run(action)` handles what arrives in the member's engine, once that is not frozen.
    """

    def __init__(
        self, cluster: Cluster, number: int, run: Callable[[Callable[[], None]], None]
    ) -> None:
        self.number = number
        self._cluster = cluster
        self._schedule = cluster.schedule
        self._run = run
        self._links: dict[str, Link] = {}
        self._opaque = 0
        self._handler: Handler | None = None
        self._serving: Link | None = None
        self.is_closed = False

    def post(self, reply: PendingReply[Any], command: RemotingCommand) -> None:
        """See RemotingClient. Never calls back before it returns."""
        self._refuse_if_closed(reply.address)
        self._opaque += 1
        reply.opaque = self._opaque
        link = self._link(reply.address)
        if link is None:
            self._not_connected(reply)
            return
        link.waiting[reply.opaque] = reply
        expire = functools.partial(self._expire, link, reply)
        self._schedule.later(reply.timeout_ms, expire)
        self._send(link, command.with_opaque(reply.opaque))

    def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """See RemotingClient."""
        self._refuse_if_closed(address)
        link = self._link(address)
        if link is not None:
            self._opaque += 1
            oneway = command.with_opaque(self._opaque)
            oneway.flag = command.flag | ONEWAY_FLAG
            self._send(link, oneway)

    def set_request_handler(self, handler: Handler | None) -> None:
        """See RemotingClient."""
        self._handler = handler

    def answer_later(self, opaque: int) -> Callable[[RemotingCommand], None]:
        """See RemotingClient."""
        link = self._serving

        def send(answer: RemotingCommand) -> None:
            if link is not None and link.is_open:
                self._answer(link, opaque, answer)

        return send

    def forget(self, addresses: Iterable[str]) -> None:
        """See RemotingClient: connections without pending requests end."""
        for address in addresses:
            link = self._links.get(address)
            if link is not None and not link.waiting:
                self.lose(link, notice_ms=0)

    def close(self) -> None:
        """Close all connections; commands that were sent before still arrive."""
        self.is_closed = True
        for link in self.links():
            self._links.pop(link.address)
            link.is_open = False
            link.waiting.clear()
            at_ms = max(self._schedule.now_ms, link.there_ms)
            self._schedule.at(at_ms, functools.partial(link.server.ended, link))

    def links(self) -> list[Link]:
        """The open connections, sorted by address."""
        return [self._links[address] for address in sorted(self._links)]

    def lose(self, link: Link, *, notice_ms: int | None) -> None:
        """Break a connection; the server notices after `notice_ms` (None: it knows).

        Pending requests fail, unless the member is closed.
        """
        if not link.is_open:
            return
        link.is_open = False
        self._links.pop(link.address, None)
        if notice_ms is not None:
            self._schedule.later(notice_ms, functools.partial(link.server.ended, link))
        waiting, link.waiting = link.waiting, {}
        error = DisconnectedError(
            f"connection to {link.address} was lost", address=link.address
        )
        for reply in waiting.values():
            self._fail_later(reply, error, delay_ms=0)

    def receive(self, link: Link, command: RemotingCommand) -> None:
        """A command from a server arrives at this end."""
        if link.is_open and not self.is_closed:
            self._run(functools.partial(self._take, link, command))

    def _take(self, link: Link, command: RemotingCommand) -> None:
        if not link.is_open:
            return
        if command.is_response:
            reply = link.waiting.pop(command.opaque, None)
            if reply is not None:
                reply.answered(command)
        elif self._handler is not None:
            self._serving = link
            answer = self._handler(link.address, command)
            self._serving = None
            if answer is not None and not command.is_oneway:
                self._answer(link, command.opaque, answer)

    def _answer(self, link: Link, opaque: int, answer: RemotingCommand) -> None:
        numbered = answer.with_opaque(opaque)
        numbered.flag = RESPONSE_FLAG
        self._send(link, numbered)

    def _refuse_if_closed(self, address: str) -> None:
        if self.is_closed:
            raise DisconnectedError(
                f"the client is closed; cannot send to {address}", address=address
            )

    def _link(self, address: str) -> Link | None:
        """Return the connection, made if necessary; None if it cannot be made."""
        link = self._links.get(address)
        if link is None:
            server = self._cluster.servers[address]
            if not server.is_up or self._is_cut(address):
                return None
            number = self._cluster.next_peer()
            peer = Peer(number, f"10.0.0.{self.number % 250}:{number}")
            link = self._links[address] = Link(self, address, server, peer)
            server.begun(link)
        return link

    def _is_cut(self, address: str) -> bool:
        return (self.number, address) in self._cluster.conditions.cut

    def _send(self, link: Link, command: RemotingCommand) -> None:
        conditions, schedule = self._cluster.conditions, self._schedule
        if self._is_cut(link.address) or schedule.chance(conditions.drop_rate):
            return
        at_ms = schedule.now_ms + int(
            schedule.rng.random() * (conditions.delay_ms_max + 1)
        )
        if not schedule.chance(conditions.reorder_rate):
            at_ms = link.there_ms = max(at_ms, link.there_ms)
        schedule.at(at_ms, functools.partial(link.server.receive, link, command))

    def _not_connected(self, reply: PendingReply[Any]) -> None:
        delay_ms = 1 + int(self._schedule.rng.random() * 200)
        if self._is_cut(reply.address):
            delay_ms = min(reply.timeout_ms, _CONNECT_TIMEOUT_MS)
        error = ConnectError(
            f"cannot connect to {reply.address}", address=reply.address
        )
        self._fail_later(reply, error, delay_ms=delay_ms)

    def _fail_later(
        self, reply: PendingReply[Any], error: TransportError, *, delay_ms: int
    ) -> None:
        def fail() -> None:
            if not self.is_closed:
                self._run(lambda: reply.fail(error))

        self._schedule.later(delay_ms, fail)

    def _expire(self, link: Link, reply: PendingReply[Any]) -> None:
        if link.waiting.get(reply.opaque) is not reply or self.is_closed:
            return
        error = DeadlineError(
            f"no answer from {reply.address} in {reply.timeout_ms} ms",
            address=reply.address,
        )

        def fail() -> None:
            if link.waiting.pop(reply.opaque, None) is not None:
                reply.fail(error)

        self._run(fail)
