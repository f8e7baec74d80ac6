"""Consume threads of a simulated member, or the coroutines of one with asyncio.

The coroutines of `engine.consume.request` run as they do in a program, with a listener
that takes virtual time. What they wait for is the time that a call of it takes.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.engine.consume.request import (
    ConcurrentOutcome,
    ConcurrentRequest,
    OrderlyRequest,
    consume_concurrently,
    consume_orderly,
)
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
    Listener,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import TypeAlias

    from rmqcli.clock import Clock
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


class SimWorkers:
    """Satisfies the engine's `Workers`. `run` defers actions of a frozen member.

    With `is_async` requests are shared as coroutines share them, from their beginning;
    else as threads do, once a call is slow.
    """

    def __init__(
        self,
        schedule: Schedule,
        watch: Watch,
        behaviour: ListenerBehaviour,
        *,
        threads: int,
        is_orderly: bool,
        is_async: bool,
        clock: Clock,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._schedule = schedule
        self._watch = watch
        self._mood = behaviour
        self._is_async = is_async
        self._clock = clock
        self._run = run
        self._queue: deque[ConcurrentRequest | OrderlyRequest] = deque()
        self._threads = self._idle = threads
        self._engine: PushConsumer
        #: running calls: when each ends, and its further steps
        self._calls: dict[int, tuple[int, Steps]] = {}
        self._numbers = 0
        #: what brokers pass single messages to
        self.listener = Listener(
            call=lambda *_: self._status(is_success=False), is_orderly=is_orderly
        )

    def attach(self, engine: PushConsumer) -> None:
        """Set the engine whose threads these are. To be called once."""
        self._engine = engine

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._put(request)
        if self._is_async:
            self.share(request)

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

    def cancel(self) -> None:
        """End every running call; its messages are not consumed."""
        calls, self._calls = self._calls, {}
        for _, steps in calls.values():
            self._step(steps, LeaveRest())

    def _begin(self) -> None:
        while self._idle and self._queue:
            self._idle -= 1
            self._step(self._serve(self._queue.popleft()))

    def _step(self, steps: Steps, error: Exception | None = None) -> None:
        try:
            duration_ms = steps.send(None) if error is None else steps.throw(error)
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
            is_orderly=self.listener.is_orderly,
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
            0, lambda: self._run(lambda: self._engine.consumed_orderly(outcome))
        )

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
            await _Passing(call.duration_ms)
        except (LeaveRest, GeneratorExit):  # cancelled; or the simulation is over
            self._watch.ends(queue, process_queue, (), ())
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
        if self.listener.is_orderly:
            if is_success:
                return ConsumeOrderlyStatus.SUCCESS
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        if is_success:
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    def _report(self, outcome: ConcurrentOutcome) -> None:
        self._schedule.later(
            0, lambda: self._run(lambda: self._engine.consumed(outcome))
        )

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
