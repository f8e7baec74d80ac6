"""When a request that failed is sent again: one rule for all senders of many messages.

A broker that restarts, or whose replica takes over, cannot be reached for some seconds,
or refuses. What is certainly not stored can be sent again until then. A request that
was not answered (SendUnknownError) may be stored: a sender that may store a message
twice repeats it and counts it, and the others report it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli import tasks
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    DeniedError,
    NotFoundError,
    RmqError,
    SendUnknownError,
    TransportError,
)
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Clock

T = TypeVar("T")

#: Long enough for a broker to be restarted.
RETRY_FOR_MS: Final = 30_000
RETRY_EVERY_MS: Final = 500
#: The pause after an unanswered request, which makes its messages doubtful. It keeps
#: their number small when a broker accepts connections and never answers.
_UNANSWERED_PAUSE_MS: Final = 2_000


def retry_for_ms(timeout_ms: int) -> int:
    """How long `rmq send` waits: 30 s with the usual limit of 5 s for an answer."""
    return 6 * timeout_ms


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


@dataclass(slots=True)
class _Outage:
    """A broker, or the proxy, from a failure until its next answer."""

    since_ms: int
    #: whether a request finds out if it is over; the others wait for it
    is_tried: bool = False
    is_told: bool = False


@dataclass(slots=True, eq=False)
class Outages:
    """Waits out outages for the requests of one run, each of which is a task.

    Until a message was stored nothing is waited for: an address may be wrong. While a
    broker is out, one request at a time tries it, and `notes` has a line for the user.
    `places` is how many brokers there are. Used in the thread that runs the tasks;
    `notes` and `given_up` may be read in any thread.
    """

    clock: Clock
    places: int
    retry_for_ms: int
    #: how many requests wait that are certainly not stored
    waiting: int = 0
    notes: deque[str] = field(default_factory=deque)
    #: why nothing more can be sent; None while a broker may answer
    given_up: RmqError | None = None
    _has_stored: bool = False
    _out: dict[str, _Outage] = field(default_factory=dict)

    def wait_out(
        self, place: str, attempt: Callable[[], tasks.Task[T]]
    ) -> tasks.Task[T]:
        """Run the task `attempt()` until it succeeds, or nothing is to be waited for.

        Raises its last error. A SendUnknownError is raised after one attempt.
        """
        while True:
            outage = self._out.get(place)
            if self.given_up is not None:
                raise self.given_up
            if outage is not None and outage.is_tried:
                yield from self._wait()
                continue
            if outage is not None:
                outage.is_tried = True
            try:
                found = yield from attempt()
            except RmqError as error:
                may_wait = self._failed(place, error)
                if may_wait and isinstance(error, SendUnknownError):
                    yield tasks.Sleep(_UNANSWERED_PAUSE_MS)
                elif may_wait:
                    yield from self._wait()
                if outage is not None:
                    outage.is_tried = False
                if not may_wait or isinstance(error, SendUnknownError):
                    raise
            else:
                self._has_stored = True
                self._answered(place)
                return found

    def _wait(self) -> tasks.Task[None]:
        self.waiting += 1
        yield tasks.Sleep(RETRY_EVERY_MS)
        self.waiting -= 1

    def _failed(self, place: str, error: RmqError) -> bool:
        """Whether to wait after a failure."""
        if not may_pass(error, is_known=self._has_stored):
            self._answered(place)
            return False
        cause = cause_of(error)
        now_ms = self.clock.monotonic_ms()
        outage = self._out.setdefault(place, _Outage(now_ms))
        if self._has_stored and now_ms - outage.since_ms < self.retry_for_ms:
            if not outage.is_told:
                outage.is_told = True
                limit = format_duration(self.retry_for_ms)
                self.notes.append(
                    f"{place}: {cause.message}; retrying for up to {limit}"
                )
            return True
        if isinstance(error, TransportError) and len(self._out) >= self.places:
            self.given_up = cause
        return False

    def _answered(self, place: str) -> None:
        outage = self._out.pop(place, None)
        if outage is not None and outage.is_told:
            self.notes.append(f"{place} is back; continuing")


def cause_of(error: RmqError) -> RmqError:
    """The error of the transport behind a SendUnknownError."""
    cause = error.__cause__
    is_unknown = isinstance(error, SendUnknownError)
    return cause if is_unknown and isinstance(cause, TransportError) else error
