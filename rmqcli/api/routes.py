"""The routes of topics that are known, and which address of a broker is read from.

Source: MQClientInstance#findBrokerAddressInSubscribe in apache/rocketmq.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rmqcli.model import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Container

    from rmqcli.model import BrokerData, TopicRoute


def reading_address(
    broker: BrokerData, broker_id: int = MASTER_ID, *, without: Container[str] = ()
) -> tuple[int, str] | None:
    """Broker id and address of the member of a broker group to read from.

    That of `broker_id`, which a broker suggested; else of the next id, when a slave was
    suggested; else the lowest id there is, which is the master's where there is one.
    Addresses in `without` are left out. None when no address is left.
    """
    ids = sorted(broker.addresses)
    if broker_id != MASTER_ID:
        ids = [broker_id, broker_id + 1, *ids]
    for each in ids:
        address = broker.addresses.get(each)
        if address is not None and address not in without:
            return each, address
    return None


class RouteCache:
    """The newest route of each topic. Where routes differ on a broker, the one that
    was remembered last is believed."""

    def __init__(self) -> None:
        #: topic -> route, the one remembered last at the end
        self._routes: dict[str, TopicRoute] = {}

    def get(self, topic: str) -> TopicRoute | None:
        """The route of a topic, or None."""
        return self._routes.get(topic)

    def remember(self, route: TopicRoute) -> TopicRoute | None:
        """Keep a route; returns the one that it replaces."""
        known = self._routes.pop(route.topic, None)
        self._routes[route.topic] = route
        return known

    def forget(self, topic: str) -> TopicRoute | None:
        """Drop a topic's route; returns it."""
        return self._routes.pop(topic, None)

    def topics(self) -> list[str]:
        """The topics whose routes are known, the one remembered last at the end."""
        return list(self._routes)

    def brokers(self, topic: str) -> list[BrokerData]:
        """The topic's brokers that have an address."""
        route = self._routes.get(topic)
        return [] if route is None else [b for b in route.brokers if b.addresses]

    def broker(self, broker_name: str) -> BrokerData | None:
        """A broker that has an address, as the newest route that names it has it."""
        for route in reversed(self._routes.values()):
            found = route.broker(broker_name)
            if found is not None and found.addresses:
                return found
        return None

    def addresses_by_broker(self) -> dict[str, list[str]]:
        """Broker name -> its addresses in all routes, the master's first; none is
        empty."""
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for route in reversed(self._routes.values()):
            for broker in route.brokers:
                for _, address in sorted(broker.addresses.items()):
                    found[broker.broker_name][address] = None
        return {name: list(addresses) for name, addresses in found.items()}
