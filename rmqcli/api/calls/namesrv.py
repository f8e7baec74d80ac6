"""Requests to a name server: routes, clusters, topic lists.

Source: DefaultRequestProcessor, ClientRequestProcessor of the name server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.wire.bodies.route import (
    TopicListBody,
    parse_cluster_info,
    parse_topic_route,
)
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
)

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.model import TopicRoute
    from rmqcli.wire.bodies.route import ClusterInfo


def get_route_info_by_topic(topic: str) -> Call[TopicRoute]:
    """Where the topic's queues are.

    The error is NotFoundError when no broker has registered the topic.
    """
    return make_call(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda answer: parse_topic_route(topic, answer.body),
        what=f"route of topic {topic}",
        header=GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True),
    )


def get_broker_cluster_info() -> Call[ClusterInfo]:
    """Every broker of every cluster that the name server knows."""
    return make_call(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        lambda answer: parse_cluster_info(answer.body),
        what="cluster info",
    )


def get_all_topic_list() -> Call[list[str]]:
    """The names of all topics, including retry, dead-letter and system topics."""
    return make_call(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        lambda answer: decode_body(TopicListBody, answer.body).topic_list,
        what="topic list",
    )


def delete_topic_in_namesrv(topic: str, *, cluster: str | None = None) -> Call[None]:
    """Delete the topic's route. To be sent to every name server.

    Those of 4.9.7 or later keep the brokers of other clusters than `cluster`.
    """
    return make_call(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        nothing,
        what=f"deletion of topic {topic}",
        header=DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
    )
