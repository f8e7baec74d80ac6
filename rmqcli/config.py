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
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

NAMESRV_DEFAULT = "127.0.0.1:9876"
NAMESRV_VARIABLE = "NAMESRV_ADDR"  # MixAll.NAMESRV_ADDR_ENV
ENDPOINTS_VARIABLE = "ROCKETMQ_ENDPOINTS"
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
            namesrv = parse_namesrv(namesrv, where="namesrv")
        if isinstance(endpoints, str):
            endpoints = parse_addresses(endpoints, where="endpoints", kind="endpoint")
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
            addresses = parse_namesrv(text or "", where=where)
        where = "endpoints"
        if endpoints is None and namesrv is None:
            where, endpoints = ENDPOINTS_VARIABLE, environ.get(ENDPOINTS_VARIABLE)
        if endpoints is not None and (endpoints or where == "endpoints"):
            proxies = parse_addresses(endpoints, where=where, kind="endpoint")
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


def parse_namesrv(text: str, *, where: str) -> tuple[str, ...]:
    """Split `host:port,host:port` into addresses; semicolons work, too.

    Raises ConfigError, which names `where`, when there is none.
    """
    return parse_addresses(text, where=where, kind="name server")


def parse_addresses(text: str, *, where: str, kind: str) -> tuple[str, ...]:
    """Split `host:port,host:port` into addresses; semicolons work, too.

    Raises ConfigError, which names `where` and `kind`, when there is none.
    """
    addresses = tuple(each.strip() for each in re.split("[;,]", text) if each.strip())
    if not addresses:
        raise ConfigError(f"{where} is {text!r}, which contains no {kind}")
    return addresses
