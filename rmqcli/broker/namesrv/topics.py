"""Routes, the cluster and lists of topics: 105, 106, 206, 216, 217, 224 and 304.

Imitated: the remark on an unknown topic; the form in which each version writes routes:
strict JSON for clients that can read it, otherwise the legacy form, which has broker
ids as bare keys: `{"brokerAddrs":{0:"10.0.0.1:10911"}}`.
Not imitated: orderMessageEnable, needWaitForService, zones.

Source: `ClientRequestProcessor`, `DefaultRequestProcessor`, `TopicRouteData` and
`ClusterInfo` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.namesrv.state import NamesrvState, handles
from rmqcli.broker.request import BrokerRequest, Reply, no_topic, read_body
from rmqcli.wire.bodies.route import (
    BrokerDataBody,
    ClusterInfoData,
    QueueDataBody,
    TopicListBody,
    TopicRouteData,
    parse_topic_route,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import namesrv
from rmqcli.wire.version import V4_9_4

if TYPE_CHECKING:
    from rmqcli import model
    from rmqcli.broker.profiles import VersionProfile


def route_body(
    route: model.TopicRoute, profile: VersionProfile, *, is_strict: bool
) -> bytes:
    """Return the body of the answer to 105."""
    data = TopicRouteData(
        broker_datas=[_broker(each, profile) for each in route.brokers],
        queue_datas=[_queue(each, profile) for each in route.queues],
    )
    return encode_body(data, bare_numbers=not is_strict)


def cluster_body(
    brokers: dict[str, model.BrokerData],
    clusters: dict[str, list[str]],
    profile: VersionProfile,
) -> bytes:
    """Return the body of the answer to 106, which is always in the legacy form."""
    table = {name: _broker(each, profile) for name, each in brokers.items()}
    data = ClusterInfoData(broker_addr_table=table, cluster_addr_table=clusters)
    return encode_body(data, bare_numbers=True)


def _broker(broker: model.BrokerData, profile: VersionProfile) -> BrokerDataBody:
    return BrokerDataBody(
        broker_name=broker.broker_name,
        broker_addrs=broker.addresses,
        cluster=broker.cluster,
        enable_acting_master=False if profile.has_acting_master else None,
    )


def _queue(queue: model.QueueData, profile: VersionProfile) -> QueueDataBody:
    is_old_name = profile.topic_sys_flag_name == "topicSynFlag"
    return QueueDataBody(
        broker_name=queue.broker_name,
        perm=queue.perm,
        read_queue_nums=queue.read_queue_nums,
        topic_syn_flag=queue.topic_sys_flag if is_old_name else None,
        topic_sys_flag=None if is_old_name else queue.topic_sys_flag,
        write_queue_nums=queue.write_queue_nums,
    )


@handles(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def get_route(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with a topic's route (105), or with 17 for an unknown topic."""
    header = request.header(namesrv.GetRouteInfoRequestHeader)
    route = server.routes.route(header.topic)
    if route is None:
        raise no_topic(
            f"No topic route info in name server for the topic: {header.topic}\n"
            f"See {server.profile.route_help} for further details."
        )
    is_strict = server.profile.strict_routes and (
        request.command.version >= V4_9_4 or bool(header.accept_standard_json_only)
    )
    return Reply(body=route_body(route, server.profile, is_strict=is_strict))


@handles(RequestCode.GET_BROKER_CLUSTER_INFO)
def get_cluster_info(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with all brokers and clusters (106)."""
    routes = server.routes
    return Reply(body=cluster_body(routes.brokers(), routes.clusters(), server.profile))


@handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
def get_topics(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with all topics (206)."""
    return Reply(body=encode_body(TopicListBody(topic_list=server.routes.topics())))


@handles(RequestCode.GET_TOPICS_BY_CLUSTER)
def get_topics_by_cluster(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with the topics of one cluster (224)."""
    cluster = request.header(namesrv.GetTopicsByClusterRequestHeader).cluster
    topics = server.routes.topics(cluster)
    return Reply(body=encode_body(TopicListBody(topic_list=topics)))


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
def get_system_topics(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with the topics named after clusters and brokers (304).

    The answer also has the address of a broker, which clients query for the other
    system topics.
    """
    names: dict[str, None] = {}
    for cluster, brokers in server.routes.clusters().items():
        names[cluster] = None
        names.update(dict.fromkeys(brokers))
    addresses = [
        a for b in server.routes.brokers().values() for a in b.addresses.values()
    ]
    address = addresses[0] if addresses else None
    return Reply(
        body=encode_body(TopicListBody(topic_list=list(names), broker_addr=address))
    )


@handles(RequestCode.DELETE_TOPIC_IN_NAMESRV)
def delete_topic(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Forget a topic (216)."""
    header = request.header(namesrv.DeleteTopicFromNamesrvRequestHeader)
    server.routes.delete_topic(header.topic, header.cluster_name)
    return Reply()


@handles(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
def register_topic(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Register one topic (217)."""
    topic = request.header(namesrv.RegisterTopicRequestHeader).topic
    route = read_body(lambda body: parse_topic_route(topic, body), request)
    server.routes.put_topic(topic, route.queues)
    return Reply()
