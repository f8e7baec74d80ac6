"""Assembles a group's lag reading from the parts of all brokers. Pure.

A broker that failed has rows without numbers: one for each of its queues in the routes
of the group's topics, or one row for all of its queues when no route is known.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.admin.lag.model import (
    BrokerFailure,
    GroupReading,
    UnreachableQueues,
    lite_unmeasured,
)
from rmqcli.api.broker_errors import unanswered
from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.errors import RmqError
from rmqcli.model import retry_topic
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rmqcli.admin.lag.check_points import HandedOut
    from rmqcli.admin.lag.process_queues import ClientQueues
    from rmqcli.admin.lag.proxied import ProxyHeartbeats
    from rmqcli.model import TopicRoute
    from rmqcli.wire.bodies.consumer import ConsumerConnection, ConsumerRunningInfo
    from rmqcli.wire.bodies.stats import QueueTimeSpan


GroupTopic = tuple[str, str]

#: Up to this many named groups are queried one by one.
GROUPS_ONE_BY_ONE_MAX = 32
#: Broker name of logical queues, which a 5.x proxy or static topic maps to brokers.
_LOGICAL_BROKER_PREFIX = "__syslo__"  # MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX


#: Why it is not known what is handed out to an orderly group. Its lag is known.
ORDERLY = (
    "brokers do not tell what is handed out to an orderly group; its offset moves when"
    " all messages of a batch are acknowledged"
)


@dataclass(slots=True, kw_only=True, eq=False)
class LagQuery:
    """What to read, the same for every broker.

    Empty `groups` mean all groups, empty `topics` all topics.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    process_queues: bool = False
    #: whether to read where consumption is switched off
    with_paused: bool = False
    #: whether all groups include RocketMQ's own
    with_system: bool = True
    #: why brokers are not asked for members; None when they are
    members_unknown: str | None = None

    @property
    def is_one_by_one(self) -> bool:
        """Whether groups are queried by name, and not from the table of all groups."""
        return 0 < len(self.groups) <= GROUPS_ONE_BY_ONE_MAX

    @property
    def wants_owners(self) -> bool:
        """Whether to ask clients for their queues even without `process_queues`.

        This is cheap enough for a single group only.
        """
        return len(self.groups) == 1


@dataclass(slots=True, kw_only=True, eq=False)
class BrokerPart:
    """What one broker reported, filled step by step; `failure` says why it ended."""

    broker_name: str
    address: str | None
    failure: RmqError | None = None
    #: a name server that lists this broker when the first one does not, else None
    only_namesrv: str | None = None
    #: groups of which this broker has settings, offsets or members
    known_groups: set[str] = field(default_factory=set)
    #: queue id -> offset; the group never committed in a queue that is missing
    committed: dict[GroupTopic, dict[int, int]] = field(default_factory=dict)
    #: queues of which consume stats told the offset, or that there is none
    told: dict[GroupTopic, set[int]] = field(default_factory=dict)
    inflight: dict[GroupTopic, dict[int, int]] = field(default_factory=dict)
    #: topic -> queue id -> (min, max); None for a topic that this broker lacks
    ends: dict[str, dict[int, tuple[int, int]] | None] = field(default_factory=dict)
    spans: dict[GroupTopic, dict[int, QueueTimeSpan]] = field(default_factory=dict)
    connections: dict[str, ConsumerConnection] = field(default_factory=dict)
    #: group -> number of its dead letters; a missing group was not reported
    dead_letters: dict[str, int] = field(default_factory=dict)
    group_failures: dict[str, RmqError] = field(default_factory=dict)
    #: group -> why it is not known how old messages of some of its topics are
    unread_ages: dict[str, list[str]] = field(default_factory=dict)
    #: topics of which the broker refused to tell the ends, and why
    unread_topics: dict[str, str] = field(default_factory=dict)
    #: retry topics of which the broker did not tell what waits there, and why
    unread_retries: dict[GroupTopic, str] = field(default_factory=dict)
    #: group -> why the broker did not tell how many dead letters it has
    unread_letters: dict[str, str] = field(default_factory=dict)
    cluster: str = ""
    #: what POP has handed out; None if it never handed out anything
    handed_out: HandedOut | None = None
    #: groups that are known to consume by POP here
    pop_groups: set[str] = field(default_factory=set)
    #: those of them that consume in order, for which there are no check points
    orderly_groups: set[str] = field(default_factory=set)
    #: queues that an earlier run knew of a named group: how many of each topic
    remembered: dict[GroupTopic, int] = field(default_factory=dict)
    #: queue id -> committed offset, if known, in queues that were removed from a topic
    removed: dict[GroupTopic, dict[int, int | None]] = field(default_factory=dict)
    #: queue id -> messages that the group has not read there, None if unknown
    unreachable: dict[GroupTopic, dict[int, int | None]] = field(default_factory=dict)
    #: groups whose consumption is switched off (consumeEnable), if that was asked
    paused_groups: set[str] = field(default_factory=set)
    #: group -> the topic whose lite topics it consumes, which no request measures
    lite_topics: dict[str, str] = field(default_factory=dict)
    #: what proxies wrote here about their clients
    proxy_heartbeats: ProxyHeartbeats = field(default_factory=dict)
    #: why that is not known; None when it is
    proxied_unknown: str | None = None
    #: how far its clock is ahead of ours; only measured where POP or proxies are used
    clock_ahead_ms: int = 0

    @property
    def groups(self) -> set[str]:
        """The groups of which the broker told or refused to tell anything."""
        return self.known_groups.union(self.connections, self.group_failures)

    def as_failure(self, error: RmqError) -> BrokerFailure:
        """Return what stands for the broker in a report."""
        return BrokerFailure(
            broker_name=self.broker_name, address=self.address, message=error.message
        )

    def unmeasured(
        self,
        topic: str | None,
        why: str,
        queue_id: int | None = None,
        committed: int | None = None,
    ) -> QueueReading:
        """Stand for a queue; without its id for all queues of a topic, or of all."""
        return QueueReading(
            topic=topic,
            broker_name=self.broker_name,
            queue_id=queue_id,
            committed=committed,
            failure=why,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class SharedAnswers:
    """Answers that are requested only once, from any broker."""

    #: (group, client id) -> answer, None until it arrives; any broker can ask a member
    clients: dict[tuple[str, str], ConsumerRunningInfo | RmqError | None] = field(
        default_factory=dict
    )
    #: groups that some broker knows
    known_groups: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Assembler:
    """Makes the GroupReading of any group that occurs in `parts`.

    `routes` are the routes of topics that failed brokers may have, None for topics that
    do not exist; `now_ms` is epoch ms. `lost` maps a group to the queues that it had on
    brokers that have left the route, and `remembered` to its topics on those that do
    not answer.
    """

    parts: Sequence[BrokerPart]
    query: LagQuery
    shared: SharedAnswers
    routes: Mapping[str, TopicRoute | None]
    now_ms: int
    lost: Mapping[str, Sequence[QueueReading]] = field(default_factory=dict)
    remembered: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: per part: group -> its topics there
    _topics: list[dict[str, list[str]]] = field(default_factory=list)
    _proxied: dict[str, tuple[ConsumerConnection, Mapping[str, str]]] = field(
        default_factory=dict
    )
    _proxied_unknown: str | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            topics: dict[str, list[str]] = {}
            for group, topic in part.committed:
                topics.setdefault(group, []).append(topic)
            self._topics.append(topics)
        if any(part.proxy_heartbeats for part in self.parts):
            from rmqcli.admin.lag.proxied import proxied_members

            self._proxied = proxied_members(
                (part.proxy_heartbeats for part in self.parts), now_ms=self.now_ms
            )
        for part in self.parts:
            if part.proxied_unknown is not None and self._proxied_unknown is None:
                self._proxied_unknown = (
                    f"members behind proxies are not known: {part.broker_name}:"
                    f" {part.proxied_unknown}"
                )

    def assemble(self, group: str) -> GroupReading:
        """Return everything that was read about `group`."""
        reading = GroupReading(
            group=group,
            at_ms=self.now_ms,
            members_unknown=self.query.members_unknown,
        )
        self._add_members(reading)
        reading.dead_letters = self._dead_letters(group)
        for part, topics in zip(self.parts, self._topics, strict=True):
            own = topics.get(group, [])
            if part.failure is not None:
                self._add_failed(reading, part, part.failure)
                continue
            refusal = part.group_failures.get(group)
            if refusal is not None:
                reading.failures.append(part.as_failure(refusal))
            for topic in own:
                _add_topic(reading, part, topic, refusal)
            reading.queues += [
                part.unmeasured(topic, reason)
                for (of, topic), reason in part.unread_retries.items()
                if of == group
            ]
            if group in part.paused_groups:
                reading.paused_on.append(part.broker_name)
            reading.unreachable += _unreachable(part, group)
            if group in part.lite_topics:
                topic = part.lite_topics[group]
                reading.queues.append(part.unmeasured(topic, lite_unmeasured(topic)))
            if refusal is not None and not own:
                reading.queues.append(part.unmeasured(None, refusal.message))
            if self._may_have_more(part, group):
                reading.notes.append(
                    f"{part.broker_name}: what POP has handed out is not known:"
                    f" {part.handed_out.reason}"  # type: ignore[union-attr]  # it is set
                )
            if group in part.unread_letters:
                why = f"{part.broker_name}: {part.unread_letters[group]}"
                reading.dead_letters_unknown = why
                reading.notes.append(why)
            if group in part.unread_ages:
                reasons = "; ".join(part.unread_ages[group])
                why = f"{part.broker_name}: age is unknown: {reasons}"
                reading.ages_unknown = why
                reading.notes.append(why)
        reading.queues += self.lost.get(group, ())
        if self.lost.get(group):
            reading.dead_letters = None
        if reading.members is None and reading.members_unknown is None:
            reading.members_unknown = _members_unknown(reading.failures)
        reading.notes += map(str, reading.unreachable)
        self._add_held(reading)
        self._add_notes(reading)
        return reading

    def _may_have_more(self, part: BrokerPart, group: str) -> bool:
        """Whether a named group may have received messages by POP, unknown to us."""
        return (
            self.query.is_one_by_one
            and part.handed_out is not None
            and part.handed_out.reason is not None
            and group not in part.pop_groups
        )

    def _add_held(self, reading: GroupReading) -> None:
        """Add queues that members hold on brokers that no name server lists now."""
        known = {(q.topic, q.broker_name, q.queue_id) for q in reading.queues}
        names = {part.broker_name for part in self.parts}
        for client_id, client in sorted((reading.clients or {}).items()):
            for queue in client.held_queues():
                key = (queue.topic, queue.broker_name, queue.queue_id)
                if (
                    queue.broker_name in names
                    or queue.broker_name.startswith(_LOGICAL_BROKER_PREFIX)
                    or key in known
                    or (self.query.topics and queue.topic not in self.query.topics)
                ):
                    continue
                known.add(key)
                reading.queues.append(
                    QueueReading(
                        topic=queue.topic,
                        broker_name=queue.broker_name,
                        queue_id=queue.queue_id,
                        failure=f"{queue.broker_name} is no longer in the route, but"
                        f" member {client_id} still holds the queue",
                    )
                )

    def _dead_letters(self, group: str) -> int | None:
        """Return the number of dead letters; None when a broker did not report it."""
        counts = [part.dead_letters.get(group) for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _add_members(self, reading: GroupReading) -> None:
        seen = [
            part.connections[reading.group]
            for part in self.parts
            if reading.group in part.connections
        ]
        proxies: Mapping[str, str] = {}
        if reading.group in self._proxied:
            connection, proxies = self._proxied[reading.group]
            seen.append(connection)
        if reading.members_unknown is None:
            reading.members_unknown = self._proxied_unknown
        if not any(connection.connections for connection in seen):
            return
        from rmqcli.admin.lag.members import Members

        members = Members()
        for connection in seen:
            members.add(connection)
        members.proxies.update(proxies)
        reading.members = members
        answers = self.shared.clients
        asked = {
            client_id: answers[reading.group, client_id]
            for client_id in members.connections
            if (reading.group, client_id) in answers
        }
        if asked:
            reading.clients = {
                client_id: _client_queues(client_id, answer, now_ms=self.now_ms)
                for client_id, answer in asked.items()
            }

    def _add_failed(
        self, reading: GroupReading, part: BrokerPart, error: RmqError
    ) -> None:
        group = reading.group
        topics = {t for each in self._topics for t in each.get(group, ())}
        topics.update(self.remembered.get(group, ()))
        candidates = topics.union(self.query.topics)
        if not self.query.topics:
            candidates.add(retry_topic(group))
        rows = []
        for topic in sorted(candidates):
            route = self.routes.get(topic)
            if route is None:
                continue
            committed = part.committed.get((group, topic), {})
            rows += [
                part.unmeasured(
                    topic, error.message, each.queue_id, committed.get(each.queue_id)
                )
                for each in route.read_queues()
                if each.broker_name == part.broker_name
            ]
        if not rows and topics and candidates <= self.routes.keys():
            # A broker that the group's members use has the group's retry topic. This
            # one has neither that nor any other of the group's topics.
            return
        reading.queues += rows or [part.unmeasured(None, error.message)]
        reading.failures.append(part.as_failure(error))

    def _add_notes(self, reading: GroupReading) -> None:
        if reading.members is not None:
            reading.notes += reading.members.mismatches(reading.clients)
        if reading.clients is None:
            return
        holders: dict[object, list[str]] = {}
        for client_id, client in sorted(reading.clients.items()):
            if client.failure is not None:
                reading.notes.append(f"{client_id} {unanswered(client.failure)}")
            for queue in client.held_queues():
                holders.setdefault(queue, []).append(client_id)
        members = reading.members
        if members is not None and members.message_model == "BROADCASTING":
            return
        reading.notes += [
            f"{queue} is held by {' and '.join(names)}"
            for queue, names in holders.items()
            if len(names) > 1
        ]


def _unreachable(part: BrokerPart, group: str) -> Iterator[UnreachableQueues]:
    for (of, topic), queues in sorted(part.unreachable.items()):
        if of != group:
            continue
        known = [unread for unread in queues.values() if unread is not None]
        yield UnreachableQueues(
            topic=topic,
            broker_name=part.broker_name,
            queue_ids=tuple(sorted(queues)),
            messages=sum(known) if len(known) == len(queues) else None,
        )


def _members_unknown(failures: Sequence[BrokerFailure]) -> str | None:
    """Return why no member is known; None if every broker reported that it has none."""
    names = ", ".join(sorted({each.broker_name for each in failures}))
    return f"members are unknown: {names}: {failures[0].message}" if names else None


def _add_topic(
    reading: GroupReading, part: BrokerPart, topic: str, refusal: RmqError | None
) -> None:
    pair = (reading.group, topic)
    committed = part.committed[pair]
    if topic in part.unread_topics:
        reading.queues += [
            part.unmeasured(topic, part.unread_topics[topic], *each)
            for each in committed.items() or ((None, None),)
        ]
        return
    ends = part.ends.get(topic)
    if ends is None:
        if committed:
            reading.notes.append(
                f"{part.broker_name} has no topic {topic} any more, but"
                f" {counted(len(committed), 'offset')} of the group in it"
            )
        return
    inflight = part.inflight.get(pair, {})
    spans = part.spans.get(pair, {})
    failure = None if refusal is None else refusal.message
    handed_out = None
    if reading.group in part.orderly_groups:
        inflight = {}
        reading.pop_unknown = ORDERLY
    elif part.handed_out is not None and reading.group in part.pop_groups:
        handed_out = part.handed_out.offsets.get(pair, {})
        if part.handed_out.reason is not None:
            failure = failure or part.handed_out.reason
            reading.pop_unknown = part.handed_out.reason
    for queue_id in ends.keys() | committed.keys():
        low, high = ends.get(queue_id, (None, None))
        reading.queues.append(
            QueueReading(
                topic=topic,
                broker_name=part.broker_name,
                queue_id=queue_id,
                committed=committed.get(queue_id),
                min_offset=low,
                max_offset=high,
                inflight=inflight.get(queue_id),
                time_span=spans.get(queue_id),
                failure=failure,
                handed_out=None if handed_out is None else handed_out.get(queue_id, {}),
                clock_ahead_ms=part.clock_ahead_ms,
            )
        )


def _client_queues(client_id: str, answer: object, *, now_ms: int) -> ClientQueues:
    from rmqcli.admin.lag.process_queues import ClientQueues, read_running_info

    if answer is None:
        return ClientQueues(client_id=client_id, failure="its broker did not answer")
    if isinstance(answer, RmqError):
        return ClientQueues(client_id=client_id, failure=answer.message)
    return read_running_info(client_id, answer, now_ms=now_ms)  # type: ignore[arg-type]
