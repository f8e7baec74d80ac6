"""How an event loop runs the listener of a consumer.

A consumer's threads pass on jobs, coroutines that call the listener for the messages of
one request; see `consumer.backend`. Both classes here are `JobRunner`s:

- `ListenerTasks` runs jobs in tasks of the loop. A further job begins in a task of its
  own only if all that run wait, so that a listener that never waits costs one task for
  all jobs that were put at once. Each call has a context (`contextvars`) of its own.
- `Iteration` runs jobs in the task that iterates over the consumer. A job stops at each
  message until the next one is asked for, without a task or a future for it.

A close cancels tasks that are still at work when its time is over. The messages of a
call that ends with the CancelledError are not consumed: they stay with the group.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from rmqcli.engine.consume.request import run_at_once
from rmqcli.engine.listener import LeaveRest
from rmqcli.errors import UsageError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from rmqcli.aio.handover import EventLoop
    from rmqcli.consumer.backend import Job
    from rmqcli.model import Message

logger = get_logger(__name__)

#: How long listeners that do not wait may keep the loop before its other tasks run.
_TURN_S: Final = 0.005
#: How long a thread waits at most for the loop to begin the jobs that it has put.
_BEGIN_S: Final = 0.005
#: How long a close waits for tasks that it has cancelled.
CANCEL_MS: Final = 1_000


class ListenerTasks:
    """Runs the coroutine function `function` in at most `count` tasks at once.

    `on_lost` is called with a reason, in any thread, when the loop or another task ends
    the work: then the consumer has to close.
    """

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, object]],
        *,
        on_lost: Callable[[str], None],
    ) -> None:
        #: set before `start`
        self.count = 1
        self._function = function
        self._on_lost = on_lost
        #: set by `attach`
        self._loop: EventLoop
        self._context: contextvars.Context
        #: jobs that may begin
        self._waiting: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        #: locked while jobs are on their way into the loop
        self._begun = threading.Lock()
        #: whether `_fill_again` is on its way
        self._is_filling = False
        #: whether no call may begin any more
        self._is_ended = False
        #: when the loop last ran its other tasks, as far as is known (loop.time)
        self._turn_s = 0.0
        #: whether `_begin_turn` is on its way
        self._is_turning = False

    def attach(self, loop: EventLoop) -> None:
        """Run in this loop, in copies of the caller's context."""
        self._loop = loop
        self._context = contextvars.copy_context()

    # --- JobRunner ---

    def start(self) -> None:
        """See JobRunner. Tasks begin with their jobs."""

    def put(self, *jobs: Job) -> None:
        """See JobRunner. Gives the loop `_BEGIN_S` to begin to run them.

        Until then another thread would only compete with the loop for the interpreter.
        """
        self._begun.acquire(blocking=False)
        if not self._loop.post(functools.partial(self._add, jobs)):
            self._on_lost("its event loop was closed")
        elif not self._loop.is_current():
            self._begun.acquire(timeout=_BEGIN_S)

    def is_current(self) -> bool:
        """See JobRunner."""
        try:
            return asyncio.current_task() in self._tasks
        except RuntimeError:  # no event loop runs in this thread
            return False

    def let_end(self) -> None:
        """See JobRunner. Tasks end with their jobs."""

    def stop(self, timeout_ms: int) -> None:
        """See JobRunner. Cancels the tasks that have not ended; see `ended`."""
        self._loop.post(self.cancel)

    # --- inside the loop ---

    @types.coroutine
    def call(self, *args: object) -> Generator[Any, Any, object]:
        """Await `function(*args)`, in a context of its own. The listener of a Consumer.

        Raises LeaveRest when the task was cancelled, or the loop ended.
        """
        if self._is_ended:  # perhaps outside a task; see `_leave`
            raise LeaveRest
        task, loop = asyncio.current_task(), self._loop.loop
        assert task is not None  # jobs run in tasks  # noqa: S101
        cancels = task.cancelling()
        try:
            if loop.time() - self._turn_s > _TURN_S:
                if not self._is_turning:
                    self._is_turning = True
                    loop.call_soon(self._begin_turn)
                yield
                if self._is_ended:
                    raise LeaveRest
            run = self._context.copy().run
            coroutine = self._function(*args)
            step: Callable[[Any], Any] = coroutine.send
            value: Any = None
            while True:
                try:
                    awaited = run(step, value)
                except StopIteration as end:
                    return end.value
                try:
                    value = yield awaited
                    step = coroutine.send
                except BaseException as error:  # noqa: BLE001  # it is the coroutine's
                    step, value = coroutine.throw, error
        except asyncio.CancelledError:
            if task.cancelling() == cancels:
                raise  # of something that the listener waited for
            self._lost("a task of its listener was cancelled")
            raise LeaveRest from None
        except GeneratorExit:  # no loop runs this task any more
            self._lost("a task of its listener was dropped")
            raise LeaveRest from None
        except (KeyboardInterrupt, SystemExit) as error:
            # It ends the program, as that of any task does.
            loop.call_soon(_raise, error)
            self._lost(f"its listener raised {type(error).__name__}")
            raise LeaveRest from None

    def cancel(self) -> None:
        """Cancel all tasks, and let no call begin."""
        self._is_ended = True
        for task in self._tasks:
            task.cancel()
        self._fill()

    def close_by(self, closer: asyncio.Task[Any] | None) -> None:
        """Begin to close; jobs that have begun may end."""

    async def ended(self) -> None:
        """Wait for the tasks, which have ended or were cancelled."""
        tasks = self._tasks - {asyncio.current_task()}
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=CANCEL_MS / 1000)
        if left:
            logger.error(
                "listeners did not end although they were cancelled, their tasks keep"
                " running count=%d tasks=%s",
                len(left),
                ", ".join(sorted(each.get_name() for each in left)),
            )

    def _begin_turn(self) -> None:
        """Note that the loop runs its other tasks; called before those of listeners."""
        self._is_turning = False
        self._turn_s = self._loop.loop.time()

    def _add(self, jobs: tuple[Job, ...]) -> None:
        self._waiting.extend(jobs)
        self._fill()
        self._loop.loop.call_soon(self._note_begun)

    def _note_begun(self) -> None:
        if self._begun.locked():
            self._begun.release()

    def _fill(self) -> None:
        """Begin a task for the jobs that wait, if there is room."""
        waiting, loop = self._waiting, self._loop.loop
        if self._is_ended:
            while waiting:
                _leave(waiting.popleft())
            return
        if not self._tasks:
            self._turn_s = loop.time()
        if waiting and len(self._tasks) < self.count and not self._is_filling:
            task = loop.create_task(self._work(), context=self._context)
            self._tasks.add(task)
            task.add_done_callback(self._ended_task)
            # This is called when the task's first step is over: when it waits.
            self._is_filling = True
            loop.call_soon(self._fill_again)

    def _fill_again(self) -> None:
        self._is_filling = False
        self._fill()

    async def _work(self) -> None:
        """Run jobs, one after the other, until none waits."""
        waiting, task = self._waiting, asyncio.current_task()
        assert task is not None  # it is the coroutine of one  # noqa: S101
        # A listener that cancels its own task must not have the next call cancelled.
        while waiting and not self._is_ended and not task.cancelling():
            job = waiting.popleft()
            try:
                await job()
            except Exception:
                logger.exception("exception in a task of a listener; it continues")
            while waiting and waiting[0] is job:
                waiting.popleft()  # A job that has ended leaves no work to share.

    def _ended_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # It was cancelled before it began: `call` would have raised LeaveRest.
            self._lost("a task of its listener was cancelled")
        self._fill()

    def _lost(self, reason: str) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._on_lost(reason)


class Iteration:
    """Runs jobs, one at a time, in the task that iterates over the consumer.

    It is also the listener of that consumer; implements `Offered`. `on_lost` is called
    with a reason, in any thread, when its loop is closed: then the consumer has to
    close.
    """

    def __init__(self, *, on_lost: Callable[[str], None]) -> None:
        self.count = 1
        self._on_lost = on_lost
        #: set by `attach`
        self._loop: EventLoop | None = None
        self._jobs: deque[Job] = deque()
        #: the job that has begun and not ended; it waits at the current message
        self._job: Coroutine[Any, Any, None] | None = None
        self._current: Message | None = None
        #: whether the current message was handed out
        self._is_held = False
        #: the task that last asked for a message
        self._looper: asyncio.Task[Any] | None = None
        #: whether a task is in `next`
        self._is_asked = False
        #: ends when there is a job, or the consumer closes
        self._waiter: asyncio.Future[None] | None = None
        self._turn_s = 0.0
        self._is_closing = False
        self._is_closed = False

    def attach(self, loop: EventLoop) -> None:
        """Let tasks of this loop iterate."""
        self._loop = loop

    # --- JobRunner ---

    def start(self) -> None:
        """See JobRunner."""

    def put(self, *jobs: Job) -> None:  # none several times, as `count` is 1
        """See JobRunner."""
        assert self._loop is not None  # the consumer is open  # noqa: S101
        if not self._loop.post(functools.partial(self._add, jobs)):
            self._on_lost("its event loop was closed")

    def is_current(self) -> bool:
        """See JobRunner."""
        return False

    def let_end(self) -> None:
        """See JobRunner."""

    def stop(self, timeout_ms: int) -> None:
        """See JobRunner. `leave` ends the job."""

    # --- the listener ---

    @types.coroutine
    def __call__(self, message: Message) -> Generator[Any, None, None]:
        """Offer a message, and wait until it is consumed. Else raise LeaveRest."""
        if self._is_closing:
            raise LeaveRest
        try:
            yield message
        except GeneratorExit:  # the loop ended, and no task asks for messages
            raise LeaveRest from None

    # --- inside the loop ---

    async def next(
        self, *, after: Message | None, idle_timeout_ms: int | None
    ) -> Message | None:
        """Return the next message, or None when the consumer closes or time is up.

        `after` is the message that the caller has consumed. A message that was not
        consumed, because an earlier loop was left or cancelled, is returned again.
        """
        if self._is_asked:
            raise UsageError("another task iterates over the consumer")
        self._is_asked = True
        try:
            return await self._next(after, idle_timeout_ms)
        finally:
            self._is_asked = False

    async def _next(
        self, after: Message | None, idle_timeout_ms: int | None
    ) -> Message | None:
        assert self._loop is not None  # the consumer is open  # noqa: S101
        self._looper = asyncio.current_task()
        loop = self._loop.loop
        if after is not None and after is self._current and self._job is not None:
            self._go_on()
        until_s = None
        if idle_timeout_ms is not None:
            until_s = loop.time() + idle_timeout_ms / 1000
        # Nothing waits between the last look at the current message and its return.
        while True:
            if loop.time() - self._turn_s > _TURN_S:
                await asyncio.sleep(0)
                self._turn_s = loop.time()
            if self._is_closed:
                return None
            if self._current is not None:
                self._is_held = True
                return self._current
            if self._jobs:
                self._job = self._jobs.popleft()()
                self._go_on()
            elif self._is_closing or not await self._more(until_s):
                return None

    async def _more(self, until_s: float | None) -> bool:
        """Wait for a job; return whether to look again."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(until_s):
                await self._waiter
        except TimeoutError:
            return bool(self._jobs)
        finally:
            self._waiter = None
        return True

    def _go_on(self) -> None:
        """Continue the job until its next message; the current one is consumed."""
        assert self._job is not None  # it waits at the message  # noqa: S101
        self._is_held = False
        self._current = None
        try:
            self._current = self._job.send(None)
        except StopIteration:
            self._job = None
        except Exception:
            logger.exception("exception in a job of a consumer; it continues")
            self._job = None

    def _add(self, jobs: tuple[Job, ...]) -> None:
        self._jobs.extend(jobs)
        if self._is_closed:
            self.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the end ---

    def begin_close(self) -> None:
        """See Offered."""
        self._post(functools.partial(self.close_by, None))

    def leave(self) -> None:
        """See Offered."""
        self._post(self.cancel)

    async def ended(self) -> None:
        """There are no tasks to wait for."""

    def _post(self, action: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.post(action)

    def close_by(self, closer: asyncio.Task[Any] | None) -> None:
        """Offer no more messages. `closer` is the task that closes, if it is known.

        A loop in another task may finish its message.
        """
        looper = self._looper
        is_with_other = (
            self._is_held
            and looper is not None
            and looper is not closer
            and not looper.done()
        )
        if is_with_other and not self._is_closing:
            assert looper is not None  # see above  # noqa: S101
            looper.add_done_callback(lambda _: self.cancel())
        self._is_closing = True
        if not is_with_other:
            self.cancel()
        self._wake()

    def cancel(self) -> None:
        """Leave the current message, and all messages of the other jobs. Idempotent."""
        self._is_closing = self._is_closed = True
        job, self._job = self._job, None
        if job is not None:
            try:
                job.throw(LeaveRest())
            except StopIteration:
                pass
            except Exception:
                logger.exception("exception in a job of a consumer that closes")
        while self._jobs:
            _leave(self._jobs.popleft())
        self._wake()


class AsyncMessageIterator:
    """An asynchronous iterator over messages. See AsyncConsumer.messages."""

    def __init__(self, iteration: Iteration, idle_timeout_ms: int | None) -> None:
        self._iteration = iteration
        self._idle_timeout_ms = idle_timeout_ms
        self._last: Message | None = None

    def __aiter__(self) -> AsyncMessageIterator:
        return self

    async def __anext__(self) -> Message:
        last, self._last = self._last, None
        message = await self._iteration.next(
            after=last, idle_timeout_ms=self._idle_timeout_ms
        )
        if message is None:
            raise StopAsyncIteration
        self._last = message
        return message


def _leave(job: Job) -> None:
    """Run a job whose calls leave their messages at once."""
    try:
        run_at_once(job())
    except Exception:
        logger.exception("exception in a job of a consumer that closes")


def _raise(error: BaseException) -> None:
    raise error
