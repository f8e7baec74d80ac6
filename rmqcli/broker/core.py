"""One broker without sockets, threads or clock: requests in, answers and pushes out.

Holds the parts that the processors work on, finds the processor of a request code, and
turns what it returns or raises into an answer. An unknown code is answered with 3.

Source: `BrokerController` and `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.answers import answer_to
from rmqcli.broker.configuration import Configuration
from rmqcli.broker.effects import Close, Effect, Peer, Send
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.request import Request
from rmqcli.broker.state.clients import ClientTable
from rmqcli.broker.state.groups import GroupTable
from rmqcli.broker.state.holds import PullRequestHoldService
from rmqcli.broker.state.locks import QueueLocks
from rmqcli.broker.state.offsets import ConsumerOffsets
from rmqcli.broker.state.relays import Relays
from rmqcli.broker.state.schedule import ScheduleMessageService
from rmqcli.broker.state.stats import BrokerStats
from rmqcli.broker.state.topics import TopicTable
from rmqcli.broker.state.transactions import Transactions
from rmqcli.timers import Agenda
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand
from rmqcli.wire.header import Header, to_ext_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.request import Reply
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


class Broker:
    """State of one broker. Call it from one thread at a time.

    `handle`, `run_due` and `closed` return what is to be done. `on_topics_changed` is
    called when the name server must be told.
    """

    def __init__(self, settings: BrokerSettings, store: MessageStore, now: Now) -> None:
        self.settings = settings
        self.manners = settings.manners
        self.store = store
        self.started = now
        self.agenda = Agenda()
        self.on_topics_changed: Callable[[], None] = lambda: None
        self.stats = BrokerStats(now)
        self.configuration = Configuration(self)
        self.topics = TopicTable(self)
        self.groups = GroupTable(self)
        self.offsets = ConsumerOffsets(self)
        self.clients = ClientTable(self)
        self.locks = QueueLocks(self)
        self.holds = PullRequestHoldService(self)
        self.schedule = ScheduleMessageService(self)
        self.transactions = Transactions(self)
        self.relays = Relays(self)
        self._out: list[Effect] = []
        self._opaque = 0

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Take one command from a client; an answer to a push of ours too."""
        if command.is_response:
            self.relays.answered(peer, command, now)
            return self._taken()
        request = Request(peer, command, now, is_binary)
        reply = BROKER_REQUESTS.reply_to(self, request)
        if reply is not None:
            self.answer(request, reply)
        return self._taken()

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """A client's connection is gone."""
        self.clients.closed(peer, now)
        self.relays.closed(peer, now)
        self.holds.closed(peer)
        return self._taken()

    def run_due(self, now: Now) -> list[Effect]:
        """Do what is due: time-outs of held pulls, delayed messages, expiries."""
        self.agenda.run_due(now)
        return self._taken()

    def next_due_ms(self) -> int | None:
        """When `run_due` has something to do (monotonic ms); None: never."""
        return self.agenda.next_ms()

    def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request, now or later; a one-way request gets no answer."""
        send = answer_to(request, reply, self.manners)
        if send is not None:
            self._out.append(send)

    def push(
        self,
        peer: Peer,
        code: int,
        header: Header | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        oneway: bool = True,
    ) -> int:
        """Send a request of the broker's own to a client; returns its opaque.

        `ext_fields` come on top of the header's.
        """
        fields = {} if header is None else to_ext_fields(header)
        fields |= ext_fields or {}
        self._opaque += 1
        self._out.append(
            Send(
                peer,
                RemotingCommand(
                    code=int(code),
                    language=int(LanguageCode.JAVA),
                    version=self.manners.version,
                    opaque=self._opaque,
                    flag=ONEWAY_FLAG if oneway else 0,
                    ext_fields=fields,
                    body=body,
                ),
            )
        )
        return self._opaque

    def close(self, peer: Peer) -> None:
        """Close a client's connection, after what was sent before."""
        self._out.append(Close(peer))

    def _taken(self) -> list[Effect]:
        out, self._out = self._out, []
        return out
