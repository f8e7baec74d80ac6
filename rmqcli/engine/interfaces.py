"""What the engine needs of the world: a network, and somebody who runs listeners.

Nothing here blocks. A call that has an answer takes `done`, which is called once, in
the thread that drives the engine, with the answer or with the error as a value: later,
or at once when it is known that nothing can be asked. `consumer.remoting_network`
satisfies `Network` over remoting; a simulation does with a virtual clock.

Source: MQClientAPIImpl, PullAPIWrapper and OffsetStore in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rmqcli.engine.consume_request import ConcurrentRequest, OrderlyRequest
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.bodies.heartbeat import HeartbeatData
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

    T = TypeVar("T")
    Done = Callable[[T | RmqError], None]


@dataclass(slots=True, kw_only=True)
class PullAsk:
    """One pull. Treat as immutable (one is made per 32 messages).

    `commit_offset` None: nothing is committed with it. `expression` None: the broker
    goes by what the heartbeat said.
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

    `delay_level` 0: the broker chooses; -1: to the dead letters at once.
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

    Every answer has a deadline, so `done` is always called.
    """

    def fetch_queues(self, topic: str, done: Done[list[MessageQueue]]) -> None:
        """The topic's readable queues, sorted, asked of the name servers anew.

        While they cannot tell, or tell of none, the last good answer stands.
        """

    def brokers(self, topic: str | None = None) -> list[str]:
        """Names of the brokers of a topic's route in random order; without a topic
        those of all routes, sorted."""

    def is_broker(self, address: str) -> bool:
        """Whether a broker of one of the routes has this address."""

    def consumer_ids(self, group: str, broker_name: str, done: Done[list[str]]) -> None:
        """The client ids of the group, as this broker knows them."""

    def consumer_connection(
        self, group: str, topic: str, done: Done[ConsumerConnection | None]
    ) -> None:
        """Who is online, and the group's one table of subscriptions, as a broker of the
        topic knows them; None: nobody."""

    def query_offset(
        self, group: str, queue: MessageQueue, done: Done[int | None]
    ) -> None:
        """The committed offset; None only when the broker says that there is none."""

    def update_offset(
        self,
        group: str,
        queue: MessageQueue,
        offset: int,
        done: Done[None] | None = None,
    ) -> None:
        """Commit an offset; without `done` one-way: lost without a word."""

    def max_offset(self, queue: MessageQueue, done: Done[int]) -> None:
        """The next offset that will be written."""

    def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, done: Done[int]
    ) -> None:
        """The offset for a store time (epoch ms), by the broker's rule."""

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        done: Done[set[MessageQueue]],
    ) -> None:
        """Lock queues of one broker for orderly use; answers with those granted."""

    def unlock(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        done: Done[None] | None = None,
    ) -> None:
        """Give queues of one broker back; without `done` one-way."""

    def heartbeat(
        self,
        heartbeat: HeartbeatData,
        done: Done[int],
        each: Callable[[str, RmqError | None], None] | None = None,
    ) -> None:
        """Tell every known broker; answers with how many addresses took it.

        An error when there are brokers and none took it; 0 when none is known yet.
        `each` is called before that, once for each broker name: with None once its
        master took it (or, where the master did not, a slave), else with an error.
        """

    def unregister(
        self, client_id: str, group: str, broker_name: str, done: Done[None]
    ) -> None:
        """Tell all addresses of one broker that this member leaves."""

    def check_subscription(
        self,
        client_id: str,
        group: str,
        subscription: SubscriptionData,
        broker_name: str,
        done: Done[None],
    ) -> None:
        """Let one broker read an expression that is not of tags."""

    def send_back(self, message: SendBack, done: Done[None]) -> None:
        """Let the broker put a message into the group's retry topic."""

    def send_retry(self, message: RetryMessage, done: Done[None]) -> None:
        """Send a message into a retry topic, to any broker that has it."""

    def pull(self, ask: PullAsk, done: Done[PullAnswer]) -> None:
        """Pull from the broker that it suggested last, else the master, else a slave.

        A slave is never asked to commit.
        """

    def keep_topics(self, topics: Collection[str]) -> None:
        """Forget the routes of all other topics, and brokers that only they had."""


class Workers(Protocol):
    """Those who call the listener: threads, or a simulation.

    What became of a request comes back to the engine, in the engine's thread.
    """

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """Take a request; never blocks."""

    def share(self, request: ConcurrentRequest) -> None:
        """Let others take part in a request that takes long; mark it as shared."""

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """Take a request; never blocks."""
