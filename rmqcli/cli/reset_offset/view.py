"""How a reset looks: rows, the JSON document of the contract, and words for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqcli.admin.reset.cluster_identity import identity_json
from rmqcli.cli.ui.output import Column, emit_json, write_rows, write_table
from rmqcli.units import format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.plan import EdgeMessage, QueuePlan, ResetPlan
    from rmqcli.admin.reset.result import Outcome
    from rmqcli.cli.options import Common
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

    Outcomes = Mapping[MessageQueue, Outcome]

_RESULT_COLORS = {
    "CONFIRMED": "good",
    "UNCHANGED": "good",
    "OVERWRITTEN": "bad",
    "UNKNOWN": "warn",
    "NOT_ATTEMPTED": "warn",
}

COLUMNS = (
    Column("topic", "the topic, or the group's retry topic"),
    Column("broker_name", "the broker group that has the queue", "BROKER"),
    Column("queue_id", "the queue", "QUEUE"),
    Column("committed", "committed before; null when nothing was"),
    Column("target", "the offset to commit; null when there is none"),
    Column("delta", "target less committed"),
    Column("skipped", "messages that will not be delivered; null when unknown"),
    Column("replayed", "messages that will be delivered again; null when unknown"),
    Column("first_timestamp", "store time of the first of those", "FROM"),
    Column("last_timestamp", "store time of the last of those", "UNTIL"),
    Column("min_offset", "the oldest offset still there", "MIN"),
    Column("max_offset", "the offset the next message gets", "MAX"),
    Column("mechanism", "how the offset is set on this queue's broker", None),
    Column(
        "result",
        "CONFIRMED, UNCHANGED, OVERWRITTEN, UNKNOWN or NOT_ATTEMPTED; in a plan"
        " UNKNOWN where the queue could not be read, else null",
        states=_RESULT_COLORS,
    ),
    Column("read_back", "what was committed when it was last read back", None),
    Column("before", "the message before the target, with --show-edges", None),
    Column("after", "the message at the target, with --show-edges", None),
    Column("warnings", "what is odd", None),
)

BACKUP_COLUMNS = (
    Column("id", "what --undo takes"),
    Column("created", "when, in UTC"),
    Column("group", "the consumer group"),
    Column("topic", "the topic"),
    Column("queues", "how many queues it holds"),
    Column("undo_of", "the backup that this reset restored", "UNDO OF"),
    Column("cluster", "the cluster's name; null in a backup of an earlier version"),
    Column("brokers", "its brokers and the addresses that they advertised then", None),
    Column("namesrv", "the name servers that were used"),
)


def document(
    plan: ResetPlan, outcomes: Outcomes | None, *, backup_id: str | None
) -> dict[str, Any]:
    """The JSON of the contract; `outcomes` None for a plan."""
    return {
        "group": plan.group,
        "topic": plan.topic,
        "mode": "plan" if outcomes is None else "applied",
        "queues": list(_rows(plan, outcomes).values()),
        "backup": backup_id,
        "cluster": None if plan.cluster is None else identity_json(plan.cluster),
        "client_ids": list(plan.client_ids),
        "warnings": list(plan.warnings),
    }


def write_reset(
    common: Common,
    plan: ResetPlan,
    outcomes: Outcomes | None,
    *,
    backup_id: str | None = None,
) -> None:
    """Write the plan, or what came of it, to stdout, and warnings to stderr."""
    if common.output == "json":
        emit_json(document(plan, outcomes, backup_id=backup_id))
        return
    rows = _rows(plan, outcomes)
    columns = _shown_columns(plan, is_plan=outcomes is None)
    write_rows(
        list(rows.values()),
        columns=columns if common.output == "table" else COLUMNS,
        fmt=common.output,
        color=common.use_color,
    )
    if common.output == "table":
        _write_words(common, rows)


def show_plan(common: Common, plan: ResetPlan) -> None:
    """The plan as a table on stderr, for whoever is asked to agree."""
    columns = _shown_columns(plan, is_plan=True)
    rows = _rows(plan, None)
    write_table(list(rows.values()), columns=columns, stream=sys.stderr)
    _write_words(common, rows)


def write_backups(common: Common, backups: list[Backup]) -> None:
    """Write what `--list-backups` found."""
    rows = [
        {
            "id": each.backup_id,
            "created": format_rfc3339(each.created_ms),
            "group": each.group,
            "topic": each.topic,
            "queues": len(each.committed),
            "undo_of": each.undo_of or None,
            "cluster": each.cluster and ", ".join(each.cluster.names),
            "brokers": each.cluster and dict(each.cluster.brokers),
            "namesrv": ";".join(each.namesrv),
        }
        for each in backups
    ]
    write_rows(rows, columns=BACKUP_COLUMNS, fmt=common.output, color=common.use_color)


def summary(plan: ResetPlan, outcomes: Outcomes) -> str:
    """One line about what came of it: `8 queues: 7 CONFIRMED, 1 UNKNOWN`."""
    counts: dict[str, int] = {}
    for outcome in outcomes.values():
        counts[outcome.result.value] = counts.get(outcome.result.value, 0) + 1
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    queues = "queue" if len(plan.queues) == 1 else "queues"
    return f"{len(plan.queues)} {queues}: {parts}"


def _rows(
    plan: ResetPlan, outcomes: Outcomes | None
) -> dict[MessageQueue, dict[str, Any]]:
    rows = {
        each.queue: _row(plan, each, None if outcomes is None else outcomes[each.queue])
        for each in plan.queues
    }
    rows |= {queue: _unknown_row(queue, e) for queue, e in plan.unknown.items()}
    return dict(sorted(rows.items()))


def _unknown_row(queue: MessageQueue, error: RmqError) -> dict[str, Any]:
    known = {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "result": "UNKNOWN",
        "warnings": [error.message],
    }
    return {column.name: known.get(column.name) for column in COLUMNS}


def _row(plan: ResetPlan, each: QueuePlan, outcome: Outcome | None) -> dict[str, Any]:
    warnings = list(each.warnings)
    if outcome is not None and outcome.note:
        warnings.append(outcome.note)
    return {
        "topic": each.queue.topic,
        "broker_name": each.queue.broker_name,
        "queue_id": each.queue.queue_id,
        "committed": each.committed,
        "target": each.target,
        "delta": each.delta,
        "min_offset": each.min_offset,
        "max_offset": each.max_offset,
        "skipped": each.skipped,
        "replayed": each.replayed,
        "first_timestamp": _time(each.first_store_ms),
        "last_timestamp": _time(each.last_store_ms),
        "mechanism": plan.method_of(each.queue).mechanism.value,
        "result": None if outcome is None else outcome.result.value,
        "read_back": None if outcome is None else outcome.read_back,
        "before": _edge(each.before),
        "after": _edge(each.after),
        "warnings": warnings,
    }


def _edge(message: EdgeMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "queue_offset": message.queue_offset,
        "store_timestamp": _time(message.store_timestamp_ms),
        "msg_id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "body": message.body_preview,
    }


def _time(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else format_rfc3339(epoch_ms)


def _shown_columns(plan: ResetPlan, *, is_plan: bool) -> tuple[Column, ...]:
    """A table leaves out what is the same in every row or not known yet."""
    hidden = {"result"} if is_plan and not plan.unknown else set()
    if all(each.queue.topic == plan.topic for each in plan.queues):
        hidden.add("topic")
    return tuple(column for column in COLUMNS if column.name not in hidden)


def _write_words(common: Common, rows: Mapping[MessageQueue, dict[str, Any]]) -> None:
    for queue, row in rows.items():
        for warning in row["warnings"]:
            common.messages.info(f"{queue}: {warning}")
        for side in ("before", "after"):
            edge = row[side]
            if edge is not None:
                common.messages.info(
                    f"{queue}: {side} the target: {edge['queue_offset']}"
                    f" {edge['store_timestamp']} {edge['msg_id'] or '-'}"
                    f" {edge['keys'] or '-'} {edge['body']}"
                )
