"""Routes and clusters as name servers of each version write them.

The legacy form has broker ids as bare keys: `{"brokerAddrs":{0:"10.0.0.1:10911"}}`.

Source: `ClientRequestProcessor`, `TopicRouteData`, `ClusterInfo` in apache/rocketmq.

Routes, the cluster and lists of topics: 105, 106, 206, 224, 304, 216, 217.

Imitated: the strict form of a route for who can read it, the remark on an unknown
topic. Not imitated: orderMessageEnable, needWaitForService, zones.

Source: `ClientRequestProcessor`, `DefaultRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.namesrv.state import handles
from rmqcli.broker.request import Refusal, Reply, read_body
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.route import encode_topic_list, parse_topic_route
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.fastjson import ObjectKey
from rmqcli.wire.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from rmqcli.wire.version import V4_9_4

if TYPE_CHECKING:
    from rmqcli.broker.namesrv.state import NamesrvState
    from rmqcli.broker.profiles import VersionProfile
    from rmqcli.broker.request import Request
    from rmqcli.model import BrokerData, QueueData, TopicRoute


def route_body(route: TopicRoute, profile: VersionProfile, *, is_strict: bool) -> bytes:
    """The answer to 105."""
    brokers = [_broker(each, profile, is_strict=is_strict) for each in route.brokers]
    return fastjson.dump_body(
        {
            "brokerDatas": brokers,
            "filterServerTable": {},
            "queueDatas": [_queue(each, profile) for each in route.queues],
        }
    )


def cluster_body(
    brokers: dict[str, BrokerData],
    clusters: dict[str, list[str]],
    profile: VersionProfile,
) -> bytes:
    """The answer to 106: in the legacy form, whoever asks."""
    table = {
        name: _broker(each, profile, is_strict=False) for name, each in brokers.items()
    }
    return fastjson.dump_body({"brokerAddrTable": table, "clusterAddrTable": clusters})


def _broker(
    broker: BrokerData, profile: VersionProfile, *, is_strict: bool
) -> dict[str, object]:
    key = str if is_strict else ObjectKey
    data: dict[str, object] = {
        "brokerAddrs": {key(i): address for i, address in broker.addresses.items()},
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }
    if profile.has_acting_master:
        data["enableActingMaster"] = False
    return data


def _queue(queue: QueueData, profile: VersionProfile) -> dict[str, object]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        profile.topic_sys_flag_name: queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


@handles(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def get_route(server: NamesrvState, request: Request) -> Reply:
    """Where a topic's queues are (105); 17 for an unknown topic."""
    header = request.header(GetRouteInfoRequestHeader)
    route = server.routes.route(header.topic)
    if route is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {header.topic}\n"
            f"See {server.profile.route_help} for further details.",
        )
    is_strict = server.profile.strict_routes and (
        request.command.version >= V4_9_4 or bool(header.accept_standard_json_only)
    )
    return Reply(body=route_body(route, server.profile, is_strict=is_strict))


@handles(RequestCode.GET_BROKER_CLUSTER_INFO)
def get_cluster_info(server: NamesrvState, request: Request) -> Reply:
    """All brokers and clusters (106)."""
    routes = server.routes
    return Reply(body=cluster_body(routes.brokers(), routes.clusters(), server.profile))


@handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
def get_topics(server: NamesrvState, request: Request) -> Reply:
    """All topics (206)."""
    return Reply(body=encode_topic_list(server.routes.topics()))


@handles(RequestCode.GET_TOPICS_BY_CLUSTER)
def get_topics_by_cluster(server: NamesrvState, request: Request) -> Reply:
    """The topics of one cluster (224)."""
    cluster = request.header(GetTopicsByClusterRequestHeader).cluster
    return Reply(body=encode_topic_list(server.routes.topics(cluster)))


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
def get_system_topics(server: NamesrvState, request: Request) -> Reply:
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


@handles(RequestCode.DELETE_TOPIC_IN_NAMESRV)
def delete_topic(server: NamesrvState, request: Request) -> Reply:
    """Forget a topic (216)."""
    header = request.header(DeleteTopicFromNamesrvRequestHeader)
    server.routes.delete_topic(header.topic, header.cluster_name)
    return Reply()


@handles(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
def register_topic(server: NamesrvState, request: Request) -> Reply:
    """Take one topic (217)."""
    topic = request.header(RegisterTopicRequestHeader).topic
    route = read_body(lambda body: parse_topic_route(topic, body), request)
    server.routes.put_topic(topic, route.queues)
    return Reply()
