"""`rmq groups`."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqcli.cli.options import Common, command_options
from rmqcli.cli.ui.output import Column, row_of, write_rows
from rmqcli.errors import PartialError

COLUMNS = (
    Column("group", "name of the group; null in a row about a broker"),
    Column("kind", "normal or system", title=None),
    Column("members", "clients that are online; null when not known", align="right"),
    Column(
        "consume_type",
        "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)",
        priority=40,
    ),
    Column("message_model", "CLUSTERING or BROADCASTING", priority=20),
    Column(
        "brokers",
        "brokers that have settings of it",
        value=lambda row: list(row.brokers),
        shorten=True,
        priority=60,
    ),
    Column(
        "error",
        "why a broker did not answer",
        value=lambda _row: None,
        priority=1,
    ),
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
    rows = [row_of(COLUMNS, row) for row in shown]
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
