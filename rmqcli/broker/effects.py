"""What a core has its caller do with connections: send a command, or close one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of a client. `number` is never used twice by a server."""

    number: int
    address: str  # "ip:port", as the broker sees it


@dataclass(slots=True)
class Send:
    """Send an answer, or a request from the broker, to `peer`.

    With `is_binary`, the header is written in RocketMQ's binary form, otherwise as
    JSON.
    """

    peer: Peer
    command: RemotingCommand
    is_binary: bool = False


@dataclass(slots=True)
class Close:
    """Close the connection, after what was sent before."""

    peer: Peer


Effect: TypeAlias = Send | Close
