"""The views of consumer groups: all of them, and one with its members and queues.

Reading every group of a large cluster takes long, here and on the brokers. So groups
that are on the screen are read each time, and the others less often, by their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.memory import open_memory
from rmqcli.admin.lag.model import GroupState, compute_lag, rank_of
from rmqcli.admin.lag.trend import TREND_MIN_MS, Samples, judge
from rmqcli.api.broker_errors import not_found, unanswered
from rmqcli.cli.lag.view import (
    HELD_TABLE,
    MEMBER_COLUMNS,
    LagView,
    all_held,
    headline,
    held_row,
    member_rows,
    queue_columns,
    summary_columns,
    unknown_of,
    untold_members,
    without_empty_retries,
)
from rmqcli.cli.lag.watch import STALE, sparkline
from rmqcli.cli.top.messages import LettersView, TailView
from rmqcli.cli.top.reset import ask_reset
from rmqcli.cli.top.view import View, ViewKey
from rmqcli.dataclass import dataclass
from rmqcli.hint import placed, with_options
from rmqcli.units import counted, format_duration, listed

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from rmqcli.admin.lag.memory import LagMemory
    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.admin.lag.trend import GroupTrend
    from rmqcli.api.client import Client
    from rmqcli.cli.top.view import Question
    from rmqcli.cli.ui.output import Column, Row

#: A group that is not on the screen is read after this time for each group there is:
#: about 0.4 ms of computing for each, which is then a thirtieth of a core.
FULL_MS_A_GROUP = 12
#: More groups of which the same is unknown are counted.
_GROUPS_NAMED = 3
_HISTORY = 10


class _Trends:
    """What earlier readings of groups tell: trends and sparklines."""

    def __init__(self) -> None:
        self._samples: dict[str, Samples] = {}
        #: lists: thousands of deques would take megabytes
        self._history: dict[Hashable, list[int | None]] = {}

    def take(
        self, lag: GroupLag, at_ms: int, *, is_rare: bool = False
    ) -> GroupTrend | None:
        """Add a group as it was read; return its trend, if it is known.

        What is read rarely needs only its last sample.
        """
        if is_rare:
            samples = self._samples.pop(lag.group, None) or Samples()
            trend = samples.take([lag], at_ms=at_ms).get(lag.group)
            self._samples[lag.group] = last = Samples()
            last.take([lag], at_ms=at_ms)
            return trend
        samples = self._samples.setdefault(lag.group, Samples())
        return samples.take([lag], at_ms=at_ms).get(lag.group)

    def spark(self, key: Hashable, lag: int | None) -> str:
        """Add a lag; return the sparkline of the last ones.

        It is padded, because a column that grows makes others disappear.
        """
        history = self._history.setdefault(key, [])
        history.append(lag)
        del history[:-_HISTORY]
        return sparkline(history).rjust(_HISTORY)

    def keep(self, groups: Iterable[str]) -> None:
        """Forget all groups but these."""
        for group in self._samples.keys() - set(groups):
            del self._samples[group]
            self._history.pop(group, None)


def _by_state(row: Row) -> Any:
    rank = rank_of(GroupState(row["state"]))
    return -rank, *_by_lag(row)


def _by_lag(row: Row) -> Any:
    return row["total_lag"] is not None, -(row["total_lag"] or 0), row["group"]


@dataclass(slots=True, kw_only=True)
class _Groups:
    """What was read of groups. A full reading has all groups there are.

    `missing` are groups that were asked for and do not exist any more.
    """

    rows: dict[str, dict[str, Any]]
    missing: list[str]
    is_full: bool
    failures: list[str]
    full_ms: int


class GroupsView(View):
    """All groups, as in `rmq lag --watch`."""

    columns = summary_columns(with_trend=True, with_spark=True)
    stale = STALE

    def __init__(self) -> None:
        super().__init__("groups")
        self.sorts = {
            "state": _by_state,
            "lag": _by_lag,
            "age": lambda row: (-(row["known_age_ms"] or 0), row["group"]),
            "group": lambda row: row["group"],
        }
        self.keys = {
            "d": ViewKey("dead letters", self._letters),
            "r": ViewKey("reset", self._reset, changes=True),
        }
        #: for the thread that reads
        self._trends = _Trends()
        self._known: tuple[str, ...] = ()
        self._full_at_ms: int | None = None
        self._memory: LagMemory | None = None

    @property
    def command(self) -> list[str]:
        return ["lag", "--watch", format_duration(self.interval_ms or 2_000)]

    def rows_of(self, found: _Groups) -> Sequence[Row]:
        return list(found.rows.values())

    def key_of(self, row: Row) -> Any:
        return row["group"]

    def read(self, client: Client) -> _Groups:
        now_ms = client.clock.monotonic_ms()
        wanted = [str(key) for key in self.on_screen if key in self._known]
        full_ms = max(self.interval_ms or 0, len(self._known) * FULL_MS_A_GROUP)
        is_full = (
            not wanted
            or self._full_at_ms is None
            or now_ms - self._full_at_ms >= full_ms
        )
        if self._memory is None:
            self._memory = open_memory(client)
        query = (
            LagQuery(with_system=False) if is_full else LagQuery(groups=tuple(wanted))
        )
        reading = LagGatherer(client, query, self._memory).read()
        is_rare = is_full and full_ms >= TREND_MIN_MS
        told = {failure.message for failure in reading.failures}
        rows = {}
        unknown: dict[str, list[str]] = {}
        details_unknown: dict[str, list[str]] = {}
        # Each is dropped after its turn: what is known of all groups takes megabytes.
        reading.groups.reverse()
        while reading.groups:
            lag = compute_lag(reading.groups.pop())
            rows[lag.group] = self._summary(lag, reading.monotonic_ms, is_rare=is_rare)
            for reason in unknown_of(lag, told):
                unknown.setdefault(reason, []).append(lag.group)
            for detail in (lag.reading.dead_letters_unknown, lag.reading.ages_unknown):
                if detail is not None:
                    details_unknown.setdefault(detail, []).append(lag.group)
        for text, groups in details_unknown.items():
            unknown.setdefault(text, []).extend(groups)
        if is_full:
            self._full_at_ms = now_ms
            self._known = tuple(rows)
            self._trends.keep(rows)
        failures = [
            f"{f.broker_name}: {self.worded(f.message)}" for f in reading.failures
        ]
        failures += [
            f"{listed(groups, _GROUPS_NAMED)}: {self.worded(text)}"
            for text, groups in unknown.items()
        ]
        return _Groups(
            rows=rows,
            missing=reading.missing,
            is_full=is_full,
            failures=failures,
            full_ms=full_ms,
        )

    def _summary(self, lag: GroupLag, at_ms: int, *, is_rare: bool) -> dict[str, Any]:
        rare = is_rare and lag.group not in self.on_screen
        trend = self._trends.take(lag, at_ms, is_rare=rare)
        trends = {} if trend is None else {lag.group: trend}
        row = LagView(groups=(), trends=trends).summary_row(judge(lag, trend))
        row["spark"] = self._trends.spark(lag.group, lag.total_lag)
        return row

    def take(self, answer: _Groups) -> None:
        if self.found is not None and not answer.is_full:
            answer.rows = self.found.rows | answer.rows
        for group in answer.missing:
            answer.rows.pop(group, None)
        super().take(answer)

    def intro_of(self, found: _Groups, row: Row | None) -> Sequence[str]:
        if found.full_ms <= (self.interval_ms or 0):
            return ()
        every = format_duration(found.full_ms // 1_000 * 1_000)
        return (
            f"{counted(len(found.rows), 'group')}: those off the screen every {every}",
        )

    def notes_of(self, found: _Groups) -> Sequence[str]:
        return found.failures

    def open(self, row: Row) -> View:
        return GroupView(row["group"])

    def _letters(self, row: Row | None) -> View | None:
        return None if row is None else LettersView(row["group"])

    def _reset(self, row: Row | None) -> View | Question | None:
        if row is None:
            return None
        topics = [each["topic"] for each in row["topics"] if not each["retry"]]
        return ask_reset(row["group"], [topic for topic in topics if topic])


@dataclass(slots=True, kw_only=True)
class _Group:
    lag: GroupLag
    trend: GroupTrend | None
    queues: list[dict[str, Any]]
    failures: list[str]


class GroupView(View):
    """One group: its queues, its members, and what these have cached of each queue."""

    parts = ("queues", "members", "process queues")

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group
        self.keys = {
            "t": ViewKey("tail", self._tail),
            "d": ViewKey("dead letters", lambda _row: LettersView(group)),
            "r": ViewKey("reset", self._reset, changes=True),
        }
        self._trends = _Trends()
        self._memory: LagMemory | None = None

    @property
    def stale(self) -> Mapping[str, object]:
        return STALE if self.part == 0 else {}

    @property
    def command(self) -> list[str]:
        words = ["lag", *placed(self.group)]
        if self.part:
            return with_options(words, ["--process-queues"])
        return with_options(words, ["--explain", "--sample", "10s"])

    @property
    def columns(self) -> Sequence[Column]:
        match self.part:
            case 0:
                return queue_columns(with_group=False, with_trend=True, with_spark=True)
            case 1:
                return MEMBER_COLUMNS
        return HELD_TABLE

    def rows_of(self, found: _Group) -> Sequence[Row]:
        match self.part:
            case 0:
                return found.queues
            case 1:
                return member_rows(found.lag) or ()
        now_ms = found.lag.reading.at_ms
        return [held_row(held, now_ms=now_ms) for held in all_held(found.lag)]

    def key_of(self, row: Row) -> Any:
        if self.part == 1:
            return row["client_id"]
        return tuple(
            row.get(name) for name in ("topic", "broker_name", "queue_id", "client_id")
        )[: 4 if self.part else 3]

    def read(self, client: Client) -> _Group:
        if self._memory is None:
            self._memory = open_memory(client)
        query = LagQuery(groups=(self.group,), process_queues=True, with_paused=True)
        reading = LagGatherer(client, query, self._memory).read()
        if reading.missing or not reading.groups:
            raise not_found("group", self.group)
        lag = compute_lag(reading.groups[0])
        trend = self._trends.take(lag, reading.monotonic_ms)
        lag = judge(lag, trend)
        view = LagView(groups=(), trends={} if trend is None else {self.group: trend})
        queues = []
        for row in view.table_rows(lag):
            if "topic" in row:
                key = row["topic"], row["broker_name"], row["queue_id"]
                row["spark"] = self._trends.spark(key, row["lag"])
                queues.append(row)
        return _Group(
            lag=lag,
            trend=trend,
            queues=list(without_empty_retries(queues)),
            failures=[
                f"{each.broker_name}: {self.worded(each.message)}"
                for each in reading.failures
            ],
        )

    def intro_of(self, found: _Group, row: Row | None) -> Sequence[str]:
        if self.part:
            return (headline(found.lag),)
        from rmqcli.admin.lag.explain import explain

        trend = None if found.trend is None else found.trend.group
        return list(map(self.worded, explain(found.lag, trend)))

    def notes_of(self, found: _Group) -> Sequence[str]:
        lag = found.lag
        silent = [
            f"{client.client_id} {unanswered(client.failure)}"
            for client in (lag.reading.clients or {}).values()
            if client.failure is not None
        ]
        untold = untold_members(lag)
        members = [] if untold is None else [self.worded(untold)]
        return [*found.failures, *lag.reading.notes, *members, *silent]

    def open(self, row: Row) -> View | None:
        return self._tail(row)

    def _tail(self, row: Row | None) -> View | None:
        if row is None or not row.get("topic"):
            return None
        queue = (row["broker_name"], row["queue_id"])
        return TailView(row["topic"], None if queue[1] is None else queue)

    def _reset(self, row: Row | None) -> View | Question | None:
        found: _Group | None = self.found
        if found is None:
            return None
        topics = [
            each.topic
            for each in found.lag.topics
            if each.topic is not None and not each.is_retry
        ]
        topic = None if row is None else row.get("topic")
        return ask_reset(self.group, [topic] if topic in topics else topics)
