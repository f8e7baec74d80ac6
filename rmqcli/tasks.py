"""Tasks: the one way in which this package waits for answers.

A task is a generator that yields what it waits for and returns its result:

    def committed_lag(address, group, queue):
        committed, end = yield All([
            Request(address, query_consumer_offset(group, queue)),
            Request(address, get_max_offset(queue)),
        ])
        yield Sleep(100)
        ...

It is resumed with the answer, or the error is raised at the `yield`. So code that waits
reads from top to bottom although nothing blocks. A task may yield:

- `Request`: an API call to an address; resumed with the parsed answer.
- `Sleep`: a number of milliseconds.
- `Pending`: a value that something else provides later.
- `All`: several of these, and tasks, at the same time; resumed once the last one has
  ended, with the outcomes in the same order and errors as values.
- `Race`: alternatives, one started after the other; resumed with the first success.
- `Within`: one of these with a time limit.

A task calls another one with `yield from`. Errors are raised, never returned: if a task
returned an RmqError, it would be raised in the task that waits for it. A `Runner` sends
the requests and keeps the timers: over a `Client` until a deadline (admin commands),
inside the consumer's event loop, or under a virtual clock (simulation). `start` runs a
task and returns its `Pending`. A broker that does not answer delays only the tasks that
wait for it.

`run_in` runs one in another thread, for a caller that waits with a `Future`.

This module starts no thread and uses no socket and no clock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, TimeLimitError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rmqcli.api.call import Call

K = TypeVar("K")
T = TypeVar("T")

logger = get_logger(__name__)


class Pending(Generic[T]):
    """A value that is provided later: it ends once, with a result or with an RmqError.

    Only the thread that runs the tasks may use it.
    """

    __slots__ = ("_callback", "_error", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: T | None = None
        self._error: RmqError | None = None
        #: one function, or a list of them once there are several
        self._callback: Any = None

    def succeed(self, value: T) -> None:
        """Provide the result and call back. Ignored if it has ended already."""
        if not self.is_done:
            self._value = value
            self._end()

    def fail(self, error: RmqError) -> None:
        """Provide the error and call back. Ignored if it has ended already."""
        if not self.is_done:
            self._error = error
            self._end()

    def on_done(self, callback: Callable[[Pending[T]], None]) -> None:
        """Call `callback` with this object once it has ended, or now if it has."""
        if self.is_done:
            callback(self)
        elif self._callback is None:
            self._callback = callback
        elif isinstance(self._callback, list):
            self._callback.append(callback)
        else:
            self._callback = [self._callback, callback]

    def result(self) -> T:
        """Return the result or raise the error. Raises RuntimeError before the end."""
        outcome = self.outcome()
        if self._error is not None:
            raise self._error
        return outcome  # type: ignore[return-value]  # there is no error

    def outcome(self) -> T | RmqError:
        """The result, or the error as a value. Raises RuntimeError before the end."""
        if not self.is_done:
            raise RuntimeError("there is no result yet")
        # Not raised to be caught: errors would refer to this object, and it to them.
        return self._value if self._error is None else self._error  # type: ignore[return-value]  # one is set

    def _end(self) -> None:
        self.is_done = True
        callback, self._callback = self._callback, None
        if isinstance(callback, list):
            for each in callback:
                each(self)
        elif callback is not None:
            callback(self)


@dataclass(slots=True)
class Request(Generic[T]):
    """One API call to one address.

    With `timeout_ms` None the runner's own limit applies.
    """

    address: str
    call: Call[T]
    timeout_ms: int | None = None


@dataclass(slots=True)
class Sleep:
    """Resumes the task after `delay_ms`, with None."""

    delay_ms: int


@dataclass(slots=True)
class All:
    """Runs all `parts` at the same time; the outcomes are in the same order."""

    parts: Sequence[Part]


@dataclass(slots=True)
class Race:
    """Runs alternatives until one of `parts` succeeds.

    The next part is started when one fails, or `next_after_ms` after the previous one
    was started. When all fail, the last error is raised in the task. `parts` must not
    be empty.
    """

    parts: Sequence[Part]
    next_after_ms: int


@dataclass(slots=True)
class Within:
    """Waits for `part`; raises TimeLimitError after `limit_ms`. The part continues."""

    part: Part
    limit_ms: int


Step: TypeAlias = "Request[Any] | Sleep | Pending[Any] | All | Race | Within"
Task: TypeAlias = Generator[Step, Any, T]
Part: TypeAlias = "Step | Task[Any]"
#: An answer that comes later, for `start` or a `yield`. A function that usually sends
#: one request returns the Pending of that request, which costs half as much as a task;
#: it returns a task only when it has to wait for more.
Answer: TypeAlias = Task[T] | Pending[T]


class Runner(Protocol):
    """Carries out the steps of tasks. All calls come from one thread."""

    def submit(self, request: Request[T]) -> Pending[T]:
        """Send a request. Its Pending always ends: every request has a deadline.

        Raises RmqError when the request cannot be sent.
        """

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after `delay_ms`, in the thread that runs the tasks."""


def every(*parts: Part) -> Task[list[Any]]:
    """Run parts side by side and return their results. Raises the first error."""
    outcomes: list[Any] = yield All(parts)
    for outcome in outcomes:
        if isinstance(outcome, RmqError):
            raise outcome
    return outcomes


def shared(
    table: dict[K, Pending[T]], key: K, task: Task[T], runner: Runner
) -> Pending[T]:
    """Start a task, unless the one that `table` has for the key is still running."""
    found = table.get(key)
    if found is None:
        found = table[key] = start(task, runner)

        def ended(_: object) -> None:
            del table[key]

        found.on_done(ended)
    return found


def start(part: Part, runner: Runner) -> Pending[Any]:
    """Run a task, or any other part, until it waits, and resume it with each answer.

    The Pending ends with what the task returned or with the RmqError that it did not
    handle. Any other exception (a defect, or an exception in code of the user, such as
    an allocation strategy) is logged and becomes an RmqError, so that no task waits for
    ever for one that has ended.
    """
    if isinstance(part, Pending):
        return part
    if isinstance(part, Request):
        try:
            return runner.submit(part)
        except RmqError as error:
            return failed(error)
        except Exception as error:  # noqa: BLE001  # a defect must not hang the task
            return failed(unexpected(error))
    if isinstance(part, Generator):
        run = _Run(part, runner)
        run.go_on(None)
        return run.pending
    if isinstance(part, Sleep):
        pending: Pending[Any] = Pending()
        runner.call_later(part.delay_ms, functools.partial(pending.succeed, None))
        return pending
    if isinstance(part, All):
        return _start_all(part, runner)
    if isinstance(part, Race):
        return _RaceRun(part, runner).pending
    return _start_within(part, runner)


def unexpected(error: Exception) -> RmqError:
    """Log an exception that is not an RmqError, and wrap it in one."""
    logger.error("a task failed unexpectedly", exc_info=error)
    wrapped = RmqError(f"unexpected {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


class _Run:
    """A task that is running."""

    __slots__ = ("_runner", "_task", "pending")

    def __init__(self, task: Task[Any], runner: Runner) -> None:
        self._task = task
        self._runner = runner
        self.pending: Pending[Any] = Pending()

    def go_on(self, outcome: object) -> None:
        result: Any = None
        failure: RmqError | None = None
        # A loop, not recursion: answers that are available at once use no stack.
        while True:
            try:
                if isinstance(outcome, RmqError):
                    step = self._task.throw(outcome)
                else:
                    step = self._task.send(outcome)
            except StopIteration as stop:
                result = stop.value
                break
            except RmqError as error:
                failure = error
                break
            except Exception as error:  # noqa: BLE001  # code of the user, too
                failure = unexpected(error)
                break
            waited_for = start(step, self._runner)
            if not waited_for.is_done:
                waited_for.on_done(self._resume)
                return
            outcome = waited_for.outcome()
        # Not in a handler: what a function of the program raises would have been raised
        # "during handling" of a StopIteration, for all that its traceback says.
        if failure is None:
            self.pending.succeed(result)
        else:
            self.pending.fail(failure)

    def _resume(self, waited_for: Pending[Any]) -> None:
        self.go_on(waited_for.outcome())


def repeat(
    make: Callable[[], Part | None], runner: Runner, *, interval_ms: int
) -> None:
    """Run what `make` returns, each time `interval_ms` after its previous end.

    It ends when `make` returns None.
    """

    def run() -> None:
        part = make()
        if part is not None:
            start(part, runner).on_done(lambda _: runner.call_later(interval_ms, run))

    runner.call_later(interval_ms, run)


def failed(error: RmqError) -> Pending[Any]:
    """A Pending that has ended with an error."""
    pending: Pending[Any] = Pending()
    pending.fail(error)
    return pending


def _start_all(step: All, runner: Runner) -> Pending[list[Any]]:
    pending: Pending[list[Any]] = Pending()
    started = [start(part, runner) for part in step.parts]
    left = sum(not each.is_done for each in started)

    def finish() -> None:
        pending.succeed([each.outcome() for each in started])

    def one_ended(_: Pending[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            finish()

    if not left:
        finish()
    for each in started:
        if not each.is_done:
            each.on_done(one_ended)
    return pending


class _RaceRun:
    """A race that is running."""

    __slots__ = ("_failures", "_next_index", "_runner", "_step", "pending")

    def __init__(self, step: Race, runner: Runner) -> None:
        if not step.parts:
            raise ValueError("a race needs at least one part")
        self._step = step
        self._runner = runner
        self._next_index = self._failures = 0
        self.pending: Pending[Any] = Pending()
        self._start_next(0)

    def _start_next(self, expected_index: int) -> None:
        """Start the part of this index, unless it was started in the meantime."""
        parts = self._step.parts
        if (
            self.pending.is_done
            or self._next_index != expected_index
            or expected_index == len(parts)
        ):
            return
        self._next_index += 1
        if self._next_index < len(parts):
            self._runner.call_later(
                self._step.next_after_ms,
                functools.partial(self._start_next, self._next_index),
            )
        start(parts[expected_index], self._runner).on_done(self._ended)

    def _ended(self, part: Pending[Any]) -> None:
        if self.pending.is_done:
            return
        outcome = part.outcome()
        if not isinstance(outcome, RmqError):
            self.pending.succeed(outcome)
            return
        self._failures += 1
        if self._failures == len(self._step.parts):
            self.pending.fail(outcome)
        else:
            self._start_next(self._next_index)


def _start_within(step: Within, runner: Runner) -> Pending[Any]:
    pending: Pending[Any] = Pending()

    def ended(part: Pending[Any]) -> None:
        outcome = part.outcome()
        if isinstance(outcome, RmqError):
            pending.fail(outcome)
        else:
            pending.succeed(outcome)

    started = start(step.part, runner)
    started.on_done(ended)
    if not pending.is_done:
        runner.call_later(
            step.limit_ms,
            lambda: pending.fail(
                TimeLimitError(f"not finished within {step.limit_ms} ms")
            ),
        )
    return pending


class RunnerThread(Runner, Protocol):
    """A runner of tasks that is a thread of its own."""

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread, after the actions that were posted before."""


def run_in(thread: RunnerThread, part: Part) -> Future[Any]:
    """Run a task in the thread; the future ends with its result or its RmqError.

    The future cannot be cancelled, because a request that was sent stays sent.
    """
    from concurrent.futures import Future  # loaded by clients, not by commands

    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def ended(pending: Pending[Any]) -> None:
        outcome = pending.outcome()
        if isinstance(outcome, RmqError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    thread.post(lambda: start(part, thread).on_done(ended))
    return future
