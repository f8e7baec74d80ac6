"""The thread that owns the engine: its own one, or a consume thread for a while.

The owner runs the event loop: it does the I/O, decodes and decides in one go. Only one
thread owns the engine at a time. A separate thread for the sockets would have to hand
every answer over, and in CPython two threads do not run Python code at once anyway.

While listeners are quick, the engine's own thread hands the event loop off to the
consume thread that runs them, as a `Lease`: handing the messages of each pull to
another thread costs as much as decoding them. A lease ends when no messages come any
more, when requests take longer than QUICK_MS on average, or when the consumer closes.
While the loop is handed off, the engine's own thread checks the lease every CHECK_MS.
When the same listener call is still running at the second check, it takes the loop back
and gives the remaining requests to the other consume threads. So no listener holds up
the engine for longer than that, and never do more listeners run than there are consume
threads. After a lease that ended so, more quick requests are needed for the next one.

The event loop survives any exception. After `end` the engine's own thread calls
`on_end` and ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.consumer.process_end import end_child
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.engine.consume_request import ConcurrentRequest, OrderlyRequest
    from rmqcli.engine.push_consumer import PushConsumer

    Request = ConcurrentRequest | OrderlyRequest

logger = get_logger(__name__)

QUICK_MS: Final = 1
CHECK_MS: Final = 10
#: After this long without anything to consume the engine's own thread owns it again.
IDLE_MS: Final = 100
#: How many quick requests in a row a hand-off needs: at first, and at most.
QUICK_TIMES: Final = 8
QUICK_TIMES_MAX: Final = 4_096
#: A lease of this many requests was worth it, even if it ends with a slow one.
_WORTH_TIMES: Final = 256
_POLL_MS_MAX: Final = 1_000
_JOIN_MS: Final = 1_000
_MEAN_OF: Final = 16
_NS_PER_MS: Final = 1_000_000


class Lease:
    """The hand-off of the event loop to a consume thread, its holder.

    The holder runs `requests`. All fields are guarded by the lock of the EngineThread;
    only the holder appends to `requests`, while it owns the engine.
    """

    __slots__ = (
        "busy_ms",
        "holder",
        "is_listening",
        "is_recalled",
        "mean_ns",
        "requests",
        "times",
    )

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        #: the thread that holds it (threading.get_ident)
        self.holder: int | None = None
        self.is_listening = False
        self.is_recalled = False
        self.times = 0
        self.mean_ns = 0
        self.busy_ms = 0


class EngineThread:
    """Runs a `PushConsumer` and its client. `post`, `leave`: from any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._engine: PushConsumer | None = None
        self._hand_out: Callable[[Request | Lease], None]
        self._on_end: Callable[[], None]
        self._inbox: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(
            target=self._run, name="rmq-engine", daemon=True
        )
        #: whether the thread has begun to run
        self.has_run = False
        self._is_joining = False
        #: in a forked child, whose only thread is the one that forked
        self.is_orphaned = False
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        #: wakes the engine's own thread before its next check
        self._check_now = threading.Event()
        #: the thread that is inside the engine (threading.get_ident)
        self._owner: int | None = None
        #: requests that were handed out and have not ended; the owner's
        self._handed_out = 0
        self._quick_times = 0
        self._needed_times = QUICK_TIMES
        client.remoting.let_wake(self._has_more)

    def start(
        self,
        engine: PushConsumer,
        hand_out: Callable[[Request | Lease], None],
        on_end: Callable[[], None],
    ) -> None:
        """Begin. `hand_out` is for any consume thread.

        `on_end` is called in the thread after `end`, when no lease is left.
        """
        self._engine = engine
        self._hand_out = hand_out
        self._on_end = on_end
        self._thread.start()

    def post(self, action: Callable[[], None]) -> None:
        """Let the owner call it, in the order of the posts."""
        self._inbox.append(action)
        self._client.remoting.wake()

    def leave(self, action: Callable[[], None]) -> None:
        """As `post`, for what may wait until there is something else to do, or 1 s."""
        self._inbox.append(action)

    def end(self) -> None:
        """Let the thread end. Safe to call from any thread; idempotent."""
        self._stopped.set()
        self._client.remoting.wake()

    def join(self) -> None:
        """Wait for the thread's end, which `on_end` has announced.

        One caller at a time: a signal handler that interrupted a join would wait for a
        lock of the thread that the join beneath it holds.
        """
        if self._is_joining or not self.has_run:
            return
        self._is_joining = True
        try:
            if self._thread is not threading.current_thread():
                self._thread.join(_JOIN_MS / 1000)
        finally:
            self._is_joining = False

    def forget_after_fork(self) -> None:
        """In a forked child: own nothing. Locks may be held by the parent's threads.

        The sockets are the client's to forget.
        """
        self.is_orphaned = True
        self._lock = threading.Lock()
        self._check_now = threading.Event()
        self._stopped = threading.Event()
        self._stopped.set()
        self._lease = None
        self._inbox.clear()

    def is_current(self) -> bool:
        """Whether this is called from inside the engine, or in its own thread."""
        ident = threading.get_ident()
        return ident in (self._owner, self._thread.ident)

    @property
    def is_handed_off(self) -> bool:
        """Whether a consume thread owns the engine, or is about to."""
        return self._lease is not None

    def give_way(self) -> None:
        """Let the engine go on while the caller waits for it, in a listener."""
        with self._lock:
            lease = self._lease
            if lease is not None and lease.holder == threading.get_ident():
                self._end(lease)

    def recall(self) -> None:
        """From inside the engine: its own thread owns it from the next turn on."""
        lease = self._lease
        if lease is not None:
            lease.is_recalled = True

    # --- what is to be consumed ---

    def take(self, request: Request) -> None:
        """From inside the engine: let the holder, or any consume thread, run it."""
        if self._lease is None and self._may_hand_off():
            self._lease = Lease()
        if self._lease is not None:
            self._lease.requests.append(request)
        else:
            self.handed_out(1)
            self._hand_out(request)

    def handed_out(self, times: int) -> None:
        """Count requests that were given to the consume threads."""
        self._handed_out += times

    def ended(self, spent_ns: int) -> None:
        """One of them has ended; called by the owner."""
        self._handed_out -= 1
        is_quick = spent_ns <= QUICK_MS * _NS_PER_MS
        self._quick_times = self._quick_times + 1 if is_quick else 0

    def _may_hand_off(self) -> bool:
        assert self._engine is not None  # set by start()  # noqa: S101
        return (
            not self._handed_out
            and self._quick_times >= self._needed_times
            and not self._engine.is_closing
        )

    # --- the engine's own thread ---

    def _run(self) -> None:
        self.has_run = True
        while not self._stopped.is_set():
            try:
                if self._lease is None:
                    self._turn(_POLL_MS_MAX)
            except BaseException as error:
                if self.is_orphaned:
                    end_child(error)
                logger.exception("exception in the engine; its thread continues")
                self._stopped.wait(0.01)  # should it fail again at once
            lease = self._lease
            if lease is not None:
                self._hand_out(lease)
                self._watch(lease)
        if self.is_orphaned:
            end_child(None)
        self._on_end()

    def _watch(self, lease: Lease) -> None:
        """Until the lease has ended; end it when its listener does not return."""
        seen_times = -1
        while True:
            self._check_now.wait(CHECK_MS / 1000)
            self._check_now.clear()
            with self._lock:
                if self._lease is not lease:
                    return
                is_away = lease.is_listening or lease.holder is None
                if is_away and (lease.times == seen_times or self._stopped.is_set()):
                    self._end(lease)
                    return
                seen_times = lease.times

    def _end(self, lease: Lease) -> None:
        """Own the engine again; other threads get what was not begun. With the lock."""
        self._lease = None
        self._quick_times = 0
        if lease.is_listening:  # slow, however often it was quick
            is_worth = lease.times >= _WORTH_TIMES
            times = self._needed_times
            self._needed_times = (
                max(QUICK_TIMES, times // 2)
                if is_worth
                else min(2 * times, QUICK_TIMES_MAX)
            )
        # The holder is one of the consume threads, and takes no other request.
        for request in lease.requests:
            self._handed_out += 1
            self._hand_out(request)
        self._check_now.set()

    # --- the owner ---

    def run_lease(self, lease: Lease, serve: Callable[[Request], None]) -> None:
        """In a consume thread: run the requests and the engine, until that is over."""
        with self._lock:
            if self._lease is not lease:
                return
            lease.holder = threading.get_ident()
            lease.busy_ms = self._client.clock.monotonic_ms()
        try:
            while self._consume(lease, serve) and not self._is_over(lease):
                try:
                    self._turn(IDLE_MS)
                except BaseException:
                    if self.is_orphaned:
                        raise
                    logger.exception("exception in the engine; it continues")
                    self._stopped.wait(0.01)
        finally:
            with self._lock:
                if self._lease is lease:
                    self._end(lease)

    def _consume(self, lease: Lease, serve: Callable[[Request], None]) -> bool:
        """Run the requests there are; whether to keep the lease."""
        while lease.requests:
            with self._lock:
                if self._lease is not lease:
                    return False
                request = lease.requests.popleft()
                lease.times += 1
                lease.is_listening = True
            began_ns = time.perf_counter_ns()
            try:
                serve(request)
            except BaseException:
                if self.is_orphaned:
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

    def _turn(self, wait_ms_max: int) -> None:
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
