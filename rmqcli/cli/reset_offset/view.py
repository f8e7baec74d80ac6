"""The output of a reset: rows, the JSON document, and messages for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rmqcli.admin.reset.cluster_identity import identity_json
from rmqcli.cli.by_broker import show_list
from rmqcli.cli.ui.output import (
    Column,
    emit_json,
    empty_row,
    json_column,
    number_column,
    place_columns,
    row_of,
    time_column,
)
from rmqcli.cli.ui.queues import queue_ranges
from rmqcli.cli.ui.wording import with_flags
from rmqcli.hint import command_line, placed
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.plan import EdgeMessage, QueuePlan, ResetPlan
    from rmqcli.admin.reset.result import QueueOutcome
    from rmqcli.admin.witness import Noted
    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

    Outcomes = Mapping[MessageQueue, QueueOutcome]

_RESULT_COLORS = {
    "CONFIRMED": "good",
    "UNCHANGED": "good",
    "OVERWRITTEN": "bad",
    "UNKNOWN": "warn",
    "NOT_ATTEMPTED": "warn",
}


#: In the order of tables and CSV. A row is read from a `QueuePlan`; `_row` adds what
#: depends on the whole plan or on its outcome.
COLUMNS = (
    Column(
        "topic", "the topic, or the group's retry topic", value=lambda q: q.queue.topic
    ),
    *place_columns("broker of the queue", "ID of the queue", priority=30),
    number_column(
        "committed",
        "committed offset before the reset; null if there was none",
        priority=10,
    ),
    number_column("target", "offset to commit; null if there is none"),
    number_column("delta", "target minus committed", priority=20),
    number_column(
        "skipped", "messages that will not be delivered; null if unknown", priority=40
    ),
    number_column(
        "replayed",
        "messages that will be delivered again; null if unknown",
        priority=40,
    ),
    time_column(
        "first_timestamp",
        "store time of the first skipped or replayed message",
        "FROM",
        of="first_store_ms",
        priority=80,
    ),
    time_column(
        "last_timestamp",
        "store time of the last skipped or replayed message",
        "UNTIL",
        of="last_store_ms",
        priority=80,
    ),
    number_column(
        "min_offset", "oldest offset that is still stored", "MIN", priority=60
    ),
    number_column(
        "max_offset", "offset that the next message gets", "MAX", priority=50
    ),
    json_column(
        "mechanism",
        "how the offset is set on this queue's broker",
        value=lambda _queue: None,
    ),
    Column(
        "result",
        "CONFIRMED, UNCHANGED, OVERWRITTEN, UNKNOWN or NOT_ATTEMPTED; in a plan"
        " UNKNOWN where the queue could not be read, else null",
        states=_RESULT_COLORS,
        value=lambda _queue: None,
    ),
    json_column(
        "read_back", "committed offset when last read back", value=lambda _: None
    ),
    json_column(
        "before",
        "the message before the target, with --show-edges",
        value=lambda q: _edge(q.before),
    ),
    json_column(
        "after",
        "the message at the target, with --show-edges",
        value=lambda q: _edge(q.after),
    ),
    json_column(
        "warnings", "warnings about the queue", value=lambda q: list(q.warnings)
    ),
)
#: The order of JSON: min_offset and max_offset come before skipped.
_KEYS = (*COLUMNS[:6], *COLUMNS[10:12], *COLUMNS[6:10], *COLUMNS[12:])

BACKUP_COLUMNS = (
    Column("id", "ID for --undo", value=lambda backup: backup.backup_id),
    time_column("created", "time of the backup, in UTC", priority=20),
    Column("group", "the consumer group"),
    Column("topic", "the topic"),
    number_column(
        "queues",
        "number of queues in the backup",
        value=lambda backup: len(backup.committed),
        priority=30,
    ),
    Column(
        "undo_of",
        "the backup that this reset restored",
        "UNDO OF",
        value=lambda backup: backup.undo_of or None,
        priority=40,
    ),
    Column(
        "cluster",
        "the cluster's name",
        value=lambda backup: ", ".join(backup.cluster.names),
        priority=50,
    ),
    json_column(
        "brokers",
        "its brokers and the addresses that they advertised then",
        value=lambda backup: dict(backup.cluster.brokers),
    ),
    Column(
        "namesrv",
        "the name servers that were used",
        value=lambda backup: ";".join(backup.namesrv),
        priority=60,
    ),
)


def document(
    plan: ResetPlan, outcomes: Outcomes | None, *, backup_id: str | None
) -> dict[str, Any]:
    """Return the JSON document, whose keys are public; a plan has no `outcomes`."""
    return {
        "group": plan.group,
        "topic": plan.topic,
        "mode": "plan" if outcomes is None else "applied",
        "queues": list(rows_of_reset(plan, outcomes).values()),
        "backup": backup_id,
        "cluster": identity_json(plan.cluster),
        "client_ids": list(plan.client_ids),
        "warnings": list(map(with_flags, plan.warnings)),
    }


def noted_ends(
    common: Common, client: Client, plan: ResetPlan
) -> dict[MessageQueue, Noted]:
    """Return the last messages of queues, for a plan file; warn of those not read."""
    from rmqcli.admin.reset.plan import bounds_of
    from rmqcli.admin.witness import note_ends
    from rmqcli.errors import RmqError

    noted = {}
    for queue, end in note_ends(client, bounds_of(plan.queues)).items():
        if isinstance(end, RmqError):
            common.messages.warn(
                f"{queue}: --apply cannot tell whether the topic was created again,"
                f" because its last message could not be read: {end.message}"
            )
        else:
            noted[queue] = end
    return noted


def write_reset(
    common: Common,
    plan: ResetPlan,
    outcomes: Outcomes | None,
    *,
    backup_id: str | None = None,
) -> None:
    """Write the plan or its outcomes to stdout, and warnings to stderr."""
    if common.output == "json":
        emit_json(document(plan, outcomes, backup_id=backup_id))
        return
    rows = rows_of_reset(plan, outcomes)
    columns = shown_columns(plan, is_plan=outcomes is None)
    is_table = common.output == "table"
    common.write_rows(rows.values(), columns if is_table else COLUMNS)
    if is_table:
        _write_words(common, plan, rows)


def show_plan(common: Common, plan: ResetPlan) -> None:
    """Show the plan as a table on stderr, before the user confirms it."""
    columns = shown_columns(plan, is_plan=True)
    rows = rows_of_reset(plan, None)
    common.write_table(list(rows.values()), columns, stream=sys.stderr)
    _write_words(common, plan, rows)


def write_backups(common: Common, backups: list[Backup]) -> None:
    """Write the backups for `--list-backups`."""
    rows = [row_of(BACKUP_COLUMNS, each) for each in backups]
    show_list(common, rows, BACKUP_COLUMNS, none="no backups")


def summary(outcomes: Outcomes) -> str:
    """Describe the outcomes in one line: `8 queues: 7 CONFIRMED, 1 UNKNOWN`."""
    counts = Counter(outcome.result.value for outcome in outcomes.values())
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{counted(len(outcomes), 'queue')}: {parts}"


def undo_command(group: str, topic: str, backup_id: str, *, flags: list[str]) -> str:
    """Return the command that undoes a reset; `flags` reach its cluster."""
    names, undo = [group, topic], ["--undo", backup_id]
    if "--" in placed(*names):  # all arguments come last, and the backup is one
        names, undo = [*names, backup_id], ["--undo"]
    options = [*flags, *undo, "--execute"]
    return command_line("rmq reset-offset", *names, options=options)


def rows_of_reset(
    plan: ResetPlan, outcomes: Outcomes | None
) -> dict[MessageQueue, dict[str, Any]]:
    """Return a row for each queue of a plan, with its outcome if it was applied."""
    rows = {
        each.queue: _row(plan, each, None if outcomes is None else outcomes[each.queue])
        for each in plan.queues
    }
    rows |= {queue: _unknown_row(queue, e) for queue, e in plan.unknown.items()}
    left = "UNKNOWN" if outcomes is None else "NOT_ATTEMPTED"
    rows |= {q: _unknown_row(q, e, result=left) for q, e in plan.departed.items()}
    return dict(sorted(rows.items()))


def _unknown_row(
    queue: MessageQueue, error: RmqError, *, result: str = "UNKNOWN"
) -> dict[str, Any]:
    place = asdict(queue)
    return empty_row(COLUMNS, **place, result=result, warnings=[error.message])


def _row(
    plan: ResetPlan, each: QueuePlan, outcome: QueueOutcome | None
) -> dict[str, Any]:
    row = row_of(_KEYS, each)
    row["mechanism"] = plan.method_of(each.queue).mechanism.value
    if outcome is not None:
        row["result"] = outcome.result.value
        row["read_back"] = outcome.read_back
        row["warnings"] += [outcome.note] if outcome.note else []
    return row


def _moved(queues: list[QueuePlan]) -> str:
    """Say how many messages these queues skip or replay, and of what time.

    The times of a queue whose offset changed after the plan was made are not known.
    """
    count = sum((each.skipped or 0) + (each.replayed or 0) for each in queues)
    spans = [
        (each.first_store_ms, each.last_store_ms)
        for each in queues
        if each.first_store_ms is not None and each.last_store_ms is not None
    ]
    text = counted(count, "message")
    if spans:
        first, last = (
            format_rfc3339(min(a for a, _ in spans)),
            format_rfc3339(max(b for _, b in spans)),
        )
        stored = f"at {first}" if first == last else f"from {first} to {last}"
        text += f", stored {stored}"
        if len(spans) < len(queues):
            text += (
                f" in {len(spans)} of {counted(len(queues), 'queue')},"
                " elsewhere unknown"
            )
    return text


def _edge(message: EdgeMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "queue_offset": message.queue_offset,
        "store_timestamp": format_rfc3339(message.store_timestamp_ms),
        "msg_id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "body": message.body_preview,
    }


def shown_columns(plan: ResetPlan, *, is_plan: bool) -> tuple[Column, ...]:
    """Return the columns of a table.

    It has no topic if that is the same in every row. The table of a plan has no result,
    unless queues could not be read.
    """
    hidden = {"result"} if is_plan and not (plan.unknown or plan.departed) else set()
    if all(each.queue.topic == plan.topic for each in plan.queues):
        hidden.add("topic")
    return tuple(column for column in COLUMNS if column.name not in hidden)


def _write_words(
    common: Common, plan: ResetPlan, rows: Mapping[MessageQueue, dict[str, Any]]
) -> None:
    # At 80 columns the table has no room for the times.
    for verb, moved in (
        ("skips", [each for each in plan.queues if each.skipped]),
        ("replays", [each for each in plan.queues if each.replayed]),
    ):
        if moved:
            common.messages.info(f"{verb} {_moved(moved)}")
    warned: dict[str, list[MessageQueue]] = {}
    for queue, row in rows.items():
        for warning in row["warnings"]:
            warned.setdefault(warning, []).append(queue)
    for warning, queues in warned.items():
        common.messages.info(f"{queue_ranges(queues)}: {warning}")
    for queue, row in rows.items():
        for side in ("before", "after"):
            edge = row[side]
            if edge is not None:
                common.messages.info(
                    f"{queue}: {side} the target: {edge['queue_offset']}"
                    f" {edge['store_timestamp']} {edge['msg_id'] or '-'}"
                    f" {edge['keys'] or '-'} {edge['body']}"
                )
