"""Routes, the cluster and lists of topics: 105, 106, 206, 224, 304, 216, 217.

Imitated: the strict form of a route for who can read it, the remark on an unknown
topic. Not imitated: orderMessageEnable, needWaitForService, zones.

Source: `ClientRequestProcessor`, `DefaultRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.namesrv_bodies import cluster_body, route_body
from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.request_body import read_body
from rmqcli.wire.bodies_route import encode_topic_list, parse_topic_route
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers_namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from rmqcli.wire.version import V4_9_4

if TYPE_CHECKING:
    from rmqcli.broker.namesrv import NameServer
    from rmqcli.broker.request import Request


def get_route(server: NameServer, request: Request) -> Reply:
    """Where a topic's queues are (105); 17 for an unknown topic."""
    header = request.header(GetRouteInfoRequestHeader)
    route = server.routes.route(header.topic)
    if route is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {header.topic}\n"
            f"See {server.manners.route_help} for further details.",
        )
    is_strict = server.manners.strict_routes and (
        request.command.version >= V4_9_4 or bool(header.accept_standard_json_only)
    )
    return Reply(body=route_body(route, server.manners, is_strict=is_strict))


def get_cluster_info(server: NameServer, request: Request) -> Reply:
    """All brokers and clusters (106)."""
    routes = server.routes
    return Reply(body=cluster_body(routes.brokers(), routes.clusters(), server.manners))


def get_topics(server: NameServer, request: Request) -> Reply:
    """All topics (206)."""
    return Reply(body=encode_topic_list(server.routes.topics()))


def get_topics_by_cluster(server: NameServer, request: Request) -> Reply:
    """The topics of one cluster (224)."""
    cluster = request.header(GetTopicsByClusterRequestHeader).cluster
    return Reply(body=encode_topic_list(server.routes.topics(cluster)))


def get_system_topics(server: NameServer, request: Request) -> Reply:
    """Topics named after clusters and brokers, and a broker to ask for others (304)."""
    names: dict[str, None] = {}
    for cluster, brokers in server.routes.clusters().items():
        names[cluster] = None
        names.update(dict.fromkeys(brokers))
    addresses = [
        a for b in server.routes.brokers().values() for a in b.addresses.values()
    ]
    address = addresses[0] if addresses else None
    return Reply(body=encode_topic_list(names, broker_addr=address))


def delete_topic(server: NameServer, request: Request) -> Reply:
    """Forget a topic (216)."""
    header = request.header(DeleteTopicFromNamesrvRequestHeader)
    server.routes.delete_topic(header.topic, header.cluster_name)
    return Reply()


def register_topic(server: NameServer, request: Request) -> Reply:
    """Take one topic (217)."""
    topic = request.header(RegisterTopicRequestHeader).topic
    route = read_body(lambda body: parse_topic_route(topic, body), request)
    server.routes.put_topic(topic, route.queues)
    return Reply()
