"""What the engine needs from outside: a network, and threads that run listeners.

Nothing here blocks. What has an answer is a task (see `rmqcli.tasks`), run in the
thread that runs the engine. `consumer.remoting_network` satisfies `Network` over
remoting; the simulation runs the same class under a virtual clock.

Source: MQClientAPIImpl, PullAPIWrapper and OffsetStore in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rmqcli.engine.consume import ConcurrentRequest, OrderlyRequest
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Answer, Pending, Request, Task
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.bodies.heartbeat import HeartbeatData
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class PullAsk:
    """One pull. Treat as immutable (one is made per 32 messages).

    `commit_offset` None: nothing is committed with it. `expression` None: the broker
    uses the subscription of the heartbeat.
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

    `delay_level` 0: the broker chooses; -1: to the dead-letter queue at once.
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

    `properties` are complete; `reconsume_times` and `max_reconsume_times` travel in the
    request's header.
    """

    group: str
    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


class Network(Protocol):
    """The brokers and name servers, asked without waiting.

    A method that asks returns a task: nothing is sent until a task yields from it or
    `tasks.start` runs it. It returns the answer or raises RmqError. It always ends,
    because every request has a deadline.
    """

    def submit(self, request: Request[T]) -> Pending[T]:
        """Send one request; see `tasks.Runner`, of which this is the half that sends.

        Raises RmqError when it cannot be sent.
        """

    def fetch_queues(self, topic: str) -> Task[list[MessageQueue]]:
        """The topic's readable queues, sorted, asked of the name servers anew.

        While no name server has the route, or its route has no queues, the last good
        answer stands.
        """

    def brokers(self, topic: str | None = None) -> list[str]:
        """Names of the brokers of a topic's route in random order; without a topic
        those of all routes, sorted."""

    def is_broker(self, address: str) -> bool:
        """Whether a broker of one of the routes has this address."""

    def consumer_ids(self, group: str, broker_name: str) -> Task[list[str]]:
        """The client ids of the group's members that are registered at this broker."""

    def consumer_connection(
        self, group: str, topic: str
    ) -> Task[ConsumerConnection | None]:
        """The group's members and its one table of subscriptions, as a broker of the
        topic has them; None when no member is online."""

    def query_offset(self, group: str, queue: MessageQueue) -> Task[int | None]:
        """The committed offset; None only when the broker says that there is none."""

    def update_offset(self, group: str, queue: MessageQueue, offset: int) -> Task[None]:
        """Commit an offset and wait for the broker's answer."""

    def update_offset_oneway(
        self, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Commit an offset without an answer: the request may be lost unnoticed."""

    def max_offset(self, queue: MessageQueue) -> Task[int]:
        """The next offset that will be written."""

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> Task[int]:
        """The offset for a store time (epoch ms), by the broker's rule."""

    def lock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> Task[set[MessageQueue]]:
        """Lock queues of one broker for orderly consumption; returns those granted."""

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

        Ends when the master has accepted it. When the master did not, it ends with the
        answers of the slaves, and raises RmqError only when none of them accepted it.
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
        """Let one broker compile an expression that is not a tag expression."""

    def send_back(self, message: SendBack) -> Task[None]:
        """Let the broker put a message into the group's retry topic."""

    def send_retry(self, message: RetryMessage) -> Task[None]:
        """Send a message into a retry topic, to any broker that has it."""

    def pull(self, ask: PullAsk) -> Answer[PullAnswer]:
        """Pull from the broker id that the last answer suggested, else from the
        master, else from a slave. A slave is never asked to commit.

        Unlike the other methods it may send the request before it returns.
        """

    def keep_topics(self, topics: Collection[str]) -> None:
        """Forget the routes of all other topics, and brokers that only they had."""


class Workers(Protocol):
    """What calls the listener: consume threads, or the simulation's.

    The outcome of a request is given to the engine in the engine's thread.
    """

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """Take a request; never blocks."""

    def share(self, request: ConcurrentRequest) -> None:
        """Let other threads help with a request that takes long; mark it as shared."""

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """Take a request; never blocks."""
