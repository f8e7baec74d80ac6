"""Pulls that the table of behaviour cannot test on a real broker in a short time."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.profiles import profile_of
from rmqcli.broker.settings import BrokerSettings
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.offset import QueryConsumerOffsetRequestHeader
from tests.broker.pulling import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    driver_with_topic,
    offsets,
    outcome,
    pull,
    put,
)
from tests.kit.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.store.message_store import QueueUnit

VERSIONS = ["4.6.0", "4.9.7", "5.5.0"]


def trimmed(version="5.5.0"):
    """T has one message left, at 3."""
    driver = driver_with_topic(BrokerSettings(profile=profile_of(version)))
    put(driver, "A", "B", "C", "D")
    driver.store.trim("T", 3)
    return driver


@each_row("version", VERSIONS)
@each_row(
    ("offset", "expected"),
    [
        (0, (21, "OFFSET_TOO_SMALL", 3)),
        (2, (21, "OFFSET_TOO_SMALL", 3)),
        (3, (0, "FOUND", 4)),
        (4, (19, "OFFSET_OVERFLOW_ONE", 4)),
        (9, (21, "OFFSET_OVERFLOW_BADLY", 4)),  # 4.6.0 too, as min > 0
    ],
)
def test_pull_offsets_outside_a_trimmed_queue(version, offset, expected):
    answer = pull(trimmed(version), queue_offset=offset)
    assert outcome(answer) == expected
    assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == (
        "3",
        "4",
    )


def test_a_pull_with_an_illegal_offset_is_not_held():
    driver = trimmed()
    for offset in (0, 9):
        assert pull(driver, queue_offset=offset, sys_flag=SUSPEND | 4).code == 21


def test_a_group_without_offset_gets_22_once_the_queue_was_trimmed():
    driver = trimmed()
    asked = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="T", queue_id=0)
    answer = driver.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
    assert answer is not None
    assert answer.code == 22


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_offset_gets_22_if_the_first_message_is_on_disk(version):
    settings = BrokerSettings(profile=profile_of(version), in_memory_bytes_max=1_000)
    driver = driver_with_topic(settings)
    asked = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="T", queue_id=0)
    put(driver, "A")
    answer = driver.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
    assert answer is not None
    assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
    put(driver, "A", body_bytes=2_000)
    answer = driver.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
    assert answer is not None
    assert answer.code == 22


class HoledStore(MemoryStore):
    """A store that has lost the bytes of some messages (by commit log offset)."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes | None:
        if commit_log_offset in self.lost:
            return None
        return super().read(commit_log_offset, size_bytes)

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        whole = takewhile(lambda unit: unit.commit_log_offset not in self.lost, units)
        return super().read_units(list(whole))


def test_messages_whose_log_file_was_deleted_are_skipped():
    store = HoledStore()
    driver = driver_with_topic(store=store)
    put(driver, "A", "B", "C")
    at = [unit.commit_log_offset for unit in store.units("T", 0, 0, 3)]
    store.lost |= {at[0], at[1]}
    assert offsets(pull(driver)) == [2]
    store.lost.add(at[2])
    assert outcome(pull(driver)) == (20, "MESSAGE_WAS_REMOVING", 3)


def test_one_pull_reads_at_most_800_entries():
    driver = driver_with_topic()
    put(driver, *["B"] * 801, "A")
    answer = pull(driver, subscription="A")
    assert outcome(answer) == (20, "NO_MATCHED_MESSAGE", 800)
    answer = pull(driver, subscription="A", queue_offset=800)
    assert (outcome(answer), offsets(answer)) == ((0, "FOUND", 802), [801])
    answer = pull(driver, subscription="A", max_msg_nums=900)
    assert offsets(answer) == [801]


def test_one_answer_has_32_messages_at_most():
    driver = driver_with_topic()
    put(driver, *["A"] * 40)
    assert outcome(pull(driver, max_msg_nums=1_000)) == (0, "FOUND", 32)
    assert outcome(pull(driver, max_msg_nums=1_000, subscription="A"))[2] == 32


def test_one_answer_has_256_kib_at_most_but_always_a_message():
    driver = driver_with_topic()
    put(driver, "A", "A", "A", body_bytes=100_000)
    put(driver, "A", body_bytes=300_000)
    assert offsets(pull(driver)) == [0, 1]
    assert offsets(pull(driver, queue_offset=2)) == [2]
    assert offsets(pull(driver, queue_offset=3)) == [3]


def test_from_disk_an_answer_has_8_messages_or_64_kib():
    driver = driver_with_topic(BrokerSettings(in_memory_bytes_max=0))
    put(driver, *["A"] * 10)
    put(driver, "A", "A", body_bytes=40_000)
    assert outcome(pull(driver)) == (0, "FOUND", 8)
    assert offsets(pull(driver, queue_offset=10)) == [10]


def test_tags_are_compared_by_hash_alone():
    driver = driver_with_topic()
    put(driver, "Aa", "BB")  # of the same hash
    assert offsets(pull(driver, subscription="Aa")) == [0, 1]


def test_sql92_needs_enable_property_filter():
    driver = driver_with_topic()
    answer = pull(driver, expression_type="SQL92", subscription="n > 1")
    assert (answer.code, answer.remark) == (
        1,
        "The broker does not support consumer to filter message by SQL92",
    )


def test_properties_are_compared_after_the_tag_hash():
    driver = driver_with_topic(BrokerSettings(enable_property_filter=True))
    put(driver, "A", "AA", "AAA")
    answer = pull(driver, expression_type="SQL92", subscription="n = 2")
    assert (outcome(answer), offsets(answer)) == ((0, "FOUND", 3), [1])
    answer = pull(driver, expression_type="SQL92", subscription="n >")
    assert offsets(answer) == [0, 1, 2]


def test_a_pull_of_an_unknown_group_is_refused():
    settings = BrokerSettings(auto_create_subscription_group=False)
    driver = driver_with_topic(settings)
    answer = pull(driver)
    assert answer.code == 26
    assert str(answer.remark).startswith(
        "subscription group [g] does not exist, \nSee "
    )
    driver.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    assert pull(driver).code == 19


def test_a_pull_moves_the_pull_offset():
    driver = driver_with_topic()
    put(driver, "A", "B")
    pull(driver, max_msg_nums=1)
    assert driver.broker.offsets.pull_offset("g", "T", 0) == 1
    assert driver.broker.offsets.query("g", "T", 0) is None


def slave(version, **fields):
    settings = BrokerSettings(broker_id=1, profile=profile_of(version), **fields)
    driver = driver_with_topic(settings)
    put(driver, "A")
    return driver


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slave_does_not_correct_offsets(version):
    driver = slave(version)
    assert outcome(pull(driver)) == (0, "FOUND", 1)
    assert outcome(pull(driver, queue_offset=7)) == (20, "OFFSET_OVERFLOW_BADLY", 7)
    assert outcome(pull(driver, queue_offset=-1)) == (20, "OFFSET_TOO_SMALL", -1)


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7"])
def test_a_slave_that_checks_offsets_corrects_them(version):
    driver = slave(version, offset_check_in_slave=True)
    assert outcome(pull(driver, queue_offset=-1)) == (21, "OFFSET_TOO_SMALL", 0)


def test_a_slave_of_5_x_names_the_master():
    answer = pull(slave("5.5.0"), queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
    assert outcome(answer) == (20, "OFFSET_OVERFLOW_ONE", 1)
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(("version", "expected"), [("4.9.7", None), ("5.5.0", 5)])
def test_commits_at_a_slave(version, expected):
    driver = slave(version)
    pull(driver, sys_flag=COMMIT | SUBSCRIPTION, commit_offset=5)
    assert driver.broker.offsets.query("g", "T", 0) == expected


@pytest.mark.parametrize(
    ("is_readable", "in_memory", "expected"),
    [(False, 0, "0"), (True, 0, "1"), (True, None, "0")],
)
def test_a_slow_reader_is_referred_to_the_slave(is_readable, in_memory, expected):
    settings = BrokerSettings(
        slave_read_enable=is_readable, in_memory_bytes_max=in_memory
    )
    driver = driver_with_topic(settings)
    put(driver, "A")
    assert pull(driver).ext_fields["suggestWhichBrokerId"] == expected


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7"])
def test_4_x_stores_a_message_for_each_moved_offset(version):
    driver = trimmed(version)
    pull(driver)
    (event,) = driver.messages("OFFSET_MOVED_EVENT")
    assert event.tags == "g"
    assert event.body == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"broker-a","queueId":0,'
        b'"topic":"T"},"offsetNew":3,"offsetRequest":0}'
    )


def test_5_x_stores_no_message_for_a_moved_offset():
    driver = trimmed()
    pull(driver)
    assert driver.messages("OFFSET_MOVED_EVENT") == []
