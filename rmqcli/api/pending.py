"""A call that was sent, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.api.broker_errors import error_of
from rmqcli.errors import RmqError
from rmqcli.tasks import unexpected
from rmqcli.transport.reply import Reply

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.api.peers import Peers
    from rmqcli.wire.command import RemotingCommand

T = TypeVar("T")


class PendingCall(Reply[T]):
    """The result of one call. Ends by itself: every request has a deadline.

    The result is the parsed answer. The error is a TransportError when none came, a
    BrokerError when the peer refused, a WireError when the answer cannot be read.
    """

    __slots__ = ("_peers", "call")

    def __init__(
        self, address: str, call: Call[T], timeout_ms: int, peers: Peers
    ) -> None:
        super().__init__(address, call.code, timeout_ms)
        self.call = call
        self._peers = peers

    def answered(self, answer: RemotingCommand) -> None:
        """Note the peer's version, read the answer, and end."""
        self._peers.versions[self.address] = answer.version
        call = self.call
        failure: RmqError
        if answer.code not in call.ok_codes:
            failure = error_of(answer, what=str(call.what), address=self.address)
        else:
            try:
                result = call.parse(answer)
            except RmqError as error:
                failure = error
                if not error.hint:
                    error.hint = f"the answer came from {self.address}"
            except Exception as error:  # noqa: BLE001  # a defect must not leave it open
                failure = unexpected(error)
            else:
                self.succeed(result)
                return
        super().fail(failure)

    def fail(self, error: RmqError) -> None:
        """End with an error of the transport."""
        self._peers.explain(error)
        super().fail(error)
