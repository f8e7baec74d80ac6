"""Reads a cluster and makes the rows of the metrics of it.

The numbers are those of `rmq lag` and `rmq brokers`: `MetricsCollector` calls the same
functions. A number that is not known has no value. A broker that does not answer keeps
the values that were read last, and the time when that was, for `stale_after_ms`; then
they vanish. So do the values of a group that is deleted, at once.
"""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.brokers import read_brokers
from rmqcli.admin.doctor.facts import setting_number
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.memory import open_memory
from rmqcli.admin.lag.model import age_of, compute_lag
from rmqcli.admin.lag.process_queues import FLOW_CONTROL, STUCK_HEAD
from rmqcli.admin.lag.trend import Samples, compare, judge
from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import LagState, is_retry
from rmqcli.errors import RmqError
from rmqcli.exporter.limit import OF_QUEUES, QueueRows, limit_series
from rmqcli.exporter.metrics import (
    BROKER_INFO,
    BROKER_QUEUES,
    BROKERS,
    BROKERS_UP,
    CLIENTS,
    GROUP_BROKERS,
    GROUP_STATES,
    GROUP_TOPICS,
    GROUPS,
    HELD_QUEUES,
    LEFT_OUT,
    QUEUES,
    TOPICS,
    Labels,
    MetricTable,
    MetricValues,
    label_text,
)
from rmqcli.model import dlq_topic
from rmqcli.units import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from rmqcli.admin.brokers import BrokerDetail, BrokerRow, ThreadPoolQueue
    from rmqcli.admin.lag.gather import LagReading
    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.admin.lag.trend import GroupTrend
    from rmqcli.api.client import Client
    from rmqcli.engine.queue_lag import QueueLag

    Rows: TypeAlias = dict[MetricTable, dict[Labels, MetricValues]]

_GLOB: Final = frozenset("*?[")
#: Where the name of the broker is among the labels, in tables about a broker's queues.
_OF_QUEUES: Final = {
    table: table.labels.index("broker")
    for table in (GROUP_BROKERS, TOPICS, QUEUES, HELD_QUEUES)
}
#: Where the values of a row have the time when they were read: at the end.
_READ_AT: Final = -1
_LAG, _AT_LEAST = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """What to collect.

    `groups` are names or globs, empty for all groups but RocketMQ's own. Collections
    are `interval_ms` apart. The values of a broker that does not answer vanish
    `stale_after_ms` after they were read. At most `series_max` series are about topics
    and queues; the others are left out, group by group. With `process_queues` all
    members are asked what they have cached.
    """

    groups: tuple[str, ...] = ()
    interval_ms: int = 30_000
    stale_after_ms: int = 90_000
    series_max: int = 100_000
    process_queues: bool = False

    def has(self, group: str) -> bool:
        """Whether the values of a group are wanted."""
        return not self.groups or any(fnmatchcase(group, each) for each in self.groups)

    def query(self) -> LagQuery:
        """Return what to ask brokers for."""
        has_globs = any(not _GLOB.isdisjoint(each) for each in self.groups)
        return LagQuery(
            groups=() if has_globs else tuple(dict.fromkeys(self.groups)),
            process_queues=self.process_queues,
            with_system=False,
        )


@dataclass(slots=True, kw_only=True)
class Collected:
    """The rows of one collection, and the errors by what they are about.

    `groups` is None if they could not be read, and `has_values` is False if no broker
    told anything about them. `missing` are those that were named and do not exist.
    """

    at_ms: int
    rows: Rows = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    groups: int | None = None
    has_values: bool = False
    missing: tuple[str, ...] = ()


class _Read(NamedTuple):
    """What the values of queues need of their broker."""

    cluster: str
    reserved_ms: int | None


class MetricsCollector:
    """Collects, any number of times. Not thread-safe."""

    def __init__(self, client: Client, options: CollectorOptions) -> None:
        self._client = client
        self._options = options
        # A collection may begin a little early.
        self._samples = Samples(apart_ms=options.interval_ms * 9 // 10)
        #: the rows of the last page
        self._rows: Rows = {}
        #: broker name -> when its queues were read, epoch ms
        self._read_ms: dict[str, int] = {}

    def collect(self) -> Collected:
        """Read the cluster once. Never raises RmqError: `errors` has what failed."""
        found = Collected(at_ms=self._client.clock.epoch_ms())
        details = self._read_brokers(found)
        reading = self._read_lags(found)
        self._keep_brokers(found, details)
        groups: set[str] = set()
        silent: set[str] | None = None
        of_queues = QueueRows(self._options.series_max)
        if reading is not None:
            silent = {each.broker_name for each in reading.failures}
            groups = self._add_groups(found, reading, details, of_queues)
        self._keep_queues(found, details, silent, groups, of_queues.left_out)
        found.rows, left_out = limit_series(found.rows, self._options.series_max)
        left_out += of_queues.left_out
        self._rows = dict(found.rows)
        found.rows[LEFT_OUT] = {(group,): (n,) for group, n in left_out.items()}
        return found

    def _read_brokers(self, found: Collected) -> list[BrokerDetail]:
        try:
            info = self._client.cluster_info(refresh=True)
            details = read_brokers(
                self._client, info.brokers.values(), with_settings=True
            )
        except RmqError as error:
            found.errors["name servers"] = error.message
            return []
        for detail in details:
            if detail.row.error is not None:
                found.errors[detail.row.process_name] = detail.row.error.message
            elif detail.settings_error is not None:
                about = f"settings of {detail.row.process_name}"
                found.errors[about] = detail.settings_error.message
        return details

    def _read_lags(self, found: Collected) -> LagReading | None:
        # Opened each time: `rmq lag --forget` may have changed the record meanwhile.
        memory = open_memory(self._client)
        gatherer = LagGatherer(self._client, self._options.query(), memory)
        try:
            reading = gatherer.read(accept_silence=True)
        except RmqError as error:
            if error.message not in found.errors.values():
                found.errors["groups"] = error.message
            return None
        for failure in reading.failures:
            found.errors.setdefault(failure.broker_name, failure.message)
        if not reading.failures:
            known = {each.group for each in reading.groups}
            found.missing = tuple(
                each
                for each in self._options.groups
                if _GLOB.isdisjoint(each) and each not in known
            )
        silent = {each.broker_name for each in reading.failures}
        found.has_values = not silent.issuperset(self._client.cluster_info().brokers)
        return reading

    def _add_groups(
        self,
        found: Collected,
        reading: LagReading,
        details: Sequence[BrokerDetail],
        of_queues: QueueRows,
    ) -> set[str]:
        """Add the rows of the groups, and return which groups there are."""
        brokers: dict[str, _Read] = {}
        for detail in details:  # the master first
            cluster = label_text(detail.row.cluster)
            read = _Read(cluster, _reserved_ms(detail))
            brokers.setdefault(detail.row.broker_name, read)
        then_ms, before = self._samples.baseline(at_ms=reading.monotonic_ms)
        elapsed_ms = reading.monotonic_ms - then_ms
        rows = _GroupRows(found.rows, brokers, of_queues, reading.at_ms)
        # One that has left the route is not up, and is no error of this collection.
        listed = set(self._client.cluster_info().brokers)
        kept = set()
        sample: dict[str, tuple[QueueLag, ...]] = {}
        # Each is dropped after its turn: what is known of all groups may take 30 MB.
        reading.groups.reverse()
        while reading.groups:
            of_group = reading.groups.pop()
            if not self._options.has(of_group.group):
                continue
            lag = compute_lag(of_group)
            sample[lag.group] = lag.queues
            earlier = before.pop(lag.group, None)
            trend = None
            if earlier is not None:
                trend = compare(earlier, lag, elapsed_ms=elapsed_ms)
            rows.add(lag, trend)
            for broker_name, reason in lag.untold():
                if broker_name in listed.difference(found.errors):
                    message = f"{broker_name}: {lag.group}: {reason}"
                    found.errors.setdefault("groups", message)
            if not lag.reading.failures:
                for reason in (
                    lag.reading.members_unknown,
                    lag.reading.dead_letters_unknown,
                    lag.reading.ages_unknown,
                ):
                    if reason is not None:
                        found.errors.setdefault("groups", f"{lag.group}: {reason}")
            elif self._keep_group(found, lag):
                kept.add(label_text(lag.group))
        rows.end()
        # Without an answer of any broker, they are those that are remembered.
        found.groups = len(sample) if found.has_values else None
        self._samples.add(sample, at_ms=reading.monotonic_ms)
        for labels, values in self._rows.get(GROUP_TOPICS, {}).items():
            if labels[0] in kept:
                found.rows[GROUP_TOPICS].setdefault(labels, values)
        return set(sample)

    def _keep_group(self, found: Collected, lag: GroupLag) -> bool:
        """Keep the total of a group that had one, while a broker does not answer.

        Not if what is known of it is more by now. Returns whether it was kept.
        """
        labels = (label_text(lag.group),)
        before = self._rows.get(GROUPS, {}).get(labels)
        if before is None or not self._is_fresh(before[_READ_AT], found.at_ms):
            return False
        total = before[_LAG]
        if total is None or lag.known_lag > total:
            return False
        values = list(before)
        values[_AT_LEAST] = lag.known_lag
        found.rows[GROUPS][labels] = tuple(values)
        return True

    def _keep_brokers(self, found: Collected, details: Sequence[BrokerDetail]) -> None:
        rows = found.rows
        rows[BROKERS_UP], rows[BROKER_INFO], rows[BROKERS] = {}, {}, {}
        for detail in details:
            row = detail.row
            labels = _broker_labels(row)
            rows[BROKERS_UP][labels] = (float(row.error is None),)
            if row.error is None:
                rows[BROKERS][labels] = _broker_values(detail, found.at_ms)
                version = label_text(row.version or "")
                rows[BROKER_INFO][*labels, row.role, version] = (1.0,)
        for labels, values in self._rows.get(BROKERS, {}).items():
            is_gone = bool(details) and labels not in rows[BROKERS_UP]
            is_fresh = self._is_fresh(values[_READ_AT], found.at_ms)
            if labels not in rows[BROKERS] and is_fresh and not is_gone:
                rows[BROKERS][labels] = values

    def _keep_queues(
        self,
        found: Collected,
        details: Sequence[BrokerDetail],
        silent: set[str] | None,
        groups: set[str],
        left_out: Collection[str],
    ) -> None:
        """Keep what was read of silent brokers' queues; `silent` is None for all.

        Not those of `left_out`, of which no other queues are shown.
        """
        known: set[str] = set()
        if silent is None:
            kept = set(self._read_ms)
        else:
            kept = silent
            listed = set(self._client.cluster_info().brokers)  # as the lags were read
            known = {label_text(each) for each in groups}
            # A broker that has left the route is missed, as by `rmq lag`.
            for name in silent - listed:
                found.rows[BROKERS_UP]["", "", label_text(name)] = (0.0,)
            for detail in details:
                if detail.row.role == "MASTER" and detail.row.broker_name in silent:
                    found.rows[BROKERS_UP][_broker_labels(detail.row)] = (0.0,)
            for name in listed - silent:
                self._read_ms[name] = found.at_ms
            for name in self._read_ms.keys() - listed - silent:
                del self._read_ms[name]
        fresh = {
            label_text(name)
            for name in kept
            if self._is_fresh(self._read_ms.get(name, 0) / 1000, found.at_ms)
        }
        for table, at in _OF_QUEUES.items():
            of_table = found.rows.setdefault(table, {})
            for labels, values in self._rows.get(table, {}).items():
                if labels[at] not in fresh or labels in of_table:
                    continue
                if silent is not None and table is not TOPICS:
                    group = labels[table.labels.index("group")]
                    if group not in known:
                        continue
                    if table in OF_QUEUES and group in left_out:
                        continue
                of_table[labels] = values
        if silent is None:
            self._keep_all_groups(found)
        found.rows[BROKER_QUEUES] = {
            (label_text(name),): (read_ms / 1000,)
            for name, read_ms in self._read_ms.items()
            if name not in kept or label_text(name) in fresh
        }

    def _keep_all_groups(self, found: Collected) -> None:
        """Keep what was read of groups when nothing could be read this time."""
        kept = {
            labels
            for labels, values in self._rows.get(GROUPS, {}).items()
            if self._is_fresh(values[_READ_AT], found.at_ms)
        }
        for table in (GROUPS, GROUP_TOPICS, GROUP_STATES, CLIENTS):
            found.rows[table] = {
                labels: values
                for labels, values in self._rows.get(table, {}).items()
                if labels[:1] in kept
            }
        # Nothing is known of the states now.
        found.rows[GROUP_STATES] = {
            (group, "UNKNOWN"): (1.0,) for group, _ in found.rows[GROUP_STATES]
        }

    def _is_fresh(self, read_at: float | None, now_ms: int) -> bool:
        stale_s = self._options.stale_after_ms / 1000
        return read_at is not None and abs(now_ms / 1000 - read_at) <= stale_s


@dataclass(slots=True)
class _GroupRows:
    """Makes the rows of groups, one group after the other."""

    _rows: Rows
    _brokers: Mapping[str, _Read]
    _of_queues: QueueRows
    _at_ms: int
    #: (cluster, broker, topic) -> queue id -> (max offset, rate)
    _topics: dict[Labels, dict[int, tuple[int | None, float | None]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        for table in (GROUP_STATES, GROUPS, GROUP_TOPICS, GROUP_BROKERS):
            self._rows[table] = {}

    def add(self, lag: GroupLag, trend: GroupTrend | None) -> None:
        """Add the rows of one group."""
        group = label_text(lag.group)
        state = str(judge(lag, trend).state)
        self._rows[GROUP_STATES][group, state] = (1.0,)
        self._rows[GROUPS][group,] = self._group_values(lag, trend)
        self._add_topics(group, lag)
        places: dict[tuple[str, str, str], list[QueueLag]] = {}
        of_queues = self._client_rows(group, lag)
        for queue in lag.queues:
            if queue.topic is None or queue.queue_id is None:
                continue  # stands for queues that are not known
            broker = label_text(queue.broker_name)
            place = (self._cluster(queue), broker, label_text(queue.topic))
            places.setdefault(place, []).append(queue)
            out = None if trend is None else trend.queues[queue.key].rate_out
            values = (
                queue.lag,
                _seconds(queue.age_ms),
                queue.inflight,
                _rate(out),
                self._retention(queue),
                _lost(queue),
            )
            labels = (*place, group, str(queue.queue_id))
            _add_known(of_queues[QUEUES], labels, values)
            self._take_end(place, queue, trend)
        for place, queues in places.items():
            of_broker = (
                _sum(queue.committed for queue in queues),
                _seconds(age_of(queues)),
                None
                if trend is None
                else _sum(_rate(trend.queues[queue.key].rate_out) for queue in queues),
            )
            _add_known(self._rows[GROUP_BROKERS], (*place, group), of_broker)
        self._of_queues.add(group, of_queues)

    def end(self) -> None:
        """Add the rows of queues and topics, after those of the groups."""
        self._rows.update(self._of_queues.take())
        self._rows[TOPICS] = {
            place: (
                _sum(end for end, _ in of_topic.values()),
                _sum(rate for _, rate in of_topic.values()),
            )
            for place, of_topic in self._topics.items()
        }

    def _cluster(self, queue: QueueLag) -> str:
        broker = self._brokers.get(queue.broker_name)
        return "" if broker is None else broker.cluster

    def _group_values(self, lag: GroupLag, trend: GroupTrend | None) -> MetricValues:
        reading = lag.reading
        is_whole = lag.total_lag is not None
        rates = None if trend is None else trend.group
        members: float | None = None
        # Members may be connected only to a broker that has left the route.
        has_left = any(q.broker_name not in self._brokers for q in lag.queues)
        if not (reading.failures or reading.members_unknown or has_left):
            found = reading.members
            members = 0 if found is None else len(found.connections)
        inflight = _sum(queue.inflight for queue in lag.queues)
        if lag.pop is not None:
            inflight = lag.pop.inflight
        return (
            lag.total_lag,
            lag.known_lag,
            _seconds(lag.age_ms),
            inflight if is_whole else None,
            None if rates is None else _rate(rates.rate_in),
            None if rates is None else _rate(rates.rate_out),
            _most([self._retention(queue) for queue in lag.queues]),
            None if reading.failures else _sum(_lost(queue) for queue in lag.queues),
            members,
            self._at_ms / 1000,
        )

    def _add_topics(self, group: str, lag: GroupLag) -> None:
        rows = self._rows[GROUP_TOPICS]
        for topic in lag.topics:
            if topic.topic is None or topic.lag is None or lag.reading.failures:
                continue
            is_of_retry = is_retry(topic.topic)
            rows[group, label_text(topic.topic)] = (
                None if is_of_retry else topic.lag,
                topic.lag if is_of_retry else None,
                None,
            )
        if lag.reading.dead_letters is not None:
            letters = (None, None, lag.reading.dead_letters)
            rows[group, label_text(dlq_topic(lag.group))] = letters

    def _take_end(
        self, place: Labels, queue: QueueLag, trend: GroupTrend | None
    ) -> None:
        """Note the end of a queue, which is the same for each group that reads it."""
        if queue.state is LagState.UNKNOWN or queue.queue_id is None:
            return
        rate = None if trend is None else trend.queues[queue.key].rate_in
        of_topic = self._topics.setdefault(place, {})
        before = of_topic.get(queue.queue_id)
        if before is None or before[1] is None:
            of_topic[queue.queue_id] = (queue.max_offset, _rate(rate))

    def _retention(self, queue: QueueLag) -> float | None:
        broker = self._brokers.get(queue.broker_name)
        if queue.lag == 0:
            return 0.0
        if queue.lag is None or queue.age_ms is None:
            return None
        if broker is None or not broker.reserved_ms:
            return None
        return queue.age_ms / broker.reserved_ms

    def _client_rows(self, group: str, lag: GroupLag) -> Rows:
        """Return the rows of a group's members and of what they have cached."""
        rows: Rows = {table: {} for table in OF_QUEUES}
        for name, client in (lag.reading.clients or {}).items():
            client_id = label_text(name)
            rows[CLIENTS][group, client_id] = (float(client.failure is None),)
            for held in client.queues:
                queue = held.queue
                broker = self._brokers.get(queue.broker_name)
                labels = (
                    group,
                    client_id,
                    "" if broker is None else broker.cluster,
                    label_text(queue.broker_name),
                    label_text(queue.topic),
                    str(queue.queue_id),
                )
                if not held.dropped:
                    rows[HELD_QUEUES][labels] = (
                        held.span,
                        None if client.is_orderly else held.span_limit,
                        held.cached_count,
                        float(FLOW_CONTROL in held.flags),
                        float(STUCK_HEAD in held.flags),
                    )
        return rows


def _add_known(
    rows: dict[Labels, MetricValues], labels: Labels, values: MetricValues
) -> None:
    """Add a row, unless nothing is known: then an earlier one may be kept."""
    if any(each is not None for each in values):
        rows[labels] = values


def _broker_labels(row: BrokerRow) -> Labels:
    return label_text(row.cluster), label_text(row.address), label_text(row.broker_name)


def _reserved_ms(detail: BrokerDetail) -> int | None:
    hours = setting_number(detail, "fileReservedTime")
    return None if hours is None else hours * HOUR_MS


def _broker_values(detail: BrokerDetail, at_ms: int) -> MetricValues:
    row = detail.row
    return (
        row.in_tps,
        row.out_tps,
        row.commit_log_disk_ratio,
        row.consume_queue_disk_ratio,
        row.dispatch_behind_bytes,
        *_pool_values(row.send_queue),
        *_pool_values(row.pull_queue),
        _seconds(row.page_cache_lock_ms),
        _seconds(row.earliest_message_ms),
        _seconds(row.boot_timestamp_ms),
        row.slaves,
        row.slaves_in_sync,
        row.behind_bytes,
        _seconds(_reserved_ms(detail)),
        at_ms / 1000,
    )


def _pool_values(queue: ThreadPoolQueue | None) -> MetricValues:
    if queue is None:
        return None, None, None
    return queue.size, queue.capacity, _seconds(queue.head_wait_ms)


def _lost(queue: QueueLag) -> int | None:
    """Return how many messages were deleted unread.

    A group that never committed in a queue has lost none there.
    """
    return 0 if queue.state is LagState.NO_COMMIT else queue.expired


def _rate(rate: float | None) -> float | None:
    """Return a rate, or None for one that a reset has made negative."""
    return None if rate is None or rate < 0 else rate


def _seconds(value_ms: int | None) -> float | None:
    return None if value_ms is None else value_ms / 1000


def _sum(values: Iterable[float | None]) -> float | None:
    total: float = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _most(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return max(known, default=None) if len(known) == len(values) else None
