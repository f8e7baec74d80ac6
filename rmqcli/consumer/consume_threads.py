"""The threads of a consumer that run jobs, mostly calls of its listener.

A listener that does not return cannot be stopped in Python: its thread is left running,
and an error is logged. All threads are daemons, so that a consumer that was never
closed can be closed at the end of the process.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from rmqcli.engine.consume.request import run_at_once
from rmqcli.log import get_logger
from rmqcli.process.end import end_child

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.consumer.backend import Job
    from rmqcli.engine.listener import Listener

logger = get_logger(__name__)

#: How often `stop` checks whether a thread that has to end still runs a job.
_LOOK_MS: Final = 50


class ConsumeThreads:
    """The threads rmq-consume-1 to rmq-consume-`count`; each runs one job at a time.

    Implements `JobRunner`, for plain listeners. `listener` says whether this is a
    forked child, in which the thread must end.
    """

    def __init__(self, count: int, listener: Listener, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"rmq-consume-{n + 1}", daemon=True)
            for n in range(count)
        ]
        #: the threads that run a job
        self._busy: set[threading.Thread] = set()

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def start(self) -> None:
        """Begin; `stop` must be called."""
        for thread in self._threads:
            thread.start()

    def put(self, *jobs: Job) -> None:
        """See JobRunner."""
        for job in jobs:
            self._jobs.put(job)

    def is_current(self) -> bool:
        """Whether this is called by one of the threads."""
        return threading.current_thread() in self._threads

    def let_end(self) -> None:
        """Let each thread end after its job, without waiting. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)

    def stop(self, timeout_ms: int) -> None:
        """End the threads; an error is logged for those that do not end. Idempotent.

        Waits up to `timeout_ms` for threads that run a job. Idle threads end by
        themselves, on a busy machine perhaps later, and this waits for them without a
        limit.
        """
        self.let_end()
        until_ms = self._clock.monotonic_ms() + timeout_ms
        for thread in self._threads:
            while thread.is_alive():
                left_ms = until_ms - self._clock.monotonic_ms()
                if left_ms <= 0 and thread in self._busy:
                    break
                thread.join(_LOOK_MS / 1000)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            logger.error(
                "listeners did not return, their threads keep running count=%d"
                " threads=%s",
                len(alive),
                ", ".join(alive),
            )

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            error: BaseException | None = None
            self._busy.add(threading.current_thread())
            try:
                run_at_once(job())
            except BaseException as raised:
                error = raised
                if not self._listener.is_orphaned:
                    logger.exception("exception in a consume thread; it continues")
            finally:
                self._busy.discard(threading.current_thread())
            if self._listener.is_orphaned:
                end_child(error)
