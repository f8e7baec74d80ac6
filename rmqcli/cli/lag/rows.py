"""The parts of `rmq lag -o json`: queues, members, what they hold.

Lag as JSON, CSV and tables. Decides nothing about lag itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqcli.cli.lag.columns import (
    HELD_COLUMNS,
    MEMBER_COLUMNS,
    QUEUE_COLUMNS,
    queue_columns,
    summary_columns,
)
from rmqcli.cli.ui.output import write_rows, write_table
from rmqcli.units import format_duration, format_rfc3339
from rmqcli.wire.codes import language_name
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rmqcli.admin.lag.model import BrokerFailure, GroupLag, QueueLag
    from rmqcli.admin.lag.process_queues import ClientQueues, HeldQueue
    from rmqcli.admin.lag.trend import GroupTrend, Trend
    from rmqcli.cli.options import Common


Row = dict[str, Any]

_NO_OWNERS = "members were not asked: name one group, or give --process-queues"


def queue_json(queue: QueueLag) -> Row:
    return {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "committed": queue.committed,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "lag": queue.lag,
        "inflight": queue.inflight,
        "expired": queue.expired,
        "age_ms": queue.age_ms,
        "state": queue.state,
        "reason": queue.reason,
        "client_id": queue.client_id,
    }


def trend_json(trend: Trend) -> Row:
    return {
        "rate_in": trend.rate_in,
        "rate_out": trend.rate_out,
        "drain_ms": trend.drain_ms,
        "verdict": trend.verdict,
    }


def member_rows(lag: GroupLag) -> list[Row] | None:
    """One row a member; None where they are unknown."""
    members = lag.reading.members
    if members is None:
        return [] if lag.reading.members_unknown is None else None
    clients = lag.reading.clients or {}
    return [
        {
            "client_id": client_id,
            "address": connection.client_addr,
            "version": version_name(connection.version),
            "language": language_name(connection.language),
            "queues": _queues_of(clients.get(client_id)),
        }
        for client_id, connection in sorted(members.connections.items())
    ]


def _queues_of(client: ClientQueues | None) -> list[str] | None:
    if client is None or client.failure is not None:
        return None
    return [str(queue) for queue in client.held_queues()]


def client_reason(lag: GroupLag) -> str | None:
    """Why `client_id` is null where it is."""
    if lag.reading.members is None:
        return lag.reading.members_unknown or "nobody is online"
    if lag.reading.clients is None:
        return _NO_OWNERS
    failed = [c for c in lag.reading.clients.values() if c.failure is not None]
    if failed:
        return f"{failed[0].client_id} did not answer: {failed[0].failure}"
    return None


def all_held(lag: GroupLag) -> Iterable[HeldQueue]:
    return sorted(
        (held for c in (lag.reading.clients or {}).values() for held in c.queues),
        key=lambda held: held.queue,
    )


def held_json(held: HeldQueue) -> Row:
    return {
        "topic": held.queue.topic,
        "broker_name": held.queue.broker_name,
        "queue_id": held.queue.queue_id,
        "client_id": held.client_id,
        "commit_offset": held.commit_offset,
        "cached_count": held.cached_count,
        "cached_size_mib": held.cached_size_mib,
        "cached_min_offset": held.cached_min_offset,
        "cached_max_offset": held.cached_max_offset,
        "span": held.span,
        "span_limit": held.span_limit,
        "taken_count": held.taken_count,
        "taken_min_offset": held.taken_min_offset,
        "taken_max_offset": held.taken_max_offset,
        "locked": held.locked,
        "last_lock": _time(held.last_lock_ms),
        "dropped": held.dropped,
        "last_pull": _time(held.last_pull_ms),
        "last_consume": _time(held.last_consume_ms),
        "flags": list(held.flags),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_rfc3339(at_ms)


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
        members = lag.reading.members
        row: Row = {
            "group": lag.group,
            "state": lag.state,
            "total_lag": lag.total_lag,
            "reason": lag.reason,
            "known_lag": lag.known_lag,
            "age_ms": lag.age_ms,
            "dead_letters": lag.reading.dead_letters,
            "message_model": None if members is None else members.message_model,
            "consume_type": None if members is None else members.consume_type,
            "topics": [
                {
                    "topic": topic.topic,
                    "lag": topic.lag,
                    "known_lag": topic.known_lag,
                    "age_ms": topic.age_ms,
                    "state": topic.state,
                    "queues": topic.queue_nums,
                    "retry": topic.is_retry,
                    "expression": topic.expression,
                }
                for topic in lag.topics
            ],
            "queues": list(self._queue_rows(lag, trend)),
            "members": member_rows(lag),
            "client_reason": client_reason(lag),
            "notes": lag.reading.notes,
            "errors": [
                {
                    "broker_name": failure.broker_name,
                    "address": failure.address,
                    "message": failure.message,
                }
                for failure in lag.reading.failures
            ],
        }
        if trend is not None:
            row["trend"] = trend_json(trend.group)
        if self.process_queues:
            row["process_queues"] = [held_json(held) for held in all_held(lag)]
        if self.explain:
            row["explain"] = self._explain(lag)
        return row

    def _queue_rows(self, lag: GroupLag, trend: GroupTrend | None) -> Iterator[Row]:
        for queue in self._sorted(lag.queues):
            row = queue_json(queue)
            if trend is not None and queue.key in trend.queues:
                row.update(trend_json(trend.queues[queue.key]))
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
            columns_of_queues = queue_columns(
                with_group=len(self.groups) > 1, with_trend=bool(self.trends)
            )
            rows = [row for lag in self.groups for row in self.table_rows(lag)]
            write_table(rows, columns=columns_of_queues, color=common.use_color)
        for lag in self.groups:
            self._write_more(lag, common)

    def _write_more(self, lag: GroupLag, common: Common) -> None:
        """Members, what they hold, and words, below the table of queues."""
        stdout_has = False
        if not self.is_summary and lag.reading.members is not None:
            sys.stdout.write("\n")
            write_table(member_rows(lag) or (), columns=MEMBER_COLUMNS)
            stdout_has = True
        if self.process_queues and lag.reading.clients:
            sys.stdout.write("\n")
            now_ms = lag.reading.at_ms
            rows = [_held_row(held, now_ms=now_ms) for held in all_held(lag)]
            write_table(rows, columns=HELD_COLUMNS)
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
        """The rows of a table of queues, times in words."""
        for row in self._queue_rows(lag, self.trends.get(lag.group)):
            row["group"] = lag.group
            row["age"] = _duration(row["age_ms"])
            row["drain"] = _duration(row.get("drain_ms"))
            yield row
        if not lag.queues:
            yield {"group": lag.group, "state": lag.state}

    def summary_row(self, lag: GroupLag) -> Row:
        """The row of a table of groups."""
        rows = member_rows(lag)
        row: Row = {
            "group": lag.group,
            "lag": lag.total_lag,
            "age": _duration(lag.age_ms),
            "state": lag.state,
            "topics": len([t for t in lag.topics if t.topic is not None]),
            "queues": sum(topic.queue_nums for topic in lag.topics),
            "dead_letters": lag.reading.dead_letters,
            "members": None if rows is None else len(rows),
        }
        trend = self.trends.get(lag.group)
        if trend is not None:
            row.update(trend_json(trend.group))
            row["drain"] = _duration(trend.group.drain_ms)
        return row

    def _explain(self, lag: GroupLag) -> list[str]:
        from rmqcli.admin.lag.explain import explain

        trend = self.trends.get(lag.group)
        return explain(lag, None if trend is None else trend.group)


def _held_row(held: HeldQueue, *, now_ms: int) -> Row:
    row = held_json(held)
    row["span_of_limit"] = f"{held.span}/{held.span_limit}"
    for name, at_ms in (
        ("last_lock", held.last_lock_ms),
        ("last_pull", held.last_pull_ms),
        ("last_consume", held.last_consume_ms),
    ):
        row[name] = None if at_ms is None else f"{_ago(now_ms - at_ms)} ago"
    return row


def _ago(age_ms: int) -> str:
    return format_duration(max(0, age_ms))


def _duration(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else format_duration(duration_ms)


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
