"""From a client's threads to the user's event loop; what all clients do with both.

A thread that ends many futures wakes the loop up once for all of them, because a
wake-up costs a system call and a switch of threads, which is more than the rest of the
hand-over of one message.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from rmqcli.errors import UsageError
from rmqcli.process.end import InOneProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: Threads for the calls of one client that block; started when they are needed.
_THREADS_MAX: Final = 4


class EventLoop:
    """The event loop to which a client belongs: the one that runs now."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        #: appended by any thread, emptied by the loop
        self._actions: deque[Callable[[], None]] = deque()
        #: Whether `_run_actions` is on its way. It is reset before the actions are
        #: taken, so an action that was appended while it was set is taken, too. Two
        #: threads that set it at once wake the loop up twice, which is harmless.
        self._is_called = False

    def is_current(self) -> bool:
        """Whether this is called in the thread of the loop."""
        return threading.get_ident() == self._thread

    def check(self) -> None:
        """Raise UsageError when another event loop runs."""
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(
                "the client belongs to another event loop",
                hint="create and start a client in the event loop that uses it",
            )

    def post(self, action: Callable[[], None]) -> bool:
        """Run `action`, which must not fail, in the loop. Any thread may call this.

        A loop that is closed runs nothing any more; then this returns False.
        """
        self._actions.append(action)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._run_actions)
        return not self.loop.is_closed()

    def _run_actions(self) -> None:
        self._is_called = False
        for _ in range(len(self._actions)):
            self._actions.popleft()()

    async def outcome(self, future: Future[Result]) -> Result:
        """Wait for a future that another thread ends.

        Cancelling the wait does not cancel the future.
        """
        waiter = self.loop.create_future()
        future.add_done_callback(lambda _: self.post(partial(_wake, waiter)))
        # The waiter never carries an error, which asyncio would report as not retrieved
        # when the caller was cancelled in the meantime.
        await waiter
        return future.result()


class BlockingCalls:
    """The calls of one client that block, in a few threads beside the loop.

    With one thread they run one after the other.
    """

    def __init__(self, loop: EventLoop, *, threads_max: int = _THREADS_MAX) -> None:
        self._loop = loop
        self._workers = ThreadPoolExecutor(threads_max, thread_name_prefix="rmq-aio")

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

    def close_after_calls(self, close: Callable[[], None]) -> Closing:
        """As `close`, after the end of the calls that have begun."""

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


class Cancellation:
    """Ends a run in another thread, between two of its batches."""

    def __init__(self) -> None:
        self._is_asked = threading.Event()

    def ask(self) -> None:
        """End the run at its next step."""
        self._is_asked.set()

    def step(self, function: Callable[..., object] | None, *args: object) -> object:
        """Call `function`, if there is one, unless or until the end was asked for."""
        result = None
        if function is not None and not self._is_asked.is_set():
            result = function(*args)
        if self._is_asked.is_set():
            raise CancelledError
        return result


async def in_own_thread(
    function: Callable[[], Result], cancellation: Cancellation | None = None
) -> Result:
    """Call `function` in a thread of its own, and wait for its end when cancelled."""
    calls = BlockingCalls(EventLoop(), threads_max=1)
    try:
        return await calls.run(function)
    finally:
        if cancellation is not None:
            cancellation.ask()
        await calls.close_after_calls(lambda: None).wait()


def awaited(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[AsyncClient, Parameters], Coroutine[Any, Any, Result]]:
    """The method of an asynchronous client that calls this one in a thread."""

    @functools.wraps(method)
    async def call(
        self: AsyncClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return await self._call(partial(method, self._client, *args, **kwargs))

    return call


class AsyncClient(InOneProcess):
    """The event loop and the life of an asynchronous client, called `kind` in errors.

    It is made anywhere, started and used in one event loop, and closed once.
    """

    #: the client that is called in threads, and in whose place this one is
    _client: Any

    def __init__(self, kind: str) -> None:
        self._kind = kind
        #: this and the calls are made by `_enter_loop`
        self._loop: EventLoop | None = None
        self._calls: BlockingCalls
        self._closing: Closing | None = None

    @property
    def is_closed(self) -> bool:
        """Whether a close has begun, also that of a start that failed."""
        return self._closing is not None

    def __repr__(self) -> str:
        return f"Async{self._client!r}"

    async def __aenter__(self) -> Self:
        if self._loop is None:
            await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the client in the event loop that runs now."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the client. Idempotent."""
        raise NotImplementedError

    def _enter_loop(self, *, threads_max: int = _THREADS_MAX) -> EventLoop:
        """Belong to the event loop that runs now, from the start on."""
        loop = self._loop = EventLoop()
        self._calls = BlockingCalls(loop, threads_max=threads_max)
        return loop

    async def _start(
        self, start: Callable[[], None], close: Callable[[], None]
    ) -> None:
        """Call `start` in a thread; when it fails or is cancelled, `close` after it."""
        try:
            await self._calls.run(start)
        except BaseException:
            self._closing = self._calls.close_after_calls(close)
            raise

    async def _close(self, close: Callable[[], None]) -> None:
        """Call `close` once in a thread, and wait for its end; before a start, here."""
        if self._loop is None:
            close()
            return
        self._loop.check()
        if self._closing is None:
            self._closing = self._calls.close(close)
        await self._closing.wait()

    async def _call(self, function: Callable[[], Result]) -> Result:
        """Call `function` in a thread. Raises the errors of `_opened`."""
        self._opened()
        return await self._calls.run(function)

    def _opened(self) -> EventLoop:
        """The loop. Raises UsageError unless the client is open in this loop."""
        loop = self._started()
        if self._closing is not None:
            raise UsageError(f"the {self._kind} is closed")
        return loop

    def _started(self) -> EventLoop:
        """The loop. Raises UsageError unless the client was started in this loop."""
        if self._loop is None:
            raise UsageError(
                f"the {self._kind} is not started: use `async with`, or await start"
            )
        self._loop.check()
        return self._loop
