"""The answer to one request, now or later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.errors import TransportError
    from rmqcli.wire.command import RemotingCommand


class Reply:
    """What became of one request: an answer or an error, exactly once.

    `is_done`, `address`, `opaque`, `code`, `timeout_ms` and `sent_at_ms` are for
    reading. `sent_at_ms` is the monotonic moment at which the request was handed
    over; while a connection is made it waits. Not a dataclass: one is made for each
    request of a bulk read.
    """

    __slots__ = (
        "_answer",
        "_error",
        "_on_done",
        "address",
        "code",
        "is_done",
        "opaque",
        "sent_at_ms",
        "timeout_ms",
    )

    def __init__(
        self,
        address: str,
        *,
        code: int,
        opaque: int,
        sent_at_ms: int,
        timeout_ms: int,
        on_done: Callable[[Reply], None] | None = None,
    ) -> None:
        self.address = address
        self.code = code
        self.opaque = opaque
        self.sent_at_ms = sent_at_ms
        self.timeout_ms = timeout_ms
        self.is_done = False
        self._answer: RemotingCommand | None = None
        self._error: TransportError | None = None
        self._on_done = on_done

    def __repr__(self) -> str:
        state = "pending"
        if self.is_done:
            state = "failed" if self._error is not None else "answered"
        return f"<Reply {self.opaque} code={self.code} from {self.address}: {state}>"

    @property
    def error(self) -> TransportError | None:
        """Why there is no answer; None while pending, and when there is one."""
        return self._error

    def result(self) -> RemotingCommand:
        """Return the answer, whatever its code.

        Raises ConnectError when the request was never sent, DisconnectedError and
        DeadlineError when it may have been carried out; RuntimeError before
        `is_done`: `wait` first.
        """
        if self._error is not None:
            raise self._error
        if self._answer is None:
            raise RuntimeError(f"{self!r} has no result before wait()")
        return self._answer

    def answered(self, answer: RemotingCommand) -> None:
        """Take the answer and call back. For the transport."""
        self._answer = answer
        self._call_back()

    def failed(self, error: TransportError) -> None:
        """Take the error and call back. For the transport."""
        self._error = error
        self._call_back()

    def abandon(self, error: TransportError) -> None:
        """Take the error and call nobody. For the transport, in a forked child."""
        self._on_done = None
        self.failed(error)

    def _call_back(self) -> None:
        # Last, for threads that look at it without a lock.
        self.is_done = True
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)
