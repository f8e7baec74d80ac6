"""Runs tasks over a client, in the caller's thread, until a deadline.

`run_tasks` drives several tasks (see `rmqcli.tasks`) at the same time and always ends:
requests that are open at the deadline fail with DeadlineError, later ones are not sent,
and sleeps are cut short. A broker that does not answer delays only the tasks that wait
for it.

A task is resumed inside a turn of the client's I/O. So it must not call anything that
blocks (`Client.invoke`, or `Client.route` for an unknown topic); it yields a Request
instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.clock import Now
from rmqcli.errors import DeadlineError, RmqError, TimeLimitError
from rmqcli.tasks import start
from rmqcli.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.api.client import Client, PendingCall
    from rmqcli.clock import Deadline
    from rmqcli.tasks import Part, Request, Task

T = TypeVar("T")

#: The longest wait for sockets in one turn.
_TURN_MS = 1_000
#: Below this many requests, those that have ended are not worth looking for.
_DROP_FROM = 1_000


def run_tasks(
    client: Client, parts: Iterable[Part], deadline: Deadline | None = None
) -> list[Any]:
    """Run tasks and requests at the same time; return their outcomes in the same order.

    Errors are returned as values. Without a deadline only the requests are limited,
    each by its own timeout or the client's. The outcome of a task that still sleeps
    after the deadline is a TimeLimitError.
    """
    return ClientRunner(client, deadline).run(parts)


def run_task(client: Client, task: Task[T]) -> T:
    """Run one task and return its result, or raise the error that it ended with."""
    outcome = ClientRunner(client).run([task])[0]
    if isinstance(outcome, RmqError):
        raise outcome
    return outcome  # type: ignore[no-any-return]  # the task's own


class ClientRunner:
    """Implements `tasks.Runner`, for one thread.

    `run` and `turn` must not be called in a callback of the client.
    """

    def __init__(self, client: Client, deadline: Deadline | None = None) -> None:
        self._client = client
        self._deadline = deadline
        self._timers = Timers()  # by the client's clock
        #: requests that were sent; those that have ended are removed from time to time
        self._sent: list[PendingCall[Any]] = []
        self._drop_at = _DROP_FROM

    def submit(self, request: Request[T]) -> PendingCall[T]:
        """See Runner. Raises DeadlineError after the deadline."""
        timeout_ms = request.timeout_ms
        if self._deadline is not None:
            left_ms = self._deadline.left_ms()
            if not left_ms:
                error = DeadlineError(
                    f"{request.call.what}: the deadline passed before {request.address}"
                    " was asked",
                    address=request.address,
                )
                error.may_be_done = error.was_asked = False
                raise error
            timeout_ms = left_ms if timeout_ms is None else min(timeout_ms, left_ms)
        pending = self._client.submit(
            request.address, request.call, timeout_ms=timeout_ms
        )
        self._sent.append(pending)
        if len(self._sent) > self._drop_at:
            self._drop_ended()
        return pending

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See Runner.

        The deadline shortens delays; after the deadline, nothing is called.
        """
        if self._deadline is not None:
            left_ms = self._deadline.left_ms()
            if not left_ms:
                return
            delay_ms = min(delay_ms, left_ms)
        due_ms = self._client.clock.monotonic_ms() + delay_ms
        self._timers.at(due_ms, lambda _: action())

    def run(self, parts: Iterable[Part]) -> list[Any]:
        """Do what `run_tasks` does. May be called again, with the same deadline."""
        pendings = [start(part, self) for part in parts]
        done = 0
        while True:
            while done < len(pendings) and pendings[done].is_done:
                done += 1
            if done == len(pendings):
                break
            if not self._timers and not self._has_open_requests():
                break
            self._client.poll(self._wait_ms())
            self._call_due()
            if self._client.on_turn is not None:
                self._client.on_turn()
        return [
            each.outcome()
            if each.is_done
            else TimeLimitError("the task was not finished in time")
            for each in pendings
        ]

    def turn(self, timeout_ms: int) -> None:
        """Continue the tasks of this runner; wait once, for at most `timeout_ms`."""
        self._has_open_requests()  # removes those that have ended
        if self._timers:
            timeout_ms = min(timeout_ms, self._wait_ms())
        self._client.poll(timeout_ms)
        self._call_due()

    def _has_open_requests(self) -> bool:
        if self._sent and self._sent[-1].is_done:
            self._drop_ended()
        return bool(self._sent)

    def _drop_ended(self) -> None:
        self._sent = [each for each in self._sent if not each.is_done]
        self._drop_at = max(_DROP_FROM, 2 * len(self._sent))

    def _wait_ms(self) -> int:
        due_ms = self._timers.next_ms()
        if due_ms is None:
            return _TURN_MS
        left_ms = due_ms - self._client.clock.monotonic_ms()
        return max(0, min(left_ms, _TURN_MS))

    def _call_due(self) -> None:
        if not self._timers:
            return
        clock = self._client.clock
        now = Now(clock.monotonic_ms(), clock.epoch_ms())
        # All are removed first: an action may add another one that is due now.
        for action in self._timers.take_due(now.monotonic_ms):
            action(now)
