"""The interfaces that the engine needs: a network, and threads that run listeners.

No method blocks. A method with an answer returns a task (see `rmqcli.tasks`), which
runs in the thread that runs the engine. `consumer.remoting_network` implements
`Network` over remoting; the simulation runs the same class under a virtual clock.

Source: MQClientAPIImpl, PullAPIWrapper and OffsetStore in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rmqcli.engine.consume.request import ConcurrentRequest, OrderlyRequest
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.tasks import Answer, Pending, Request, Task
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.bodies.heartbeat import HeartbeatData
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class PullAsk:
    """One pull. Treat as immutable (one is created per 32 messages).

    When `commit_offset` is None, the pull commits no offset. When `expression` is None,
    the broker uses the subscription of the heartbeat.
    """

    group: str
    queue: MessageQueue
    queue_offset: int
    max_msg_nums: int
    commit_offset: int | None
    suspend_ms: int
    timeout_ms: int
    sub_version: int
    expression: str | None
    expression_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """CONSUMER_SEND_MSG_BACK of one message.

    With `delay_level` 0 the broker chooses the delay; with -1 the message goes to the
    dead-letter queue at once.
    """

    group: str
    origin_topic: str
    broker_name: str
    commit_log_offset: int
    origin_msg_id: str
    delay_level: int
    max_reconsume_times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMessage:
    """A message that a consumer sends into its own retry topic, as a producer does.

    `properties` are complete; `reconsume_times` and `max_reconsume_times` are in the
    header of the request.
    """

    group: str
    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


class Network(Protocol):
    """Requests to brokers and name servers, without blocking.

    A method that requests something returns a task: nothing is sent until a task yields
    from it or `tasks.start` runs it. The task returns the answer or raises RmqError. It
    always ends, because every request has a deadline.
    """

    def submit(self, request: Request[T]) -> Pending[T]:
        """Send one request; see `tasks.Runner`.

        Raises RmqError when it cannot be sent.
        """

    def fetch_queues(self, topic: str) -> Task[list[MessageQueue]]:
        """Request the topic's readable queues from the name servers; they are sorted.

        While no name server has the route, or the route has no queues, the last good
        answer is returned.
        """

    def brokers(self, topic: str | None = None) -> list[str]:
        """The names of the brokers in a topic's route, in random order.

        Without a topic, the names of the brokers in all routes, sorted.
        """

    def is_broker(self, address: str) -> bool:
        """Whether a broker of one of the routes has this address."""

    def consumer_ids(self, group: str, broker_name: str) -> Task[list[str]]:
        """The client ids of the group's members that are registered at this broker."""

    def consumer_connection(
        self, group: str, topic: str
    ) -> Task[ConsumerConnection | None]:
        """The group's members and table of subscriptions, from a broker of the topic.

        None when no member is online.
        """

    def query_offset(self, group: str, queue: MessageQueue) -> Task[int | None]:
        """The committed offset; None only when the broker says that there is none."""

    def update_offset(self, group: str, queue: MessageQueue, offset: int) -> Task[None]:
        """Commit an offset and wait for the broker's answer."""

    def update_offset_oneway(
        self, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Commit an offset without an answer; the request may be lost unnoticed."""

    def max_offset(self, queue: MessageQueue) -> Task[int]:
        """The next offset that will be written."""

    def resolve(self, queue: MessageQueue, position: Position) -> Task[int]:
        """The offset of a position, such as a time or a duration ago.

        What is relative to the present is counted from the broker's clock.
        """

    def lock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> Task[set[MessageQueue]]:
        """Lock queues of one broker for orderly consumption; return those granted."""

    def unlock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> Task[None]:
        """Unlock queues of one broker and wait for its answer."""

    def unlock_oneway(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> None:
        """Unlock queues of one broker without an answer."""

    def heartbeat(self, heartbeat: HeartbeatData, broker_name: str) -> Task[None]:
        """Send a heartbeat to all addresses of one broker.

        The task ends when the master has accepted it. If the master did not accept it,
        the task waits for the slaves, and raises RmqError when none of them accepted
        it.
        """

    def unregister(self, client_id: str, group: str, broker_name: str) -> Task[None]:
        """Tell all addresses of one broker that this member leaves."""

    def check_subscription(
        self,
        client_id: str,
        group: str,
        subscription: SubscriptionData,
        broker_name: str,
    ) -> Task[None]:
        """Let one broker check an expression that is not a tag expression."""

    def send_back(self, message: SendBack) -> Task[None]:
        """Let the broker put a message into the group's retry topic."""

    def send_retry(self, message: RetryMessage) -> Task[None]:
        """Send a message into a retry topic, to any broker that has it."""

    def pull(self, ask: PullAsk) -> Answer[PullAnswer]:
        """Pull from the broker id that the last answer suggested, or master, or slave.

        A pull from a slave never commits an offset. Unlike the other methods this may
        send the request before it returns.
        """

    def keep_topics(self, topics: Collection[str]) -> None:
        """Forget the routes of all other topics, and brokers that are only in them."""


class Workers(Protocol):
    """The threads that call the listener, or the simulation's replacement for them.

    The outcome of a request is passed to the engine in the engine's thread.
    """

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """Accept a request. Never blocks."""

    def share(self, request: ConcurrentRequest) -> None:
        """Let other threads help with a request that takes long; mark it as shared."""

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """Accept a request. Never blocks."""
