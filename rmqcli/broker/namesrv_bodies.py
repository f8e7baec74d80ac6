"""Routes and clusters as name servers of each version write them.

The legacy form has broker ids as bare keys: `{"brokerAddrs":{0:"10.0.0.1:10911"}}`.

Source: `ClientRequestProcessor`, `TopicRouteData`, `ClusterInfo` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.fastjson import ObjectKey

if TYPE_CHECKING:
    from rmqcli.broker.manners import Manners
    from rmqcli.model import BrokerData, QueueData, TopicRoute


def route_body(route: TopicRoute, manners: Manners, *, is_strict: bool) -> bytes:
    """The answer to 105."""
    brokers = [_broker(each, manners, is_strict=is_strict) for each in route.brokers]
    return fastjson.dump_body(
        {
            "brokerDatas": brokers,
            "filterServerTable": {},
            "queueDatas": [_queue(each, manners) for each in route.queues],
        }
    )


def cluster_body(
    brokers: dict[str, BrokerData], clusters: dict[str, list[str]], manners: Manners
) -> bytes:
    """The answer to 106: in the legacy form, whoever asks."""
    table = {
        name: _broker(each, manners, is_strict=False) for name, each in brokers.items()
    }
    return fastjson.dump_body({"brokerAddrTable": table, "clusterAddrTable": clusters})


def _broker(
    broker: BrokerData, manners: Manners, *, is_strict: bool
) -> dict[str, object]:
    key = str if is_strict else ObjectKey
    data: dict[str, object] = {
        "brokerAddrs": {key(i): address for i, address in broker.addresses.items()},
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }
    if manners.has_acting_master:
        data["enableActingMaster"] = False
    return data


def _queue(queue: QueueData, manners: Manners) -> dict[str, object]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        manners.topic_sys_flag_name: queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }
