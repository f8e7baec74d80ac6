"""The engine's `Network` over the remoting protocol.

Each method chooses the broker and its address, and builds the request; the tasks run in
the thread that runs the engine. Pulls and queries go to a slave while there is no
master. A commit with an answer goes to the address from which the offset is read.
Locks, messages that are sent back, and checks of expressions need the master.

Source: MQClientAPIImpl, PullAPIWrapper, RemoteBrokerOffsetStore, RebalanceImpl.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.api.broker_errors import lost_broker
from rmqcli.api.call import of_broker
from rmqcli.api.calls.client import (
    consumer_send_msg_back,
    lock_batch_mq,
    send_heartbeat,
    unlock_batch_mq,
    unregister_client,
)
from rmqcli.api.calls.consumer import (
    check_client_config,
    get_consumer_connection_list,
    get_consumer_list_by_group,
)
from rmqcli.api.calls.namesrv import get_route_info_by_topic
from rmqcli.api.calls.offset import (
    get_max_offset,
    query_consumer_offset,
    update_consumer_offset,
)
from rmqcli.api.calls.pull import pull_for_group
from rmqcli.api.calls.send import send_message
from rmqcli.api.positions import RemoteQueue, resolve_in_queue
from rmqcli.api.routes import reading_address
from rmqcli.errors import NotFoundError, RmqError, TransportError
from rmqcli.model import MASTER_ID, MessageQueue
from rmqcli.tasks import All, Request, every, failed
from rmqcli.wire.compression import never_empty
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.properties import encode_properties
from rmqcli.wire.pull_answer import PullStatus, parse_pull_answer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.engine.interfaces import PullAsk, RetryMessage, SendBack
    from rmqcli.model import BrokerData, TopicRoute
    from rmqcli.position import Position
    from rmqcli.tasks import Answer, Pending, Task
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.bodies.heartbeat import HeartbeatData
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")

_API_TIMEOUT_MS = 3_000  # ClientConfig.mqClientApiTimeout
_OFFSET_TIMEOUT_MS = 5_000
_LOCK_TIMEOUT_MS = 1_000
_SEND_BACK_TIMEOUT_MS = 5_000
_SEND_TRIES_MAX = 3  # 1 + DefaultMQProducer.retryTimesWhenSendFailed
_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"  # MixAll.CLIENT_INNER_PRODUCER_GROUP
_DEFAULT_TOPIC = "TBW102"
_DEFAULT_TOPIC_QUEUE_NUMS = 4


class RemotingNetwork:
    """Implements `engine.interfaces.Network`."""

    def __init__(self, client: Client, *, rng: random.Random | None = None) -> None:
        self._client = client
        self._routes = client.known_routes
        self._rng = rng or random.Random()  # noqa: S311  # spreads load, no secret
        #: queue -> the broker id that the last answer suggested for the next pull
        self._suggested: dict[MessageQueue, int] = {}

    def submit(self, request: Request[T]) -> Pending[T]:
        """See Network."""
        return self._client.submit(
            request.address, request.call, timeout_ms=request.timeout_ms
        )

    def fetch_queues(self, topic: str) -> Task[list[MessageQueue]]:
        """See Network."""
        route = yield from self._fetch_route(topic)
        return route.read_queues()

    def keep_topics(self, topics: Collection[str]) -> None:
        """See Network."""
        for topic in set(self._routes.topics()) - set(topics):
            self._client.forget(topic)
        for queue in [q for q in self._suggested if q.topic not in topics]:
            del self._suggested[queue]

    def brokers(self, topic: str | None = None) -> list[str]:
        """See Network."""
        if topic is None:
            return sorted(self._routes.addresses_by_broker())
        names = [each.broker_name for each in self._routes.brokers(topic)]
        self._rng.shuffle(names)
        return names

    def is_broker(self, address: str) -> bool:
        """See Network."""
        return self._routes.has_broker_at(address)

    def consumer_ids(self, group: str, broker_name: str) -> Task[list[str]]:
        """See Network."""
        broker = self._routes.broker(broker_name)
        if broker is None:
            raise no_broker("(any)", broker_name)
        address = _reading(broker)[1]
        ids: list[str] = yield Request(
            address, get_consumer_list_by_group(group), _API_TIMEOUT_MS
        )
        return ids

    def consumer_connection(
        self, group: str, topic: str
    ) -> Task[ConsumerConnection | None]:
        """See Network."""
        brokers = [each for each in self._routes.brokers(topic) if each.addresses]
        if not brokers:
            raise no_broker(topic)
        address = _reading(self._rng.choice(brokers))[1]
        connection: ConsumerConnection | None = yield Request(
            address, get_consumer_connection_list(group), _API_TIMEOUT_MS
        )
        return connection

    def query_offset(self, group: str, queue: MessageQueue) -> Task[int | None]:
        """See Network."""
        return self._at_any(
            queue,
            query_consumer_offset(
                group, queue.topic, queue.queue_id, set_zero_if_not_found=None
            ),
        )

    def update_offset(self, group: str, queue: MessageQueue, offset: int) -> Task[None]:
        """See Network."""
        yield from self._at_any(queue, _update_offset(group, queue, offset))

    def update_offset_oneway(
        self, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """See Network."""
        call = of_broker(_update_offset(group, queue, offset), queue.broker_name)
        self._oneway(queue, call)

    def max_offset(self, queue: MessageQueue) -> Task[int]:
        """See Network."""
        return self._at_any(queue, get_max_offset(queue.topic, queue.queue_id))

    def resolve(self, queue: MessageQueue, position: Position) -> Task[int]:
        """See Network. The same search as that of `rmq tail --from`."""
        address = yield from self._address(queue)
        remote = RemoteQueue(queue, address, self._client.clock)
        found = yield from resolve_in_queue(remote, position)
        assert found.offset is not None  # no group begins at AtGroup  # noqa: S101
        return found.offset

    def lock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> Task[set[MessageQueue]]:
        """See Network. Only masters keep locks."""
        call = lock_batch_mq(group, client_id, queues)
        return self._at_master(queues[0], call, _LOCK_TIMEOUT_MS)

    def unlock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> Task[None]:
        """See Network. Only masters keep locks."""
        call = unlock_batch_mq(group, client_id, queues)
        return self._at_master(queues[0], call, _LOCK_TIMEOUT_MS)

    def unlock_oneway(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> None:
        """See Network."""
        self._oneway(queues[0], unlock_batch_mq(group, client_id, queues))

    def heartbeat(self, heartbeat: HeartbeatData, broker_name: str) -> Task[None]:
        """See Network."""
        call = send_heartbeat(heartbeat)
        addresses = self._routes.addresses_by_broker().get(broker_name)
        if addresses is None:
            raise no_broker("(any)", broker_name)
        # All of them are sent at once; the master's answer is awaited first.
        master, *slaves = [self._sent(each, call) for each in addresses]
        try:
            yield master
        except RmqError:
            outcomes = yield All(slaves)
            if all(isinstance(each, RmqError) for each in outcomes):
                raise

    def unregister(self, client_id: str, group: str, broker_name: str) -> Task[None]:
        """See Network."""
        call = unregister_client(client_id, consumer_group=group)
        addresses = self._routes.addresses_by_broker().get(broker_name, [])
        yield from every(*(Request(each, call, _API_TIMEOUT_MS) for each in addresses))

    def check_subscription(
        self,
        client_id: str,
        group: str,
        subscription: SubscriptionData,
        broker_name: str,
    ) -> Task[None]:
        """See Network. Only masters compile expressions."""
        address = self._master(subscription.topic, broker_name)
        call = check_client_config(subscription, client_id=client_id, group=group)
        yield Request(address, call, _API_TIMEOUT_MS)

    def send_back(self, message: SendBack) -> Task[None]:
        """See Network."""
        address = self._master(message.origin_topic, message.broker_name)
        call = consumer_send_msg_back(
            ConsumerSendMsgBackRequestHeader(
                offset=message.commit_log_offset,
                group=message.group,
                delay_level=message.delay_level,
                origin_msg_id=message.origin_msg_id,
                origin_topic=message.origin_topic,
                max_reconsume_times=message.max_reconsume_times,
            )
        )
        call = of_broker(call, message.broker_name)
        yield Request(address, call, _SEND_BACK_TIMEOUT_MS)

    def send_retry(self, message: RetryMessage) -> Task[None]:
        """See Network. It fetches the route, and then tries brokers in turn."""
        route = yield from self._fetch_route(message.topic)
        queues = route.write_queues()
        self._rng.shuffle(queues)
        # One queue of each broker: another queue of the same broker would fail, too.
        by_broker = list({queue.broker_name: queue for queue in queues}.values())
        failure: RmqError = no_broker(message.topic)
        body, sys_flag = never_empty(message.body)
        for queue in by_broker[:_SEND_TRIES_MAX]:
            born_ms = self._client.clock.epoch_ms()
            call = send_message(_retry_header(message, queue, sys_flag, born_ms), body)
            try:
                yield from self._at_master(queue, call, _SEND_BACK_TIMEOUT_MS)
            except RmqError as error:
                failure = error
            else:
                return
        raise failure

    def pull(self, ask: PullAsk) -> Answer[PullAnswer]:
        """See Network."""
        broker = self._routes.broker(ask.queue.broker_name)
        if broker is None:
            return self._fetch_broker_and_pull(ask)
        # No task where the broker is known: a busy consumer pulls thousands of times a
        # second, and starting a generator costs as much as the rest of this method.
        return self._pull_from(broker, ask)

    def _fetch_broker_and_pull(self, ask: PullAsk) -> Task[PullAnswer]:
        broker = yield from self._fetch_broker(ask.queue)
        answer: PullAnswer = yield self._pull_from(broker, ask)
        return answer

    def _pull_from(self, broker: BrokerData, ask: PullAsk) -> Pending[PullAnswer]:
        """Send a pull. If it cannot be sent, the Pending has failed."""
        queue = ask.queue
        suggested = self._suggested.get(queue, MASTER_ID)
        broker_id, address = _reading(broker, suggested)
        call = pull_for_group(
            ask.group,
            queue,
            ask.queue_offset,
            commit_offset=ask.commit_offset if broker_id == MASTER_ID else None,
            max_msg_nums=ask.max_msg_nums,
            suspend_ms=ask.suspend_ms,
            sub_version=ask.sub_version,
            expression=ask.expression,
            expression_type=ask.expression_type,
        )
        if broker_id != MASTER_ID:
            parse = functools.partial(_parse_slave_answer, ask.queue_offset)
            call = dataclasses.replace(call, parse=parse)
        pending: Pending[PullAnswer]
        try:
            pending = self._client.submit(address, call, timeout_ms=ask.timeout_ms)
        except RmqError as error:
            pending = failed(error)
        # This is the first callback, because the engine pulls again in its own one.
        pending.on_done(functools.partial(self._note_suggestion, queue))
        return pending

    def _note_suggestion(self, queue: MessageQueue, pull: Pending[PullAnswer]) -> None:
        """Remember which broker id to pull the queue from next."""
        try:
            answer = pull.result()
        except TransportError:
            # A slave that died must not be asked again until it has left the route.
            self._suggested.pop(queue, None)
        except RmqError:
            pass  # a broker that refuses suggests nothing
        else:
            self._suggested[queue] = answer.suggest_which_broker_id

    def _at_any(self, queue: MessageQueue, call: Call[T]) -> Task[T]:
        """Ask the queue's master or, while it has none, a slave."""
        address = yield from self._address(queue)
        call = of_broker(call, queue.broker_name)
        answer: T = yield Request(address, call, _OFFSET_TIMEOUT_MS)
        return answer

    def _address(self, queue: MessageQueue) -> Task[str]:
        broker = self._routes.broker(queue.broker_name)
        if broker is None:
            broker = yield from self._fetch_broker(queue)
        return _reading(broker)[1]

    def _at_master(
        self, queue: MessageQueue, call: Call[T], timeout_ms: int
    ) -> Task[T]:
        address = self._master(queue.topic, queue.broker_name)
        answer: T = yield Request(address, call, timeout_ms)
        return answer

    def _master(self, topic: str, broker_name: str) -> str:
        """The master's address. Raises NotFoundError when there is none."""
        broker = self._routes.broker(broker_name)
        if broker is None or broker.master_address is None:
            raise no_broker(topic, broker_name)
        return broker.master_address

    def _fetch_route(self, topic: str) -> Task[TopicRoute]:
        """Fetch a route from the name servers, and remember it.

        The last good route is kept while no name server has the route, and while the
        new one has no readable queues, so that a name server that restarts takes no
        queues away.
        """
        try:
            route = yield from self._client.ask_namesrvs(
                get_route_info_by_topic(topic),
                timeout_ms=_API_TIMEOUT_MS * len(self._client.config.namesrv),
                needs_all_for_not_found=True,
            )
        except RmqError:
            known = self._routes.get(topic)
            if known is None:
                raise
            return known
        known = self._routes.get(topic)
        if known is not None and not route.read_queues():
            return known
        self._client.remember(topic, route)
        return route

    def _fetch_broker(self, queue: MessageQueue) -> Task[BrokerData]:
        """Fetch the topic's route, for a broker that is in no known route."""
        try:
            yield from self._fetch_route(queue.topic)
        except RmqError as error:
            raise no_broker(queue.topic, queue.broker_name) from error
        found = self._routes.broker(queue.broker_name)
        if found is None:
            raise no_broker(queue.topic, queue.broker_name)
        return found

    def _sent(self, address: str, call: Call[T]) -> Pending[T]:
        """Send a request. If it cannot be sent, the Pending has failed."""
        try:
            return self.submit(Request(address, call, _API_TIMEOUT_MS))
        except RmqError as error:
            return failed(error)

    def _oneway(self, queue: MessageQueue, call: Call[Any]) -> None:
        broker = self._routes.broker(queue.broker_name)
        if broker is None:
            return  # like any one-way request, it may be lost
        try:
            self._client.send_oneway(_reading(broker)[1], call)
        except RmqError:
            return  # likewise


def _reading(broker: BrokerData, broker_id: int = MASTER_ID) -> tuple[int, str]:
    """Broker id and address to read from; the broker has at least one address."""
    found = reading_address(broker, broker_id)
    assert found is not None  # a cached broker has an address  # noqa: S101
    return found


def no_broker(topic: str, broker_name: str = "(any)") -> NotFoundError:
    """The error when no broker of a topic is known, or not the one of that name."""
    return lost_broker(f"no broker {broker_name} is in the route of topic {topic}")


def _update_offset(group: str, queue: MessageQueue, offset: int) -> Call[str]:
    return update_consumer_offset(
        group, queue.topic, queue.queue_id, commit_offset=offset
    )


def _parse_slave_answer(asked_offset: int, answer: RemotingCommand) -> PullAnswer:
    """Read a slave's answer; it does not decide that a queue ends before an offset.

    It may not have received yet what the master has. With `offsetCheckInSlave` it
    corrects such an offset all the same; without, it answers as this does.
    """
    pulled = parse_pull_answer(answer)
    if (
        pulled.status is not PullStatus.OFFSET_ILLEGAL
        or pulled.max_offset >= asked_offset
    ):
        return pulled
    return dataclasses.replace(
        pulled,
        status=PullStatus.NO_MATCHED_MSG,
        next_begin_offset=asked_offset,
        suggest_which_broker_id=MASTER_ID,
    )


def _retry_header(
    message: RetryMessage, queue: MessageQueue, sys_flag: int, born_ms: int
) -> SendMessageRequestHeaderV2:
    properties = dict(message.properties)
    # These two are sent in the header, as by a Java producer.
    for name in ("RECONSUME_TIME", "MAX_RECONSUME_TIMES"):
        properties.pop(name, None)
    return SendMessageRequestHeaderV2(
        producer_group=_INNER_PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=_DEFAULT_TOPIC,
        default_topic_queue_nums=_DEFAULT_TOPIC_QUEUE_NUMS,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=message.flag,
        properties=encode_properties(properties),
        reconsume_times=message.reconsume_times,
        unit_mode=False,
        max_reconsume_times=message.max_reconsume_times,
        batch=False,
        bname=queue.broker_name,
    )
