"""The thread that runs gRPC's asyncio calls and the tasks of all proxy clients.

| thread | started by | blocks on | ended by |
|---|---|---|---|
| rmq-proxy | the first client of a proxy in the process | gRPC, timers | the process |

A process has a single such thread, because gRPC's asyncio wakes all event loops of a
process for each event of one of them. It is a daemon thread and has no state to save.
asyncio is allowed only in this package: gRPC has no other way to hold many streams
without a thread for each.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.process.grpc import is_of_another_loop, use_grpc
from rmqcli.tasks import run_in

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

    from rmqcli import tasks

logger = get_logger(__name__)


class IoThread:
    """Runs coroutines and tasks. Implements `tasks.Runner`, except for its requests.

    `post` and `run` may be called from any thread, other methods only from this thread.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_loop_failed)
        #: asyncio itself keeps only weak references
        self._coroutines: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="rmq-proxy", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where it must not wait."""
        return threading.current_thread() is self._thread

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread, after all actions that were posted before."""
        self.loop.call_soon_threadsafe(action)

    def run(self, part: tasks.Part) -> Future[Any]:
        """See `tasks.run_in`."""
        return run_in(self, part)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine to its end, and log its error if it fails."""
        task = self.loop.create_task(coroutine)
        self._coroutines.add(task)
        task.add_done_callback(self._coroutines.discard)
        return task

    def submit(self, request: tasks.Request[Any]) -> tasks.Pending[Any]:
        """See tasks.Runner. Raises RmqError: a proxy takes no remoting requests."""
        raise RmqError(f"a proxy client cannot send {request.call.what}")

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See tasks.Runner."""
        self.loop.call_later(delay_ms / 1_000, action)

    def _run(self) -> None:
        pid = os.getpid()
        while True:
            try:
                return self.loop.run_forever()  # which no client ends
            except BaseException:  # asyncio passes on SystemExit and KeyboardInterrupt
                if os.getpid() != pid:
                    raise
                logger.exception("the proxy thread continues after an exception")


def _loop_failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not is_of_another_loop(context):
        logger.error(
            "the proxy thread continues after an error: %s",
            context.get("message"),
            exc_info=context.get("exception"),
        )


_lock: Final = threading.Lock()
#: process id -> its thread, because a forked child does not inherit it; guarded by
#: _lock
_threads: Final[dict[int, IoThread]] = {}


def io_thread() -> IoThread:
    """The I/O thread of this process, started on the first call. Thread-safe.

    Raises UsageError in a forked child in which gRPC would not work.
    """
    use_grpc()
    pid = os.getpid()
    with _lock:
        found = _threads.get(pid)
        if found is None:
            _threads.clear()
            found = _threads[pid] = IoThread()
        return found
