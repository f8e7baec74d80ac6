"""Runs conversations with many brokers at once, under one deadline.

A script is a generator: it yields the calls that it wants answered, and is resumed
with what became of them. Each goes on as soon as its own answers are there, so a
broker that hangs holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.api.pending import PendingCall
    from rmqcli.clock import Deadline


class Ask(NamedTuple):
    """A call, and the longest to wait for it; None: as long as there is time."""

    call: Call[Any]
    timeout_ms: int | None = None


#: Yields requests, gets their answers or errors in the same order.
Script = Generator[list[Ask], list[Any], None]


class _Run:
    """One script under way at one broker."""

    __slots__ = ("address", "outcomes", "pendings", "script")

    def __init__(self, address: str, script: Script) -> None:
        self.address = address
        self.script = script
        #: an error where the request could not even be handed over
        self.pendings: list[PendingCall[Any] | RmqError] = []
        self.outcomes: list[Any] = []


def run_scripts(
    client: Client, scripts: Iterable[tuple[str, Script]], deadline: Deadline
) -> None:
    """Run each script against its address until all have ended.

    Requests of a script share its broker's connection, pipelined. What they meet comes
    back to the script as values; requests still open when `deadline` is over fail with
    DeadlineError, so this always ends.
    """
    active = []
    for address, script in scripts:
        run = _Run(address, script)
        if _go_on(client, run, first=True, deadline=deadline):
            active.append(run)
    while active:
        client.poll(deadline.left_ms() + 1)
        active = [run for run in active if _advance(client, run, deadline)]


def _advance(client: Client, run: _Run, deadline: Deadline) -> bool:
    """Read what has come, in order; go on when it is all. Whether it still runs."""
    while True:
        outcomes, pendings = run.outcomes, run.pendings
        while len(outcomes) < len(pendings):
            pending = pendings[len(outcomes)]
            if isinstance(pending, RmqError):
                outcomes.append(pending)
            elif pending.is_done:
                outcomes.append(pending.outcome())
            else:
                return True
        if not _go_on(client, run, first=False, deadline=deadline):
            return False


def _go_on(client: Client, run: _Run, *, first: bool, deadline: Deadline) -> bool:
    try:
        asks = next(run.script) if first else run.script.send(run.outcomes)
    except StopIteration:
        return False
    run.outcomes = []
    run.pendings = [
        _submit(client, run.address, ask, left_ms=max(1, deadline.left_ms()))
        for ask in asks
    ]
    return True


def _submit(
    client: Client, address: str, ask: Ask, *, left_ms: int
) -> PendingCall[Any] | RmqError:
    timeout_ms = left_ms if ask.timeout_ms is None else min(left_ms, ask.timeout_ms)
    try:
        return client.submit(address, ask.call, timeout_ms=timeout_ms)
    except RmqError as error:
        return error
