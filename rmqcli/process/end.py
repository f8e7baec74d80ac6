"""What happens to open clients when their process ends or forks.

At the end of the process all of them are closed: first the consumers, at the same time
as each other, then the clients that their listeners may use. Python calls the functions
of `atexit` after it has joined the threads that are not daemons, so all threads of a
client are daemons.

A forked child has no clients: its copies are forgotten, and their sockets are closed
without sending anything, because the connections belong to the parent. If a listener
forked, its thread is the only one of the child; when the listener returns or raises
there, the child ends.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from contextlib import suppress
from typing import Final, NoReturn, Protocol, Self

from rmqcli.errors import ExitCode, interrupt_behind

#: Consumers with listeners that are open. Only single calls of the set change it, which
#: need no lock: a signal handler may interrupt any of them.
OPEN_CONSUMERS: Final[set[OpenConsumer]] = set()
#: Other clients that are open; changed in the same way.
OPEN_CLIENTS: Final[set[OpenClient]] = set()


class OpenClient(Protocol):
    """A client that was started and is not closed. In a forked child it is closed."""

    def close(self) -> None:
        """Close, and wait until that is done."""


class InOneProcess:
    """The base of clients, whose threads and connections belong to their process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled; create one in each process"
        )


class StartedInBlock(InOneProcess):
    """The base of clients that a `with` block starts, if need be, and closes."""

    _is_started: bool

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        raise NotImplementedError

    def start(self) -> None:
        """Start. Raises UsageError when it was started or closed before."""
        raise NotImplementedError

    def close(self) -> None:
        """Close, also what a start that was interrupted has left. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            if not self._is_started or self.is_closed:
                self.start()
        except BaseException as error:
            # An interrupt in `start`, or as it returns, finds no block to leave.
            if not self.is_closed:
                self.close()
            interrupt = interrupt_behind(error)
            if interrupt is not error:
                raise interrupt from None
            raise
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self.close()


class OpenConsumer(OpenClient, Protocol):
    """A consumer with a listener that was started and is not closed."""

    def begin_close(self) -> int:
        """Begin to close, without waiting."""

    def forget_after_fork(self) -> None:
        """In a forked child: become closed, sending nothing to the brokers."""


def _close_all() -> None:
    consumers = list(OPEN_CONSUMERS)
    for each in consumers:
        each.begin_close()
    for each in consumers:
        each.close()
    for client in list(OPEN_CLIENTS):
        client.close()


def _forget_all() -> None:
    consumers = list(OPEN_CONSUMERS)
    OPEN_CONSUMERS.clear()
    OPEN_CLIENTS.clear()
    for each in consumers:
        each.forget_after_fork()


def end_child(error: BaseException | None) -> NoReturn:
    """End the forked process as Python would after `error`, or with 0 without an error.

    Functions of `atexit` are not called, as in children of `multiprocessing`.
    """
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif isinstance(error, KeyboardInterrupt):
        code = int(ExitCode.INTERRUPTED)
    elif error is not None:
        code = 1
        with suppress(OSError, ValueError):
            traceback.print_exception(error)
    if code is not None and not isinstance(code, int):
        with suppress(OSError, ValueError):
            print(code, file=sys.stderr)  # noqa: T201  # as Python does for sys.exit
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
