"""Sending back: retry topic, growing delay, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.settings import BrokerSettings
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from tests.broker.driving import EPOCH_MS, Driver
from tests.broker.sending import UNIQ_KEY, like, send

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.message.record import StoredMessage

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
#: Delays of the retries 1 to 16, in seconds: levels 3 to 18.
WAITS_S = [
    10,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
]


def send_back(
    driver: Driver,
    message: StoredMessage,
    *,
    delay_level: int = 0,
    times_max: int | None = None,
    group: str = "g",
) -> RemotingCommand:
    """Send a stored message back, and return the answer."""
    answer = driver.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=group,
            delay_level=delay_level,
            max_reconsume_times=times_max,
        ),
    )
    assert answer is not None
    return answer


def sent(driver: Driver) -> StoredMessage:
    """Send a message to queue 2 of T, and return it as it is stored."""
    send(driver, properties={"TAGS": "a", "UNIQ_KEY": UNIQ_KEY}, queue_id=2)
    return driver.messages("T", 2)[-1]


def test_a_failed_message_is_stored_again_for_its_group() -> None:
    driver = Driver()
    original = sent(driver)

    answer = send_back(driver, original, delay_level=1)
    driver.wait(1_000)

    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
    (again,) = driver.messages("%RETRY%g")
    assert again.properties == {
        "TAGS": "a",
        "UNIQ_KEY": UNIQ_KEY,
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "WAIT": "false",
        "DELAY": "1",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert (again.body, again.flag, again.reconsume_times) == (original.body, 0, 1)
    assert again.born_timestamp_ms == original.born_timestamp_ms
    assert again.born_host == original.born_host
    assert again.store_timestamp_ms == EPOCH_MS + 1_000


def test_every_retry_waits_longer_until_the_message_is_dead() -> None:
    driver = Driver()
    message = sent(driver)
    waited_s = []

    for times in range(16):
        send_back(driver, message)
        before_ms = driver.now.epoch_ms
        driver.wait(WAITS_S[times] * 1_000 - 1)
        assert len(driver.messages("%RETRY%g")) == times
        driver.wait(1)
        message = driver.messages("%RETRY%g")[-1]
        waited_s.append((message.store_timestamp_ms - before_ms) // 1000)
        assert message.reconsume_times == times + 1
    send_back(driver, message)

    assert waited_s == WAITS_S
    assert sum(waited_s) == 17_140
    (dead,) = driver.messages("%DLQ%g")
    assert (dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (17, "T")
    assert dead.properties["UNIQ_KEY"] == UNIQ_KEY


def test_expired_messages_come_back_with_level_3() -> None:
    driver = Driver()

    send_back(driver, sent(driver), delay_level=3)

    assert len(driver.messages(SCHEDULE, 2)) == 1
    driver.wait(10_000)
    assert len(driver.messages("%RETRY%g")) == 1


@pytest.mark.parametrize(
    ("version", "perm", "properties"),
    [
        ("4.6.0", 2, {"RETRY_TOPIC": "T", "WAIT": "false"}),
        ("5.5.0", 6, {"RETRY_TOPIC": "T", "WAIT": "false", "DELAY": "0"}),
    ],
)
def test_a_level_below_0_makes_a_dead_letter(
    version: str, perm: int, properties: dict[str, str]
) -> None:
    driver = Driver(like(version))
    original = sent(driver)

    send_back(driver, original, delay_level=-1)

    (dead,) = driver.messages("%DLQ%g")
    if version == "5.5.0":
        properties["ORIGIN_MESSAGE_ID"] = original.offset_msg_id
    added = {k: v for k, v in dead.properties.items() if k not in original.properties}
    assert added == properties
    assert (dead.queue_id, dead.reconsume_times) == (0, 1)
    assert driver.broker.topics.get("%DLQ%g") == TopicConfig(
        topic_name="%DLQ%g", read_queue_nums=1, write_queue_nums=1, perm=perm
    )


def test_the_request_can_limit_the_retries() -> None:
    driver = Driver()
    message = sent(driver)

    send_back(driver, message, delay_level=1, times_max=1)
    driver.wait(1_000)
    send_back(driver, driver.messages("%RETRY%g")[0], delay_level=1, times_max=1)

    assert len(driver.messages("%DLQ%g")) == 1


def test_the_group_can_limit_the_retries_and_their_queues() -> None:
    driver = Driver()
    driver.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=0))
    driver.broker.groups.put(
        SubscriptionGroupConfig(group_name="wide", retry_queue_nums=2)
    )
    message = sent(driver)

    send_back(driver, message)
    for _ in range(3):
        send_back(driver, message, group="wide", delay_level=1)
    driver.wait(1_000)

    assert len(driver.messages("%DLQ%g")) == 1
    counts = [len(driver.messages("%RETRY%wide", each)) for each in (0, 1)]
    assert counts == [2, 1]


def test_a_second_retry_keeps_the_original_topic() -> None:
    driver = Driver()
    original = sent(driver)
    send_back(driver, original, delay_level=1)
    driver.wait(1_000)

    send_back(driver, driver.messages("%RETRY%g")[0], delay_level=2)
    driver.wait(5_000)

    again = driver.messages("%RETRY%g")[1]
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == original.offset_msg_id
    assert again.properties["REAL_TOPIC"] == "%RETRY%g"


def test_level_above_the_highest_is_the_highest() -> None:
    driver = Driver()

    send_back(driver, sent(driver), delay_level=99)

    assert len(driver.messages(SCHEDULE, 17)) == 1


def test_without_retry_queues_the_message_is_lost_silently() -> None:
    driver = Driver()
    driver.broker.groups.put(
        SubscriptionGroupConfig(group_name="g", retry_queue_nums=0)
    )

    assert send_back(driver, sent(driver)).code == 0
    assert list(driver.store.queues()) == [("T", 2)]


@pytest.mark.parametrize("offset", [-1, 1, 999_999])
def test_an_offset_without_a_message_is_code_1(offset: int) -> None:
    driver = Driver()
    sent(driver)
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="g", delay_level=0)

    answer = driver.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    assert answer is not None
    assert (answer.code, answer.remark) == (
        1,
        f"look message by offset failed, {offset}",
    )


def test_unknown_group_is_code_26() -> None:
    driver = Driver(BrokerSettings(auto_create_subscription_group=False))

    assert send_back(driver, sent(driver)).code == 26


def test_retry_topic_that_cannot_be_written_is_code_16() -> None:
    driver = Driver()
    driver.broker.topics.put(TopicConfig(topic_name="%RETRY%g", perm=4))

    assert send_back(driver, sent(driver)).code == 16


def test_full_store_is_code_1_as_with_rocketmq() -> None:
    driver = Driver(store=MemoryStore(capacity_bytes=300))
    message = sent(driver)

    answer = send_back(driver, message)

    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")
