"""Turns what libraries return for a body into values of JSON, which a record can hold.

Bytes become base64. Times become RFC 3339, in UTC unless they have no time zone.
Decimals, which a double would round, become text, and so do NaN and the infinite
numbers, under the names that they have in the JSON of protobuf. Keys become text.
"""

from __future__ import annotations

import binascii
import datetime
import decimal
import fractions
import ipaddress
import math
import uuid
from typing import TYPE_CHECKING, Any, Final

from rmqcli.decode.json import DEPTH_MAX, TOO_LARGE, compact_json
from rmqcli.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_AS_IS: Final = frozenset({str, bool, type(None)})
_AS_TEXT: Final = (
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
    datetime.date,
    datetime.time,
)
#: Exceptions of libraries, or what their texts contain, and what they mean.
_REASONS: Final[tuple[tuple[type[Exception] | str, str], ...]] = (
    ("Expected -", "a length is negative"),
    (EOFError, "the body ends too early"),
    ("premature end", "the body ends too early"),
    ("incomplete input", "the body ends too early"),
    ("exceeds max_", "the body ends too early"),
    ("extra data", "bytes follow the value"),
    ("bytes follow", "bytes follow the value"),
    ("more digits", "a decimal has more digits than its type"),
    ("references to", "references to other parts of the body are not supported"),
    (UnicodeDecodeError, "a text is not UTF-8"),
    (
        "Duplicate map key",
        "two keys of a map, such as 1 and true, cannot be told apart",
    ),
    ("unhashable", "a key of a map is a list or a map"),
    (IndexError, "it has a branch of a union or a symbol that the schema lacks"),
    ("FormatError", "a byte begins no value"),
    ("subtype 0x", "a byte begins no value"),
    ("break code", "a list or a map ends before it began"),
    ("StackError", "it is nested too deeply"),
    ("nesting depth", "it is nested too deeply"),
    (OverflowError, "a time or a number is out of range"),
)


def plain_value(
    value: object, *, others: Mapping[type, Callable[[Any], object]] | None = None
) -> object:
    """Return a value as values of JSON; `others` converts types of the library.

    Raises DecodeError for a value that JSON cannot hold, or not all readers of JSON: a
    number beyond all doubles, deep nesting, two keys with the same text.
    """
    return _plain(value, 0, others or {})


def _plain(
    value: Any,  # noqa: ANN401  # what a library returns
    depth: int,
    others: Mapping[type, Callable[[Any], object]],
) -> object:
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is int:
        _check_integer(value)
        return value
    if kind is float:
        return value if math.isfinite(value) else _infinite(value)
    if depth >= DEPTH_MAX and isinstance(value, dict | list | tuple | set | frozenset):
        raise DecodeError(f"the value is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        found = {
            name
            if type(name) is str
            else _key(_plain(name, depth + 1, others)): _plain(each, depth + 1, others)
            for name, each in value.items()
        }
        if len(found) != len(value):
            raise DecodeError("two keys of a map have the same text")
        return found
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth + 1, others) for each in value]
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    if isinstance(value, datetime.datetime):
        return _time(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if kind in others:
        return others[kind](value)
    raise DecodeError(f"a value of the type {kind.__name__} has no form in JSON")


def reason_of(error: Exception) -> str:
    """Return why a library could not read a body, in our words if they are known."""
    cause = error.__cause__ or error
    words = f"{type(error).__name__}: {cause}"
    for theirs, ours in _REASONS:
        if isinstance(cause, theirs) if isinstance(theirs, type) else theirs in words:
            return ours
    return f"a value cannot be read ({words[:200]})"


def _check_integer(value: int) -> None:
    try:
        float(value)
    except OverflowError:
        raise DecodeError(TOO_LARGE) from None


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _key(found: object) -> str:
    """Return the text of a key that is none: `1`, `true`, `null`, base64, or JSON."""
    return found if isinstance(found, str) else compact_json(found)


def _time(value: datetime.datetime) -> str:
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=precision)
    try:
        in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    except OverflowError:
        raise DecodeError("a time is out of the range of years 1 to 9999") from None
    return f"{in_utc.isoformat(timespec=precision)}Z"
