"""Plan files: what `--out` writes and `--apply` reads.

    plan.json     the JSON of the plan, as on stdout
    plan.csv      group,topic,broker_name,queue_id,committed,target,max_offset,
                  last_message; the last two may be missing
    other CSV     kafka-consumer-groups' export: [group,]topic,partition,offset; it
                  names no broker, so a queue id must exist on one broker only

Both note the last message of each queue (`witness`), by which `--apply` recognizes the
topic. The JSON also records on which cluster the plan was made.

A file may come from anywhere: its size is limited, and every value is checked.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqcli.admin.reset.backup import parse_witness
from rmqcli.admin.reset.cluster_identity import parse_identity
from rmqcli.admin.reset.target import ToOffsets
from rmqcli.admin.witness import Noted
from rmqcli.errors import ConfigError
from rmqcli.files import replace_file
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import MessageQueue, retry_topic
from rmqcli.position import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.admin.reset.plan import ResetPlan

CSV_HEADER = ("group", "topic", "broker_name", "queue_id", "committed", "target")
_NOTED_HEADER = ("max_offset", "last_message")
_BYTES_MAX = 64 << 20


class _Row(NamedTuple):
    """One queue in a file, as text; None where the file has no such value."""

    where: str
    group: str | None
    topic: str
    broker_name: str | None
    queue_id: str
    target: str
    committed: str | None
    noted: Noted | None = None


def write_plan(
    path: Path,
    plan: ResetPlan,
    document: Mapping[str, Any],
    noted: Mapping[MessageQueue, Noted],
) -> None:
    """Write `plan` as JSON or as CSV, chosen by the extension of `path`.

    `document` is the JSON of `plan`. `noted` are the ends of its queues; those without
    one are not compared when the file is applied. The file is replaced as a whole or
    not at all. Raises ConfigError for another extension.
    """
    if path.suffix == ".json":
        rows = [_with_message(row, plan.topic, noted) for row in document["queues"]]
        text = json.dumps({**document, "queues": rows}, indent=2) + "\n"
    elif path.suffix == ".csv":
        text = _to_csv(plan, noted)
    else:
        raise ConfigError(f"{path} must end in .json or .csv")
    replace_file(path, text.encode())


def read_plan(
    path: Path, *, group: str, topic: str, queues: Sequence[MessageQueue]
) -> ToOffsets:
    """Read a file that `write_plan` or kafka-consumer-groups wrote.

    `queues` are the existing queues, to find the broker where a file names none. Raises
    ConfigError for a file of another group or topic, and for one that is not valid.
    """
    with path.open("rb") as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{path} is larger than {_BYTES_MAX >> 20} MiB: not a plan")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    rows: Iterable[_Row]
    if text.lstrip().startswith("{"):
        rows, cluster = _read_json(path, text)
    else:
        rows, cluster = _csv_rows(path, text), None
    targets: dict[MessageQueue, int] = {}
    planned_from: dict[MessageQueue, int | None] = {}
    noted: dict[MessageQueue, Noted] = {}
    for row in rows:
        if row.group not in (None, group):
            raise ConfigError(f"{row.where}: group {row.group!r} is not {group!r}")
        if row.topic not in (topic, retry_topic(group)):
            raise ConfigError(f"{row.where}: topic {row.topic!r} is not {topic!r}")
        queue = _queue(row, queues)
        if queue in targets:
            raise ConfigError(f"{row.where}: {queue} appears twice")
        target = _number(row.where, "target", row.target)
        if target is None:
            continue  # the plan had no target for this queue
        targets[queue] = target
        if row.committed is not None:
            planned_from[queue] = _number(row.where, "committed", row.committed)
        if row.noted is not None:
            noted[queue] = row.noted
    if not targets:
        raise ConfigError(f"{path} contains no queue to reset")
    return ToOffsets(targets, planned_from, cluster, noted)


def _with_message(
    row: Mapping[str, Any], topic: str, noted: Mapping[MessageQueue, Noted]
) -> dict[str, Any]:
    """Return the row of a queue with the last message that the queue had."""
    names = row.get("topic") or topic, row["broker_name"], row["queue_id"]
    end = noted.get(MessageQueue(*names))
    if end is None:
        return dict(row)
    return {**row, "max_offset": end.until, "last_message": end.witness}


def _to_csv(plan: ResetPlan, noted: Mapping[MessageQueue, Noted]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow((*CSV_HEADER, *_NOTED_HEADER))
    for each in plan.queues:
        end = noted.get(each.queue)
        writer.writerow(
            (
                plan.group,
                each.queue.topic,
                each.queue.broker_name,
                each.queue.queue_id,
                each.committed,
                each.target,
                None if end is None else end.until,
                None if end is None else json.dumps(end.witness),
            )
        )
    return out.getvalue()


def _read_json(path: Path, text: str) -> tuple[list[_Row], ClusterIdentity | None]:
    """Return the queues of a plan, and the cluster on which it was made."""
    try:
        document = json.loads(text)
        group, topic = document["group"], document["topic"]
        rows = [
            _Row(
                where=f"{path}, queue {number}",
                group=str(group),
                topic=str(row.get("topic") or topic),
                broker_name=str(row["broker_name"]),
                queue_id=str(row["queue_id"]),
                target=_text(row["target"]),
                committed=_text(row["committed"]),
                noted=_noted(row),
            )
            for number, row in enumerate(document["queues"], start=1)
        ]
        cluster = document.get("cluster")
        return rows, None if cluster is None else parse_identity(cluster)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a plan: {type(error).__name__} {error}",
            hint=Hint("write one with: ", LibraryCall("write_plan")),
        ) from error


def _noted(row: Mapping[str, object]) -> Noted | None:
    """Return the end of a queue; None in a file that has no last messages."""
    if "last_message" not in row:
        return None
    until = row["max_offset"]
    if not isinstance(until, int) or isinstance(until, bool):
        raise TypeError(f"{until!r} is not a number")
    return Noted(until, parse_witness(row["last_message"]))


def _noted_in_csv(where: str, max_offset: str, last_message: str) -> Noted | None:
    until = _number(where, "max_offset", max_offset)
    if until is None:
        return None
    try:
        return Noted(until, parse_witness(json.loads(last_message)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{where}: last_message is not a message: {error}") from error


def _csv_rows(path: Path, text: str) -> Iterator[_Row]:
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}") from error
    header = tuple(lines[0]) if lines else ()
    is_ours = header in (CSV_HEADER, (*CSV_HEADER, *_NOTED_HEADER))
    for number, line in enumerate(lines[1:] if is_ours else lines, start=1 + is_ours):
        where = f"{path}, line {number}"
        match [cell.strip() for cell in line]:
            case []:
                continue
            case [group, topic, broker_name, queue_id, committed, target, *more] if (
                is_ours and len(line) == len(header)
            ):
                yield _Row(
                    where,
                    group,
                    topic,
                    broker_name,
                    queue_id,
                    target,
                    committed,
                    _noted_in_csv(where, *more) if more else None,
                )
            case [topic, partition, offset] if not is_ours:
                yield _Row(where, None, topic, None, partition, offset, None)
            case [group, topic, partition, offset] if not is_ours:
                yield _Row(where, group, topic, None, partition, offset, None)
            case _:
                raise ConfigError(
                    f"{where}: unexpected number of columns: {len(line)}",
                    hint=f"write {','.join(CSV_HEADER)} or topic,partition,offset",
                )


def _queue(row: _Row, queues: Sequence[MessageQueue]) -> MessageQueue:
    queue_id = _number(row.where, "queue id", row.queue_id)
    if queue_id is None:
        raise ConfigError(f"{row.where}: no queue id")
    if row.broker_name is not None:
        return MessageQueue(row.topic, row.broker_name, queue_id)
    names = sorted(
        queue.broker_name
        for queue in queues
        if (queue.topic, queue.queue_id) == (row.topic, queue_id)
    )
    if len(names) != 1:
        where = f"is on {', '.join(names)}" if names else "does not exist"
        raise ConfigError(
            f"{row.where}: queue {queue_id} of {row.topic} {where}",
            hint=f"name the brokers: {','.join(CSV_HEADER)}",
        )
    return MessageQueue(row.topic, names[0], queue_id)


def _number(where: str, what: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ConfigError(f"{where}: {what} {text[:40]!r} is not a number")
    if int(text) > LONG_MAX:
        raise ConfigError(f"{where}: {what} {text} exceeds {LONG_MAX}")
    return int(text)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return str(value)
