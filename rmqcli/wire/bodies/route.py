"""Routes, the cluster, and lists of topics, as name servers answer them.

A name server is not trusted: counts are checked here, addresses are kept as they were
said and checked where something is to be connected.

Source: TopicRouteData, QueueData, BrokerData, ClusterInfo, TopicList in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.errors import BodyError
from rmqcli.model import BrokerData, QueueData, TopicRoute
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_int,
    get_object,
    get_objects,
    get_queue_nums,
    get_table,
    get_text,
    get_texts,
    load_object,
    need_text,
    to_int,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.wire.fastjson import JsonObject

#: Queues of one topic on all brokers. More would only be said to use up memory.
TOPIC_QUEUES_MAX = 1 << 20
#: Brokers of one topic, and their addresses: a consumer connects to all of them.
ROUTE_BROKERS_MAX = 1_024
ROUTE_ADDRESSES_MAX = 4_096
#: The same of all clusters that a name server knows.
CLUSTER_BROKERS_MAX = 4_096
CLUSTER_ADDRESSES_MAX = 16_384


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Every broker group by name, and the names of each cluster's groups, sorted.

    Source: ClusterInfo in apache/rocketmq.
    """

    brokers: dict[str, BrokerData]
    clusters: dict[str, list[str]]


def parse_topic_route(topic: str, body: bytes) -> TopicRoute:
    """The answer to GET_ROUTEINFO_BY_TOPIC (105).

    A broker name that occurs twice is taken once: Java's consumers put queues in a
    set, so the larger counts win; of two addresses for one id the first. Raises
    BodyError when a count is not in 0..65535, or there are more queues, brokers or
    addresses than the limits above.
    """
    data = load_object(body, f"route of {topic}")
    brokers: dict[str, BrokerData] = {}
    for item in get_objects(data, "brokerDatas"):
        broker = _broker_data(item)
        known = brokers.get(broker.broker_name)
        if known is not None:
            broker.addresses.update(known.addresses)
        brokers[broker.broker_name] = broker
    _check_brokers("route", brokers, ROUTE_BROKERS_MAX, ROUTE_ADDRESSES_MAX)
    return TopicRoute(
        topic=topic,
        brokers=tuple(brokers.values()),
        queues=_merge_queues(map(_queue_data, get_objects(data, "queueDatas"))),
        order_topic_conf=get_text(data, "orderTopicConf") or None,
    )


def encode_topic_route(route: TopicRoute) -> bytes:
    """A route as strict JSON, which every version of the Java client reads."""
    return fastjson.dump_body(
        {
            "brokerDatas": list(map(_broker_json, route.brokers)),
            "filterServerTable": {},
            "orderTopicConf": route.order_topic_conf,
            "queueDatas": list(map(_queue_json, route.queues)),
        }
    )


def parse_cluster_info(body: bytes) -> ClusterInfo:
    """The answer to GET_BROKER_CLUSTER_INFO (106).

    Raises BodyError when there are more brokers or addresses than the limits above.
    """
    data = load_object(body, "cluster info")
    brokers = {
        name: _broker_data({"brokerName": name, **item})
        for name, item in get_table(data, "brokerAddrTable")
    }
    _check_brokers("cluster info", brokers, CLUSTER_BROKERS_MAX, CLUSTER_ADDRESSES_MAX)
    clusters = get_object(data, "clusterAddrTable")
    return ClusterInfo(
        brokers, {name: sorted(get_texts(clusters, name)) for name in clusters}
    )


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """A cluster as JSON; broker ids are quoted, which every version reads."""
    brokers = {name: _broker_json(broker) for name, broker in info.brokers.items()}
    return fastjson.dumps(
        {"brokerAddrTable": brokers, "clusterAddrTable": info.clusters}
    ).encode()


def parse_topic_list(body: bytes) -> list[str]:
    """Topic names as answered to 206, 224, 304, 305 and 343, in the answer's order."""
    return get_texts(load_object(body, "topic list"), "topicList")


def encode_topic_list(
    topics: Iterable[str], *, broker_addr: str | None = None
) -> bytes:
    """A list of topics; `broker_addr` is the broker to ask for the rest (304)."""
    return fastjson.dump_body({"brokerAddr": broker_addr, "topicList": list(topics)})


def _queue_data(data: JsonObject) -> QueueData:
    sys_flag = get_int(data, "topicSysFlag", None)
    if sys_flag is None:
        sys_flag = get_int(data, "topicSynFlag", 0)  # its name up to 4.8.0
    return QueueData(
        broker_name=need_text(data, "brokerName"),
        read_queue_nums=get_queue_nums(data, "readQueueNums"),
        write_queue_nums=get_queue_nums(data, "writeQueueNums"),
        perm=get_int(data, "perm", 0),
        topic_sys_flag=sys_flag,
    )


def _queue_json(queue: QueueData) -> dict[str, object]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        "topicSynFlag": queue.topic_sys_flag,  # its name up to 4.8.0
        "topicSysFlag": queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


def _merge_queues(items: Iterable[QueueData]) -> tuple[QueueData, ...]:
    queues: dict[str, QueueData] = {}
    total = 0
    for item in items:
        total += max(item.read_queue_nums, item.write_queue_nums)
        if total > TOPIC_QUEUES_MAX:
            raise BodyError(f"route with more than {TOPIC_QUEUES_MAX} queues")
        merged = item
        known = queues.get(item.broker_name)
        if known is not None:
            merged = QueueData(
                broker_name=item.broker_name,
                read_queue_nums=max(known.read_queue_nums, item.read_queue_nums),
                write_queue_nums=max(known.write_queue_nums, item.write_queue_nums),
                perm=known.perm | item.perm,
                topic_sys_flag=known.topic_sys_flag | item.topic_sys_flag,
            )
        queues[item.broker_name] = merged
    return tuple(queues.values())


def _check_brokers(
    what: str, brokers: dict[str, BrokerData], brokers_max: int, addresses_max: int
) -> None:
    if len(brokers) > brokers_max:
        raise BodyError(f"{what} with {len(brokers)} brokers, more than {brokers_max}")
    addresses = sum(len(broker.addresses) for broker in brokers.values())
    if addresses > addresses_max:
        raise BodyError(
            f"{what} with {addresses} addresses of brokers, more than {addresses_max}"
        )


def _broker_data(data: JsonObject) -> BrokerData:
    addresses = get_object(data, "brokerAddrs")
    return BrokerData(
        cluster=get_text(data, "cluster") or "",
        broker_name=need_text(data, "brokerName"),
        addresses={
            to_int(broker_id, "broker id"): to_text(address, "broker address")
            for broker_id, address in addresses.items()
            if address is not None
        },
    )


def _broker_json(broker: BrokerData) -> dict[str, object]:
    return {
        "brokerAddrs": {str(k): v for k, v in broker.addresses.items()},
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": False,
    }
