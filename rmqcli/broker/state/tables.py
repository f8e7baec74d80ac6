"""The tables of one broker, which its services and handlers read and change.

Source: `BrokerController` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.context import BrokerContext
from rmqcli.broker.message.delayed import Delays
from rmqcli.broker.state.accounts import AccountTable
from rmqcli.broker.state.client_calls import ClientCalls
from rmqcli.broker.state.clients import ClientTable
from rmqcli.broker.state.configuration import Configuration
from rmqcli.broker.state.groups import GroupTable
from rmqcli.broker.state.holds import PullRequestHoldService
from rmqcli.broker.state.locks import LockTable
from rmqcli.broker.state.offsets import ConsumerOffsets
from rmqcli.broker.state.pop_holds import PopHolds
from rmqcli.broker.state.request_modes import RequestModes
from rmqcli.broker.state.stats import BrokerStats
from rmqcli.broker.state.topics import TopicTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


class BrokerTables(BrokerContext):
    """The context of one broker with its tables and its waiting requests.

    `on_topics_changed` is called when the broker must register changed topics at the
    name server. `offsets` replaces the table of consumer offsets.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        now: Now,
        on_topics_changed: Callable[[], None] | None,
        offsets: ConsumerOffsets | None,
        *,
        is_read_only: bool,
    ) -> None:
        super().__init__(settings, store, now, is_read_only=is_read_only)
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
        self.held_pops = (self.pop_holds, self.notification_holds)
        self.request_modes = RequestModes()
