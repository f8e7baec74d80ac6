"""The record in a commit of a table: which offsets the export has read. Pure.

Delta Lake stores it as the `userMetadata` of the commit, Iceberg in the summary of the
snapshot. A record lists the offsets that its run has read and all offsets that the
table covers, so the newest record alone is enough to continue from.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RefusedError
from rmqcli.spark.extent import NotedMessage, QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.spark.extent import QueueRange

RECORD_VERSION: Final = 1
_VERSION_KEY: Final = "rmqcli_export"
#: The name of the record in the summary of an Iceberg snapshot.
PROPERTY: Final = "rmqcli.export"
_TEXT_MAX: Final = 16 << 20

#: Half-open ranges of offsets, sorted; no two of them touch.
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """The offsets that one commit has read, and all that the table covers with it.

    `read` has the range `start <= o < end` of each queue. `covered` has the ranges of
    all commits up to and including this one. `gone` lists the queues that have left the
    route and not come back, which the user accepted. `sequence` increases with each
    commit. `noted` has the last message of each queue, by which it can be recognized.
    """

    run_id: str
    sequence: int
    cluster: str
    topic: str
    tag: str | None
    decode: str | None
    read: Mapping[QueueKey, tuple[int, int]]
    covered: Mapping[QueueKey, Spans]
    gone: tuple[QueueKey, ...] = ()
    noted: Mapping[QueueKey, NotedMessage]

    def ends(self) -> dict[QueueKey, int]:
        """The offset at which the next run continues in each queue."""
        return {queue: spans[-1][1] for queue, spans in self.covered.items() if spans}


def record_to_json(record: TableRecord) -> str:
    """Return the text of a record, which contains no secret."""
    noted = {queue: astuple(each) for queue, each in record.noted.items()}
    value = {
        _VERSION_KEY: RECORD_VERSION,
        **{each.name: getattr(record, each.name) for each in fields(record)},
        "read": _by_broker(record.read),
        "covered": _by_broker(record.covered),
        "gone": sorted(record.gone),
        "noted": _by_broker(noted),
    }
    return json.dumps(value, separators=(",", ":"))


def record_from_json(text: str | None, *, table: str) -> TableRecord | None:
    """Parse a record; return None for any other text.

    Raises ConfigError, which names the table, for a record that this version of rmqcli
    cannot read.
    """
    if text is None or _VERSION_KEY not in text or len(text) > _TEXT_MAX:
        return None
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or _VERSION_KEY not in value:
        return None
    if value[_VERSION_KEY] != RECORD_VERSION:
        raise ConfigError(
            f"{table} has a commit with a record of version {value[_VERSION_KEY]!r},"
            f" but this rmqcli reads version {RECORD_VERSION}",
            hint="use the version of rmqcli that wrote it, or a newer one",
        )
    try:
        return TableRecord(
            run_id=str(value["run_id"]),
            sequence=int(value["sequence"]),
            cluster=str(value["cluster"]),
            topic=str(value["topic"]),
            tag=value["tag"],
            decode=value["decode"],
            read={queue: _span(each) for queue, each in _by_queue(value["read"])},
            covered={
                queue: tuple(_span(each) for each in spans)
                for queue, spans in _by_queue(value["covered"])
            },
            gone=tuple((str(name), int(queue_id)) for name, queue_id in value["gone"]),
            noted={queue: _message(each) for queue, each in _by_queue(value["noted"])},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{table} has a commit with a record that cannot be read: {error!r}"
        ) from error


def merged(
    covered: Mapping[QueueKey, Spans], read: Mapping[QueueKey, tuple[int, int]]
) -> dict[QueueKey, Spans]:
    """Add the ranges that were read to the covered ones; join ranges that touch.

    A queue that is not covered yet and of which nothing was read gets an empty range,
    so that the next run continues there.
    """
    found = dict(covered)
    for queue, span in read.items():
        if span[0] == span[1] and found.get(queue):
            continue
        spans: list[tuple[int, int]] = []
        for start, end in sorted([*found.get(queue, ()), span]):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        found[queue] = tuple(spans)
    return found


def with_last(
    noted: Mapping[QueueKey, NotedMessage], queues: Iterable[QueueRange]
) -> dict[QueueKey, NotedMessage]:
    """Return what is noted of each queue, with the last messages of newer ranges."""
    found = dict(noted)
    for queue in queues:
        before = found.get(queue.key)
        if queue.last is not None and (
            before is None or before.queue_offset <= queue.last.queue_offset
        ):
            found[queue.key] = queue.last
    return found


def overlap(spans: Spans, start: int, end: int) -> int:
    """Return how many offsets of `start <= o < end` are in the spans."""
    return sum(max(0, min(end, high) - max(start, low)) for low, high in spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaCommit:
    """A commit in the history of a Delta table."""

    version: int
    operation: str
    parameters: Mapping[str, str | None]
    metadata: str | None


def newest_in_delta(
    commits: Sequence[DeltaCommit], *, table: str
) -> TableRecord | None:
    """Return the newest record whose commit is part of the table's current state.

    `commits` begins with the newest commit. A RESTORE returns the table to an earlier
    version, so the records in between do not count. Raises RefusedError when a RESTORE
    does not name its version.
    """
    below = None
    for commit in commits:
        if below is not None and commit.version > below:
            continue
        record = record_from_json(commit.metadata, table=table)
        if record is not None:
            return record
        if commit.operation == "RESTORE":
            below = _restored(commit, table)
    return None


def next_in_delta(commits: Sequence[DeltaCommit], *, table: str) -> int:
    """Return the number of the next record. `commits` begins with the newest commit.

    Delta Lake skips a write whose number is not greater than the last one. A record
    that a RESTORE has undone has used its number, too.
    """
    records = (record_from_json(each.metadata, table=table) for each in commits)
    used = [record.sequence for record in records if record is not None]
    # The number of a record is never greater than the version of its commit.
    return (max(used) if used else commits[0].version) + 1


def _restored(commit: DeltaCommit, table: str) -> int:
    """The version to which a RESTORE returned the table."""
    version = commit.parameters.get("version")
    if version is not None:
        return int(version)
    raise RefusedError(
        f"{table} was restored to {commit.parameters.get('timestamp')}, but its history"
        " does not record which version that was",
        hint="restore it to the same version by its number, then export again",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of an Iceberg table."""

    snapshot_id: int
    parent_id: int | None
    summary: Mapping[str, str]


def lineage(
    snapshots: Iterable[Snapshot], current_id: int | None
) -> Iterable[Snapshot]:
    """Yield the current snapshot and its ancestors, as far as the table keeps them."""
    by_id = {each.snapshot_id: each for each in snapshots}
    while current_id is not None and current_id in by_id:
        # each snapshot is yielded once, so that a cycle ends
        snapshot = by_id.pop(current_id)
        yield snapshot
        current_id = snapshot.parent_id


def records_in_iceberg(
    snapshots: Iterable[Snapshot], current_id: int | None, *, table: str
) -> list[tuple[int, TableRecord]]:
    """Return the records of the table's current state and their snapshot ids.

    The newest record comes first. Snapshots that a rollback has undone do not count,
    because they are not ancestors of the current snapshot.
    """
    found = []
    for snapshot in lineage(snapshots, current_id):
        record = record_from_json(snapshot.summary.get(PROPERTY), table=table)
        if record is not None:
            found.append((snapshot.snapshot_id, record))
    return found


def _by_broker(queues: Mapping[QueueKey, object]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = defaultdict(dict)
    for (broker_name, queue_id), value in sorted(queues.items()):
        found[broker_name][str(queue_id)] = value
    return dict(found)


def _by_queue(brokers: Any) -> Iterable[tuple[QueueKey, Any]]:  # noqa: ANN401  # JSON
    for broker_name, queues in brokers.items():
        for queue_id, value in queues.items():
            yield (str(broker_name), int(queue_id)), value


def _message(value: Any) -> NotedMessage:  # noqa: ANN401  # JSON
    offset, msg_id, at = value
    return NotedMessage(
        int(offset),
        None if msg_id is None else str(msg_id),
        None if at is None else int(at),
    )


def _span(value: Any) -> tuple[int, int]:  # noqa: ANN401  # JSON
    start, end = value
    if not 0 <= int(start) <= int(end):
        raise ValueError(f"{value!r} is not a range of offsets")
    return int(start), int(end)
