"""Finds members that are connected to proxies in cluster mode, of which brokers know
nothing.

Such proxies tell each other about their clients, in a topic that any broker may have.
Each client's heartbeat is repeated there, so that its last record says whether it is
online. A proxy in local mode is part of its broker, which then knows the members.

Source: HeartbeatSyncer in apache/rocketmq; ConsumerManager.CHANNEL_EXPIRED_TIMEOUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.offset import search_offset_by_timestamp
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.positions import broker_clock
from rmqcli.api.runner import run_task, run_tasks
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BodyError,
    ConnectError,
    NotFoundError,
    RmqError,
    TransportError,
)
from rmqcli.tasks import All, Request
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.bodies.proxy import HeartbeatSyncerData, RemoteChannel
from rmqcli.wire.body import decode_body
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.pull_answer import PullStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.clock import Clock
    from rmqcli.model import BrokerData, MessageQueue
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.stats import TopicOffset

HEARTBEAT_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
#: A proxy forgets a client that sent no heartbeat for two minutes.
_ONLINE_MS: Final = 120_000
#: Only the last records of a queue are read, at most this many. Each member sends a
#: heartbeat every 10 s, so that up to this many members have a record among them.
_RECORDS_MAX: Final = 16_000
#: A broker that hangs must not slow down the rest.
_TIMEOUT_MS: Final = 1_000


def proxy_name(local_proxy_id: str | None) -> str | None:
    """Return `address:port` of a proxy's gRPC port, as in `local_proxy_id`."""
    address, _, ports = (local_proxy_id or "").partition("%")
    port = ports.rpartition("%")[2]
    return f"{address}:{port}" if address and port else None


@dataclass(slots=True)
class ProxyHeartbeat:
    """The last record about one member, and when it was written (by our clock)."""

    at_ms: int
    data: HeartbeatSyncerData

    @property
    def is_online(self) -> bool:
        """Whether the member had not left by then."""
        return self.data.heartbeat_type == "REGISTER"


#: (group, client id) -> the last record about it
ProxyHeartbeats = dict[tuple[str, str], ProxyHeartbeat]


def read_clock_ahead_ms(address: str, clock: Clock) -> Task[int]:
    """Return how far a broker's clock is ahead of `clock`; negative if it is behind.

    Less than a second counts as 0, and so does a time that the broker does not report.
    Raises TransportError.
    """
    asked_ms = clock.epoch_ms()
    try:
        table = yield Request(address, get_broker_runtime_info())
    except TransportError:
        raise
    except RmqError:  # such as DeniedError
        return 0
    answered_ms = clock.epoch_ms()
    theirs = broker_clock(table, asked_ms=asked_ms, answered_ms=answered_ms)
    return theirs.epoch_ms - answered_ms if theirs.note else 0


def read_proxy_heartbeats(
    address: str,
    ends: Mapping[MessageQueue, TopicOffset],
    *,
    now_ms: int,
    clock_ahead_ms: int,
) -> Task[ProxyHeartbeats]:
    """Read what proxies wrote on one broker in the last two minutes.

    `ends` are those of the topic's queues; see `read_clock_ahead_ms`. Raises RmqError.
    """
    since_ms = now_ms - _ONLINE_MS
    return _last_of_each(
        (yield from _read_since(address, ends, since_ms, clock_ahead_ms))
    )


def _read_since(
    address: str,
    ends: Mapping[MessageQueue, TopicOffset],
    since_ms: int,
    clock_ahead_ms: int,
) -> Task[list[ProxyHeartbeat]]:
    """Read all heartbeats on a broker since then (by our clock)."""
    found: list[ProxyHeartbeat] = []
    for queue, limits in ends.items():
        if limits.max_offset <= limits.min_offset:
            continue
        records = yield from _read_queue(
            address, queue, limits.max_offset, since_ms=since_ms + clock_ahead_ms
        )
        for record in records:
            try:
                data = decode_body(HeartbeatSyncerData, record.body)
            except BodyError:
                continue
            at_ms = record.store_timestamp_ms - clock_ahead_ms
            found.append(ProxyHeartbeat(at_ms, data))
    return found


def _last_of_each(heartbeats: Iterable[ProxyHeartbeat]) -> ProxyHeartbeats:
    """Return the last heartbeat of each member; of several at one time, the later."""
    found: ProxyHeartbeats = {}
    for each in heartbeats:
        if each.data.group is not None:
            key = each.data.group, each.data.client_id
            if key not in found or found[key].at_ms <= each.at_ms:
                found[key] = each
    return found


def _read_queue(
    address: str, queue: MessageQueue, end: int, *, since_ms: int
) -> Task[list[StoredMessage]]:
    found: list[StoredMessage] = []
    at = yield Request(
        address, search_offset_by_timestamp(queue.topic, queue.queue_id, since_ms)
    )
    at = max(at, end - _RECORDS_MAX)
    while at < end:
        answer = yield Request(address, pull_message(queue, at))
        found += (
            record
            for record in decode_messages(answer.body)
            if isinstance(record, StoredMessage)
        )
        if answer.status is PullStatus.NO_NEW_MSG or answer.next_begin_offset <= at:
            break
        at = answer.next_begin_offset
    return found


@dataclass(frozen=True, slots=True)
class ProxiedMembers:
    """The members behind proxies in cluster mode, and the brokers that did not tell.

    `by_group` has the members of each group as a broker would report them, and each
    member's proxy by client id. A group that it lacks may still have members if there
    are `errors`, by broker name.
    """

    by_group: Mapping[str, tuple[ConsumerConnection, Mapping[str, str]]]
    errors: Mapping[str, RmqError]

    @property
    def unknown_because(self) -> str | None:
        """Why members may be missing; None if none is."""
        for name, error in sorted(self.errors.items()):
            return f"members behind proxies are not known: {name}: {error.message}"
        return None


def find_proxied_members(
    client: Client, failed: Mapping[str, RmqError] | None = None
) -> ProxiedMembers:
    """Find the members of every group that are behind proxies in cluster mode.

    A broker that has not answered another request, as `failed` says, is not asked, and
    no broker of which only slaves are left: proxies write to masters. It is an error if
    such a broker may have the topic.
    """
    brokers = client.cluster_info().brokers
    return run_task(client, ask_proxied_members(client, brokers, failed))


def ask_proxied_members(
    client: Client,
    brokers: Mapping[str, BrokerData],
    failed: Mapping[str, RmqError] | None = None,
) -> Task[ProxiedMembers]:
    """Do as `find_proxied_members`; `brokers` are those of the cluster."""
    now_ms = client.clock.epoch_ms()
    silent = {n: e for n, e in (failed or {}).items() if isinstance(e, TransportError)}
    masters: dict[str, str] = {}
    for name, broker in brokers.items():
        if name in silent:
            continue
        if broker.master_address is None:
            error = f"{name} currently has no master, only slaves"
            silent[name] = ConnectError(error, address=name)
        else:
            masters[name] = broker.master_address
    since_ms = now_ms - _ONLINE_MS
    answers = yield All(
        [
            _read_history(each, client.clock, since_ms, _TIMEOUT_MS)
            for each in masters.values()
        ]
    )
    known: list[ProxyHeartbeats] = []
    errors: dict[str, RmqError] = {}
    for name, answer in zip(masters, answers, strict=True):
        if not isinstance(answer, RmqError):
            known.append(_last_of_each(answer))
        elif not isinstance(answer, NotFoundError):  # without proxies no such topic
            errors[name] = answer
    if silent:
        try:
            route = yield from client.ask_route(HEARTBEAT_TOPIC)
        except NotFoundError:
            pass
        except RmqError:
            errors |= silent
        else:
            having = {each.broker_name for each in route.brokers}
            errors |= {n: e for n, e in silent.items() if n in having}
    return ProxiedMembers(proxied_members(known, now_ms=now_ms), errors)


def filters_since_ms(
    client: Client, groups: Collection[str], topic: str, *, from_ms: int
) -> dict[str, int]:
    """Return since when the members of each group have had their filter of `topic`.

    A proxy gives a subscription the time of the heartbeat, so that only the heartbeats
    before tell. They are read from two minutes before `from_ms` on; as long as their
    filter is the same, and no two minutes pass without one, members have had it. All
    times are epoch ms by our clock. A group without a heartbeat is missing, and all are
    if a broker does not answer, which may have heartbeats with another filter.
    """
    tasks: list[Task[list[ProxyHeartbeat]]] = []
    for broker in client.cluster_info().brokers.values():
        if broker.master_address is None:
            return {}
        since_ms = from_ms - _ONLINE_MS
        tasks.append(_read_history(broker.master_address, client.clock, since_ms))
    heartbeats: list[ProxyHeartbeat] = []
    for answer in run_tasks(client, tasks):
        if not isinstance(answer, RmqError):
            heartbeats += answer
        elif not isinstance(answer, NotFoundError):  # without proxies no such topic
            return {}
    runs: dict[str, _Run] = {}
    for each in sorted(heartbeats, key=lambda each: each.at_ms):
        group = each.data.group
        if group is not None and group in groups and each.is_online:
            own = _filter(each.data, topic)
            run = runs.get(group)
            if run is None or not run.goes_on(each.at_ms, own):
                run = runs[group] = _Run(each.at_ms, own)
            run.last_ms = each.at_ms
    return {group: run.first_ms for group, run in runs.items()}


@dataclass(slots=True)
class _Run:
    """Heartbeats with one filter that follow each other."""

    first_ms: int
    expression: tuple[str, str] | None
    last_ms: int = 0

    def goes_on(self, at_ms: int, expression: tuple[str, str] | None) -> bool:
        return expression == self.expression and at_ms <= self.last_ms + _ONLINE_MS


def _filter(data: HeartbeatSyncerData, topic: str) -> tuple[str, str] | None:
    for each in data.subscription_data_set:
        if each.topic == topic:
            return each.expression_type or "TAG", each.sub_string
    return None


def _read_history(
    address: str, clock: Clock, since_ms: int, timeout_ms: int | None = None
) -> Task[list[ProxyHeartbeat]]:
    """Read all heartbeats on a broker since then (by our clock)."""
    ends = yield Request(address, get_topic_stats_info(HEARTBEAT_TOPIC), timeout_ms)
    if not any(limits.max_offset > limits.min_offset for limits in ends.values()):
        return []
    clock_ahead_ms = yield from read_clock_ahead_ms(address, clock)
    return (yield from _read_since(address, ends, since_ms, clock_ahead_ms))


def proxied_members(
    of_brokers: Iterable[ProxyHeartbeats], *, now_ms: int
) -> dict[str, tuple[ConsumerConnection, Mapping[str, str]]]:
    """Return the members of each group as a broker would, and each member's proxy.

    A record on one broker may be newer than that on another.
    """
    last = _last_of_each(beat for each in of_brokers for beat in each.values())
    found: dict[str, list[ProxyHeartbeat]] = {}
    for (group, _), heartbeat in sorted(last.items()):
        if heartbeat.is_online and heartbeat.at_ms > now_ms - _ONLINE_MS:
            found.setdefault(group, []).append(heartbeat)
    return {group: _connection(items) for group, items in found.items()}


def _connection(
    items: list[ProxyHeartbeat],
) -> tuple[ConsumerConnection, Mapping[str, str]]:
    newest = max(items, key=lambda each: each.at_ms).data
    connection = ConsumerConnection(
        connections=tuple(
            Connection(
                client_id=each.data.client_id,
                client_addr=_address(each.data),
                language=each.data.language,
                version=each.data.version,
            )
            for each in items
        ),
        subscriptions={each.topic: each for each in newest.subscription_data_set},
        consume_type=newest.consume_type,
        message_model=newest.message_model,
        consume_from_where=newest.consume_from_where,
    )
    proxies = {
        each.data.client_id: name
        for each in items
        if (name := proxy_name(each.data.local_proxy_id)) is not None
    }
    return connection, proxies


def _address(data: HeartbeatSyncerData) -> str:
    try:
        channel = decode_body(RemoteChannel, (data.channel_data or "{}").encode())
    except BodyError:
        return ""
    return channel.remote_address or ""
