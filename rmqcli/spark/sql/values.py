"""Convert the values of Spark's rows to JSON values. Pure.

Times are RFC 3339 in UTC, as in all commands. A decimal becomes a JSON number, or a
string when a double cannot hold its value exactly.
"""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def plain(value: object) -> object:
    """The JSON value of a cell: None, bool, int, float, str, or a list or dict of them.

    A binary value stays `bytes`; inside of lists and dicts it is in base64, as in
    Spark's own `to_json`: a text for some of them could be that of another value.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytearray() | bytes():
            return bytes(value)
        case Decimal():
            return _number(value)
        case datetime():
            return _time(value)
        case date():
            return value.isoformat()
        case dict():
            return {key_text(key): _inner(each) for key, each in value.items()}
        case tuple() if hasattr(value, "__fields__"):  # pyspark.sql.Row
            return dict(zip(value.__fields__, map(_inner, value), strict=True))
        case list() | tuple():
            return [_inner(each) for each in value]
    return str(value)


def _inner(value: object) -> object:
    """The JSON value of what is inside of a list, a map or a struct."""
    found = plain(value)
    if isinstance(found, bytes):
        return base64.b64encode(found).decode("ascii")
    return found


def _number(value: Decimal) -> object:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    short = float(value)
    return short if Decimal(repr(short)) == value else str(value)


def _time(value: datetime) -> str:
    """The time in UTC. PySpark returns local times without a time zone.

    Where a local time occurs twice, `fold` tells which of the two is meant.
    """
    moment = value.astimezone(UTC).replace(tzinfo=None)
    whole_ms = moment.microsecond % 1000 == 0
    return moment.isoformat(timespec="milliseconds" if whole_ms else "microseconds") + (
        "Z"
    )


def key_text(key: Any) -> str:  # noqa: ANN401  # whatever the type of a map's keys is
    """The key of a JSON object for a key of a map."""
    found = _inner(key)
    return found if isinstance(found, str) else str(found)
