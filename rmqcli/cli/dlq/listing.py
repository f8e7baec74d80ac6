"""`rmq dlq list`: how many dead letters groups have."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import raise_if_silent, show_list
from rmqcli.cli.options import Common, command_options, duration_option, switch
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column
from rmqcli.errors import PartialError
from rmqcli.units import counted, format_duration, format_rfc3339, listed

if TYPE_CHECKING:
    from rmqcli.admin.dlq.listing import GroupLetters

_BROKERS_LISTED = 3

COLUMNS = (
    Column("group", "the group", shorten=True),
    Column(
        "state",
        "OK, or UNKNOWN if a broker did not tell",
        states={"OK": "good", "UNKNOWN": "bad"},
        priority=20,
    ),
    Column(
        "count", "dead letters that are still stored; null if unknown", align="right"
    ),
    Column(
        "known_count",
        "dead letters on the brokers that answered",
        title=None,
        align="right",
    ),
    Column("oldest", "when the oldest was stored", priority=30),
    Column("newest", "when the newest was stored", priority=10),
    Column(
        "growth",
        "letters that arrived during --sample; null without it",
        align="right",
        priority=5,
    ),
    Column("sample_ms", "duration of --sample as it was measured", title=None),
    Column("brokers", "brokers that have the topic", priority=60, shorten=True),
    Column("reason", "why a number is null", priority=1),
)
_NO_SAMPLE = "growth needs --sample"


@command_options(fields=COLUMNS, changes=False)
def list_(
    common: Common,
    sample: Any = duration_option(help="Look twice, DURATION apart, for the growth."),
    show_all: bool = switch("--all", help="Include groups without dead letters."),
) -> None:
    """List how many dead letters groups have, and how old they are.

    Example: rmq dlq list --sample 30s

    The exit code is 6 if a broker did not answer; the counts of groups that may have
    letters there are then null.
    """
    from rmqcli.admin.dlq.listing import growth, list_letters

    with common.open_client() as client:
        before = found = list_letters(client)
        if sample is not None:
            common.messages.progress(f"waiting {format_duration(sample)}")
            client.clock.wait_ms(threading.Event(), sample)
            common.messages.clear_progress()
            found = list_letters(client)
    then = {each.group: each for each in before.groups}
    silent = next((f"{n}: {e.message}" for n, e in before.errors.items()), None)
    elapsed_ms = None if sample is None else found.at_ms - before.at_ms
    rows = []
    for each in found.groups:
        earlier = then.get(each.group)
        why_not = silent if earlier is None else earlier.reason
        if sample is None:
            why_not = _NO_SAMPLE
        if show_all or each.count != 0:
            row = letters_row(each) | {"sample_ms": elapsed_ms}
            row["reason"] = each.reason or why_not
            row["growth"] = None if why_not else growth(earlier, each)
            rows.append(row)
    columns: tuple[Column, ...] = COLUMNS
    if common.output == "table":
        columns = _shown(has_sample=sample is not None)
        for row in rows:
            if row["reason"] == _NO_SAMPLE:
                row["reason"] = None
    show_list(
        common,
        rows,
        columns=columns,
        none="no dead letters",
        is_complete=found.is_complete,
    )
    hidden = len(found.groups) - len(rows)
    if hidden:
        common.messages.info(
            f"{counted(hidden, 'group')} without dead letters not shown; --all shows"
            " them"
        )
    if found.delaying:
        names = safe(listed(found.delaying, _BROKERS_LISTED))
        verb = "runs" if len(found.delaying) == 1 else "run"
        common.messages.info(
            f"{names} {verb} RocketMQ before 4.9.2, which stores a dead letter only"
            " after one more delay, of up to 2 hours: letters that wait for it are not"
            " counted"
        )
    raise_if_silent(found.errors, found.denial)
    unknown = [each for each in found.groups if each.count is None]
    if unknown:
        raise PartialError(
            f"the dead letters of {counted(len(unknown), 'group')} are unknown:"
            f" {unknown[0].reason}"
        )
    if sample is not None and (untold := [r for r in rows if r["growth"] is None]):
        raise PartialError(
            f"the growth of {counted(len(untold), 'group')} is unknown:"
            f" {untold[0]['reason']}"
        )


def letters_row(found: GroupLetters) -> dict[str, Any]:
    """Return the row of a group, as one look tells it."""
    return {
        "group": found.group,
        "state": "OK" if found.count is not None else "UNKNOWN",
        "count": found.count,
        "known_count": found.known_count,
        "oldest": found.oldest_ms and format_rfc3339(found.oldest_ms),
        "newest": found.newest_ms and format_rfc3339(found.newest_ms),
        "growth": None,
        "sample_ms": None,
        "brokers": list(found.brokers),
        "reason": found.reason or _NO_SAMPLE,
    }


def _shown(*, has_sample: bool) -> tuple[Column, ...]:
    """The columns of the table, without one that would be empty."""
    hidden = () if has_sample else ("growth",)
    return tuple(column for column in COLUMNS if column.name not in hidden)
