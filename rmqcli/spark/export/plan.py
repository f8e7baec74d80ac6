"""The plan of an export: the ranges to read, which never change afterwards.

The driver resolves positions to offsets. The parts, their order and their final names
are then determined by the plan alone. A retried task, a resumed run and a speculative
copy of a task therefore read the same ranges. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.decode.settings import FORMATS, Decoding
from rmqcli.errors import ConfigError
from rmqcli.names import STORED_NAME
from rmqcli.spark.export.document import parse_versioned, read_as
from rmqcli.spark.extent import QueueRange, RangeOfQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLAN_VERSION: Final = 1
ROWS_PER_FILE_DEFAULT: Final = 500_000
BYTES_PER_FILE_DEFAULT: Final = 1024 * 1024 * 1024

#: Field of a request -> what it may be, if it is not None.
CHOICES: Final = {
    "partition_by": ("none", "queue", "date", "hour"),
    "compression": ("zstd", "snappy", "lz4", "gzip", "none"),
    "decode": FORMATS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, as the user wrote it. Equal requests are the same export."""

    topic: str
    from_position: str
    to_position: str
    queues: tuple[str, ...] = ()
    tag: str | None = None
    rows_per_file: int = ROWS_PER_FILE_DEFAULT
    #: a file that reaches this size is closed; also limits parts, by estimated size
    bytes_per_file: int = BYTES_PER_FILE_DEFAULT
    #: cut the range into at least this many parts
    min_partitions: int | None = None
    partition_by: str = "none"
    compression: str = "zstd"
    #: json, avro or protobuf, with the schema or, for json, the number of messages from
    #: which to infer one; None to keep bodies as bytes
    decode: str | None = None
    decode_schema: str | None = None
    decode_infer: int | None = None
    #: the schema that was inferred when the first run of the folder was planned
    decode_inferred: str | None = field(default=None, compare=False)

    @property
    def decoding(self) -> Decoding | None:
        """How bodies are decoded; None when they are not."""
        if self.decode is None:
            return None
        schema = self.decode_schema or self.decode_inferred
        return Decoding(self.decode, schema, self.decode_infer)

    def decodes_like(self, other: ExportRequest) -> bool:
        """Whether the files of both requests have the same columns."""
        mine, theirs = (
            (each.decode, each.decode_schema, each.decode_infer)
            for each in (self, other)
        )
        return mine == theirs

    def __post_init__(self) -> None:
        if not STORED_NAME.fullmatch(self.topic):
            raise ConfigError(f"{self.topic!r:.140} is not a valid topic name")
        for name in ("rows_per_file", "bytes_per_file", "min_partitions"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} must be 1 or more, not {number}")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise ConfigError(
                    f"{name} {value!r:.40} is not one of {', '.join(allowed)}"
                )
        given = (self.decode_schema is not None) + (self.decode_infer is not None)
        if given != (self.decode is not None):
            raise ConfigError("decode needs either decode_schema or decode_infer")


@dataclass(frozen=True, slots=True)
class PartSpec(RangeOfQueue):
    """One unit of work: a range of one queue that becomes one or a few files."""

    index: int
    broker_name: str
    queue_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """The plan of one run. `queues` are sorted by broker name and queue id."""

    run_id: str
    created_at_ms: int
    request: ExportRequest
    queues: tuple[QueueRange, ...]
    #: None in older plans, whose parts were cut by `rows_per_file` alone
    rows_per_part: int | None = None

    @property
    def planned_messages(self) -> int:
        """The number of offsets that the parts cover."""
        return sum(queue.end - queue.start for queue in self.queues)

    def parts(self) -> list[PartSpec]:
        """Return the parts, sorted by queue and offset; an index identifies a part."""
        return cut_parts(
            self.queues, rows_per_part=self.rows_per_part or self.request.rows_per_file
        )


def rows_per_part(
    request: ExportRequest, *, messages: int, message_bytes: int | None
) -> int:
    """Return the most offsets of a part, so that enough workers share the range.

    `messages` is the number of messages in the whole range, and `message_bytes` their
    average size, None when it is unknown. The result divides `rows_per_file` evenly, up
    to rounding.
    """
    wanted = request.rows_per_file
    if message_bytes:
        wanted = min(wanted, max(1, request.bytes_per_file // message_bytes))
    if request.min_partitions:
        wanted = min(wanted, max(1, messages // request.min_partitions))
    pieces = -(-request.rows_per_file // wanted)
    return -(-request.rows_per_file // pieces)


def cut_parts(queues: Iterable[QueueRange], *, rows_per_part: int) -> list[PartSpec]:
    """Cut the range of each queue at multiples of `rows_per_part`.

    The cuts do not depend on the start, so a later export of the same offsets cuts at
    the same points. The parts are disjoint, in order, and cover each range exactly.
    """
    parts: list[PartSpec] = []
    for queue in queues:
        start = queue.start
        while start < queue.end:
            end = min(queue.end, (start // rows_per_part + 1) * rows_per_part)
            name, queue_id = queue.broker_name, queue.queue_id
            parts.append(PartSpec(len(parts), name, queue_id, start, end))
            start = end
    return parts


def group_tasks(parts: Sequence[PartSpec], *, tasks: int) -> list[list[PartSpec]]:
    """Distribute the parts over at most `tasks` lists of about equal message counts.

    Long parts are assigned first, each to the list with the least work, so that no task
    ends much later than the others. A task costs Spark about 40 ms of CPU, so thousands
    of tiny queues must not become thousands of tasks.
    """
    groups: list[list[PartSpec]] = [[] for _ in range(min(tasks, len(parts)))]
    loads = [0] * len(groups)
    for part in sorted(parts, key=lambda p: (-len(p), p.index)):
        lightest = loads.index(min(loads))
        groups[lightest].append(part)
        loads[lightest] += len(part)
    return groups


def plan_to_json(plan: ExportPlan) -> str:
    """Return the text of `plan.json`, which contains no secret."""
    value = {"version": PLAN_VERSION, **asdict(plan)}
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def plan_from_json(text: str, *, path: str) -> ExportPlan:
    """Parse `plan.json`. Raises ConfigError, with `path`, when it is not a plan."""
    try:
        return read_as(ExportPlan, parse_versioned(text, PLAN_VERSION))
    except ValueError as error:
        raise ConfigError(f"{path} is not an export plan: {error}") from error
