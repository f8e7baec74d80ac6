"""The options of the embedded proxy. Does not load gRPC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Actions in `rights`.
PUB: Final = "Pub"
SUB: Final = "Sub"
ALL: Final = "All"
DENY: Final = "Deny"
_ACTIONS: Final = frozenset(
    (PUB, SUB, f"{PUB},{SUB}", f"{SUB},{PUB}", ALL, DENY),
)
_RESOURCE: Final = re.compile(r"\*|(?:Topic|Group):(?:\*|[^*]+\*?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Where the proxy listens, and what it checks. Defaults: a free port, plaintext.

    Raises UsageError for a certificate without its key, or a key without its
    certificate, for accounts and rights that cannot be read, and for accounts together
    with a remoting port, which does not check them.
    """

    #: 0 means any free port
    port: int = 0
    #: also serve remoting clients, which use the address as name server and brokers, on
    #: this port: 0 means any free port, None no such port
    remoting_port: int | None = None
    #: PEM files; with them the port accepts TLS only
    tls_cert: Path | None = None
    tls_key: Path | None = None
    #: access key -> secret key; each request must then be signed by one of them
    accounts: Mapping[str, str] | None = None
    #: access key -> topic or group -> what the account may do with it, as in
    #: `{"shop": {"Topic:orders": "Pub,Sub", "Group:shop-*": "Sub"}}`: Pub to send, Sub
    #: to receive, All, or Deny. A `*` ends a prefix, and alone matches everything.
    #: Without `rights` each account may do everything; otherwise only what is listed.
    rights: Mapping[str, Mapping[str, str]] | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError(
                "the proxy needs both a TLS certificate and its key, but only one was"
                " given"
            )
        if self.remoting_port is not None and self.accounts is not None:
            raise UsageError(
                "the proxy's remoting port does not check accounts, but the proxy has"
                " accounts",
                hint="start a proxy without accounts, or without a remoting port",
            )
        if self.accounts is not None and not all(
            name and secret for name, secret in self.accounts.items()
        ):
            raise UsageError("a proxy account has an empty access key or secret key")
        for name, entries in (self.rights or {}).items():
            if name not in (self.accounts or {}):
                raise UsageError(
                    f"rights are given to {name!r}, which is not an account"
                )
            for resource, actions in entries.items():
                if not _RESOURCE.fullmatch(resource):
                    raise UsageError(
                        f"rights of {name!r}: {resource!r} is not a topic or a group",
                        hint="write Topic:NAME, Group:NAME, Topic:PREFIX* or *",
                    )
                if actions not in _ACTIONS:
                    raise UsageError(
                        f"rights of {name!r} to {resource}: {actions!r} is not an"
                        " action",
                        hint="write Pub, Sub, Pub,Sub, All or Deny",
                    )
