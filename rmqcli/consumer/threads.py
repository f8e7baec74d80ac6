"""The threads that run listeners, and the engine's `Workers` that give them work.

A listener that does not return cannot be stopped in Python: its thread is left running,
and an error is logged. All are daemons, so that a consumer that was never closed can be
closed at the end of the process.
"""

from __future__ import annotations

import functools
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.consumer.process_end import end_child
from rmqcli.engine.consume import consume_concurrently, consume_orderly
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from _thread import LockType

    from rmqcli.clock import Clock
    from rmqcli.consumer.engine_thread import EngineThread
    from rmqcli.engine.consume_request import (
        ConcurrentOutcome,
        ConcurrentRequest,
        OrderlyOutcome,
        OrderlyRequest,
    )
    from rmqcli.engine.listener import Listener

logger = get_logger(__name__)

#: What a consume thread runs.
Job: TypeAlias = Callable[[], None]


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
    """The threads rmq-consume-1 to rmq-consume-`count`; each runs one job at a time.

    `listener` says whether this is a forked child, in which the thread must end.
    """

    def __init__(self, count: int, listener: Listener, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"rmq-consume-{n + 1}", daemon=True)
            for n in range(count)
        ]

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def start(self) -> None:
        """Begin; `stop` must be called."""
        for thread in self._threads:
            thread.start()

    def put(self, job: Job) -> None:
        """Let the next free thread run `job`. From any thread; never blocks."""
        self._jobs.put(job)

    def is_current(self) -> bool:
        """Whether this is called by one of the threads."""
        return threading.current_thread() in self._threads

    def stop(self, timeout_ms: int) -> bool:
        """End the threads; whether all did in time. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)
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
            job = self._jobs.get()
            if job is None:
                return
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:
                error = raised
                if not self._listener.is_orphaned:
                    logger.exception("exception in a consume thread; it continues")
            if self._listener.is_orphaned:
                end_child(error)


class ListenerWorkers:
    """Satisfies the engine's `Workers`: consume threads call the listener.

    `consumed` and `consumed_orderly` take outcomes, in the thread that owns the engine.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Clock,
        *,
        needs_lock: bool,
        consume_threads: ConsumeThreads,
        engine_thread: EngineThread,
        consumed: Callable[[ConcurrentOutcome], None],
        consumed_orderly: Callable[[OrderlyOutcome], None],
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._needs_lock = needs_lock
        self._consume_threads = consume_threads
        self._engine_thread = engine_thread
        self._consumed = consumed
        self._consumed_orderly = consumed_orderly

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._engine_thread.take(functools.partial(self._serve, request))

    def share(self, request: ConcurrentRequest) -> None:
        """For as many more threads as there are batches left."""
        request.is_shared = True
        batches = -(-request.left // request.batch_size)
        for _ in range(min(batches, self._consume_threads.count) - 1):
            self._consume_threads.put(functools.partial(self._serve, request))

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
        self._engine_thread.take(functools.partial(self._serve_orderly, request))

    def _serve(self, request: ConcurrentRequest) -> None:
        consume_concurrently(
            request,
            self._listener,
            self._clock,
            report=self._report,
            share=self.share,
        )

    def _report(self, outcome: ConcurrentOutcome) -> None:
        action = functools.partial(self._consumed, outcome)
        if outcome.failed:
            self._engine_thread.post(action)
        else:
            # Offsets are committed every 5 s: to wake the engine costs more than it.
            self._engine_thread.leave(action)

    def _serve_orderly(self, request: OrderlyRequest) -> None:
        outcome = consume_orderly(
            request, self._listener, self._clock, needs_lock=self._needs_lock
        )
        self._engine_thread.post(functools.partial(self._consumed_orderly, outcome))
