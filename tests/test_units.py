"""Durations, sizes and times, to and from text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import TextError
from rmqcli.units import (
    counted,
    format_duration,
    format_rfc3339,
    format_size,
    listed,
    parse_duration_ms,
    parse_size_bytes,
    read_count,
)
from tests.kit.rows import each_row


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("5s", 5_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("1h30m", 5_400_000),
        ("1d1h1m1s1ms", 90_061_001),
    ],
)
def test_durations(text, milliseconds):
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("100B", 100), ("64KiB", 65_536), ("4MiB", 4_194_304), ("1GiB", 2**30)],
)
def test_sizes(text, size):
    assert parse_size_bytes(text) == size


@each_row(
    "text",
    ["", "5", "-5s", "+5s", "s", "5 s", "5.5s", "1e3s", "5S", "5sx", "1" * 19 + "s",
     "36526d", "\u0665s", "inf", "5s\n"],
)  # fmt: skip
def test_bad_durations(text):
    with pytest.raises(TextError) as caught:
        parse_duration_ms(text)
    assert 0 <= caught.value.start <= caught.value.end <= max(len(text) + 1, 1)


@pytest.mark.parametrize(
    "text", ["", "64", "64KB", "64kib", "-1B", "1.5MiB", "9" * 18 + "GiB"]
)
def test_bad_sizes(text):
    with pytest.raises(TextError):
        parse_size_bytes(text)


@each_row(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1s"),
        (2550, "2.5s"),
        (59_999, "59.9s"),
        (60_000, "1m"),
        (61_000, "1m1s"),
        (3_600_000, "1h"),
        (3_900_000, "1h5m"),
        (90_000_000, "1d1h"),
        (86_400_000, "1d"),
        (-1500, "-1.5s"),
    ],
)
def test_durations_for_people(milliseconds, text):
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (1536, "1.5KiB"), (4 << 20, "4MiB")],
)
def test_sizes_for_people(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("epoch_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1767323045678, "2026-01-02T03:04:05.678Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, None),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_times(epoch_ms, text):
    assert format_rfc3339(epoch_ms) == text


@given(st.integers(0, 36_525 * 86_400_000))
def test_written_durations_can_be_read(milliseconds):
    text = format_duration(milliseconds)
    if "." not in text:
        assert parse_duration_ms(text) <= milliseconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1234, "1,234 messages")],
)
def test_a_count_has_its_noun_in_the_singular_for_one(count, text):
    assert counted(count, "message") == text


def test_a_noun_may_have_a_plural_of_its_own():
    assert counted(1, "body", "bodies") == "1 body"
    assert counted(2, "body", "bodies") == "2 bodies"


@each_row(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 999_999_999_999_999_999),
        ("9" * 19, None),
        (None, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1\n", None),
        ("1_0", None),
        ("1.0", None),
        ("\u0661", None),  # a digit of another script
        ("\u00b2", None),  # a digit that `int` refuses
    ],
)
def test_a_count_is_ascii_digits_only(text, number):
    assert read_count(text) == number


def test_a_count_has_as_many_digits_as_are_allowed():
    assert read_count("123", digits_max=3) == 123
    assert read_count("1234", digits_max=3) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (2, "0, 1"), (3, "0, 1 and 1 more"), (1_234, "0, 1 and 1,232 more")],
)
def test_a_list_names_its_first_items_and_counts_the_others(count, text):
    assert listed(range(count), 2) == text
