"""Who drives the engine: a thread of its own, or the thread that consumes.

One thread at a time drives: it does the I/O, decodes and decides in one go. A thread of
its own for the sockets would hand every answer over to the engine, and in CPython the
two could not run at once anyway.

Decision: while listeners are quick, the consume thread that runs them drives too. To
hand a pull's messages to another thread costs as much as to decode them; so the work is
lent, with the messages, and given back when nothing comes any more, when requests take
over QUICK_MS on average, or when the consumer closes. A listener that stays away is
noticed by the engine's own thread, which looks each LOOK_MS while its work is lent: it
takes the work back after two looks at most, and hands what is left to the other consume
threads. So no listener holds up the engine for longer than that, and never more of them
run than there are consume threads. Who was slow has to be quick more often before it is
trusted again.

The engine's loop survives whatever is raised in it. Once `end` was called the engine's
own thread calls `on_end` and ends.
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
LOOK_MS: Final = 10
#: So long without anything to consume, and the engine's own thread drives again.
IDLE_MS: Final = 100
#: How many quick requests in a row it takes to be trusted: at first, and at most.
QUICK_TIMES: Final = 8
QUICK_TIMES_MAX: Final = 4_096
#: A loan of so many requests was worth it, also when it ends with a slow one.
_WORTH_TIMES: Final = 256
_POLL_MS_MAX: Final = 1_000
_JOIN_MS: Final = 1_000
_MEAN_OF: Final = 16
_NS_PER_MS: Final = 1_000_000


class Loan:
    """The engine's work, in the hands of a consume thread.

    `requests` are the borrower's to run. All of it is guarded by the lock of the
    EngineThread, but that the borrower appends to `requests` while it drives.
    """

    __slots__ = (
        "borrower",
        "busy_ms",
        "is_listening",
        "is_recalled",
        "mean_ns",
        "requests",
        "times",
    )

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        #: who took it (threading.get_ident)
        self.borrower: int | None = None
        self.is_listening = False
        self.is_recalled = False
        self.times = 0
        self.mean_ns = 0
        self.busy_ms = 0


class EngineThread:
    """Drives a `PushConsumer` and its client. `post`, `leave`: from any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._engine: PushConsumer | None = None
        self._hand_out: Callable[[Request | Loan], None]
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
        self._loan: Loan | None = None
        #: ends a look before its time
        self._look = threading.Event()
        #: who is inside the engine (threading.get_ident)
        self._driver: int | None = None
        #: what was handed out and has not ended; of whoever drives
        self._handed_out = 0
        self._quick_times = 0
        self._needed_times = QUICK_TIMES
        client.remoting.let_wake(self._has_more)

    def start(
        self,
        engine: PushConsumer,
        hand_out: Callable[[Request | Loan], None],
        on_end: Callable[[], None],
    ) -> None:
        """Begin. `hand_out` is for any consume thread.

        `on_end` is called in the thread after `end`, when nobody drives any more.
        """
        self._engine = engine
        self._hand_out = hand_out
        self._on_end = on_end
        self._thread.start()

    def post(self, action: Callable[[], None]) -> None:
        """Let whoever drives do it, in the order of the posts."""
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
        """In a forked child: drive nothing. Locks may be held by the parent's threads.

        The sockets are the client's to forget.
        """
        self.is_orphaned = True
        self._lock = threading.Lock()
        self._look = threading.Event()
        self._stopped = threading.Event()
        self._stopped.set()
        self._loan = None
        self._inbox.clear()

    def is_current(self) -> bool:
        """Whether this is called from inside the engine, or in its own thread."""
        ident = threading.get_ident()
        return ident in (self._driver, self._thread.ident)

    @property
    def is_lent(self) -> bool:
        """Whether a consume thread drives, or is about to."""
        return self._loan is not None

    def give_way(self) -> None:
        """Let the engine go on while the caller waits for it, in a listener."""
        with self._lock:
            loan = self._loan
            if loan is not None and loan.borrower == threading.get_ident():
                self._end(loan)

    def recall(self) -> None:
        """From inside the engine: its own thread drives from the next turn on."""
        loan = self._loan
        if loan is not None:
            loan.is_recalled = True

    # --- what is to be consumed ---

    def take(self, request: Request) -> None:
        """From inside the engine: see to it that somebody runs it."""
        if self._loan is None and self._may_lend():
            self._loan = Loan()
        if self._loan is not None:
            self._loan.requests.append(request)
        else:
            self.handed_out(1)
            self._hand_out(request)

    def handed_out(self, times: int) -> None:
        """So many more are with the consume threads."""
        self._handed_out += times

    def ended(self, spent_ns: int) -> None:
        """One of them has ended; called by whoever drives."""
        self._handed_out -= 1
        is_quick = spent_ns <= QUICK_MS * _NS_PER_MS
        self._quick_times = self._quick_times + 1 if is_quick else 0

    def _may_lend(self) -> bool:
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
                if self._loan is None:
                    self._turn(_POLL_MS_MAX)
            except BaseException as error:
                if self.is_orphaned:
                    end_child(error)
                logger.exception("the engine's thread goes on")
                self._stopped.wait(0.01)  # should it fail again at once
            loan = self._loan
            if loan is not None:
                self._hand_out(loan)
                self._watch(loan)
        if self.is_orphaned:
            end_child(None)
        self._on_end()

    def _watch(self, loan: Loan) -> None:
        """Until the loan has ended; end it when its listener stays away."""
        seen_times = -1
        while True:
            self._look.wait(LOOK_MS / 1000)
            self._look.clear()
            with self._lock:
                if self._loan is not loan:
                    return
                is_away = loan.is_listening or loan.borrower is None
                if is_away and (loan.times == seen_times or self._stopped.is_set()):
                    self._end(loan)
                    return
                seen_times = loan.times

    def _end(self, loan: Loan) -> None:
        """Drive again; what was not begun is for others. With the lock."""
        self._loan = None
        self._quick_times = 0
        if loan.is_listening:  # slow, however often it was quick
            is_worth = loan.times >= _WORTH_TIMES
            times = self._needed_times
            self._needed_times = (
                max(QUICK_TIMES, times // 2)
                if is_worth
                else min(2 * times, QUICK_TIMES_MAX)
            )
        # Whoever listens is one of the consume threads, and takes no other request.
        for request in loan.requests:
            self._handed_out += 1
            self._hand_out(request)
        self._look.set()

    # --- whoever drives ---

    def drive(self, loan: Loan, serve: Callable[[Request], None]) -> None:
        """In a consume thread: run the requests and the engine, until that is over."""
        with self._lock:
            if self._loan is not loan:
                return
            loan.borrower = threading.get_ident()
            loan.busy_ms = self._client.clock.monotonic_ms()
        try:
            while self._consume(loan, serve) and not self._is_over(loan):
                try:
                    self._turn(IDLE_MS)
                except BaseException:
                    if self.is_orphaned:
                        raise
                    logger.exception("the engine goes on")
                    self._stopped.wait(0.01)
        finally:
            with self._lock:
                if self._loan is loan:
                    self._end(loan)

    def _consume(self, loan: Loan, serve: Callable[[Request], None]) -> bool:
        """Run the requests there are; whether to go on driving."""
        while loan.requests:
            with self._lock:
                if self._loan is not loan:
                    return False
                request = loan.requests.popleft()
                loan.times += 1
                loan.is_listening = True
            began_ns = time.perf_counter_ns()
            try:
                serve(request)
            except BaseException:
                if self.is_orphaned:
                    raise
                logger.exception("a consume thread goes on")
            spent_ns = time.perf_counter_ns() - began_ns
            with self._lock:
                if self._loan is not loan:
                    return False
                loan.mean_ns += (spent_ns - loan.mean_ns) // _MEAN_OF
                if loan.mean_ns > QUICK_MS * _NS_PER_MS:
                    return False
                loan.is_listening = False
            loan.busy_ms = self._client.clock.monotonic_ms()
        return True

    def _is_over(self, loan: Loan) -> bool:
        """Whether there is a reason to give the work back."""
        assert self._engine is not None  # set by start()  # noqa: S101
        idle_ms = self._client.clock.monotonic_ms() - loan.busy_ms
        return (
            idle_ms >= IDLE_MS
            or loan.is_recalled
            or self._engine.is_closing
            or self._stopped.is_set()
        )

    def _turn(self, wait_ms_max: int) -> None:
        engine, inbox = self._engine, self._inbox
        assert engine is not None  # set by start()  # noqa: S101
        self._driver = threading.get_ident()
        try:
            while inbox:
                inbox.popleft()()
            now = engine.member.now()
            engine.run_due(now)
            due_ms = engine.next_due_ms()
            wait_ms = wait_ms_max if due_ms is None else due_ms - now.monotonic_ms
            self._client.poll(max(0, min(wait_ms, wait_ms_max)))
        finally:
            self._driver = None

    def _has_more(self) -> bool:
        return bool(self._inbox) or self._stopped.is_set()
