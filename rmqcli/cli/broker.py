"""`rmq broker`: lists brokers, and shows what one of them reports about itself.

`rmq brokers`, which is `rmq broker list`, has a row for each broker. The row of a
broker that does not answer contains the error. The exit code is then 6, or 5 if no
broker answers.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rmqcli.api.broker_errors import unanswered
from rmqcli.cli.by_broker import raise_if_silent, warn_about_departed
from rmqcli.cli.options import Common, argument, command_options, switch
from rmqcli.cli.ui.output import Column, json_column, number_column, row_of, time_column
from rmqcli.errors import DeniedError, PartialError, TransportError
from rmqcli.units import counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.brokers import BrokerDetail, BrokerRow
    from rmqcli.errors import RmqError


def _pool_column(pool: str) -> Column:
    return json_column(
        f"{pool}_queue",
        f"requests that wait for a {pool} thread: size, capacity, head_wait_ms",
        value=lambda row: (queue := getattr(row, f"{pool}_queue")) and asdict(queue),
    )


def _in_sync(row: BrokerRow) -> str | None:
    of = row.sync_state or row
    if of.slaves is None:
        return None
    # A slave that does not copy is registered, and not connected.
    return f"{of.slaves_in_sync}/{max(of.slaves, row.slaves_registered or 0)}"


COLUMNS = (
    Column("cluster", "cluster of the broker", priority=40),
    Column("broker_name", "name that a master and its slaves share", title="BROKER"),
    number_column("broker_id", "0 is the master", "ID", priority=10),
    json_column("role", "MASTER or SLAVE"),
    Column("address", "address that the broker advertises"),
    Column("version", "RocketMQ's version", priority=20),
    number_column(
        "in_tps",
        "messages stored per second, over the last 10 s",
        value=lambda row: _rounded(row.in_tps, 1),
        priority=30,
    ),
    number_column(
        "out_tps",
        "messages read per second, over the last 10 s",
        value=lambda row: _rounded(row.out_tps, 1),
        priority=30,
    ),
    json_column(
        "commit_log_disk_ratio",
        "used fraction of the disk of the commit log, 0 to 1",
        value=lambda row: _rounded(row.commit_log_disk_ratio, 3),
    ),
    json_column(
        "consume_queue_disk_ratio",
        "used fraction of the disk of the consume queues, 0 to 1",
        value=lambda row: _rounded(row.consume_queue_disk_ratio, 3),
    ),
    Column(
        "disk",
        "the higher of the two, in percent",
        value=lambda row: None if row.disk_ratio is None else f"{row.disk_ratio:.0%}",
        priority=50,
    ),
    number_column(
        "in_sync",
        "slaves of a master that are in sync, of those that are registered or"
        " connected, or that its controller knows",
        title="IN SYNC",
        value=_in_sync,
        priority=55,
    ),
    json_column("slaves", "slaves that are connected to a master"),
    json_column("slaves_in_sync", "how many of them are in sync"),
    json_column("slaves_reason", "why these are not known"),
    json_column("slaves_registered", "slaves of a master that name servers list"),
    json_column(
        "sync_state",
        "what the controller of a master says: master_epoch, sync_state_set_epoch, and"
        " the replicas in_sync and not_in_sync, each with broker_id, address, is_alive",
        value=lambda row: row.sync_state and asdict(row.sync_state),
    ),
    json_column(
        "sync_state_reason",
        "why it is not known; null for a master without a controller",
    ),
    json_column("behind_bytes", "how far a slave's log is behind its master's"),
    _pool_column("send"),
    _pool_column("pull"),
    json_column(
        "page_cache_lock_ms",
        "how long a message is being written to the page cache now",
    ),
    json_column(
        "dispatch_behind_bytes", "end of the log that is not yet in the consume queues"
    ),
    time_column(
        "earliest_message",
        "store time of its oldest message, by its own clock",
        title=None,
    ),
    time_column("boot_timestamp", "when it was started", title=None),
    json_column("uptime_ms", "time since it was started, by its own clock"),
    Column(
        "uptime",
        "the same as text, e.g. 3h",
        value=lambda row: (
            None if row.uptime_ms is None else format_duration(row.uptime_ms)
        ),
        priority=60,
    ),
    Column(
        "error",
        "why it did not answer, or what it refused",
        value=lambda row: row.error and row.error.message,
        priority=1,
    ),
)


SHOW_COLUMNS = (
    *COLUMNS,
    json_column(
        "runtime", "what it reports about itself: RocketMQ's own names and texts"
    ),
    json_column("settings", "its settings; null if it does not show them"),
    json_column("settings_error", "why it does not show its settings"),
)


@command_options(fields=COLUMNS, changes=False)
def brokers(common: Common) -> None:
    """List brokers with their addresses, versions and rates.

    Example: rmq brokers -o json | jq '.[].address'
             rmq broker list
    """
    from rmqcli.admin.brokers import denial_of, list_brokers

    with common.open_client() as client:
        found = list_brokers(client)
        rows = [row_of(COLUMNS, broker) for broker in found]
        common.write_rows(rows, COLUMNS)
        warn_about_departed(common, client)
        errors = [broker.error for broker in found if broker.error is not None]
        if len(errors) == len(found):
            client.raise_if_none_answers(errors)
    denial = denial_of(broker.error for broker in found)
    if denial is not None:
        raise denial
    if errors:
        raise _partial_error(errors, len(found))


def _partial_error(errors: Sequence[RmqError], count: int) -> PartialError:
    """Return the error when some of `count` brokers did not tell what was asked."""
    words = dict.fromkeys(
        "denied access"
        if isinstance(each, DeniedError)
        else "did not answer"
        if isinstance(each, TransportError)
        else "refused"
        for each in errors
    )
    why = errors[0].message
    said = f"{' or '.join(words)}: {why}"
    if [*words] == ["did not answer"]:
        said = unanswered(why)
    return PartialError(
        f"{len(errors)} of {counted(count, 'broker')} {said}", hint=errors[0].hint
    )


@command_options(fields=SHOW_COLUMNS, changes=False)
def show(
    common: Common,
    name: str = argument(metavar="BROKER", help="Name of the broker."),
    settings: bool = switch(help="Also show the broker's settings."),
) -> None:
    """Show what a broker reports about itself, and its settings.

    Example: rmq broker show broker-a

    A master and its slaves have the same name; each of them is shown. JSON always has
    the settings; brokers show them only to those who may administer the cluster.
    """
    from rmqcli.admin.brokers import show_broker

    with common.open_client() as client:
        found = show_broker(client, name)
        rows = [
            {**detail_row(each), "settings": _shown_settings(each.settings)}
            for each in found
        ]
        common.write_rows(rows, SHOW_COLUMNS)
        for each in found if common.output == "table" else ():
            _write_values(common, each, with_settings=settings)
        errors = [each.row.error for each in found if each.row.error is not None]
        if errors and len(errors) == len(found):
            client.raise_if_none_answers(errors)
            raise errors[0]
    if errors:
        raise _partial_error(errors, len(found))
    if settings:
        hidden = {each.row.address: each.settings_error for each in found}
        raise_if_silent({n: e for n, e in hidden.items() if e is not None})


def detail_row(detail: BrokerDetail) -> dict[str, Any]:
    """Return what a broker reports about itself, with the values of its secrets."""
    return {
        **row_of(COLUMNS, detail.row),
        "runtime": detail.runtime,
        "settings": detail.settings,
        "settings_error": detail.settings_error and detail.settings_error.message,
    }


def _write_values(common: Common, detail: BrokerDetail, *, with_settings: bool) -> None:
    parts = [("RUNTIME", detail.runtime)]
    if with_settings:
        parts.append(("SETTING", _shown_settings(detail.settings)))
    for title, values in parts:
        if values:
            sys.stdout.write("\n")
            common.write_table(
                [{"name": name, "value": values[name]} for name in sorted(values)],
                (Column("name", title=title), Column("value")),
            )


def _shown_settings(settings: dict[str, str] | None) -> dict[str, str] | None:
    """Return settings with `(hidden)` in the place of passwords and keys."""
    from rmqcli.admin.settings import HIDDEN, is_secret

    return settings and {
        name: HIDDEN if is_secret(name, value) else value
        for name, value in settings.items()
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
