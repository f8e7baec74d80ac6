"""TLS settings. `ssl` is loaded by `tls_stream` only, when TLS is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How peers are verified, and how we are.

    By default the system's CAs and the host name count. `ca_file` replaces the CAs.
    `insecure` takes any certificate: the connection is then secret from listeners
    only, not from whoever is in between. `server_hostname` is the name to look for in
    the certificate instead of the address's host, for brokers that advertise an IP.
    """

    ca_file: str | None = None
    insecure: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_hostname: str | None = None
