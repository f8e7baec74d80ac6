"""Addresses of peers: `host:port` text, and the endpoints that it resolves to.

Parsing is pure. A look-up may block on DNS, so connections do it through `lookups`;
literal IP addresses never need DNS.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: family and the socket module's own address tuple
Endpoint = tuple[int, tuple[str, int] | tuple[str, int, int, int]]

_HOST_LENGTH_MAX = 253  # RFC 1035, and room enough for a literal with a scope
_HINT = "write it as host:port, or [IPv6 address]:port"


@dataclass(slots=True)
class Address:
    """The address of a peer. `host` has no brackets; `text` is the parsed text.

    With an address map, `text` is the advertised address, by which the peer is known,
    and connections are made to `host` and `port`.
    """

    host: str
    port: int
    text: str
    #: the host in `text` if an address map replaced it, else empty
    advertised_host: str = ""

    def __str__(self) -> str:
        if not self.advertised_host:
            return self.text
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.text} (mapped to {host}:{self.port})"

    @property
    def certificate_host(self) -> str:
        """The host name that the peer's certificate must have.

        It is the advertised one: who changes where a connection goes must not change
        whom it trusts.
        """
        return self.advertised_host or self.host


def parse_address(text: str) -> Address:
    """Return the address in `text`: `host:port`, `1.2.3.4:port` or `[v6]:port`.

    Raises ConfigError on anything else, such as a port outside 1..65535 or an IPv6
    address without brackets, whose port looks like one more group.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ConfigError(f"address {text!r} is not host:port", hint=_HINT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not is_literal(host, socket.AF_INET6):
            raise ConfigError(f"address {text!r} has no IPv6 address", hint=_HINT)
    elif ":" in host:
        raise ConfigError(f"address {text!r} has more than one colon", hint=_HINT)
    if not _is_host(host):
        raise ConfigError(f"address {text!r} has no usable host name", hint=_HINT)
    port = int(port_text) if _is_number(port_text) else 0
    if not 0 < port < 65536:
        raise ConfigError(f"port {port_text!r} of {text!r} is not in 1..65535")
    return Address(host, port, text)


def map_address(text: str, address_map: Mapping[str, str]) -> Address:
    """Return the address in `text`, with the place where `address_map` says it is.

    An entry is `host:port` to `host:port`, or `host` to `host` for all its ports; the
    first kind comes first. Raises ConfigError as `parse_address` does.
    """
    parsed = parse_address(text)
    target = address_map.get(text)
    if target is None:
        host, _, port = text.rpartition(":")
        found = address_map.get(host)
        target = None if found is None else f"{found}:{port}"
    if target is None or target == text:
        return parsed
    reached = parse_address(target)
    return Address(reached.host, reached.port, text, parsed.host)


def is_literal(host: str, family: int) -> bool:
    """Whether `host` is an IP address of `family`, not a name."""
    try:
        socket.inet_pton(family, host.partition("%")[0])
    except (OSError, ValueError):
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _is_host(host: str) -> bool:
    # Blanks, controls and the characters of URLs mean that this is not a host.
    return (
        0 < len(host) <= _HOST_LENGTH_MAX
        and host.isprintable()
        and not any(c in " /@[]?#\\,;" for c in host)
    )


def is_any_literal(host: str) -> bool:
    """Whether `host` is an IP address, not a name."""
    return is_literal(host, socket.AF_INET) or is_literal(host, socket.AF_INET6)


def look_up(address: Address) -> list[Endpoint]:
    """Return the endpoints of `address`, at least one. May block on DNS.

    Raises ConnectError when the name is not known.
    """
    host, flags = address.host, 0
    if is_any_literal(host):
        flags = socket.AI_NUMERICHOST
    try:
        # As bytes: a str would load the IDNA codec, which takes longer than a request.
        name = host.encode("ascii" if host.isascii() else "idna")
        found = socket.getaddrinfo(
            name, address.port, type=socket.SOCK_STREAM, flags=flags
        )
    except UnicodeError as error:
        raise unknown(address, "not a host name") from error
    except OSError as error:
        raise unknown(address, (error.strerror or str(error)).lower()) from error
    return [(family, sockaddr) for family, _, _, _, sockaddr in found]  # type: ignore[misc]  # stream sockets have these two forms


def check_listens(address: Address, *, timeout_ms: int) -> None:
    """Connect to `address` and close again. Blocks; raises ConnectError on failure."""
    reason = "no address"
    for _, sockaddr in look_up(address):
        try:
            socket.create_connection(sockaddr[:2], timeout_ms / 1000).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        else:
            return
    raise ConnectError(f"cannot connect to {address}: {reason}", address=address.text)


def unknown(address: Address, reason: str) -> ConnectError:
    """Return the error for a host without a known address."""
    return ConnectError(
        f"cannot connect to {address}: no address for {address.host!r}: {reason}",
        address=address.text,
    )
