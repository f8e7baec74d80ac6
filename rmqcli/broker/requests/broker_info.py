"""Requests of mqadmin about the broker itself: 25, 26, 28, 43, 45, 315, 321, 328, 907.

They read or set settings, and read the runtime table, statistics, all offsets, entries
of a consume queue, producers, and how far slaves are behind.
Imitated: the keys of the runtime table that tools print, with real values where the
broker has them.
Not imitated: thread pools, page cache and latencies (constants), totals by day and by
hour (zero), filter data of SQL subscriptions, rates and times of replication (zero).

Source: `AdminBrokerProcessor`, its `prepareRuntimeInfo` and
`StoreStatsService.getRuntimeInfo`, and `DefaultHAService.getRuntimeInfo` in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message.copy import look_message
from rmqcli.broker.request import BrokerRequest, Reply, read_config, system_error
from rmqcli.broker.state.stats import FOUND, MISS, PUT, TRANSFERRED
from rmqcli.broker.table_json import delays_json, offsets_json, version_json
from rmqcli.broker.topic_names import SCHEDULE_TOPIC
from rmqcli.wire import fastjson
from rmqcli.wire.bodies import ha
from rmqcli.wire.bodies.broker import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from rmqcli.wire.bodies.config import KVTable
from rmqcli.wire.bodies.consumer import ProducerInfo, ProducerTableInfo
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.admin import ViewBrokerStatsDataRequestHeader
from rmqcli.wire.headers.store import QueryConsumeQueueRequestHeader
from rmqcli.wire.version import V4_9_4, V5_0_0

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now


_BLACK_LIST: Final = frozenset(("brokerConfigPath", "configBlackList"))
_ENTRIES_MAX: Final = 10_000


@handles(RequestCode.UPDATE_BROKER_CONFIG)
def update_config(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_BROKER_CONFIG (25).

    With brokerPermission, the broker registers all its topics anew.
    """
    properties = read_config(
        request, _BLACK_LIST if broker.profile.has_bodies_of_5 else ()
    )
    if properties:
        broker.configuration.update(properties, request.now)
    if "brokerPermission" in properties:
        broker.topics.register_again()
    return Reply()


@handles(RequestCode.GET_BROKER_CONFIG)
def get_config(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_BROKER_CONFIG (26)."""
    configuration = broker.configuration
    lines = [f"{name}={text}\n" for name, text in configuration.properties().items()]
    version = fastjson.dumps(version_json(broker, configuration.data_version))
    return Reply(body="".join(lines).encode(), ext_fields={"version": version})


@handles(RequestCode.GET_BROKER_RUNTIME_INFO)
def get_runtime_info(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_BROKER_RUNTIME_INFO (28)."""
    return Reply(body=encode_body(KVTable(table=runtime_table(broker, request.now))))


@handles(RequestCode.GET_ALL_CONSUMER_OFFSET)
def get_all_offsets(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_ALL_CONSUMER_OFFSET (43)."""
    return Reply(body=encode_body(offsets_json(broker), bare_numbers=True))


@handles(RequestCode.GET_ALL_DELAY_OFFSET)
def get_delay_offsets(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_ALL_DELAY_OFFSET (45)."""
    return Reply(body=encode_body(delays_json(broker), bare_numbers=True))


@handles(RequestCode.VIEW_BROKER_STATS_DATA)
def view_stats(broker: BrokerState, request: BrokerRequest) -> Reply:
    """VIEW_BROKER_STATS_DATA (315): only the last minute is counted."""
    header = request.header(ViewBrokerStatsDataRequestHeader)
    counted = broker.stats.by_name().get(header.stats_name)
    if counted is None or not counted.has(header.stats_key):
        raise system_error(
            f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
        )
    recent = counted.recent(header.stats_key, request.now)
    minute = BrokerStatsItem(
        avgpt=recent.total / recent.times if recent.times else 0.0,
        sum=recent.total,
        tps=recent.tps,
    )
    return Reply(body=encode_body(BrokerStatsData(stats_minute=minute)))


@handles(RequestCode.QUERY_CONSUME_QUEUE)
def get_entries(broker: BrokerState, request: BrokerRequest) -> Reply:
    """QUERY_CONSUME_QUEUE (321)."""
    header = request.header(QueryConsumeQueueRequestHeader)
    topic, queue_id = header.topic or "", header.queue_id
    bounds = broker.store.queue_bounds(topic, queue_id)
    if bounds is None:
        raise system_error(f"{queue_id}@{topic} is not exist!")
    if not broker.profile.shows_consume_queue:
        empty = QueryConsumeQueueResponseBody(min_queue_index=0, max_queue_index=0)
        return Reply(body=encode_body(empty))  # 4.6.0 encodes it before it fills it
    body = QueryConsumeQueueResponseBody(
        min_queue_index=bounds[0], max_queue_index=bounds[1]
    )
    group = header.consumer_group
    if group is not None:
        found = broker.clients.subscription(group, topic)
        body = replace(
            body,
            filter_data="null" if found else f"{group}@{topic} is not online!",
            subscription_data=found,
        )
    count = min(max(0, header.count), _ENTRIES_MAX)
    units = broker.store.units(topic, queue_id, header.index, count)
    if not units:
        remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
        return Reply(remark=remark, body=encode_body(body))
    entries = [
        ConsumeQueueData(
            physic_offset=unit.commit_log_offset,
            physic_size=unit.size_bytes,
            tags_code=unit.tags_code,
        )
        for unit in units
    ]
    return Reply(body=encode_body(replace(body, queue_data=entries)))


@handles(RequestCode.GET_ALL_PRODUCER_INFO, since=V4_9_4)
def get_producers(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_ALL_PRODUCER_INFO (328)."""
    table = {
        group: [
            ProducerInfo(
                client_id=each.client_id,
                language=each.language,
                last_update_timestamp=each.seen.epoch_ms,
                remote_ip=each.peer.address,
                version=each.version,
            )
            for each in broker.clients.producers(group)
        ]
        for group in broker.clients.producer_groups()
    }
    return Reply(body=encode_body(ProducerTableInfo(data=table)))


#: MessageStoreConfig.haMaxGapNotInSync
_IN_SYNC_BYTES: Final = 256 * 1024 * 1024


@handles(RequestCode.GET_BROKER_HA_STATUS, since=V5_0_0)
def get_ha_status(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_BROKER_HA_STATUS (907)."""
    end = broker.store.log_bounds()[1]
    copied = ha.HAClientRuntimeInfo()
    if broker.settings.broker_id:
        copied = ha.HAClientRuntimeInfo(max_offset=end)
        info = ha.HARuntimeInfo(master=False, ha_client_runtime_info=copied)
        return Reply(body=encode_body(info))
    slaves = [
        ha.HAConnectionRuntimeInfo(
            addr=address,
            slave_ack_offset=offset,
            diff=end - offset,
            in_sync=end - offset < _IN_SYNC_BYTES,
        )
        for address, offset in sorted(broker.slaves.items())
    ]
    info = ha.HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=sum(each.in_sync for each in slaves),
        ha_connection_info=slaves,
        ha_client_runtime_info=copied,
    )
    return Reply(body=encode_body(info))


_POOLS: Final = {
    "sendThreadPool": "10000",
    "pullThreadPool": "100000",
    "queryThreadPool": "20000",
}
_POOLS_OF_5: Final = {"litePullThreadPool": "100000", "ackThreadPool": "100000"}
_INTERVALS_S: Final = (10, 60, 600)
_NO_TIMES: Final = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
    "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
)


def runtime_table(broker: BrokerState, now: Now) -> dict[str, str]:
    """The table of 28. All values are text; some names depend on the version."""
    is_5 = broker.profile.has_bodies_of_5
    table = _about_broker(broker, now) | _about_store(broker) | _counters(broker, now)
    table |= _schedule(broker)
    for pool, capacity in (_POOLS | (_POOLS_OF_5 if is_5 else {})).items():
        table[f"{pool}QueueCapacity"] = capacity
        table[f"{pool}QueueSize"] = "0"
        table[f"{pool}QueueHeadWaitTimeMills"] = "0"
    table["EndTransactionQueueSize"] = "0"
    table["EndTransactionThreadPoolQueueCapacity"] = "100000"
    return table


def _about_broker(broker: BrokerState, now: Now) -> dict[str, str]:
    # By the clock that people set, as in StoreStatsService.getFormatRuntime.
    lived_s = max(0, now.epoch_ms - broker.started.epoch_ms) // 1000
    minutes, seconds = divmod(lived_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    table = {
        "bootTimestamp": str(broker.started.epoch_ms),
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, "
        f"{seconds} seconds ]",
        "brokerVersionDesc": "V" + broker.profile.name.replace(".", "_"),
        "startAcceptSendRequestTimeStamp": "0",
    }
    if broker.profile.has_bodies_of_5:
        return table | {
            "brokerActive": "true",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": str(len(broker.timer_messages)),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
    return table | {"brokerVersion": str(broker.profile.version)}


def _about_store(broker: BrokerState) -> dict[str, str]:
    low, high = broker.store.log_bounds()
    earliest = look_message(broker.store, low)
    earliest_ms = -1 if earliest is None else earliest.store_timestamp_ms
    return {
        "commitLogMinOffset": str(low),
        "commitLogMaxOffset": str(high),
        "dispatchBehindBytes": "0",
        "earliestMessageTimeStamp": str(earliest_ms),
        "remainHowManyDataToFlush": "0 B",
        "remainTransientStoreBufferNumbs": "2147483647",
        "pageCacheLockTimeMills": "0",
        "dispatchMaxBuffer": "0",
        "commitLogDirCapacity": "Total : 0 B, Free : 0 B.",
        "commitLogDiskRatio": "0.0",
        "consumeQueueDiskRatio": "0.0",
    }


def _counters(broker: BrokerState, now: Now) -> dict[str, str]:
    stats, is_5 = broker.stats, broker.profile.has_bodies_of_5
    put, got = stats.put_times, stats.got_messages
    transferred = "getTransferredTps" if is_5 else "getTransferedTps"
    table = {
        "putMessageTimesTotal": str(put),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageAverageSize": str(stats.put_bytes / put if put else 0.0),
        "putMessageEntireTimeMax": "0",
        "getMessageEntireTimeMax": "0",
        "putMessageDistributeTime": _NO_TIMES,
        "msgPutTotalYesterdayMorning": "0",
        "msgPutTotalTodayMorning": "0",
        "msgPutTotalTodayNow": str(put),
        "msgGetTotalYesterdayMorning": "0",
        "msgGetTotalTodayMorning": "0",
        "msgGetTotalTodayNow": str(got),
        "putTps": _tps(broker, now, PUT),
        "getFoundTps": _tps(broker, now, FOUND),
        "getMissTps": _tps(broker, now, MISS),
        "getTotalTps": _tps(broker, now, FOUND, MISS),
        transferred: _tps(broker, now, TRANSFERRED),
    }
    if is_5:
        table |= {
            "putMessageFailedTimes": str(stats.put_failed),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
        }
    return table


def _tps(broker: BrokerState, now: Now, *counted: int) -> str:
    """The rates over 10 s, one minute and 10 minutes, separated by spaces."""
    rates = (
        sum(broker.stats.rate(what, interval_s, now) for what in counted)
        for interval_s in _INTERVALS_S
    )
    return " ".join(map(str, rates))


def _schedule(broker: BrokerState) -> dict[str, str]:
    """`offset,maxOffset` of each delay level that has an offset, or messages.

    RocketMQ gives a level its offset as soon as there is a message.
    """
    offsets, table = broker.schedule.offsets, {}
    levels = {n + 1 for topic, n in broker.store.queues() if topic == SCHEDULE_TOPIC}
    for level in sorted(levels.union(offsets)):
        low, high = broker.store.queue_bounds(SCHEDULE_TOPIC, level - 1) or (0, 0)
        table[f"scheduleMessageOffset_{level}"] = f"{offsets.get(level, low)},{high}"
    return table
