"""What a server drives, and where each of them listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.faults import Faults
    from rmqcli.broker.server.connection import Connection
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand


class Core(Protocol):
    """What the server drives: `core.Broker` or `namesrv.NameServer`."""

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Take one command."""

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """A connection is gone."""

    def run_due(self, now: Now) -> list[Effect]:
        """Do what is due."""

    def next_due_ms(self) -> int | None:
        """When that is (monotonic)."""


class Port:
    """A core, where it listens, and how it is treated. Made by `Server.open`."""

    def __init__(self, name: str, host: str, faults: Faults | None) -> None:
        self.name = name
        self.host = host
        self.faults = faults
        #: None while the core is down
        self.core: Core | None = None
        #: the first is the port that is advertised
        self.numbers: list[int] = []
        self.listeners: list[socket.socket] = []
        self.connections: dict[int, Connection] = {}
        #: called once before the answers of a turn go out
        self.flush: Callable[[], None] | None = None
        #: called before other cores and callers see what a turn or a call changed
        self.settle: Callable[[], None] | None = None
        self.is_hung = False
        self.was_used = False

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return f"{self.host}:{self.numbers[0]}"
