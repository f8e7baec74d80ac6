"""`rmq brokers`: a row for each broker, with what it reports about itself.

The row of a broker that does not answer contains the error. The exit code is then 6, or
5 if no broker answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.cli.options import Common, command_options
from rmqcli.cli.ui.output import Column, row_of, write_rows
from rmqcli.errors import PartialError
from rmqcli.units import counted, format_duration, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerRow

COLUMNS = (
    Column("cluster", "cluster of the broker", priority=40),
    Column("broker_name", "name that a master and its slaves share", title="BROKER"),
    Column("broker_id", "0 is the master", title="ID", align="right", priority=10),
    Column("role", "MASTER or SLAVE", title=None),
    Column("address", "address that the broker advertises"),
    Column("version", "RocketMQ's version", priority=20),
    Column(
        "in_tps",
        "messages stored per second, over the last 10 s",
        value=lambda row: _rounded(row.in_tps, 1),
        align="right",
        priority=30,
    ),
    Column(
        "out_tps",
        "messages read per second, over the last 10 s",
        value=lambda row: _rounded(row.out_tps, 1),
        align="right",
        priority=30,
    ),
    Column(
        "commit_log_disk_ratio",
        "used fraction of the disk of the commit log, 0 to 1",
        title=None,
        value=lambda row: _rounded(row.commit_log_disk_ratio, 3),
    ),
    Column(
        "consume_queue_disk_ratio",
        "used fraction of the disk of the consume queues, 0 to 1",
        title=None,
        value=lambda row: _rounded(row.consume_queue_disk_ratio, 3),
    ),
    Column(
        "disk",
        "the higher of the two, in percent",
        value=lambda row: None if row.disk_ratio is None else f"{row.disk_ratio:.0%}",
        priority=50,
    ),
    Column(
        "boot_timestamp",
        "when it was started",
        title=None,
        value=lambda row: (
            None
            if row.boot_timestamp_ms is None
            else format_rfc3339(row.boot_timestamp_ms)
        ),
    ),
    Column(
        "uptime_ms",
        "time since it was started, by this machine's clock",
        title=None,
        value=lambda _row: None,
    ),
    Column("uptime", "the same as text, e.g. 3h", value=lambda _row: None, priority=60),
    Column(
        "error",
        "why it did not answer",
        value=lambda row: row.error and row.error.message,
        priority=1,
    ),
)


@command_options(fields=COLUMNS)
def brokers(common: Common) -> None:
    """List brokers with their addresses, versions and rates.

    Example: rmq brokers -o json | jq '.[].address'
    """
    from rmqcli.admin.brokers import list_brokers

    with common.open_client() as client:
        found = list_brokers(client)
        now_ms = client.clock.epoch_ms()
        rows = [_row(broker, now_ms) for broker in found]
        write_rows(rows, columns=COLUMNS, fmt=common.output, color=common.use_color)
        errors = [broker.error for broker in found if broker.error is not None]
        if len(errors) == len(found):
            client.raise_if_none_answers(errors)
    if errors:
        raise PartialError(
            f"{len(errors)} of {counted(len(found), 'broker')} did not answer:"
            f" {errors[0].message}",
            hint=errors[0].hint,
        )


def _row(broker: BrokerRow, now_ms: int) -> dict[str, object]:
    row = row_of(COLUMNS, broker)
    if broker.boot_timestamp_ms is not None:
        row["uptime_ms"] = uptime_ms = max(0, now_ms - broker.boot_timestamp_ms)
        row["uptime"] = format_duration(uptime_ms)
    return row


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
