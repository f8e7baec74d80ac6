"""Requests that the broker sends to its clients and that they answer.

A call ends with the client's answer, a time-out or a closed connection; until then, the
broker processes other requests. `forward` serves mqadmin's requests to consumers: it
returns the client's answer unchanged.

Source: `Broker2Client.callClient` and `AdminBrokerProcessor.callConsumer`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rmqcli.broker.request import BrokerRequest, Refusal, Reply
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.effects import Peer
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.header import Header

    Done: TypeAlias = "Callable[[RemotingCommand | NoAnswer], None]"

#: The most calls, to all clients, that wait for an answer.
WAITING_MAX: Final = 10_000
CALL_TIMEOUT_MS: Final = 10_000


class NoAnswer(enum.Enum):
    """The reason why a call was not answered."""

    TIMEOUT = "timeout"
    CLOSED = "connection closed"


class _Waiting(NamedTuple):
    peer: Peer
    done: Done


class ClientCalls:
    """The calls that wait for an answer. Answers without a call are ignored."""

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
        """Send a request to one client, and call `done` once with its answer.

        Without an answer, `done` gets the reason. Raises Refusal(2) when too many calls
        are waiting.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{WAITING_MAX} calls to clients are already waiting for an answer",
            )
        opaque = self._context.push(
            peer, code, header, ext_fields=ext_fields, body=body, oneway=False
        )
        self._waiting[opaque] = _Waiting(peer, done)
        self._context.timers.at(
            now.monotonic_ms + timeout_ms,
            lambda _: self._ended(opaque, NoAnswer.TIMEOUT),
        )

    def forward(
        self,
        request: BrokerRequest,
        peer: Peer,
        code: int,
        *,
        ext_fields: dict[str, str],
        body: bytes = b"",
    ) -> None:
        """Call one client and answer `request` with the client's answer, unchanged.

        The answer is 207 if the client does not answer in time, and 1 if its connection
        is closed.
        """

        def done(answer: RemotingCommand | NoAnswer) -> None:
            if isinstance(answer, NoAnswer):
                reply = _no_answer(request, answer)
            else:
                reply = _unchanged(answer)
            self._context.answer(request, reply)

        self.call(peer, code, request.now, done=done, ext_fields=ext_fields, body=body)

    def answered(self, peer: Peer, command: RemotingCommand, now: Now) -> None:
        """Pass a client's answer to its call; without a call it is ignored."""
        waiting = self._waiting.get(command.opaque)
        if waiting is not None and waiting.peer == peer:
            self._ended(command.opaque, command)

    def closed(self, peer: Peer, now: Now) -> None:
        """End the calls to a client whose connection was closed."""
        for opaque in [o for o, w in self._waiting.items() if w.peer == peer]:
            self._ended(opaque, NoAnswer.CLOSED)

    def _ended(self, opaque: int, answer: RemotingCommand | NoAnswer) -> None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None:
            waiting.done(answer)


def _unchanged(answer: RemotingCommand) -> Reply:
    return Reply(
        answer.code,
        answer.remark,
        ext_fields=dict(answer.ext_fields) if answer.ext_fields else None,
        body=bytes(answer.body),
        version=answer.version,
    )


def _no_answer(request: BrokerRequest, why: NoAnswer) -> Reply:
    fields = request.command.ext_fields
    who = f"consumer <{fields.get('consumerGroup')}> <{fields.get('clientId')}>"
    if why is NoAnswer.TIMEOUT:
        return Reply(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: no answer")
    return Reply(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {why.value}")
