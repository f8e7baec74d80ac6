"""What consumes messages for a simulated member: threads, or tasks of an event loop.

The coroutines of `engine.consume.request` run as they do in a program, with a listener
that takes virtual time. `SimThreads` imitates consume threads: what the coroutines wait
for is the time that a call takes. `SimTasks` has an event loop in virtual time, and
what an AsyncConsumer runs in it.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.aio.handover import EventLoop
from rmqcli.aio.listening import CANCEL_MS, ListenerTasks
from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.consumer.remoting_backend import _ListenerWorkers
from rmqcli.engine.consume.request import (
    ConcurrentOutcome,
    ConcurrentRequest,
    OrderlyRequest,
    consume_concurrently,
    consume_orderly,
    run_at_once,
)
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
    Listener,
)
from tests.simulation.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import TypeAlias

    from rmqcli.clock import Clock
    from rmqcli.consumer.backend import Job
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.push_consumer import PushConsumer
    from tests.simulation.schedule import Schedule
    from tests.simulation.watch import Watch

    Steps: TypeAlias = Coroutine[int, None, None]

_TWENTY_MINUTES_MS: Final = 20 * 60 * 1_000


class ListenerBehaviour:
    """How listeners behave; shared by all members. Once healed, all succeed soon."""

    def __init__(self) -> None:
        self.fail_rate = 0.0
        self.slow_rate = 0.0
        self.stuck_rate = 0.0
        #: messages whose number is divisible by it never succeed; 0: none
        self.poison = 0

    def heal(self) -> None:
        """Let all listeners succeed soon."""
        self.fail_rate = self.slow_rate = self.stuck_rate = 0.0
        self.poison = 0


class _Call(NamedTuple):
    duration_ms: int
    outcome: str


class _Passing:
    """Awaited for time to pass; yields the milliseconds."""

    def __init__(self, duration_ms: int) -> None:
        self._duration_ms = duration_ms

    def __await__(self) -> Generator[int, None, None]:
        yield self._duration_ms


class _Workers:
    """What both have: a listener, which takes its time and then returns or raises."""

    def __init__(
        self,
        schedule: Schedule,
        watch: Watch,
        behaviour: ListenerBehaviour,
        *,
        is_orderly: bool,
    ) -> None:
        self._schedule = schedule
        self._watch = watch
        self._mood = behaviour
        self._is_orderly = is_orderly
        self._engine: PushConsumer

    def attach(self, engine: PushConsumer) -> None:
        """Set the engine whose workers these are. To be called once."""
        self._engine = engine

    async def _pass(self, duration_ms: int) -> None:
        """Wait; raise LeaveRest or CancelledError when the call is cancelled."""
        raise NotImplementedError

    async def _listen(
        self,
        request: ConcurrentRequest | OrderlyRequest,
        batch: Sequence[Pulled],
        context: ConsumeConcurrentlyContext | ConsumeOrderlyContext,
    ) -> object:
        """The listener: it takes its time, and then returns or raises."""
        call = self._plan(batch)
        queue, process_queue = request.message_queue, request.process_queue
        self._watch.begins(queue, process_queue, batch)
        try:
            await self._pass(call.duration_ms)
        except (
            asyncio.CancelledError
        ):  # by a close; a killed member's calls are forgotten
            if not self._watch.is_gone:
                self._watch.ends(queue, process_queue, (), ())
            raise
        except GeneratorExit:  # the simulation is over
            raise LeaveRest from None
        succeeded = len(batch) if call.outcome == "success" else 0
        if (
            call.outcome == "some"
            and len(batch) > 1
            and isinstance(context, ConsumeConcurrentlyContext)
        ):
            context.ack_index = 0
            succeeded = 1
        self._watch.ends(queue, process_queue, batch[:succeeded], batch[succeeded:])
        if call.outcome == "raise":
            raise ValueError("simulated failure")
        if call.outcome == "exit":
            raise SystemExit(1)
        return self._status(is_success=bool(succeeded))

    def _status(
        self, *, is_success: bool
    ) -> ConsumeConcurrentlyStatus | ConsumeOrderlyStatus:
        if self._is_orderly:
            if is_success:
                return ConsumeOrderlyStatus.SUCCESS
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        if is_success:
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    def _plan(self, batch: Sequence[Pulled]) -> _Call:
        """Choose how long a call takes and how it ends."""
        behaviour, rng = self._mood, self._schedule.rng
        chance = rng.random()
        if chance < behaviour.stuck_rate:
            duration_ms = 1 + int(rng.random() * _TWENTY_MINUTES_MS)
        elif chance < behaviour.stuck_rate + behaviour.slow_rate:
            duration_ms = 100 + int(rng.random() * 5_000)
        else:
            duration_ms = int(rng.random() * 10)
        chance = rng.random()
        is_poisoned = behaviour.poison and any(
            int(each.body) % behaviour.poison == 0  # type: ignore[union-attr]
            for each in batch
        )
        if is_poisoned or chance < behaviour.fail_rate:
            return _Call(duration_ms, rng.choice(("raise", "later", "some", "exit")))
        return _Call(duration_ms, "success")


class SimThreads(_Workers):
    """Satisfies the engine's `Workers`. `run` defers actions of a frozen member."""

    def __init__(
        self,
        schedule: Schedule,
        watch: Watch,
        behaviour: ListenerBehaviour,
        *,
        threads: int,
        is_orderly: bool,
        clock: Clock,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(schedule, watch, behaviour, is_orderly=is_orderly)
        self._clock = clock
        self._run = run
        self._queue: deque[ConcurrentRequest | OrderlyRequest] = deque()
        self._threads = self._idle = threads
        #: running calls: when each ends, and its further steps
        self._calls: dict[int, tuple[int, Steps]] = {}
        self._numbers = 0
        #: what brokers pass single messages to
        self.listener = Listener(
            call=lambda *_: self._status(is_success=False), is_orderly=is_orderly
        )

    def call(self, job: Job) -> None:
        """Let a thread run what a broker requested."""
        self._schedule.later(1, lambda: self._run(lambda: run_at_once(job())))

    def close_within(self, wait_ms: int) -> None:
        """Let calls end: threads cannot be cancelled."""

    def end(self) -> None:
        """The member has ended: `run` runs nothing any more."""

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._put(request)

    def share(self, request: ConcurrentRequest) -> None:
        """See Workers. Does the same as those of the back end."""
        request.is_shared = True
        batches = -(-request.left // request.batch_size)
        for _ in range(min(batches, self._threads) - 1):
            self._put(request)

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
        self._put(request)

    def _put(self, request: ConcurrentRequest | OrderlyRequest) -> None:
        self._queue.append(request)
        self._schedule.later(0, lambda: self._run(self._begin))

    def hurry(self) -> None:
        """Let every running call end within a second."""
        soon_ms = self._schedule.now_ms + 1_000
        for key, (end_ms, steps) in list(self._calls.items()):
            if end_ms > soon_ms:
                del self._calls[key]
                self._wait(steps, 1 + int(self._schedule.rng.random() * 999))

    def _begin(self) -> None:
        while self._idle and self._queue:
            self._idle -= 1
            self._step(self._serve(self._queue.popleft()))

    def _step(self, steps: Steps) -> None:
        try:
            duration_ms = steps.send(None)
        except StopIteration:
            self._idle += 1
            self._begin()
        else:
            self._wait(steps, duration_ms)

    def _wait(self, steps: Steps, duration_ms: int) -> None:
        self._numbers += 1
        key = self._numbers
        self._calls[key] = (self._schedule.now_ms + duration_ms, steps)

        def end() -> None:
            if self._calls.pop(key, None) is not None:
                self._step(steps)

        self._schedule.later(duration_ms, lambda: self._run(end))

    def _serve(self, request: ConcurrentRequest | OrderlyRequest) -> Steps:
        """What a thread does with a request."""
        listener = Listener(
            call=functools.partial(self._listen, request),
            is_orderly=self._is_orderly,
            is_async=True,
        )
        if isinstance(request, ConcurrentRequest):
            return consume_concurrently(
                request, listener, self._clock, report=self._report, share=self.share
            )
        return self._serve_orderly(request, listener)

    async def _serve_orderly(self, request: OrderlyRequest, listener: Listener) -> None:
        outcome = await consume_orderly(request, listener, self._clock, needs_lock=True)
        self._schedule.later(
            0, lambda: self._run(lambda: self._engine.consumed(outcome))
        )

    async def _pass(self, duration_ms: int) -> None:
        await _Passing(duration_ms)

    def _report(self, outcome: ConcurrentOutcome) -> None:
        self._schedule.later(
            0, lambda: self._run(lambda: self._engine.consumed(outcome))
        )


class SimTasks(_Workers):
    """Satisfies the engine's `Workers` with the code of an AsyncConsumer.

    That is `ListenerTasks` in an event loop, and what gives it the requests.
    """

    def __init__(
        self,
        schedule: Schedule,
        watch: Watch,
        behaviour: ListenerBehaviour,
        *,
        threads: int,
        is_orderly: bool,
        clock: Clock,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(schedule, watch, behaviour, is_orderly=is_orderly)
        self._clock = clock
        violation = watch.checker.violation
        self._loop = SimLoop(schedule, run, violation)
        self._tasks = ListenerTasks(self._listen_to, on_lost=violation)
        self._tasks.count = threads
        self._loop.run(lambda: self._tasks.attach(EventLoop()))
        self._thread = _EngineThread(schedule, run, self._tasks)
        #: what running calls wait for: the end of their time
        self._passing: dict[asyncio.Future[None], asyncio.TimerHandle] = {}
        self.listener = self._listener()

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._workers(request).consume_concurrently(request)

    def share(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._workers(request).share(request)

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
        self._workers(request).consume_orderly(request)

    def call(self, job: Job) -> None:
        """Let a task run what a broker requested."""
        self._thread.call(job)

    def hurry(self) -> None:
        """Let every running call end within a second."""
        soon_s = self._loop.time() + 1
        for passing, timer in list(self._passing.items()):
            if timer.when() > soon_s:
                timer.cancel()
                self._end_after(passing, 1 + int(self._schedule.rng.random() * 999))

    def close_within(self, wait_ms: int) -> None:
        """What a close does in the loop: it cancels the tasks in time."""
        self._tasks.close_by(None)
        self._loop.call_later((wait_ms - CANCEL_MS) / 1000, self._tasks.cancel)

    def end(self) -> None:
        """The member has ended, and with it its calls, without any further effect."""
        self._tasks.cancel()
        while self._loop.has_ready:
            self._loop.run_turn()
        self._loop.close()

    def _workers(self, request: ConcurrentRequest | OrderlyRequest) -> _ListenerWorkers:
        return _ListenerWorkers(
            self._listener(request),
            self._clock,
            needs_lock=self._is_orderly,
            runner=self._tasks,
            engine_thread=self._thread,
            consumed=self._engine.consumed,
        )

    def _listener(
        self, request: ConcurrentRequest | OrderlyRequest | None = None
    ) -> Listener:
        return Listener(
            call=functools.partial(self._tasks.call, request),
            is_orderly=self._is_orderly,
            is_async=True,
        )

    async def _listen_to(
        self,
        request: ConcurrentRequest | OrderlyRequest | None,
        batch: Sequence[Pulled],
        context: ConsumeConcurrentlyContext | ConsumeOrderlyContext,
    ) -> object:
        if request is None:  # a broker passed a single message
            return self._status(is_success=False)
        try:
            return await self._listen(request, batch, context)
        except SystemExit:  # which would end the program
            raise ValueError("simulated failure") from None

    async def _pass(self, duration_ms: int) -> None:
        passing = self._loop.create_future()
        self._end_after(passing, duration_ms)
        try:
            await passing
        finally:
            self._passing.pop(passing).cancel()

    def _end_after(self, passing: asyncio.Future[None], duration_ms: int) -> None:
        self._passing[passing] = self._loop.call_later(
            duration_ms / 1000, passing.set_result, None
        )


class _EngineThread(EngineThread):
    """The engine's thread as the listener's tasks see it: it is in another one."""

    def __init__(
        self,
        schedule: Schedule,
        run: Callable[[Callable[[], None]], None],
        tasks: ListenerTasks,
    ) -> None:
        self._schedule = schedule
        self._run_in_member = run
        self._runner = tasks
        self._inbox: deque[Callable[[], None]] = deque()

    def take(self, *jobs: Job) -> None:
        """See EngineThread."""
        self._runner.put(*jobs)

    def post(self, action: Callable[[], None]) -> None:
        """See EngineThread."""
        self._inbox.append(action)
        self._schedule.later(0, self._drain)

    def leave(self, action: Callable[[], None]) -> None:
        """See EngineThread."""
        self._inbox.append(action)
        self._schedule.later(int(self._schedule.rng.random() * 1_000), self._drain)

    def _drain(self) -> None:
        def drain() -> None:
            while self._inbox:
                self._inbox.popleft()()

        self._run_in_member(drain)
