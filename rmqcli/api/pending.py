"""A call on its way, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.api.broker_errors import error_of
from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.call import Call
    from rmqcli.transport.reply import Reply
    from rmqcli.wire.command import RemotingCommand

T = TypeVar("T")


class Pending(Generic[T]):
    """One call that was submitted. Ends by itself: every request has a deadline."""

    __slots__ = ("_explain", "_learn", "_reply", "address", "call")

    def __init__(
        self,
        call: Call[T],
        address: str,
        *,
        learn: Callable[[str, RemotingCommand], None],
        explain: Callable[[RmqError], None],
    ) -> None:
        self.call = call
        self.address = address
        self._reply: Reply | None = None
        self._learn = learn
        self._explain = explain

    def attach(self, reply: Reply) -> None:
        """Tie the call to the reply that the transport will fill. Once, by Client."""
        self._reply = reply

    @property
    def reply(self) -> Reply:
        """The transport's side of it."""
        if self._reply is None:
            raise ValueError("the call has not been submitted")
        return self._reply

    @property
    def is_done(self) -> bool:
        return self.reply.is_done

    def result(self) -> T:
        """The answer, read.

        Raises TransportError when none came, BrokerError when it says no, WireError
        when it makes no sense. Only to be called when `is_done`.
        """
        try:
            answer = self.reply.result()
        except RmqError as error:
            self._explain(error)
            raise
        self._learn(self.address, answer)
        if answer.code not in self.call.ok_codes:
            what = str(self.call.what)
            raise error_of(answer, what=what, address=self.address)
        try:
            return self.call.parse(answer)
        except RmqError as error:
            if not error.hint:
                error.hint = f"the answer came from {self.address}"
            raise

    def outcome(self) -> T | RmqError:
        """The answer, or the error as a value."""
        try:
            return self.result()
        except RmqError as error:
            return error
