"""`rmq group show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqcli.cli.escape import safe
from rmqcli.cli.options import Common, command_options
from rmqcli.cli.output import Column, emit_json, write_rows, write_table
from rmqcli.errors import PartialError

if TYPE_CHECKING:
    from rmqcli.admin.groups_show import GroupDetail

MEMBER_COLUMNS = (
    Column("client_id", "name that the client gave itself"),
    Column("client_addr", "where it connects from", title="ADDRESS"),
    Column("language", "what its library is written in"),
    Column("version", "its version of RocketMQ"),
    Column("brokers", "brokers that it is connected to"),
)
_SUBSCRIPTION_COLUMNS = (
    Column("topic"),
    Column("expression_type", title="TYPE"),
    Column("sub_string", title="EXPRESSION"),
)
_CONFIG_COLUMNS = (
    Column("broker_name", title="BROKER"),
    Column("consume_enable", title="CONSUME"),
    Column("consume_broadcast_enable", title="BROADCAST"),
    Column("retry_queue_nums", title="RETRY QUEUES"),
    Column("retry_max_times", title="RETRY MAX"),
)


@command_options(fields=MEMBER_COLUMNS)
def show(
    common: Common,
    group: Annotated[str, typer.Argument(help="Group to show.")],
) -> None:
    """Show a group's members, subscriptions and settings.

    Example: rmq group show billing -o json | jq '.members[].client_id'

    -o jsonl and csv give the members only.
    """
    from rmqcli.admin.groups_show import show_group

    with common.open_client() as client:
        detail = show_group(client, group)
    data = _data(detail)
    if common.output == "json":
        emit_json(data)
    elif common.output == "table":
        _write_tables(common, detail, data)
    else:
        write_rows(data["members"], columns=MEMBER_COLUMNS, fmt=common.output)
    for error in detail.errors.values():
        raise PartialError(
            f"{', '.join(detail.errors)} did not answer: {error.message}",
            hint=error.hint,
        )


def _data(detail: GroupDetail) -> dict[str, Any]:
    from rmqcli.wire.codes import language_name
    from rmqcli.wire.version import version_name

    return {
        "group": detail.group,
        "kind": detail.kind,
        "consume_type": detail.consume_type,
        "message_model": detail.message_model,
        "consume_from_where": detail.consume_from_where,
        "members": [
            {
                "client_id": member.connection.client_id,
                "client_addr": member.connection.client_addr,
                "language": language_name(member.connection.language),
                "version": version_name(member.connection.version),
                "brokers": list(member.brokers),
            }
            for member in detail.members
        ],
        "subscriptions": [
            {
                "topic": subscription.topic,
                "expression_type": subscription.expression_type,
                "sub_string": subscription.sub_string,
                "sub_version": subscription.sub_version,
            }
            for subscription in detail.subscriptions
        ],
        "topics": detail.topics,
        "configs": [
            {
                "broker_name": broker_name,
                "consume_enable": config.consume_enable,
                "consume_from_min_enable": config.consume_from_min_enable,
                "consume_broadcast_enable": config.consume_broadcast_enable,
                "consume_message_orderly": config.consume_message_orderly,
                "retry_queue_nums": config.retry_queue_nums,
                "retry_max_times": config.retry_max_times,
                "broker_id": config.broker_id,
                "which_broker_when_consume_slowly": (
                    config.which_broker_when_consume_slowly
                ),
                "notify_consumer_ids_changed_enable": (
                    config.notify_consumer_ids_changed_enable
                ),
                "consume_timeout_minute": config.consume_timeout_minute,
                "attributes": config.attributes,
            }
            for broker_name, config in detail.configs.items()
        ],
        "errors": [
            {"broker_name": name, "error": error.message}
            for name, error in detail.errors.items()
        ],
    }


def _write_tables(common: Common, detail: GroupDetail, data: dict[str, Any]) -> None:
    parts = [detail.consume_type, detail.message_model, detail.consume_from_where]
    words = " ".join(part for part in parts if part) or "nobody is online"
    typer.echo(f"group {safe(detail.group)}: {safe(words)}")
    if detail.topics:
        typer.echo(f"topics: {', '.join(map(safe, detail.topics))}")
    for columns, rows in (
        (MEMBER_COLUMNS, data["members"]),
        (_SUBSCRIPTION_COLUMNS, data["subscriptions"]),
        (_CONFIG_COLUMNS, data["configs"]),
    ):
        if rows:
            typer.echo("")
            write_table(rows, columns=columns, color=common.use_color)
