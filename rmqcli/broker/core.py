"""One broker without sockets, threads or clock: requests in, answers and pushes out.

Holds a broker's state, and has the interface that a server drives: it passes requests
to their handlers and runs timers. An unknown request code is answered with
REQUEST_CODE_NOT_SUPPORTED (3).

Source: `BrokerController` and `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.request import BrokerRequest

if TYPE_CHECKING:
    from rmqcli.broker.dispatch import HandlerTable
    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand


class Broker:
    """One broker. Call it from one thread at a time.

    `state` has its tables and services, and `requests` is the table of handlers,
    `handlers.BROKER_REQUESTS`. `handle`, `closed` and `run_due` return effects, which
    the caller must carry out.
    """

    def __init__(self, state: BrokerState, requests: HandlerTable[BrokerState]) -> None:
        self.state = state
        self._requests = requests

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Process one command of a client: a request, or its answer to a request."""
        if command.is_response:
            self.state.client_calls.answered(peer, command, now)
            return self.state.take_effects()
        request = BrokerRequest(peer, command, now, is_binary)
        reply = self._requests.reply_to(self.state, request)
        if reply is not None:
            self.state.answer(request, reply)
        return self.state.take_effects()

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """Forget what belongs to a client's connection that has closed."""
        self.state.clients.closed(peer, now)
        self.state.client_calls.closed(peer, now)
        self.state.holds.closed(peer)
        self.state.pop_holds.closed(peer)
        self.state.notification_holds.closed(peer)
        self.state.lite.holds.closed(peer)
        return self.state.take_effects()

    def run_due(self, now: Now) -> list[Effect]:
        """Run due timers: time-outs of held requests, delayed messages, expiries."""
        self.state.timers.run_due(now)
        return self.state.take_effects()

    def next_due_ms(self) -> int | None:
        """When the next timer is due (monotonic ms); None if there is none."""
        return self.state.timers.next_ms()
