"""The engine's `Network` over remoting: one request each, and the answer as it comes.

Runs in the thread that drives the client; nothing waits.

Source: MQClientAPIImpl, PullAPIWrapper, RemoteBrokerOffsetStore, RebalanceImpl.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any, TypeVar

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
from rmqcli.api.calls.offset import (
    get_max_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
    update_consumer_offset,
)
from rmqcli.api.calls.pull import pull_for_group
from rmqcli.api.calls.send import send_message
from rmqcli.consumer.routes import Routes, no_broker, reading_address
from rmqcli.errors import RmqError, TransportError
from rmqcli.model import MASTER_ID
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.engine.interfaces import Done, PullAsk, RetryMessage, SendBack
    from rmqcli.model import BrokerData, MessageQueue, TopicRoute
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.bodies.heartbeat import HeartbeatData
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")

_API_TIMEOUT_MS = 3_000  # ClientConfig.mqClientApiTimeout
_OFFSET_TIMEOUT_MS = 5_000
_LOCK_TIMEOUT_MS = 1_000
_SEND_BACK_TIMEOUT_MS = 5_000
_SEND_TRIES_MAX = 3  # DefaultMQProducer.retryTimesWhenSendFailed, and the first
_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"  # MixAll.CLIENT_INNER_PRODUCER_GROUP
_DEFAULT_TOPIC = "TBW102"
_DEFAULT_TOPIC_QUEUE_NUMS = 4


class RemotingNetwork:
    """Satisfies `engine.ports.Network`."""

    def __init__(self, client: Client, *, rng: random.Random | None = None) -> None:
        self.routes = Routes(client)
        self._client = client
        self._rng = rng or random.Random()  # noqa: S311  # spreads load, no secret
        #: broker ids that answers suggested to pull from next
        self._suggested: dict[MessageQueue, int] = {}

    def fetch_queues(self, topic: str, done: Done[list[MessageQueue]]) -> None:
        """See Network."""

        def fetched(route: TopicRoute | RmqError) -> None:
            done(route if isinstance(route, RmqError) else route.read_queues())

        self.routes.fetch(topic, fetched)

    def keep_topics(self, topics: Collection[str]) -> None:
        """See Network."""
        self.routes.keep_topics(topics)
        for queue in [q for q in self._suggested if q.topic not in topics]:
            del self._suggested[queue]

    def brokers(self, topic: str | None = None) -> list[str]:
        """See Network."""
        if topic is None:
            return sorted(self.routes.addresses_by_broker())
        names = [each.broker_name for each in self.routes.brokers(topic)]
        self._rng.shuffle(names)
        return names

    def is_broker(self, address: str) -> bool:
        """See Network."""
        return address in self.routes.addresses()

    def consumer_ids(self, group: str, broker_name: str, done: Done[list[str]]) -> None:
        """See Network."""
        broker = self.routes.broker(broker_name)
        if broker is None:
            done(no_broker_of("(any)", broker_name))
            return
        address = reading_address(broker, MASTER_ID)[1]
        call = get_consumer_list_by_group(group)
        self._submit(address, call, _API_TIMEOUT_MS, done)

    def consumer_connection(
        self, group: str, topic: str, done: Done[ConsumerConnection | None]
    ) -> None:
        """See Network."""
        brokers = [each for each in self.routes.brokers(topic) if each.addresses]
        if not brokers:
            done(no_broker_of(topic))
            return
        address = reading_address(self._rng.choice(brokers), MASTER_ID)[1]
        call = get_consumer_connection_list(group)
        self._submit(address, call, _API_TIMEOUT_MS, done)

    def query_offset(
        self, group: str, queue: MessageQueue, done: Done[int | None]
    ) -> None:
        """See Network."""
        call = query_consumer_offset(
            group, queue.topic, queue.queue_id, set_zero_if_not_found=None
        )
        self._at_any(queue, call, done)

    def update_offset(
        self,
        group: str,
        queue: MessageQueue,
        offset: int,
        done: Done[None] | None = None,
    ) -> None:
        """See Network."""
        call = update_consumer_offset(
            group, queue.topic, queue.queue_id, commit_offset=offset
        )
        if done is None:
            self._oneway(queue, call)
        else:
            self._at_any(queue, call, lambda end: done(_no_more(end)))

    def max_offset(self, queue: MessageQueue, done: Done[int]) -> None:
        """See Network."""
        self._at_any(queue, get_max_offset(queue.topic, queue.queue_id), done)

    def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, done: Done[int]
    ) -> None:
        """See Network."""
        call = search_offset_by_timestamp(queue.topic, queue.queue_id, timestamp_ms)
        self._at_any(queue, call, done)

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        done: Done[set[MessageQueue]],
    ) -> None:
        """See Network: at the master only."""
        call = lock_batch_mq(group, client_id, queues)
        self._at_master(queues[0], call, _LOCK_TIMEOUT_MS, done)

    def unlock(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        done: Done[None] | None = None,
    ) -> None:
        """See Network: at the master only."""
        call = unlock_batch_mq(group, client_id, queues)
        if done is None:
            self._oneway(queues[0], call)
        else:
            self._at_master(queues[0], call, _LOCK_TIMEOUT_MS, done)

    def heartbeat(
        self,
        heartbeat: HeartbeatData,
        done: Done[int],
        each: Callable[[str, RmqError | None], None] | None = None,
    ) -> None:
        """See Network."""
        call = send_heartbeat(heartbeat)
        brokers = self.routes.addresses_by_broker()
        outcomes: dict[str, RmqError | None] = {}
        left = dict(brokers)

        def answered(address: str, outcome: RmqError | None) -> None:
            outcomes[address] = outcome
            for name, addresses in list(left.items()):
                if address not in addresses:
                    continue
                known = [outcomes[at] for at in addresses if at in outcomes]
                is_over = len(known) == len(addresses)
                took = None in known if is_over else _took(outcomes, addresses[0])
                if is_over or took:
                    del left[name]
                    if each is not None:
                        each(name, None if took else outcome)
            if len(outcomes) == len(asked):
                errors = [each for each in outcomes.values() if each is not None]
                is_refused = len(errors) == len(outcomes)
                done(errors[-1] if is_refused else len(outcomes) - len(errors))

        asked = sorted({at for addresses in brokers.values() for at in addresses})
        if not asked:
            done(0)
        for address in asked:
            take = functools.partial(answered, address)
            self._submit(address, call, _API_TIMEOUT_MS, take)

    def unregister(
        self, client_id: str, group: str, broker_name: str, done: Done[None]
    ) -> None:
        """See Network."""
        call = unregister_client(client_id, group)
        addresses = self.routes.addresses_by_broker().get(broker_name, [])
        outcomes: list[RmqError | None] = []

        def answered(outcome: RmqError | None) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(addresses):
                errors = [each for each in outcomes if each is not None]
                done(errors[0] if errors else None)

        if not addresses:
            done(None)
        for address in addresses:
            self._submit(address, call, _API_TIMEOUT_MS, answered)

    def check_subscription(
        self,
        client_id: str,
        group: str,
        subscription: SubscriptionData,
        broker_name: str,
        done: Done[None],
    ) -> None:
        """See Network: a master only."""
        call = check_client_config(subscription, client_id=client_id, group=group)
        broker = self.routes.broker(broker_name)
        address = None if broker is None else broker.master_address
        if address is None:
            done(no_broker_of(subscription.topic, broker_name))
        else:
            self._submit(address, call, _API_TIMEOUT_MS, done)

    def send_back(self, message: SendBack, done: Done[None]) -> None:
        """See Network."""
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
        broker = self.routes.broker(message.broker_name)
        address = None if broker is None else broker.master_address
        if address is None:
            done(no_broker_of(message.origin_topic, message.broker_name))
        else:
            self._submit(address, call, _SEND_BACK_TIMEOUT_MS, done)

    def send_retry(self, message: RetryMessage, done: Done[None]) -> None:
        """See Network. The route is asked for anew; then one broker after the other."""

        def send(route: TopicRoute | RmqError) -> None:
            if isinstance(route, RmqError):
                done(route)
                return
            queues = route.write_queues()
            self._rng.shuffle(queues)
            # One queue of each broker: another one of the same would fail likewise.
            places = list({queue.broker_name: queue for queue in queues}.values())
            error = no_broker_of(message.topic)
            self._send_retry(places[:_SEND_TRIES_MAX], message, error, done)

        self.routes.fetch(message.topic, send)

    def _send_retry(
        self,
        queues: Sequence[MessageQueue],
        message: RetryMessage,
        error: RmqError,
        done: Done[None],
    ) -> None:
        """Send it to the first queue that takes it; else the last error."""
        if not queues:
            done(error)
            return
        first, *others = queues

        def sent(outcome: object) -> None:
            if isinstance(outcome, RmqError):
                self._send_retry(others, message, outcome, done)
            else:
                done(None)

        born_ms = self._client.clock.epoch_ms()
        call = send_message(_retry_header(message, first, born_ms), message.body)
        self._at_master(first, call, _SEND_BACK_TIMEOUT_MS, sent)

    def pull(self, ask: PullAsk, done: Done[PullAnswer]) -> None:
        """See Network."""
        broker = self.routes.broker(ask.queue.broker_name)
        if broker is None:
            self._with_broker(ask.queue, lambda found: self._pull(found, ask, done))
        else:
            self._pull(broker, ask, done)

    def _pull(
        self, broker: BrokerData | RmqError, ask: PullAsk, done: Done[PullAnswer]
    ) -> None:
        if isinstance(broker, RmqError):
            done(broker)
            return
        queue = ask.queue
        suggested = self._suggested.get(queue, MASTER_ID)
        broker_id, address = reading_address(broker, suggested)
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

        def pulled(answer: PullAnswer | RmqError) -> None:
            if not isinstance(answer, RmqError):
                self._suggested[queue] = answer.suggest_which_broker_id
            elif isinstance(answer, TransportError):
                # A slave that died must not be asked until its route is gone.
                self._suggested.pop(queue, None)
            done(answer)

        self._submit(address, call, ask.timeout_ms, pulled)

    def _at_any(self, queue: MessageQueue, call: Call[T], done: Done[T]) -> None:
        """Ask the queue's master, without one a slave (V10)."""

        def ask(broker: BrokerData | RmqError) -> None:
            if isinstance(broker, RmqError):
                done(broker)
            else:
                address = reading_address(broker, MASTER_ID)[1]
                self._submit(address, call, _OFFSET_TIMEOUT_MS, done)

        self._with_broker(queue, ask)

    def _at_master(
        self, queue: MessageQueue, call: Call[T], timeout_ms: int, done: Done[T]
    ) -> None:
        broker = self.routes.broker(queue.broker_name)
        if broker is None or broker.master_address is None:
            done(no_broker(queue))
        else:
            self._submit(broker.master_address, call, timeout_ms, done)

    def _with_broker(
        self, queue: MessageQueue, then: Callable[[BrokerData | RmqError], None]
    ) -> None:
        """Find the queue's broker; where it is unknown the route is asked for once."""
        known = self.routes.broker(queue.broker_name)
        if known is not None:
            then(known)
            return

        def fetched(route: TopicRoute | RmqError) -> None:
            found = self.routes.broker(queue.broker_name)
            then(no_broker(queue) if found is None else found)

        self.routes.fetch(queue.topic, fetched)

    def _submit(
        self, address: str, call: Call[T], timeout_ms: int, done: Done[T]
    ) -> None:
        try:
            self._client.submit(
                address,
                call,
                timeout_ms=timeout_ms,
                on_done=lambda pending: done(pending.outcome()),
            )
        except RmqError as error:
            done(error)

    def _oneway(self, queue: MessageQueue, call: Call[Any]) -> None:
        broker = self.routes.broker(queue.broker_name)
        if broker is None:
            return  # as any one-way request it may be lost
        try:
            self._client.send_oneway(reading_address(broker, MASTER_ID)[1], call)
        except RmqError:
            return  # likewise


def no_broker_of(topic: str, broker_name: str | None = None) -> RmqError:
    """Why nobody can be asked about a topic."""
    from rmqcli.model import MessageQueue

    return no_broker(MessageQueue(topic, broker_name or "(any)", 0))


def _took(outcomes: Mapping[str, RmqError | None], address: str) -> bool:
    """Whether there is an outcome of the address, and no error."""
    return address in outcomes and outcomes[address] is None


def _no_more(outcome: object) -> RmqError | None:
    """An outcome of which only matters whether it is an error."""
    return outcome if isinstance(outcome, RmqError) else None


def _retry_header(
    message: RetryMessage, queue: MessageQueue, born_ms: int
) -> SendMessageRequestHeaderV2:
    properties = dict(message.properties)
    # They travel in the header, as a Java producer's do.
    for name in ("RECONSUME_TIME", "MAX_RECONSUME_TIMES"):
        properties.pop(name, None)
    return SendMessageRequestHeaderV2(
        producer_group=_INNER_PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=_DEFAULT_TOPIC,
        default_topic_queue_nums=_DEFAULT_TOPIC_QUEUE_NUMS,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=born_ms,
        flag=message.flag,
        properties=encode_properties(properties),
        reconsume_times=message.reconsume_times,
        unit_mode=False,
        max_reconsume_times=message.max_reconsume_times,
        batch=False,
        bname=queue.broker_name,
    )
