"""Bodies of name servers' answers: routes, the cluster, and lists of topics.

A name server is not trusted: counts are checked here; addresses are kept unchanged and
are checked before a connection to them is made. `parse_topic_route` and
`parse_cluster_info` turn the declarations into the values of `model`.

Source: TopicRouteData, QueueData, BrokerData, ClusterInfo and TopicList in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli import model
from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError, StaticTopicError
from rmqcli.model import QUEUE_NUMS_MAX, TOPIC_QUEUES_MAX
from rmqcli.wire.body import Body, decode_body, to_int
from rmqcli.wire.fields import declared, wire_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.wire.fastjson import JsonValue

#: Most brokers of one topic, and addresses of them: a consumer connects to all.
ROUTE_BROKERS_MAX = 1_024
ROUTE_ADDRESSES_MAX = 4_096
#: The same limits for all clusters that a name server knows.
CLUSTER_BROKERS_MAX = 4_096
CLUSTER_ADDRESSES_MAX = 16_384


def _read_queue_nums(value: JsonValue, name: str) -> int:
    number = to_int(value, name)
    if not 0 <= number <= QUEUE_NUMS_MAX:
        raise BodyError(f"{name} {number} is not in 0..{QUEUE_NUMS_MAX}")
    return number


@declared
class QueueDataBody(Body):
    """The queue counts and the permissions of a topic in one broker group."""

    broker_name: str
    read_queue_nums: int = wire_field(default=0, read=_read_queue_nums)
    write_queue_nums: int = wire_field(default=0, read=_read_queue_nums)
    perm: int = 0
    topic_syn_flag: int | None = None  # the name of topic_sys_flag up to 4.8.0
    topic_sys_flag: int | None = None


@declared
class BrokerDataBody(Body):
    """One broker group: broker id -> address."""

    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    cluster: str = ""
    enable_acting_master: bool | None = None  # 5.0


@declared
class TopicRouteData(Body):
    """The answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    broker_datas: list[BrokerDataBody] = field(default_factory=list)
    filter_server_table: dict[str, object] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueDataBody] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, object] | None = None  # 5.0


@declared
class ClusterInfoData(Body):
    """The answer to GET_BROKER_CLUSTER_INFO (106). Java's name: ClusterInfo."""

    broker_addr_table: dict[str, BrokerDataBody] = wire_field(
        default_factory=dict, key="brokerName"
    )
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@declared
class TopicListBody(Body):
    """Topic names: the answer to 206, 224, 304, 305 and 343.

    `broker_addr` is the broker to ask for the rest (304).
    """

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Every broker group by name, and the names of each cluster's groups, sorted."""

    brokers: dict[str, model.BrokerData]
    clusters: dict[str, list[str]]


def parse_topic_route(topic: str, body: bytes) -> model.TopicRoute:
    """Return the route in an answer to GET_ROUTEINFO_BY_TOPIC.

    Entries with the same broker name become one: with the larger counts, because Java's
    consumers put queues in a set, and with the first of two addresses for one id.
    Raises BodyError when a count is not in 0..65535, or there are more queues, brokers
    or addresses than the limits above, and StaticTopicError for a static topic: its
    queues move between brokers, are numbered across all of them, and their offsets jump
    by up to 10,000 with each move. 5.5.0 serves such a topic by the numbers of this
    mapping in some requests and by its own numbers in others.
    """
    data = decode_body(TopicRouteData, body)
    if data.topic_queue_mapping_by_broker:
        raise StaticTopicError.of(topic)
    brokers: dict[str, model.BrokerData] = {}
    for item in data.broker_datas:
        broker = _broker(item)
        seen = brokers.get(broker.broker_name)
        if seen is not None:
            broker.addresses.update(seen.addresses)
        brokers[broker.broker_name] = broker
    _check_brokers("route", brokers, ROUTE_BROKERS_MAX, ROUTE_ADDRESSES_MAX)
    return model.TopicRoute(
        topic=topic,
        brokers=tuple(brokers.values()),
        queues=_merge_queues(data.queue_datas),
        order_topic_conf=data.order_topic_conf or None,
    )


def parse_cluster_info(body: bytes) -> ClusterInfo:
    """Return the cluster in an answer to GET_BROKER_CLUSTER_INFO.

    Raises BodyError when there are more brokers or addresses than the limits above.
    """
    data = decode_body(ClusterInfoData, body)
    brokers = {name: _broker(item) for name, item in data.broker_addr_table.items()}
    _check_brokers("cluster info", brokers, CLUSTER_BROKERS_MAX, CLUSTER_ADDRESSES_MAX)
    clusters = data.cluster_addr_table.items()
    return ClusterInfo(brokers, {name: sorted(names) for name, names in clusters})


def _broker(data: BrokerDataBody) -> model.BrokerData:
    return model.BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        addresses=data.broker_addrs,
        enable_acting_master=bool(data.enable_acting_master),
    )


def _merge_queues(items: Iterable[QueueDataBody]) -> tuple[model.QueueData, ...]:
    queues: dict[str, model.QueueData] = {}
    total = 0
    for item in items:
        total += max(item.read_queue_nums, item.write_queue_nums)
        if total > TOPIC_QUEUES_MAX:
            raise BodyError(f"route with more than {TOPIC_QUEUES_MAX} queues")
        read, write, perm = item.read_queue_nums, item.write_queue_nums, item.perm
        flag = item.topic_sys_flag
        if flag is None:
            flag = item.topic_syn_flag or 0
        seen = queues.get(item.broker_name)
        if seen is not None:
            read = max(seen.read_queue_nums, read)
            write = max(seen.write_queue_nums, write)
            perm |= seen.perm
            flag |= seen.topic_sys_flag
        queues[item.broker_name] = model.QueueData(
            broker_name=item.broker_name,
            read_queue_nums=read,
            write_queue_nums=write,
            perm=perm,
            topic_sys_flag=flag,
        )
    return tuple(queues.values())


def _check_brokers(
    what: str,
    brokers: Mapping[str, model.BrokerData],
    brokers_max: int,
    addresses_max: int,
) -> None:
    if len(brokers) > brokers_max:
        raise BodyError(f"{what} with {len(brokers)} brokers, more than {brokers_max}")
    addresses = sum(len(broker.addresses) for broker in brokers.values())
    if addresses > addresses_max:
        raise BodyError(
            f"{what} with {addresses} addresses of brokers, more than {addresses_max}"
        )
