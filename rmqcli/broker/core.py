"""One broker without sockets, threads or clock: requests in, answers and pushes out.

Adds to a broker's state the interface that a server drives: it passes requests to their
handlers and runs timers. An unknown request code is answered with
REQUEST_CODE_NOT_SUPPORTED (3).

Source: `BrokerController` and `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.request import BrokerRequest
from rmqcli.broker.state.broker import BrokerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.dispatch import HandlerTable
    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.broker.state.offsets import ConsumerOffsets
    from rmqcli.clock import Now
    from rmqcli.model import MessageQueue
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.command import RemotingCommand


class Broker(BrokerState):
    """One broker. Call it from one thread at a time.

    `requests` is the table of handlers, `handlers.BROKER_REQUESTS`. The other arguments
    are BrokerState's. `handle`, `closed` and `run_due` return effects, which the caller
    must carry out.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        now: Now,
        *,
        requests: HandlerTable[BrokerState],
        on_topics_changed: Callable[[], None] | None = None,
        offsets: ConsumerOffsets | None = None,
        is_read_only: bool = False,
        find_queues: Callable[[str], list[MessageQueue] | None] | None = None,
        pop_choice: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            settings,
            store,
            now,
            on_topics_changed=on_topics_changed,
            offsets=offsets,
            is_read_only=is_read_only,
            find_queues=find_queues,
            pop_choice=pop_choice,
        )
        self._requests = requests

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Process one command of a client: a request, or its answer to a request."""
        if command.is_response:
            self.client_calls.answered(peer, command, now)
            return self.take_effects()
        request = BrokerRequest(peer, command, now, is_binary)
        reply = self._requests.reply_to(self, request)
        if reply is not None:
            self.answer(request, reply)
        return self.take_effects()

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """Forget what belongs to a client's connection that has closed."""
        self.clients.closed(peer, now)
        self.client_calls.closed(peer, now)
        self.holds.closed(peer)
        self.pop_holds.closed(peer)
        self.notification_holds.closed(peer)
        return self.take_effects()

    def run_due(self, now: Now) -> list[Effect]:
        """Run due timers: time-outs of held requests, delayed messages, expiries."""
        self.timers.run_due(now)
        return self.take_effects()

    def next_due_ms(self) -> int | None:
        """When the next timer is due (monotonic ms); None if there is none."""
        return self.timers.next_ms()
