"""`rmq message trace`: what clients have reported about a message, in order of time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import errors_json, raise_if_silent
from rmqcli.cli.options import Common, argument, command_options, option, switch
from rmqcli.cli.selection import refuse_empty
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, row_of, time_column
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError
from rmqcli.hint import command_line
from rmqcli.trace.setting import TRACE_TOPIC
from rmqcli.units import counted
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rmqcli.admin.message.trace import MessageTrace
    from rmqcli.cli.ui.output import Row
    from rmqcli.errors import RmqError


def _cost(row: Row) -> str:
    return "" if row["cost_ms"] is None else f"{row['cost_ms']}ms"


def _detail(row: Row) -> str:
    parts = [
        row["where"],
        row["message_type"] if row["message_type"] != "Normal_Msg" else None,
        None if row["attempt"] is None else f"attempt {row['attempt']}",
        row["return_type"] if row["return_type"] != "SUCCESS" else None,
        "asked by its broker" if row["is_from_check"] else None,
    ]
    return ", ".join(part for part in parts if part)


EVENT_COLUMNS = (
    time_column(
        "at",
        "when: by the client's clock, of stored by the broker's; null if not reported",
    ),
    Column(
        "event",
        "produced, stored, transaction, recalled or delivered",
        value=lambda event: event.kind.value,
    ),
    Column(
        "status",
        "success, failed, stored, removed (in the log, but no longer in the topic),"
        " no_end (of a delivery, the end was not reported),"
        " not_safe (stored, but not flushed or replicated in time); of a transaction"
        " what the producer decided",
        states={
            "success": "good",
            "failed": "bad",
            "no_end": "warn",
            "not_safe": "warn",
        },
    ),
    Column("group", "group of the client that reported it"),
    Column("client_host", "address of that client", "CLIENT", priority=20),
    Column(
        "cost_ms",
        "ms that the request or the listener took",
        "COST",
        shown=_cost,
        align="right",
        priority=10,
    ),
    Column(
        "attempt",
        "number of the delivery, from 1",
        "DETAIL",
        shown=_detail,
        priority=5,
    ),
    Column("return_type", "how the listener's call ended", title=None),
    Column("message_type", "kind of the message that was sent", title=None),
    Column("is_from_check", "whether a broker had asked the producer", title=None),
    Column("where", "place of the stored message", title=None),
)
_FIELDS = (
    Column("msg_id", "id of the message"),
    Column("topic", "its topic; null if nothing tells it"),
    Column("trace_topic", "topic in which its trace was looked up"),
    Column("events", "what happened to it, by time:"),
    *(Column(f"events.{each.name}", each.help) for each in EVENT_COLUMNS),
    Column("missing", "parts that are missing: part, group and reason of each"),
    Column("unreadable", "number of reports that cannot be read"),
    Column("errors", "brokers that did not answer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTraceOptions:
    """The options of `rmq message trace` as they were typed."""

    ref: str = argument(
        help="A message ID, TOPIC@BROKER:QUEUE:OFFSET, or with --topic a key."
    )
    topic: str | None = option("--topic", "-t", help="Topic of the message.")
    trace_topic: str = option(
        default=TRACE_TOPIC,
        metavar="TOPIC",
        help="Topic to which clients write their traces.",
    )
    scan: bool = switch(help="Read the trace topic, too, instead of only its index.")


@command_options(
    MessageTraceOptions,
    formats=("table", "json", "jsonl"),
    fields=_FIELDS,
    changes=False,
)
def trace(common: Common, options: MessageTraceOptions) -> None:
    """Show what producers and consumers have reported about a message.

    Example: rmq message trace orders@broker-a:0:3

    Clients report only if traces are switched on in them, as with --trace of rmq send
    and rmq consume. A report that is missing does not mean that nothing happened: rmq
    message show says what brokers know. A report is found about a second after it.
    """

    from rmqcli.admin.brokers import denial_of
    from rmqcli.admin.message.trace import traces_of

    refuse_empty(
        hint=f"leave it out for {TRACE_TOPIC}", trace_topic=options.trace_topic
    )
    with common.open_client() as client, client.ask_silent_once():
        traces = traces_of(
            client,
            options.ref,
            topic=options.topic,
            trace_topic=options.trace_topic,
            scan=options.scan,
            on_scan=common.messages.info,
        )
    common.write_each(
        traces, text=lambda each: _write_text(common, each), json=_json_of
    )
    errors: dict[str, RmqError] = {}
    for each in traces:
        errors |= each.errors
        if each.unreadable:
            common.messages.warn(f"{counted(each.unreadable, 'report')} cannot be read")
    denial = denial_of(each.denial for each in traces)
    raise_if_silent(errors, denial)
    if not any(each.is_reported for each in traces):
        raise NotFoundError(
            f"no client has reported anything about {options.ref} to"
            f" {options.trace_topic}",
            code=ResponseCode.NO_MESSAGE,
            hint="what brokers know: " + command_line("rmq message show", options.ref),
        )


def _json_of(trace: MessageTrace) -> dict[str, Any]:
    return {
        "msg_id": trace.msg_id,
        "topic": trace.topic,
        "trace_topic": trace.trace_topic,
        "events": [row_of(EVENT_COLUMNS, each) for each in trace.events],
        "missing": [
            {"part": each.part, "group": each.group, "reason": each.reason}
            for each in trace.missing
        ],
        "unreadable": trace.unreadable,
        "errors": errors_json(trace.errors),
    }


def _write_text(common: Common, trace: MessageTrace) -> None:
    topic = "" if trace.topic is None else f" of {trace.topic}"
    sys.stdout.write(safe(f"message {trace.msg_id}{topic}") + "\n\n")
    rows = [row_of(EVENT_COLUMNS, each) for each in trace.events]
    if rows:
        common.write_table(rows, EVENT_COLUMNS)
        sys.stdout.write("\n")
    for each in trace.missing:
        of = each.part if each.group is None else f"{each.part} {each.group}"
        sys.stdout.write(safe(f"missing: {of}: {each.reason}") + "\n")
    if trace.missing:
        sys.stdout.write("\n")
