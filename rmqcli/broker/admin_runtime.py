"""The table of GET_BROKER_RUNTIME_INFO (28): all values are text.

Source: `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService.getRuntimeInfo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.stats import FOUND, MISS, PUT, TRANSFERRED
from rmqcli.broker.topic_table import SCHEDULE_TOPIC
from rmqcli.wire.message import decode_messages
from rmqcli.wire.message_record import StoredMessage

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.now import Now

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


def runtime_table(broker: Broker, now: Now) -> dict[str, str]:
    """Name to value, as the broker's version names them."""
    is_5 = broker.manners.has_bodies_of_5
    table = _about_broker(broker, now) | _about_store(broker) | _counters(broker, now)
    table |= _schedule(broker)
    for pool, capacity in (_POOLS | (_POOLS_OF_5 if is_5 else {})).items():
        table[f"{pool}QueueCapacity"] = capacity
        table[f"{pool}QueueSize"] = "0"
        table[f"{pool}QueueHeadWaitTimeMills"] = "0"
    table["EndTransactionQueueSize"] = "0"
    table["EndTransactionThreadPoolQueueCapacity"] = "100000"
    return table


def _about_broker(broker: Broker, now: Now) -> dict[str, str]:
    lived_s = (now.monotonic_ms - broker.started.monotonic_ms) // 1000
    minutes, seconds = divmod(lived_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    table = {
        "bootTimestamp": str(broker.started.epoch_ms),
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, "
        f"{seconds} seconds ]",
        "brokerVersionDesc": "V" + broker.manners.name.replace(".", "_"),
        "startAcceptSendRequestTimeStamp": "0",
    }
    if broker.manners.has_bodies_of_5:
        return table | {
            "brokerActive": "true",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
    return table | {"brokerVersion": str(broker.manners.version)}


def _about_store(broker: Broker) -> dict[str, str]:
    low, high = broker.store.log_bounds()
    return {
        "commitLogMinOffset": str(low),
        "commitLogMaxOffset": str(high),
        "dispatchBehindBytes": "0",
        "earliestMessageTimeStamp": str(_earliest_ms(broker, low)),
        "remainHowManyDataToFlush": "0 B",
        "remainTransientStoreBufferNumbs": "2147483647",
        "pageCacheLockTimeMills": "0",
        "dispatchMaxBuffer": "0",
        "commitLogDirCapacity": "Total : 0 B, Free : 0 B.",
        "commitLogDiskRatio": "0.0",
        "consumeQueueDiskRatio": "0.0",
    }


def _earliest_ms(broker: Broker, low: int) -> int:
    record = broker.store.message_at(low)
    for message in decode_messages(record or b""):
        if isinstance(message, StoredMessage):
            return message.store_timestamp_ms
    return -1


def _counters(broker: Broker, now: Now) -> dict[str, str]:
    stats, is_5 = broker.stats, broker.manners.has_bodies_of_5
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


def _tps(broker: Broker, now: Now, *counted: int) -> str:
    """Over 10 s, a minute and 10 minutes."""
    rates = (
        sum(broker.stats.rate(what, interval_s, now) for what in counted)
        for interval_s in _INTERVALS_S
    )
    return " ".join(map(str, rates))


def _schedule(broker: Broker) -> dict[str, str]:
    """`offset,max` of each delay level that was ever delivered."""
    table: dict[str, str] = {}
    for level, offset in sorted(broker.schedule.offsets.items()):
        _, high = broker.store.queue_bounds(SCHEDULE_TOPIC, level - 1) or (0, 0)
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{high}"
    return table
