"""The views of topics: all of them with their rates, and one with its queues."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.admin.brokers import ask_many, reader_addresses
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.memory import departed_brokers, open_memory
from rmqcli.admin.lag.model import compute_lag
from rmqcli.admin.topics import list_topics, show_topic
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.cli.by_broker import departed_texts, slave_texts
from rmqcli.cli.lag.view import summary_columns, summary_row
from rmqcli.cli.top.messages import TailView
from rmqcli.cli.top.view import View, ViewKey
from rmqcli.cli.topics import COLUMNS, QUEUE_COLUMNS, queue_rows
from rmqcli.cli.ui.output import number_column, pick, row_of
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.hint import placed
from rmqcli.units import rounded_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from rmqcli.admin.topics import TopicDetail, TopicList, TopicRow
    from rmqcli.api.client import Client
    from rmqcli.cli.ui.output import Column, Row

_Number = TypeVar("_Number", int, float)

#: With more topics, only those on the screen are asked for their offsets.
ASKED_MAX = 200
#: Kinds of topics that are shown, as by `rmq topics`.
_USERS = ("normal", "static")
#: Rates are of about this time.
RATE_MS = 10_000

_RATE = number_column("rate_in", title="IN/S")
_TABLE = (
    *pick(COLUMNS, "topic message_type perm write_queue_nums"),
    _RATE,
    number_column("messages", priority=15)._replace(is_wanted=True),
    *pick(COLUMNS, "brokers"),
)


class Rates:
    """Messages per second, from sums of max offsets."""

    def __init__(self) -> None:
        self._known: dict[Hashable, deque[tuple[int, int]]] = {}

    def take(self, key: Hashable, at_ms: int, total: int | None) -> float | None:
        """Add a sum that was read at a time; return the rate since an earlier one.

        None for the first, for a sum that is not known, and after offsets moved back,
        as when a topic was created again.
        """
        if total is None:
            self._known.pop(key, None)
            return None
        known = self._known.setdefault(key, deque())
        if known and total < known[-1][1]:
            known.clear()
        while len(known) > 1 and at_ms - known[1][0] >= RATE_MS:
            known.popleft()
        rate = None
        if known and at_ms > known[0][0]:
            then_ms, before = known[0]
            rate = rounded_rate((total - before) * 1_000 / (at_ms - then_ms))
        known.append((at_ms, total))
        return rate

    def keep(self, keys: set[Hashable]) -> None:
        """Forget all but these."""
        for key in self._known.keys() - keys:
            del self._known[key]


@dataclass(slots=True, kw_only=True)
class _Topics:
    found: TopicList
    #: topic -> (rate, messages); those that were not asked for are missing
    numbers: dict[str, tuple[float | None, int | None]]
    #: what is missing from the list, in words
    untold: list[str]


class TopicsView(View):
    """The users' topics, as in `rmq topics`, with rates."""

    command = ("topics",)
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
        self._found: _Topics | None = None
        self._rates = Rates()
        self._names: tuple[str, ...] = ()

    @property
    def stale(self) -> Mapping[str, object]:
        return {"rate_in": None}

    def rows(self) -> Sequence[Row]:
        if self._found is None:
            return ()
        rows = []
        for topic in self._found.found.topics:
            if topic.kind in _USERS:
                row = row_of(COLUMNS, topic)
                numbers = self._found.numbers.get(topic.topic, (None, None))
                row["rate_in"], row["messages"] = numbers
                if topic.is_compacted:
                    row["messages"] = None
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
        places = _places(client, topics, silent=set(found.errors))
        for topic in _topics_of_departed(client) & places.keys():
            del places[topic]
        self._rates.keep(
            {(topic, name) for topic, names in places.items() for name in names}
        )
        return _Topics(
            found=found,
            numbers=self._numbers(client, places, set(found.errors)),
            untold=[*departed_texts(client), *slave_texts(client)],
        )

    def _numbers(
        self,
        client: Client,
        places: Mapping[str, Collection[str]],
        silent: Collection[str],
    ) -> dict[str, tuple[float | None, int | None]]:
        addresses = reader_addresses(client.cluster_info().brokers.values())
        at_ms = client.clock.monotonic_ms()
        answers = ask_many(
            client,
            {
                (topic, name): (addresses[name], get_topic_stats_info(topic))
                for topic, names in places.items()
                for name in names
                if name in addresses and name not in silent
            },
        )
        numbers = {}
        for topic, names in places.items():
            rates: list[float | None] = []
            counts: list[int | None] = []
            for name in names:
                answer = answers.get((topic, name))
                end = count = None
                if answer is not None and not isinstance(answer, RmqError):
                    end = sum(offset.max_offset for offset in answer.values())
                    count = sum(
                        max(0, offset.max_offset - offset.min_offset)
                        for offset in answer.values()
                    )
                # By broker: what one has that comes back was not sent just now.
                rates.append(self._rates.take((topic, name), at_ms, end))
                counts.append(count)
            rate = _sum(rates)
            numbers[topic] = None if rate is None else rounded_rate(rate), _sum(counts)
        return numbers

    def take(self, answer: _Topics) -> None:
        self._found = answer

    def notes(self) -> Sequence[str]:
        if self._found is None:
            return ()
        errors = self._found.found.errors.items()
        notes = [f"{name}: {error.message}" for name, error in errors]
        notes += map(self.worded, self._found.untold)
        asked = [row for row in self.rows() if row["kind"] == "normal"]
        if len(asked) < len(self.rows()):
            notes.append("offsets of static topics do not tell IN/S and MESSAGES")
        if len(asked) > ASKED_MAX:
            notes.append("IN/S and MESSAGES are read of the topics on the screen only")
        return notes

    def open(self, row: Row) -> View:
        return TopicQueuesView(row["topic"])


def _places(
    client: Client, topics: Sequence[TopicRow], *, silent: Collection[str]
) -> dict[str, set[str]]:
    """Return the names of the brokers that have each topic.

    Brokers that are silent did not tell: where these have a topic, its route says so. A
    topic whose route is not known may be on all of them.
    """
    places = {each.topic: set(each.brokers) for each in topics}
    if silent:
        for topic, route in client.routes(places).items():
            if isinstance(route, RmqError):
                places[topic].update(silent)
            else:
                places[topic].update(queue.broker_name for queue in route.queues)
    return places


def _topics_of_departed(client: Client) -> set[str]:
    """Return the topics that groups read on brokers that have left the route."""
    departed = departed_brokers(client, client.cluster_info().brokers)
    memory = open_memory(client) if departed else None
    if memory is None:
        return set()
    return set().union(*memory.topics_on(departed).values())


def _sum(values: Collection[_Number | None]) -> _Number | None:
    """Return the sum; None without values, and if one of them is not known."""
    known = [each for each in values if each is not None]
    return sum(known) if known and len(known) == len(values) else None


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
        self._found: _Topic | None = None
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

    def rows(self) -> Sequence[Row]:
        found = self._found
        if found is None:
            return ()
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

    def take(self, answer: _Topic) -> None:
        self._found = answer

    def intro(self, row: Row | None) -> Sequence[str]:
        if self._found is None:
            return ()
        detail = self._found.detail
        kind = detail.kind if detail.message_type is None else detail.message_type
        brokers = ", ".join(each.broker_name for each in detail.brokers)
        groups = ", ".join(detail.groups) or "none that is known"
        if detail.groups and detail.errors:
            groups = f"at least {groups}"
        return (f"{kind} topic on {brokers}", f"groups: {groups}")

    def notes(self) -> Sequence[str]:
        return () if self._found is None else self._found.failures

    def open(self, row: Row) -> View:
        if self.part:
            from rmqcli.cli.top.groups import GroupView  # which imports the tail's view

            return GroupView(row["group"])
        return TailView(self.topic, (row["broker_name"], row["queue_id"]))
