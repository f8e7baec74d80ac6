"""Consumer progress, settings and counters, as mqadmin reads them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rmqcli.broker.profiles import PROFILE_4_6_0, PROFILE_5_5_0, VersionProfile
from rmqcli.broker.requests import broker_info
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state import stats
from rmqcli.model import MessageQueue
from rmqcli.store.memory import MemoryStore
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.config import KVTable, TopicConfig
from rmqcli.wire.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GroupListBody,
)
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rmqcli.wire.body import decode_body
from rmqcli.wire.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmqcli.wire.headers.offset import CloneGroupOffsetRequestHeader
from rmqcli.wire.headers.pull import PullMessageRequestHeader
from rmqcli.wire.headers.store import QueryConsumeQueueRequestHeader
from rmqcli.wire.message.encode import MessageFields
from tests.broker.driving import EPOCH_MS, Driver
from tests.broker.sending import send


def filled(profile: VersionProfile = PROFILE_5_5_0) -> Driver:
    """Topic T of two queues; queue 0 has a message each second, four in all.

    Group g has committed 2 there, and pulled to 3.
    """
    driver = Driver(BrokerSettings(profile=profile))
    driver.broker.topics.put(
        TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    )
    driver.broker.groups.find_or_create("g")
    for number in range(4):
        fields = MessageFields(
            topic="T", body=b"x", store_timestamp_ms=EPOCH_MS + 1000 * number
        )
        driver.broker.writer.put([fields], driver.now)
    driver.broker.offsets.commit("g", "T", 0, 2)
    driver.broker.offsets.commit_pull("g", "T", 0, 3)
    return driver


@pytest.mark.parametrize(
    ("profile", "pulled"), [(PROFILE_4_6_0, None), (PROFILE_5_5_0, 3)]
)
def test_consume_stats(profile: VersionProfile, pulled: int | None) -> None:
    driver = filled(profile)
    none = None if pulled is None else 0
    for topic in (None, "T"):
        header = GetConsumeStatsRequestHeader(consumer_group="g", topic=topic)
        answer = driver.ask(208, header)
        assert answer is not None
        assert decode_body(ConsumeStats, bytes(answer.body)).offsets == {
            MessageQueue("T", "broker-a", 0): OffsetWrapper(
                broker_offset=4,
                consumer_offset=2,
                pull_offset=pulled,
                last_timestamp=EPOCH_MS + 1000,
            ),
            MessageQueue("T", "broker-a", 1): OffsetWrapper(
                broker_offset=0, consumer_offset=0, pull_offset=none
            ),
        }


@pytest.mark.parametrize(
    ("group", "topic", "topic_list", "rows"),
    [
        ("h", None, None, 0),
        ("h", "T", None, 2),
        ("g", "U", None, 0),
        ("g", None, "U;T;", 2),
    ],
)
def test_consume_stats_are_never_an_error(
    group: str, topic: str | None, topic_list: str | None, rows: int
) -> None:
    header = GetConsumeStatsRequestHeader(
        consumer_group=group, topic=topic, topic_list=topic_list
    )
    answer = filled().ask(208, header)
    assert answer is not None
    assert answer.code == 0
    assert len(decode_body(ConsumeStats, bytes(answer.body)).offsets) == rows


def test_consume_stats_of_a_whole_broker() -> None:
    answer = filled().ask(317, GetConsumeStatsInBrokerHeader(is_order=False))
    assert answer is not None
    data = fastjson.loads(bytes(answer.body))
    assert isinstance(data, dict)
    assert (data["totalDiff"], data["totalInflightDiff"]) == (2, 1)
    assert data["brokerAddr"] == "127.0.0.1:10911"


def without_texts(span: QueueTimeSpan) -> QueueTimeSpan:
    """Without the local times, which depend on the machine's time zone."""
    return replace(
        span,
        min_time_stamp_str=None,
        max_time_stamp_str=None,
        consume_time_stamp_str=None,
    )


def test_time_spans() -> None:
    driver = filled()
    driver.wait(10_000)
    header = QueryConsumeTimeSpanRequestHeader(topic="T", group="g")
    answer = driver.ask(303, header)
    assert answer is not None
    body = decode_body(QueryConsumeTimeSpanBody, bytes(answer.body))
    assert [without_texts(span) for span in body.consume_time_span_set] == [
        QueueTimeSpan(
            queue=MessageQueue("T", "broker-a", 0),
            min_time_stamp=EPOCH_MS,
            max_time_stamp=EPOCH_MS + 3000,
            consume_time_stamp=EPOCH_MS + 1000,
            delay_time=8_000,
        ),
        QueueTimeSpan(
            queue=MessageQueue("T", "broker-a", 1),
            min_time_stamp=-1,
            max_time_stamp=-1,
            consume_time_stamp=-1,
            delay_time=0,
        ),
    ]


def test_groups_of_a_topic_and_topics_of_a_group() -> None:
    driver = filled()
    groups = driver.ask(300, QueryTopicConsumeByWhoRequestHeader(topic="T"))
    assert groups is not None
    assert decode_body(GroupListBody, bytes(groups.body)).group_list == ["g"]
    topics = driver.ask(343, QueryTopicsByConsumerRequestHeader(group="g"))
    assert topics is not None
    assert json.loads(bytes(topics.body)) == {
        "brokerAddr": "127.0.0.1:10911",
        "topicList": ["T"],
    }


def test_offsets_are_cloned() -> None:
    driver = filled()
    driver.broker.offsets.commit("h", "T", 1, 3)
    answer = driver.ask(
        314,
        CloneGroupOffsetRequestHeader(
            src_group="g", dest_group="h", topic="T", offline=True
        ),
    )
    assert answer is not None
    assert answer.code == 0
    assert driver.broker.offsets.table()["T", "h"] == {0: 2}  # no others stay


@pytest.mark.parametrize("profile", [PROFILE_4_6_0, PROFILE_5_5_0])
def test_offsets_as_a_whole(profile: VersionProfile) -> None:
    driver = filled(profile)
    answer = driver.ask(43)
    assert answer is not None
    assert b'"T@g":{0:2}' in bytes(answer.body)
    assert (b"pullOffsetTable" in bytes(answer.body)) is profile.has_bodies_of_5
    offsets = decode_body(
        ConsumerOffsetSerializeWrapper, bytes(answer.body)
    ).by_group_and_topic()
    assert offsets == {("g", "T"): {0: 2}}
    driver.broker.schedule.offsets.update({2: 5, 1: 17})
    delays = driver.ask(45)
    assert delays is not None
    assert decode_body(
        DelayOffsetSerializeWrapper, bytes(delays.body)
    ).offset_table == {1: 17, 2: 5}


def test_entries_of_a_consume_queue() -> None:
    driver = filled()
    header = QueryConsumeQueueRequestHeader(
        topic="T", queue_id=0, index=1, count=2, consumer_group="h"
    )
    answer = driver.ask(321, header)
    assert answer is not None
    data = json.loads(bytes(answer.body))
    assert (data["minQueueIndex"], data["maxQueueIndex"]) == (0, 4)
    assert data["filterData"] == "h@T is not online!"
    size = driver.store.log_bounds()[1] // 4
    assert data["queueData"] == [
        {"eval": True, "physicOffset": n * size, "physicSize": size, "tagsCode": 0}
        for n in (1, 2)
    ]
    header = QueryConsumeQueueRequestHeader(topic="U", queue_id=0, index=0, count=1)
    missing = driver.ask(321, header)
    assert missing is not None
    assert (missing.code, missing.remark) == (1, "0@U is not exist!")


@pytest.mark.parametrize(
    ("count", "entries"), [(3, 2), (2, 2), (1, 1), (0, None), (-1, None)]
)
def test_one_answer_has_a_limited_number_of_entries_of_a_consume_queue(
    monkeypatch: pytest.MonkeyPatch, count: int, entries: int | None
) -> None:
    monkeypatch.setattr(broker_info, "_ENTRIES_MAX", 2)
    header = QueryConsumeQueueRequestHeader(topic="T", queue_id=0, index=1, count=count)
    answer = filled().ask(321, header)
    assert answer is not None
    if entries is None:
        assert answer.remark == "Index 1 of 0@T is not exist!"
    else:
        assert len(json.loads(bytes(answer.body))["queueData"]) == entries


def test_4_6_0_hides_the_entries_of_a_consume_queue() -> None:
    """It encodes the answer before it fills it."""
    header = QueryConsumeQueueRequestHeader(topic="T", queue_id=0, index=1, count=2)
    answer = filled(PROFILE_4_6_0).ask(321, header)
    assert answer is not None
    assert json.loads(bytes(answer.body)) == {"maxQueueIndex": 0, "minQueueIndex": 0}


def test_the_settings_of_a_request_have_at_most_262144_bytes() -> None:
    longest = Driver().ask(25, body=b"#".ljust(262_144, b"x"))
    assert longest is not None
    assert longest.code == 0
    answer = Driver().ask(25, body=b"#".ljust(262_145, b"x"))
    assert answer is not None
    assert (answer.code, answer.remark) == (
        1,
        "the configuration has 262145 bytes; the maximum is 262144",
    )


def test_settings_on_the_black_list_are_refused() -> None:
    answer = Driver().ask(25, body=b"configBlackList=\n")
    assert answer is not None
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")


@pytest.mark.parametrize(
    ("profile", "name", "transferred"),
    [
        (PROFILE_4_6_0, "V4_6_0", "getTransferedTps"),
        (PROFILE_5_5_0, "V5_5_0", "getTransferredTps"),
    ],
)
def test_runtime_info(profile: VersionProfile, name: str, transferred: str) -> None:
    driver = filled(profile)
    driver.wait(5_000)
    pull = PullMessageRequestHeader(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    assert driver.ask(11, pull) is not None
    answer = driver.ask(28)
    assert answer is not None
    table = decode_body(KVTable, bytes(answer.body)).table
    end = driver.store.log_bounds()[1]
    assert {key: table[key] for key in _EXPECTED} == _EXPECTED | {
        "commitLogMaxOffset": str(end),
        "putMessageSizeTotal": str(end),
        "putMessageAverageSize": str(end / 4),
    }
    assert table["brokerVersionDesc"] == name
    assert table[transferred].split() == ["0.8", "0.8", "0.8"]


_EXPECTED = {
    "bootTimestamp": str(EPOCH_MS),
    "runtime": "[ 0 days, 0 hours, 0 minutes, 5 seconds ]",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": "",
    "putMessageSizeTotal": "",
    "putMessageAverageSize": "",
    "dispatchBehindBytes": "0",
    "earliestMessageTimeStamp": str(EPOCH_MS),
    "putMessageTimesTotal": "4",
    "msgPutTotalTodayNow": "4",
    "msgGetTotalTodayNow": "4",
    "putTps": "0.8 0.8 0.8",
    "getFoundTps": "0.2 0.2 0.2",
    "getMissTps": "0.0 0.0 0.0",
}


def test_refused_puts_are_counted() -> None:
    driver = Driver(store=MemoryStore(capacity_bytes=300))
    codes = [send(driver, body=b"x" * 60).code for _ in range(4)]
    answer = driver.ask(28)
    assert answer is not None
    table = decode_body(KVTable, bytes(answer.body)).table
    failed = int(table["putMessageFailedTimes"])
    assert failed == len([code for code in codes if code]) > 0
    assert table["putMessageTimesTotal"] == str(len(codes) - failed)


def test_rates_count_the_time_since_the_start() -> None:
    driver = filled()
    driver.wait(20_000)
    answer = driver.ask(28)
    assert answer is not None
    table = decode_body(KVTable, bytes(answer.body)).table
    assert table["putTps"] == "0.0 0.2 0.2"


def counted(driver: Driver, topic: str = "T") -> int | None:
    """The messages of a topic in the last minute; None if they are not counted."""
    header = ViewBrokerStatsDataRequestHeader(
        stats_name="TOPIC_PUT_NUMS", stats_key=topic
    )
    answer = driver.ask(315, header)
    assert answer is not None
    if answer.code:
        return None
    total: int = json.loads(bytes(answer.body))["statsMinute"]["sum"]
    return total


def test_the_counters_of_a_topic_are_those_of_the_last_minute() -> None:
    """They move in steps of ten seconds."""
    driver = Driver()
    sums = []
    for _ in range(8):
        send(driver)
        sums.append(counted(driver))
        driver.wait(10_000)
    assert sums == [1, 2, 3, 4, 5, 6, 6, 6]


def test_a_limited_number_of_topics_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_KEYS_MAX", 2)
    driver = Driver()
    for topic in ("T", "U", "V", "U"):
        send(driver, topic)
    assert [counted(driver, topic) for topic in ("T", "U", "V")] == [1, 2, None]


def test_counters_by_name() -> None:
    driver = filled()
    header = ViewBrokerStatsDataRequestHeader(
        stats_name="TOPIC_PUT_NUMS", stats_key="T"
    )
    answer = driver.ask(315, header)
    assert answer is not None
    assert json.loads(bytes(answer.body))["statsMinute"] == {
        "avgpt": 1.0,
        "sum": 4,
        "tps": 4 / 60,
    }
    header = ViewBrokerStatsDataRequestHeader(stats_name="NO", stats_key="T")
    missing = driver.ask(315, header)
    assert missing is not None
    assert (missing.code, missing.remark) == (1, "The stats <NO> <T> not exist")
