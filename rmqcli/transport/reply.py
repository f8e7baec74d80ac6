"""The answer to one request, as the transport provides it.

`Reply` is the completion object of the package (`rmqcli.tasks.Pending`) with what the
transport has to know of the request. The transport ends it with `answered` or `fail`;
the layer above makes a subclass that reads the answer, so that the same object goes
from the socket up to the task that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.tasks import Pending

if TYPE_CHECKING:
    from rmqcli.errors import TransportError
    from rmqcli.wire.command import RemotingCommand

T = TypeVar("T")


class Reply(Pending[T]):
    """What becomes of one request: an answer or an error, exactly once.

    The error is ConnectError when the request was never sent, DisconnectedError or
    DeadlineError when the peer may have carried it out. `opaque` is 0 until the request
    was handed over. This class provides the answer as it came, whatever its code.
    """

    __slots__ = ("address", "code", "opaque", "timeout_ms")

    def __init__(self, address: str, code: int, timeout_ms: int) -> None:
        # Not super().__init__(): bulk reads make ten thousand of these a second.
        self.is_done = False
        self._value = None
        self._error = None
        self._callback = None
        self.address = address
        self.code = code
        self.timeout_ms = timeout_ms
        self.opaque = 0

    def __repr__(self) -> str:
        state = "pending"
        if self.is_done:
            state = "failed" if self._error is not None else "answered"
        return f"<Reply {self.opaque} code={self.code} from {self.address}: {state}>"

    def answered(self, answer: RemotingCommand) -> None:
        """Take the answer and end. Called by the transport, once."""
        self.succeed(answer)  # type: ignore[arg-type]  # T, unless a subclass reads it

    def abandon(self, error: TransportError) -> None:
        """Take the error and call nothing back: for a forked child."""
        self._callback = None
        self.fail(error)
