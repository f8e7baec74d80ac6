"""The state of one broker: its tables and services, made and wired in one place.

Handlers work on it. It holds no socket, thread or clock, and decides no answer.

Source: `BrokerController` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.context import BrokerContext
from rmqcli.broker.message.delayed import Delays
from rmqcli.broker.state.client_calls import ClientCalls
from rmqcli.broker.state.clients import ClientTable
from rmqcli.broker.state.configuration import Configuration
from rmqcli.broker.state.groups import GroupTable
from rmqcli.broker.state.holds import PullRequestHoldService
from rmqcli.broker.state.locks import QueueLocks
from rmqcli.broker.state.offsets import ConsumerOffsets
from rmqcli.broker.state.schedule import ScheduleMessageService
from rmqcli.broker.state.stats import BrokerStats
from rmqcli.broker.state.timer import TimerService
from rmqcli.broker.state.topics import TopicTable
from rmqcli.broker.state.transactions import Transactions
from rmqcli.broker.state.writer import MessageWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


class BrokerState(BrokerContext):
    """Everything that a handler may read or change.

    `on_topics_changed` is called when the name server must learn of topics. `offsets`
    replaces the table of consumer offsets.
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
    ) -> None:
        super().__init__(settings, store, now, is_read_only=is_read_only)
        self.stats = BrokerStats(now)
        self.topics = TopicTable(self, on_changed=on_topics_changed)
        self.groups = GroupTable(self)
        self.offsets = ConsumerOffsets() if offsets is None else offsets
        self.configuration = Configuration(self, self.topics)
        self.clients = ClientTable(self, self.groups)
        self.locks = QueueLocks()
        self.holds = PullRequestHoldService(self)
        self.client_calls = ClientCalls(self)
        self.delays = Delays(
            settings.message_delay_level, has_timer=self.profile.has_timer
        )
        self.writer = MessageWriter(store, self.stats, self.holds, self.delays)
        self.timer_messages = TimerService(self, self.writer)
        self.schedule = ScheduleMessageService(self, self.writer, self.delays)
        self.transactions = Transactions(
            self,
            topics=self.topics,
            offsets=self.offsets,
            clients=self.clients,
            writer=self.writer,
        )
