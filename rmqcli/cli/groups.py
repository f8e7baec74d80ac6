"""`rmq groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqcli.cli.options import Common, command_options
from rmqcli.cli.ui.output import Column, write_rows
from rmqcli.errors import PartialError

if TYPE_CHECKING:
    from rmqcli.admin.groups import GroupRow

COLUMNS = (
    Column("group", "name of the group; null in a row about a broker"),
    Column("kind", "normal or system", title=None),
    Column("members", "clients that are online; null when not known"),
    Column("consume_type", "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)"),
    Column("message_model", "CLUSTERING or BROADCASTING"),
    Column("brokers", "brokers that have settings of it"),
    Column("error", "why a broker did not answer"),
)


@command_options(fields=COLUMNS)
def groups(
    common: Common,
    show_all: Annotated[
        bool, typer.Option("--all", help="Include RocketMQ's own groups.")
    ] = False,
) -> None:
    """List consumer groups.

    Example: rmq groups -o json | jq '.[] | select(.members == 0).group'
    """
    from rmqcli.admin.groups import list_groups

    with common.open_client() as client:
        found = list_groups(client)
    shown = [row for row in found.groups if show_all or row.kind == "normal"]
    rows = [_row(row) for row in shown]
    empty: dict[str, object] = {column.name: None for column in COLUMNS}
    rows += [
        {**empty, "brokers": [name], "error": error.message}
        for name, error in found.errors.items()
    ]
    write_rows(rows, columns=COLUMNS, fmt=common.output, color=common.use_color)
    hidden = len(found.groups) - len(shown)
    if hidden:
        common.messages.info(f"not shown: {hidden} system groups; --all shows them")
    for error in found.errors.values():
        raise PartialError(
            f"{', '.join(found.errors)} did not answer: {error.message}",
            hint=error.hint,
        )


def _row(row: GroupRow) -> dict[str, object]:
    return {
        "group": row.group,
        "kind": row.kind,
        "members": row.members,
        "consume_type": row.consume_type,
        "message_model": row.message_model,
        "brokers": list(row.brokers),
        "error": None,
    }
