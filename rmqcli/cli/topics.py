"""`rmq topics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from rmqcli.cli.offline import read_from
from rmqcli.cli.options import Common, Store, command_options
from rmqcli.cli.ui.output import Column, row_of, write_rows
from rmqcli.errors import PartialError, RmqError

COLUMNS = (
    Column("topic", "name of the topic; null in a row about a broker"),
    Column("kind", "normal, retry, dlq or system", priority=20),
    Column(
        "message_type",
        "what a 5.x broker says of its messages",
        title="TYPE",
        priority=30,
    ),
    Column("perm", "rw, r, w or none", states={"none": "bad"}, priority=40),
    Column(
        "read_queue_nums",
        "queues to read, on all brokers",
        title="READ",
        align="right",
        priority=50,
    ),
    Column(
        "write_queue_nums",
        "queues to write, on all brokers",
        title="WRITE",
        align="right",
        priority=10,
    ),
    Column("order", "whether its queues are fixed", title=None),
    Column(
        "brokers",
        "brokers that have it",
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
def topics(
    common: Common,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Include retry, dead letter and system topics."),
    ] = False,
    store: Store = None,
) -> None:
    """List topics.

    Example: rmq topics -o jsonl | jq -r .topic
    """
    from rmqcli.admin.topics import list_topics

    with read_from(common, store) as source, source.open_client() as client:
        found = list_topics(client)
    shown = [row for row in found.topics if show_all or row.kind == "normal"]
    rows = [row_of(COLUMNS, row) for row in shown]
    rows += [error_row(name, error) for name, error in found.errors.items()]
    write_rows(rows, columns=COLUMNS, fmt=common.output, color=common.use_color)
    hidden = Counter(row.kind for row in found.topics) if not show_all else Counter()
    hidden.pop("normal", None)
    if hidden:
        parts = ", ".join(f"{count} {kind}" for kind, count in sorted(hidden.items()))
        common.messages.info(f"not shown: {parts} topics; --all shows them")
    raise_if_partial(found.errors)


def error_row(broker_name: str, error: RmqError) -> dict[str, object]:
    """The row that stands for a broker without an answer."""
    row: dict[str, object] = {column.name: None for column in COLUMNS}
    return {**row, "brokers": [broker_name], "error": error.message}


def raise_if_partial(errors: Mapping[str, RmqError]) -> None:
    """Raise PartialError when a broker did not answer: the list may lack something."""
    failed: Iterable[RmqError] = errors.values()
    for error in failed:
        raise PartialError(
            f"{', '.join(errors)} did not answer: {error.message}", hint=error.hint
        )
