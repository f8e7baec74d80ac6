"""The threads of a consumer: which run listeners, and which one owns the engine.

`ConsumeThreads` run jobs, mostly calls of a listener. A listener that does not return
cannot be stopped in Python: its thread is left running, and an error is logged. All
threads are daemons, so that a consumer that was never closed can be closed at the end
of the process.

To own the engine is to call it, and to do the I/O of its client. Only one thread owns
it at a time. A separate thread for the sockets would have to hand every answer over,
and in CPython two threads do not run Python code at once anyway. `EngineThread` is the
interface; there are two implementations:

- `PlainEngineThread`: a thread of its own owns the engine, from the start to the end.
- `LeasingEngineThread`, which consumers use: while listeners are quick, that thread
  hands the event loop off to the consume thread that runs them, as a `Lease`, because
  handing the messages of each pull to another thread costs as much as decoding them.

A lease ends when no messages come any more, when jobs take longer than QUICK_MS on
average, or when the consumer closes. While the loop is handed off, the engine's own
thread checks the lease every CHECK_MS. When the same listener call is still running at
the second check, it takes the loop back and gives the remaining jobs to the other
consume threads. So no listener holds up the engine for longer than that, and never do
more listeners run than there are consume threads. After a lease that ended so, more
quick jobs are needed for the next one.

The event loop survives any exception. After `end` the engine's own thread calls
`on_end` and ends.
"""

from __future__ import annotations

import functools
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from rmqcli.engine.consume.request import consume_concurrently, consume_orderly
from rmqcli.log import get_logger
from rmqcli.process_end import end_child

if TYPE_CHECKING:
    from _thread import LockType

    from rmqcli.api.client import Client
    from rmqcli.clock import Clock
    from rmqcli.engine.consume.request import (
        ConcurrentOutcome,
        ConcurrentRequest,
        OrderlyOutcome,
        OrderlyRequest,
    )
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.push_consumer import PushConsumer

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
_POLL_MS_MAX: Final = 1_000
#: How long `join` waits for the engine's thread, which has nothing left to do.
_JOIN_MS: Final = 10_000
#: How often `stop` checks whether a thread that has to end still runs a job.
_LOOK_MS: Final = 50
_MEAN_OF: Final = 16
_NS_PER_MS: Final = 1_000_000

#: What a consume thread runs.
Job: TypeAlias = Callable[[], None]


class Latch:
    """An event that is set once. Any number of threads may wait for it.

    It has no lock of its own, so a signal handler may wait for it, or set it, although
    it interrupted a `wait` or a `set` of the same thread. With `threading.Event` the
    handler could wait for a lock that the interrupted code holds.
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

    def put(self, job: Job) -> None:
        """Let the next free thread run `job`. From any thread; never blocks."""
        self._jobs.put(job)

    def is_current(self) -> bool:
        """Whether this is called by one of the threads."""
        return threading.current_thread() in self._threads

    def let_end(self) -> None:
        """Let each thread end after its job, without waiting. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)

    def stop(self, timeout_ms: int) -> bool:
        """End the threads; return whether all of them have ended. Idempotent.

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
        return not alive

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            error: BaseException | None = None
            self._busy.add(threading.current_thread())
            try:
                job()
            except BaseException as raised:
                error = raised
                if not self._listener.is_orphaned:
                    logger.exception("exception in a consume thread; it continues")
            finally:
                self._busy.discard(threading.current_thread())
            if self._listener.is_orphaned:
                end_child(error)


class EngineThread(Protocol):
    """Runs a `PushConsumer` and its client.

    Its last act is to call `on_end`, which is passed to its constructor. "Inside the
    engine" means inside a call that the owner makes: of a posted function, of a
    callback of a request, or of the engine.
    """

    @property
    def has_run(self) -> bool:
        """Whether the engine's own thread has begun to run."""

    def start(self, engine: PushConsumer) -> None:
        """Begin to run the engine. Once."""

    def take(self, job: Job) -> None:
        """From inside the engine: let a consume thread run `job`.

        The job calls a listener for the messages of one request.
        """

    def call(self, job: Job) -> None:
        """From inside the engine: let a consume thread run `job`, which may take long.

        The engine continues in the meantime, even with a single consume thread.
        """

    def post(self, action: Callable[[], None]) -> None:
        """Let the owner call `action`, in the order of the posts. From any thread."""

    def leave(self, action: Callable[[], None]) -> None:
        """Like `post`, but without waking the owner up.

        The owner calls `action` when it has something else to do, or within 1 s.
        """

    def is_current(self) -> bool:
        """Whether the caller is inside the engine, or is the engine's own thread."""

    def give_way(self) -> None:
        """Let the engine continue while the caller, a listener, waits for it."""

    def end(self) -> None:
        """Let the engine's own thread end. From any thread; idempotent."""

    def join(self) -> None:
        """Wait for the end of the engine's own thread, which `on_end` has announced.

        One caller at a time: a signal handler that interrupted a join would wait for a
        lock of the thread that the join beneath it holds.
        """

    def forget_after_fork(self) -> None:
        """In a forked child: own nothing.

        Locks may be held by threads of the parent, which do not exist here. The client
        forgets its sockets by itself.
        """


class PlainEngineThread:
    """An `EngineThread` whose own thread, rmq-engine, always owns the engine."""

    def __init__(
        self,
        client: Client,
        consume_threads: ConsumeThreads,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._client = client
        self._consume_threads = consume_threads
        self._on_end = on_end
        #: set by `start`
        self._engine: PushConsumer | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(
            target=self._run, name="rmq-engine", daemon=True
        )
        self._has_run = False
        self._is_joining = False
        #: in a forked child, whose only thread is the one that forked
        self._is_orphaned = False
        self._stopped = threading.Event()
        #: the thread that is inside the engine (threading.get_ident)
        self._owner: int | None = None
        client.remoting.let_wake(self._has_more)

    @property
    def has_run(self) -> bool:
        """See EngineThread."""
        return self._has_run

    def start(self, engine: PushConsumer) -> None:
        """See EngineThread."""
        self._engine = engine
        self._thread.start()

    def take(self, job: Job) -> None:
        """See EngineThread."""
        self._consume_threads.put(job)

    def call(self, job: Job) -> None:
        """See EngineThread."""
        self._consume_threads.put(job)

    def post(self, action: Callable[[], None]) -> None:
        """See EngineThread."""
        self._inbox.append(action)
        self._client.remoting.wake()

    def leave(self, action: Callable[[], None]) -> None:
        """See EngineThread."""
        self._inbox.append(action)

    def is_current(self) -> bool:
        """See EngineThread."""
        ident = threading.get_ident()
        return ident in (self._owner, self._thread.ident)

    def give_way(self) -> None:
        """See EngineThread. No listener runs in the thread that owns the engine."""

    def end(self) -> None:
        """See EngineThread."""
        self._stopped.set()
        self._client.remoting.wake()

    def join(self) -> None:
        """See EngineThread."""
        if self._is_joining or not self._has_run:
            return
        self._is_joining = True
        try:
            if self._thread is not threading.current_thread():
                self._thread.join(_JOIN_MS / 1000)
        finally:
            self._is_joining = False

    def forget_after_fork(self) -> None:
        """See EngineThread."""
        self._is_orphaned = True
        self._stopped = threading.Event()
        self._stopped.set()
        self._inbox.clear()

    def _run(self) -> None:
        self._has_run = True
        while not self._stopped.is_set():
            self._run_once()
        if self._is_orphaned:
            end_child(None)
        self._on_end()

    def _run_once(self) -> None:
        """One turn of the engine's own thread; no exception ends the thread."""
        try:
            self._turn(_POLL_MS_MAX)
        except BaseException as error:
            if self._is_orphaned:
                end_child(error)
            logger.exception("exception in the engine; its thread continues")
            self._stopped.wait(0.01)  # in case it fails again at once

    def _turn(self, wait_ms_max: int) -> None:
        """Run the posted actions and the timers that are due, then do the I/O.

        The caller owns the engine.
        """
        engine, inbox = self._engine, self._inbox
        assert engine is not None  # set by start()  # noqa: S101
        self._owner = threading.get_ident()
        try:
            while inbox:
                inbox.popleft()()
            now = engine.member.now()
            engine.run_due(now)
            due_ms = engine.next_due_ms()
            wait_ms = wait_ms_max if due_ms is None else due_ms - now.monotonic_ms
            self._client.poll(max(0, min(wait_ms, wait_ms_max)))
        finally:
            self._owner = None

    def _has_more(self) -> bool:
        return bool(self._inbox) or self._stopped.is_set()


class Lease:
    """The hand-off of the event loop to a consume thread, its holder.

    The holder runs `jobs`. All fields are guarded by the lock of the
    LeasingEngineThread; only the holder appends to `jobs`, while it owns the engine.
    """

    __slots__ = (
        "busy_ms",
        "holder",
        "is_listening",
        "is_recalled",
        "jobs",
        "mean_ns",
        "times",
    )

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        #: the thread that holds it (threading.get_ident)
        self.holder: int | None = None
        self.is_listening = False
        self.is_recalled = False
        self.times = 0
        self.mean_ns = 0
        self.busy_ms = 0


class LeasingEngineThread(PlainEngineThread):
    """An `EngineThread` that hands the event loop off while listeners are quick."""

    def __init__(
        self,
        client: Client,
        consume_threads: ConsumeThreads,
        *,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(client, consume_threads, on_end=on_end)
        self._lock = threading.Lock()
        self._lease: Lease | None = None
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

    def take(self, job: Job) -> None:
        """See EngineThread. Under a lease its holder runs the job."""
        if self._lease is None and self._may_hand_off():
            self._lease = Lease()
        if self._lease is not None:
            self._lease.jobs.append(job)
        else:
            self._hand_out(job)

    def call(self, job: Job) -> None:
        """See EngineThread.

        The engine's own thread owns it from the next turn on, because the holder of the
        lease may be the only consume thread.
        """
        lease = self._lease
        if lease is not None:
            lease.is_recalled = True
        self._consume_threads.put(job)

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
        self._consume_threads.put(functools.partial(self._run_counted, job))

    def _run_counted(self, job: Job) -> None:
        began_ns = time.perf_counter_ns()
        try:
            job()
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
            self._consume_threads.put(functools.partial(self._run_lease, lease))
            self._watch(lease)

    def _watch(self, lease: Lease) -> None:
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

    def _end_lease(self, lease: Lease) -> None:
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

    def _run_lease(self, lease: Lease) -> None:
        """Run the jobs and the engine until the lease is over."""
        with self._lock:
            if self._lease is not lease:
                return
            lease.holder = threading.get_ident()
            lease.busy_ms = self._client.clock.monotonic_ms()
        try:
            while self._run_jobs(lease) and not self._is_over(lease):
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

    def _run_jobs(self, lease: Lease) -> bool:
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
                job()
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

    def _is_over(self, lease: Lease) -> bool:
        """Whether there is a reason to end the lease."""
        assert self._engine is not None  # set by start()  # noqa: S101
        idle_ms = self._client.clock.monotonic_ms() - lease.busy_ms
        return (
            idle_ms >= IDLE_MS
            or lease.is_recalled
            or self._engine.is_closing
            or self._stopped.is_set()
        )


class ListenerWorkers:
    """Implements the engine's `Workers`: consume threads call the listener.

    `consumed` and `consumed_orderly` receive outcomes, in the thread that owns the
    engine.
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
        """See Workers.

        The request gets a thread for each remaining batch, but no more threads than
        there are.
        """
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
            # Offsets are committed only every 5 s, so this is not worth a wake-up.
            self._engine_thread.leave(action)

    def _serve_orderly(self, request: OrderlyRequest) -> None:
        outcome = consume_orderly(
            request, self._listener, self._clock, needs_lock=self._needs_lock
        )
        self._engine_thread.post(functools.partial(self._consumed_orderly, outcome))
