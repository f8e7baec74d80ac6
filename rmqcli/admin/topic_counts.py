"""How many messages topics have, and at which rate more are stored.

Each broker tells the offsets of its queues. A number is a sum over all brokers that
have the topic: when one of them does not answer, has left the route or has no master,
the sum is None and has a reason. A rate compares two such readings, broker by broker:
what a broker has that comes back was not sent just now.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

from rmqcli.admin.brokers import reader_addresses
from rmqcli.admin.lag.memory import departed_brokers, open_memory, untold_errors
from rmqcli.admin.topics import list_topics
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.units import rounded_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from rmqcli.admin.topics import TopicList, TopicRow
    from rmqcli.api.client import Client

_Number = TypeVar("_Number", int, float)

#: Rates are of about this time.
RATE_MS = 10_000
_STATIC = "offsets of a static topic do not tell its numbers"
_COMPACTED = "offsets of a compacted topic do not tell how many messages it has"
_NOWHERE = "no broker is known that has it"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCount:
    """How many messages a topic has, and how many are stored per second.

    Both are None where they are not known, and `reason` says why; a rate is also None
    without an earlier reading. `ends` has the sum of the max offsets on each broker,
    None where it is not known. It is empty for a static topic, whose queues are not
    those of its brokers.
    """

    topic: str
    messages: int | None
    rate_in: float | None
    reason: str | None
    ends: dict[str, int | None] = field(hash=False)


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """One reading of topics: their numbers by name, and the list they are from.

    `at_ms` is when the brokers were asked, monotonic.
    """

    topics: dict[str, TopicCount] = field(hash=False)
    listed: TopicList
    at_ms: int


def count_topics(
    client: Client,
    listed: TopicList | None = None,
    *,
    topics: Collection[TopicRow] | None = None,
    since: TopicCounts | None = None,
    rates: Rates | None = None,
) -> TopicCounts:
    """Read the numbers of `topics`, or else of all normal and static ones.

    They are from `listed`, which is asked for if it is not given. The brokers that
    topics had in the reading before, `since`, are missed when they have left the route.
    Rates are those since that reading, or with `rates` since an older one in there. All
    messages of a topic that a broker did not have at that reading were stored since.
    Raises NoBrokerError when no broker answers.
    """
    if listed is None:
        listed = list_topics(client)
    if topics is None:
        topics = [each for each in listed.topics if each.kind in ("normal", "static")]
    if rates is None:
        rates = Rates()
        if since is not None:
            for before in since.topics.values():
                for name, end in before.ends.items():
                    rates.take((before.topic, name), since.at_ms, end)
    had = {} if since is None else _topics_by_broker(since.listed)
    asked = [each for each in topics if each.kind != "static"]
    places = _places(client, asked, silent=set(listed.errors), since=since)
    rates.keep({(topic, name) for topic, names in places.items() for name in names})
    errors = untold_errors(client) | listed.errors
    addresses = reader_addresses(client.cluster_info().brokers.values())
    at_ms = client.clock.monotonic_ms()
    answers = client.ask_many(
        {
            (topic, name): (addresses[name], get_topic_stats_info(topic))
            for topic, names in places.items()
            for name in names
            if name in addresses and name not in errors
        },
    )
    found = {}
    for row in topics:
        if row.kind == "static":
            found[row.topic] = TopicCount(
                topic=row.topic, messages=None, rate_in=None, reason=_STATIC, ends={}
            )
            continue
        ends: dict[str, int | None] = {}
        counts: list[int | None] = []
        # By broker: what one has that comes back was not sent just now.
        each_rate: list[float | None] = []
        reason = None
        for name in sorted(places[row.topic]):
            answer = answers.get((row.topic, name), errors.get(name))
            end = count = None
            if answer is None:
                # Its route, or the reading before, has a broker that is not listed.
                reason = f"{name} is not in the list of brokers"
            elif isinstance(answer, RmqError):
                text = answer.message
                reason = text if text.startswith(f"{name} ") else f"{name}: {text}"
            else:
                end = sum(offset.max_offset for offset in answer.values())
                count = sum(
                    max(0, offset.max_offset - offset.min_offset)
                    for offset in answer.values()
                )
                if since is not None and row.topic not in had.get(name, {row.topic}):
                    rates.take((row.topic, name), since.at_ms, end - count)
            ends[name] = end
            counts.append(count)
            each_rate.append(rates.take((row.topic, name), at_ms, end))
        rate = _sum(each_rate)
        if not ends:
            reason = _NOWHERE
        elif reason is None and rate is None and since is not None:
            reason = _why_no_rate(since.topics.get(row.topic))
        elif reason is None and row.is_compacted:
            reason = _COMPACTED
        found[row.topic] = TopicCount(
            topic=row.topic,
            messages=None if row.is_compacted else _sum(counts),
            rate_in=None if rate is None else rounded_rate(rate),
            reason=reason,
            ends=ends,
        )
    return TopicCounts(found, listed, at_ms)


def _topics_by_broker(listed: TopicList) -> dict[str, set[str]]:
    """Return the topics of each broker that told its own.

    What another broker has is not known to be new when it comes back.
    """
    found: dict[str, set[str]] = {}
    for row in listed.topics:
        for name in row.brokers:
            if name not in listed.errors:
                found.setdefault(name, set()).add(row.topic)
    return found


def _why_no_rate(before: TopicCount | None) -> str | None:
    """Say why a topic whose brokers all answer now has no rate."""
    if before is not None and None in before.ends.values():
        return before.reason
    return "there is no earlier reading of it, or its offsets have moved back since"


def _places(
    client: Client,
    topics: Collection[TopicRow],
    *,
    silent: Collection[str],
    since: TopicCounts | None,
) -> dict[str, set[str]]:
    """Return the names of the brokers that have each topic, or had it and have left.

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
    brokers = client.cluster_info().brokers
    departed = set(departed_brokers(client, brokers))
    before = {} if since is None else since.topics
    memory = open_memory(client)
    if memory is None:  # without a home, only the reading before knows
        departed = {name for each in before.values() for name in each.ends} - set(
            brokers
        )
    for name in departed:
        had = {topic for topic, each in before.items() if name in each.ends}
        if memory is not None:
            had.update(*memory.topics_on([name]).values())
        for topic in had & places.keys():
            places[topic].add(name)
    return places


def _sum(values: Collection[_Number | None]) -> _Number | None:
    """Return the sum; None without values, and if one of them is not known."""
    known = [each for each in values if each is not None]
    return sum(known) if known and len(known) == len(values) else None
