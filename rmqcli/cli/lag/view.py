"""The output of `rmq lag`: its fields, and one reading of groups in every format.

A field defines how it is read from results of `rmqcli.admin.lag`, and how a table shows
it. JSON, CSV and tables list fields in different orders. Tuples of columns define these
orders, which users rely on. This module decides nothing about lag itself.
"""

from __future__ import annotations

import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any

from rmqcli.api.broker_errors import unanswered
from rmqcli.cli.by_broker import show_list
from rmqcli.cli.offline import MEMBERS_UNKNOWN
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_screen, wrapped
from rmqcli.cli.ui.output import (
    Column,
    Row,
    number_column,
    pick,
    place_columns,
    row_of,
    time_column,
)
from rmqcli.cli.ui.wording import with_flags
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.units import counted, format_duration, listed
from rmqcli.wire.codes import language_name

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from rmqcli.admin.lag.model import BrokerFailure, GroupLag
    from rmqcli.admin.lag.process_queues import ClientQueues, HeldQueue
    from rmqcli.admin.lag.trend import GroupTrend
    from rmqcli.cli.options import Common
    from rmqcli.engine.queue_lag import QueueLag

#: Meanings of a queue's states. KNOWN has none: the group's state says what it means
#: that messages wait.
STATES = {
    "OK": "good",
    "NO_COMMIT": "warn",
    "BROADCAST": "warn",
    "AHEAD": "bad",
    "EXPIRED": "bad",
    "UNKNOWN": "bad",
}
#: Meanings of a group's states, and of verdicts about a queue between two samples.
GROUP_STATES = STATES | {
    "BEHIND": "warn",
    "GROWING": "warn",
    "STOPPED": "bad",
    "STALLED": "bad",
    "REWOUND": "bad",
}

#: More groups than these are counted where a warning is about all of them.
_GROUPS_LISTED = 3
_NO_OWNERS = "members were not queried: name one group, or add --process-queues"


def _duration(name: str) -> Callable[[Row], str | None]:
    def shown(row: Row) -> str | None:
        duration_ms = row.get(name)
        return None if duration_ms is None else format_duration(duration_ms)

    return shown


#: In the order of CSV.
QUEUE_COLUMNS = (
    Column("group", "the consumer group", title=None),
    Column("topic", "topic of the queue"),
    # Without it, queues of two brokers look alike.
    Column("broker_name", "broker of the queue", title="BROKER", priority=4),
    number_column("queue_id", "number of the queue", title="QUEUE"),
    number_column("committed", "offset that the group consumes next", priority=40),
    number_column(
        "min_offset", "oldest offset that is still stored", "MIN", priority=60
    ),
    number_column(
        "max_offset", "offset that the next message gets", "MAX", priority=50
    ),
    number_column("lag", "max offset minus committed offset, both within the queue"),
    number_column("expired", "messages deleted before they were read", priority=80),
    number_column(
        "inflight",
        "pulled but not committed, by POP handed out but not acknowledged; else null"
        " without members, and before RocketMQ 5.1",
        priority=70,
    ),
    Column(
        "age_ms",
        "age of the oldest unread message, by the broker's clock",
        title="AGE",
        shown=_duration("age_ms"),
        priority=10,
    ),
    Column(
        "state",
        "of the queue: OK (no message waits), KNOWN (the lag is known), NO_COMMIT,"
        " EXPIRED, AHEAD, BROADCAST or UNKNOWN; of a group in JSON also BEHIND,"
        " GROWING, STOPPED, STALLED and REWOUND",
        states=STATES,
    ),
    Column("reason", "why the state is not OK or KNOWN", title=None),
    Column(
        "client_id",
        "member that owns the queue",
        title="CLIENT",
        shorten=True,
        priority=20,
    ),
    time_column(
        "visible_at",
        "when the next message that POP has handed out is visible again",
        title=None,
        of="visible_ms",
    ),
)
QUEUE_KEYS = pick(
    QUEUE_COLUMNS,
    "topic broker_name queue_id committed min_offset max_offset lag inflight expired"
    " age_ms state reason client_id visible_at",
)

#: Wanted before there are rates: the columns of a table that is watched must not move.
TREND_COLUMNS = (
    number_column(
        "rate_in",
        "with --sample: messages stored per second",
        title="IN/S",
        priority=15,
        is_wanted=True,
    ),
    number_column(
        "rate_out",
        "with --sample: messages consumed per second",
        title="OUT/S",
        priority=15,
        is_wanted=True,
    ),
    Column(
        "drain_ms",
        "with --sample: time until no message waits, at these rates",
        title="DRAIN",
        shown=_duration("drain_ms"),
        priority=28,
        is_wanted=True,
    ),
    Column(
        "verdict",
        "with --sample: the state between the two samples",
        states=GROUP_STATES,
        priority=5,
    ),
)
SPARK_COLUMN = Column("spark", title="TREND", priority=8, is_wanted=True)

_TOPIC_KEYS = (
    Column("topic"),
    Column("lag"),
    Column("known_lag"),
    Column("age_ms"),
    Column("known_age_ms"),
    Column("state"),
    Column("queues", value=lambda topic: topic.queue_nums),
    Column("retry", value=lambda topic: topic.is_retry),
    Column("expression"),
)
_ERROR_KEYS = (
    Column("broker_name"),
    Column("address"),
    Column("message", value=lambda failure: with_flags(failure.message)),
)

#: What POP has handed out to a group.
POP_KEYS = (
    Column("inflight"),
    Column("overdue"),
    time_column("visible_at", of="visible_ms"),
    Column("retry_lag"),
    Column("reason"),
)


def _known_count(row: Row, counts: Iterable[int]) -> int | None:
    """Return a sum; None if it is 0 of a group of which nothing is known."""
    return sum(counts) or (None if row["state"] == "UNKNOWN" else 0)


#: In the order of JSON; `errors` comes last, then what only some options add.
GROUP_COLUMNS = (
    Column("group"),
    Column("state", states=GROUP_STATES),
    number_column("total_lag", title="LAG"),
    Column("reason", title=None),
    number_column("known_lag", title=None),
    Column("age_ms", title="AGE", shown=_duration("age_ms"), priority=10),
    Column("known_age_ms", title=None),
    number_column(
        "dead_letters",
        title="DEAD",
        value=lambda lag: lag.reading.dead_letters,
        priority=30,
    ),
    Column(
        "message_model",
        title=None,
        value=lambda lag: lag.reading.members and lag.reading.members.message_model,
    ),
    Column(
        "consume_type",
        title=None,
        value=lambda lag: lag.reading.members and lag.reading.members.consume_type,
    ),
    number_column(
        "topics",
        value=lambda lag: [row_of(_TOPIC_KEYS, topic) for topic in lag.topics],
        shown=lambda row: _known_count(
            row, (t["topic"] is not None for t in row["topics"])
        ),
        priority=50,
    ),
    number_column(
        "queues",
        value=lambda lag: None,  # `LagView` has their order and trends
        shown=lambda row: _known_count(row, (t["queues"] or 0 for t in row["topics"])),
        priority=60,
    ),
    number_column(
        "members",
        value=lambda lag: member_rows(lag),
        shown=lambda row: None if row["members"] is None else len(row["members"]),
        priority=40,
    ),
    Column("members_reason", title=None, value=lambda lag: lag.reading.members_unknown),
    Column("client_reason", title=None, value=lambda lag: _client_reason(lag)),
    Column("inflight_reason", title=None, value=lambda lag: _inflight_reason(lag)),
    Column("pop", title=None, value=lambda lag: lag.pop and row_of(POP_KEYS, lag.pop)),
    Column("notes", title=None, value=lambda lag: lag.reading.notes),
    Column(
        "errors",
        title=None,
        value=lambda lag: [row_of(_ERROR_KEYS, each) for each in lag.reading.failures],
    ),
)
MEMBER_COLUMNS = (
    Column("client_id", title="CLIENT", shorten=True),
    Column("address", priority=10),
    Column("proxy", priority=25),
    Column("version", priority=30),
    Column("language", priority=40),
    # The rows of the queues name their members. A list with its middle left out would
    # look like the name of one queue.
    number_column(
        "queues",
        shown=lambda row: None if row["queues"] is None else len(row["queues"]),
        priority=20,
    ),
)

#: In the order of JSON.
HELD_COLUMNS = (
    Column("topic", value=lambda held: held.queue.topic),
    # Without the broker, queues of two brokers look alike.
    *place_columns(priority=15),
    Column("client_id", title="CLIENT", shorten=True, priority=20),
    number_column("commit_offset", title=None),
    number_column("cached_count", title="CACHED"),
    number_column("cached_size_mib", title="MIB", priority=60),
    number_column("cached_min_offset", title="MIN", priority=70),
    number_column("cached_max_offset", title="MAX", priority=75),
    Column("span", shown=lambda row: f"{row['span']}/{row['span_limit']}", priority=40),
    number_column("span_limit", title=None),
    number_column("taken_count", title="TAKEN", priority=65),
    number_column("taken_min_offset", title=None),
    number_column("taken_max_offset", title=None),
    Column("locked", priority=80),
    time_column("last_lock", title="LAST LOCK", priority=45),
    Column("dropped", priority=85),
    time_column("last_pull", title="LAST PULL", priority=30),
    time_column("last_consume", title="LAST CONSUME"),
    Column("flags", priority=5),
)
HELD_TABLE = pick(
    HELD_COLUMNS,
    "topic broker_name queue_id cached_count cached_size_mib cached_min_offset"
    " cached_max_offset span taken_count locked last_lock dropped last_pull"
    " last_consume flags client_id",
)


def queue_columns(
    *, with_group: bool, with_trend: bool, with_spark: bool = False
) -> tuple[Column, ...]:
    """The columns of a table of queues."""
    columns = [Column("group")] if with_group else []
    for column in QUEUE_COLUMNS:
        if column.name == "state" and with_trend:
            columns += TREND_COLUMNS
        columns.append(column)
    if not with_group:
        columns = [column for column in columns if column.name != "group"]
    if with_spark:
        columns.insert(-3, SPARK_COLUMN)
    return tuple(columns)


def summary_columns(
    *, with_trend: bool, with_spark: bool = False
) -> tuple[Column, ...]:
    """The columns of a table of groups."""
    # The verdict is left out: it would be the same as the state.
    trend = TREND_COLUMNS[:-1] if with_trend else ()
    spark = (SPARK_COLUMN,) if with_spark else ()
    return (
        *pick(GROUP_COLUMNS, "group total_lag age_ms"),
        *trend,
        *spark,
        *pick(GROUP_COLUMNS, "state topics queues members dead_letters"),
    )


def summary_row(lag: GroupLag) -> dict[str, Any]:
    """The fields of a group that a table of groups shows."""
    wanted = "group total_lag age_ms known_age_ms state topics members dead_letters"
    return row_of(pick(GROUP_COLUMNS, wanted), lag)


def member_rows(lag: GroupLag) -> list[dict[str, Any]] | None:
    """Return a row for each member; None if the members are unknown."""
    from rmqcli.wire.version import version_name

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
            "proxy": members.proxies.get(client_id),
        }
        for client_id, connection in sorted(members.connections.items())
    ]


def _queues_of(client: ClientQueues | None) -> list[str] | None:
    if client is None or client.failure is not None:
        return None
    return [str(queue) for queue in client.held_queues()]


def untold_members(lag: GroupLag) -> str | None:
    """Return why a broker that answers did not tell all members; None if it did."""
    reason = lag.reading.members_unknown
    return None if reason == MEMBERS_UNKNOWN or lag.reading.failures else reason


def unknown_of(lag: GroupLag, told: Collection[str]) -> Iterator[str]:
    """Yield why a table of groups has no number for something of this group.

    What a broker does not report of any group is left out: its message is in `told`.
    """
    failures = lag.reading.failures
    if lag.is_partial and not any(each.message in told for each in failures):
        yield lag.reason or ""
    if (reason := untold_members(lag)) is not None:
        yield reason


def _client_reason(lag: GroupLag) -> str | None:
    """Return why `client_id` may be null in the rows of queues."""
    if lag.reading.members is None:
        return lag.reading.members_unknown or "no active members"
    if any(map(is_grpc_client, lag.reading.members.connections)):
        return "members that use gRPC own no queues"
    if lag.reading.clients is None:
        return _NO_OWNERS
    for client in lag.reading.clients.values():
        if client.failure is not None:
            return f"{client.client_id} {unanswered(client.failure)}"
    return None


def _inflight_reason(lag: GroupLag) -> str | None:
    """Return why `inflight` may be null in the rows of queues."""
    if all(queue.inflight is not None for queue in lag.queues):
        return None
    if lag.reading.members is None and lag.reading.members_unknown is None:
        return "no active members"
    if lag.pop is not None and lag.pop.reason is not None:
        return lag.pop.reason
    return "not reported: brokers report it from RocketMQ 5.1 on, for some members"


def held_row(held: HeldQueue, *, now_ms: int) -> dict[str, Any]:
    """Return a held queue as the row of a table, with ages instead of times."""
    row = row_of(HELD_COLUMNS, held)
    for name, at_ms in (
        ("last_lock", held.last_lock_ms),
        ("last_pull", held.last_pull_ms),
        ("last_consume", held.last_consume_ms),
    ):
        if at_ms is not None:
            row[name] = f"{format_duration(max(0, now_ms - at_ms))} ago"
    return row


def _warn_of_notes(common: Common, lag: GroupLag) -> None:
    for note in lag.reading.notes:
        common.messages.warn(f"{lag.group}: {note}")


@dataclass(slots=True, kw_only=True)
class LagView:
    """One reading of some groups, and what to show of it."""

    groups: Sequence[GroupLag]
    failures: Sequence[BrokerFailure] = ()
    trends: Mapping[str, GroupTrend] = field(default_factory=dict)
    is_summary: bool = False
    process_queues: bool = False
    explain: bool = False
    sort: str | None = None

    def write(self, common: Common) -> None:
        """Write the groups to stdout in the format of `--output`."""
        match common.output:
            case "table":
                self._write_tables(common)
            case "csv":
                columns = (*QUEUE_COLUMNS, *(TREND_COLUMNS if self.trends else ()))
                common.write_rows(self._all_rows(), columns)
                for lag in self.groups:  # no column has them
                    _warn_of_notes(common, lag)
            case _:
                common.write_rows(map(self.group_json, self.groups), ())

    def group_json(self, lag: GroupLag) -> dict[str, Any]:
        """Return one group for JSON. Its keys are public."""
        trend = self.trends.get(lag.group)
        row = row_of(GROUP_COLUMNS, lag)
        row["queues"] = list(self._queue_rows(lag, trend))
        if trend is not None:
            row["trend"] = row_of(TREND_COLUMNS, trend.group)
        if self.process_queues:
            row["process_queues"] = [row_of(HELD_COLUMNS, h) for h in all_held(lag)]
        if self.explain:
            row["explain"] = self._explain(lag)
        return row

    def _queue_rows(
        self, lag: GroupLag, trend: GroupTrend | None
    ) -> Iterator[dict[str, Any]]:
        for queue in self._sorted(lag.queues):
            row = row_of(QUEUE_KEYS, queue)
            if trend is not None and queue.key in trend.queues:
                row.update(row_of(TREND_COLUMNS, trend.queues[queue.key]))
            yield row

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
            show_list(
                common,
                rows,
                columns,
                none="no consumer groups",
                is_complete=not self.failures,
            )
        else:
            self._write_queues(common)
        for lag in self.groups:
            self._write_more(lag, common)
        if self.is_summary:
            for text, groups in self.unknown().items():
                names = listed(groups, _GROUPS_LISTED)
                common.messages.warn(f"{names}: {with_flags(text)}")

    def unknown(self) -> dict[str, list[str]]:
        """Return what a table of groups has no number for and why, and of which groups.

        What a broker does not report of any group is in `failures` instead.
        """
        told = {failure.message for failure in self.failures}
        found: dict[str, list[str]] = {}
        for lag in self.groups:
            for reason in unknown_of(lag, told):
                found.setdefault(reason, []).append(lag.group)
        return found

    def _write_queues(self, common: Common) -> None:
        rows = self._all_rows()
        shown = without_empty_retries(rows) if is_screen(sys.stdout) else rows
        hidden = len(rows) - len(shown)
        left_out = counted(hidden, "empty retry queue")
        columns = queue_columns(
            with_group=len(self.groups) > 1, with_trend=bool(self.trends)
        )
        common.write_table(shown, columns, left_out=left_out if hidden else "")

    def _write_more(self, lag: GroupLag, common: Common) -> None:
        """Write members, process queues and explanations below the first table."""
        stdout_has = False
        if not self.is_summary and lag.reading.members is not None:
            sys.stdout.write("\n")
            has_proxies = bool(lag.reading.members.proxies)
            columns = [
                column
                for column in MEMBER_COLUMNS
                if has_proxies or column.name != "proxy"
            ]
            common.write_table(member_rows(lag) or (), columns)
            stdout_has = True
        if self.process_queues and lag.reading.clients:
            sys.stdout.write("\n")
            now_ms = lag.reading.at_ms
            rows = [held_row(held, now_ms=now_ms) for held in all_held(lag)]
            common.write_table(rows, HELD_TABLE)
            stdout_has = True
        if self.explain:
            if stdout_has or not self.is_summary:
                sys.stdout.write("\n")
            for sentence in self._explain(lag):
                sys.stdout.write(wrapped(safe(sentence), sys.stdout) + "\n")
        if not self.is_summary:
            common.messages.info(headline(lag))
            if (reason := untold_members(lag)) is not None:
                common.messages.warn(f"{lag.group}: {with_flags(reason)}")
        _warn_of_notes(common, lag)

    def table_rows(self, lag: GroupLag) -> Iterator[dict[str, Any]]:
        """Yield the rows of a group in a table or a CSV file of queues."""
        for row in self._queue_rows(lag, self.trends.get(lag.group)):
            yield {"group": lag.group, **row}
        if not lag.queues:
            yield {"group": lag.group, "state": lag.state, "reason": lag.reason}

    def _all_rows(self) -> list[dict[str, Any]]:
        return [row for lag in self.groups for row in self.table_rows(lag)]

    def summary_row(self, lag: GroupLag) -> dict[str, Any]:
        """Return the row of a group in a table of groups."""
        trend = self.trends.get(lag.group)
        more = {} if trend is None else row_of(TREND_COLUMNS, trend.group)
        return summary_row(lag) | more

    def _explain(self, lag: GroupLag) -> list[str]:
        from rmqcli.admin.lag.explain import explain

        trend = self.trends.get(lag.group)
        words = explain(lag, None if trend is None else trend.group)
        return list(map(with_flags, words))


def without_empty_retries(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Leave out retry queues in which nothing waits, unless there is nothing else."""
    kept = [
        row
        for row in rows
        if row.get("lag") != 0
        or row["state"] not in ("OK", "NO_COMMIT")
        or not (row["topic"] or "").startswith(RETRY_GROUP_TOPIC_PREFIX)
    ]
    return kept or rows


def all_held(lag: GroupLag) -> Iterable[HeldQueue]:
    """Return the queues that the members of a group hold, sorted."""
    return sorted(
        (held for c in (lag.reading.clients or {}).values() for held in c.queues),
        key=lambda held: held.queue,
    )


def headline(lag: GroupLag) -> str:
    """Sum a group up in one line."""
    total = "unknown" if lag.total_lag is None else str(lag.total_lag)
    parts = [f"{lag.group}: {lag.state}, lag {total}"]
    if lag.reason is not None:
        known = f"; {lag.known_lag} known" if lag.known_lag else ""
        parts.append(f"({lag.reason}{known})")
    retries = sum(topic.known_lag for topic in lag.topics if topic.is_retry)
    if retries:
        parts.append(f"{retries} of it in the retry topic")
    if lag.pop is not None and lag.pop.inflight:
        parts.append(f"{lag.pop.inflight} of it handed out and not acknowledged")
    if lag.known_age_ms:
        least = "at least " if lag.age_ms is None else ""
        age = format_duration(lag.known_age_ms)
        parts.append(f"oldest unread message {least}{age} old")
    members = member_rows(lag)
    least = "at least " if lag.reading.members_unknown is not None else ""
    parts.append(
        f"members {'unknown' if members is None else f'{least}{len(members)}'}"
    )
    if lag.reading.dead_letters_unknown is not None:
        parts.append("dead letters unknown")
    if lag.reading.dead_letters:
        parts.append(f"dead letters {lag.reading.dead_letters}")
    return ", ".join(parts).replace(", (", " (")
