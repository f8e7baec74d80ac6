"""`rmq retry show`: what waits to be delivered again to a group."""

from __future__ import annotations

from rmqcli.cli.by_broker import raise_if_undated, show_list
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.selection import parse_group_of_topic
from rmqcli.cli.ui.output import Column, json_column, number_column
from rmqcli.errors import PartialError
from rmqcli.units import counted, format_rfc3339

_LIMIT_DEFAULT = 100
_WORDS = {
    "delay": "in delay levels",
    "retry": "in the retry topic",
    "pop_retry": "in retry topics of POP",
}
#: What a table shows of messages that a member may take at once.
_NOW = {"retry": "now", "pop_retry": "now"}

COLUMNS = (
    Column(
        "next_at",
        "when it comes next, by the broker's clock; null for now, or if not known",
        title="NEXT",
        shown=lambda row: row["next_at"] or _NOW.get(row["place"]),
    ),
    Column("place", "delay, retry or pop_retry: where it waits", priority=20),
    number_column(
        "attempt",
        "the delivery that comes next; the first one counts, too",
        title="DELIVERY",
    ),
    number_column(
        "attempts_max",
        "deliveries by the group's settings, which consumers may override",
        title="OF",
        priority=10,
    ),
    Column("topic", "topic to which it was first sent"),
    Column("msg_id", "the producer's id", title="MSG ID", priority=30),
    Column("keys", "keys", priority=40, shorten=True),
    Column("queue", "queue in which it waits", priority=50),
    json_column("queue_offset", "offset there"),
    json_column("store_timestamp", "when it was stored there"),
)


@command_options(fields=COLUMNS, changes=False)
def show(
    common: Common,
    group: str = argument(parser=parse_group_of_topic, help="The group."),
    limit: int = option(
        default=_LIMIT_DEFAULT, min=1, help="Messages to show, the next ones first."
    ),
) -> None:
    """Show what waits to be delivered again to a group.

    Example: rmq retry show billing

    A message that failed waits in a delay level, and then in the group's retry topic,
    until a member takes it. Messages that POP gave out and that were not acknowledged
    come back after their invisible time; they are counted and not listed, because
    brokers keep only their places. Brokers of 4.6.0 do not show what waits in delay
    levels.

    The exit code is 6 if something is not known.
    """
    from rmqcli.admin.dlq.retries import find_waiting

    with common.open_client() as client:
        found = find_waiting(client, group, limit=limit)
    rows = [
        {
            "next_at": each.next_ms and format_rfc3339(each.next_ms),
            "place": each.place,
            "attempt": each.attempt,
            "attempts_max": each.attempts_max,
            "topic": each.topic,
            "msg_id": each.message.msg_id,
            "keys": each.message.keys,
            "queue": str(each.queue),
            "queue_offset": each.message.queue_offset,
            "store_timestamp": format_rfc3339(each.message.store_timestamp_ms),
        }
        for each in found.messages
    ]
    pop = found.pop
    is_out = pop is not None and pop.inflight != 0
    show_list(
        common,
        rows,
        columns=COLUMNS,
        none="nothing waits in a topic" if is_out else "nothing waits",
        is_complete=not found.errors,
    )
    parts = [f"{found.counts[place]:,} {words}" for place, words in _WORDS.items()]
    at_least = "at least " if found.errors else ""
    common.messages.info(at_least + ", ".join(parts))
    if pop is not None and pop.inflight:
        come = "comes" if pop.inflight == 1 else "come"
        next_at = pop.visible_ms and f", the next at {format_rfc3339(pop.visible_ms)}"
        common.messages.info(
            f"{counted(pop.inflight, 'message')} handed out by POP {come} back unless"
            f" acknowledged{next_at or ''}"
        )
    hidden = sum(found.counts.values()) - len(rows)
    if hidden > 0:
        common.messages.info(f"{hidden:,} more not shown; see --limit")
    if found.denial is not None:
        raise found.denial
    for where, error in found.errors.items():
        raise PartialError(
            f"what waits on {where} is not known: {error.message}", hint=error.hint
        )
    if pop is not None and pop.inflight is None:
        raise PartialError(
            f"how many messages POP has handed out is not known: {pop.reason}"
        )
    raise_if_undated(
        each.queue.broker_name
        for each in found.messages
        if each.place == "delay" and each.next_ms is None
    )
