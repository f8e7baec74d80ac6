"""The smallest core, for the tests of the server."""

from __future__ import annotations

from rmqcli.broker.effects import Close, Send
from rmqcli.timers import Timers
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand

ECHO, BOOM, BIG, LATER, PUSH, BYE = 1, 2, 3, 4, 5, 6


class EchoCore:
    """Answers with the request's body; the codes above ask for other actions."""

    def __init__(self):
        self.timers = Timers()
        self.peers_closed = []
        self.handled = 0
        self._out = []

    def handle(self, peer, command, now, *, is_binary=False):
        self.handled += 1
        if command.code == BOOM:
            raise ValueError("a bug")
        if command.code == LATER:
            due_ms = now.monotonic_ms + int(command.ext_fields["ms"])
            self.timers.at(due_ms, lambda _: self._answer(peer, command, is_binary))
        elif command.code == BYE:
            self._answer(peer, command, is_binary)
            self._out.append(Close(peer))
        elif not command.is_oneway:
            self._answer(peer, command, is_binary)
        return self._taken()

    def _answer(self, peer, command, is_binary):
        body = command.body
        if command.code == BIG:
            body = bytes(int(command.ext_fields["bytes"]))
        answer = RemotingCommand(
            code=0, opaque=command.opaque, flag=RESPONSE_FLAG, body=body
        )
        self._out.append(Send(peer, answer, is_binary))

    def closed(self, peer, now):
        self.peers_closed.append(peer.number)
        return self._taken()

    def run_due(self, now):
        self.timers.run_due(now)
        return self._taken()

    def next_due_ms(self):
        return self.timers.next_ms()

    def _taken(self):
        out, self._out = self._out, []
        return out
