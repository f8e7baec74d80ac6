"""The views of topics: all of them with their rates, and one with its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.memory import open_memory
from rmqcli.admin.lag.model import compute_lag
from rmqcli.admin.topic_counts import Rates, count_topics
from rmqcli.admin.topics import list_topics, show_topic
from rmqcli.cli.by_broker import departed_texts, slave_texts
from rmqcli.cli.lag.view import summary_columns, summary_row
from rmqcli.cli.top.messages import TailView
from rmqcli.cli.top.view import View, ViewKey
from rmqcli.cli.topics import COLUMNS, QUEUE_COLUMNS, SAMPLE_COLUMNS, queue_rows
from rmqcli.cli.ui.output import number_column, pick, row_of
from rmqcli.dataclass import dataclass
from rmqcli.hint import placed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.admin.topic_counts import TopicCounts
    from rmqcli.admin.topics import TopicDetail, TopicList
    from rmqcli.api.client import Client
    from rmqcli.cli.ui.output import Column, Row

#: With more topics, only those on the screen are asked for their offsets.
ASKED_MAX = 200
#: Kinds of topics that are shown, as by `rmq topics`.
_USERS = ("normal", "static")

_RATE = number_column("rate_in", title="IN/S")
_TABLE = pick(
    SAMPLE_COLUMNS,
    "topic message_type perm write_queue_nums rate_in messages brokers",
)


@dataclass(slots=True, kw_only=True)
class _Topics:
    found: TopicList
    #: topic -> (rate, messages); those that were not asked for are missing
    numbers: dict[str, tuple[float | None, int | None]]
    #: what is missing from the list, in words
    untold: list[str]


class TopicsView(View):
    """The users' topics, as in `rmq topics`, with rates."""

    command = ("topics", "--sample", "10s")
    columns = _TABLE

    def __init__(self) -> None:
        super().__init__("topics")
        self.sorts = {
            "topic": lambda row: row["topic"],
            "rate": lambda row: (-(row["rate_in"] or 0), row["topic"]),
            "messages": lambda row: (-(row["messages"] or 0), row["topic"]),
        }
        self.keys = {
            "t": ViewKey(
                "tail", lambda row: None if row is None else TailView(row["topic"])
            )
        }
        self._rates = Rates()
        self._counts: TopicCounts | None = None

    @property
    def stale(self) -> Mapping[str, object]:
        return {"rate_in": None}

    def rows_of(self, found: _Topics) -> Sequence[Row]:
        rows = []
        for topic in found.found.topics:
            if topic.kind in _USERS:
                row = row_of(COLUMNS, topic)
                numbers = found.numbers.get(topic.topic, (None, None))
                row["rate_in"], row["messages"] = numbers
                rows.append(row)
        return rows

    def key_of(self, row: Row) -> Any:
        return row["topic"]

    def read(self, client: Client) -> _Topics:
        found = list_topics(client)
        topics = [each for each in found.topics if each.kind == "normal"]
        if len(topics) > ASKED_MAX:
            wanted = set(self.on_screen)
            topics = [each for each in topics if each.topic in wanted]
        self._counts = count_topics(
            client, found, topics=topics, since=self._counts, rates=self._rates
        )
        return _Topics(
            found=found,
            numbers={
                topic: (each.rate_in, each.messages)
                for topic, each in self._counts.topics.items()
            },
            untold=[*departed_texts(client), *slave_texts(client)],
        )

    def notes_of(self, found: _Topics) -> Sequence[str]:
        errors = found.found.errors.items()
        notes = [f"{name}: {error.message}" for name, error in errors]
        notes += map(self.worded, found.untold)
        rows = self.rows_of(found)
        asked = [row for row in rows if row["kind"] == "normal"]
        if len(asked) < len(rows):
            notes.append("offsets of static topics do not tell IN/S and MESSAGES")
        if len(asked) > ASKED_MAX:
            notes.append("IN/S and MESSAGES are read of the topics on the screen only")
        return notes

    def open(self, row: Row) -> View:
        return TopicQueuesView(row["topic"])


@dataclass(slots=True, kw_only=True)
class _Topic:
    detail: TopicDetail
    rates: dict[tuple[str, int], float | None]
    groups: list[dict[str, Any]]
    failures: list[str]


class TopicQueuesView(View):
    """One topic: its queues, and the groups that consume it."""

    parts = ("queues", "groups")

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic
        self.keys = {"t": ViewKey("tail", lambda _row: TailView(topic))}
        self._rates = Rates()

    @property
    def stale(self) -> Mapping[str, object]:
        return {"state": "UNKNOWN"} if self.part else {"rate_in": None}

    @property
    def command(self) -> list[str]:
        if not self.part:
            return ["topic", "show", *placed(self.topic)]
        return ["lag", "--topic", self.topic]

    @property
    def columns(self) -> Sequence[Column]:
        if self.part:
            return summary_columns(with_trend=False)
        return (*QUEUE_COLUMNS[:4], _RATE, *QUEUE_COLUMNS[4:])

    def rows_of(self, found: _Topic) -> Sequence[Row]:
        if self.part:
            return found.groups
        rows = []
        for row in queue_rows(found.detail):
            row["rate_in"] = found.rates.get((row["broker_name"], row["queue_id"]))
            rows.append(row)
        return rows

    def key_of(self, row: Row) -> Any:
        return row["group"] if self.part else (row["broker_name"], row["queue_id"])

    def read(self, client: Client) -> _Topic:
        at_ms = client.clock.monotonic_ms()
        detail = show_topic(client, self.topic)
        rates = {}
        for each in detail.queues:
            key = each.queue.broker_name, each.queue.queue_id
            total = None if each.offset is None else each.offset.max_offset
            rates[key] = self._rates.take(key, at_ms, total)
        groups: list[dict[str, Any]] = []
        failures = [f"{name}: {e.message}" for name, e in detail.errors.items()]
        if detail.groups:
            query = LagQuery(groups=tuple(detail.groups), topics=(self.topic,))
            reading = LagGatherer(client, query, open_memory(client)).read()
            groups = [summary_row(compute_lag(each)) for each in reading.groups]
            groups.sort(key=lambda row: row["group"])
            known = set(detail.errors)
            failures += [
                f"{each.broker_name}: {each.message}"
                for each in reading.failures
                if each.broker_name not in known
            ]
        return _Topic(detail=detail, rates=rates, groups=groups, failures=failures)

    def intro_of(self, found: _Topic, row: Row | None) -> Sequence[str]:
        detail = found.detail
        kind = detail.kind if detail.message_type is None else detail.message_type
        brokers = ", ".join(each.broker_name for each in detail.brokers)
        groups = ", ".join(detail.groups) or "none that is known"
        if detail.groups and detail.errors:
            groups = f"at least {groups}"
        return (f"{kind} topic on {brokers}", f"groups: {groups}")

    def notes_of(self, found: _Topic) -> Sequence[str]:
        return found.failures

    def open(self, row: Row) -> View:
        if self.part:
            from rmqcli.cli.top.groups import GroupView  # which imports the tail's view

            return GroupView(row["group"])
        return TailView(self.topic, (row["broker_name"], row["queue_id"]))
