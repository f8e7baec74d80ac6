"""The state of one broker: all its tables and services, which it creates and connects.

Handlers read and change this state, and decide the answers to requests. It has no
sockets, threads or clock.

Source: `BrokerController` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.context import BrokerContext
from rmqcli.broker.message.delayed import Delays
from rmqcli.broker.state.accounts import AccountTable
from rmqcli.broker.state.check_points import CheckPoints
from rmqcli.broker.state.client_calls import ClientCalls
from rmqcli.broker.state.clients import ClientTable
from rmqcli.broker.state.configuration import Configuration
from rmqcli.broker.state.groups import GroupTable
from rmqcli.broker.state.holds import PullRequestHoldService
from rmqcli.broker.state.lite import LiteTopics
from rmqcli.broker.state.locks import LockTable
from rmqcli.broker.state.offsets import ConsumerOffsets
from rmqcli.broker.state.order_info import OrderInfos
from rmqcli.broker.state.pop_holds import ANY_QUEUE, PopHolds
from rmqcli.broker.state.request_modes import RequestModes
from rmqcli.broker.state.schedule import ScheduleMessageService
from rmqcli.broker.state.stats import BrokerStats
from rmqcli.broker.state.timer import TimerService
from rmqcli.broker.state.topics import PERM_READ, TopicTable
from rmqcli.broker.state.transactions import Transactions
from rmqcli.broker.state.writer import MessageWriter
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


#: 41 has no common divisor with 100, so 100 requests get each number once, and about a
#: fifth of any consecutive requests get a number below 20 (popFromRetryProbability).
_POP_STEP = 41


class BrokerState(BrokerContext):
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
        super().__init__(settings, store, now, is_read_only=is_read_only)
        self._find_queues = find_queues
        self._pop_choice = pop_choice
        self._pop_turn = 0
        self.stats = BrokerStats(now)
        self.topics = TopicTable(self, on_changed=on_topics_changed)
        self.groups = GroupTable(self)
        self.accounts = AccountTable()
        self.offsets = ConsumerOffsets() if offsets is None else offsets
        self.configuration = Configuration(self, self.topics)
        self.clients = ClientTable(self, self.groups)
        #: address of each slave that copies from this broker -> end of its log
        self.slaves: dict[str, int] = {}
        self.locks = LockTable()
        self.holds = PullRequestHoldService(self)
        self.client_calls = ClientCalls(self)
        self.delays = Delays(
            settings.message_delay_level, has_timer=self.profile.has_timer
        )
        self.pop_holds = PopHolds(self)
        self.notification_holds = PopHolds(self)
        self.writer = MessageWriter(
            store,
            self.stats,
            self.holds,
            self.delays,
            (self.pop_holds, self.notification_holds),
        )
        self.timer_messages = TimerService(self, self.writer)
        self.schedule = ScheduleMessageService(self, self.writer, self.delays)
        self.transactions = Transactions(
            self,
            topics=self.topics,
            offsets=self.offsets,
            clients=self.clients,
            writer=self.writer,
        )
        self.request_modes = RequestModes()
        self.order_infos = OrderInfos(self)
        self.order_infos.on_free = lambda key, later: self.wake_pops(*key, later)
        self.check_points = CheckPoints(
            self,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            writer=self.writer,
        )
        self.lite = LiteTopics(
            self, topics=self.topics, groups=self.groups, offsets=self.offsets
        )
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
            for waiting in (self.pop_holds, self.notification_holds):
                waiting.wake((topic, group, each), now)

    def _revived(self, topic: str, group: str, now: Now) -> None:
        """Wake all requests of a group for a topic after messages were revived.

        These messages are in the group's retry topic, so a request for any queue of the
        topic may get them.
        """
        config = self.topics.get(topic)
        for queue_id in range(-1, 0 if config is None else config.read_queue_nums):
            for waiting in (self.pop_holds, self.notification_holds):
                waiting.wake((topic, group, queue_id), now)
