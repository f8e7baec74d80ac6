"""The state of one broker: all its tables and services, which it creates and connects.

Handlers read and change this state, and decide the answers to requests. It has no
sockets, threads or clock.

Source: `BrokerController` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.state.check_points import CheckPoints
from rmqcli.broker.state.lite import LiteTopics
from rmqcli.broker.state.order_info import OrderInfos
from rmqcli.broker.state.pop_holds import ANY_QUEUE
from rmqcli.broker.state.schedule import ScheduleMessageService
from rmqcli.broker.state.tables import BrokerTables
from rmqcli.broker.state.timer import TimerService
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.broker.state.transactions import Transactions
from rmqcli.broker.state.writer import MessageWriter
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.broker.state.offsets import ConsumerOffsets
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


#: 41 has no common divisor with 100, so 100 requests get each number once, and about a
#: fifth of any consecutive requests get a number below 20 (popFromRetryProbability).
_POP_STEP = 41


class BrokerState(BrokerTables):
    """Everything that a handler may read or change.

    `on_topics_changed` is called when the broker must register changed topics at the
    name server. `offsets` replaces the table of consumer offsets. `find_queues` returns
    the readable queues of a topic on all brokers, or None for an unknown topic; without
    it, only this broker's queues are known. `pop_choice` returns the number by which a
    POP request chooses its first queue; without it, the numbers follow a fixed cycle.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        now: Now,
        *,
        on_topics_changed: Callable[[], None] | None = None,
        offsets: ConsumerOffsets | None = None,
        is_read_only: bool = False,
        find_queues: Callable[[str], list[MessageQueue] | None] | None = None,
        pop_choice: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            settings, store, now, on_topics_changed, offsets, is_read_only=is_read_only
        )
        self._find_queues = find_queues
        self._pop_choice = pop_choice
        self._pop_turn = 0
        self.writer = MessageWriter(self)
        self.timer_messages = TimerService(self, self.writer)
        self.schedule = ScheduleMessageService(self, self.writer)
        self.transactions = Transactions(self, self.writer)
        self.order_infos = OrderInfos(self)
        self.order_infos.on_free = lambda key, later: self.wake_pops(*key, later)
        self.check_points = CheckPoints(self, self.writer)
        self.lite = LiteTopics(self)
        self.writer.on_lmq = self.lite.arrived
        self.check_points.on_revived = self._revived

    def pop_choice(self) -> int:
        """Return the number, 0 to 99, by which a POP request chooses its first queue.

        It also decides whether the request reads the retry topic first.
        """
        if self._pop_choice is not None:
            return self._pop_choice() % 100
        self._pop_turn += 1
        return (self._pop_turn - 1) * _POP_STEP % 100

    def topic_queues(self, topic: str) -> list[MessageQueue] | None:
        """The readable queues of a topic on all brokers; None for an unknown topic."""
        if self._find_queues is not None:
            return self._find_queues(topic)
        config = self.topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & PERM_READ else 0
        name = self.settings.broker_name
        return [MessageQueue(topic, name, queue_id) for queue_id in range(count)]

    def wake_pops(self, topic: str, group: str, queue_id: int, now: Now) -> None:
        """Wake requests for a queue that can be popped again without a new message."""
        for each in (ANY_QUEUE, queue_id):
            for waiting in self.held_pops:
                waiting.wake((topic, group, each), now)

    def _revived(self, topic: str, group: str, now: Now) -> None:
        """Wake all requests of a group for a topic after messages were revived.

        These messages are in the group's retry topic, so a request for any queue of the
        topic may get them.
        """
        config = self.topics.get(topic)
        for queue_id in range(-1, 0 if config is None else config.read_queue_nums):
            for waiting in self.held_pops:
                waiting.wake((topic, group, queue_id), now)
