"""What the objects that serve calls of clients have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqcli.broker.proxy.brokers import BrokerLinks
    from rmqcli.broker.proxy.clients import Clients
    from rmqcli.broker.proxy.routes import ProxyRoutes
    from rmqcli.clock import Clock


class Shared(NamedTuple):
    """What all of a proxy's activities use."""

    links: BrokerLinks
    routes: ProxyRoutes
    clients: Clients
    clock: Clock


class Activity:
    """Serves some calls of clients, in the proxy's event loop."""

    def __init__(self, shared: Shared) -> None:
        self._links, self._routes, self._clients, self._clock = shared
