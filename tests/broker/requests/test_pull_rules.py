"""Rules of pulling: checks, offsets, filters and holds, one behaviour in each test."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.codes import RequestCode
from tests.broker.driving import CLIENT
from tests.broker.pulling import (
    SUBSCRIPTION,
    SUSPEND,
    driver_with_topic,
    hold,
    offsets,
    outcome,
    pull,
    put,
)

OTHER = Peer(2, "127.0.0.1:40002")

#: What can be wrong with a pull, in the order in which the broker checks it.
FAULTS: list[tuple[str, dict[str, Any], int]] = [
    ("group", {"consumer_group": "unknown"}, 26),
    ("group may not consume", {"consumer_group": "dead"}, 16),
    ("topic", {"topic": "unknown"}, 17),
    ("topic not readable", {"topic": "W"}, 16),
    ("queue", {"queue_id": 9}, 29),
    ("subscription", {"expression_type": "SQL92", "subscription": ""}, 23),
    ("kind of filter", {"expression_type": "SQL92", "subscription": "n > 1"}, 1),
    ("offset", {"queue_offset": 9}, 21),
]


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=[name for name, *_ in FAULTS])
def test_checks_come_in_order_before_the_store_is_read(first):
    settings = BrokerSettings(auto_create_subscription_group=False)
    driver = driver_with_topic(settings)
    driver.broker.topics.put(TopicConfig(topic_name="W", perm=2))
    for group, may_consume in (("g", True), ("dead", False)):
        config = SubscriptionGroupConfig(group_name=group, consume_enable=may_consume)
        driver.broker.groups.put(config)
    put(driver, "A")
    changes: dict[str, Any] = {}
    for _, change, _ in FAULTS[first:]:
        changes = {**change, **changes}
    assert pull(driver, **changes).code == FAULTS[first][2]


def test_each_queue_of_each_topic_has_its_own_offsets():
    driver = driver_with_topic()
    driver.broker.topics.put(TopicConfig(topic_name="U"))
    put(driver, "A", "B", "C")
    put(driver, "A", queue_id=1)
    assert outcome(pull(driver)) == (0, "FOUND", 3)
    assert outcome(pull(driver, queue_id=1)) == (0, "FOUND", 1)
    assert outcome(pull(driver, topic="U")) == (19, "NO_MESSAGE_IN_QUEUE", 0)


@pytest.mark.parametrize(
    ("tags", "offset", "found", "next_begin"),
    [
        ("*", 1, [1, 2, 3], 4),
        ("*", 3, [3], 4),
        ("A", 0, [0, 2], 4),
        ("B", 2, [3], 4),
        ("Z", 1, [], 4),
    ],
)
def test_an_offset_is_a_place_in_the_queue(tags, offset, found, next_begin):
    """Messages that match are added to the answer, others are passed over."""
    driver = driver_with_topic()
    put(driver, "A", "B", "A", "B")
    answer = pull(driver, queue_offset=offset, subscription=tags)
    assert offsets(answer) == found
    assert answer.ext_fields["nextBeginOffset"] == str(next_begin)


def test_the_next_offset_is_after_the_last_message_of_the_answer():
    driver = driver_with_topic()
    put(driver, "A", "B", "A", "B", "A")
    answer = pull(driver, subscription="A", max_msg_nums=2)
    assert (offsets(answer), outcome(answer)) == ([0, 2], (0, "FOUND", 3))


def test_an_answer_has_the_records_of_the_log():
    driver = driver_with_topic()
    put(driver, "A", body_bytes=10)
    put(driver, "A", queue_id=1)
    put(driver, "A", body_bytes=1_000)
    first, second = driver.store.units("T", 0, 0, 2)
    assert second.commit_log_offset > first.commit_log_offset + first.size_bytes
    assert pull(driver).body == b"".join(
        driver.store.read(unit.commit_log_offset, unit.size_bytes) or b""
        for unit in (first, second)
    )


def test_a_held_pull_does_not_block_its_client():
    driver = driver_with_topic()
    put(driver, "A", queue_id=1)
    hold(driver)
    assert offsets(pull(driver, queue_id=1)) == [0]
    answer = driver.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer is not None
    assert answer.code == 0
    assert len(driver.broker.holds) == 1


def test_a_pull_without_messages_is_held_for_15_s():
    driver = driver_with_topic()
    hold(driver, suspend_timeout_millis=15_000)
    driver.wait(14_999)
    assert driver.sent[CLIENT.number] == []
    driver.wait(5_001)  # the next check sees that the time is over
    (answer,) = driver.sent[CLIENT.number]
    assert outcome(answer) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_a_message_that_arrives_during_the_hold_is_the_answer():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, peer=OTHER, queue_id=1)
    driver.wait(7_000)
    put(driver, "A")
    (answer,) = driver.sent[CLIENT.number]
    assert (outcome(answer), offsets(answer)) == ((0, "FOUND", 1), [0])
    driver.wait(13_000)
    (answer,) = driver.sent[OTHER.number]
    assert outcome(answer) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_a_pull_woken_without_a_match_is_not_held_again():
    driver = driver_with_topic()
    put(driver, "B")
    hold(driver, queue_offset=1, subscription="A", suspend_timeout_millis=0)
    put(driver, "B")  # arrives, and does not match
    driver.wait(5_000)
    (answer,) = driver.sent[CLIENT.number]
    assert outcome(answer) == (20, "NO_MATCHED_MESSAGE", 2)
    assert len(driver.broker.holds) == 0


@pytest.mark.parametrize(
    ("topic", "offset", "expected"),
    [
        ("EMPTY", 0, (19, "NO_MESSAGE_IN_QUEUE", 0)),  # legal: the queue ends at 0
        ("EMPTY", 3, (21, "NO_MESSAGE_IN_QUEUE", 0)),
        ("T", 0, (21, "OFFSET_TOO_SMALL", 1)),
        ("T", 3, (21, "OFFSET_OVERFLOW_BADLY", 2)),
    ],
)
def test_illegal_offsets_are_corrected(topic, offset, expected):
    driver = driver_with_topic()
    driver.broker.topics.put(TopicConfig(topic_name="EMPTY"))
    put(driver, "A", "B")
    driver.store.trim("T", 1)
    asked = {"topic": topic, "queue_offset": offset}
    assert outcome(pull(driver, **asked)) == expected
    if expected[0] == 21:  # it is answered at once, even if the pull may be held
        asked["sys_flag"] = SUBSCRIPTION | SUSPEND
        assert outcome(pull(driver, **asked)) == expected
