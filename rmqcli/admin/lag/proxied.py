"""Finds members that are connected to proxies in cluster mode, of which brokers know
nothing.

Such proxies tell each other about their clients, in a topic that any broker may have.
Each client's heartbeat is repeated there, so that its last record says whether it is
online. A proxy in local mode is part of its broker, which then knows the members.

Source: HeartbeatSyncer in apache/rocketmq; ConsumerManager.CHANNEL_EXPIRED_TIMEOUT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqcli.api.calls.offset import search_offset_by_timestamp
from rmqcli.api.calls.pull import MSG_NUMS_MAX, pull_message
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.runner import run_tasks
from rmqcli.errors import BodyError, NotFoundError, RmqError
from rmqcli.tasks import Request
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.bodies.proxy import HeartbeatSyncerData, RemoteChannel
from rmqcli.wire.body import decode_body
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.pull_answer import PullStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.stats import TopicOffset

HEARTBEAT_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
#: A proxy forgets a client that sent no heartbeat for two minutes.
_ONLINE_MS: Final = 120_000
#: More heartbeats in that time than this are not read.
_PAGES_MAX: Final = 500
#: A broker that hangs must not slow down the rest.
_TIMEOUT_MS: Final = 1_000
#: Characters of a client id of gRPC: host@pid@index@random.
_GRPC_SEPARATORS: Final = 3


def is_grpc_client(client_id: str) -> bool:
    """Return whether a client id is one of gRPC, `host@pid@index@random`.

    Remoting clients have ids such as `10.0.0.1@4711#1234567`. A gRPC client cannot
    answer what a broker asks of members: only its proxy talks to it.
    """
    return client_id.count("@") >= _GRPC_SEPARATORS and "#" not in client_id


def proxy_name(local_proxy_id: str | None) -> str | None:
    """Return `address:port` of a proxy's gRPC port, as in `local_proxy_id`."""
    address, _, ports = (local_proxy_id or "").partition("%")
    port = ports.rpartition("%")[2]
    return f"{address}:{port}" if address and port else None


@dataclass(slots=True)
class ProxyHeartbeat:
    """The last record about one member."""

    at_ms: int
    data: HeartbeatSyncerData

    @property
    def is_online(self) -> bool:
        """Whether the member had not left by then."""
        return self.data.heartbeat_type == "REGISTER"


#: (group, client id) -> the last record about it
ProxyHeartbeats = dict[tuple[str, str], ProxyHeartbeat]


def read_proxy_heartbeats(
    address: str, ends: Mapping[MessageQueue, TopicOffset], *, now_ms: int
) -> Task[ProxyHeartbeats]:
    """Read what proxies wrote on one broker in the last two minutes.

    `ends` are those of the topic's queues. Raises RmqError.
    """
    found: ProxyHeartbeats = {}
    for queue, limits in ends.items():
        if limits.max_offset > limits.min_offset:
            yield from _read_queue(address, queue, limits.max_offset, found, now_ms)
    return found


def _read_queue(
    address: str, queue: MessageQueue, end: int, found: ProxyHeartbeats, now_ms: int
) -> Task[None]:
    at = yield Request(
        address,
        search_offset_by_timestamp(queue.topic, queue.queue_id, now_ms - _ONLINE_MS),
    )
    at = max(at, end - _PAGES_MAX * MSG_NUMS_MAX)
    for _ in range(_PAGES_MAX):
        answer = yield Request(address, pull_message(queue, at))
        for record in decode_messages(answer.body):
            if isinstance(record, StoredMessage):
                _take(record, found)
        if answer.status is PullStatus.NO_NEW_MSG or answer.next_begin_offset <= at:
            break
        at = answer.next_begin_offset


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


def find_proxied_members(client: Client) -> ProxiedMembers:
    """Find the members of every group that are behind proxies in cluster mode."""
    now_ms = client.clock.epoch_ms()
    masters = {
        name: broker.master_address
        for name, broker in client.cluster_info().brokers.items()
        if broker.master_address is not None
    }
    answers = run_tasks(
        client, [_read_broker(each, now_ms) for each in masters.values()]
    )
    known: list[ProxyHeartbeats] = []
    errors: dict[str, RmqError] = {}
    for name, answer in zip(masters, answers, strict=True):
        if not isinstance(answer, RmqError):
            known.append(answer)
        elif not isinstance(answer, NotFoundError):  # without proxies no such topic
            errors[name] = answer
    return ProxiedMembers(proxied_members(known, now_ms=now_ms), errors)


def _read_broker(address: str, now_ms: int) -> Task[ProxyHeartbeats]:
    ends = yield Request(address, get_topic_stats_info(HEARTBEAT_TOPIC), _TIMEOUT_MS)
    return (yield from read_proxy_heartbeats(address, ends, now_ms=now_ms))


def _take(record: StoredMessage, found: ProxyHeartbeats) -> None:
    try:
        data = decode_body(HeartbeatSyncerData, record.body)
    except BodyError:
        return
    if data.group is None:
        return
    heartbeat = ProxyHeartbeat(record.store_timestamp_ms, data)
    known = found.get((data.group, data.client_id))
    if known is None or known.at_ms <= heartbeat.at_ms:
        found[data.group, data.client_id] = heartbeat


def proxied_members(
    of_brokers: Iterable[ProxyHeartbeats], *, now_ms: int
) -> dict[str, tuple[ConsumerConnection, Mapping[str, str]]]:
    """Return the members of each group as a broker would, and each member's proxy.

    A record on one broker may be newer than that on another.
    """
    last: ProxyHeartbeats = {}
    for each in of_brokers:
        for key, heartbeat in each.items():
            if key not in last or last[key].at_ms <= heartbeat.at_ms:
                last[key] = heartbeat
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
