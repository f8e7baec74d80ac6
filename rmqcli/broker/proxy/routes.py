"""Routes of topics, their message types, and settings of consumer groups.

They come from the name server and the brokers, and are cached for a second, so that not
every send queries them (RocketMQ's proxy caches them for 20 s). The calls QueryRoute
and QueryAssignment answer with them.

Source: `RouteActivity`, `ClusterTopicRouteService`, `ClusterMetadataService` and
`MessageQueueSelector` in apache/rocketmq.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmqcli.broker.proxy.checks import check_topic, checked_names
from rmqcli.broker.proxy.status import ProxyError, ok, reading_answer, refused
from rmqcli.dataclass import dataclass
from rmqcli.model import MASTER_ID, QueueData, TopicRoute
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC
from rmqcli.wire.bodies.route import parse_cluster_info, parse_topic_route
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.config import (
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from rmqcli.wire.headers.namesrv import GetRouteInfoRequestHeader
from rmqcli.wire.ids import message_group_index
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.broker.proxy.brokers import BrokerLinks
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.clock import Clock

T = TypeVar("T")

_KEPT_MS: Final = 1_000
KEPT_MAX: Final = 10_000

UNSPECIFIED: Final = "UNSPECIFIED"
_MIXED: Final = "MIXED"
#: The topic attribute message.type -> the message types that the topic accepts.
_OF_MIXED: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
_ACCEPTED: Final = {
    **{kind: (kind,) for kind in (*_OF_MIXED, "LITE", "PRIORITY")},
    _MIXED: _OF_MIXED,
}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, or all queues of a broker if the id is -1, and the broker's address."""

    broker_name: str
    queue_id: int
    address: str


class _Kept(Generic[T]):
    """A bounded cache, whose values are valid for a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, tuple[int, T]] = {}

    def get(self, key: str) -> T | None:
        found = self._values.get(key)
        if found is None or self._clock.monotonic_ms() - found[0] > _KEPT_MS:
            return None
        return found[1]

    def put(self, key: str, value: T) -> None:
        if len(self._values) >= KEPT_MAX:
            self._values.clear()
        self._values[key] = (self._clock.monotonic_ms(), value)


class ProxyRoutes:
    """Routes, types of topics and settings of groups, for use in the event loop."""

    def __init__(self, links: BrokerLinks, clock: Clock, own: pb.Endpoints) -> None:
        self._links = links
        #: where clients reach the proxy, unless their request names an address
        self._own = own
        self._routes: _Kept[TopicRoute] = _Kept(clock)
        self._types: _Kept[str] = _Kept(clock)
        self._groups: _Kept[SubscriptionGroupConfig] = _Kept(clock)
        self._turns = itertools.count()
        #: broker name -> address, of the masters that the name server last reported
        self._addresses: dict[str, str] = {}

    # --- used by other calls ---

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises ProxyError(TOPIC_NOT_FOUND)."""
        route = self._routes.get(topic)
        if route is None:
            answer = await self._links.ask(
                self._links.namesrv,
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader(topic=topic),
            )
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer)
            with reading_answer():
                route = parse_topic_route(topic, bytes(answer.body))
            self._routes.put(topic, route)
        return route

    async def message_type(self, topic: str) -> str:
        """Return the topic's message.type: NORMAL without one, UNSPECIFIED if unknown.

        Source: ClusterMetadataService.getTopicMessageType.
        """
        kind = self._types.get(topic)
        if kind is None:
            kind = await self._ask_type(topic)
            if kind != UNSPECIFIED:
                self._types.put(topic, kind)
        return kind

    async def check_type(self, topic: str, kind: str) -> None:
        """Raise ProxyError unless the topic takes messages of this type."""
        wanted = await self.message_type(topic)
        if wanted not in (kind, _MIXED):
            raise ProxyError(
                pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {wanted}, but "
                f"actual type is {kind}",
            )

    async def _ask_type(self, topic: str) -> str:
        try:
            _, address = next(_masters(await self.route(topic)))
        except (ProxyError, StopIteration):
            return UNSPECIFIED
        answer = await self._links.ask(
            address,
            RequestCode.GET_TOPIC_CONFIG,
            GetTopicConfigRequestHeader(topic=topic),
        )
        if answer.code != ResponseCode.SUCCESS:
            return UNSPECIFIED
        with reading_answer():
            config = decode_body(TopicConfig, bytes(answer.body))
        return config.attributes.get("message.type", "NORMAL").upper()

    async def group(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's settings; None if no broker knows it or may create it."""
        config = self._groups.get(group)
        if config is None:
            for address in (await self.brokers()).values():
                answer = await self._links.ask(
                    address,
                    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
                    GetSubscriptionGroupConfigRequestHeader(group=group),
                )
                if answer.code == ResponseCode.SUCCESS:
                    with reading_answer():
                        config = decode_body(
                            SubscriptionGroupConfig, bytes(answer.body)
                        )
                    self._groups.put(group, config)
                    break
        return config

    async def brokers(self) -> dict[str, str]:
        """Return the addresses of the masters, by broker name. Raises ProxyError."""
        answer = await self._links.ask(
            self._links.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        with reading_answer():
            info = parse_cluster_info(bytes(answer.body))
        return {
            name: data.addresses[MASTER_ID]
            for name, data in info.brokers.items()
            if MASTER_ID in data.addresses
        }

    async def any_writable(self, topic: str, sharding_key: str) -> Queue | None:
        """Return a queue to send to: in turn, or the same one for a sharding key.

        That is a message group or a lite topic. None if no queue is writable. Source:
        SendMessageQueueSelector.
        """
        route = await self.route(topic)
        queues = route.write_queues()
        if not queues:
            return None
        if sharding_key:
            index = message_group_index(sharding_key, len(queues))
        else:
            index = next(self._turns) % len(queues)
        queue = queues[index]
        broker = route.broker(queue.broker_name)
        assert broker is not None, queue  # noqa: S101  # of a write queue
        return Queue(queue.broker_name, queue.queue_id, broker.addresses[MASTER_ID])

    async def readable(self, topic: str, broker_name: str) -> Queue | None:
        """Return all queues of one broker: the named one, or otherwise each in turn.

        None if no queue is readable. Source: ReceiveMessageQueueSelector.
        """
        queues = await self._readable(topic)
        for queue in queues:
            if queue.broker_name == broker_name:
                return queue
        return queues[next(self._turns) % len(queues)] if queues else None

    async def readable_masters(self, topic: str) -> list[str]:
        """Return the addresses of the masters on which the topic can be read."""
        return [queue.address for queue in await self._readable(topic)]

    async def _readable(self, topic: str) -> list[Queue]:
        return [
            Queue(data.broker_name, -1, address)
            for data, address in _masters(await self.route(topic))
            if data.is_readable and data.read_queue_nums
        ]

    async def address_of(self, broker_name: str) -> str | None:
        """Return the address of a broker's master, or None if there is none."""
        if broker_name not in self._addresses:
            self._addresses = await self.brokers()
        return self._addresses.get(broker_name)

    # --- the calls ---

    async def query_route(
        self, _caller: Caller, request: service.QueryRouteRequest
    ) -> service.QueryRouteResponse:
        """QueryRoute: each queue, with the proxy's endpoints as those of the broker."""
        check_topic(request.topic.name)
        route = await self.route(request.topic.name)
        types = _ACCEPTED.get(
            await self.message_type(request.topic.name),
            ("MESSAGE_TYPE_UNSPECIFIED",),
        )
        endpoints = self._endpoints(request.endpoints)
        queues = [
            pb.MessageQueue(
                topic=request.topic,
                id=queue_id,
                permission=permission,
                broker=_broker(data.broker_name, endpoints),
                accept_message_types=types,
            )
            for data, _ in _masters(route)
            for queue_id, permission in enumerate(_permissions(data))
        ]
        return service.QueryRouteResponse(status=ok(), message_queues=queues)

    async def query_assignment(
        self, _caller: Caller, request: service.QueryAssignmentRequest
    ) -> service.QueryAssignmentResponse:
        """QueryAssignment: one assignment for each broker, or for each queue if FIFO.

        A group of lite topics has one for each broker, too. As with RocketMQ's proxy,
        every client gets all of them.
        """
        topic, group = checked_names(request.topic, request.group)
        route = await self.route(topic)
        config = await self.group(group)
        is_fifo = (
            config is not None
            and config.consume_message_orderly
            and not config.attributes.get(LITE_BIND_TOPIC)
        )
        endpoints = self._endpoints(request.endpoints)
        assignments = [
            pb.Assignment(
                message_queue=pb.MessageQueue(
                    topic=request.topic,
                    id=queue_id,
                    permission=(
                        pb.Permission.READ_WRITE
                        if data.is_writable
                        else pb.Permission.READ
                    ),
                    broker=_broker(data.broker_name, endpoints),
                )
            )
            for data, _ in _masters(route)
            if data.is_readable and data.read_queue_nums
            for queue_id in (range(data.read_queue_nums) if is_fifo else (-1,))
        ]
        if not assignments:
            raise ProxyError(pb.Code.FORBIDDEN, "no readable queue")
        return service.QueryAssignmentResponse(status=ok(), assignments=assignments)

    def _endpoints(self, asked: pb.Endpoints) -> pb.Endpoints:
        """Return the proxy's address for a client: the one in its request, if any.

        RocketMQ replaces the port with its own, unless useEndpointPortFromRequest is
        set; a client that connects through a forwarded port could not reach that port.
        """
        return asked if asked.addresses else self._own


def _masters(route: TopicRoute) -> Iterator[tuple[QueueData, str]]:
    """Yield the queues of each broker that has a master, and the master's address."""
    for data in route.queues:
        broker = route.broker(data.broker_name)
        if broker is not None and MASTER_ID in broker.addresses:
            yield data, broker.addresses[MASTER_ID]


def _permissions(data: QueueData) -> list[pb.Permission]:
    """Return each queue's permission: first those that can only be read.

    Source: RouteActivity.genMessageQueueFromQueueData.
    """
    read = data.read_queue_nums if data.is_readable else 0
    write = data.write_queue_nums if data.is_writable else 0
    if not data.is_readable and not data.is_writable:
        count = max(1, data.read_queue_nums, data.write_queue_nums)
        return [pb.Permission.NONE] * count
    both = min(read, write)
    return (
        [pb.Permission.READ] * (read - both)
        + [pb.Permission.WRITE] * (write - both)
        + [pb.Permission.READ_WRITE] * both
    )


def _broker(name: str, endpoints: pb.Endpoints) -> pb.Broker:
    return pb.Broker(name=name, id=MASTER_ID, endpoints=endpoints)
