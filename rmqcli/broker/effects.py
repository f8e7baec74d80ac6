"""What a core wants done with connections: it never does it itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of a client. `number` is never used twice by a server."""

    number: int
    address: str  # "ip:port", as the broker sees it


@dataclass(slots=True)
class Send:
    """Send an answer, or a request of the broker's own, to `peer`.

    `is_binary`: in RocketMQ's binary header form; otherwise JSON.
    """

    peer: Peer
    command: RemotingCommand
    is_binary: bool = False


@dataclass(slots=True)
class Close:
    """Close the connection, after what was sent before."""

    peer: Peer


Effect: TypeAlias = Send | Close
