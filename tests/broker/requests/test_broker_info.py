"""What a broker tells of itself: its table of values (28)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.admin import ViewBrokerStatsDataRequestHeader
from tests.broker.driving import EPOCH_MS, Driver, need
from tests.broker.pulling import driver_with_topic, pull, put
from tests.broker.sending import like, send


def runtime(driver) -> dict[str, str]:
    answer = need(driver.ask(RequestCode.GET_BROKER_RUNTIME_INFO))
    table: dict[str, Any] = json.loads(bytes(answer.body))["table"]
    return table


def part(table, *names):
    return {name: table[name] for name in names}


def test_a_new_broker_has_counted_nothing():
    table = runtime(Driver())
    assert part(
        table,
        "putMessageTimesTotal",
        "putMessageAverageSize",
        "earliestMessageTimeStamp",
        "commitLogMinOffset",
        "commitLogMaxOffset",
        "putTps",
        "runtime",
    ) == {
        "putMessageTimesTotal": "0",
        "putMessageAverageSize": "0.0",
        "earliestMessageTimeStamp": "-1",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": "0",
        "putTps": "0.0 0.0 0.0",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
    }
    assert not any(name.startswith("scheduleMessageOffset_") for name in table)


def test_messages_are_counted_and_rates_are_of_the_last_seconds():
    driver = Driver()
    driver.wait(1_000)
    for _ in range(3):
        send(driver)
    low, high = driver.store.log_bounds()
    driver.wait(99_000)
    for _ in range(6):
        send(driver)
    _, end = driver.store.log_bounds()
    table = runtime(driver)
    assert part(
        table,
        "bootTimestamp",
        "runtime",
        "earliestMessageTimeStamp",
        "commitLogMaxOffset",
        "putMessageTimesTotal",
        "putMessageSizeTotal",
        "putMessageAverageSize",
        "msgPutTotalTodayNow",
        "putTps",
        "putMessageFailedTimes",
    ) == {
        "bootTimestamp": str(EPOCH_MS),
        "runtime": "[ 0 days, 0 hours, 1 minutes, 40 seconds ]",
        "earliestMessageTimeStamp": str(EPOCH_MS + 1_000),
        "commitLogMaxOffset": str(end),
        "putMessageTimesTotal": "9",
        "putMessageSizeTotal": str(end),
        "putMessageAverageSize": str(end / 9),
        "msgPutTotalTodayNow": "9",
        "putTps": "0.6 0.1 0.09",
        "putMessageFailedTimes": "0",
    }
    assert (low, high) == (0, end // 3)
    driver.wait(9_999)
    assert runtime(driver)["putTps"].split()[0] == "0.6"
    driver.wait(1)
    assert runtime(driver)["putTps"].split()[0] == "0.0"
    driver.wait(93_600_000)
    assert runtime(driver)["runtime"] == ("[ 1 days, 2 hours, 1 minutes, 50 seconds ]")


def test_delay_levels_have_their_offset_and_the_end_of_their_queue():
    driver = Driver()
    for level in ("2", "2", "3"):
        send(driver, properties={"DELAY": level})
    driver.wait(5_000)
    send(driver, properties={"DELAY": "2"})
    table = runtime(driver)
    found = {k: v for k, v in table.items() if k.startswith("scheduleMessageOffset_")}
    assert found == {
        "scheduleMessageOffset_2": "2,3",
        "scheduleMessageOffset_3": "0,1",
    }


@pytest.mark.parametrize(
    ("version", "shown", "transferred"),
    [
        ("4.6.0", {"brokerVersionDesc": "V4_6_0"}, "getTransferedTps"),
        ("4.9.7", {"brokerVersionDesc": "V4_9_7"}, "getTransferedTps"),
        (
            "5.5.0",
            {"brokerVersionDesc": "V5_5_0", "brokerActive": "true"},
            "getTransferredTps",
        ),
    ],
)
def test_names_are_those_of_the_version(version, shown, transferred):
    table = runtime(Driver(like(version)))
    assert part(table, *shown) == shown
    assert transferred in table
    assert ("brokerVersion" in table) == (version != "5.5.0")
    assert ("ackThreadPoolQueueSize" in table) == (version == "5.5.0")
    assert table["sendThreadPoolQueueCapacity"] == "10000"


def minute(driver, name, key):
    """Sum, average and rate of a key over the last minute; None if it is unknown."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    answer = need(driver.ask(RequestCode.VIEW_BROKER_STATS_DATA, header))
    if answer.code:
        assert answer.remark == f"The stats <{name}> <{key}> not exist"
        return None
    found = json.loads(bytes(answer.body))["statsMinute"]
    return found["sum"], found["avgpt"], found["tps"]


def test_pulls_are_counted_with_and_without_messages():
    driver = driver_with_topic()
    put(driver, "A", "B", "C")
    pull(driver)
    pull(driver, queue_offset=3)
    table = runtime(driver)
    assert part(
        table,
        "msgGetTotalTodayNow",
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferredTps",
    ) == {
        "msgGetTotalTodayNow": "3",
        "getFoundTps": "1.0 1.0 1.0",
        "getMissTps": "1.0 1.0 1.0",
        "getTotalTps": "2.0 2.0 2.0",
        "getTransferredTps": "3.0 3.0 3.0",
    }
    assert minute(driver, "TOPIC_PUT_NUMS", "T") == (3, 1.0, 0.05)
    assert minute(driver, "GROUP_GET_NUMS", "T@g") == (3, 3.0, 0.05)
    size = driver.store.log_bounds()[1]
    assert minute(driver, "TOPIC_PUT_SIZE", "T") == (size, size / 3, size / 60)
    assert minute(driver, "GROUP_GET_SIZE", "T@g") == (size, size, size / 60)
    assert minute(driver, "TOPIC_PUT_NUMS", "U") is None
    assert minute(driver, "odd", "T") is None
    driver.wait(59_999)
    put(driver, "D")
    assert minute(driver, "TOPIC_PUT_NUMS", "T") == (4, 1.0, 4 / 60)
    driver.wait(1)
    assert minute(driver, "TOPIC_PUT_NUMS", "T") == (1, 1.0, 1 / 60)
    assert minute(driver, "GROUP_GET_NUMS", "T@g") == (0, 0.0, 0.0)
