"""The log of a copy: how far each queue is, what may be stored, and where copies are.

One JSON object a line, as in the log of redrives. The first line says what is copied
and where to. `starts` has where queues begin, before their first batch, and the queues
of both topics then. Before a batch is sent its spans of offsets are written and flushed
to the disk (`intent`). After it, `outcome` has what became of it: the requests that are
stored, with the places of the messages, the spans without an answer, the new positions
of the queues, and the last message of each of them (`witness`). So after a kill at any
moment the log names all that may be stored without being known as such: the spans of
the one intent without an outcome.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqcli.admin.dlq.log import LockedFile, path_in_state, read_whole
from rmqcli.admin.reset.cluster_identity import (
    ClusterIdentity,
    identity_json,
    is_same_cluster,
    parse_identity,
)
from rmqcli.admin.witness import Witness
from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_VERSION: Final = 2
_QUEUES_LISTED: Final = 5


class SourceSpan(NamedTuple):
    """The offsets `start <= o < end` of a queue of the source.

    `messages` is how many messages a batch sends of them: conditions leave others out.
    """

    broker_name: str
    queue_id: int
    start: int
    end: int
    messages: int

    @property
    def key(self) -> tuple[str, int]:
        """The queue."""
        return self.broker_name, self.queue_id

    def __str__(self) -> str:
        return f"{self.broker_name}:{self.queue_id}:{self.start}-{self.end - 1}"


class StoredRun(NamedTuple):
    """Messages of one request that are stored, next to each other in one queue.

    `offsets` are theirs in the queue of the source, ascending, as `compact` returns
    them; the first of them has `target_offset` in the queue of the target.
    """

    broker_name: str
    queue_id: int
    offsets: Sequence[int]
    target_broker: str
    target_queue: int
    target_offset: int


def compact(offsets: Sequence[int]) -> Sequence[int]:
    """Return ascending offsets, as a range if they are neighbours.

    The state of a copy has those of all messages in memory.
    """
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return range(first, last + 1)
    return array("q", offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of a batch. `unknown` are the spans without an answer.

    `positions` are the new ones of the queues of the source. `read` has the last
    message that was read of each of them, and `written` the last one that was stored in
    each queue of the target.
    """

    runs: Sequence[StoredRun]
    unknown: Sequence[SourceSpan]
    positions: Mapping[tuple[str, int], int]
    read: Mapping[tuple[str, int], Witness]
    written: Mapping[tuple[str, int], Witness]


@dataclass(slots=True)
class CopyState:
    """What a log tells. `positions` are where each queue goes on.

    `stored` are offsets from there on that are stored already. `doubtful` are spans of
    which some messages may be stored: the next run sends them again. `doubts` counts
    their messages by queue of the source, for the index of the first one of `runs` that
    was sent after them. A run that continues another one on both sides is kept as a
    part of that.
    `read` and `written` are as in BatchOutcome, of all batches. `queues` and `targets`
    are those of the last run, as in CopyIdentity.
    """

    queues: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    read: dict[tuple[str, int], Witness] = field(default_factory=dict)
    written: dict[tuple[str, int], Witness] = field(default_factory=dict)
    stored: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    doubtful: list[SourceSpan] = field(default_factory=list)
    runs: list[StoredRun] = field(default_factory=list)
    doubts: dict[int, dict[tuple[str, int], int]] = field(default_factory=dict)
    batch: int = 0
    copied: int = 0
    #: the index of the last run of each pair of queues
    _last: dict[tuple[str, int, str, int], int] = field(default_factory=dict)

    def take_intent(self, batch: int, spans: Sequence[SourceSpan]) -> None:
        """Note that a batch is sent now, after what is doubtful."""
        for span in self.doubtful:
            if span.messages:
                doubts = self.doubts.setdefault(len(self.runs), {})
                doubts[span.key] = doubts.get(span.key, 0) + span.messages
        self.batch = batch
        self.doubtful = list(spans)

    def take_outcome(self, outcome: BatchOutcome) -> None:
        """Note what became of a batch."""
        for run in outcome.runs:
            self._keep(run)
            self.copied += len(run.offsets)
            key = run.broker_name, run.queue_id
            self.stored.setdefault(key, set()).update(run.offsets)
        self.positions.update(outcome.positions)
        self.read.update(outcome.read)
        self.written.update(outcome.written)
        for key, position in outcome.positions.items():
            left = {each for each in self.stored.pop(key, ()) if each >= position}
            if left:
                self.stored[key] = left
        self.doubtful = list(outcome.unknown)

    def _keep(self, run: StoredRun) -> None:
        pair = run.broker_name, run.queue_id, run.target_broker, run.target_queue
        last = self._last.get(pair, -1)
        # Of what was sent after messages in doubt, it must be known that it was.
        if last >= next(reversed(self.doubts), 0):
            before = self.runs[last]
            if (
                isinstance(before.offsets, range)
                and isinstance(run.offsets, range)
                and before.offsets.stop == run.offsets.start
                and before.target_offset + len(before.offsets) == run.target_offset
            ):
                whole = range(before.offsets.start, run.offsets.stop)
                self.runs[last] = before._replace(offsets=whole)
                return
        self._last[pair] = len(self.runs)
        self.runs.append(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyIdentity:
    """What is copied, and where to: a log is of one of these."""

    source_topic: str
    source: ClusterIdentity
    target_topic: str
    target: ClusterIdentity
    #: the conditions on messages, as text; empty for all messages
    chosen_by: str = ""
    #: the queues of both topics as BROKER:ID, in order: they decide what goes where
    queues: tuple[str, ...]
    targets: tuple[str, ...]


def default_path(environ: Mapping[str, str], identity: CopyIdentity) -> Path:
    """Return the log of a copy; see `path_in_state`."""
    ends = (
        (identity.source_topic, identity.source),
        (identity.target_topic, identity.target),
    )
    return path_in_state(environ, "copy", ends)


def read_copy_log(path: Path, identity: CopyIdentity) -> tuple[CopyState, int]:
    """Read a log; return what it tells, and its length up to the last whole line.

    Raises RefusedError for the log of another copy, and ConfigError for a file that is
    no log of a copy.
    """
    state = CopyState()

    def take(entry: dict[str, Any], at: int) -> None:
        if not at:
            _check_head(path, entry, identity)
            _take_queues(state, entry)
        else:
            _take(state, entry)

    length = read_whole(path, "a copy", take)
    if length:
        _check_queues(path, state, identity)
    return state, length


def _check_head(path: Path, entry: dict[str, Any], identity: CopyIdentity) -> None:
    if entry["version"] != _VERSION:
        raise ValueError(f"version {entry['version']!r} is not {_VERSION}")
    then = (entry["source_topic"], entry["target_topic"])
    now = (identity.source_topic, identity.target_topic)
    if then != now:
        raise RefusedError(
            f"{path} is the log of a copy from {then[0]} to {then[1]}, not from"
            f" {now[0]} to {now[1]}",
            hint="name another file for the log",
        )
    for name, cluster in (("source", identity.source), ("target", identity.target)):
        known = parse_identity(entry[name])
        if not is_same_cluster(known, cluster):
            raise RefusedError(
                f"{path} was written for the {name} {known}, but it is {cluster} now",
                hint="name another file for the log",
            )
    if entry["chosen_by"] != identity.chosen_by:
        raise RefusedError(
            f"the copy of {path} chose messages by"
            f" {entry['chosen_by'] or 'no condition'}, this one by"
            f" {identity.chosen_by or 'no condition'}",
            hint="name another file for the log, or give the same conditions",
        )


def _check_queues(path: Path, then: CopyState, now: CopyIdentity) -> None:
    """Raise RefusedError if messages would go to other queues than before.

    Queues that were added are all right if those that were there keep their places.
    """
    queues, targets = (then.queues, now.queues), (then.targets, now.targets)
    was_by_index, is_by_index = (
        len(q) == len(t) for q, t in zip(queues, targets, strict=True)
    )
    before, after = map(_places, queues, targets)
    # Among other targets keys choose other queues.
    if (then.targets == now.targets or is_by_index) and (
        was_by_index == is_by_index and before.items() <= after.items()
    ):
        return
    hint = (
        "another file for the log begins anew, and copies what is copied already once"
        " more"
    )
    topic, (old, new) = now.source_topic, queues
    if old == new:
        topic, (old, new) = now.target_topic, targets
    if {*then.queues} - {*now.queues} or {*then.targets} - {*now.targets}:
        hint = f"wait until all its brokers are back; {hint}"
    elif was_by_index and then.targets == now.targets:
        hint = (
            f"add as many queues to topic {now.target_topic}, and the copy goes on;"
            f" {hint}"
        )
    changed = sorted(set(old) ^ set(new))
    raise RefusedError(
        f"the queues of topic {topic} are not those with which the copy of {path}"
        f" began ({', '.join(changed[:_QUEUES_LISTED])}): messages would go to other"
        " queues, and out of order",
        hint=hint,
    )


def _places(queues: Sequence[str], targets: Sequence[str]) -> dict[str, str]:
    """Return where the messages of each queue go for which no key decides."""
    return {name: targets[n % len(targets)] for n, name in enumerate(queues)}


def _take_queues(state: CopyState, entry: dict[str, Any]) -> None:
    for names in (entry["queues"], entry["targets"]):
        if not (isinstance(names, list) and names):
            raise TypeError(f"{names!r:.40} is not a list of queues")
    state.queues = tuple(map(str, entry["queues"]))
    state.targets = tuple(map(str, entry["targets"]))


def _take(state: CopyState, entry: dict[str, Any]) -> None:
    if "starts" in entry:
        _take_queues(state, entry)
        state.positions.update((_key(row), _number(row[2])) for row in entry["starts"])
        state.read.update((_key(row), _witness(row)) for row in entry["read"])
        return
    if "intent" in entry:
        spans = [_span(each) for each in entry["spans"]]
        state.take_intent(int(entry["intent"]), spans)
        return
    if int(entry["outcome"]) != state.batch:
        raise ValueError(f"outcome {entry['outcome']!r} has no intent")
    state.take_outcome(
        BatchOutcome(
            runs=[_run(each) for each in entry["stored"]],
            unknown=[_span(each) for each in entry["unknown"]],
            positions={_key(row): _number(row[2]) for row in entry["positions"]},
            read={_key(row): _witness(row) for row in entry["read"]},
            written={_key(row): _witness(row) for row in entry["written"]},
        )
    )


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{value!r:.40} is not an offset")
    return value


def _key(row: Sequence[Any]) -> tuple[str, int]:
    return str(row[0]), _number(row[1])


def _span(row: Sequence[Any]) -> SourceSpan:
    return SourceSpan(*_key(row), *map(_number, row[2:5]))


def _witness(row: Sequence[Any]) -> Witness:
    msg_id, at = row[3], row[4]
    return Witness(
        _number(row[2]),
        None if msg_id is None else str(msg_id),
        None if at is None else int(at),
    )


def _rows(table: Mapping[tuple[str, int], Witness]) -> list[list[object]]:
    return [[*key, *witness] for key, witness in table.items()]


def _run(row: Sequence[Any]) -> StoredRun:
    offsets = row[2]
    found: Sequence[int]
    if isinstance(offsets, int):  # the first of neighbours; row[3] is their number
        found = range(_number(offsets), _number(offsets) + _number(row[3]))
    else:
        found = compact([_number(each) for each in offsets])
    return StoredRun(*_key(row), found, str(row[4]), _number(row[5]), _number(row[6]))


def _run_json(run: StoredRun) -> list[object]:
    is_range = isinstance(run.offsets, range)
    offsets: object = run.offsets[0] if is_range else list(run.offsets)
    return [run.broker_name, run.queue_id, offsets, len(run.offsets), *run[3:]]


class CopyLog:
    """Writes intents and outcomes, and knows what they amount to."""

    def __init__(self, file: LockedFile, state: CopyState) -> None:
        self._file = file
        self.state = state

    def begin(self, identity: CopyIdentity, *, at_ms: int) -> None:
        """Write the first line of a new log."""
        self._write(
            {
                "version": _VERSION,
                "source_topic": identity.source_topic,
                "source": identity_json(identity.source),
                "target_topic": identity.target_topic,
                "target": identity_json(identity.target),
                "chosen_by": identity.chosen_by,
                "queues": identity.queues,
                "targets": identity.targets,
                "at_ms": at_ms,
            }
        )
        self.state.queues, self.state.targets = identity.queues, identity.targets

    def start(
        self,
        identity: CopyIdentity,
        starts: Mapping[tuple[str, int], int],
        read: Mapping[tuple[str, int], Witness],
        *,
        at_ms: int,
    ) -> None:
        """Note where queues begin, and the last messages before."""
        self._write(
            {
                "starts": [[*key, at] for key, at in starts.items()],
                "at_ms": at_ms,
                "read": _rows(read),
                "queues": identity.queues,
                "targets": identity.targets,
            }
        )
        self.state.queues, self.state.targets = identity.queues, identity.targets
        self.state.positions.update(starts)
        self.state.read.update(read)

    def intend(self, spans: Sequence[SourceSpan], *, at_ms: int) -> None:
        """Note the spans of the next batch, on the disk, before they are sent."""
        batch = self.state.batch + 1
        self._write({"intent": batch, "at_ms": at_ms, "spans": spans})
        self.state.take_intent(batch, spans)

    def conclude(self, outcome: BatchOutcome, *, at_ms: int) -> None:
        """Note what became of the batch, on the disk."""
        self._write(
            {
                "outcome": self.state.batch,
                "at_ms": at_ms,
                "stored": [_run_json(run) for run in outcome.runs],
                "unknown": outcome.unknown,
                "positions": [[*key, at] for key, at in outcome.positions.items()],
                "read": _rows(outcome.read),
                "written": _rows(outcome.written),
            }
        )
        self.state.take_outcome(outcome)

    def close(self) -> None:
        """Close the file, and end its lock."""
        self._file.close()

    def _write(self, entry: dict[str, object]) -> None:
        text = json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._file.append(text.encode("utf-8", "surrogatepass"))


def open_copy_log(path: Path, identity: CopyIdentity, *, at_ms: int) -> CopyLog:
    """Open a log for writing, and create it if it does not exist.

    Raises RefusedError while another copy has it open, and as `read_copy_log`.
    """
    file = LockedFile(path, what="copy")
    try:
        state, length = read_copy_log(path, identity)
        file.cut(length)
        log = CopyLog(file, state)
        if not length:
            log.begin(identity, at_ms=at_ms)
    except BaseException:
        file.close()
        raise
    return log
