"""TLS settings. Only `tls_stream` loads `ssl`, when TLS is used."""

from __future__ import annotations

from dataclasses import field

from rmqcli.checked import check_fields
from rmqcli.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How the peer is verified, and which certificate this client presents.

    By default the peer's certificate must be signed by one of the system's CAs and name
    its host. `ca_file` replaces the CAs. `insecure` accepts any certificate: that
    protects only against eavesdropping, not against a man in the middle.
    `server_hostname` replaces the host name that the certificate must have, for brokers
    that advertise an IP address.
    """

    ca_file: str | None = None
    insecure: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_hostname: str | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for a value of a wrong type."""
        check_fields(self, ranges={})
