"""`rmq topics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rmqcli.cli.offline import read_from
from rmqcli.cli.options import Common, Store, command_options
from rmqcli.cli.ui.output import Column, write_rows
from rmqcli.errors import PartialError, RmqError

if TYPE_CHECKING:
    from rmqcli.admin.topics import TopicRow

COLUMNS = (
    Column("topic", "name of the topic; null in a row about a broker"),
    Column("kind", "normal, retry, dlq or system"),
    Column("message_type", "what a 5.x broker says of its messages", title="TYPE"),
    Column("perm", "rw, r, w or none", states={"none": "bad"}),
    Column("read_queue_nums", "queues to read, on all brokers", title="READ"),
    Column("write_queue_nums", "queues to write, on all brokers", title="WRITE"),
    Column("order", "whether its queues are fixed", title=None),
    Column("brokers", "brokers that have it"),
    Column("error", "why a broker did not answer"),
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
    rows = [_row(row) for row in shown]
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


def _row(row: TopicRow) -> dict[str, object]:
    return {
        "topic": row.topic,
        "kind": row.kind,
        "message_type": row.message_type,
        "perm": row.perm,
        "read_queue_nums": row.read_queue_nums,
        "write_queue_nums": row.write_queue_nums,
        "order": row.order,
        "brokers": list(row.brokers),
        "error": None,
    }
