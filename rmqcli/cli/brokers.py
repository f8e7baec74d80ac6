"""`rmq brokers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.cli.options import Common, command_options
from rmqcli.cli.ui.output import Column, write_rows
from rmqcli.errors import PartialError
from rmqcli.units import format_duration, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerRow

COLUMNS = (
    Column("cluster", "cluster of the broker"),
    Column("broker_name", "name that a master and its slaves share", title="BROKER"),
    Column("broker_id", "0 is the master", title="ID"),
    Column("role", "MASTER or SLAVE", title=None),
    Column("address", "where the broker says that it listens"),
    Column("version", "RocketMQ's version"),
    Column("in_tps", "messages stored a second, over the last 10 s"),
    Column("out_tps", "messages read a second, over the last 10 s"),
    Column(
        "commit_log_disk_ratio", "used part of the disk of the log, 0 to 1", title=None
    ),
    Column(
        "consume_queue_disk_ratio",
        "used part of the disk of the consume queues, 0 to 1",
        title=None,
    ),
    Column("disk", "the fuller of the two, for people"),
    Column("boot_timestamp", "when it was started", title=None),
    Column("uptime_ms", "how long it runs, by this machine's clock", title=None),
    Column("uptime", "the same for people"),
    Column("error", "why it did not answer"),
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
    if not rows:
        common.messages.info("no broker has registered with the name server")
    failed = [broker for broker in found if broker.error is not None]
    if failed and failed[0].error is not None:
        raise PartialError(
            f"{len(failed)} of {len(found)} brokers did not answer:"
            f" {failed[0].error.message}",
            hint=failed[0].error.hint,
        )


def _row(broker: BrokerRow, now_ms: int) -> dict[str, object]:
    boot_ms = broker.boot_timestamp_ms
    uptime_ms = None if boot_ms is None else max(0, now_ms - boot_ms)
    disk = broker.disk_ratio
    return {
        "cluster": broker.cluster,
        "broker_name": broker.broker_name,
        "broker_id": broker.broker_id,
        "role": broker.role,
        "address": broker.address,
        "version": broker.version,
        "in_tps": _rounded(broker.in_tps, 1),
        "out_tps": _rounded(broker.out_tps, 1),
        "commit_log_disk_ratio": _rounded(broker.commit_log_disk_ratio, 3),
        "consume_queue_disk_ratio": _rounded(broker.consume_queue_disk_ratio, 3),
        "disk": None if disk is None else f"{disk:.0%}",
        "boot_timestamp": None if boot_ms is None else format_rfc3339(boot_ms),
        "uptime_ms": uptime_ms,
        "uptime": None if uptime_ms is None else format_duration(uptime_ms),
        "error": None if broker.error is None else broker.error.message,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
