"""Tasks that another thread runs, as `concurrent.futures.Future`s for their callers."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from rmqcli import tasks
from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable


class RunnerThread(tasks.Runner, Protocol):
    """A runner of tasks that is a thread of its own."""

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread, after the actions that were posted before."""


def run_in(thread: RunnerThread, part: tasks.Part) -> Future[Any]:
    """Run a task in the thread; the future ends with its result or its RmqError.

    The future cannot be cancelled, because a request that was sent stays sent.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def ended(pending: tasks.Pending[Any]) -> None:
        outcome = pending.outcome()
        if isinstance(outcome, RmqError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    thread.post(lambda: tasks.start(part, thread).on_done(ended))
    return future
