"""The cache of topic routes, and the choice of the address from which to read.

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
    """Return the broker id and address in a broker group from which to read.

    The order of preference is `broker_id`, which a broker suggested; then, if that is a
    slave, the next id; then the lowest id, which is the master's if there is a master.
    Addresses in `without` are left out. Returns None when no address is left.
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
    """The newest route of each topic.

    When the routes of two topics differ about a broker, the one that was stored last
    counts.
    """

    def __init__(self) -> None:
        #: topic -> route, the one stored last at the end
        self._routes: dict[str, TopicRoute] = {}

    def get(self, topic: str) -> TopicRoute | None:
        """The route of a topic, or None."""
        return self._routes.get(topic)

    def remember(self, route: TopicRoute) -> TopicRoute | None:
        """Store a route; return the route that it replaces, or None."""
        known = self._routes.pop(route.topic, None)
        self._routes[route.topic] = route
        return known

    def forget(self, topic: str) -> TopicRoute | None:
        """Remove a topic's route; return it, or None."""
        return self._routes.pop(topic, None)

    def topics(self) -> list[str]:
        """The topics whose routes are known, the one stored last at the end."""
        return list(self._routes)

    def brokers(self, topic: str) -> list[BrokerData]:
        """The topic's brokers that have an address."""
        route = self._routes.get(topic)
        return [] if route is None else [b for b in route.brokers if b.addresses]

    def broker(self, broker_name: str) -> BrokerData | None:
        """A broker according to the newest route that has an address of it, or None."""
        for route in reversed(self._routes.values()):
            found = route.broker(broker_name)
            if found is not None and found.addresses:
                return found
        return None

    def has_broker_at(self, address: str) -> bool:
        """Whether a broker in any route has this address. Called for each request."""
        return any(
            address in broker.addresses.values()
            for route in self._routes.values()
            for broker in route.brokers
        )

    def addresses_by_broker(self) -> dict[str, list[str]]:
        """Broker name -> its addresses in all routes, the master's first.

        Brokers without an address are left out.
        """
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for route in reversed(self._routes.values()):
            for broker in route.brokers:
                for _, address in sorted(broker.addresses.items()):
                    found[broker.broker_name][address] = None
        return {name: list(addresses) for name, addresses in found.items()}
