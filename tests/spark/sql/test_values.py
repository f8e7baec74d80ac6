"""The values of Spark's rows become JSON values with the same meaning."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import Row

from rmqcli.spark.sql.session import ResultColumn, unique_columns
from rmqcli.spark.sql.values import plain
from tests.kit.rows import each_row


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@each_row(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**60, 2**60),
        ("größer", "größer"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (bytearray(b"\xff"), b"\xff"),
        (Decimal(12), 12),
        (Decimal("12.50"), 12.5),
        (Decimal("0.1"), 0.1),
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        (date(2026, 1, 2), "2026-01-02"),
        ([1, [None]], [1, [None]]),
        ([bytearray(b"\xff"), b"a"], ["/w==", "YQ=="]),
        ({b"\xff": b"\\xff"}, {"/w==": "XHhmZg=="}),
        (Row(a=b"", b=Row(c=b"\xff")), {"a": "", "b": {"c": "/w=="}}),
        ({"a": Decimal("1.5"), 2: None}, {"a": 1.5, "2": None}),
        (Row(a=1, b=Row(c="x")), {"a": 1, "b": {"c": "x"}}),
        (timedelta(seconds=1), "0:00:01"),
    ],
)
def test_a_value_becomes_a_json_value(value, shown):
    assert plain(value) == shown
    assert type(plain(value)) is type(shown)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2025, 10, 26, 0, 30, tzinfo=UTC),
        datetime(2025, 10, 26, 1, 30, tzinfo=UTC),
    ],
)
def test_a_time_in_a_repeated_local_hour_is_converted_to_utc(berlin, moment):
    # PySpark returns times without a time zone.
    local = datetime.fromtimestamp(moment.timestamp())  # noqa: DTZ006
    assert local.hour == 2
    expected = f"2025-10-26T{moment.hour:02d}:30:00.000Z"
    assert plain(local) == expected


def test_microseconds_are_kept():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert plain(moment) == "2026-01-02T03:04:05.678901Z"


def test_columns_with_equal_names_get_unique_names():
    columns = [
        ResultColumn("topic"),
        ResultColumn("body_b64"),
        ResultColumn("topic"),
        ResultColumn("body", is_binary=True),
        ResultColumn("topic"),
    ]
    found = unique_columns(columns)
    assert [column.name for column in found] == [
        "topic", "body_b64", "topic_2", "body_2", "topic_3",
    ]  # fmt: skip
    assert found[3].base64_name == "body_2_b64"
