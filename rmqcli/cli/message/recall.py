"""`rmq message recall`: withdraws a message before its delivery time."""

from __future__ import annotations

from typing import Annotated

from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.selection import refuse_empty
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, row_of, write_rows
from rmqcli.units import format_rfc3339

COLUMNS = (
    Column("topic", "topic to which it would have been delivered"),
    Column(
        "msg_id", "the producer's ID", "MSG ID", value=lambda plan: plan.message.msg_id
    ),
    Column(
        "due_at",
        "when it would have been delivered",
        "DUE",
        value=lambda plan: format_rfc3339(plan.message.due_ms or 0),
    ),
    Column(
        "broker_name",
        "broker that kept it",
        "BROKER",
        value=lambda plan: plan.message.queue.broker_name,
    ),
    Column("result", "recalled", value=lambda _plan: "recalled"),
    Column("recall_handle", "the handle that was used", title=None),
)


@command_options(fields=COLUMNS, asks=True)
def recall(
    common: Common,
    ref: Annotated[
        str,
        argument(
            metavar="HANDLE", help="A recall handle, or with --topic a message ID."
        ),
    ],
    topic: Annotated[
        str | None,
        option("--topic", "-t", metavar="TOPIC", help="Topic of the message."),
    ] = None,
) -> None:
    """Withdraw a message that waits for its delivery time.

    Example: rmq message recall -t orders 7F0000010007D5EF0000000000000000

    rmq delayed lists what waits. It works with brokers of 5.3.2 and later that have
    recallMessageEnable, and not for messages with a delay level. It is checked that the
    message no longer waits.
    """
    from rmqcli.admin.recall import apply_recall, plan_recall

    refuse_empty(topic=topic)
    with common.open_client() as client:
        plan = plan_recall(client, ref, topic=topic)
        due_at = format_rfc3339(plan.message.due_ms or 0)
        confirm(
            common,
            f"Message {safe(str(plan.message.msg_id))} of topic {safe(plan.topic)},"
            f" due {due_at}, will not be delivered. Continue?",
        )
        apply_recall(client, plan)
    write_rows(
        [row_of(COLUMNS, plan)],
        columns=COLUMNS,
        fmt=common.output,
        color=common.use_color,
    )
