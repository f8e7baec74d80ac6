"""The future of one submitted message, cheap enough for many of them.

A Future of the standard library has a condition, a lock and three containers. To make
them, and to let the garbage collector visit them, costs more than all else that
`submit` does. Here they are made when a thread waits or a callback is added before the
end; most messages end without that. The result is made when it is asked for.

No lock guards this. The thread that ends the future sets `_state` and then looks for
`_made`; a thread that needs the condition sets `_made` and then looks at `_state`. So
at least one of them sees what the other one did:

- The end does not see a condition. A thread that comes later sees the end, and no
  thread has to be notified.
- The end sees a condition. It takes it, notifies, and calls back, as in the standard
  library. A callback is either in the list by then, or its thread, which looks under
  the condition, sees the end and runs the callback itself.

For `on_end` both may see each other; the one that takes the call out makes it.

Source: concurrent.futures._base.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.callbacks import call_back
from rmqcli.checked import check_callback, check_returned
from rmqcli.producer.backend import SendResult

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"


class _OnEnd(list[Any]):
    """In place of a condition, the argument of the call that `on_end` was given.

    The thread that takes it out makes the call.
    """

    __slots__ = ("call",)

    call: Callable[[Any], object]

    def make(self) -> None:
        """Make the call, unless another thread does."""
        try:
            argument = self.pop()
        except IndexError:
            return
        self.call(argument)


class SendFuture(Future[SendResult]):
    """The future of `submit`, which takes only functions that a call runs."""

    _state = _RUNNING
    #: after the end (function, index) until the result is asked for
    _result: Any = None
    _exception: BaseException | None = None
    #: a condition or an _OnEnd, once a thread needs it
    _made: Any = None

    def __init__(self) -> None:
        """Make nothing; see the module."""

    def __repr__(self) -> str:
        outcome = "running"
        if self._state is _FINISHED:
            error = self._exception
            outcome = "stored" if error is None else f"raised {type(error).__name__}"
        return f"SendFuture({outcome})"

    def cancel(self) -> bool:
        """Return False: what was handed over cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._state is _FINISHED

    def running(self) -> bool:
        """Whether the outcome is still to come."""
        return self._state is not _FINISHED

    def add_done_callback(self, fn: Callable[[Future[SendResult]], object]) -> None:
        """See Future. Raises TypeError for an `async def`."""
        check_callback(fn, "the callback")
        super().add_done_callback(
            lambda done: check_returned(fn(done), "the callback of a send's future")
        )

    def result(self, timeout: float | None = None) -> SendResult:
        """See Future."""
        if self._state is not _FINISHED or self._exception is not None:
            super().result(timeout)
        found = self._result
        if type(found) is tuple:
            make, index = found
            found = self._result = make(index)
        return found  # type: ignore[no-any-return]  # a SendResult

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See Future."""
        if self._state is not _FINISHED:
            return super().exception(timeout)
        return self._exception

    def on_end(self, call: Callable[[T], object], argument: T) -> None:
        """Call `call(argument)` at the end, in any thread, and now if that has been.

        It must not fail. Nothing may wait for this future or add a callback to it.
        """
        made = _OnEnd((argument,))
        made.call = call
        self._made = made
        if self._state is _FINISHED:
            made.make()

    def set_stored(self, make: Callable[[int], SendResult], index: int) -> None:
        """End with the result `make(index)`, which is made when it is asked for."""
        self._result = (make, index)
        self._end()

    def set_result(self, result: SendResult) -> None:
        """See Future."""
        self._result = result
        self._end()

    def set_exception(self, exception: BaseException | None) -> None:
        """See Future."""
        self._exception = exception
        self._end()

    def _end(self) -> None:
        if self._state is _FINISHED:
            raise InvalidStateError(f"{self._state}: {self!r}")
        self._state = _FINISHED
        made = self._made
        if made is None:
            return
        if type(made) is _OnEnd:
            made.make()
            return
        with made:
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            made.notify_all()
        for callback in self._done_callbacks:
            call_back(callback, self, "the callback of a send's future", future=self)

    # What the standard library's methods use, made when they first do.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        made = self._made
        if made is None:  # of several threads that make one, all use the first
            made = self.__dict__.setdefault("_made", threading.Condition())
        elif type(made) is _OnEnd:
            made = self.__dict__.setdefault("_made_later", threading.Condition())
        return made  # type: ignore[no-any-return]  # a Condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self.__dict__.setdefault("_waiters_made", [])  # type: ignore[no-any-return]

    @property
    def _done_callbacks(self) -> list[Any]:
        return self.__dict__.setdefault("_callbacks_made", [])  # type: ignore[no-any-return]
