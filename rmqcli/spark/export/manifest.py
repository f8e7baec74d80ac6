"""What an export has written: the record of each part, and the manifest of all runs.

The record of a part proves that it is complete: its rows and its filtered, undecodable
and missing offsets add up to its range, and its files are listed with their sizes. The
manifest lists the finished runs with their parts; a run that is not in it is
unfinished. It consists of one file and of segments, each of which adds or replaces
runs, so that a run need not write the records of all earlier runs again. Pure: text in,
text out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, PartialError
from rmqcli.spark.export.document import parse_document, parse_versioned, read_as
from rmqcli.spark.export.plan import ExportRequest  # noqa: TC001  # for `read_as`
from rmqcli.spark.extent import (
    NotedMessage,
    OfQueue,
    QueueKey,
    QueueRange,
    RangeOfQueue,
)
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.spark.export.plan import ExportPlan, PartSpec

MANIFEST_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One Parquet file. `path` is relative to the directory.

    `start` and `end` are the ends in the file's name: the file has every message of
    that half-open range with this file's path keys. `first_offset` and `last_offset`
    are the offsets of its first and last row. Store times are None only when no message
    has a valid one.
    """

    path: str
    start: int
    end: int
    rows: int
    first_offset: int
    last_offset: int
    file_bytes: int
    first_store_timestamp_ms: int | None
    last_store_timestamp_ms: int | None
    body_crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyFile:
    """A Parquet file without rows, from which readers get the columns."""

    path: str
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult(RangeOfQueue):
    """One part that was written. `missing` has sorted, disjoint, half-open ranges."""

    index: int
    broker_name: str
    queue_id: int
    start: int
    end: int
    rows: int
    filtered: int
    undecodable: int
    missing: tuple[tuple[int, int], ...]
    files: tuple[FileRow, ...]
    #: rows whose body could not be decoded to columns
    corrupt: int = 0

    @property
    def missing_count(self) -> int:
        return sum(end - start for start, end in self.missing)

    def check(self, part: PartSpec) -> None:
        """Raise PartialError unless the counts cover every offset of `part`."""
        mine = (self.index, self.broker_name, self.queue_id, self.start, self.end)
        asked = (part.index, part.broker_name, part.queue_id, part.start, part.end)
        if mine != asked:
            raise PartialError(f"the record of part {asked} is for part {mine}")
        seen = self.rows + self.filtered + self.undecodable + self.missing_count
        if seen != len(part) or self.rows != sum(file.rows for file in self.files):
            raise PartialError(
                f"part {self.index} of {self.broker_name} queue {self.queue_id} does "
                f"not add up: {counted(self.rows, 'row')} in"
                f" {counted(len(self.files), 'file')}, "
                f"{self.filtered} filtered, {self.undecodable} undecodable and "
                f"{self.missing_count} missing of {len(part)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(OfQueue):
    """Offsets that were requested and are missing. `end` is None when unknown."""

    broker_name: str
    queue_id: int
    start: int
    end: int | None
    #: "trimmed": below the queue's min offset before the run; "missing": not found
    #: during it; "gone": the queue is no longer in the route
    reason: str


def length_of(gaps: Iterable[Gap]) -> int | None:
    """Return how many offsets are missing; None when the end of a gap is unknown."""
    total = 0
    for gap in gaps:
        if gap.end is None:
            return None
        total += gap.end - gap.start
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One finished run.

    `gaps_allowed` says that the user accepted its gaps, and `undecodable_allowed` that
    the user accepted that messages which could not be decoded are not in the Parquet
    files.
    """

    run_id: str
    finished_at_ms: int
    request: ExportRequest
    queues: tuple[QueueRange, ...]
    parts: tuple[PartResult, ...]
    gone: tuple[Gap, ...] = ()
    gaps_allowed: bool = False
    undecodable_allowed: bool = False
    #: the file that is written when no run of the directory has a row
    empty_file: EmptyFile | None = None
    #: ids of earlier runs that a compaction has made part of this one
    absorbed: tuple[str, ...] = ()

    def files(self) -> list[tuple[str, int]]:
        """Return path and size in bytes of every file of the run."""
        files = [(row.path, row.file_bytes) for p in self.parts for row in p.files]
        if self.empty_file is not None:
            files.append((self.empty_file.path, self.empty_file.file_bytes))
        return files

    @property
    def undecodable(self) -> int:
        """The number of messages that could not be decoded."""
        return sum(part.undecodable for part in self.parts)

    @property
    def corrupt(self) -> int:
        """The number of rows whose body could not be decoded to columns."""
        return sum(part.corrupt for part in self.parts)

    @property
    def is_accepted(self) -> bool:
        """Whether every message is in the files, except what the user accepted."""
        return (self.gaps_allowed or not self.gaps()) and (
            self.undecodable_allowed or not self.undecodable
        )

    def gaps(self) -> list[Gap]:
        """Return all gaps, sorted by queue and offset, of all three reasons.

        Missing ranges that touch at the edge of two parts are joined into one gap.
        """
        gaps = list(self.gone)
        for queue in self.queues:
            if queue.trimmed is not None:
                gaps += [_gap(queue, queue.trimmed, "trimmed")]
        for part in self.parts:
            gaps.extend(_gap(part, span, "missing") for span in part.missing)
        return _merged(sorted(gaps, key=lambda gap: (gap.key, gap.start)))


@dataclass(frozen=True, slots=True)
class Manifest:
    """All finished runs of one directory, oldest first, and their topic."""

    topic: str
    runs: tuple[RunRecord, ...] = field(default=())

    def run(self, run_id: str) -> RunRecord | None:
        """Return the finished run with this id, or None."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    def run_ids(self) -> set[str]:
        """Return the ids of all finished runs, also of those that were absorbed."""
        return {i for run in self.runs for i in (run.run_id, *run.absorbed)}

    def with_runs(self, records: Iterable[RunRecord]) -> Manifest:
        """Return this manifest with `records` added; a record replaces the same run."""
        runs = {run.run_id: run for run in self.runs}
        for record in records:
            runs[record.run_id] = record  # at the position of the replaced one
        return Manifest(self.topic, tuple(runs.values()))

    def ends(self) -> dict[QueueKey, int]:
        """Return for each queue the offset where the next run begins."""
        ends: dict[QueueKey, int] = {}
        for run in self.runs:
            for queue in run.queues:
                ends[queue.key] = max(ends.get(queue.key, 0), queue.end)
        return ends

    def noted(
        self, queues: Iterable[QueueRange] = (), parts: Iterable[PartResult] = ()
    ) -> dict[QueueKey, NotedMessage]:
        """Return the last message that is known of each queue.

        `queues` and `parts` are those of a run that has not finished. Runs of earlier
        versions have noted no messages. Of theirs, it is the last row of the last file:
        the file's highest store time bounds that of the row.
        """
        every_queue = (*(q for run in self.runs for q in run.queues), *queues)
        every_part = (*(p for run in self.runs for p in run.parts), *parts)
        found = [(q.key, q.last) for q in every_queue if q.last is not None]
        found += [
            (part.key, NotedMessage(row.last_offset, None, at))
            for part in every_part
            for row in part.files
            if (at := row.last_store_timestamp_ms) is not None
        ]
        noted: dict[QueueKey, NotedMessage] = {}
        for key, message in found:
            # A message of a plan comes first: it is known by its ID, too.
            if key not in noted or noted[key].queue_offset < message.queue_offset:
                noted[key] = message
        return noted

    def overlap(self, queues: Iterable[QueueRange]) -> str | None:
        """Return a text that names a range of `queues` that is already exported.

        None if there is no such range.
        """
        taken: dict[QueueKey, list[tuple[int, int, str]]] = {}
        for run in self.runs:
            for mine in run.queues:
                span = mine.start, mine.end, run.run_id
                taken.setdefault(mine.key, []).append(span)
        for queue in queues:
            for start, end, run_id in taken.get(queue.key, ()):
                if max(start, queue.start) < min(end, queue.end):
                    return (
                        f"{queue.broker_name} queue {queue.queue_id} offsets "
                        f"{max(start, queue.start)} to {min(end, queue.end)} have "
                        f"already been exported by run {run_id}"
                    )
        return None


def _merged(gaps: list[Gap]) -> list[Gap]:
    """Join sorted gaps that touch each other and have the same queue and reason."""
    merged: list[Gap] = []
    for gap in gaps:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.end == gap.start
            and replace(last, start=gap.start, end=gap.end) == gap
        ):
            merged[-1] = replace(last, end=gap.end)
        else:
            merged.append(gap)
    return merged


def _gap(owner: QueueRange | PartResult, span: tuple[int, int], reason: str) -> Gap:
    return Gap(
        broker_name=owner.broker_name,
        queue_id=owner.queue_id,
        start=span[0],
        end=span[1],
        reason=reason,
    )


def finish_run(
    plan: ExportPlan,
    results: Iterable[PartResult],
    *,
    finished_at_ms: int,
    gone: tuple[Gap, ...] = (),
    gaps_allowed: bool = False,
    undecodable_allowed: bool = False,
) -> RunRecord:
    """Return the record of a run whose parts are complete and add up.

    Raises PartialError when a part is missing, given twice, or does not add up.
    """
    by_index: dict[int, PartResult] = {}
    for result in results:
        if result.index in by_index:
            raise PartialError(f"part {result.index} was written twice")
        by_index[result.index] = result
    parts = plan.parts()
    for part in parts:
        if part.index not in by_index:
            raise PartialError(f"part {part.index} of {len(parts)} was not written")
        by_index[part.index].check(part)
    return RunRecord(
        run_id=plan.run_id,
        finished_at_ms=finished_at_ms,
        request=plan.request,
        queues=plan.queues,
        parts=tuple(by_index[part.index] for part in parts),
        gone=gone,
        gaps_allowed=gaps_allowed,
        undecodable_allowed=undecodable_allowed,
    )


def part_to_json(result: PartResult) -> str:
    """Return the record of a part as one line."""
    return json.dumps(asdict(result), separators=(",", ":"), sort_keys=True) + "\n"


def part_from_json(text: str) -> PartResult:
    """Parse the record of a part. Raises ValueError for an invalid record."""
    return read_as(PartResult, parse_document(text))


def manifest_to_json(manifest: Manifest) -> str:
    """Return the text of `manifest.json`."""
    value = {"version": MANIFEST_VERSION, **asdict(manifest)}
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def manifest_from_json(text: str, *, path: str) -> Manifest:
    """Parse `manifest.json`. Raises ConfigError, with `path`, when it is invalid."""
    try:
        return read_as(Manifest, parse_versioned(text, MANIFEST_VERSION))
    except ValueError as error:
        raise ConfigError(f"{path} is not an export manifest: {error}") from error
