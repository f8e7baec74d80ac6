"""Reads what a lag report needs from every broker, under one deadline.

Each broker is read by a task (`broker`), so that a broker that does not answer affects
only its own rows: they become UNKNOWN, with the queues of the name server's routes. A
broker that is not in the list of the name server that answers first is looked up at the
others. The queues of a broker that none of them lists come from the record of earlier
runs (`memory`) and from what members still hold.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from rmqcli.admin.lag.assemble import Assembler, BrokerPart, LagQuery, SharedAnswers
from rmqcli.admin.lag.broker import read_broker, read_topics_of_others
from rmqcli.admin.lag.model import BrokerFailure, PopLag, compute_lag
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.namesrv import (
    get_all_topic_list,
    get_broker_cluster_info,
    get_route_info_by_topic,
)
from rmqcli.api.runner import run_tasks
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ConnectError,
    DeadlineError,
    DeniedError,
    NotFoundError,
    RmqError,
    StaticTopicError,
)
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, is_system_group, retry_topic
from rmqcli.tasks import All, Request
from rmqcli.units import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from rmqcli.admin.lag.assemble import GroupTopic
    from rmqcli.admin.lag.memory import LagMemory
    from rmqcli.admin.lag.model import GroupReading
    from rmqcli.api.client import Client
    from rmqcli.engine.queue_lag import QueueReading
    from rmqcli.model import BrokerData, TopicRoute
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.route import ClusterInfo

#: Why the members of a group are unknown when no broker answers.
_NOBODY_TELLS = "members are unknown: no broker answered"
#: The share of the timeout that brokers may use; the rest is for asking the name server
#: about brokers that did not answer.
_BROKER_SHARE = 0.9
#: The first name server to answer is enough; others are waited for no longer than this.
_NAMESRV_TIMEOUT_MS = 1_000


@dataclass(slots=True, kw_only=True, eq=False)
class LagReading:
    """Everything read at one moment. `missing`: queried groups that no broker knows.

    The moment is `at_ms` by the clock (epoch ms), which may be set meanwhile; the time
    between two readings is that between their `monotonic_ms`. `hidden` counts
    RocketMQ's own groups that the query leaves out.
    """

    at_ms: int
    monotonic_ms: int
    groups: list[GroupReading]
    missing: list[str]
    failures: list[BrokerFailure]
    hidden: int = 0


@dataclass(slots=True, eq=False)
class LagGatherer:
    """Reads the groups of a query, any number of times. Not thread-safe."""

    _client: Client
    _query: LagQuery
    _memory: LagMemory | None = None

    def on_turn(self, action: Callable[[], None]) -> None:
        """Call `action` at least once a second while `read` waits for answers."""
        self._client.on_turn = action

    def read(self, *, accept_silence: bool = False) -> LagReading:
        """Read the lag of the query's groups from every master.

        With `accept_silence`, the groups are returned as UNKNOWN, as far as the name
        server knows them, when no broker answers because one hangs.

        Raises TransportError when no name server answers, NoBrokerError when none knows
        a broker or no broker answers, DeniedError when every broker refuses,
        NotFoundError when no broker has a queried topic.
        """
        client, query = self._client, self._query
        timeout_ms = client.config.timeout_ms
        deadline = Deadline(client.clock, max(1, int(timeout_ms * _BROKER_SHARE)))
        last_deadline = Deadline(client.clock, timeout_ms)
        at_ms, monotonic_ms = client.clock.epoch_ms(), client.clock.monotonic_ms()
        parts = self._parts()
        shared = SharedAnswers()
        outcomes = run_tasks(
            client,
            [
                self._read_others({part.broker_name for part in parts}, shared),
                *(self._read(part, shared) for part in parts),
            ],
            deadline,
        )
        if not isinstance(outcomes[0], RmqError):
            parts += outcomes[0]
        parts.sort(key=lambda part: part.broker_name)
        errors = [part.failure for part in parts if part.failure is not None]
        hangs = any(isinstance(error, DeadlineError) for error in errors)
        if len(errors) == len(parts) and not (accept_silence and hangs):
            client.raise_if_none_answers(errors)
        run_tasks(
            client,
            [read_topics_of_others(part, wanted) for part, wanted in _absent(parts)],
            last_deadline,
        )
        self._find_static_topics(parts)
        _raise_if_all_denied(parts)
        lost = self._lost(parts, at_ms)
        known = {group for part in parts for group in part.groups} | lost.keys()
        unknown = [group for group in query.groups if group not in known]
        failed = [part for part in parts if part.failure is not None]
        missing = [] if failed else unknown
        self._check_topics(parts)
        remembered = self._remembered(failed)
        groups = self._groups(parts, missing, lost.keys() | remembered.keys())
        topics = set().union(*remembered.values())
        names = self._topic_names(groups, parts, failed)
        retry = {n for n in names if n.startswith(RETRY_GROUP_TOPIC_PREFIX)}
        routes = self._routes(groups, parts, failed, topics | retry)
        doubts = _groups_of_retry_topics(names, routes, failed, remembered)
        groups = sorted({*groups, *doubts}) if doubts else groups
        if not groups and len(errors) == len(parts):
            client.raise_if_none_answers(errors)
        found = len(groups)
        if not query.groups and not query.with_system:
            groups = [group for group in groups if not is_system_group(group)]
        if len(errors) == len(parts):
            query = dataclasses.replace(query, members_unknown=_NOBODY_TELLS)
        assembler = Assembler(
            parts,
            query,
            shared,
            routes=routes,
            now_ms=at_ms,
            lost=lost,
            remembered=remembered,
        )
        readings = [assembler.assemble(group) for group in groups]
        for reading in readings:
            reading.notes += doubts.get(reading.group, ())
        self._remember(parts, readings, missing, at_ms)
        gone = {q.broker_name for group in groups for q in lost.get(group, ())}
        return LagReading(
            at_ms=at_ms,
            monotonic_ms=monotonic_ms,
            groups=readings,
            missing=missing,
            hidden=found - len(groups),
            failures=[
                *(p.as_failure(p.failure) for p in failed if p.failure is not None),
                *map(self._departure, sorted(gone)),
            ],
        )

    def _read(self, part: BrokerPart, shared: SharedAnswers) -> Task[None]:
        """Fill one broker's part; after an error, set its `failure`."""
        address = part.address
        if address is None or part.failure is not None:
            return
        version = partial(self._client.broker_version, address)
        # As a separate task, so that a bug in it becomes a failure of the part, too.
        (outcome,) = yield All(
            [
                read_broker(
                    part, self._query, shared, version=version, clock=self._client.clock
                )
            ]
        )
        if isinstance(outcome, RmqError):
            part.failure = outcome

    def _read_others(
        self, known: set[str], shared: SharedAnswers
    ) -> Task[list[BrokerPart]]:
        """Read the brokers that other name servers list and the first one does not."""
        namesrvs = list(dict.fromkeys(self._client.config.namesrv))
        if len(namesrvs) == 1:
            return []
        infos: list[ClusterInfo | RmqError] = yield All(
            [
                Request(namesrv, get_broker_cluster_info(), _NAMESRV_TIMEOUT_MS)
                for namesrv in namesrvs
            ]
        )
        found: dict[str, BrokerPart] = {}
        for namesrv, info in zip(namesrvs, infos, strict=True):
            if isinstance(info, RmqError):  # the first name server's list is enough
                continue
            for name, broker in sorted(info.brokers.items()):
                if name not in known and name not in found:
                    found[name] = part = _part(name, broker)
                    part.only_namesrv = namesrv
        yield All([self._read(part, shared) for part in found.values()])
        return list(found.values())

    def _find_static_topics(self, parts: list[BrokerPart]) -> None:
        """Replace the numbers of static topics by the reason why they mean nothing.

        A broker lists its own queues there, and among them those that have moved to
        another broker, where the group goes on. Only topics in which messages seem to
        wait are looked up, because that costs a request.
        """
        waiting = {
            topic
            for part in parts
            for (_, topic), committed in part.committed.items()
            if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            and any(
                committed.get(queue_id) != high
                for queue_id, (_, high) in (part.ends.get(topic) or {}).items()
            )
        }
        for topic, route in self._client.routes(sorted(waiting)).items():
            if isinstance(route, StaticTopicError):
                for part in parts:
                    if part.ends.pop(topic, None) is not None:
                        part.unread_topics[topic] = route.message

    def _lost(
        self, parts: list[BrokerPart], now_ms: int
    ) -> dict[str, list[QueueReading]]:
        """Return each group's queues on brokers that no name server lists any more."""
        memory, query = self._memory, self._query
        if memory is None:
            return {}
        departed = memory.departed({p.broker_name: p.address for p in parts})
        lost = {
            group: [
                queue
                for queue in memory.lost_queues(group, departed, now_ms=now_ms)
                if not query.topics or queue.topic in query.topics
            ]
            for group in memory.groups_on(departed)
            if not query.groups or group in query.groups
        }
        return {group: queues for group, queues in lost.items() if queues}

    def _remembered(self, failed: list[BrokerPart]) -> dict[str, set[str]]:
        """Group -> topics of which it had queues on brokers that do not answer now."""
        memory, query = self._memory, self._query
        if memory is None or not failed:
            return {}
        found = memory.topics_on([part.broker_name for part in failed])
        return {
            group: wanted
            for group, topics in found.items()
            if not query.groups or group in query.groups
            if (wanted := topics.intersection(query.topics or topics))
        }

    def _departure(self, name: str) -> BrokerFailure:
        assert self._memory is not None  # noqa: S101  # the name came from it
        seen = self._memory.brokers[name]
        return BrokerFailure(
            broker_name=name,
            address=seen.address,
            message=Hint(
                "it is no longer in the route; a name server last listed it at"
                f" {format_rfc3339(seen.seen_ms)}, and groups had queues there; if it"
                " was removed for good, use ",
                LibraryCall("LagMemory.forget"),
            ),
        )

    def _remember(
        self,
        parts: list[BrokerPart],
        readings: list[GroupReading],
        missing: list[str],
        now_ms: int,
    ) -> None:
        memory, query = self._memory, self._query
        if memory is None:
            return
        memory.remember_brokers(
            {part.broker_name: part.address for part in parts}, now_ms=now_ms
        )
        complete = [part for part in parts if part.failure is None]
        names = {part.broker_name for part in complete}
        for reading in readings:
            for part in complete:
                if reading.group not in part.group_failures:
                    memory.remember(
                        reading.group,
                        part.broker_name,
                        reading.queues,
                        topics=query.topics,
                        removed={
                            each.topic: max(each.queue_ids) + 1
                            for each in reading.unreachable
                            if each.broker_name == part.broker_name
                        },
                    )
        for group in missing:  # deleted while a broker was silent, say
            memory.forget_group(group, names)
        if not query.groups and not query.topics:
            memory.keep_groups({reading.group for reading in readings}, names)
        memory.save(now_ms=now_ms)

    def _parts(self) -> list[BrokerPart]:
        info = self._client.cluster_info(refresh=True)
        parts = [_part(name, broker) for name, broker in sorted(info.brokers.items())]
        if self._memory is not None and self._query.is_one_by_one:
            for part in parts:
                part.remembered = self._memory.queue_nums_of(
                    self._query.groups, part.broker_name
                )
        return parts

    def _check_topics(self, parts: list[BrokerPart]) -> None:
        for topic in self._query.topics:
            if all(
                p.failure is None
                and p.ends.get(topic) is None
                and topic not in p.unread_topics
                for p in parts
            ):
                raise not_found("topic", topic)

    def _groups(
        self,
        parts: list[BrokerPart],
        missing: list[str],
        others: Collection[str],
    ) -> list[str]:
        """The groups of the query. `others` are known from earlier readings only."""
        if self._query.groups:
            named = dict.fromkeys(self._query.groups)
            return [group for group in named if group not in missing]
        if self._query.topics:
            # A group that a broker denies may read the topic.
            denied = {group for part in parts for group in part.group_failures}
            reading = {group for part in parts for group, _ in part.committed}
            return sorted(reading.union(denied, others))
        return sorted({g for part in parts for g in part.known_groups}.union(others))

    def _topic_names(
        self, groups: list[str], parts: list[BrokerPart], failed: list[BrokerPart]
    ) -> frozenset[str]:
        """Return all topics, if the groups of failed brokers have to be found.

        No name server knows which groups read a queried topic, so with one any group is
        returned, and only when no broker told of another. Raises RmqError when no name
        server returns the topics, unless brokers told of groups.
        """
        has_others = bool(groups) and len(failed) < len(parts)
        if self._query.groups or not failed or (self._query.topics and has_others):
            return frozenset()
        try:
            names = self._client.namesrv(get_all_topic_list())
        except RmqError:
            if not has_others:
                raise
            names = []
        return frozenset(names)

    def _routes(
        self,
        groups: list[str],
        parts: list[BrokerPart],
        failed: list[BrokerPart],
        others: Collection[str],
    ) -> Mapping[str, TopicRoute | None]:
        """Return the routes of the topics that a failed broker may have queues of.

        None stands for a topic that does not exist. A topic is missing when no name
        server returned its route.
        """
        if not failed:
            return {}
        topics = {topic for part in parts for _, topic in part.committed}
        topics.update(map(retry_topic, groups), self._query.topics, others)
        # Each round asks again: queues may have been added since the last one.
        routes = self._client.routes(sorted(topics), refresh=True)
        found = {
            topic: None if isinstance(route, RmqError) else route
            for topic, route in routes.items()
            if not isinstance(route, RmqError) or isinstance(route, NotFoundError)
        }
        for namesrv in {p.only_namesrv for p in failed if p.only_namesrv}:
            self._add_routes(found, sorted(topics), namesrv)
        return found

    def _add_routes(
        self, found: dict[str, TopicRoute | None], topics: list[str], namesrv: str
    ) -> None:
        """Add the queues that only this name server knows.

        When it fails to return a topic's route, the topic is dropped, because the route
        would be incomplete.
        """
        routes = self._client.ask_many(
            {topic: (namesrv, get_route_info_by_topic(topic)) for topic in topics}
        )
        for topic, route in routes.items():
            before = found.get(topic)
            if isinstance(route, NotFoundError):
                continue
            if isinstance(route, RmqError):
                found.pop(topic, None)
            elif before is None:
                found[topic] = route
            else:
                names = {data.broker_name for data in before.queues}
                found[topic] = dataclasses.replace(
                    before,
                    queues=before.queues
                    + tuple(q for q in route.queues if q.broker_name not in names),
                )


def read_pop_lag(client: Client, group: str) -> PopLag | None:
    """Read what POP has handed out to a group; None if nothing shows that it uses POP.

    Members are not asked. Where a broker does not answer, nothing but the reason for
    which this is not known.
    """
    query = LagQuery(groups=(group,), members_unknown="members were not queried")
    try:
        groups = LagGatherer(client, query).read().groups
    except RmqError as error:
        return unknown_pop(error.message)
    if not groups:
        return None
    lag = compute_lag(groups[0])
    if lag.pop is not None or not lag.reading.failures:
        return lag.pop
    first = lag.reading.failures[0]
    return unknown_pop(f"{first.broker_name}: {first.message}")


def unknown_pop(reason: str) -> PopLag:
    """Return what `read_pop_lag` does where it is not known, with the reason."""
    return PopLag(reason=f"it is not known whether the group uses POP: {reason}")


def _part(name: str, broker: BrokerData) -> BrokerPart:
    part = BrokerPart(
        broker_name=name, address=broker.master_address, cluster=broker.cluster
    )
    if broker.master_address is None:
        # A slave's offsets are only as new as its last copy of the master's.
        part.failure = ConnectError(
            f"{name} currently has no master, only slaves", address=name
        )
    return part


def _absent(
    parts: list[BrokerPart],
) -> Iterable[tuple[BrokerPart, list[GroupTopic]]]:
    """Yield each broker with the groups and topics committed only at other brokers."""
    everywhere = {
        pair
        for part in parts
        for pair in part.committed
        if not pair[1].startswith(RETRY_GROUP_TOPIC_PREFIX)  # read at each broker
    }
    for part in parts:
        wanted = sorted(
            pair
            for pair in everywhere - part.committed.keys()
            if pair[0] not in part.group_failures
        )
        if wanted and part.failure is None:
            yield part, wanted


def _raise_if_all_denied(parts: list[BrokerPart]) -> None:
    """Raise the error of the first broker if each of them denies every group."""
    for part in parts:
        if isinstance(part.failure, DeniedError):
            continue
        failures = [part.group_failures.get(group) for group in part.groups]
        if not (failures and all(isinstance(e, DeniedError) for e in failures)):
            return
    for error in (parts[0].failure, *parts[0].group_failures.values()):
        if isinstance(error, DeniedError):
            raise error


def _groups_of_retry_topics(
    names: frozenset[str],
    routes: Mapping[str, TopicRoute | None],
    failed: list[BrokerPart],
    remembered: Mapping[str, set[str]],
) -> dict[str, list[str]]:
    """Return the groups that only failed brokers know, by their retry topics.

    POP has a retry topic for each group and topic, such as %RETRY%billing_orders, which
    may as well be that of a group billing_orders. The groups that are remembered tell
    them apart; otherwise the group is returned with a note that says so. A broker that
    answers would have named a group whose retry topic it has.
    Source: KeyBuilder.buildPopRetryTopic.
    """
    of_pop = {
        f"{group}_{topic}" for group, topics in remembered.items() for topic in topics
    }
    silent = {part.broker_name for part in failed}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        text = name.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        route = routes.get(name)
        if text == name or text in of_pop or route is None:
            continue
        if not silent.issuperset(queue.broker_name for queue in route.queues):
            continue
        group, plus, _ = text.partition("+")
        notes = found.setdefault(group, [])
        if not plus:
            notes += _other_meanings(name, text, names)
    return found


def _other_meanings(retry: str, text: str, names: frozenset[str]) -> list[str]:
    parts = text.split("_")
    return [
        f"{text} may not be a group: {retry} is also what POP calls the retry topic of"
        f" group {group} for topic {topic}"
        for at in range(1, len(parts))
        if (group := "_".join(parts[:at])) and (topic := "_".join(parts[at:])) in names
    ]
