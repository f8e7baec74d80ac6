"""The endpoints of a proxy: one or several addresses of the same service.

Source: Endpoints in apache/rocketmq-clients, `Endpoints` and `Address` in
definition.proto.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError, ConfigError, UsageError
from rmqcli.transport.address import is_literal, parse_address
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The most addresses of one proxy; a server that states more is mistaken.
ADDRESSES_MAX: Final = 64

_SCHEMES: Final = {
    int(pb.AddressScheme.IPv4): "ipv4",
    int(pb.AddressScheme.IPv6): "ipv6",
    int(pb.AddressScheme.DOMAIN_NAME): "dns",
}
_NUMBERS: Final = {name: number for number, name in _SCHEMES.items()}
_FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of one kind: `scheme` is ipv4, ipv6 or dns. Hashable, never empty."""

    scheme: str
    addresses: tuple[tuple[str, int], ...]

    @property
    def host(self) -> str:
        """The first host, for which the certificate must be valid."""
        return self.addresses[0][0]

    @property
    def target(self) -> str:
        """The target for gRPC, which can use only the first of several host names."""
        if self.scheme == "dns":
            return f"dns:///{_joined(*self.addresses[0])}"
        return f"{self.scheme}:{self}".replace(";", ",")

    def __str__(self) -> str:
        return ";".join(_joined(host, port) for host, port in self.addresses)

    def to_protobuf(self) -> pb.Endpoints:
        """The protobuf message of these endpoints."""
        return pb.Endpoints(
            scheme=_NUMBERS[self.scheme],  # type: ignore[arg-type]  # its number
            addresses=[
                pb.Address(host=host, port=port) for host, port in self.addresses
            ],
        )


def parse_endpoints(texts: Sequence[str]) -> Endpoints:
    """Parse texts of the form `host:port`: one host name, or IP addresses of one kind.

    Raises ConfigError for anything else.
    """
    addresses, schemes = [], []
    for text in texts:
        try:
            address = parse_address(text)
        except UsageError as error:
            raise ConfigError(f"endpoints: {error.message}", hint=error.hint) from error
        addresses.append((address.host, address.port))
        schemes.append(_scheme_of(address.host))
    if not addresses:
        raise ConfigError("endpoints name no proxy")
    if len(set(schemes)) > 1 or (schemes[0] == "dns" and len(schemes) > 1):
        raise ConfigError(
            f"endpoints {';'.join(texts)} cannot be used together",
            hint="give one host name, or several IP addresses of one kind",
        )
    return Endpoints(schemes[0], tuple(addresses))


def endpoints_of(message: pb.Endpoints) -> Endpoints:
    """The endpoints that a server states. Raises BodyError for invalid endpoints."""
    found = [(each.host, each.port) for each in message.addresses[:ADDRESSES_MAX]]
    scheme = _SCHEMES.get(int(message.scheme))
    if not found or scheme is None:
        raise BodyError("the proxy states endpoints without an address")
    for host, port in found:
        try:
            parse_address(_joined(host, port))
        except UsageError as error:
            raise BodyError(f"the proxy states invalid endpoints: {error}") from error
        if scheme != "dns" and not is_literal(host, _FAMILIES[scheme]):
            raise BodyError(
                f"the proxy states {host!r}, which is not an {scheme} address"
            )
    return Endpoints(scheme, tuple(found))


def _scheme_of(host: str) -> str:
    for scheme, family in _FAMILIES.items():
        if is_literal(host, family):
            return scheme
    return "dns"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
