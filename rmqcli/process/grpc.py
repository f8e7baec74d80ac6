"""gRPC in a process that forks, or that has several event loops.

No child crashes, and none waits for ever. Nor does gRPC's C code write to stderr, where
it repeats what errors say, such as that a handshake failed or that a port is taken.

gRPC's own handlers of forks, which its wheels switch on, crash some of the children of
a process with calls in flight, also such that call nothing but `exec`: of 40 children
one, with 1.85.3. Therefore this module switches them off, unless the environment has an
opinion. It has to be imported before gRPC is loaded.

Without the handlers, and with any before 1.80, a child shares the kernel's list of the
parent's sockets and would add its own to it: its calls have no answer, and the parent
ends with a segmentation fault (1.66.2 to 1.76.0, every time). Such a child is told so
when it wants to use gRPC. A program that knows better sets GRPC_ENABLE_FORK_SUPPORT=1.
"""

from __future__ import annotations

import os
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCH: Final = "GRPC_ENABLE_FORK_SUPPORT"
# gRPC reads both when it is loaded.
os.environ.setdefault(_SWITCH, "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

#: The first version whose handlers renew that list.
_RENEWS: Final = (1, 80)
_ON: Final = frozenset({"1", "t", "true", "y", "yes"})  # as gRPC reads it
#: this process once it uses gRPC, and the processes that it descends from by forks
_users: Final[set[int]] = set()


def use_grpc() -> None:
    """Note that this process uses gRPC; to be called before it does. Thread-safe.

    Raises UsageError in a forked child in which gRPC would not work.
    """
    pid = os.getpid()
    if not _users <= {pid} and not works_after_fork(
        metadata.version("grpcio"), os.environ
    ):
        raise UsageError(
            "a forked process cannot use a proxy when its parent has used one before:"
            " gRPC does not work there",
            hint="fork before the first client is opened, or start the process with"
            ' multiprocessing.get_context("spawn")',
        )
    _users.add(pid)


def works_after_fork(version: str, environment: Mapping[str, str]) -> bool:
    """Whether children of a process that uses gRPC of this version can use it, too."""
    major, minor = version.split(".")[:2]
    is_on = environment.get(_SWITCH, "").lower() in _ON
    return is_on and (int(major), int(minor)) >= _RENEWS


def is_of_another_loop(context: Mapping[str, Any]) -> bool:
    """Whether an error in an event loop says nothing of the work in that loop.

    gRPC's asyncio wakes all event loops of a process for each event. One that comes
    too late gets a BlockingIOError. One that takes an event of a loop that has been
    closed since gets a RuntimeError. `context` is what an exception handler of asyncio
    is called with.
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError):
        return "PollerCompletionQueue" in str(context.get("message"))
    return isinstance(error, BlockingIOError)
