"""The state that all parts of a group member share: settings, queues, network, timers.

A queue is in `process_queues` from its begin until it is given up; a dropped
ProcessQueue may stay there until its consumption has ended.

Source: the fields of DefaultMQPushConsumerImpl, RebalanceImpl and MQClientInstance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.clock import Now
from rmqcli.dataclass import dataclass
from rmqcli.engine.config import MessageModel
from rmqcli.engine.stats import ConsumerStats
from rmqcli.model import retry_topic
from rmqcli.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Clock
    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.engine.interfaces import Network, Workers
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.offset_store import OffsetStore
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Request
    from rmqcli.wire.subscription import SubscriptionData

T = TypeVar("T")


@dataclass(eq=False, repr=False, kw_only=True)
class Member:
    """One member of one group, and the `tasks.Runner` of its tasks.

    It is used only in the engine's thread.
    """

    group: str
    client_id: str
    config: ConsumerConfig
    listener: Listener
    subscriptions: dict[str, SubscriptionData]
    clock: Clock
    network: Network
    workers: Workers
    offsets: OffsetStore

    def __post_init__(self) -> None:
        self.timers = Timers()
        self.stats = ConsumerStats(self.now_ms)
        self.retry_topic = retry_topic(self.group)
        self.process_queues: dict[MessageQueue, ProcessQueue[Pulled]] = {}
        #: topic -> its queues in the last route
        self.topic_queues: dict[str, list[MessageQueue]] = {}
        #: brokers whose last pulls got no answer; a warning about each was logged
        self.lost_brokers: set[str] = set()
        self.is_running = False
        self.is_paused = False
        #: requests a rebalance of every topic; set by the engine
        self.rebalance_soon: Callable[[], None] = lambda: None
        #: the setting, or the topic's limit divided by its queues; set by rebalances
        config = self.config
        self.pull_threshold_for_queue = config.pull_threshold_for_queue
        self.pull_threshold_size_for_queue_mib = (
            config.pull_threshold_size_for_queue_mib
        )
        #: from when `consume_ago_ms` counts
        self.created_ms = self.now_ms()
        #: whether a line in the log said where the group begins, or was not to
        self.has_said_begin = self.listener.is_told_where

    @property
    def is_orderly(self) -> bool:
        """Whether messages are consumed in order."""
        return self.listener.is_orderly

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.config.message_model is MessageModel.BROADCASTING

    @property
    def needs_lock(self) -> bool:
        """Whether queues are only consumed under a broker's lock."""
        return self.is_orderly and not self.is_broadcasting

    def now(self) -> Now:
        """The current monotonic time and epoch time."""
        return Now(self.clock.monotonic_ms(), self.clock.epoch_ms())

    def now_ms(self) -> int:
        """The current monotonic time."""
        return self.clock.monotonic_ms()

    def submit(self, request: Request[T]) -> Pending[T]:
        """Send a request; see `tasks.Runner`."""
        return self.network.submit(request)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` once that time has passed; see `tasks.Runner`."""
        due_ms = self.clock.monotonic_ms() + delay_ms
        self.timers.at(due_ms, lambda _: action())

    def live_queues(self) -> list[MessageQueue]:
        """The queues that are consumed, or whose last messages are."""
        return [q for q, each in self.process_queues.items() if not each.dropped]

    def is_live(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """Whether this is the ProcessQueue with which its queue is consumed now."""
        present = self.process_queues.get(process_queue.message_queue)
        return present is process_queue and not process_queue.dropped
