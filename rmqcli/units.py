"""Durations, sizes and times as people write them, to and from integers.

`500ms 5s 2m 1h 7d` (also `1h30m`) are milliseconds, `64KiB 4MiB` are bytes. A number
without a unit is refused rather than guessed. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rmqcli.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Iterable

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

DURATION_UNITS_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
}

#: The longest accepted duration is a century. A longer one is a typing error, and the
#: sum of two is still far below 63 bits.
DURATION_MAX_MS = 36_525 * DAY_MS

SIZE_UNITS_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE_MAX_BYTES = 1 << 50

_PART = r"([0-9]+)([A-Za-z]*)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The milliseconds that a datetime can hold: years 1 to 9999.
_TIME_MIN_MS = -62_135_596_800_000
_TIME_MAX_MS = 253_402_300_799_999


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `500ms`, `5s` or `1h30m`; return milliseconds.

    Raises TextError for anything else, including negative numbers and numbers without a
    unit.
    """
    total = _sum_of_parts(text, DURATION_UNITS_MS, example="500ms, 5s, 2m, 1h, 7d")
    if total > DURATION_MAX_MS:
        raise TextError(text, "longer than a century")
    return total


def parse_size_bytes(text: str) -> int:
    """Parse a size such as `64KiB`, `4MiB` or `100B`; return bytes.

    Raises TextError for anything else, including `KB`, which has two meanings.
    """
    total = _sum_of_parts(text, SIZE_UNITS_BYTES, example="100B, 64KiB, 4MiB, 1GiB")
    if total > SIZE_MAX_BYTES:
        raise TextError(text, "more than 1024 TiB")
    return total


def _sum_of_parts(text: str, units: dict[str, int], *, example: str) -> int:
    hint = f"write for example {example}"
    if not text:
        raise TextError(text, "empty", start=0, end=0, hint=hint)
    total = at = 0
    parts = re.compile(_PART)  # at import it would slow down every start
    while at < len(text):
        part = parts.match(text, at)
        if part is None:
            raise TextError(text, "expected a number", start=at, end=at + 1, hint=hint)
        digits, unit = part.groups()
        if len(digits) > 18:
            what = "the number is too large"
            raise TextError(text, what, start=at, end=part.end(1), hint=hint)
        if unit not in units:
            known = ", ".join(units)
            what = f"unknown unit {unit!r}; units are {known}"
            if not unit:
                what = f"a unit is missing; units are {known}"
            end = max(part.end(), part.start(2) + 1)
            raise TextError(text, what, start=part.start(2), end=end, hint=hint)
        total += int(digits) * units[unit]
        at = part.end()
    return total


def read_count(text: str | None, *, digits_max: int = 18) -> int | None:
    """Return the number that a peer or a file wrote; None unless it is ASCII digits.

    `int` also takes signs, spaces, underscores and digits of other scripts, and its
    time grows with the square of the length.
    """
    if text and text.isascii() and text.isdigit() and len(text) <= digits_max:
        return int(text)
    return None


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `count` with its noun, for people: `1 message`, `2,000 messages`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(items: Iterable[object], limit: int) -> str:
    """Return the first `limit` items and the number of others: `a, b and 3 more`."""
    texts = [str(item) for item in items]
    shown = ", ".join(texts[:limit])
    more = len(texts) - limit
    return f"{shown} and {more:,} more" if more > 0 else shown


def format_duration(duration_ms: int) -> str:
    """Return `duration_ms` for people, two units at most: `1h5m`, `2.5s`, `40ms`."""
    if duration_ms < 0:
        return "-" + format_duration(-duration_ms)
    if duration_ms < SECOND_MS:
        return f"{duration_ms}ms"
    if duration_ms < MINUTE_MS:
        tenths = duration_ms // 100
        return f"{tenths // 10}.{tenths % 10}s" if tenths % 10 else f"{tenths // 10}s"
    for unit_ms, unit, part_ms, part in (
        (DAY_MS, "d", HOUR_MS, "h"),
        (HOUR_MS, "h", MINUTE_MS, "m"),
    ):
        if duration_ms >= unit_ms:
            whole, rest = divmod(duration_ms, unit_ms)
            return f"{whole}{unit}" + (
                f"{rest // part_ms}{part}" if rest >= part_ms else ""
            )
    whole, rest = divmod(duration_ms, MINUTE_MS)
    return f"{whole}m" + (f"{rest // SECOND_MS}s" if rest >= SECOND_MS else "")


def format_size(size_bytes: int) -> str:
    """Return `size_bytes` for people, e.g. `512B`, `1.5KiB`, `4MiB`."""
    for unit, unit_bytes in reversed(SIZE_UNITS_BYTES.items()):
        if size_bytes >= unit_bytes > 1:
            number = f"{size_bytes / unit_bytes:.1f}".removesuffix(".0")
            return f"{number}{unit}"
    return f"{size_bytes}B"


def format_rfc3339(epoch_ms: int | None) -> str | None:
    """Return `epoch_ms` as `2026-01-02T03:04:05.678Z`, or None outside years 1-9999.

    A peer may send any 64-bit number as a time, so the caller needs an answer for it.
    Of a time that is not known it is None, too.
    """
    if epoch_ms is None or not _TIME_MIN_MS <= epoch_ms <= _TIME_MAX_MS:
        return None
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def rounded_rate(rate: float) -> float:
    """Round a rate to 0.1, or below that to two digits, so that slow is not 0."""
    return round(rate, 1) if abs(rate) >= 0.1 else float(f"{rate:.2g}")
