"""Which names, texts and times the proxy lets through, up to their exact limits."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqcli.broker.proxy.checks import (
    check_group,
    check_invisible,
    check_lite_topic,
    check_text,
    check_topic,
    duration_ms,
    timestamp_ms,
)
from rmqcli.broker.proxy.status import ProxyError
from rmqcli.wire.protobuf.definition_pb2 import Code
from tests.kit.rows import each_row

HALF_DAY_MS = 43_200_000


def code_of(check, *args, **fields):
    """The name of the code with which a check refuses; None if it does not."""
    try:
        check(*args, **fields)
    except ProxyError as error:
        return Code.Name(error.code)
    return None


@pytest.mark.parametrize(
    ("check", "most", "code"),
    [
        (check_topic, 127, "ILLEGAL_TOPIC"),
        (check_group, 120, "ILLEGAL_CONSUMER_GROUP"),
        (check_lite_topic, 64, "ILLEGAL_LITE_TOPIC"),
    ],
)
def test_a_name_has_a_length_and_letters(check, most, code):
    taken = ["a", "aZ-_09", "x" * most]
    refused = ["", " ", "a b", "a.b", "a\n", "x" * (most + 1)]
    assert [code_of(check, each) for each in taken] == [None] * 3
    assert [code_of(check, each) for each in refused] == [code] * 6


@pytest.mark.parametrize(
    ("check", "name", "code"),
    [
        (check_topic, "%RETRY%g", None),
        (check_topic, "CHECKPOINT_TOPIC", "ILLEGAL_TOPIC"),
        (check_topic, "SCHEDULE_TOPIC_XXXX", "ILLEGAL_TOPIC"),
        (check_group, "a%b|c", None),
        (check_group, "CID_RMQ_SYS_", "ILLEGAL_CONSUMER_GROUP"),
        (check_group, "CID_RMQ_SY", None),
        (check_lite_topic, "%RETRY%g", "ILLEGAL_LITE_TOPIC"),
        (check_lite_topic, "é" * 33, "ILLEGAL_LITE_TOPIC"),
    ],
)
def test_names_of_the_system_are_refused(check, name, code):
    assert code_of(check, name) == code


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        *(("", True), ("a", True), ("a b", True), ("ü", True), ("a\u00a0b", True)),
        *((" ", False), ("\t", False), ("a\x01", False), ("a\x7f", False)),
        *(("a\x9f", False), ("\u200b", True)),
    ],
)
def test_a_text_has_no_control_characters_and_is_not_blank(text, is_taken):
    code = code_of(check_text, text, Code.ILLEGAL_MESSAGE_TAG, "tag")
    assert code == (None if is_taken else "ILLEGAL_MESSAGE_TAG")


@pytest.mark.parametrize(
    ("invisible_ms", "min_ms", "is_taken"),
    [
        *((0, 0, True), (-1, 0, False), (HALF_DAY_MS, 0, True)),
        *((HALF_DAY_MS + 1, 0, False), (10_000, 10_000, True), (9_999, 10_000, False)),
    ],
)
def test_an_invisible_time_is_within_its_limits(invisible_ms, min_ms, is_taken):
    code = code_of(check_invisible, invisible_ms, min_ms=min_ms)
    assert code == (None if is_taken else "ILLEGAL_INVISIBLE_TIME")


def test_an_invisible_time_may_be_0_unless_a_call_says_otherwise():
    assert code_of(check_invisible, 0) is None
    assert code_of(check_invisible, -1) == "ILLEGAL_INVISIBLE_TIME"


@each_row(
    ("seconds", "nanos", "expected_ms"),
    [
        *((0, 0, 0), (1, 0, 1_000), (1, 999_999, 1_000), (1, 1_000_000, 1_001)),
        *((0, 999_999_999, 999), (0, -999_999_999, -999), (-1, -1_999_999, -1_001)),
        *((0, -1, 0), (0, 1, 0)),
        (315_576_000_000, 0, 315_576_000_000_000),
        (-315_576_000_000, 0, -315_576_000_000_000),
        *((315_576_000_001, 0, None), (-315_576_000_001, 0, None)),
        *((0, 1_000_000_000, None), (0, -1_000_000_000, None)),
        *((-1, 1, None), (1, -1, None)),
    ],
)
def test_a_duration_is_rounded_towards_zero(seconds, nanos, expected_ms):
    duration = Duration(seconds=seconds, nanos=nanos)
    if expected_ms is None:
        assert code_of(duration_ms, duration) == "INTERNAL_SERVER_ERROR"
    else:
        assert duration_ms(duration) == expected_ms


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected_ms"),
    [
        *((0, 0, 0), (1, 1_999_999, 1_001), (-1, 999_999_999, -1)),
        (-62_135_596_800, 0, -62_135_596_800_000),
        (253_402_300_799, 999_999_999, 253_402_300_799_999),
        *((-62_135_596_801, 0, None), (253_402_300_800, 0, None)),
        *((0, -1, None), (0, 1_000_000_000, None)),
    ],
)
def test_a_time_is_one_that_protobuf_allows(seconds, nanos, expected_ms):
    assert timestamp_ms(Timestamp(seconds=seconds, nanos=nanos)) == expected_ms
