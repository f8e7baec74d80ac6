"""Steps that wait for answers, written as generators. No thread, no clock.

A task yields what it wants to ask, a function that takes `done`; it goes on with the
answer, or with the error raised where it yielded. So a rebalance reads from top to
bottom as Java's does, although nothing blocks.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.errors import RmqError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    Ask = Callable[[Callable[[Any], None]], None]
    Task = Generator[Ask, Any, "T"]

T = TypeVar("T")

logger = get_logger(__name__)


def spawn(task: Task[T], done: Callable[[T | RmqError], None]) -> None:
    """Run a task to its first question, and on with each answer.

    `done` gets what the task returned, or the RmqError that it did not handle. Any
    other exception (a defect, or code of the user such as an allocation strategy) is
    logged and reaches `done` as an RmqError, so that nobody waits for ever for a task
    that ended.
    """

    def step(answer: object) -> None:
        try:
            if isinstance(answer, RmqError):
                ask = task.throw(answer)
            else:
                ask = task.send(answer)
        except StopIteration as stop:
            outcome = stop.value
        except RmqError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001  # code of the user, too
            outcome = unexpected(error)
        else:
            _put(ask, step)
            return
        done(outcome)

    step(None)


def _put(ask: Ask, step: Callable[[object], None]) -> None:
    """Ask; a question that raises is answered with its exception."""
    is_answered = False

    def answered(answer: object) -> None:
        nonlocal is_answered
        is_answered = True
        step(answer)

    try:
        ask(answered)
    except Exception as error:
        if is_answered:
            raise
        step(error if isinstance(error, RmqError) else unexpected(error))


def unexpected(error: Exception) -> RmqError:
    """Log an exception that is none of ours, and wrap it."""
    logger.error("a step of the consumer failed unexpectedly", exc_info=error)
    wrapped = RmqError(f"unexpected {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def together(tasks: Sequence[Task[T]]) -> Task[list[T | RmqError]]:
    """Run tasks side by side; their outcomes in the same order, errors as values."""
    outcomes: list[Any] = [None] * len(tasks)
    if not tasks:
        return outcomes

    def ask(done: Callable[[Any], None]) -> None:
        left = len(tasks)
        is_asked = False

        def finish(index: int, outcome: object) -> None:
            nonlocal left
            outcomes[index] = outcome
            left -= 1
            if not left and is_asked:
                done(outcomes)

        for index, task in enumerate(tasks):
            spawn(task, functools.partial(finish, index))
        is_asked = True
        if not left:
            done(outcomes)

    answer: list[T | RmqError] = yield ask
    return answer


def first_good(
    asks: Sequence[Ask], later: Callable[[int, Callable[[], None]], None], wait_ms: int
) -> Ask:
    """Ask one after the other until one answers well; the first good answer counts.

    The next one is asked when one fails, or when `wait_ms` have passed, so that one
    which does not answer costs no more than that. `later(delay_ms, action)` plans it.
    When all fail the answer is the last error. `asks` must not be empty.
    """

    def race(done: Callable[[Any], None]) -> None:
        next_index = failures = 0
        is_over = False

        def ask_next(expected_index: int) -> None:
            """Ask the next one, unless that was done since it was planned."""
            nonlocal next_index
            if is_over or next_index != expected_index or next_index == len(asks):
                return
            next_index += 1
            if next_index < len(asks):
                later(wait_ms, functools.partial(ask_next, next_index))
            spawn(asking(asks[expected_index]), answered)

        def answered(answer: object) -> None:
            nonlocal failures, is_over
            if is_over:
                return
            failures += isinstance(answer, RmqError)
            if isinstance(answer, RmqError) and failures < len(asks):
                ask_next(next_index)
                return
            is_over = True
            done(answer)

        ask_next(0)

    return race


def within(
    task: Task[T], later: Callable[[int, Callable[[], None]], None], timeout_ms: int
) -> Task[bool]:
    """Wait `timeout_ms` at most for a task; whether it ended. It is not interrupted."""

    def ask(done: Callable[[Any], None]) -> None:
        is_over = False

        def end(is_done: bool) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done(is_done)

        later(timeout_ms, lambda: end(False))
        spawn(task, lambda _: end(True))

    return bool((yield ask))


def asking(ask: Ask) -> Task[Any]:
    """A task of one question."""
    return (yield ask)
