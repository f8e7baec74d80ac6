"""The grammar of positions, by which commands say where to start and where to end.

    earliest latest now       the ends; `now` is the broker's clock, not `latest`
    12345                     a queue offset
    -100  +10                 the last 100 messages; 10 after the start
    -15m -2h -1d              that long ago, by the broker's clock
    @2026-01-02T03:04:05Z     a time, RFC 3339; without a zone it is local
    @1767322800000            a time, milliseconds since 1970
    group:G                   the committed offset of group G

Pure: a position is what was written; `rmqcli.api.positions` finds the offsets.
"""

from __future__ import annotations

import re
from dataclasses import field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

from rmqcli.checked import check_int, check_type
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, TextError
from rmqcli.names import STORED_NAME
from rmqcli.units import format_duration, parse_duration_ms

#: Offsets and times are Java longs.
LONG_MAX = (1 << 63) - 1

#: A number with fewer digits than this after `@` was meant in seconds: as milliseconds
#: it would be before March 1973, long before RocketMQ existed.
_EPOCH_MS_DIGITS_MIN = 12
#: The earliest time, except 0, that can be written in milliseconds.
EPOCH_MS_MIN = 10 ** (_EPOCH_MS_DIGITS_MIN - 1)
_EPOCH_MS_MAX = 253_402_300_799_999  # the end of the year 9999

#: The numbers of positions, and the highest that each can be.
_NUMBERS = {
    "queue_offset": LONG_MAX,
    "count": LONG_MAX,
    "ago_ms": LONG_MAX,
    "epoch_ms": _EPOCH_MS_MAX,
}

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"([Zz]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d)?", re.ASCII)
#: What is wrong with a time that does not begin with `@`.
NO_AT_SIGN = "a time begins with '@'"
_WORDS = ("earliest", "latest", "now")
_HINT = (
    "write earliest, latest, now, 12345, -100, +10, -15m, @2026-01-02T03:04:05Z, "
    "@1767322800000 or group:NAME"
)


class Position:
    """A position in every queue: one of the classes below."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Earliest(Position):
    """The oldest message that is still there: the min offset."""

    def __str__(self) -> str:
        return "earliest"


@dataclass(frozen=True, slots=True)
class Latest(Position):
    """The offset that the next message will get: the max offset."""

    def __str__(self) -> str:
        return "latest"


@dataclass(frozen=True, slots=True)
class AtNow(Position):
    """The first message stored at or after the broker's current time."""

    def __str__(self) -> str:
        return "now"


@dataclass(frozen=True, slots=True)
class AtOffset(Position):
    """A queue offset, the same in every queue."""

    queue_offset: int

    def __str__(self) -> str:
        return str(self.queue_offset)


@dataclass(frozen=True, slots=True)
class LastN(Position):
    """The last `count` messages."""

    count: int

    def __str__(self) -> str:
        return f"-{self.count}"


@dataclass(frozen=True, slots=True)
class PlusN(Position):
    """`count` messages after the min offset or, as an end, after the start position."""

    count: int

    def __str__(self) -> str:
        return f"+{self.count}"


@dataclass(frozen=True, slots=True)
class AtTime(Position):
    """The first message stored at or after `epoch_ms`.

    `echo` shows that time with its zone, and what was assumed about it. `zoneless` is
    the text of a time that was written without a zone, and empty for others.
    """

    epoch_ms: int
    echo: str
    zoneless: str = field(default="", compare=False, repr=False)

    def in_zone(self, tz: tzinfo) -> AtTime:
        """Read the text again, as a time of `tz`; one with a zone is unchanged.

        Raises TextError for a time that the clocks of `tz` never show.
        """
        return _parse_time(self.zoneless, tz, str(tz)) if self.zoneless else self

    def __str__(self) -> str:
        return f"@{self.echo}"


@dataclass(frozen=True, slots=True)
class Ago(Position):
    """The first message stored at or after the broker's current time minus `ago_ms`."""

    ago_ms: int

    def __str__(self) -> str:
        return f"-{format_duration(self.ago_ms)}"


@dataclass(frozen=True, slots=True)
class AtGroup(Position):
    """The offset that a consumer group has committed."""

    group: str

    def __str__(self) -> str:
        return f"group:{self.group}"


def position_of(given: str | Position, name: str = "a position") -> Position:
    """Return the position that a program gives, as a text or as one of the classes.

    `name` is what errors call it. Raises TextError for a text that is not a position,
    ConfigError for a number that is out of range or a time that looks like seconds, and
    TypeError for any other value.
    """
    check_type(given, (str, Position), name)
    if isinstance(given, str):
        return parse_position(given)
    for number, high in _NUMBERS.items():
        if hasattr(given, number):
            value = check_int(getattr(given, number), number, 0, high)
            if number == "epoch_ms":
                check_epoch_ms(value, number)
    return given


def check_epoch_ms(value: int, name: str) -> None:
    """Raise ConfigError for a time that was meant in seconds; see `EPOCH_MS_MIN`."""
    if 0 < value < EPOCH_MS_MIN:
        raise ConfigError(
            f"{name} is {value}, which is too early: it looks like seconds",
            hint=f"times are in milliseconds; for seconds write {value}000",
        )


def parse_position(text: str, *, tz: tzinfo | None = None) -> Position:
    """Parse one position. `tz` is the zone of times without one; None: the machine's.

    Raises TextError, which points at the part that is wrong.
    """
    if text in _WORDS:
        return {"earliest": Earliest, "latest": Latest, "now": AtNow}[text]()
    if text.startswith("@"):
        return _parse_time(text, tz)
    if text.startswith("group:"):
        return _parse_group(text)
    if text.startswith("-"):
        if _is_number(text[1:]):
            return LastN(_parse_long(text, start=1))
        return _parse_ago(text)
    if text.startswith("+"):
        return PlusN(_parse_long(text, start=1))
    if _TIME.fullmatch(text):
        raise TextError(text, NO_AT_SIGN, hint=f"write @{text}")
    if _TIME_OF_DAY.fullmatch(text):
        hint = "write the day, too, as in @2026-01-02T03:04, or a time ago, as in -15m"
        raise TextError(text, "a time without a day", hint=hint)
    if _is_number(text[:1]):
        return AtOffset(_parse_long(text, start=0))
    raise _not_a_position(text)


def _parse_ago(text: str) -> Ago:
    try:
        return Ago(parse_duration_ms(text[1:]))
    except TextError as error:
        if error.end == 0:
            hint = "write -100 for the last 100 messages, or -15m for a time ago"
            raise TextError(text, "nothing after '-'", end=1, hint=hint) from None
        hint = error.hint and "write for example -100, -500ms, -15m, -2h, -1d"
        raise TextError(
            text, error.what, start=error.start + 1, end=error.end + 1, hint=hint
        ) from None


def _parse_group(text: str) -> AtGroup:
    name = text.removeprefix("group:")
    start = len("group:")
    if not name:
        raise TextError(text, "no group name after 'group:'", hint="write group:NAME")
    match = STORED_NAME.match(name)
    if match is None or match.end() != len(name):
        at = start + (match.end() if match else 0)
        raise TextError(text, "not allowed in a group's name", start=at, end=at + 1)
    return AtGroup(name)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _parse_long(text: str, *, start: int) -> int:
    digits = text[start:]
    if not _is_number(digits):
        bad = next((i for i, c in enumerate(digits) if c not in "0123456789"), 0)
        what = "not a number" if digits else f"nothing after {text!r}"
        at = start + bad if digits else 0
        end = len(text) if digits else 1
        raise TextError(text, what, start=at, end=end, hint=_HINT)
    if len(digits) > 19 or int(digits) > LONG_MAX:
        what = f"greater than {LONG_MAX}, the largest offset"
        raise TextError(text, what, start=start)
    return int(digits)


def _parse_time(text: str, tz: tzinfo | None, name: str = "local") -> AtTime:
    digits = text[1:]
    if _is_number(digits):
        return _parse_epoch(text, digits)
    match = _TIME.match(text, 1)
    if match is None or match.end() != len(text):
        at = 1 if match is None else match.end()
        hint = "write @2026-01-02T03:04:05Z, @2026-01-02T03:04 (local) or @ms"
        what = "not a time" if at < len(text) else "no time after '@'"
        if at >= len(text):
            at = 0
        raise TextError(text, what, start=at, hint=hint)
    naive = _naive_time(text, match)
    zone = match.group(8)
    if zone is None:
        return _local_time(text, naive, tz, name)
    moment = naive.replace(tzinfo=_parse_zone(text, match))
    return AtTime(_epoch_ms(text, moment), _iso(moment))


def _parse_epoch(text: str, digits: str) -> AtTime:
    if len(digits) < _EPOCH_MS_DIGITS_MIN and int(digits):
        hint = f"times are in milliseconds; for seconds write @{digits}000"
        raise TextError(text, "too early: this looks like seconds", start=1, hint=hint)
    if len(digits) > 15 or int(digits) > _EPOCH_MS_MAX:
        hint = "times are in milliseconds"
        raise TextError(text, "after the year 9999", start=1, hint=hint)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(digits))
    return AtTime(int(digits), _iso(moment))


def _naive_time(text: str, match: re.Match[str]) -> datetime:
    numbers = [int(group or 0) for group in match.groups()[:6]]
    micros = int((match.group(7) or "").ljust(6, "0")[:6])
    try:
        day = date(numbers[0], numbers[1], numbers[2])
        time_of_day = time(numbers[3], numbers[4], numbers[5], micros)
    except ValueError as error:
        end = match.start(8) if match.group(8) else len(text)
        raise TextError(text, f"no such time: {error}", start=1, end=end) from None
    return datetime.combine(day, time_of_day)


def _parse_zone(text: str, match: re.Match[str]) -> tzinfo:
    zone = match.group(8)
    if zone in "Zz":
        return UTC
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    if hours > 18 or minutes > 59:
        raise TextError(text, f"{zone} is not a valid UTC offset", start=match.start(8))
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if zone[0] == "-" else offset)


def _local_time(text: str, naive: datetime, tz: tzinfo | None, name: str) -> AtTime:
    """Convert a time of the clocks of a zone, which may show it twice or never."""
    try:
        first, second = (
            naive.replace(fold=fold, tzinfo=tz).astimezone(UTC) for fold in (0, 1)
        )
    except (OverflowError, ValueError, OSError):
        what = "outside the years that the local time zone covers"
        raise TextError(text, what, start=1) from None
    local = first.astimezone(tz)
    if local.replace(tzinfo=None) != naive.replace(fold=0):
        after = _iso(max(first, second).astimezone(tz))
        what = "this local time does not exist: clocks were set forward past it"
        hint = f"write it with a zone, for example @{after}"
        raise TextError(text, what, start=1, hint=hint)
    echo = f"{_iso(local)} ({name})"
    if second != first:
        other = _iso(second.astimezone(tz))
        echo = f"{_iso(local)} ({name}, the earlier of two; the later is {other})"
    return AtTime(_epoch_ms(text, first), echo, text)


def _epoch_ms(text: str, moment: datetime) -> int:
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    epoch_ms = delta // timedelta(milliseconds=1)
    if epoch_ms < 0:
        raise TextError(text, "before 1970", start=1)
    return epoch_ms


def _iso(moment: datetime) -> str:
    spec = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def _not_a_position(text: str) -> TextError:
    import difflib  # only when something was mistyped

    near = difflib.get_close_matches(text.lower(), (*_WORDS, "group:"), n=1)
    hint = f"did you mean {near[0]}?" if near else _HINT
    return TextError(text, "not a position", hint=hint)
