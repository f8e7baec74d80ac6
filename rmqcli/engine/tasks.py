"""Steps that wait for answers, written as generators. No thread, no clock.

A task yields what it wants to ask, a function that takes `done`; it goes on with the
answer, or with the error raised where it yielded. So a rebalance reads from top to
bottom as Java's does, although nothing blocks.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    Ask = Callable[[Callable[[Any], None]], None]
    Task = Generator[Ask, Any, "T"]

T = TypeVar("T")


def spawn(task: Task[T], done: Callable[[T | RmqError], None]) -> None:
    """Run a task to its first question, and on with each answer.

    `done` gets what the task returned, or the RmqError that it did not handle. Any
    other exception is a defect of ours and comes out where the answer came in.
    """

    def step(answer: object) -> None:
        try:
            if isinstance(answer, RmqError):
                ask = task.throw(answer)
            else:
                ask = task.send(answer)
        except StopIteration as stop:
            done(stop.value)
        except RmqError as error:
            done(error)
        else:
            ask(step)

    step(None)


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


def asking(ask: Ask) -> Task[Any]:
    """A task of one question."""
    return (yield ask)
