"""One grammar for positions: what each text means, and where an error is."""

from __future__ import annotations

from typing import cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import ConfigError, TextError
from rmqcli.position import (
    Ago,
    AtGroup,
    AtNow,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    PlusN,
    Position,
    parse_position,
    position_of,
)
from tests.kit.rows import each_row

BERLIN = ZoneInfo("Europe/Berlin")
UTC = ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("position", "error", "why"),
    [
        (
            AtTime(1_767_322_800, ""),
            ConfigError,
            "epoch_ms is 1767322800, which is too",
        ),
        (AtTime(-1, ""), ConfigError, "epoch_ms is -1"),
        (AtOffset(-1), ConfigError, "queue_offset is -1"),
        (LastN(-3), ConfigError, "count is -3"),
        (PlusN(cast("int", 1.5)), TypeError, "count is 1.5, a float"),
        (Ago(cast("int", "15m")), TypeError, "ago_ms is '15m', a str"),
        (cast("Position", None), TypeError, "a position is None"),
        ("@1767322800", TextError, "looks like seconds"),
    ],
)
def test_a_position_that_a_program_gives_is_checked(position, error, why):
    """Seconds meant January 1970: every message was read, or reset to."""
    with pytest.raises(error, match=why):
        position_of(position)


def test_positions_that_a_program_gives():
    assert position_of("-3") == LastN(3)
    for each in (AtTime(0, ""), AtTime(1_767_322_800_000, ""), Earliest(), Ago(0)):
        assert position_of(each) is each


@each_row(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("now", AtNow()),
        ("0", AtOffset(0)),
        ("12345", AtOffset(12345)),
        ("0012", AtOffset(12)),
        ("9223372036854775807", AtOffset(9223372036854775807)),
        ("-100", LastN(100)),
        ("-0", LastN(0)),
        ("+10", PlusN(10)),
        ("-15m", Ago(900_000)),
        ("-2h", Ago(7_200_000)),
        ("-1d", Ago(86_400_000)),
        ("-500ms", Ago(500)),
        ("-1h30m", Ago(5_400_000)),
        ("group:G", AtGroup("G")),
        ("group:%RETRY%a-b_c|9", AtGroup("%RETRY%a-b_c|9")),
    ],
)
def test_positions(text, position):
    assert parse_position(text, tz=UTC) == position


@each_row(
    ("text", "epoch_ms", "echo"),
    [
        ("@1767322800000", 1767322800000, "2026-01-02T03:00:00Z"),
        ("@0", 0, "1970-01-01T00:00:00Z"),
        ("@2026-01-02T03:04:05Z", 1767323045000, "2026-01-02T03:04:05Z"),
        ("@2026-01-02t03:04:05z", 1767323045000, "2026-01-02T03:04:05Z"),
        ("@2026-01-02 03:04:05.678Z", 1767323045678, "2026-01-02T03:04:05.678Z"),
        ("@2026-01-02T03:04:05,6789Z", 1767323045678, "2026-01-02T03:04:05.678Z"),
        ("@2026-01-02T03:04Z", 1767322080000 + 960_000, "2026-01-02T03:04:00Z"),
        ("@2026-01-02T11:04:05+08:00", 1767323045000, "2026-01-02T11:04:05+08:00"),
        ("@2026-01-01T17:34:05-0930", 1767323045000, "2026-01-01T17:34:05-09:30"),
        ("@2026-01-02T04:04:05+01", 1767323045000, "2026-01-02T04:04:05+01:00"),
        # Without a zone: the local one, and the text says so.
        ("@2026-01-02T04:04:05", 1767323045000, "2026-01-02T04:04:05+01:00 (local)"),
        ("@2026-01-02", 1767308400000, "2026-01-02T00:00:00+01:00 (local)"),
        ("@2026-07-01", 1782856800000, "2026-07-01T00:00:00+02:00 (local)"),
        # 2026-10-25: clocks go back from 03:00 to 02:00, 02:30 comes twice.
        (
            "@2026-10-25T02:30:00",
            1792888200000,
            (
                "2026-10-25T02:30:00+02:00 (local, the earlier of two; the later is "
                "2026-10-25T02:30:00+01:00)"
            ),
        ),
        ("@2026-10-25T03:00:00", 1792893600000, "2026-10-25T03:00:00+01:00 (local)"),
    ],
)
def test_times(text, epoch_ms, echo):
    assert parse_position(text, tz=BERLIN) == AtTime(epoch_ms, echo)


@pytest.mark.parametrize(
    ("zone", "epoch_ms"),
    [
        ("UTC", 1767323045000),
        ("Asia/Shanghai", 1767323045000 - 8 * 3_600_000),
        ("Pacific/Marquesas", 1767323045000 + 9 * 3_600_000 + 1_800_000),  # -09:30
    ],
)
def test_a_time_without_a_zone_is_local(zone, epoch_ms):
    position = parse_position("@2026-01-02T03:04:05", tz=ZoneInfo(zone))
    assert isinstance(position, AtTime)
    assert position.epoch_ms == epoch_ms


def test_the_machine_s_own_zone(monkeypatch):
    import time

    try:
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        assert parse_position("@2026-10-25T02:30", tz=None) == parse_position(
            "@2026-10-25T02:30", tz=BERLIN
        )
        with pytest.raises(TextError, match="set forward"):
            parse_position("@2026-03-29T02:30", tz=None)
    finally:
        monkeypatch.undo()
        time.tzset()


@each_row(
    ("text", "part", "what"),
    [
        ("", "", "not a position"),
        ("newest", "newest", "not a position"),
        ("Latest", "Latest", "not a position"),
        ("12x", "x", "not a number"),
        ("1 2", " 2", "not a number"),
        ("0x10", "x10", "not a number"),
        ("\u0661", "\u0661", "not a position"),
        (
            "9223372036854775808",
            "9223372036854775808",
            "greater than 9223372036854775807",
        ),
        ("1" * 5000, "1" * 5000, "greater than 9223372036854775807"),
        ("-", "-", "nothing after '-'"),
        ("--5", "-", "expected a number"),
        ("+", "+", "nothing after '+'"),
        ("+-5", "-5", "not a number"),
        ("-15x", "x", "unknown unit 'x'"),
        ("-15m3", "", "a unit is missing"),
        ("-99999999999d", "99999999999d", "longer than a century"),
        ("-5.5m", ".", "a unit is missing"),
        ("group:", "group:", "no group name"),
        ("group:a b", " ", "not allowed"),
        ("group:a/../b", "/", "not allowed"),
        ("group:" + "g" * 256, "g", "not allowed"),
        ("@", "@", "no time after '@'"),
        ("@yesterday", "yesterday", "not a time"),
        ("@2026-01-02T", "T", "not a time"),
        ("@2026-01-02T03:04:05Q", "Q", "not a time"),
        ("@2026-1-2", "2026-1-2", "not a time"),
        ("@2026-13-01", "2026-13-01", "no such time"),
        ("@2026-02-30T00:00:00Z", "2026-02-30T00:00:00", "no such time"),
        ("@2026-01-01T25:00", "2026-01-01T25:00", "no such time"),
        ("@2026-01-01T00:00:60Z", "2026-01-01T00:00:60", "no such time"),
        ("@2026-01-01T00:00:00+99:00", "+99:00", "not a valid UTC offset"),
        ("@1767322800", "1767322800", "looks like seconds"),
        ("@1767322800000000", "1767322800000000", "after the year 9999"),
        ("@1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "before 1970"),
        ("@0001-01-01", "0001-01-01", ""),
        ("@-5", "-5", "not a time"),
        # 2026-03-29: clocks go from 02:00 to 03:00, 02:30 never comes.
        (
            "@2026-03-29T02:30:00",
            "2026-03-29T02:30:00",
            "this local time does not exist",
        ),
    ],
)
def test_what_is_wrong_is_pointed_at(text, part, what):
    with pytest.raises(TextError) as caught:
        parse_position(text, tz=BERLIN)
    error = caught.value
    assert what in error.what
    assert text[error.start : error.end] == part


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("@1767322800", "times are in milliseconds; for seconds write @1767322800000"),
        ("lattest", "did you mean latest?"),
        ("NOW", "did you mean now?"),
        ("2026-11-25", "write @2026-11-25"),
        ("2026-11-25T10:00", "write @2026-11-25T10:00"),
        ("2026-11-25T10:00:00.5+01:00", "write @2026-11-25T10:00:00.5+01:00"),
        (
            "@2026-03-29T02:30:00",
            "write it with a zone, for example @2026-03-29T03:30:00+02:00",
        ),
    ],
)
def test_hints(text, hint):
    with pytest.raises(TextError) as caught:
        parse_position(text, tz=BERLIN)
    assert caught.value.hint == hint


@given(st.text() | st.from_regex(r"[-+@]?[0-9TZ:.+-]{1,30}", fullmatch=True))
def test_any_text_is_a_position_or_a_text_error(text):
    try:
        wrong, position = None, parse_position(text, tz=BERLIN)
    except TextError as error:
        wrong, position = error, None
    if wrong is None:
        assert str(position)
    else:
        assert 0 <= wrong.start <= wrong.end <= len(text)
        assert wrong.text == text


@given(st.integers(0, 2**63 - 1), st.sampled_from(["", "-", "+"]))
def test_offsets_read_back(number, sign):
    assert str(parse_position(f"{sign}{number}", tz=UTC)) == f"{sign}{number}"


@pytest.mark.parametrize("text", ["9:05", "13:00", "23:59:59"])
def test_a_time_of_day_needs_a_day(text: str) -> None:
    with pytest.raises(TextError, match="a time without a day") as info:
        parse_position(text, tz=None)
    assert info.value.hint == (
        "write the day, too, as in @2026-01-02T03:04, or a time ago, as in -15m"
    )
