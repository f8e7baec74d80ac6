"""What an export will read: fixed once, written down, never changed.

The driver resolves positions to offsets, and from then on everything is a function of
the plan: the parts, their order and their final names. A retried task, a resumed run
and a speculative twin therefore read the same ranges. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from rmqcli.errors import ConfigError, UsageError
from rmqcli.model import MessageQueue, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLAN_VERSION: Final = 1
ROWS_PER_FILE_DEFAULT: Final = 500_000

PartitionBy = Literal["none", "queue", "date", "hour"]
Compression = Literal["zstd", "snappy", "lz4", "gzip", "none"]
#: Below the queue's min offset before the run; not found during it; the queue itself is
#: in the route no more.
GapReason = Literal["trimmed", "missing", "gone"]

PARTITIONS: Final[tuple[str, ...]] = get_args(PartitionBy)
COMPRESSIONS: Final[tuple[str, ...]] = get_args(Compression)

#: Rule of the broker for topic names; longer than 127 only for %RETRY% and %DLQ%.
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # TopicValidator


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What the user asked for, in the user's words; equal requests are one export."""

    topic: str
    from_position: str
    to_position: str
    queues: tuple[str, ...] = ()
    tag: str | None = None
    rows_per_file: int = ROWS_PER_FILE_DEFAULT
    partition_by: str = "none"
    compression: str = "zstd"

    def __post_init__(self) -> None:
        if not _TOPIC.fullmatch(self.topic):
            raise UsageError(f"topic {self.topic!r} is not a name a broker accepts")
        if self.rows_per_file < 1:
            raise UsageError(f"rows per file must be >= 1, not {self.rows_per_file}")
        if self.partition_by not in PARTITIONS:
            raise UsageError(
                f"partition-by {self.partition_by!r} is none of {', '.join(PARTITIONS)}"
            )
        if self.compression not in COMPRESSIONS:
            raise UsageError(
                f"compression {self.compression!r} is none of {', '.join(COMPRESSIONS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExtent:
    """What positions resolved to for one queue, before clipping to what is stored."""

    queue: MessageQueue
    asked_start: int
    asked_end: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """Offsets `start <= o < end` of one queue, and what of the asked range is gone.

    `trimmed` is the half-open range that was asked for but lies below the queue's
    `min_offset`; None when nothing does. `start == end` where there is nothing to read.
    """

    broker_name: str
    queue_id: int
    start: int
    end: int
    min_offset: int
    max_offset: int
    trimmed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One unit of work: a range of one queue that becomes one file (or a few)."""

    index: int
    broker_name: str
    queue_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def offset_range(self, topic: str) -> OffsetRange:
        """The same range as the reading layers name it."""
        queue = MessageQueue(topic, self.broker_name, self.queue_id)
        return OffsetRange(queue, self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """A pinned export. `queues` is sorted by broker name and queue id."""

    run_id: str
    created_at_ms: int
    request: ExportRequest
    queues: tuple[QueuePlan, ...]

    @property
    def planned_messages(self) -> int:
        """How many offsets the parts cover."""
        return sum(queue.end - queue.start for queue in self.queues)

    def parts(self) -> list[PartSpec]:
        """The parts, in order of queue and offset; their index is their identity."""
        return cut_parts(self.queues, rows_per_file=self.request.rows_per_file)


def plan_queue(extent: QueueExtent) -> QueuePlan:
    """Clip what was asked for to what the queue holds, and record what is gone.

    An end beyond `max_offset` is clipped silently: nothing is there yet. Raises
    UsageError when the start lies after the end.
    """
    if extent.asked_start > extent.asked_end:
        raise UsageError(
            f"the range of {extent.queue} ends before it starts: "
            f"from {extent.asked_start} to {extent.asked_end}"
        )
    end = max(0, min(extent.asked_end, extent.max_offset))
    start = min(max(extent.asked_start, extent.min_offset), end)
    gone_from = max(0, min(extent.asked_start, end))
    gone_to = min(extent.min_offset, end)
    return QueuePlan(
        broker_name=extent.queue.broker_name,
        queue_id=extent.queue.queue_id,
        start=start,
        end=end,
        min_offset=extent.min_offset,
        max_offset=extent.max_offset,
        trimmed=(gone_from, gone_to) if gone_from < gone_to else None,
    )


def cut_parts(queues: Iterable[QueuePlan], *, rows_per_file: int) -> list[PartSpec]:
    """Cut each queue's range at multiples of `rows_per_file`.

    Multiples, not distances from the start: a later export over the same offsets cuts
    at the same points. The parts are disjoint, in order, and cover each range exactly.
    """
    parts: list[PartSpec] = []
    for queue in queues:
        start = queue.start
        while start < queue.end:
            end = min(queue.end, (start // rows_per_file + 1) * rows_per_file)
            name, queue_id = queue.broker_name, queue.queue_id
            parts.append(PartSpec(len(parts), name, queue_id, start, end))
            start = end
    return parts


def group_tasks(parts: Sequence[PartSpec], *, tasks: int) -> list[list[PartSpec]]:
    """Share the parts out over at most `tasks` lists of about equal message counts.

    Long parts first, each to the list with the least work, so that the last task to end
    does not end much later than the others. A task costs Spark about 40 ms of CPU, so
    thousands of tiny queues must not become thousands of tasks.
    """
    groups: list[list[PartSpec]] = [[] for _ in range(min(tasks, len(parts)))]
    loads = [0] * len(groups)
    for part in sorted(parts, key=lambda p: (-len(p), p.index)):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += len(part)
    return groups


def plan_to_json(plan: ExportPlan) -> str:
    """The plan as the text of `plan.json`. Holds no secret."""
    value = {"version": PLAN_VERSION, **asdict(plan)}
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def plan_from_json(text: str, *, path: str) -> ExportPlan:
    """Read `plan.json` back. Raises ConfigError naming `path` when it is not a plan."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value["version"] != PLAN_VERSION:
            raise ConfigError(f"{path} has plan version {value['version']!r}, not 1")
        return ExportPlan(
            run_id=value["run_id"],
            created_at_ms=value["created_at_ms"],
            request=request_from_json(value["request"]),
            queues=tuple(queue_plan_from_json(queue) for queue in value["queues"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not an export plan: {error!r}") from error


def request_from_json(value: dict[str, Any]) -> ExportRequest:
    """Raises TypeError when keys are unknown or absent."""
    return ExportRequest(**{**value, "queues": tuple(value["queues"])})


def queue_plan_from_json(value: dict[str, Any]) -> QueuePlan:
    """Raises TypeError when keys are unknown or absent."""
    trimmed = value["trimmed"]
    return QueuePlan(**{**value, "trimmed": tuple(trimmed) if trimmed else None})
