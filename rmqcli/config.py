"""How to reach a cluster, as one value.

Who fills it (flag > environment > default) is the caller's business: this module reads
no environment and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

NAMESRV_DEFAULT = "127.0.0.1:9876"


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
