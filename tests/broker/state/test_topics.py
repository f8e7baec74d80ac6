"""A broker's topics: its own, loaded ones, created ones."""

from __future__ import annotations

import pytest

from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.topic_names import is_system_topic, topic_name_fault
from rmqcli.wire.bodies.config import TopicConfig
from tests.broker.driving import Driver
from tests.broker.sending import like

#: name -> queues and permission, as topics.json of a fresh broker has them.
OF_4_6 = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
}
OF_5_5 = {
    **OF_4_6,
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "rmq_sys_wheel_timer": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
}


@pytest.mark.parametrize(
    ("version", "expected"), [("4.6.0", OF_4_6), ("5.5.0", OF_5_5)]
)
def test_topics_of_a_fresh_broker(
    version: str, expected: dict[str, tuple[int, int]]
) -> None:
    topics = Driver(like(version)).broker.topics.all()

    found = {
        name: (config.write_queue_nums, config.perm) for name, config in topics.items()
    }
    assert found == expected
    assert all(
        config.read_queue_nums == config.write_queue_nums for config in topics.values()
    )


def test_each_change_counts_up_the_data_version_before_it_is_reported() -> None:
    counters: list[int] = []
    driver = Driver(
        on_topics_changed=lambda: counters.append(
            driver.broker.topics.data_version.counter
        )
    )
    topics = driver.broker.topics

    topics.put(TopicConfig(topic_name="T"))
    assert topics.delete("T")
    assert not topics.delete("T")

    assert counters == [1, 2]
    assert topics.get("T") is None


def test_what_was_stored_wins_over_what_is_built_in() -> None:
    topics = Driver().broker.topics

    topics.load([TopicConfig(topic_name="TBW102", write_queue_nums=2, perm=6)])

    found = topics.get("TBW102")
    assert found is not None
    assert (found.write_queue_nums, found.perm) == (2, 6)


def test_default_topic_loses_its_inherit_bit_for_ever_with_creation_off() -> None:
    driver = Driver()
    on = driver.broker.settings
    driver.broker.settings = BrokerSettings(auto_create_topic_enable=False)
    assert driver.broker.topics.create_in_send("T", "TBW102", 4) is None

    driver.broker.settings = on

    assert driver.broker.topics.create_in_send("T", "TBW102", 4) is None
    kept = driver.broker.topics.get("TBW102")
    assert kept is not None
    assert (kept.perm, kept.write_queue_nums) == (6, 8)


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8), (-3, 0)])
def test_a_new_topic_has_the_fewer_of_both_queue_numbers(asked: int, made: int) -> None:
    created = Driver().broker.topics.create_in_send("T", "TBW102", asked)

    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums) == (made, made)
    assert created.perm == 6, "no topic inherits from it in turn"


@pytest.mark.parametrize(
    ("topic", "is_good"),
    [("T", True), ("%RETRY%a|b-c_9", True), ("a.b", False), ("", False), ("é", False)],
)
def test_names(topic: str, is_good: bool) -> None:  # from the table
    assert (topic_name_fault(topic) is None) == is_good


@pytest.mark.parametrize(
    ("topic", "is_system"),
    [("TBW102", True), ("rmq_sys_x", True), ("%RETRY%g", False), ("T", False)],
)
def test_system_topics(topic: str, is_system: bool) -> None:
    assert is_system_topic(topic) == is_system
