"""What a WHERE says about queues, offsets, store times and tags. Pure.

Spark 4.1 and later offers the comparisons of a WHERE that `AND` joins. Those of topic,
broker, queue, offset and tags are applied exactly. Store times only narrow what is
read, and Spark compares them again: within a queue they are in order unless a broker's
clock was set back, for which `CLOCK_STEP_MS` is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rmqcli.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue

#: How far back a broker's clock may have been set without a row being lost.
CLOCK_STEP_MS: Final = 10 * 60 * 1000

_NEVER_NULL: Final = ("topic", "broker_name", "queue_id", "queue_offset")


@dataclass(slots=True)
class Pushed:
    """What is left to read. None means that nothing was said."""

    values: dict[str, set[object]] = field(default_factory=dict)
    #: lowest offset, and the one after the highest
    offset_start: int | None = None
    offset_end: int | None = None
    #: store times: not before, and not at or after
    time_start_ms: int | None = None
    time_end_ms: int | None = None

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags that are asked for."""
        tags = self.values.get("tags")
        return None if tags is None else frozenset(map(str, tags))

    def take(self, condition: object) -> bool:
        """Note one of PySpark's Filter objects; return whether that is all of it.

        False where Spark has to compare, too.
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
        """Whether anything of a queue is asked for."""
        return all(
            value in self.values.get(name, {value})
            for name, value in (
                ("topic", queue.topic),
                ("broker_name", queue.broker_name),
                ("queue_id", queue.queue_id),
            )
        )

    def clip(self, wanted: OffsetRange) -> OffsetRange:
        """Return what of a range is asked for, by offset; empty when nothing is."""
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
            return  # of an unknown zone: Spark compares
        epoch = datetime.fromtimestamp(0, tz=value.tzinfo)
        value_ms = (value - epoch) // timedelta(milliseconds=1)
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            low_ms = max(0, value_ms - CLOCK_STEP_MS)
            self.time_start_ms = max(low_ms, self.time_start_ms or 0)
        if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
            end_ms = max(0, value_ms + 1 + CLOCK_STEP_MS)
            known = self.time_end_ms
            self.time_end_ms = end_ms if known is None else min(end_ms, known)
