"""Gathers what the checks judge: every request once, brokers side by side.

Only the parts that the chosen checks need are read. A broker that did not answer the
first requests is not asked for more, so that it costs two fifths of the timeout: 2 s.
Requests that fail are facts, too: the errors are kept in the places of the answers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.brokers import read_brokers
from rmqcli.admin.lag.memory import departed_brokers, open_memory
from rmqcli.admin.topics import topic_kind
from rmqcli.api.calls.config import (
    get_all_subscription_group_config,
    get_all_topic_config,
    get_broker_config,
)
from rmqcli.api.calls.namesrv import get_all_topic_list, get_broker_cluster_info
from rmqcli.api.calls.offset import get_earliest_msg_storetime
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.api.positions import RemoteQueue, broker_clock, resolve_in_queue
from rmqcli.api.runner import run_tasks
from rmqcli.dataclass import dataclass
from rmqcli.errors import DeniedError, RmqError, TransportError
from rmqcli.model import MASTER_ID, SCHEDULE_TOPIC, MessageQueue
from rmqcli.position import AtTime
from rmqcli.tasks import All, Request, every
from rmqcli.units import HOUR_MS, SECOND_MS, read_count
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.admin.brokers import BrokerDetail
    from rmqcli.admin.dlq.listing import LetterList
    from rmqcli.admin.lag.memory import SeenBroker
    from rmqcli.admin.lag.model import BrokerFailure, GroupLag
    from rmqcli.admin.transactions import OpenTransactions
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig
    from rmqcli.engine.queue_lag import QueueLag
    from rmqcli.model import TopicRoute
    from rmqcli.tasks import Part, Task
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
    from rmqcli.wire.bodies.route import ClusterInfo

#: The reason given for facts that only a master reports.
NO_MASTER: Final = "no master is registered, only slaves"
#: Routes of more topics than this are not compared.
ROUTES_MAX: Final = 1_000
#: Letters that are at most this old count as new.
LETTERS_NEW_MS: Final = HOUR_MS
#: The share of the retention after which an unread message counts as endangered.
RETENTION_SHARE: Final = 0.75
#: More half messages of a broker than this are not read.
HALF_MESSAGES_MAX: Final = 10_000
_PROBE_TIMEOUT_MS: Final = 1_000


class Fact(StrEnum):
    """A kind of facts that checks may need.

    Brokers and their settings are always read. A check that needs SETTINGS reports the
    brokers that do not show theirs as unknown.
    """

    SETTINGS = "settings"
    NAMESRVS = "namesrvs"
    TOPICS = "topics"
    GROUPS = "groups"
    ROUTES = "routes"
    LAGS = "lags"
    LETTERS = "letters"
    TRANSACTIONS = "transactions"
    DELAYS = "delays"


@dataclass(slots=True, kw_only=True)
class NamesrvFacts:
    """What one name server knows; errors are in the places of answers."""

    info: ClusterInfo | RmqError
    topics: list[str] | RmqError
    version: str | None


@dataclass(slots=True, kw_only=True)
class Endangered:
    """Unread messages of a group in a queue that retention will delete soon.

    `count` is None if the broker did not report how many.
    """

    group: str
    queue: QueueLag
    reserved_ms: int
    count: int | None


@dataclass(slots=True, kw_only=True)
class Facts:
    """What was read. `at_ms` is epoch ms; parts that were not read are empty.

    `topics` and `groups` are by broker name, for brokers that answered. `clock_skew_ms`
    has by address how far a broker's clock is ahead (or, negative, behind) for certain,
    and None where it did not report it. `reachable_at` maps the advertised address of a
    broker that cannot be reached to one at which it answers. `departed` has the brokers
    that an earlier run knew and no name server lists any more.
    """

    at_ms: int
    config: ClientConfig
    info: ClusterInfo
    brokers: list[BrokerDetail]
    departed: dict[str, SeenBroker] = field(default_factory=dict)
    clock_skew_ms: dict[str, int | None] = field(default_factory=dict)
    reachable_at: dict[str, str] = field(default_factory=dict)
    namesrvs: dict[str, NamesrvFacts] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicConfig] | RmqError] = field(default_factory=dict)
    groups: dict[str, dict[str, SubscriptionGroupConfig] | RmqError] = field(
        default_factory=dict
    )
    routes: dict[str, TopicRoute | RmqError] = field(default_factory=dict)
    lags: list[GroupLag] = field(default_factory=list)
    #: brokers that did not report all of their groups, or what these have committed
    lag_failures: list[BrokerFailure] = field(default_factory=list)
    lag_error: RmqError | None = None
    #: queues with unread messages whose broker does not report its retention
    retention_unknown: dict[str, str] = field(default_factory=dict)
    #: groups with unread messages whose age a broker does not report
    age_unknown: set[str] = field(default_factory=set)
    endangered: list[Endangered] = field(default_factory=list)
    letters: LetterList | None = None
    letters_error: RmqError | None = None
    #: group -> dead letters of the last hour; None if they are not known
    new_letters: dict[str, int | None] = field(default_factory=dict)
    #: group -> how many are new at least, if its topic is write-only and no more known
    new_letters_min: dict[str, int] = field(default_factory=dict)
    #: broker name -> delay level -> how late its next message is; None if not known
    late_ms: dict[str, dict[int, int | None]] = field(default_factory=dict)
    #: by broker name
    transactions: dict[str, OpenTransactions] = field(default_factory=dict)

    def answering(self) -> list[BrokerDetail]:
        """Return the brokers that answered, masters and slaves."""
        return [each for each in self.brokers if each.row.error is None]

    def masters(self) -> list[BrokerDetail]:
        """Return the masters that answered."""
        return [each for each in self.answering() if each.row.broker_id == MASTER_ID]

    def without_master(self) -> list[str]:
        """Return the brokers of which name servers list only slaves."""
        return [
            name
            for name, broker in sorted(self.info.brokers.items())
            if MASTER_ID not in broker.addresses
        ]

    def silent(self) -> dict[str, RmqError]:
        """Return the processes that did not answer, by name or name and id."""
        return {
            detail.row.process_name: detail.row.error
            for detail in self.brokers
            if detail.row.error is not None
        }

    def kind(self, topic: str) -> str:
        """Return `retry`, `dlq`, `system` or `normal`."""
        return topic_kind(topic, self.info)


def setting_number(detail: BrokerDetail, name: str) -> int | None:
    """Return a setting that is a number; None if it is not shown or is not one."""
    return read_count((detail.settings or {}).get(name), digits_max=15)


def gather_facts(client: Client, parts: Collection[str] = frozenset(Fact)) -> Facts:
    """Read the brokers and these parts, by default all.

    Raises TransportError when no name server answers, and NoBrokerError when none knows
    a broker.
    """
    with client.ask_silent_once():
        return _gather_facts(client, parts)


def _gather_facts(client: Client, parts: Collection[str]) -> Facts:
    info = client.cluster_info(refresh=True)
    asked_ms = client.clock.epoch_ms()
    brokers = read_brokers(client, info.brokers.values(), with_settings=True)
    answered_ms = client.clock.epoch_ms()
    facts = Facts(
        at_ms=answered_ms,
        config=client.config,
        info=info,
        brokers=brokers,
        departed=departed_brokers(client, info.brokers),
    )
    for detail in brokers:
        if detail.runtime is not None:
            facts.clock_skew_ms[detail.row.address] = clock_skew_ms(
                detail.runtime, asked_ms=asked_ms, answered_ms=answered_ms
            )
    _read_tables(client, facts, parts)
    if Fact.ROUTES in parts:
        facts.routes = client.routes(_topics_to_route(facts))
    if Fact.DELAYS in parts:
        _read_delays(client, facts)
    if Fact.LAGS in parts:
        _read_lags(client, facts)
    if Fact.LETTERS in parts:
        _read_letters(client, facts)
    if Fact.TRANSACTIONS in parts:
        _read_transactions(client, facts)
    return facts


def clock_skew_ms(
    runtime: Mapping[str, str], *, asked_ms: int, answered_ms: int
) -> int | None:
    """Return how far a clock is ahead of ours, at least; None if it is not reported.

    A broker reports its time to the second, and answered at any moment between the two.
    """
    clock = broker_clock(runtime, asked_ms=asked_ms, answered_ms=answered_ms)
    if clock.epoch_ms == answered_ms:
        return None if clock.note else 0
    ahead_ms = clock.epoch_ms - answered_ms
    return ahead_ms if ahead_ms > 0 else min(0, clock.epoch_ms + SECOND_MS - asked_ms)


def _read_tables(client: Client, facts: Facts, parts: Collection[str]) -> None:
    masters = {d.row.broker_name: d.row.address for d in facts.masters()}
    questions: dict[tuple[str, str], Part] = {}
    if Fact.NAMESRVS in parts:
        for address in dict.fromkeys(facts.config.namesrv):
            questions["namesrv", address] = _ask_namesrv(address)
    for name, address in masters.items():
        if not {Fact.TOPICS, Fact.ROUTES, Fact.TRANSACTIONS}.isdisjoint(parts):
            questions["topics", name] = Request(address, get_all_topic_config())
        if Fact.GROUPS in parts:
            questions["groups", name] = Request(
                address, get_all_subscription_group_config()
            )
    probes = _probes(facts)
    outcomes = run_tasks(client, [*questions.values(), *probes.values()])
    answers = dict(zip((*questions, *probes), outcomes, strict=True))
    for (kind, name), answer in answers.items():
        if kind == "topics":
            facts.topics[name] = answer
        elif kind == "groups":
            facts.groups[name] = answer
        elif kind == "namesrv":
            ordinal = client.known_version(name)
            answer.version = None if ordinal is None else version_name(ordinal)
            facts.namesrvs[name] = answer
    _take_probes(facts, {place: answers[place] for place in probes})


def _ask_namesrv(address: str) -> Task[NamesrvFacts]:
    """Ask a name server for its brokers, and if it answers, for its topics."""
    (info,) = yield All([Request(address, get_broker_cluster_info())])
    topics = info
    if not isinstance(info, TransportError):
        (topics,) = yield All([Request(address, get_all_topic_list())])
    return NamesrvFacts(info=info, topics=topics, version=None)


def _probes(facts: Facts) -> dict[tuple[str, str], Request[dict[str, str]]]:
    """Return requests that tell whether silent brokers answer at name servers' hosts.

    The keys are the advertised address and the address that is tried.
    """
    mapped = {advertised for advertised, _ in facts.config.address_map}
    return {
        (detail.row.address, probe): Request(
            probe, get_broker_config(), _PROBE_TIMEOUT_MS
        )
        for detail in facts.brokers
        if isinstance(detail.row.error, TransportError)
        and detail.row.address not in mapped
        for namesrv in facts.config.namesrv
        if (
            probe := f"{namesrv.rpartition(':')[0]}:"
            f"{detail.row.address.rpartition(':')[2]}"
        )
        != detail.row.address
    }


def _take_probes(
    facts: Facts, answers: Mapping[tuple[str, str], dict[str, str] | RmqError]
) -> None:
    names = {d.row.address: (d.row.broker_name, d.row.broker_id) for d in facts.brokers}
    for (advertised, probe), answer in answers.items():
        if isinstance(answer, RmqError):
            continue
        name, number = names[advertised]
        if (answer.get("brokerName"), answer.get("brokerId")) == (name, str(number)):
            facts.reachable_at[advertised] = probe


def _topics_to_route(facts: Facts) -> list[str]:
    """Return the topics whose routes are compared."""
    names = {
        topic
        for table in facts.topics.values()
        if not isinstance(table, RmqError)
        for topic in table
        if facts.kind(topic) == "normal"
    }
    return sorted(names)[:ROUTES_MAX]


def _read_lags(client: Client, facts: Facts) -> None:
    from rmqcli.admin.lag.assemble import LagQuery
    from rmqcli.admin.lag.gather import LagGatherer
    from rmqcli.admin.lag.model import compute_lag

    try:
        query = LagQuery(process_queues=True)
        reading = LagGatherer(client, query, open_memory(client)).read()
    except RmqError as error:
        facts.lag_error = error
        return
    facts.lag_failures = reading.failures
    facts.lags = sorted(map(compute_lag, reading.groups), key=lambda each: each.group)
    _read_endangered(client, facts)


def _read_endangered(client: Client, facts: Facts) -> None:
    """Find the unread messages that are near the end of their broker's retention."""
    reserved: dict[str, int | None] = {}
    addresses = {}
    for detail in facts.masters():
        hours = setting_number(detail, "fileReservedTime")
        reserved[detail.row.broker_name] = None if hours is None else hours * HOUR_MS
        addresses[detail.row.broker_name] = detail.row.address
    found: dict[tuple[str, MessageQueue], Endangered] = {}
    searches = {}
    for lag in facts.lags:
        for queue in lag.queues:
            name, age_ms = queue.broker_name, queue.age_ms
            if not queue.lag or name not in addresses:
                continue
            if age_ms is None:
                facts.age_unknown.add(lag.group)
                continue
            limit_ms = reserved[name]
            if limit_ms is None:
                if age_ms > HOUR_MS:
                    facts.retention_unknown.setdefault(name, lag.group)
                continue
            if age_ms < limit_ms * RETENTION_SHARE:
                continue
            if queue.topic is None or queue.queue_id is None:
                continue
            place = lag.group, MessageQueue(queue.topic, name, queue.queue_id)
            found[place] = Endangered(
                group=lag.group, queue=queue, reserved_ms=limit_ms, count=None
            )
            skew_ms = facts.clock_skew_ms.get(addresses[name]) or 0
            before_ms = facts.at_ms + skew_ms - int(limit_ms * RETENTION_SHARE)
            remote = RemoteQueue(place[1], addresses[name], client.clock)
            searches[place] = resolve_in_queue(remote, AtTime(before_ms, ""))
    outcomes = run_tasks(client, searches.values())
    for place, position in zip(searches, outcomes, strict=True):
        each = found[place]
        queue = each.queue
        if not isinstance(position, RmqError) and queue.lag is not None:
            start = max(queue.committed or 0, queue.min_offset or 0)
            # The oldest unread message is among them, whatever the search found.
            each.count = min(queue.lag, max(1, position.offset - start))
    facts.endangered = list(found.values())


def _read_letters(client: Client, facts: Facts) -> None:
    from rmqcli.admin.dlq.listing import list_letters

    try:
        facts.letters = letters = list_letters(client)
    except RmqError as error:
        facts.letters_error = error
        return
    addresses = {d.row.broker_name: d.row.address for d in facts.masters()}
    searches: dict[tuple[str, MessageQueue], Task[tuple[int, int]]] = {}
    for group in letters.groups:
        if group.count is None:
            facts.new_letters[group.group] = None
            continue
        facts.new_letters[group.group] = 0
        for queue, ends in group.ends.items():
            address = addresses.get(queue.broker_name)
            if ends[0] >= ends[1]:
                continue
            if address is None or group.newest_ms is None:
                facts.new_letters[group.group] = None  # read from a slave
                continue
            since_ms = (
                facts.at_ms + (facts.clock_skew_ms.get(address) or 0) - LETTERS_NEW_MS
            )
            if group.newest_ms >= since_ms:
                remote = RemoteQueue(queue, address, client.clock)
                searches[group.group, queue] = _count_new(remote, ends, since_ms)
    counts: dict[str, list[tuple[int, int] | RmqError]] = defaultdict(list)
    outcomes = run_tasks(client, searches.values())
    for (name, _), outcome in zip(searches, outcomes, strict=True):
        counts[name].append(outcome)
    for name, found in counts.items():
        known = [each for each in found if not isinstance(each, RmqError)]
        if len(known) < len(found) or facts.new_letters[name] is None:
            facts.new_letters[name] = None
            continue
        least, most = (sum(numbers) for numbers in zip(*known, strict=True))
        facts.new_letters[name] = least if least == most else None
        if least < most:
            facts.new_letters_min[name] = least


def _count_new(
    remote: RemoteQueue, ends: tuple[int, int], since_ms: int
) -> Task[tuple[int, int]]:
    """Return how many letters were stored since then, at least and at most."""
    low, high = ends
    try:
        position = yield from resolve_in_queue(remote, AtTime(since_ms, ""))
    except DeniedError:
        return (yield from _count_new_unread(remote, ends, since_ms))
    count = max(0, high - max(low, position.offset or 0))
    return count, count


def _count_new_unread(
    remote: RemoteQueue, ends: tuple[int, int], since_ms: int
) -> Task[tuple[int, int]]:
    """Do so where the broker refuses pulls, as brokers up to 4.9.1 do by default.

    They report the times of the oldest and of the newest letter. The letter that their
    search finds may be the last of the old ones.
    """
    queue, (low, high) = remote.queue, ends
    stats, oldest_ms, near = yield from every(
        Request(remote.address, get_topic_stats_info(queue.topic)),
        Request(
            remote.address, get_earliest_msg_storetime(queue.topic, queue.queue_id)
        ),
        remote.offset_by_time(since_ms),
    )
    if queue not in stats or stats[queue].last_update_timestamp < since_ms:
        return 0, 0
    if oldest_ms is None or oldest_ms >= since_ms:
        return high - low, high - low
    most = min(high - max(low, near), high - low - 1)
    least = max(1, high - max(low, near) - 1)
    return min(least, most), most


def _read_delays(client: Client, facts: Facts) -> None:
    """Find out how late the next message of each delay level is.

    The offsets were reported with the runtime information. What is at one of them now
    may have been delivered since, so that it looks late by the time in between.
    """
    from rmqcli.admin.delayed import LEVELS_PULLED_MAX, delay_levels_ms, waiting_levels

    questions: dict[tuple[str, int], tuple[str, Call[Any]]] = {}
    rows = {}
    for detail in facts.masters():
        name = detail.row.broker_name
        rows[name] = detail
        for level, (offset, end) in waiting_levels(detail.runtime or {}).items():
            if offset < end:
                queue = MessageQueue(SCHEDULE_TOPIC, name, level - 1)
                call: Call[Any] = pull_message(queue, offset, max_msg_nums=1)
                if level > LEVELS_PULLED_MAX:
                    call = query_consume_queue(
                        queue.topic, queue.queue_id, offset, count=1
                    )
                questions[name, level] = detail.row.address, call
    for (name, level), answer in client.ask_many(questions).items():
        detail = rows[name]
        late_ms = facts.late_ms.setdefault(name, {})
        late_ms[level] = None
        delays = delay_levels_ms(detail.settings)
        skew_ms = facts.clock_skew_ms.get(detail.row.address) or 0
        if isinstance(answer, RmqError) or level not in delays:
            continue
        if level > LEVELS_PULLED_MAX:  # a due time is in place of the hash of the tag
            due = [each.tags_code for each in (answer.queue_data or [])[:1]]
        else:
            due = [
                message.store_timestamp_ms + delays[level]
                for message in decode_messages(answer.body)
                if isinstance(message, StoredMessage)
            ]
        for due_ms in due:
            late_ms[level] = facts.at_ms + skew_ms - due_ms


def _read_transactions(client: Client, facts: Facts) -> None:
    from rmqcli.admin.transactions import HALF_TOPIC, open_transactions_of

    for detail in facts.masters():
        name = detail.row.broker_name
        table = facts.topics.get(name, {})
        if not isinstance(table, RmqError) and HALF_TOPIC in table:
            facts.transactions[name] = open_transactions_of(
                client, name, detail.row.address, scanned_max=HALF_MESSAGES_MAX
            )
