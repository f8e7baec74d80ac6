"""The threads of a consumer: one that drives the engine, and those that run listeners.

| thread | started by | blocks on | ended by |
|---|---|---|---|
| rmq-engine | EngineThread.start() | the sockets, a wake-up | stop() |
| rmq-consume-N | ConsumeThreads.start() | requests, the listener | stop() |

Decision: the engine's thread does the I/O itself. Answers are decoded and decided on in
one go; a thread of its own for the sockets would hand every answer over to the engine,
and in CPython the two could not run at once anyway. No listener ever runs in it.

The engine's loop survives whatever is raised in it. A listener that does not return
cannot be stopped in Python: its thread is a daemon, left behind and told of.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from rmqcli.engine.consume import consume_concurrently, consume_orderly
from rmqcli.engine.consume_request import ConcurrentRequest, OrderlyRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.clock import Clock
    from rmqcli.engine.consume_request import ConcurrentOutcome, OrderlyOutcome
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.push_consumer import PushConsumer

logger = logging.getLogger(__name__)

_POLL_MS_MAX: Final = 1_000
_JOIN_MS: Final = 1_000


class EngineThread:
    """Drives a `PushConsumer` and its client. `post`, `leave`: from any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._engine: PushConsumer | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._run, name="rmq-engine")
        self._stopped = threading.Event()
        client.remoting.let_wake(self._has_more)

    def start(self, engine: PushConsumer) -> None:
        """Begin; `stop` must be called."""
        self._engine = engine
        self._thread.start()

    def post(self, action: Callable[[], None]) -> None:
        """Let the engine's thread do it, in the order of the posts."""
        self._inbox.append(action)
        self._client.remoting.wake()

    def leave(self, action: Callable[[], None]) -> None:
        """As `post`, for what may wait until there is something else to do, or 1 s."""
        self._inbox.append(action)

    def stop(self) -> None:
        """End the thread, from another one. Idempotent."""
        self._stopped.set()
        self._client.remoting.wake()
        if self._thread.is_alive():
            self._thread.join(_JOIN_MS / 1000)
            if self._thread.is_alive():
                logger.error("thread %s did not stop", self._thread.name)

    def is_current(self) -> bool:
        """Whether this is called in the engine's thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._turn()
            except Exception:
                logger.exception("the engine's thread goes on")
                self._stopped.wait(0.01)  # should it fail again at once

    def _turn(self) -> None:
        engine, inbox = self._engine, self._inbox
        assert engine is not None  # set by start()  # noqa: S101
        while inbox:
            inbox.popleft()()
        now = engine.member.now()
        engine.run_due(now)
        due_ms = engine.next_due_ms()
        wait_ms = _POLL_MS_MAX if due_ms is None else due_ms - now.monotonic_ms
        self._client.poll(max(0, min(wait_ms, _POLL_MS_MAX)))

    def _has_more(self) -> bool:
        return bool(self._inbox) or self._stopped.is_set()


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
        self._requests: SimpleQueue[
            ConcurrentRequest | OrderlyRequest | Callable[[], None] | None
        ] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"rmq-consume-{n + 1}", daemon=True)
            for n in range(count)
        ]
        self.consumed: Callable[[ConcurrentOutcome], None]
        self.consumed_orderly: Callable[[OrderlyOutcome], None]

    def start(self, engine: PushConsumer) -> None:
        """Begin; `stop` must be called."""
        self.consumed = engine.consumed
        self.consumed_orderly = engine.consumed_orderly
        for thread in self._threads:
            thread.start()

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """For whichever thread is free next."""
        self._requests.put(request)

    def share(self, request: ConcurrentRequest) -> None:
        """For as many more threads as there are batches left."""
        request.is_shared = True
        batches = -(-request.left // request.batch_size)
        for _ in range(min(batches, len(self._threads)) - 1):
            self._requests.put(request)

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """For whichever thread is free next."""
        self._requests.put(request)

    def call(self, action: Callable[[], None]) -> None:
        """Run something else where listeners run."""
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
                "%d listeners still run and are left behind: %s",
                len(alive),
                ", ".join(alive),
            )
        return not alive

    def _run(self) -> None:
        while True:
            request = self._requests.get()
            if request is None:
                return
            try:
                self._serve(request)
            except BaseException:
                logger.exception("a consume thread goes on")

    def _serve(
        self, request: ConcurrentRequest | OrderlyRequest | Callable[[], None]
    ) -> None:
        if isinstance(request, ConcurrentRequest):
            consume_concurrently(
                request,
                self._listener,
                self._clock,
                report=self._report,
                share=self.share,
            )
        elif isinstance(request, OrderlyRequest):
            outcome = consume_orderly(
                request, self._listener, self._clock, needs_lock=self._needs_lock
            )
            self._engine_thread.post(lambda: self.consumed_orderly(outcome))
        else:
            request()

    def _report(self, outcome: ConcurrentOutcome) -> None:
        if outcome.failed:
            self._engine_thread.post(lambda: self.consumed(outcome))
        else:
            # Offsets are committed every 5 s: to wake the engine costs more than it.
            self._engine_thread.leave(lambda: self.consumed(outcome))
