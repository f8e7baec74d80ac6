"""The route of a topic at a proxy, and what it means that the proxy has none.

A proxy answers TOPIC_NOT_FOUND for a topic that does not exist, and for every topic
while no broker is registered with its name servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.errors import NoBrokerError, NotFoundError
from rmqcli.proxy.rpc import query_route

if TYPE_CHECKING:
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.rpc import ProxyQueue
    from rmqcli.proxy.via import Via

#: Topics that exist while brokers are registered: a proxy in cluster mode creates the
#: first when it starts; brokers register the name of their cluster, and a proxy in
#: local mode answers that it is a system topic.
_REGISTERED: Final = ("DefaultHeartBeatSyncerTopic", "DefaultCluster")


def find_route(
    topic: str, at: Endpoints, via: Via
) -> tasks.Task[tuple[ProxyQueue, ...]]:
    """The queues of a topic, as the proxy knows them.

    Raises NotFoundError for a topic that does not exist, and NoBrokerError if the proxy
    knows no topic at all; then nothing tells whether this one exists.
    """
    try:
        found: tuple[ProxyQueue, ...] = yield via.call(at, query_route(topic, at))
    except NotFoundError as error:
        others = yield tasks.All(
            [via.call(at, query_route(t, at)) for t in _REGISTERED]
        )
        if all(isinstance(each, NotFoundError) for each in others):
            raise NoBrokerError(
                f"no broker is registered with the name servers of the proxy {at}, or"
                f" there is no topic {topic}",
                address=error.address,
                hint="check that the brokers run, and then the name of the topic",
            ) from error
        raise
    return found
