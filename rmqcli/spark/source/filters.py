"""The conditions of a WHERE on queues, offsets, store times and tags. Pure.

They only narrow what a scan reads, and Spark compares every row again. Within a queue
store times are in order unless the broker's clock was set back, and `CLOCK_STEP_MS`
allows for that.

A condition is a comparison of a column with a value, named as in
org.apache.spark.sql.sources: `("EqualTo", "queue_id", 1)`. The value of `In` is a
tuple, and a time is in epoch milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue

#: How far a broker's clock may have been set back without a loss of rows.
CLOCK_STEP_MS: Final = 10 * 60 * 1000

Condition = tuple[str, str, Any]

#: The comparisons that set a lower bound, and those that set an upper one.
_LOWER: Final = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")
_UPPER: Final = ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual")
COMPARISONS: Final = frozenset((*_LOWER, *_UPPER))
_BY_VALUE: Final = ("topic", "broker_name", "queue_id", "tags")


def conditions_to_json(conditions: Iterable[Condition]) -> str:
    """The conditions as the text of an option of a scan."""
    return json.dumps(sorted(conditions, key=repr))


@dataclass(slots=True)
class Pushed:
    """What the conditions of one scan allow. None means that there is no condition.

    `values` has the allowed values of a column.
    """

    values: dict[str, set[object]] = field(default_factory=dict)
    #: the lowest offset, and the offset after the highest
    offset_start: int | None = None
    offset_end: int | None = None
    #: half-open range of store times, which includes the margin for clock steps
    time_start_ms: int | None = None
    time_end_ms: int | None = None

    @classmethod
    def from_json(cls, text: str) -> Pushed:
        """What conditions allow that `conditions_to_json` has written."""
        pushed = cls()
        for kind, column, value in json.loads(text):
            pushed.take(kind, column, value)
        return pushed

    @property
    def tags(self) -> frozenset[str] | None:
        """The allowed tags; None when there is no condition on tags."""
        tags = self.values.get("tags")
        return None if tags is None else frozenset(map(str, tags))

    def take(self, kind: str, column: str, value: Any) -> None:  # noqa: ANN401  # of the column's type
        """Add a condition that rows must meet; ignore one that cannot narrow a scan."""
        if kind in ("EqualTo", "EqualNullSafe", "In") and column in _BY_VALUE:
            self._one_of(column, value if kind == "In" else [value])
        elif column == "queue_offset" and isinstance(value, int):
            self._offsets(kind, value)
        elif column == "store_timestamp" and isinstance(value, int):
            self._times(kind, value)

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

    def _one_of(self, name: str, values: Iterable[object]) -> None:
        wanted = set(values)
        if None in wanted:
            return
        known = self.values.get(name)
        self.values[name] = wanted if known is None else known & wanted

    def _offsets(self, kind: str, value: int) -> None:
        if kind in _LOWER:
            low = value + (kind == "GreaterThan")
            self.offset_start = max(low, self.offset_start or 0)
        if kind in _UPPER:
            end = value + (kind != "LessThan")
            known = self.offset_end
            self.offset_end = max(0, end if known is None else min(end, known))

    def _times(self, kind: str, value_ms: int) -> None:
        if kind in _LOWER:
            low_ms = max(0, value_ms - CLOCK_STEP_MS)
            self.time_start_ms = max(low_ms, self.time_start_ms or 0)
        if kind in _UPPER:
            end_ms = max(0, value_ms + 1 + CLOCK_STEP_MS)
            known = self.time_end_ms
            self.time_end_ms = end_ms if known is None else min(end_ms, known)
