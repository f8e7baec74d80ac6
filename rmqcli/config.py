"""How to reach a cluster, as one value: `ClientConfig`.

A cluster is reached by its name servers (the remoting protocol) or, from RocketMQ 5 on,
by the endpoints of a proxy (gRPC).

An argument takes precedence over the environment, and the environment over the default.
The environment is passed in, except to `client_config`; no file is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from rmqcli.checked import check_int, check_type
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, TextError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

NAMESRV_DEFAULT = "127.0.0.1:9876"
NAMESRV_VARIABLE = "NAMESRV_ADDR"  # MixAll.NAMESRV_ADDR_ENV
ENDPOINTS_VARIABLE = "ROCKETMQ_ENDPOINTS"
_NAMESRV_PORT = 9876
_ENDPOINTS_PORT = 8081  # of a proxy, for gRPC
#: What may be an IPv6 address, with or without a port.
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_TIMEOUT_MS_MAX = 24 * 60 * 60 * 1_000
_ADDRESS_HINT = "write HOST:PORT, or several separated by commas"
_MAPPING_HINT = (
    "write ADVERTISED=REACHABLE, such as 172.18.0.3:10911=127.0.0.1:10911, or two hosts"
    " without ports"
)


@dataclass(frozen=True, slots=True, init=False)
class ClientConfig:
    """How one client reaches a cluster: addresses, timeout, credentials and TLS.

    The addresses in `namesrv` and `endpoints` are `host:port`, as a sequence or as the
    text `host:port;host:port`; without any it is 127.0.0.1:9876, and `from_env` takes
    them from the environment. `timeout_ms` bounds every single request, including the
    time to connect. Credentials are redacted in `repr`. A ClientConfig can be pickled,
    for example to a Spark worker.

    With `endpoints`, clients that can speak gRPC (Producer, Consumer and
    SimpleConsumer) connect to a proxy there instead of the name servers. They use TLS
    and verify the proxy, unless `plaintext` is set; `tls` says how the proxy is
    verified. Connections to name servers and brokers use TLS only when `tls` is given.

    `address_map` says where brokers are reached that advertise an address that cannot
    be reached from here: `{"172.18.0.3:10911": "127.0.0.1:10911"}`, or
    `{"172.18.0.3": "127.0.0.1"}` for all ports of a host. Brokers are still named by
    the advertised addresses, and their certificates are verified for these. Addresses
    of a proxy are not mapped.

    Raises ConfigError for a text that names no server, for an empty `namesrv`, for an
    address map with an entry that is no address or with two that lead to one, for
    `plaintext` together with `tls`, and for a `timeout_ms` that is not positive or
    longer than a day. Raises TypeError for values of a wrong type.
    """

    namesrv: tuple[str, ...]
    timeout_ms: int
    credentials: Credentials | None
    tls: TlsOptions | None
    endpoints: tuple[str, ...]
    plaintext: bool
    #: pairs of an advertised and a reachable address
    address_map: tuple[tuple[str, str], ...]

    def __init__(
        self,
        *,
        namesrv: str | Iterable[str] = NAMESRV_DEFAULT,
        timeout_ms: int = 5000,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
        endpoints: str | Iterable[str] = (),
        plaintext: bool = False,
        address_map: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> None:
        if isinstance(namesrv, str):
            namesrv = _named("namesrv", parse_namesrv, namesrv)
        if isinstance(endpoints, str):
            endpoints = _named("endpoints", parse_endpoints, endpoints)
        for name, given in (("namesrv", namesrv), ("endpoints", endpoints)):
            check_type(given, (str, Iterable), name)
        values = {
            "namesrv": tuple(namesrv),
            "timeout_ms": timeout_ms,
            "credentials": credentials,
            "tls": tls,
            "endpoints": tuple(endpoints),
            "plaintext": plaintext,
            "address_map": _checked_map(address_map),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if not self.namesrv:
            raise ConfigError("namesrv is empty; at least one host:port is needed")
        if self.plaintext and self.tls is not None:
            raise ConfigError("plaintext and tls cannot be used together")
        check_int(self.timeout_ms, "timeout_ms", 1, _TIMEOUT_MS_MAX)
        check_type(self.plaintext, bool, "plaintext")
        # The classes are in packages above this module, which loads neither.
        for name, kind, mark in (
            ("credentials", "Credentials", "secret_key"),
            ("tls", "TlsOptions", "ca_file"),
        ):
            value = getattr(self, name)
            if value is not None and not hasattr(value, mark):
                raise TypeError(
                    f"{name} is a {type(value).__name__}; it must be {kind} or None"
                )

    @property
    def servers(self) -> str:
        """The addresses in use, as `namesrv='host:port'` or `endpoints='host:port'`."""
        if self.endpoints:
            return f"endpoints={';'.join(self.endpoints)!r}"
        return f"namesrv={';'.join(self.namesrv)!r}"

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        namesrv: str | None = None,
        timeout_ms: int = 5000,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
        endpoints: str | None = None,
        plaintext: bool = False,
        address_map: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Return a configuration with the addresses of the arguments or of `environ`.

        `namesrv` (NAMESRV_ADDR) and `endpoints` (ROCKETMQ_ENDPOINTS) are both
        `host:port;host:port`. When an argument is missing, its variable is used; an
        empty variable counts as unset. When `namesrv` is given, ROCKETMQ_ENDPOINTS is
        ignored. Raises ConfigError when an argument or a variable names no server, and
        when both arguments are given.
        """
        if namesrv is not None and endpoints is not None:
            raise ConfigError("namesrv and endpoints cannot be used together")
        text = environ.get(NAMESRV_VARIABLE) if namesrv is None else namesrv
        addresses: tuple[str, ...] = (NAMESRV_DEFAULT,)
        if text or namesrv is not None:
            where = NAMESRV_VARIABLE if namesrv is None else "namesrv"
            addresses = _named(where, parse_namesrv, text or "")
        where = "endpoints"
        if endpoints is None and namesrv is None:
            where, endpoints = ENDPOINTS_VARIABLE, environ.get(ENDPOINTS_VARIABLE)
        if endpoints is not None and (endpoints or where == "endpoints"):
            proxies = _named(where, parse_endpoints, endpoints)
        else:
            proxies = ()
        return cls(
            namesrv=addresses,
            timeout_ms=timeout_ms,
            credentials=credentials,
            tls=tls,
            endpoints=proxies,
            plaintext=plaintext,
            address_map=address_map,
        )


def client_config(
    client: ClientConfig | None, namesrv: str | None, endpoints: str | None = None
) -> ClientConfig:
    """Return the configuration that a program gives to a client of the library.

    It is `client`, or made of the addresses and of the environment of this process.
    Raises ConfigError when `client` is given together with addresses.
    """
    for name, value in (("namesrv", namesrv), ("endpoints", endpoints)):
        check_type(value, (str, type(None)), name)
        if value is not None and client is not None:
            raise ConfigError(f"{name} and client cannot be used together")
    check_type(client, (ClientConfig, type(None)), "client")
    return client or ClientConfig.from_env(
        os.environ, namesrv=namesrv, endpoints=endpoints
    )


def _named(
    where: str, parse: Callable[[str], tuple[str, ...]], text: str
) -> tuple[str, ...]:
    """Parse the addresses that `where` has, which errors name."""
    try:
        return parse(text)
    except TextError as error:
        raise ConfigError(f"{where} is {error.message}", hint=error.hint) from error


def parse_namesrv(text: str) -> tuple[str, ...]:
    """Read `HOST:PORT[,HOST:PORT]`; IPv6 hosts in brackets, port 9876 when left out.

    RocketMQ itself writes semicolons between addresses, which work, too.

    Raises TextError.
    """
    return _parse_addresses(text, port=_NAMESRV_PORT, kind="name server")


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Read `HOST:PORT[,HOST:PORT]` of a proxy, port 8081 when left out.

    Raises TextError.
    """
    return _parse_addresses(text, port=_ENDPOINTS_PORT, kind="proxy")


def parse_address_mapping(text: str) -> tuple[str, str]:
    """Read `ADVERTISED=REACHABLE`, both `HOST:PORT` or both `HOST`.

    Raises TextError.
    """
    advertised, sign, reachable = text.partition("=")
    if not sign:
        end = max(1, len(text))
        raise TextError(text, "no = in it", start=0, end=end, hint=_MAPPING_HINT)
    at = len(advertised) + 1
    one = _parse_mapped(text, advertised, 0)
    other = _parse_mapped(text, reachable, at)
    if one[1] != other[1]:
        what = "one side has a port and the other has none"
        raise TextError(text, what, hint=_MAPPING_HINT)
    return one[0], other[0]


def parse_address_map(text: str) -> tuple[tuple[str, str], ...]:
    """Read `ADVERTISED=REACHABLE[,ADVERTISED=REACHABLE]`. Raises TextError."""
    return tuple(parse_address_mapping(part) for part in re.split("[;,]", text))


def _parse_mapped(text: str, part: str, start: int) -> tuple[str, bool]:
    """Return a side of a mapping, and whether it has a port."""
    stripped = part.strip()
    if not stripped:
        end = max(start + len(part), start + 1)
        raise TextError(text, "no address", start=start, end=end, hint=_MAPPING_HINT)
    has_port = ":" in stripped and not stripped.endswith("]")
    at = start + part.index(stripped)
    address = _parse_address(text, stripped, at, 1)
    return (address if has_port else address.removesuffix(":1")), has_port


def _checked_map(
    given: Mapping[str, str] | Iterable[tuple[str, str]],
) -> tuple[tuple[str, str], ...]:
    check_type(given, Iterable, "address_map")
    pairs: list[object] = list(given.items() if isinstance(given, Mapping) else given)
    mapped: dict[str, str] = {}
    for pair in pairs:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and all(isinstance(each, str) for each in pair)
        ):
            raise TypeError("address_map must map addresses, as str, to addresses")
        try:
            advertised, reachable = parse_address_mapping("=".join(pair))
        except TextError as error:
            raise ConfigError(
                f"address_map has {error.message}", hint=error.hint
            ) from error
        if mapped.setdefault(advertised, reachable) != reachable:
            raise ConfigError(f"address_map has two addresses for {advertised}")
    # Requests for one broker would silently be answered by another one.
    owners: dict[str, str] = {}
    for advertised, reachable in mapped.items():
        first = owners.setdefault(reachable, advertised)
        if first != advertised:
            raise ConfigError(
                f"address_map leads {first} and {advertised} to one address,"
                f" {reachable}",
                hint="give each broker its own",
            )
    return tuple(mapped.items())


def _parse_addresses(text: str, *, port: int, kind: str) -> tuple[str, ...]:
    addresses = []
    start = 0
    for part in re.split("[;,]", text):
        stripped = part.strip()
        if stripped:
            at = start + part.index(stripped)
            addresses.append(_parse_address(text, stripped, at, port))
        start += len(part) + 1
    if not addresses:
        raise TextError(text, f"no {kind} in it", hint=_ADDRESS_HINT)
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str, address: str, at: int, port_default: int) -> str:
    hint, end = _ADDRESS_HINT, at + len(address)
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(port_default)
    port_at = end - len(port) if colon else at
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        what = "the port is not a number"
        raise TextError(text, what, start=port_at, end=end, hint=hint)
    if not 0 < int(port) < 65_536:
        what = f"port {int(port)} is not in 1..65535"
        raise TextError(text, what, start=port_at, end=end, hint=hint)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_odd = any(c.isspace() or not c.isprintable() or c in "/@=+" for c in bare)
    if not bare or is_odd or bare.startswith("-"):
        end = at + max(1, len(host))
        raise TextError(text, "not a host name", start=at, end=end, hint=hint)
    if bare.isdigit() and not colon:
        raise TextError(
            text, "a number is not an address", start=at, end=end, hint=hint
        )
    if ":" in bare and bare is host:
        what = "not a host name"  # such as ipv4:10.0.0.1:8081, gRPC's name of a target
        if _IPV6.fullmatch(address):
            what = "an IPv6 address needs brackets"
            hint = "write [ADDRESS]:PORT, such as [::1]:9876"
        raise TextError(text, what, start=at, end=at + len(host), hint=hint)
    return f"{host}:{int(port)}"
