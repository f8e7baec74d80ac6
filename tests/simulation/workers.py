"""Consume threads of a simulated member: calls of listeners that take virtual time.

The steps between two calls are those of `engine.consume.request`, as generators that
yield how long the next call takes. That module itself interprets the result of a call.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.engine.consume.request import (
    REPORT_MS,
    SHARE_MS,
    ConcurrentOutcome,
    ConcurrentRequest,
    Failed,
    OrderlyOutcome,
    OrderlyRequest,
    call_batch,
    call_orderly,
)
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Listener,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import TypeAlias

    from rmqcli.engine.message import Pulled
    from rmqcli.engine.push_consumer import PushConsumer
    from tests.simulation.schedule import Schedule
    from tests.simulation.watch import Watch

    Steps: TypeAlias = Generator[int, None, None]

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


class SimWorkers:
    """Satisfies the engine's `Workers`. `run` defers actions of a frozen member."""

    def __init__(
        self,
        schedule: Schedule,
        watch: Watch,
        behaviour: ListenerBehaviour,
        *,
        threads: int,
        is_orderly: bool,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._schedule = schedule
        self._watch = watch
        self._mood = behaviour
        self._run = run
        self._queue: deque[ConcurrentRequest | OrderlyRequest] = deque()
        self._threads = self._idle = threads
        self._outcome = ""
        self._engine: PushConsumer
        #: running calls: when each ends, and its further steps
        self._calls: dict[int, tuple[int, Steps]] = {}
        self._numbers = 0
        self.listener = Listener(
            call=self._orderly_listener if is_orderly else self._listener,
            is_orderly=is_orderly,
        )

    def attach(self, engine: PushConsumer) -> None:
        """Set the engine whose threads these are. To be called once."""
        self._engine = engine

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers."""
        self._queue.append(request)
        self._schedule.later(0, lambda: self._run(self._begin))

    def share(self, request: ConcurrentRequest) -> None:
        """See Workers. Does the same as ConsumeThreads."""
        request.is_shared = True
        batches = -(-request.left // request.batch_size)
        for _ in range(min(batches, self._threads) - 1):
            self.consume_concurrently(request)

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
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
            request = self._queue.popleft()
            if isinstance(request, ConcurrentRequest):
                self._step(self._concurrently(request))
            else:
                self._step(self._orderly(request))

    def _step(self, steps: Steps) -> None:
        try:
            duration_ms = next(steps)
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

    def _concurrently(self, request: ConcurrentRequest) -> Steps:
        """See consume.consume_concurrently."""
        schedule, watch, queue = self._schedule, self._watch, request.message_queue
        request.begun.append(None)
        is_single = request.batch_size == 1
        done: list[Pulled] = []
        failed: list[Failed] = []
        started_ms = before_ms = schedule.now_ms
        while not (request.is_cancelled or request.process_queue.dropped):
            taken = next(request.batches, None)
            if taken is None:
                break
            batch: Sequence[Pulled] = [taken] if is_single else taken  # type: ignore[list-item,assignment]
            for each in batch:
                each.consume_start_ms = before_ms
            call = self._plan(batch)
            watch.begins(queue, request.process_queue, batch)
            yield call.duration_ms
            self._outcome = call.outcome
            called = call_batch(request, batch, self.listener, before_ms)
            watch.ends(queue, request.process_queue, called[0], called[1])
            done += called[0]
            failed += called[1]
            if schedule.now_ms - before_ms >= SHARE_MS and not request.is_shared:
                self.share(request)
            before_ms = schedule.now_ms
            if before_ms - started_ms >= REPORT_MS:
                spent_ms = before_ms - started_ms
                self._report(
                    ConcurrentOutcome(request, done, failed, spent_ms, is_end=False)
                )
                done, failed, started_ms = [], [], before_ms
        self._report(ConcurrentOutcome(request, done, failed, before_ms - started_ms))

    def _report(self, outcome: ConcurrentOutcome) -> None:
        self._schedule.later(
            0, lambda: self._run(lambda: self._engine.consumed(outcome))
        )

    def _orderly(self, request: OrderlyRequest) -> Steps:
        """See consume.consume_orderly."""
        schedule, watch, queue = self._schedule, self._watch, request.message_queue
        process_queue, messages = request.process_queue, request.messages
        succeeded, size = 0, request.batch_size
        started_ms = schedule.now_ms
        while succeeded < len(messages) and schedule.now_ms - started_ms < REPORT_MS:
            if request.is_cancelled or process_queue.dropped:
                break
            if not process_queue.locked or process_queue.is_lock_expired(
                schedule.now_ms
            ):
                break
            batch = messages[succeeded : succeeded + size]
            call = self._plan(batch)
            watch.begins(queue, process_queue, batch)
            before_ms = schedule.now_ms
            yield call.duration_ms
            self._outcome = call.outcome
            context = ConsumeOrderlyContext(queue)
            status = call_orderly(batch, self.listener, context, before_ms)
            is_success = status is ConsumeOrderlyStatus.SUCCESS
            failed = [] if is_success else [Failed(each, 0) for each in batch]
            watch.ends(queue, process_queue, batch, failed)
            if not is_success:
                self._report_orderly(request, succeeded, batch, status, started_ms)
                return
            succeeded += len(batch)
        self._report_orderly(request, succeeded, (), None, started_ms)

    def _report_orderly(
        self,
        request: OrderlyRequest,
        succeeded: int,
        batch: Sequence[Pulled],
        status: ConsumeOrderlyStatus | None,
        started_ms: int,
    ) -> None:
        spent_ms = self._schedule.now_ms - started_ms
        outcome = OrderlyOutcome(
            request, succeeded, batch, status, True, None, spent_ms
        )
        self._schedule.later(
            0, lambda: self._run(lambda: self._engine.consumed_orderly(outcome))
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

    def _listener(
        self, messages: list[Pulled], context: ConsumeConcurrentlyContext
    ) -> object:
        if self._outcome == "raise":
            raise ValueError("simulated failure")
        if self._outcome == "exit":
            raise SystemExit(1)
        if self._outcome == "some" and len(messages) > 1:
            context.ack_index = 0
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        if self._outcome == "success":
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    def _orderly_listener(
        self, messages: list[Pulled], context: ConsumeOrderlyContext
    ) -> object:
        del messages, context
        if self._outcome == "raise":
            raise ValueError("simulated failure")
        if self._outcome == "success":
            return ConsumeOrderlyStatus.SUCCESS
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
