"""From a client's threads to the user's event loop.

A thread that ends many futures wakes the loop up once for all of them, because a
wake-up costs a system call and a switch of threads, which is more than the rest of the
hand-over of one message.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

#: Threads for the calls of one client that block; started when they are needed.
_WORKERS_MAX: Final = 4


class EventLoop:
    """The event loop to which a client belongs: the one that runs now."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: appended by any thread, emptied by the loop
        self._actions: deque[Callable[[], None]] = deque()
        #: Whether `_run_actions` is on its way. It is reset before the actions are
        #: taken, so an action that was appended while it was set is taken, too. Two
        #: threads that set it at once wake the loop up twice, which is harmless.
        self._is_called = False

    def check(self) -> None:
        """Raise UsageError when another event loop runs."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "the client belongs to another event loop",
                hint="create and start a client in the event loop that uses it",
            )

    def post(self, action: Callable[[], None]) -> None:
        """Run `action`, which must not fail, in the loop. Any thread may call this.

        A loop that is closed runs nothing any more; then this has no effect.
        """
        self._actions.append(action)
        if self._is_called:
            return
        self._is_called = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._run_actions)

    def _run_actions(self) -> None:
        self._is_called = False
        for _ in range(len(self._actions)):
            self._actions.popleft()()

    async def outcome(self, future: Future[Result]) -> Result:
        """Wait for a future that another thread ends.

        Cancelling the wait does not cancel the future.
        """
        waiter = self._loop.create_future()
        future.add_done_callback(lambda _: self.post(partial(_wake, waiter)))
        # The waiter never carries an error, which asyncio would report as not retrieved
        # when the caller was cancelled in the meantime.
        await waiter
        return future.result()


class BlockingCalls:
    """The calls of one client that block, in a few threads beside the loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._workers = ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="rmq-aio")

    async def run(self, function: Callable[[], Result]) -> Result:
        """Call `function` in a thread. A call that is cancelled early does not begin.

        One that has begun continues when it is cancelled, and its result is dropped.
        """
        future = self._workers.submit(function)
        try:
            return await self._loop.outcome(future)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def close(self, close: Callable[[], None]) -> Closing:
        """Call `close` in a thread of its own, and end the threads."""

        def run() -> None:
            close()
            self._workers.shutdown()

        return Closing(self._loop, run)

    def close_after_start(self, close: Callable[[], None]) -> Closing:
        """As `close`, after the end of a call that starts the client."""

        def run() -> None:
            self._workers.shutdown()
            close()

        return Closing(self._loop, run)


class Closing:
    """The end of a client, in the thread rmq-aio-close."""

    def __init__(self, loop: EventLoop, close: Callable[[], None]) -> None:
        self._loop = loop
        self._close = close
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, name="rmq-aio-close", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            self._close()
        except BaseException as error:  # noqa: BLE001  # raised by `wait`
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def wait(self) -> None:
        """Wait for the end; raise its error. Cancelling does not stop the close."""
        await self._loop.outcome(self._ended)
        self._thread.join()  # It has nothing left to do.


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
