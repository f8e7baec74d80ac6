"""`rmq message recall`: withdraws a message before its delivery time."""

from __future__ import annotations

from typing import Any

from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    endpoints_option,
    option,
    plaintext_option,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, row_of
from rmqcli.errors import RmqError, UsageError
from rmqcli.hint import Hint, LibraryCall
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
    Column(
        "result",
        "recalled; accepted: through a proxy, which does not report whether it waited",
        value=lambda _plan: "recalled",
    ),
    Column("recall_handle", "the handle that was used", title=None),
)


@command_options(fields=COLUMNS, asks=True)
def recall(
    common: Common,
    ref: str = argument(
        metavar="HANDLE", help="A recall handle, or with --topic a message ID."
    ),
    topic: str | None = option("--topic", "-t", help="Topic of the message."),
    endpoints: Any = endpoints_option(),
    plaintext: bool = plaintext_option(),
) -> None:
    """Withdraw a message that waits for its delivery time.

    Example: rmq message recall -t orders 7F0000010007D5EF0000000000000000

    rmq delayed lists what waits. It works with brokers of 5.3.2 and later that have
    recallMessageEnable, and not for messages with a delay level. It is checked that the
    message no longer waits. A proxy (--endpoints) takes handles only and reports
    nothing that could be checked. NAMESRV_ADDR takes precedence over
    ROCKETMQ_ENDPOINTS.
    """
    from rmqcli.admin.recall import apply_recall, plan_recall

    common = common.with_endpoints_or_namesrv(endpoints, plaintext=plaintext)
    if common.endpoints:
        _recall_by_proxy(common, ref, topic)
        return
    with common.open_client() as client:
        plan = plan_recall(client, ref, topic=topic)
        row = row_of(COLUMNS, plan)
        _confirm(common, row)
        apply_recall(client, plan)
    _write(common, row)


def _recall_by_proxy(common: Common, ref: str, topic: str | None) -> None:
    from rmqcli.admin.brokers import lost_answer
    from rmqcli.admin.recall import parse_handle
    from rmqcli.producer.producer import Producer  # loads gRPC

    handle = parse_handle(ref, topic=topic)
    if handle is None:
        raise UsageError(
            f"{ref} is not a recall handle, and a proxy finds no message by its ID",
            hint="give the recall handle, or --namesrv HOST:PORT",
        )
    look = Hint("see what waits: ", LibraryCall("Admin.delayed", handle.topic))
    due_text = handle.timestamp_ms
    row = {
        "topic": handle.topic,
        "msg_id": handle.message_id,
        # A broker puts the next millisecond into the handle.
        "due_at": format_rfc3339(int(due_text) - 1) if due_text.isdecimal() else None,
        "broker_name": handle.broker_name,
        "result": "accepted",
        "recall_handle": ref,
    }
    _confirm(common, row)
    with Producer(client=common.client_config()) as producer:
        try:
            producer.recall(handle.topic, ref)
        except RmqError as error:
            raise lost_answer(error, look=look) from error
    _write(common, row)
    common.messages.info(
        "the recall was accepted; whether the message was still waiting is not known,"
        " because a proxy does not report it"
    )


def _confirm(common: Common, row: dict[str, Any]) -> None:
    confirm(
        common,
        f"Message {safe(str(row['msg_id']))} of topic {safe(row['topic'])},"
        f" due {row['due_at']}, will not be delivered. Continue?",
    )


def _write(common: Common, row: dict[str, Any]) -> None:
    common.write_result(lambda: common.write_rows([row], COLUMNS))
