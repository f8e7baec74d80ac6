"""Where a task of a proxy's client runs: in the I/O thread, or in the caller's thread.

A task makes its calls by means of a `Via`, so that the same task can run in either.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqcli import tasks
from rmqcli.clock import Now
from rmqcli.errors import RmqError
from rmqcli.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Clock
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.rpc import Rpc

T = TypeVar("T")


class Via(tasks.Runner, Protocol):
    """Where a task runs, and how it makes its calls."""

    def call(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """Make a call; the Pending always ends. `timeout_ms` None: the config's."""


class Submit(Protocol):
    """`Session.submit`."""

    def __call__(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None, /
    ) -> tasks.Pending[T]: ...


class Invoke(Protocol):
    """`Session.call_now`: makes a call in the caller's thread. Raises its error."""

    def __call__(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None, /
    ) -> T: ...


class IoVia:
    """Makes the calls of tasks in the I/O thread, by a session's own methods."""

    def __init__(
        self, call: Submit, call_later: Callable[[int, Callable[[], None]], None]
    ) -> None:
        self.call = call
        self.call_later = call_later

    def submit(self, request: tasks.Request[Any]) -> tasks.Pending[Any]:
        """See tasks.Runner."""
        raise RmqError(f"a proxy client cannot send {request.call.what}")


class CallerVia:
    """Runs one task in the caller's thread: its calls block, its sleeps wait."""

    def __init__(self, invoke: Invoke, clock: Clock) -> None:
        self._invoke = invoke
        self._clock = clock
        self._timers = Timers()

    def run(self, make: Callable[[CallerVia], tasks.Task[T]]) -> T:
        """Run the task to its end. Raises its error."""
        clock = self._clock
        pending: tasks.Pending[T] = tasks.start(make(self), self)
        while not pending.is_done:
            due_ms = self._timers.next_ms()
            if due_ms is None:
                raise RuntimeError(
                    "the task waits for something that no runner provides"
                )
            clock.wait_ms(threading.Event(), due_ms - clock.monotonic_ms())
            self._timers.run_due(Now(clock.monotonic_ms(), clock.epoch_ms()))
        return pending.result()

    def call(
        self, endpoints: Endpoints, rpc: Rpc[T], timeout_ms: int | None = None
    ) -> tasks.Pending[T]:
        """See Via."""
        pending: tasks.Pending[T] = tasks.Pending()
        try:
            pending.succeed(self._invoke(endpoints, rpc, timeout_ms))
        except RmqError as error:
            pending.fail(error)
        return pending

    def submit(self, request: tasks.Request[Any]) -> tasks.Pending[Any]:
        """See tasks.Runner."""
        raise RmqError(f"a proxy client cannot send {request.call.what}")

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See tasks.Runner."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._timers.at(due_ms, lambda _: action())
