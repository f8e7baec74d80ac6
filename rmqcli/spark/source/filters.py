"""The conditions of a WHERE on queues, offsets, store times and tags. Pure.

Spark 4.1 and later pass the comparisons that `AND` joins in a WHERE. Comparisons of
topic, broker, queue, offset and tags are applied exactly. Comparisons of store times
only narrow the range to read, and Spark compares the times again: within a queue they
are in order unless the broker's clock was set back, and `CLOCK_STEP_MS` allows for
that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rmqcli.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue

#: How far a broker's clock may have been set back without a loss of rows.
CLOCK_STEP_MS: Final = 10 * 60 * 1000

_NEVER_NULL: Final = ("topic", "broker_name", "queue_id", "queue_offset")


@dataclass(slots=True)
class Pushed:
    """The conditions that were pushed down. None means that there is no condition.

    `values` has the allowed values of a column.
    """

    values: dict[str, set[object]] = field(default_factory=dict)
    #: the lowest offset, and the offset after the highest
    offset_start: int | None = None
    offset_end: int | None = None
    #: half-open range of store times, which includes the margin for clock steps
    time_start_ms: int | None = None
    time_end_ms: int | None = None

    @property
    def tags(self) -> frozenset[str] | None:
        """The allowed tags; None when there is no condition on tags."""
        tags = self.values.get("tags")
        return None if tags is None else frozenset(map(str, tags))

    def take(self, condition: object) -> bool:
        """Add one of PySpark's Filter objects; return whether it is applied exactly.

        When the result is False, Spark must compare, too.
        """
        column = getattr(condition, "attribute", None)
        if column is None or len(column) != 1:
            return False
        name, kind = column[0], type(condition).__name__
        value: Any = getattr(condition, "value", None)
        if kind == "IsNotNull":
            return name in _NEVER_NULL
        if kind in ("EqualTo", "EqualNullSafe", "In") and name in (
            *_NEVER_NULL[:3],
            "tags",
        ):
            return self._one_of(name, value if kind == "In" else [value])
        if name == "queue_offset" and isinstance(value, int):
            return self._offsets(kind, value)
        if name == "store_timestamp" and isinstance(value, datetime):
            self._times(kind, value)
        return False

    def keeps(self, queue: MessageQueue) -> bool:
        """Whether rows of a queue may meet the conditions."""
        return all(
            value in self.values.get(name, {value})
            for name, value in (
                ("topic", queue.topic),
                ("broker_name", queue.broker_name),
                ("queue_id", queue.queue_id),
            )
        )

    def clip(self, wanted: OffsetRange) -> OffsetRange:
        """Return the part of a range that the conditions on offsets allow, or empty."""
        start, end = wanted.start, wanted.end
        if self.offset_start is not None:
            start = max(start, self.offset_start)
        if self.offset_end is not None:
            end = min(end, self.offset_end)
        return OffsetRange(wanted.queue, start, max(start, end))

    def _one_of(self, name: str, values: Iterable[object]) -> bool:
        wanted = set(values)
        if None in wanted:
            return False
        known = self.values.get(name)
        self.values[name] = wanted if known is None else known & wanted
        return True

    def _offsets(self, kind: str, value: int) -> bool:
        low: int | None = None
        end: int | None = None
        match kind:
            case "EqualTo" | "EqualNullSafe":
                low, end = value, value + 1
            case "GreaterThan":
                low = value + 1
            case "GreaterThanOrEqual":
                low = value
            case "LessThan":
                end = value
            case "LessThanOrEqual":
                end = value + 1
            case _:
                return False
        if low is not None:
            self.offset_start = max(low, self.offset_start or 0)
        if end is not None:
            known = self.offset_end
            self.offset_end = max(0, end if known is None else min(end, known))
        return True

    def _times(self, kind: str, value: datetime) -> None:
        if value.tzinfo is None:
            return  # the time zone is unknown, so only Spark compares
        epoch = datetime.fromtimestamp(0, tz=value.tzinfo)
        value_ms = (value - epoch) // timedelta(milliseconds=1)
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            low_ms = max(0, value_ms - CLOCK_STEP_MS)
            self.time_start_ms = max(low_ms, self.time_start_ms or 0)
        if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
            end_ms = max(0, value_ms + 1 + CLOCK_STEP_MS)
            known = self.time_end_ms
            self.time_end_ms = end_ms if known is None else min(end_ms, known)
