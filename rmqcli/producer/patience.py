"""When a request that failed is sent again: one rule for all senders of many messages.

A broker that restarts, or whose replica takes over, cannot be reached for some seconds,
or refuses. What is certainly not stored can be sent again until then. A request that
was not answered (SendUnknownError) may be stored: a sender that may store a message
twice repeats it and counts it, and the others report it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.clock import Deadline
from rmqcli.errors import (
    DeniedError,
    NotFoundError,
    RmqError,
    TransportError,
)

if TYPE_CHECKING:
    from rmqcli.clock import Clock

#: Long enough for a broker to be restarted.
RETRY_FOR_MS: Final = 30_000
RETRY_EVERY_MS: Final = 500


def may_pass(error: RmqError, *, is_known: bool) -> bool:
    """Whether the same request may succeed a little later.

    `is_known` is whether messages of the topic were stored before: then a topic or a
    route that is missing is that of a broker that restarts.
    """
    if isinstance(error, NotFoundError):
        return is_known
    if isinstance(error, DeniedError):
        # Without an address the error is about the route, which has no broker.
        return is_known and not error.address
    return error.retriable or isinstance(error, TransportError)


class Patience:
    """Says for one request, which fails again and again, how long to wait."""

    def __init__(self, clock: Clock, *, retry_for_ms: int = RETRY_FOR_MS) -> None:
        self._deadline = Deadline(clock, retry_for_ms)

    def pause_ms(self, error: RmqError, *, is_known: bool) -> int:
        """How long to wait before the request is sent again.

        Raises `error` when that cannot help, or after `retry_for_ms`.
        """
        if self._deadline.is_over() or not may_pass(error, is_known=is_known):
            raise error
        return min(RETRY_EVERY_MS, self._deadline.left_ms())
