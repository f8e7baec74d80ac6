"""How to reach a cluster, as one value: `ClientConfig`.

A cluster is reached by its name servers (the remoting protocol) or, from RocketMQ 5 on,
by the endpoints of a proxy (gRPC).

An argument takes precedence over the environment, and the environment over the default.
The environment is passed in, except to `client_config`; no file is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rmqcli.checked import check_int, check_type
from rmqcli.errors import ConfigError, TextError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

NAMESRV_DEFAULT = "127.0.0.1:9876"
NAMESRV_VARIABLE = "NAMESRV_ADDR"  # MixAll.NAMESRV_ADDR_ENV
ENDPOINTS_VARIABLE = "ROCKETMQ_ENDPOINTS"
_NAMESRV_PORT = 9876
_ENDPOINTS_PORT = 8081  # of a proxy, for gRPC
_TIMEOUT_MS_MAX = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, init=False)
class ClientConfig:
    """How one client reaches a cluster: addresses, timeout, credentials and TLS.

    The addresses in `namesrv` and `endpoints` are `host:port`, as a sequence or as the
    text `host:port;host:port`. `timeout_ms` bounds
    every single request, including the time to connect. Credentials are redacted in
    `repr`. A ClientConfig can be pickled, for example to a Spark worker.

    With `endpoints`, clients that can speak gRPC (Producer, Consumer and
    SimpleConsumer) connect to a proxy there instead of the name servers. They use TLS
    and verify the proxy, unless `plaintext` is set; `tls` says how the proxy is
    verified. Connections to name servers and brokers use TLS only when `tls` is given.

    Raises ConfigError for a text that names no server, for an empty `namesrv`, for
    `plaintext` together with `tls`, and for a `timeout_ms` that is not positive or
    longer than a day. Raises TypeError for values of a wrong type.
    """

    namesrv: tuple[str, ...]
    timeout_ms: int
    credentials: Credentials | None
    tls: TlsOptions | None
    endpoints: tuple[str, ...]
    plaintext: bool

    def __init__(
        self,
        *,
        namesrv: str | Iterable[str] = NAMESRV_DEFAULT,
        timeout_ms: int = 5000,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
        endpoints: str | Iterable[str] = (),
        plaintext: bool = False,
    ) -> None:
        if isinstance(namesrv, str):
            namesrv = _named("namesrv", parse_namesrv, namesrv)
        if isinstance(endpoints, str):
            endpoints = _named("endpoints", parse_endpoints, endpoints)
        for name, given in (("namesrv", namesrv), ("endpoints", endpoints)):
            check_type(given, Iterable, name)
        values = {
            "namesrv": tuple(namesrv),
            "timeout_ms": timeout_ms,
            "credentials": credentials,
            "tls": tls,
            "endpoints": tuple(endpoints),
            "plaintext": plaintext,
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
        what = f"no {kind} in it"
        hint = "write HOST:PORT, or several separated by commas"
        raise TextError(text, what, start=0, end=len(text), hint=hint)
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str, address: str, at: int, port_default: int) -> str:
    hint = "write HOST:PORT, or several separated by commas"
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(port_default)
    port_at = at + len(address) - len(port) if colon else at
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        end = at + len(address)
        raise TextError(
            text, "the port is not a number", start=port_at, end=end, hint=hint
        )
    if not 0 < int(port) < 65_536:
        what = f"port {int(port)} is not in 1..65535"
        raise TextError(text, what, start=port_at, end=at + len(address), hint=hint)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(c.isspace() or not c.isprintable() or c in "/@" for c in bare):
        end = at + max(1, len(host))
        raise TextError(text, "not a host name", start=at, end=end, hint=hint)
    if bare.isdigit() and not colon:
        what, end = "a number is not an address", at + len(address)
        raise TextError(text, what, start=at, end=end, hint=hint)
    if ":" in bare and bare is host:
        what = "an IPv6 address needs brackets"
        end = at + len(host)
        raise TextError(text, what, start=at, end=end, hint=f"write [{host}]:{port}")
    return f"{host}:{int(port)}"
