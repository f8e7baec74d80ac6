"""The routes of a consumer's topics: where their queues and brokers are.

The last good route of a topic stands while no name server answers, and while the new
route has no queues, so that a name server that restarts takes no queue away.

Source: MQClientInstance#updateTopicRouteInfoFromNameServer,
#findBrokerAddressInSubscribe.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rmqcli.api.calls.namesrv import get_route_info_by_topic
from rmqcli.errors import NotFoundError, RmqError, TransportError
from rmqcli.model import MASTER_ID
from rmqcli.tasks import Request
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqcli.api.client import Client
    from rmqcli.model import BrokerData, MessageQueue, TopicRoute
    from rmqcli.tasks import Task

ROUTE_TIMEOUT_MS = 3_000  # ClientConfig.mqClientApiTimeout


class Routes:
    """The routes of a consumer's topics. All in the thread that runs the client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._namesrvs = list(client.config.namesrv)
        self._routes: dict[str, TopicRoute] = {}

    def fetch(self, topic: str) -> Task[TopicRoute]:
        """Ask the name servers, one after the other until one has the route.

        That a topic does not exist is only believed when no name server has it. Raises
        RmqError when there is neither an answer nor a route from before.
        """
        errors: list[RmqError] = []
        for address in list(self._namesrvs):
            call = get_route_info_by_topic(topic)
            try:
                route: TopicRoute = yield Request(address, call, ROUTE_TIMEOUT_MS)
            except (NotFoundError, TransportError) as error:
                errors.append(error)
            except RmqError as error:
                return self._known_or(topic, error)
            else:
                self._namesrvs.remove(address)
                self._namesrvs.insert(0, address)
                return self._keep(topic, route)
        return self._known_or(topic, _worst(errors))

    def _known_or(self, topic: str, error: RmqError) -> TopicRoute:
        known = self._routes.get(topic)
        if known is None:
            raise error
        return known

    def _keep(self, topic: str, route: TopicRoute) -> TopicRoute:
        known = self._routes.get(topic)
        if not route.read_queues() and known is not None:
            return known
        # Back to the end: where routes differ on a broker, the newest is believed.
        self._routes.pop(topic, None)
        self._routes[topic] = route
        self._client.remember(topic, route)
        return route

    def keep_topics(self, topics: Collection[str]) -> None:
        """Forget all others."""
        for topic in set(self._routes) - set(topics):
            del self._routes[topic]
            self._client.forget(topic)

    def brokers(self, topic: str) -> list[BrokerData]:
        """The topic's brokers that have an address, as far as they are known."""
        route = self._routes.get(topic)
        return [] if route is None else [b for b in route.brokers if b.addresses]

    def broker(self, broker_name: str) -> BrokerData | None:
        """A broker by its name, as the newest route that has it says."""
        for route in reversed(self._routes.values()):
            found = route.broker(broker_name)
            if found is not None and found.addresses:
                return found
        return None

    def addresses_by_broker(self) -> dict[str, list[str]]:
        """Broker name -> its addresses in all routes, the master's first; none is
        empty.
        """
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for route in reversed(self._routes.values()):
            for broker in route.brokers:
                for _, address in sorted(broker.addresses.items()):
                    found[broker.broker_name][address] = None
        return {name: list(addresses) for name, addresses in found.items()}

    def addresses(self) -> set[str]:
        """Every broker's address in every route, slaves too."""
        return {
            address
            for route in self._routes.values()
            for broker in route.brokers
            for address in broker.addresses.values()
        }


def _worst(errors: list[RmqError]) -> RmqError:
    """The error of a name server that answered; else one that names all of them."""
    unreached = [each for each in errors if isinstance(each, TransportError)]
    if len(unreached) < len(errors):
        return next(each for each in errors if not isinstance(each, TransportError))
    last = unreached[-1]
    if len(errors) == 1:
        return last
    reasons = "; ".join(error.message for error in errors)
    return type(last)(
        f"no name server of {len(errors)} answered: {reasons}", address=last.address
    )


def reading_address(broker: BrokerData, broker_id: int) -> tuple[int, str]:
    """Id and address to read from: that id, else the next one, else the lowest.

    As MQClientInstance#findBrokerAddressInSubscribe, which looks for the next id only
    when a slave was asked for.
    """
    addresses = broker.addresses
    for each in (broker_id, broker_id + 1):
        if each in addresses and (each == broker_id or broker_id != MASTER_ID):
            return each, addresses[each]
    first = min(addresses)
    return first, addresses[first]


def no_broker(queue: MessageQueue) -> NotFoundError:
    """The error for a queue whose broker has no known address."""
    return NotFoundError(
        f"no broker {queue.broker_name} is in the route of topic {queue.topic}",
        code=int(ResponseCode.BROKER_NOT_EXIST),
        name=ResponseCode.BROKER_NOT_EXIST.name,
        hint="see which brokers are there with: rmq brokers",
    )
