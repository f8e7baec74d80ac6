"""How to reach a cluster, as one value: `ClientConfig`.

An argument goes before the environment, and that before the default. The environment is
passed in: this module reads neither it nor any file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

NAMESRV_DEFAULT = "127.0.0.1:9876"
NAMESRV_VARIABLE = "NAMESRV_ADDR"  # MixAll.NAMESRV_ADDR_ENV


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Addresses, deadline and secrets of one client.

    `timeout_ms` bounds every single request, connecting included. Credentials redact
    themselves in `repr`. Can be pickled to a Spark worker.
    """

    namesrv: tuple[str, ...] = (NAMESRV_DEFAULT,)
    timeout_ms: int = 5000
    credentials: Credentials | None = None
    tls: TlsOptions | None = None

    def __post_init__(self) -> None:
        if not self.namesrv:
            raise ValueError("namesrv is empty; at least one host:port is needed")
        if self.timeout_ms <= 0:
            raise ValueError(f"timeout_ms is {self.timeout_ms}; it must be over 0")

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        namesrv: str | None = None,
        timeout_ms: int = 5000,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
    ) -> Self:
        """Settings with the name servers of `namesrv`, else of NAMESRV_ADDR.

        Both are `host:port;host:port`. Raises ConfigError when one of them is given
        and names no server.
        """
        text = environ.get(NAMESRV_VARIABLE) if namesrv is None else namesrv
        addresses: tuple[str, ...] = (NAMESRV_DEFAULT,)
        if text or namesrv is not None:
            where = NAMESRV_VARIABLE if namesrv is None else "namesrv"
            addresses = parse_namesrv(text or "", where=where)
        return cls(
            namesrv=addresses, timeout_ms=timeout_ms, credentials=credentials, tls=tls
        )


def parse_namesrv(text: str, *, where: str) -> tuple[str, ...]:
    """Read `host:port;host:port`. Raises ConfigError that names `where`."""
    addresses = tuple(each.strip() for each in text.split(";") if each.strip())
    if not addresses:
        raise ConfigError(f"{where} is {text!r}, which names no name server")
    return addresses
