"""The hand-off of a consumer's event loop to the consume thread that runs its listener.

Handing the messages of each pull to another thread costs as much as decoding them. So
the thread that owns the engine hands the event loop off as an `EngineLease`, and the
consume thread that holds it both does the I/O and calls the listener.

A lease ends when no messages come any more, when jobs take longer than QUICK_MS on
average, or when the consumer closes. While the loop is handed off, the engine's own
thread checks the lease every CHECK_MS. When the same listener call is still running at
the second check, it takes the loop back and gives the remaining jobs to the other
consume threads. So no listener holds up the engine for longer than that, and never do
more listeners run than there are consume threads. After a lease that ended so, more
quick jobs are needed for the next one.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.dataclass import dataclass
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.consumer.backend import Job, JobRunner

logger = get_logger(__name__)

QUICK_MS: Final = 1
CHECK_MS: Final = 10
#: After this long without anything to consume the engine's own thread owns it again.
IDLE_MS: Final = 100
#: How many quick jobs in a row a hand-off needs: at first, and at most.
QUICK_TIMES: Final = 8
QUICK_TIMES_MAX: Final = 4_096
#: A lease of this many jobs was worth it, even if it ends with a slow one.
_WORTH_TIMES: Final = 256
_MEAN_OF: Final = 16
_NS_PER_MS: Final = 1_000_000


@dataclass(slots=True, eq=False)
class EngineLease:
    """The hand-off of the event loop to a consume thread, its holder.

    The holder runs `jobs`. All fields are guarded by the lock of the
    LeasingEngineThread; only the holder appends to `jobs`, while it owns the engine.
    """

    jobs: deque[Job] = field(default_factory=deque)
    #: the thread that holds it (threading.get_ident)
    holder: int | None = None
    is_listening: bool = False
    is_recalled: bool = False
    times: int = 0
    mean_ns: int = 0
    busy_ms: int = 0


class LeasingEngineThread(EngineThread):
    """An `EngineThread` that hands the event loop off while listeners are quick."""

    def __init__(
        self, client: Client, runner: JobRunner, *, on_end: Callable[[], None]
    ) -> None:
        super().__init__(client, runner, on_end=on_end)
        self._lock = threading.Lock()
        self._lease: EngineLease | None = None
        #: wakes the engine's own thread before its next check
        self._check_now = threading.Event()
        #: how many jobs the consume threads have; only the owner of the engine uses it
        self._handed_out = 0
        self._quick_times = 0
        self._needed_times = QUICK_TIMES

    @property
    def is_handed_off(self) -> bool:
        """Whether a consume thread owns the engine, or is about to."""
        return self._lease is not None

    def take(self, *jobs: Job) -> None:
        """See EngineThread. Under a lease its holder runs the jobs."""
        if self._lease is None and self._may_hand_off():
            self._lease = EngineLease()
        if self._lease is not None:
            self._lease.jobs.extend(jobs)
            return
        for job in jobs:
            self._hand_out(job)

    def call(self, job: Job) -> None:
        """See EngineThread.

        The engine's own thread owns it from the next turn on, because the holder of the
        lease may be the only consume thread.
        """
        lease = self._lease
        if lease is not None:
            lease.is_recalled = True
        self._runner.put(job)

    def give_way(self) -> None:
        """See EngineThread."""
        with self._lock:
            lease = self._lease
            if lease is not None and lease.holder == threading.get_ident():
                self._end_lease(lease)

    def forget_after_fork(self) -> None:
        """See EngineThread."""
        super().forget_after_fork()
        self._lock = threading.Lock()
        self._check_now = threading.Event()
        self._lease = None

    def _may_hand_off(self) -> bool:
        assert self._engine is not None  # set by start()  # noqa: S101
        return (
            not self._handed_out
            and self._quick_times >= self._needed_times
            and not self._engine.is_closing
        )

    def _hand_out(self, job: Job) -> None:
        """Give a job to the consume threads, and count it."""
        self._handed_out += 1
        self._runner.put(functools.partial(self._run_counted, job))

    async def _run_counted(self, job: Job) -> None:
        began_ns = time.perf_counter_ns()
        try:
            await job()
        finally:
            spent_ns = time.perf_counter_ns() - began_ns
            self.leave(lambda: self._job_ended(spent_ns))

    def _job_ended(self, spent_ns: int) -> None:
        """Inside the engine: count a job that was handed out."""
        self._handed_out -= 1
        is_quick = spent_ns <= QUICK_MS * _NS_PER_MS
        self._quick_times = self._quick_times + 1 if is_quick else 0

    # --- the engine's own thread ---

    def _run_once(self) -> None:
        if self._lease is None:
            super()._run_once()
        lease = self._lease
        if lease is not None:
            self._runner.put(functools.partial(self._run_lease, lease))
            self._watch(lease)

    def _watch(self, lease: EngineLease) -> None:
        """Wait for the end of the lease; end it when its listener does not return."""
        seen_times = -1
        while True:
            self._check_now.wait(CHECK_MS / 1000)
            self._check_now.clear()
            with self._lock:
                if self._lease is not lease:
                    return
                is_away = lease.is_listening or lease.holder is None
                if is_away and (lease.times == seen_times or self._stopped.is_set()):
                    self._end_lease(lease)
                    return
                seen_times = lease.times

    def _end_lease(self, lease: EngineLease) -> None:
        """Own the engine again, and give the jobs that have not begun to other threads.

        The caller holds the lock.
        """
        self._lease = None
        self._quick_times = 0
        if lease.is_listening:  # a slow listener, even if it was often quick
            is_worth = lease.times >= _WORTH_TIMES
            times = self._needed_times
            self._needed_times = (
                max(QUICK_TIMES, times // 2)
                if is_worth
                else min(2 * times, QUICK_TIMES_MAX)
            )
        # The holder is one of the consume threads, and takes no other job.
        for job in lease.jobs:
            self._hand_out(job)
        self._check_now.set()

    # --- the consume thread that holds the lease ---

    async def _run_lease(self, lease: EngineLease) -> None:
        """Run the jobs and the engine until the lease is over."""
        with self._lock:
            if self._lease is not lease:
                return
            lease.holder = threading.get_ident()
            lease.busy_ms = self._client.clock.monotonic_ms()
        try:
            while await self._run_jobs(lease) and not self._is_over(lease):
                try:
                    self._turn(IDLE_MS)
                except BaseException:
                    if self._is_orphaned:
                        raise
                    logger.exception("exception in the engine; it continues")
                    self._stopped.wait(0.01)
        finally:
            with self._lock:
                if self._lease is lease:
                    self._end_lease(lease)

    async def _run_jobs(self, lease: EngineLease) -> bool:
        """Run the jobs of the lease; return whether to keep it."""
        while lease.jobs:
            with self._lock:
                if self._lease is not lease:
                    return False
                job = lease.jobs.popleft()
                lease.times += 1
                lease.is_listening = True
            began_ns = time.perf_counter_ns()
            try:
                await job()
            except BaseException:
                if self._is_orphaned:
                    raise
                logger.exception("exception in a consume thread; it continues")
            spent_ns = time.perf_counter_ns() - began_ns
            with self._lock:
                if self._lease is not lease:
                    return False
                lease.mean_ns += (spent_ns - lease.mean_ns) // _MEAN_OF
                if lease.mean_ns > QUICK_MS * _NS_PER_MS:
                    return False
                lease.is_listening = False
            lease.busy_ms = self._client.clock.monotonic_ms()
        return True

    def _is_over(self, lease: EngineLease) -> bool:
        """Whether there is a reason to end the lease."""
        assert self._engine is not None  # set by start()  # noqa: S101
        idle_ms = self._client.clock.monotonic_ms() - lease.busy_ms
        return (
            idle_ms >= IDLE_MS
            or lease.is_recalled
            or self._engine.is_closing
            or self._stopped.is_set()
        )
