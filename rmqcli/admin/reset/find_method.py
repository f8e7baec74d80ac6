"""Finds the members that are online, and how offsets can be set at each broker.

This module sends the requests; `method` makes the decisions.

Source: ClientManageProcessor, AdminBrokerProcessor of the broker.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from rmqcli.admin.lag.proxied import find_proxied_members
from rmqcli.admin.reset.messages import read_messages
from rmqcli.admin.reset.method import (
    TIMESTAMP_MAX_OFFSET,
    Mechanism,
    PushRequest,
    ResetMethod,
    choose_method,
    find_push,
)
from rmqcli.admin.reset.plan import method_key, plan_queue
from rmqcli.admin.reset.target import ToPosition
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_all_subscription_group_config, get_broker_config
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import search_offset_by_timestamp
from rmqcli.api.runner import run_task
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.position import AtTime
from rmqcli.tasks import All, Request, every
from rmqcli.wire.version import V5_1_0, V5_2_0, V5_3_0, version_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.admin.reset.plan import MethodKey, QueueFacts
    from rmqcli.admin.reset.target import ResetRequest
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue, TopicRoute
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.consumer import ConsumerConnection

#: How many timestamps are tried on an old broker: if a few do not work, none will.
_TIMESTAMPS_MAX = 12


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of the group that brokers report.

    `seen` is broker name -> what it reported, None when no member is online there.
    `errors` has the brokers that could not be queried, and why. `proxied` are the
    members behind proxies in cluster mode, which consume at every broker;
    `proxied_unknown` says why it is not known whether there are any.
    """

    seen: Mapping[str, ConsumerConnection | None]
    errors: Mapping[str, RmqError]
    proxied: ConsumerConnection | None = None
    proxied_unknown: str | None = None

    @property
    def is_broadcast(self) -> bool:
        """Whether the members say that they consume in broadcast mode."""
        return any(
            each is not None and each.message_model == "BROADCASTING"
            for each in self.seen.values()
        )

    @property
    def uses_grpc(self) -> bool:
        """Whether members are clients of a proxy, which consume by POP."""
        return self.proxied is not None or any(
            is_grpc_client(client.client_id)
            for each in self.seen.values()
            if each is not None
            for client in each.connections
        )

    def client_ids(self, topic: str) -> tuple[str, ...]:
        """Return the client ids of online members that consume `topic`, sorted."""
        found = {
            client.client_id
            for each in (*self.seen.values(), self.proxied)
            if _consumes(each, topic)
            for client in each.connections
        }
        return tuple(sorted(found))

    def is_live(self, broker_name: str, topic: str) -> bool:
        """Return whether a member consumes `topic` at this broker.

        Clients that assign queues to themselves announce no topic, and count as
        consuming it.
        """
        return _consumes(self.seen.get(broker_name), topic) or _consumes(
            self.proxied, topic
        )

    def takes_push(self, broker_name: str) -> bool:
        """Whether the members obey a pushed reset: only push consumers do.

        Clients of proxies never get it.
        """
        each = self.seen.get(broker_name)
        return (
            each is not None
            and each.consume_type == "CONSUME_PASSIVELY"
            and not self.uses_grpc
        )


def _consumes(
    each: ConsumerConnection | None, topic: str
) -> TypeGuard[ConsumerConnection]:
    return each is not None and (not each.subscriptions or topic in each.subscriptions)


def read_members(client: Client, route: TopicRoute, group: str) -> Membership:
    """Query every broker of the topic for the members of the group.

    Raises NotFoundError when all brokers answer and none of them knows the group. When
    some could not be queried and the others do not know it, raises the first error, or
    NoBrokerError when no broker answers.
    """
    names = sorted({data.broker_name for data in route.queues if data.is_readable})
    addresses: dict[str, str] = {}
    errors: dict[str, RmqError] = {}
    for name in names:
        try:
            addresses[name] = client.master_of(route, name)
        except RmqError as error:
            errors[name] = error
    calls: list[Call[Any]] = [
        get_all_subscription_group_config(),
        get_consumer_connection_list(group),
    ]
    answers = client.ask_many(
        {
            (name, call.code): (at, call)
            for name, at in addresses.items()
            for call in calls
        }
    )
    is_known = False
    seen: dict[str, ConsumerConnection | None] = {}
    for name in addresses:
        config, connection = (answers[name, call.code] for call in calls)
        if isinstance(config, RmqError):
            errors[name] = config
        elif isinstance(connection, RmqError):
            errors[name] = connection
        else:
            is_known = is_known or group in config or connection is not None
            seen[name] = connection
    if not is_known:
        client.raise_if_none_answers(errors.values())
        raise next(iter(errors.values()), not_found("group", group))
    of_proxies = find_proxied_members(client, errors)
    proxied = of_proxies.by_group.get(group)
    return Membership(
        seen,
        errors,
        None if proxied is None else proxied[0],
        None if proxied is not None else of_proxies.unknown_because,
    )


def find_methods(
    client: Client,
    request: ResetRequest,
    members: Membership,
    *,
    queues: Mapping[MessageQueue, QueueFacts],
    aimed: Sequence[QueueFacts],
    uses_pop: bool,
) -> dict[MethodKey, ResetMethod]:
    """Find how to set the offsets of one topic on each of its brokers.

    `queues` holds all queues of the topic, `aimed` those to reset. `uses_pop`:
    something shows that the group consumes by POP, or nothing can show that it does
    not.
    """
    tasks = {}
    for key in dict.fromkeys(method_key(each.queue) for each in aimed):
        mine = [each for each in aimed if method_key(each.queue) == key]
        broker = _Broker(client, request, members, *key, queues, mine)
        tasks[key] = broker.find_method(uses_pop=uses_pop)
    found = run_task(client, every(*tasks.values()))
    return dict(zip(tasks, found, strict=True))


@dataclass(slots=True, eq=False)
class _Broker:
    """One topic on one broker: how to set the offsets of `aimed`, queues of it.

    `queues` holds all queues of the topic.
    """

    _client: Client
    _request: ResetRequest
    _members: Membership
    _topic: str
    _name: str
    _queues: Mapping[MessageQueue, QueueFacts]
    _aimed: Sequence[QueueFacts]
    _route: TopicRoute = field(init=False)
    _address: str = field(init=False)
    _version: int = field(init=False)

    def __post_init__(self) -> None:
        self._route = self._client.route(self._topic)
        self._address = self._client.master_of(self._route, self._name)
        self._version = self._client.broker_version(self._address)

    def find_method(self, *, uses_pop: bool) -> Task[ResetMethod]:
        is_live = self._members.is_live(self._name, self._topic)
        is_server_side = keeps_positions = False
        unread: RmqError | None = None
        if is_live or uses_pop or self._version >= V5_3_0:
            settings = yield from _read_settings(self._address, self._version)
            is_server_side, keeps_positions, unread = settings
        push = None
        if is_live and not is_server_side and self._members.takes_push(self._name):
            push = yield from self._find_push()
        method = choose_method(
            address=self._address,
            version=version_name(self._version),
            is_live=is_live,
            is_server_side=is_server_side,
            uses_pop=uses_pop,
            keeps_positions=keeps_positions,
            push=push,
            wants_proof=self._request.wants_proof,
        )
        if unread is None or method.mechanism is not Mechanism.SERVER_RESET:
            return method
        return replace(
            method,
            warning=(
                f"{self._name} did not show its settings, so that it is not known"
                " whether it resets offsets itself (useServerSideResetOffset):"
                f" {unread.message}"
            ),
        )

    def _find_push(self) -> Task[PushRequest | None]:
        written = {
            data.write_queue_nums
            for data in self._route.queues
            if data.broker_name == self._name
        }
        ids = range(max(written, default=0))
        targets = {each.queue: plan_queue(each).target for each in self._aimed}
        if any(queue.queue_id not in ids for queue in targets):
            return None  # the broker pushes its write queues only
        queues = [
            replace(plan_queue(facts), target=targets.get(queue))
            for queue, facts in self._queues.items()
            if queue.broker_name == self._name and queue.queue_id in ids
        ]
        if len(queues) != len(ids):
            return None
        timestamps = yield from self._timestamps()
        asked = [
            (timestamp_ms, queue_id)
            for timestamp_ms in timestamps
            if timestamp_ms != TIMESTAMP_MAX_OFFSET
            for queue_id in ids
        ]
        answers = yield All(
            [
                Request(
                    self._address,
                    search_offset_by_timestamp(self._topic, queue_id, timestamp_ms),
                )
                for timestamp_ms, queue_id in asked
            ]
        )
        searches: dict[int, dict[int, int]] = {each: {} for each in timestamps}
        searches[TIMESTAMP_MAX_OFFSET] = {
            each.queue.queue_id: each.max_offset for each in queues
        }
        for (timestamp_ms, queue_id), found in zip(asked, answers, strict=True):
            if not isinstance(found, RmqError):
                searches[timestamp_ms][queue_id] = found
        return find_push(queues, searches)

    def _timestamps(self) -> Task[list[int]]:
        """Return timestamps to try: ends, requested time, store times of targets."""
        timestamps, target = [TIMESTAMP_MAX_OFFSET, 0], self._request.target
        if isinstance(target, ToPosition) and isinstance(target.position, AtTime):
            timestamps.append(target.position.epoch_ms)
        places = [
            (each.queue, each.wanted)
            for each in self._aimed
            if each.wanted is not None
            and each.min_offset <= each.wanted < each.max_offset
        ]
        found = yield from read_messages(self._client, places[:_TIMESTAMPS_MAX])
        timestamps += [message.store_timestamp_ms for message in found.values()]
        return list(dict.fromkeys(timestamps))[:_TIMESTAMPS_MAX]


def _read_settings(
    address: str, version: int
) -> Task[tuple[bool, bool, RmqError | None]]:
    """Return whether the broker resets by queue and offset, and keeps POP's positions.

    A broker that does not reset so would ignore the offset and go by the timestamp
    alone, so the broker's own setting is queried. One that keeps positions of POP apart
    from the committed offsets would ignore a commit, and the read-back would not show
    it. With an error, the settings are not known: then it is taken for one that does
    both, because the read-back shows whether it did reset.
    """
    if version < V5_1_0:
        return False, False, None
    try:
        config = yield Request(address, get_broker_config())
    except RmqError as error:
        return version >= V5_2_0, version >= V5_3_0, error
    default = "true" if version >= V5_2_0 else "false"
    return (
        config.get("useServerSideResetOffset", default) == "true",
        config.get("popConsumerKVServiceEnable") == "true",
        None,
    )
