"""The thread that owns the engine of a consumer.

To own the engine is to call it, and to do the I/O of its client. Only one thread owns
it at a time. A separate thread for the sockets would have to hand every answer over,
and in CPython two threads do not run Python code at once anyway. There are two classes:

- `EngineThread`: a thread of its own owns the engine, from the start to the end.
- `engine_lease.LeasingEngineThread`, which consumers use: while listeners are quick,
  that thread hands the event loop off to the consume thread that runs them.

The event loop survives any exception. After `end` the engine's own thread calls
`on_end` and ends. It is a daemon, as consume threads are.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.log import get_logger
from rmqcli.process.end import end_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.consumer.backend import Job, JobRunner
    from rmqcli.engine.push_consumer import PushConsumer

logger = get_logger(__name__)

_POLL_MS_MAX: Final = 1_000
#: How long `join` waits for the engine's thread, which has nothing left to do.
_JOIN_MS: Final = 10_000


class EngineThread:
    """Runs a `PushConsumer` and its client, in a thread of its own, rmq-engine.

    Its last act is to call `on_end`, which is passed to its constructor. "Inside the
    engine" means inside a call that the owner makes: of a posted function, of a
    callback of a request, or of the engine.
    """

    def __init__(
        self, client: Client, runner: JobRunner, *, on_end: Callable[[], None]
    ) -> None:
        self._client = client
        self._runner = runner
        self._on_end = on_end
        #: set by `start`
        self._engine: PushConsumer | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        #: Jobs that this turn took. They are put together, before it waits and at its
        #: end, because each wake-up of an event loop costs as much as consuming ten
        #: messages.
        self._taken: list[Job] = []
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
        """Whether the engine's own thread has begun to run."""
        return self._has_run

    def start(self, engine: PushConsumer) -> None:
        """Begin to run the engine. Once."""
        self._engine = engine
        self._thread.start()

    def take(self, *jobs: Job) -> None:
        """From inside the engine: give jobs to the runner, see `JobRunner.put`.

        A job calls a listener for the messages of one request.
        """
        self._taken += jobs

    def call(self, job: Job) -> None:
        """From inside the engine: let a consume thread run `job`, which may take long.

        The engine continues in the meantime, even with a single consume thread.
        """
        self._runner.put(job)

    def post(self, action: Callable[[], None]) -> None:
        """Let the owner call `action`, in the order of the posts. From any thread."""
        self._inbox.append(action)
        self._client.remoting.wake()

    def leave(self, action: Callable[[], None]) -> None:
        """Like `post`, but without waking the owner up.

        The owner calls `action` when it has something else to do, or within 1 s.
        """
        self._inbox.append(action)

    def is_current(self) -> bool:
        """Whether the caller is inside the engine, or is the engine's own thread."""
        return (
            self._owner == threading.get_ident()
            or threading.current_thread() is self._thread
        )

    def give_way(self) -> None:
        """Let the engine continue while the caller, a listener, waits for it."""

    def end(self) -> None:
        """Let the engine's own thread end. From any thread; idempotent."""
        self._stopped.set()
        self._client.remoting.wake()

    def join(self) -> None:
        """Wait for the end of the engine's own thread, which `on_end` has announced.

        One caller at a time: a signal handler that interrupted a join would wait for a
        lock of the thread that the join beneath it holds.
        """
        if self._is_joining or not self._has_run:
            return
        self._is_joining = True
        try:
            if self._thread is not threading.current_thread():
                self._thread.join(_JOIN_MS / 1000)
        finally:
            self._is_joining = False

    def forget_after_fork(self) -> None:
        """In a forked child: own nothing.

        Locks may be held by threads of the parent, which do not exist here. The client
        forgets its sockets by itself.
        """
        self._is_orphaned = True
        self._stopped = threading.Event()
        self._stopped.set()
        self._inbox.clear()
        self._taken.clear()

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
            self._put_taken()
            self._client.poll(max(0, min(wait_ms, wait_ms_max)))
        finally:
            self._owner = None
            self._put_taken()

    def _put_taken(self) -> None:
        if self._taken:
            taken, self._taken = self._taken, []
            self._runner.put(*taken)

    def _has_more(self) -> bool:
        return bool(self._inbox) or self._stopped.is_set()
