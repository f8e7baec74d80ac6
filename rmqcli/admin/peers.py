"""Finds out what a server is that does not answer as a proxy does.

A name server and a broker speak the remoting protocol, and a proxy gRPC, so that an
address of the wrong kind only breaks connections. The server is asked after an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.namesrv import get_broker_cluster_info
from rmqcli.api.client import Client
from rmqcli.errors import ConfigError, RmqError, TransportError

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.config import ClientConfig

#: The error must not come much later because of this.
_TIMEOUT_MS = 1_000


def not_a_proxy(address: str, config: ClientConfig) -> ConfigError | None:
    """Return the error for a name server or a broker at `address`; None for others.

    `config` has the TLS settings.
    """
    config = replace(config, namesrv=(address,), endpoints=(), timeout_ms=_TIMEOUT_MS)
    calls: tuple[Call[Any], ...] = (
        get_broker_cluster_info(),
        get_broker_runtime_info(),
    )
    with Client(config) as client:
        outcomes = client.gather([client.submit(address, call) for call in calls])
    if all(isinstance(each, TransportError) for each in outcomes):
        return None  # before 5.0 a server does not answer a request unknown to it
    is_namesrv, is_broker = (not isinstance(each, RmqError) for each in outcomes)
    kind = "a name server" if is_namesrv else "a broker" if is_broker else "a server"
    what = f"{kind} that speaks remoting" if kind == "a server" else kind
    return ConfigError(
        f"{address} is {what}, not a proxy",
        hint=f"give the address of a proxy, not of {kind}; its port for gRPC is 8081 by"
        " default",
    )
