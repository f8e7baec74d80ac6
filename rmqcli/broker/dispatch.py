"""Which function answers which request code.

A handler registers itself where it is defined:

    @handles(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
    def send(broker: BrokerState, request: Request) -> Reply | None: ...

It takes the broker's state and the request, and returns a `Reply`, or None when the
answer comes later. It raises `Refusal` to answer with any code other than success.
`handlers` imports all files of handlers, so that the table is complete.

Source: `BrokerController.registerProcessor` and
`NettyRemotingAbstract.processRequestCommand` in apache/rocketmq.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from rmqcli.broker.request import BrokerRequest, Reply, answered
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.profiles import VersionProfile
    from rmqcli.broker.state.broker import BrokerState


class Versioned(Protocol):
    """State that imitates one version of RocketMQ: a broker's or a name server's."""

    @property
    def profile(self) -> VersionProfile:
        """The version's profile."""


StateT = TypeVar("StateT", bound=Versioned)
if TYPE_CHECKING:
    Handler: TypeAlias = Callable[[StateT, BrokerRequest], Reply | None]


class HandlerTable(Generic[StateT]):
    """Maps request codes to handlers. `StateT` is the state that handlers work on."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler[StateT]] = {}

    def handles(
        self, *codes: int, since: int = 0
    ) -> Callable[[Handler[StateT]], Handler[StateT]]:
        """Register the decorated function for `codes`.

        Versions before `since` (an ordinal of `wire.version`) do not support them.
        """

        def register(handler: Handler[StateT]) -> Handler[StateT]:
            for code in codes:
                if code in self._handlers:
                    raise ValueError(f"request code {code} has two handlers")
                self._handlers[code] = _since(since, handler) if since else handler
            return handler

        return register

    def codes(self) -> list[int]:
        """The request codes that have a handler, sorted."""
        return sorted(self._handlers)

    def reply_to(self, state: StateT, request: BrokerRequest) -> Reply | None:
        """Return the handler's answer, or None when the answer comes later."""
        handler = self._handlers.get(request.command.code)
        if handler is None:
            return _not_supported(request)
        return answered(partial(handler, state, request))


def _since(version: int, handler: Handler[StateT]) -> Handler[StateT]:
    """Wrap a handler that versions before `version` do not have."""

    def answer(state: StateT, request: BrokerRequest) -> Reply | None:
        if state.profile.version < version:
            return _not_supported(request)
        return handler(state, request)

    return answer


def _not_supported(request: BrokerRequest) -> Reply:
    return Reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f" request type {request.command.code} not supported",
    )


BROKER_REQUESTS: Final[HandlerTable[BrokerState]] = HandlerTable()
handles = BROKER_REQUESTS.handles
