"""How the embedded proxy is configured. Loads nothing of gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Where the proxy listens, and what it checks. Defaults: a free port, plaintext.

    Raises UsageError for a certificate without its key, or a key without its
    certificate.
    """

    #: 0: any free port
    port: int = 0
    #: PEM files; with them the port speaks TLS only
    tls_cert: Path | None = None
    tls_key: Path | None = None
    #: access key -> secret key; each request must then be signed by one of them
    accounts: Mapping[str, str] | None = None
    #: also serve PullMessage, UpdateOffset, GetOffset and QueryOffset, which proxies up
    #: to 5.5.0 do not implement
    serves_offsets: bool = False

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError(
                "the proxy needs a certificate and its key, and only one was given"
            )
        if self.accounts is not None and not all(
            name and secret for name, secret in self.accounts.items()
        ):
            raise UsageError("an account of the proxy has an empty key")
