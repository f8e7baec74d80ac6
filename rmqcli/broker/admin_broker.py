"""The broker itself for mqadmin: settings, counters, offsets as a whole, entries.

Imitated: the keys of the runtime table that tools print, with real values where there
are any. Not imitated: thread pools, page cache and latencies (constants), totals by
day (zero), filter data of SQL subscriptions.

Source: `AdminBrokerProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker import java_json
from rmqcli.broker.admin_runtime import runtime_table
from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.table_json import delays_json, offsets_json, version_json
from rmqcli.wire import fastjson
from rmqcli.wire.bodies_config import encode_kv_table, parse_properties_text
from rmqcli.wire.bodies_subscription import subscription_json
from rmqcli.wire.codes import ResponseCode, language_name
from rmqcli.wire.headers_admin import ViewBrokerStatsDataRequestHeader
from rmqcli.wire.headers_store import QueryConsumeQueueRequestHeader

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Request
    from rmqcli.broker.stats import Recent

_CONFIG_BYTES_MAX: Final = 256 * 1024
_ENTRIES_MAX: Final = 10_000


def update_config(broker: Broker, request: Request) -> Reply:
    """UPDATE_BROKER_CONFIG (25)."""
    body = bytes(request.command.body)
    if len(body) > _CONFIG_BYTES_MAX:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"configuration of {len(body)} bytes, not <= {_CONFIG_BYTES_MAX}",
        )
    properties = parse_properties_text(body)
    if broker.manners.has_bodies_of_5 and (
        properties.keys() & {"brokerConfigPath", "configBlackList"}
    ):
        raise Refusal(
            ResponseCode.NO_PERMISSION, "Can not update config in black list."
        )
    if properties:
        broker.configuration.update(properties, request.now)
    return Reply()


def get_config(broker: Broker, _: Request) -> Reply:
    """GET_BROKER_CONFIG (26)."""
    configuration = broker.configuration
    lines = [f"{name}={text}\n" for name, text in configuration.properties().items()]
    version = fastjson.dumps(version_json(broker, configuration.data_version))
    return Reply(body="".join(lines).encode(), ext_fields={"version": version})


def get_runtime_info(broker: Broker, request: Request) -> Reply:
    """GET_BROKER_RUNTIME_INFO (28)."""
    return Reply(body=encode_kv_table(runtime_table(broker, request.now)))


def get_all_offsets(broker: Broker, _: Request) -> Reply:
    """GET_ALL_CONSUMER_OFFSET (43)."""
    return Reply(body=java_json.dumps(offsets_json(broker)).encode())


def get_delay_offsets(broker: Broker, _: Request) -> Reply:
    """GET_ALL_DELAY_OFFSET (45)."""
    return Reply(body=java_json.dumps(delays_json(broker)).encode())


def view_stats(broker: Broker, request: Request) -> Reply:
    """VIEW_BROKER_STATS_DATA (315): the last minute is counted, longer ones are not."""
    header = request.header(ViewBrokerStatsDataRequestHeader)
    counted = broker.stats.by_name().get(header.stats_name)
    if counted is None or not counted.has(header.stats_key):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
        )
    recent = counted.recent(header.stats_key, request.now)
    none = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    data = {"statsDay": none, "statsHour": none, "statsMinute": _stats_json(recent)}
    return Reply(body=fastjson.dumps(data).encode())


def _stats_json(recent: Recent) -> dict[str, float]:
    mean = recent.total / recent.times if recent.times else 0.0
    return {"avgpt": mean, "sum": recent.total, "tps": recent.tps}


def get_entries(broker: Broker, request: Request) -> Reply:
    """QUERY_CONSUME_QUEUE (321)."""
    header = request.header(QueryConsumeQueueRequestHeader)
    topic, queue_id = header.topic or "", header.queue_id
    bounds = broker.store.queue_bounds(topic, queue_id)
    if bounds is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    data: dict[str, object] = {"minQueueIndex": bounds[0], "maxQueueIndex": bounds[1]}
    if header.consumer_group is not None:
        found = broker.clients.subscription(header.consumer_group, topic)
        if found is None:
            data["filterData"] = f"{header.consumer_group}@{topic} is not online!"
        else:
            data["filterData"] = "null"
            data["subscriptionData"] = subscription_json(found)
    count = min(max(0, header.count), _ENTRIES_MAX)
    units = broker.store.units(topic, queue_id, header.index, count)
    if not units:
        remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
        return Reply(remark=remark, body=fastjson.dumps(data).encode())
    data["queueData"] = [
        {
            "eval": True,
            "physicOffset": unit.commit_log_offset,
            "physicSize": unit.size_bytes,
            "tagsCode": unit.tags_code,
        }
        for unit in units
    ]
    return Reply(body=fastjson.dumps(data).encode())


def get_producers(broker: Broker, _: Request) -> Reply:
    """GET_ALL_PRODUCER_INFO (328)."""
    table = {
        group: [
            {
                "clientId": each.client_id,
                "language": language_name(each.language),
                "lastUpdateTimestamp": each.seen.epoch_ms,
                "remoteIP": each.peer.address,
                "version": each.version,
            }
            for each in broker.clients.producers(group)
        ]
        for group in broker.clients.producer_groups()
    }
    return Reply(body=fastjson.dumps({"data": table}).encode())
