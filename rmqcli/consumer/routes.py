"""Where topics' queues and brokers are, asked for without waiting.

A name server that knows less than it did is not believed at once: while it cannot
tell, or tells of a topic without queues, the last good route stands.

Source: MQClientInstance#updateTopicRouteInfoFromNameServer,
#findBrokerAddressInSubscribe.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rmqcli.api.calls.namesrv import get_route_info_by_topic
from rmqcli.errors import NotFoundError, RmqError, TransportError
from rmqcli.model import MASTER_ID
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmqcli.api.client import Client
    from rmqcli.model import BrokerData, MessageQueue, TopicRoute

ROUTE_TIMEOUT_MS = 3_000  # ClientConfig.mqClientApiTimeout


class Routes:
    """The routes of a consumer's topics. All in the thread that drives the client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._namesrvs = list(client.config.namesrv)
        self._routes: dict[str, TopicRoute] = {}

    def fetch(self, topic: str, done: Callable[[TopicRoute | RmqError], None]) -> None:
        """Ask the name servers, one after the other until one has the route.

        That a topic does not exist is only believed when none of them knows it.
        """
        self._ask(topic, list(self._namesrvs), [], done)

    def _ask(
        self,
        topic: str,
        namesrvs: list[str],
        errors: list[RmqError],
        done: Callable[[TopicRoute | RmqError], None],
    ) -> None:
        address, *others = namesrvs

        def answered(outcome: TopicRoute | RmqError) -> None:
            if isinstance(outcome, NotFoundError | TransportError):
                errors.append(outcome)
                if others:
                    self._ask(topic, others, errors, done)
                    return
                outcome = _worst(errors)
            elif not isinstance(outcome, RmqError):
                self._namesrvs.remove(address)
                self._namesrvs.insert(0, address)
            done(self._keep(topic, outcome))

        try:
            self._client.submit(
                address,
                get_route_info_by_topic(topic),
                timeout_ms=ROUTE_TIMEOUT_MS,
                on_done=lambda pending: answered(pending.outcome()),
            )
        except RmqError as error:
            answered(error)

    def _keep(
        self, topic: str, outcome: TopicRoute | RmqError
    ) -> TopicRoute | RmqError:
        known = self._routes.get(topic)
        if isinstance(outcome, RmqError):
            return outcome if known is None else known
        if not outcome.read_queues() and known is not None:
            return known
        # Back to the end: where routes differ on a broker, the newest is believed.
        self._routes.pop(topic, None)
        self._routes[topic] = outcome
        self._client.remember(topic, outcome)
        return outcome

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
    """Why no name server has a route: one that answered counts, else all are named."""
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
    """Id and address to read from: that id, else the next (V5), else any."""
    addresses = broker.addresses
    for each in (broker_id, broker_id + 1):
        if each in addresses and (each == broker_id or broker_id != MASTER_ID):
            return each, addresses[each]
    first = min(addresses)
    return first, addresses[first]


def no_broker(queue: MessageQueue) -> NotFoundError:
    """Why nothing can be asked of a queue."""
    return NotFoundError(
        f"no broker {queue.broker_name} is in the route of topic {queue.topic}",
        code=int(ResponseCode.BROKER_NOT_EXIST),
        name=ResponseCode.BROKER_NOT_EXIST.name,
        hint="see which brokers are there with: rmq brokers",
    )
