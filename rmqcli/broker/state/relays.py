"""Requests of the broker's own to its clients, and who waits for their answers.

An admin asks a broker, the broker asks the client, and the client's answer goes back as
it is. A client that says nothing costs a time-out, never more. Everything here has an
end: an answer, a time-out or a closed connection.

Source: `Broker2Client.callClient` and `AdminBrokerProcessor.callConsumer`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.broker.request import Refusal, Reply
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.effects import Peer
    from rmqcli.broker.request import Request
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.header import Header

    Done: TypeAlias = "Callable[[RemotingCommand | Lost], None]"

#: Asked and not answered, of all clients.
WAITING_MAX: Final = 10_000
CALL_TIMEOUT_MS: Final = 10_000


class Lost(enum.Enum):
    """Why a client's answer did not come."""

    TIMEOUT = "timeout"
    CLOSED = "connection closed"


class _Waiting(NamedTuple):
    peer: Peer
    done: Done


class Relays:
    """Asks clients. Answers that nobody waits for are ignored."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._waiting: dict[int, _Waiting] = {}

    def call(
        self,
        peer: Peer,
        code: int,
        now: Now,
        *,
        done: Done,
        header: Header | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        """Ask one client; `done` is called once, with its answer or why there is none.

        Raises Refusal(2) when too many are asked already.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} calls to clients are waiting"
            )
        opaque = self._context.push(
            peer, code, header, ext_fields=ext_fields, body=body, oneway=False
        )
        self._waiting[opaque] = _Waiting(peer, done)
        self._context.agenda.at(
            now.monotonic_ms + timeout_ms, lambda _: self._ended(opaque, Lost.TIMEOUT)
        )

    def ask(
        self,
        request: Request,
        peer: Peer,
        code: int,
        header: Header | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: int = CALL_TIMEOUT_MS,
        on_answer: Callable[[RemotingCommand], Reply] | None = None,
    ) -> None:
        """Ask one client and answer `request` with what it said, word for word.

        207 when it says nothing in time, 1 when its connection ends. `on_answer` makes
        another reply of the answer.
        """

        def done(answer: RemotingCommand | Lost) -> None:
            if isinstance(answer, Lost):
                reply = _lost(request, answer)
            else:
                reply = (on_answer or _verbatim)(answer)
            self._context.answer(request, reply)

        self.call(
            peer,
            code,
            request.now,
            done=done,
            header=header,
            ext_fields=ext_fields,
            body=body,
            timeout_ms=timeout_ms,
        )

    def answered(self, peer: Peer, command: RemotingCommand, now: Now) -> None:
        """A client answers; only the one that was asked can."""
        waiting = self._waiting.get(command.opaque)
        if waiting is not None and waiting.peer == peer:
            self._ended(command.opaque, command)

    def closed(self, peer: Peer, now: Now) -> None:
        """A connection is gone: what it was asked will not be answered."""
        for opaque in [o for o, w in self._waiting.items() if w.peer == peer]:
            self._ended(opaque, Lost.CLOSED)

    def _ended(self, opaque: int, answer: RemotingCommand | Lost) -> None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None:
            waiting.done(answer)


def _verbatim(answer: RemotingCommand) -> Reply:
    return Reply(
        answer.code,
        answer.remark,
        ext_fields=dict(answer.ext_fields) if answer.ext_fields else None,
        body=bytes(answer.body),
    )


def _lost(request: Request, lost: Lost) -> Reply:
    fields = request.command.ext_fields
    who = f"consumer <{fields.get('consumerGroup')}> <{fields.get('clientId')}>"
    if lost is Lost.TIMEOUT:
        return Reply(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: no answer")
    return Reply(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {lost.value}")
