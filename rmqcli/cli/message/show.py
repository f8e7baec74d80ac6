"""`rmq message show`: a message, where it is stored, and what became of it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import errors_json, raise_if_silent
from rmqcli.cli.options import Common, argument, command_options, option
from rmqcli.cli.selection import decode_option
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import wrapped
from rmqcli.cli.ui.output import Column, row_of, time_column
from rmqcli.cli.ui.records.output import HELP_FIELDS, make_writer, write_messages
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError
from rmqcli.files import state_folder
from rmqcli.units import counted, format_duration, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.message.gather import MessageOutcome
    from rmqcli.cli.ui.output import Row
    from rmqcli.decode import Decode

#: Messages of one key or id whose groups are asked about.
SHOWN_MAX = 20
#: So many of them are asked about side by side.
_AT_ONCE = 5


def _attempt(row: Row) -> str:
    if row["attempt"] is None:
        return ""
    # A member may give up before the group's settings do.
    is_last = row["verdict"] == "dead" or row["attempts_max"] is None
    of = "" if is_last else f" of {row['attempts_max']}"
    return f"{row['attempt']}{of}"


def _because(row: Row) -> str:
    parts = [row["evidence"], row["reason"]]
    if row["waiting_before"] is not None:
        parts.insert(0, f"{row['waiting_before']:,} before it")
    return "; ".join(part for part in parts if part)


GROUP_COLUMNS = (
    Column("group", "name of a group of its topic"),
    Column(
        "verdict",
        "consumed, waiting, filtered, in_retry, dead, in_flight, broadcast, delayed,"
        " half, rolled_back, recalled or unknown",
        states={
            "consumed": "good",
            "in_retry": "warn",
            "dead": "bad",
            "unknown": "warn",
        },
    ),
    Column(
        "attempt",
        "the delivery that comes next (in_retry), or was the last",
        "DELIVERY",
        shown=_attempt,
    ),
    Column("attempts_max", "deliveries that the group's settings allow", title=None),
    Column("waiting_before", "messages of its queue that come first", title=None),
    time_column(
        "next_at",
        "when the next delivery is due, if it is not consumed before; null if now, or"
        " unknown",
        "NEXT AT",
        priority=20,
    ),
    Column("where", "place of its copy: TOPIC@BROKER:QUEUE:OFFSET", priority=30),
    Column("evidence", "what the verdict rests on", "BECAUSE", shown=_because),
    Column("reason", "why no more can be said", title=None),
)
_FIELDS = (
    *HELP_FIELDS,
    Column(
        "stored",
        "state (stored, trimmed, removed or unknown; or delayed, half, rolled_back or"
        " recalled), until when it is kept at least, next_at when it is due, evidence"
        " and reason",
    ),
    Column("groups", "for each group what became of the message:"),
    *(Column(f"groups.{each.name}", each.help) for each in GROUP_COLUMNS),
    Column("errors", "brokers that did not answer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShowOptions:
    """The options of `rmq message show` as they were typed."""

    ref: str = argument(
        help="A message ID, TOPIC@BROKER:QUEUE:OFFSET, or with --topic a key."
    )
    topic: str | None = option("--topic", "-t", help="Topic of the message.")
    group: list[str] | None = option(
        "--group",
        "-g",
        help="Only this group; repeatable (default: all groups of the topic).",
    )
    decode: Any = decode_option()


@command_options(
    MessageShowOptions,
    formats=("table", "json", "jsonl"),
    fields=_FIELDS,
    changes=False,
)
def show(common: Common, options: MessageShowOptions) -> None:
    """Show a message, where it is stored, and what became of it in each group.

    Example: rmq message show orders@broker-a:0:3

    Each verdict says what it rests on, and no more than that: an offset that is past a
    message proves nothing where a filter, a reset or POP may have moved it. Several
    messages may have the same ID or key: the newest 20 are shown, or as many of them as
    can be asked about within --timeout.
    """
    from rmqcli.admin.dlq.redriven import known_redrives
    from rmqcli.admin.message.find import find_messages, missing_message
    from rmqcli.admin.message.gather import outcomes_of

    with common.open_client() as client, client.ask_silent_once():
        found = find_messages(
            client,
            options.ref,
            options.topic,
            pending=True,
            on_search=common.messages.info,
        )
        if not found.messages:
            raise missing_message(found, options.ref, options.topic)
        backups, redriven = known_backups(), known_redrives(client)
        outcomes: list[MessageOutcome] = []
        left = found.messages[-SHOWN_MAX:]
        deadline = Deadline(client.clock, common.timeout_ms)
        # The questions about some more must have enough time.
        while left and not (outcomes and deadline.left_ms() < common.timeout_ms // 2):
            newest = left[-_AT_ONCE:]
            del left[-_AT_ONCE:]
            outcomes[:0] = outcomes_of(
                client,
                newest,
                groups=options.group or (),
                backups=backups,
                redriven=redriven,
            )
    decode = options.decode
    common.write_each(
        outcomes,
        text=lambda each: _write_text(common, each, decode),
        json=lambda each: _json_of(each, decode),
    )
    errors = dict(found.errors)
    for outcome in outcomes:
        errors |= outcome.errors
    raise_if_silent(errors)
    if len(outcomes) < len(found.messages) or found.more_on:
        more = "more than " if found.more_on else ""
        shown = len(outcomes)
        is_slow = shown < min(SHOWN_MAX, len(found.messages))
        raise PartialError(
            f"found {more}{counted(len(found.messages), 'message')} with"
            f" {options.ref}; the newest {shown} {'is' if shown == 1 else 'are'} shown"
            + (
                f": within {format_duration(common.timeout_ms)} the brokers can be"
                " asked about no more"
                if is_slow
                else ""
            ),
            hint="allow more time: --timeout DURATION"
            if is_slow
            else "list them with: rmq message find TOPIC --key KEY",
        )
    if found.unsearched is not None:
        raise PartialError(
            f"other messages may have {options.ref}: {found.unsearched}",
            hint="to search all of a topic: rmq message find TOPIC --key KEY --scan",
        )


def known_backups() -> list[Any]:
    """Return the backups of resets, which verdicts take account of."""
    folder = state_folder(os.environ, "reset-offset")
    if folder is None:
        return []
    try:
        os.stat(folder)
    except FileNotFoundError:
        return []
    from rmqcli.admin.reset.backup import backup_directory, list_backups

    return list_backups(backup_directory(os.environ))


def stored_text(outcome: MessageOutcome) -> str:
    """Say where a message is: whether it is stored, until when, or why it waits."""
    stored, text = outcome.stored, outcome.stored.state
    if outcome.topic != outcome.message.topic:
        text += f" for {outcome.topic}"
    if stored.next_at_ms is not None:
        text += f", due {format_rfc3339(stored.next_at_ms)}"
    elif stored.until_ms is not None and stored.state in (
        "stored",
        "trimmed",
        "removed",
    ):
        until = format_rfc3339(stored.until_ms)
        text += f", until {until} or later unless the disk fills up"
    because = "; ".join(each for each in (stored.evidence, stored.reason) if each)
    return f"{text}: {because}" if because else text


def _json_of(outcome: MessageOutcome, decode: Decode | None) -> dict[str, Any]:
    from rmqcli.wire.message.json import JsonWriter

    message = outcome.message
    (line,) = JsonWriter(decode).lines(message.message_queue, [message])
    record: dict[str, Any] = json.loads(line)
    return record | {
        "stored": {
            "state": outcome.stored.state,
            "until": format_rfc3339(outcome.stored.until_ms),
            "next_at": format_rfc3339(outcome.stored.next_at_ms),
            "evidence": outcome.stored.evidence,
            "reason": outcome.stored.reason,
        },
        "groups": [row_of(GROUP_COLUMNS, each) for each in outcome.groups],
        "errors": errors_json(outcome.errors),
    }


def _write_text(common: Common, outcome: MessageOutcome, decode: Decode | None) -> None:
    writer = make_writer(
        "pretty",
        template=None,
        color=common.use_color,
        decode=decode,
        whole="-o json has",
    )
    write_messages(writer, [outcome.message])
    sys.stdout.write(f"{wrapped(safe(stored_text(outcome)), sys.stdout)}\n\n")
    rows = [row_of(GROUP_COLUMNS, each) for each in outcome.groups]
    if rows:
        common.write_table(rows, GROUP_COLUMNS)
    else:
        sys.stdout.write(f"no group of {safe(outcome.topic)} is known\n")
    sys.stdout.write("\n")
