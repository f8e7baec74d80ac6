"""One look at some groups, as `rmq lag` shows it: JSON, CSV, tables and words.

Puts together what the fields of `rmqcli.cli.lag.columns` say. Decides nothing about
lag itself: that is `rmqcli.admin.lag`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqcli.cli.lag.columns import (
    GROUP_COLUMNS,
    HELD_COLUMNS,
    HELD_TABLE,
    MEMBER_COLUMNS,
    QUEUE_COLUMNS,
    QUEUE_KEYS,
    TREND_COLUMNS,
    held_row,
    member_rows,
    queue_columns,
    summary_columns,
    summary_row,
)
from rmqcli.cli.ui.hints import with_flags
from rmqcli.cli.ui.messages import is_screen
from rmqcli.cli.ui.output import row_of, write_rows, write_table
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rmqcli.admin.lag.model import BrokerFailure, GroupLag, QueueLag
    from rmqcli.admin.lag.process_queues import HeldQueue
    from rmqcli.admin.lag.trend import GroupTrend
    from rmqcli.cli.options import Common


Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class LagView:
    """What to show of one look at some groups."""

    groups: Sequence[GroupLag]
    failures: Sequence[BrokerFailure] = ()
    trends: Mapping[str, GroupTrend] = field(default_factory=dict)
    is_summary: bool = False
    process_queues: bool = False
    explain: bool = False
    sort: str | None = None

    def write(self, common: Common) -> None:
        """Write it to stdout, in the form that `--output` says."""
        match common.output:
            case "table":
                self._write_tables(common)
            case "csv":
                write_rows(self._csv_rows(), columns=QUEUE_COLUMNS, fmt="csv")
            case form:
                write_rows(map(self.group_json, self.groups), columns=(), fmt=form)

    def group_json(self, lag: GroupLag) -> Row:
        """One group as the contract of `rmq lag` has it."""
        trend = self.trends.get(lag.group)
        row = row_of(GROUP_COLUMNS, lag)
        row["queues"] = list(self._queue_rows(lag, trend))
        if trend is not None:
            row["trend"] = row_of(TREND_COLUMNS, trend.group)
        if self.process_queues:
            row["process_queues"] = [row_of(HELD_COLUMNS, h) for h in _all_held(lag)]
        if self.explain:
            row["explain"] = self._explain(lag)
        return row

    def _queue_rows(self, lag: GroupLag, trend: GroupTrend | None) -> Iterator[Row]:
        for queue in self._sorted(lag.queues):
            row = row_of(QUEUE_KEYS, queue)
            if trend is not None and queue.key in trend.queues:
                row.update(row_of(TREND_COLUMNS, trend.queues[queue.key]))
            yield row

    def _csv_rows(self) -> Iterator[Row]:
        for lag in self.groups:
            for row in self._queue_rows(lag, None):
                yield {"group": lag.group, **row}
            if not lag.queues:
                yield {"group": lag.group, "state": lag.state, "reason": lag.reason}

    def _sorted(self, queues: Sequence[QueueLag]) -> Sequence[QueueLag]:
        match self.sort:
            case "lag":
                return sorted(queues, key=lambda q: (q.lag is not None, -(q.lag or 0)))
            case "age":
                return sorted(queues, key=lambda q: -(q.age_ms or 0))
            case "state":
                from rmqcli.admin.lag.model import rank_of

                return sorted(queues, key=lambda q: -rank_of(q.state))
        return queues

    def _write_tables(self, common: Common) -> None:
        if self.is_summary:
            columns = summary_columns(with_trend=bool(self.trends))
            rows = [self.summary_row(lag) for lag in self.groups]
            write_table(rows, columns=columns, color=common.use_color)
        else:
            self._write_queues(common)
        for lag in self.groups:
            self._write_more(lag, common)

    def _write_queues(self, common: Common) -> None:
        rows = [row for lag in self.groups for row in self.table_rows(lag)]
        shown = without_empty_retries(rows) if is_screen(sys.stdout) else rows
        hidden = len(rows) - len(shown)
        left_out = f"{hidden} empty retry {'queue' if hidden == 1 else 'queues'}"
        write_table(
            shown,
            columns=queue_columns(
                with_group=len(self.groups) > 1, with_trend=bool(self.trends)
            ),
            color=common.use_color,
            left_out=left_out if hidden else "",
        )

    def _write_more(self, lag: GroupLag, common: Common) -> None:
        """Members, what they hold, and words, below the table of queues."""
        stdout_has = False
        if not self.is_summary and lag.reading.members is not None:
            sys.stdout.write("\n")
            write_table(
                member_rows(lag) or (), columns=MEMBER_COLUMNS, color=common.use_color
            )
            stdout_has = True
        if self.process_queues and lag.reading.clients:
            sys.stdout.write("\n")
            now_ms = lag.reading.at_ms
            rows = [held_row(held, now_ms=now_ms) for held in _all_held(lag)]
            write_table(rows, columns=HELD_TABLE, color=common.use_color)
            stdout_has = True
        if self.explain:
            from rmqcli.cli.ui.escape import safe

            if stdout_has or not self.is_summary:
                sys.stdout.write("\n")
            for sentence in self._explain(lag):
                sys.stdout.write(safe(sentence) + "\n")
        if not self.is_summary:
            common.messages.info(_headline(lag))
        for note in lag.reading.notes:
            common.messages.warn(f"{lag.group}: {note}")

    def table_rows(self, lag: GroupLag) -> Iterator[Row]:
        """The rows of a table of queues."""
        for row in self._queue_rows(lag, self.trends.get(lag.group)):
            yield {"group": lag.group, **row}
        if not lag.queues:
            yield {"group": lag.group, "state": lag.state}

    def summary_row(self, lag: GroupLag) -> Row:
        """The row of a table of groups."""
        trend = self.trends.get(lag.group)
        more = {} if trend is None else row_of(TREND_COLUMNS, trend.group)
        return summary_row(lag) | more

    def _explain(self, lag: GroupLag) -> list[str]:
        from rmqcli.admin.lag.explain import explain

        trend = self.trends.get(lag.group)
        words = explain(lag, None if trend is None else trend.group)
        return list(map(with_flags, words))


def without_empty_retries(rows: Sequence[Row]) -> Sequence[Row]:
    """Leave out retry queues in which nothing waits, unless there is nothing else."""
    from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX

    kept = [
        row
        for row in rows
        if row.get("lag") != 0
        or row["state"] not in ("OK", "NO_COMMIT")
        or not (row["topic"] or "").startswith(RETRY_GROUP_TOPIC_PREFIX)
    ]
    return kept or rows


def _all_held(lag: GroupLag) -> Iterable[HeldQueue]:
    return sorted(
        (held for c in (lag.reading.clients or {}).values() for held in c.queues),
        key=lambda held: held.queue,
    )


def _headline(lag: GroupLag) -> str:
    total = "unknown" if lag.total_lag is None else str(lag.total_lag)
    parts = [f"{lag.group}: {lag.state}, lag {total}"]
    if lag.reason is not None:
        known = f"; {lag.known_lag} known" if lag.known_lag else ""
        parts.append(f"({lag.reason}{known})")
    retries = sum(topic.known_lag for topic in lag.topics if topic.is_retry)
    if retries:
        parts.append(f"{retries} of it to be tried again")
    if lag.age_ms:
        parts.append(f"oldest unread {format_duration(lag.age_ms)}")
    members = member_rows(lag)
    parts.append(f"members {'unknown' if members is None else len(members)}")
    if lag.reading.dead_letters:
        parts.append(f"dead letters {lag.reading.dead_letters}")
    return ", ".join(parts).replace(", (", " (")
