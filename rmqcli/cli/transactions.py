"""`rmq transactions`: half messages that are neither committed nor rolled back."""

from __future__ import annotations

from rmqcli.cli.by_broker import raise_if_silent, show_list
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.ui.output import Column, json_column, number_column, row_of, time_column
from rmqcli.units import counted, format_duration

_LIMIT_DEFAULT = 100

COLUMNS = (
    number_column(
        "age_ms",
        "since the message was sent, by the producer's and this machine's clock",
        title="AGE",
        shown=lambda row: format_duration(row["age_ms"]),
    ),
    Column("msg_id", "the producer's ID", title="MSG ID"),
    Column("keys", "keys", priority=40, shorten=True),
    Column("producer_group", "group that can end it", title="GROUP", shorten=True),
    number_column("checks", "how often the broker has asked for its state"),
    number_column(
        "checks_max",
        "after how many the broker gives up; null if it does not say",
        "OF",
        priority=10,
    ),
    Column(
        "producers",
        "connected clients of the group; null if the broker does not say",
        shown=lambda row: (
            (row["producers"] and ", ".join(row["producers"])) or "none"
            if row["producers"] is not None
            else None
        ),
        shorten=True,
        priority=5,
    ),
    Column(
        "broker_name",
        "broker that keeps it",
        title="BROKER",
        value=lambda found: found.queue.broker_name,
        priority=20,
    ),
    json_column(
        "half_offset",
        "offset in RMQ_SYS_TRANS_HALF_TOPIC",
        value=lambda found: found.queue_offset,
    ),
    time_column(
        "born_timestamp",
        "when it was sent, by the producer's clock",
        of="born_ms",
        title=None,
    ),
)


@command_options(fields=COLUMNS, changes=False)
def transactions(
    common: Common,
    topic: str = argument(help="Topic of the messages."),
    limit: int = option(
        default=_LIMIT_DEFAULT, min=1, help="Transactions to show, the oldest first."
    ),
) -> None:
    """List the transactions of a topic that are still open.

    Example: rmq transactions orders

    Consumers do not get the message of an open transaction. The broker asks a connected
    producer of the group for its state again and again; after too many checks it gives
    the message up. One that ended in the last seconds may still be shown.

    Brokers of 4.x do not show half messages. The exit code is 6 if something is not
    known.
    """
    from rmqcli.admin.transactions import find_open_transactions

    with common.open_client() as client:
        found = find_open_transactions(client, topic, limit=limit)
        now_ms = client.clock.epoch_ms()
    rows = [
        {"age_ms": max(0, now_ms - each.born_ms), **row_of(COLUMNS[1:], each)}
        for each in found.transactions
    ]
    show_list(
        common, rows, COLUMNS, none="no open transactions", is_complete=not found.errors
    )
    common.messages.info(
        f"{'at least ' if found.errors else ''}{found.count:,} open,"
        f" {counted(found.scanned, 'half message')} of all topics"
        " read"
    )
    if found.count > len(rows):
        common.messages.info(f"{found.count - len(rows):,} more not shown; see --limit")
    raise_if_silent(found.errors, found.denial)
