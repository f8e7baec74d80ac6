"""`rmq producers`: which producers are connected, and which sent to a topic."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqcli.cli.by_broker import (
    nothing_found,
    raise_if_silent,
    show_list,
    warn_about_departed,
)
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.ui.output import Column, json_column, number_column, row_of, time_column
from rmqcli.names import similar
from rmqcli.units import counted
from rmqcli.wire.codes import language_name
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from rmqcli.api.client import Client

COLUMNS = (
    Column("group", "producer group; null if unknown", shorten=True),
    Column(
        "client_id",
        "ID of the client; null for a sender that no broker lists",
        title="CLIENT ID",
        shorten=True,
    ),
    Column("address", "its address as the broker sees it", priority=10),
    Column(
        "language",
        "language of its client library",
        value=lambda row: None if row.language is None else language_name(row.language),
        priority=30,
    ),
    Column(
        "version",
        "RocketMQ version of its client library",
        value=lambda row: None if row.version is None else version_name(row.version),
        priority=20,
    ),
    Column(
        "broker_name", "broker that lists it or stored its messages", title="BROKER"
    ),
    time_column(
        "last_heartbeat",
        "by the broker's clock; null where it is not reported",
        title="LAST HEARTBEAT",
        priority=40,
    ),
    number_column(
        "messages",
        "of the newest messages of the topic, those that it sent",
        priority=1,
    ),
    json_column("reason", "why the client_id is null"),
)


@command_options(fields=COLUMNS, changes=False)
def producers(
    common: Common,
    topic: str | None = argument(
        default=None, help="Only senders of its newest messages."
    ),
    group: str | None = option("--group", "-g", help="Only this producer group."),
) -> None:
    """List the producers that are online, or that sent to a topic.

    Example: rmq producers orders

    Brokers know producers by group, and not by topic. With TOPIC, rmq reads the newest
    32 messages of each queue and lists their senders. One without a client ID is not
    listed by its broker: it may have closed its connection, have no group, as rmq send,
    or send through a proxy. So --group keeps the senders whose group is unknown.
    Proxies in cluster mode do not tell who their producers are. Brokers before 4.9.4
    list the producers of a --group only (exit code 6). A group of which no producer is
    connected to a broker has exit code 3.
    """
    from rmqcli.admin.producers import MESSAGES_PER_QUEUE, list_producers

    with common.open_client() as client:
        found = list_producers(client, topic=topic, group=group)
        if topic is None:
            warn_about_departed(common, client)
        is_found = any(each.group is not None for each in found.producers)
        if group is not None and not is_found and not found.errors:
            _check_online(client, group)
    rows = [row_of(COLUMNS, each) for each in found.producers]
    show_list(common, rows, COLUMNS, none="no producers", is_complete=not found.errors)
    if topic is not None:
        common.messages.info(
            f"{counted(found.messages_read, 'message')} read, at most"
            f" {MESSAGES_PER_QUEUE} of each queue; producers that sent earlier ones"
            " only are not listed"
        )
        reasons = Counter(row.reason for row in found.producers if row.reason)
        for reason, count in reasons.items():
            common.messages.info(
                f"{counted(count, 'row')} without a client ID: {reason}"
            )
    raise_if_silent(found.errors, found.denial)


def _check_online(client: Client, group: str) -> None:
    """Raise NotFoundError if no producer of the group is connected to any broker."""
    from rmqcli.admin.producers import list_producers

    if list_producers(client, group=group).producers:
        return
    online = {each.group for each in list_producers(client).producers if each.group}
    near = similar(group, online)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise nothing_found(
        f"no producer of group {group} is connected to a broker{meant}",
        hint="list the producers that are online with: rmq producers",
    )
