"""Offsets: committed, at the ends, by time; messages by place and key."""

from __future__ import annotations

import pytest

from rmqcli.broker.profiles import profile_of
from rmqcli.broker.requests import view_message
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.header import BoundaryType
from rmqcli.wire.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqcli.wire.headers.store import (
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from tests.broker.driving import EPOCH_MS
from tests.broker.pulling import driver_with_topic, offsets, put
from tests.broker.sending import send
from tests.kit.rows import each_row


def timed(version="5.5.0"):
    """Offsets 0-2 at 0 s, 3 at 10 s, 4-5 at 20 s."""
    driver = driver_with_topic(BrokerSettings(profile=profile_of(version)))
    for count in (3, 1, 2):
        put(driver, *["A"] * count)
        driver.wait(10_000)
    return driver


def by_time(driver, after_ms, boundary=None):
    header = SearchOffsetRequestHeader(
        topic="T", queue_id=0, timestamp=EPOCH_MS + after_ms, boundary_type=boundary
    )
    answer = driver.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"),
    [
        (-1, 0, 0),
        (0, 0, 2),
        (1, 3, 2),
        (9_999, 3, 2),
        (10_000, 3, 3),
        (10_001, 4, 3),
        (20_000, 4, 5),
        (20_001, 6, 5),
    ],
)
def test_5_finds_the_first_not_older_or_the_last_not_younger(after_ms, lower, upper):
    driver = timed()
    assert by_time(driver, after_ms) == lower
    assert by_time(driver, after_ms, BoundaryType.LOWER) == lower
    assert by_time(driver, after_ms, BoundaryType.UPPER) == upper


@each_row("version", ["4.6.0", "4.9.7"])
@each_row(
    ("after_ms", "expected"),
    [
        (-1, 0),
        (0, 2),  # where the binary search comes upon the time first
        (4_999, 2),
        (5_000, 2),  # equally near to both: the earlier one
        (5_001, 3),
        (10_000, 3),
        (15_001, 4),
        (99_999, 5),
    ],
)
def test_4_finds_the_nearest(version, after_ms, expected):
    assert by_time(timed(version), after_ms) == expected


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_time_before_a_trimmed_queue_is_its_start(version):
    driver = timed(version)
    driver.store.trim("T", 4)
    assert by_time(driver, -1) == 4


def test_the_earliest_time_is_that_of_the_first_left():
    driver = timed()
    driver.store.trim("T", 3)
    header = GetEarliestMsgStoretimeRequestHeader(topic="T", queue_id=0)
    answer = driver.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    assert answer.ext_fields["timestamp"] == str(EPOCH_MS + 10_000)


def test_a_commit_is_dropped_while_a_reset_is_pending():
    driver = timed()
    driver.broker.groups.find_or_create("g")
    driver.broker.offsets.reset("g", "T", 0, 2)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="g", topic="T", queue_id=0, commit_offset=5
    )
    answer = driver.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert driver.broker.offsets.query("g", "T", 0) == 2


def test_a_message_by_its_place():
    driver = timed()
    (unit,) = driver.store.units("T", 0, 3, 1)
    header = ViewMessageRequestHeader(offset=unit.commit_log_offset)
    answer = driver.ask(RequestCode.VIEW_MESSAGE_BY_ID, header)
    assert offsets(answer) == [3]


@pytest.mark.parametrize(("count_max", "expected"), [(9, [0, 2]), (1, [2]), (0, [])])
def test_messages_by_key_are_the_newest_oldest_first(count_max, expected):
    driver = driver_with_topic()
    for key in ("k", "other", "k"):
        send(driver, "T", {"KEYS": key})
    header = QueryMessageRequestHeader(
        topic="T", key="k", max_num=count_max, begin_timestamp=0, end_timestamp=1 << 60
    )
    answer = driver.ask(RequestCode.QUERY_MESSAGE, header)
    assert answer is not None
    assert answer.code == (0 if expected else 22)
    assert offsets(answer) == expected


@pytest.mark.parametrize(("spare_bytes", "code"), [(0, 0), (-1, 1)])
def test_messages_by_key_fit_into_one_frame(monkeypatch, spare_bytes, code):
    driver = driver_with_topic()
    for _ in range(2):
        send(driver, "T", {"KEYS": "k"})
    end = driver.store.log_bounds()[1]
    monkeypatch.setattr(view_message, "_BODY_BYTES_MAX", end + spare_bytes)
    header = QueryMessageRequestHeader(
        topic="T", key="k", max_num=9, begin_timestamp=0, end_timestamp=1 << 60
    )
    answer = driver.ask(RequestCode.QUERY_MESSAGE, header)
    assert answer is not None
    assert answer.code == code
    if code:
        assert answer.remark == "2 messages with the key do not fit into one answer"
