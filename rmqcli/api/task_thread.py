"""A thread that does a client's I/O and runs tasks, for Producer and SimpleConsumer.

| thread | started by | blocks on | ended by |
|---|---|---|---|
| as named | TaskThread.start() | sockets, timers, a wake-up | end() |

Other threads hand a task over and wait for its `concurrent.futures.Future`. Only this
thread uses the client, which therefore needs no lock. The loop survives any exception
of a callback.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.clock import Now
from rmqcli.log import get_logger
from rmqcli.tasks import run_in
from rmqcli.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rmqcli import tasks
    from rmqcli.api.client import Client

T = TypeVar("T")

logger = get_logger(__name__)

_POLL_MS_MAX: Final = 1_000
_JOIN_MS: Final = 1_000


class TaskThread:
    """Drives `client` and implements `tasks.Runner`.

    Any thread may call `start`, `is_current`, `post`, `run` and `end`. The methods of
    `tasks.Runner` may only be called inside the thread.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._timers = Timers()
        #: appended to by any thread, emptied by this one; single calls need no lock
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_ending = self._has_ended = False
        #: whether `start` was called
        self.is_started = False
        #: taken by the thread that closes the client
        self._close_token = deque((True,))
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        client.remoting.let_wake(lambda: bool(self._inbox) or self._is_ending)

    def start(self) -> None:
        """Begin to run tasks; `end` must be called, but not after an exception."""
        self.is_started = True
        try:
            self._thread.start()
        except BaseException:
            self.end()  # the thread may have begun
            raise

    def is_current(self) -> bool:
        """Whether the caller runs in this thread, in which it must not wait."""
        return threading.current_thread() is self._thread

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread, after the actions that were posted before."""
        self._inbox.append(action)
        if self._has_ended:
            self._run_rest()  # the client is closed: tasks fail at once
        else:
            self._client.remoting.wake()

    def run(self, part: tasks.Part) -> Future[Any]:
        """See `tasks.run_in`. A thread that was not started ends."""
        if not self.is_started:  # an interrupt came before it, and this is the close
            self.end()
        return run_in(self, part)

    def end(self) -> bool:
        """End the thread and close the client; return whether it ended within 1 s."""
        self._is_ending = True
        self._client.remoting.wake()
        if not self._thread.is_alive():
            self._close()  # it has not begun, and closes nothing when it does
        elif not self.is_current():
            self._thread.join(_JOIN_MS / 1_000)
        return not self._thread.is_alive()

    # --- tasks.Runner ---

    def submit(self, request: tasks.Request[T]) -> tasks.Pending[T]:
        """See tasks.Runner."""
        return self._client.submit(
            request.address, request.call, timeout_ms=request.timeout_ms
        )

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See tasks.Runner."""
        due_ms = self._client.clock.monotonic_ms() + delay_ms
        self._timers.at(due_ms, lambda _: action())

    def _loop(self) -> None:
        pid = os.getpid()
        while not self._is_ending:
            try:
                self._turn()
            except BaseException:
                if os.getpid() != pid:
                    raise  # in a child that a callback has forked
                logger.exception(
                    "thread %s continues after an error", self._thread.name
                )
        self._close()

    def _close(self) -> None:
        """Close the client, in the first thread that calls this."""
        try:
            self._close_token.pop()
        except IndexError:
            return
        # Tasks under way end with the DisconnectedError of their requests.
        self._client.close()
        self._has_ended = True
        self._run_rest()

    def _run_rest(self) -> None:
        """Run actions that were posted too late. Threads may call it concurrently."""
        while True:
            try:
                action = self._inbox.popleft()
            except IndexError:
                return
            try:
                action()
            except Exception:
                logger.exception(
                    "action posted after the end failed thread=%s", self._thread.name
                )

    def _turn(self) -> None:
        while self._inbox:
            self._inbox.popleft()()
        clock = self._client.clock
        self._timers.run_due(Now(clock.monotonic_ms(), clock.epoch_ms()))
        due_ms = self._timers.next_ms()
        wait_ms = _POLL_MS_MAX if due_ms is None else due_ms - clock.monotonic_ms()
        self._client.poll(max(0, min(wait_ms, _POLL_MS_MAX)))
