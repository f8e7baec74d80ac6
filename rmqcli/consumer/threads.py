"""The threads that run listeners.

| thread | started by | blocks on | ended by |
|---|---|---|---|
| rmq-engine | EngineThread.start() | sockets, a wake-up, a check | end() |
| rmq-consume-N | ConsumeThreads.start() | requests, listener, sockets | stop() |

Which of them owns the engine: see `engine_thread`. A listener that does not return
cannot be stopped in Python: its thread is left running, and an error is logged. All are
daemons, so that a consumer that was never closed can be closed at the end of the
process.
"""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from rmqcli.consumer.engine_thread import Lease
from rmqcli.consumer.process_end import end_child
from rmqcli.engine.consume import consume_concurrently, consume_orderly
from rmqcli.engine.consume_request import ConcurrentRequest
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

    from rmqcli.clock import Clock
    from rmqcli.consumer.engine_thread import EngineThread, Request
    from rmqcli.engine.consume_request import (
        ConcurrentOutcome,
        OrderlyOutcome,
        OrderlyRequest,
    )
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.push_consumer import PushConsumer

logger = get_logger(__name__)


class Latch:
    """Set once, waited for by any number of threads, without a lock of its own.

    A signal handler may wait for it, or set it, although it interrupted a `wait` or a
    `set` of its own thread. With `threading.Event` the handler can wait for a lock that
    the code beneath it holds.
    """

    def __init__(self) -> None:
        self.is_set = False
        #: one for each call of `wait` under way, held until `set` releases it
        self._waiters: deque[LockType] = deque()

    def set(self) -> None:
        """End every wait, now and later. Idempotent."""
        self.is_set = True
        with suppress(IndexError):
            while True:
                self._waiters.popleft().release()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until it is set or the time is over; return whether it is set."""
        waiter = allocate_lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            if not self.is_set:  # else `set` may have released the waiters before
                waiter.acquire(timeout=timeout_ms / 1000)
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)
        return self.is_set


class ConsumeThreads:
    """Satisfies the engine's `Workers`; outcomes go to `engine_thread`, as calls."""

    def __init__(
        self,
        count: int,
        listener: Listener,
        clock: Clock,
        *,
        needs_lock: bool,
        engine_thread: EngineThread,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._needs_lock = needs_lock
        self._engine_thread = engine_thread
        self._requests: SimpleQueue[Request | Lease | Callable[[], None] | None]
        self._requests = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"rmq-consume-{n + 1}", daemon=True)
            for n in range(count)
        ]
        self.consumed: Callable[[ConcurrentOutcome], None]
        self.consumed_orderly: Callable[[OrderlyOutcome], None]

    def start(self, engine: PushConsumer, on_end: Callable[[], None]) -> None:
        """Begin; `stop` must be called. `on_end` as of EngineThread."""
        self.consumed = engine.consumed
        self.consumed_orderly = engine.consumed_orderly
        for thread in self._threads:
            thread.start()
        self._engine_thread.start(engine, self._requests.put, on_end)

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._engine_thread.take(request)

    def share(self, request: ConcurrentRequest) -> None:
        """For as many more threads as there are batches left."""
        request.is_shared = True
        batches = -(-request.left // request.batch_size)
        for _ in range(min(batches, len(self._threads)) - 1):
            self._requests.put(lambda: self._serve(request))

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
        self._engine_thread.take(request)

    def is_current(self) -> bool:
        """Whether this is called by one of the threads."""
        return threading.current_thread() in self._threads

    def call(self, action: Callable[[], None]) -> None:
        """Run something else where listeners run; from inside the engine."""
        self._engine_thread.recall()  # else its holder may be the only thread
        self._requests.put(action)

    def stop(self, timeout_ms: int) -> bool:
        """End the threads; whether all did in time. Idempotent."""
        for _ in self._threads:
            self._requests.put(None)
        until_ms = self._clock.monotonic_ms() + timeout_ms
        for thread in self._threads:
            if thread.is_alive():
                left_ms = max(0, until_ms - self._clock.monotonic_ms())
                thread.join(left_ms / 1000)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            logger.error(
                "listeners did not return, their threads keep running count=%d"
                " threads=%s",
                len(alive),
                ", ".join(alive),
            )
        return not alive

    def _run(self) -> None:
        while True:
            request = self._requests.get()
            if request is None:
                return
            error: BaseException | None = None
            try:
                self._run_one(request)
            except BaseException as raised:
                error = raised
                if not self._listener.is_orphaned:
                    logger.exception("exception in a consume thread; it continues")
            if self._listener.is_orphaned:
                end_child(error)

    def _run_one(self, request: Request | Lease | Callable[[], None]) -> None:
        if isinstance(request, Lease):
            self._engine_thread.run_lease(request, self._serve)
        elif callable(request):
            request()
        else:
            began_ns = time.perf_counter_ns()
            try:
                self._serve(request)
            finally:
                spent_ns = time.perf_counter_ns() - began_ns
                self._engine_thread.leave(lambda: self._engine_thread.ended(spent_ns))

    def _serve(self, request: Request) -> None:
        if isinstance(request, ConcurrentRequest):
            consume_concurrently(
                request,
                self._listener,
                self._clock,
                report=self._report,
                share=self.share,
            )
        else:
            outcome = consume_orderly(
                request, self._listener, self._clock, needs_lock=self._needs_lock
            )
            self._engine_thread.post(lambda: self.consumed_orderly(outcome))

    def _report(self, outcome: ConcurrentOutcome) -> None:
        if outcome.failed:
            self._engine_thread.post(lambda: self.consumed(outcome))
        else:
            # Offsets are committed every 5 s: to wake the engine costs more than it.
            self._engine_thread.leave(lambda: self.consumed(outcome))
