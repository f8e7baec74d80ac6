"""`rmq message resend`: one member consumes one message now."""

from __future__ import annotations

from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, row_of
from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.units import format_duration

COLUMNS = (
    Column(
        "msg_id", "the producer's ID", "MSG ID", value=lambda e: e.plan.message.msg_id
    ),
    Column("group", "the group", value=lambda e: e.plan.group, priority=20),
    Column("client_id", "the member that was asked", value=lambda e: e.plan.client_id),
    Column(
        "consume_result",
        "CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or"
        " CR_RETURN_NULL; null if the member named none",
        "RESULT",
        states={"CR_SUCCESS": "good", "CR_COMMIT": "good", "CR_LATER": "bad"},
    ),
    Column(
        "spent_ms",
        "how long the listener took; null for a gRPC client",
        "TIME",
        shown=lambda row: (
            None if row["spent_ms"] is None else format_duration(row["spent_ms"])
        ),
        align="right",
    ),
    Column("remark", "text of the listener's exception", priority=10),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageResendOptions:
    """The options of `rmq message resend` as they were typed."""

    ref: str = argument(
        help="A message ID, TOPIC@BROKER:QUEUE:OFFSET, or with --topic a key."
    )
    to_group: str | None = option(
        "--to-group",
        "-g",
        metavar="GROUP",
        help="Group that consumes it (default: that of --to-client).",
    )
    to_client: str | None = option(
        metavar="ID",
        help="Client that consumes it (default: the first, of gRPC if all are).",
    )
    topic: str | None = option("--topic", "-t", help="Topic of the message.")


@command_options(MessageResendOptions, fields=COLUMNS, asks=True)
def resend(common: Common, options: MessageResendOptions) -> int:
    """Have a member of a group consume a message now, and show its result.

    Example: rmq message resend orders@broker-a:0:3 --to-group billing

    The member's listener is called with the message, again if it consumed it before.
    Offsets do not change, and a message that the listener refuses is not tried again.
    Brokers wait 10 s for the listener, and so does this, also with a shorter --timeout.
    The exit code is 1 for every other result than success, and 6 if no answer came: the
    listener may have been called.
    """
    from rmqcli.admin.resend import apply_resend, plan_resend

    if options.to_group is None and options.to_client is None:
        raise UsageError("give --to-group GROUP, --to-client ID or both")
    with common.open_client() as client:
        plan = plan_resend(
            client,
            options.ref,
            topic=options.topic,
            group=options.to_group,
            client_id=options.to_client,
        )
        place = f"{plan.message.message_queue}, offset {plan.message.queue_offset}"
        confirm(
            common,
            f"{safe(plan.client_id)} of group {safe(plan.group)} consumes the message"
            f" at {safe(place)} now. Continue?",
        )
        result = apply_resend(client, plan)
    common.write_result(lambda: common.write_rows([row_of(COLUMNS, result)], COLUMNS))
    if result.consume_result is None:
        common.messages.warn(
            f"{safe(plan.client_id)} named no result; simple consumers, for example, do"
            " not consume on request"
        )
    return 0 if result.is_consumed else 1
