"""`rmq delayed`: what waits for its delivery time, and when it is due."""

from __future__ import annotations

import sys
from typing import Any

from rmqcli.cli.by_broker import (
    errors_json,
    raise_if_silent,
    raise_if_undated,
    show_detail,
)
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, json_column, number_column, row_of, time_column
from rmqcli.units import counted, format_duration

_LIMIT_DEFAULT = 10

COLUMNS = (
    time_column(
        "due_at",
        "when it is delivered, by the broker's clock; null if not known",
        title="DUE",
        of="due_ms",
    ),
    number_column(
        "level",
        "its delay level; null for a delivery time of its own",
        shown=lambda row: row["level"] or "time",
    ),
    Column("msg_id", "the producer's ID", title="MSG ID"),
    Column("keys", "keys", priority=30, shorten=True),
    Column(
        "queue",
        "queue in which it waits",
        value=lambda found: str(found.queue),
        priority=40,
    ),
    json_column("queue_offset", "offset there"),
    time_column(
        "store_timestamp", "when it was stored there", of="stored_ms", title=None
    ),
)
_STEP_COLUMNS = (
    Column("due_within", title="DUE WITHIN"),
    number_column("messages"),
)


@command_options(fields=COLUMNS, changes=False)
def delayed(
    common: Common,
    topic: str = argument(help="Topic of the messages."),
    limit: int = option(
        default=_LIMIT_DEFAULT, min=1, help="Messages to show, the next ones first."
    ),
) -> None:
    """Show the delayed messages of a topic, and when they are due.

    Example: rmq delayed orders

    Messages with a delay level and messages with a delivery time (RocketMQ 5) are
    counted by the time until they are due; what is overdue waits for a broker that is
    behind. -o jsonl and -o csv list the next messages only. Brokers of 4.6.0 do not
    show what waits in delay levels.

    The exit code is 6 if something is not known.
    """
    from rmqcli.admin.delayed import STEPS_MS, find_delayed

    with common.open_client() as client:
        found = find_delayed(client, topic, limit=limit)
    steps: list[dict[str, Any]] = [
        {"due_within": "overdue", "messages": found.overdue},
        *(
            {"due_within": format_duration(step), "messages": found.within[step]}
            for step in STEPS_MS
        ),
        {"due_within": "later or unknown", "messages": found.within[None]},
    ]
    data: dict[str, Any] = {
        "topic": topic,
        "count": None if found.errors else found.count,
        "known_count": found.count,
        "overdue": found.overdue,
        "steps": steps,
        "messages": [row_of(COLUMNS, each) for each in found.messages],
        "errors": errors_json(found.errors),
    }

    def write_tables() -> None:
        sys.stdout.write(
            f"{safe(topic)}: {'at least ' if found.errors else ''}"
            f"{counted(found.count, 'delayed message')}\n\n"
        )
        if found.count:
            common.write_table(steps, _STEP_COLUMNS)
            sys.stdout.write("\n")
            common.write_table(data["messages"], COLUMNS)

    show_detail(
        common, data, list_name="messages", columns=COLUMNS, write_tables=write_tables
    )
    for name, note in found.notes.items():
        common.messages.info(f"{name}: {note}")
    common.messages.info(f"{counted(found.scanned, 'record')} of all topics read")
    raise_if_silent(found.errors, found.denial)
    raise_if_undated(found.undated)
