"""The remoting client: requests to many peers, pipelined, driven by their caller.

Nothing happens in the background: `wait` and `poll` do the I/O in the caller's thread.
Only one thread at a time drives the client, and replies end, callbacks run and the
request handler is called in it. `submit`, `post`, `send_oneway`, `forget`, `wake` and
the result of `answer_later` may be called from other threads once `let_wake` was
called.

A forked child keeps its copies of clients, but none of their connections: requests
under way fail there, and new requests make new connections.

Source: NettyRemotingClient in apache/rocketmq.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from rmqcli.clock import SYSTEM_CLOCK, Clock, Deadline
from rmqcli.errors import DisconnectedError, UsageError
from rmqcli.log import get_logger
from rmqcli.transport.address import map_address
from rmqcli.transport.connection import RemotingConnection
from rmqcli.transport.loop import Loop, PendingReply
from rmqcli.transport.options import TransportCounters, TransportOptions
from rmqcli.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    encode_command,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from rmqcli.transport.loop import RequestHandler

logger = get_logger(__name__)

CLOSE_TIMEOUT_MS = 1_000

#: Every client that may have sockets, for a process that forks.
_CLIENTS: Final[WeakSet[RemotingClient]] = WeakSet()


class RemotingClient:
    """Connections to any number of peers, one for each address.

    Requests to one peer share a connection and may be answered in any order. Deadlines
    run while the client is driven; each reply has one, so every wait ends.
    """

    def __init__(
        self,
        options: TransportOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        """Make a client; nothing is opened before the first request.

        `rng` is used for the jitter of the back-off. Raises ConfigError when the
        options name certificates that cannot be used.
        """
        self._options = options or TransportOptions()
        self._clock = clock
        self._loop = Loop(self._options, clock, rng)
        #: address text -> connection; guarded by _lock
        self._connections: dict[str, RemotingConnection] = {}
        self._lock = threading.Lock()
        self._is_driving = False
        #: the thread that drove last (threading.get_ident)
        self._driver: int | None = None
        self._close_asked = False
        self._close_timeout_ms = CLOSE_TIMEOUT_MS
        self._is_closed = False
        _CLIENTS.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def counters(self) -> TransportCounters:
        """Counts of what happened so far; read-only for callers."""
        return self._loop.counters

    def submit(
        self, address: str, command: RemotingCommand, *, timeout_ms: int
    ) -> PendingReply[RemotingCommand]:
        """Hand over a request; its Reply ends with the answer, whatever its code.

        Raises as `post` does.
        """
        reply: PendingReply[RemotingCommand] = PendingReply(
            address, command.code, timeout_ms
        )
        self.post(reply, command)
        return reply

    def post(self, reply: PendingReply[Any], command: RemotingCommand) -> None:
        """Hand over the request of `reply`; the next turn of I/O sends it.

        Never blocks. The request gets its own opaque and, with credentials, a
        signature. The reply ends, and calls back, in the thread that drives the client,
        never in this call; a callback may submit but not wait. While the peer's address
        is in back-off the request waits, unless its deadline is before the next
        attempt: then it fails in the next turn.

        Raises UsageError for a bad address, HeaderError or FrameError for a command
        that cannot be written, DisconnectedError after `close`, TransportError when
        `queued_bytes_max` is reached.
        """
        connection = self._connection(reply.address)
        reply.opaque = opaque = self._loop.take_opaque()
        self._loop.post(connection, reply, self._encode(command, opaque))

    def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """Hand over a request that is not answered. Raises as `submit` does.

        The next turn sends it, or `close` when there is an open connection. It is lost
        silently when no connection can be made.
        """
        connection = self._connection(address)
        oneway = command.with_opaque(self._loop.take_opaque())
        oneway.flag = command.flag | ONEWAY_FLAG
        self._loop.post(connection, None, self._encode(oneway, oneway.opaque))

    def invoke(
        self, address: str, command: RemotingCommand, *, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and return its answer, whatever its code.

        Raises as `submit` and `PendingReply.result` do.
        """
        reply = self.submit(address, command, timeout_ms=timeout_ms)
        self.wait((reply,))
        return reply.result()

    def wait(
        self, replies: Iterable[PendingReply[Any]], *, timeout_ms: int | None = None
    ) -> bool:
        """Wait until all `replies` are done or `timeout_ms` is over; return whether.

        Does the I/O for all requests meanwhile. An exception of a callback is raised
        here, after the other callbacks were called.
        """
        pending = list(replies)
        deadline = None if timeout_ms is None else Deadline(self._clock, timeout_ms)
        done = 0
        while True:
            while done < len(pending) and pending[done].is_done:
                done += 1
            if done == len(pending):
                return True
            if deadline is not None and deadline.is_over():
                return False
            if not self._loop.has_work():
                raise RuntimeError(f"{pending[done]!r} is not of this client")
            self._turn(None if deadline is None else deadline.left_ms())

    def poll(self, timeout_ms: int) -> int:
        """Do one turn of I/O of at most `timeout_ms`; return how many replies ended."""
        before = self._loop.completed
        self._turn(timeout_ms)
        return self._loop.completed - before

    def set_request_handler(self, handler: RequestHandler | None) -> None:
        """Let `handler(address, command)` answer the requests of peers.

        It is called in the driving thread. What it returns is sent back unless the
        request is oneway; None sends nothing, or not yet: see `answer_later`. When it
        raises, code 1 is sent. Without a handler peers get code 3.
        """
        self._loop.request_handler = handler

    def answer_later(self, opaque: int) -> Callable[[RemotingCommand], None]:
        """Return a function that answers the request with this opaque.

        The request handler calls this while it handles that request, and returns None.
        The function raises as `submit`. It sends nothing if the connection on which the
        request came has ended, as in Java.
        """
        connection = self._loop.serving
        if connection is None:
            raise RuntimeError("only the request handler may promise an answer")
        number = connection.number

        def send(answer: RemotingCommand) -> None:
            numbered = answer.with_opaque(opaque)
            numbered.flag = RESPONSE_FLAG
            data = encode_command(numbered)
            self._loop.post(connection, None, data, answers=number)

        return send

    def forget(self, addresses: Iterable[str]) -> None:
        """Forget these peers, whose addresses are no longer in any route.

        Each connection is closed as soon as nothing is under way on it; the next
        request to the address makes a new one. Safe from the threads that may submit.
        """
        with self._lock:
            known = [self._connections.pop(each, None) for each in addresses]
        for connection in known:
            if connection is not None:
                self._loop.retire(connection)

    def let_wake(self, has_more: Callable[[], bool]) -> None:
        """Let other threads interrupt a `poll`; call this before the first `poll`.

        `has_more` says whether there is a reason not to wait, which another thread sets
        before it calls `wake`.
        """
        self._loop.wake_on_post(has_more)

    def wake(self) -> None:
        """End the poll under way. Safe to call from any thread."""
        self._loop.wake()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called. Safe to read from any thread."""
        return self._close_asked

    def close(self, *, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Send what is queued on open connections, then close them all. Idempotent.

        Pending replies fail with DisconnectedError. In a callback this only requests
        the close, which then happens at the end of the turn.
        """
        self._close_timeout_ms = timeout_ms
        self._close_asked = True
        if not self._is_driving:
            self._finish(Deadline(self._clock, timeout_ms))

    def forget_after_fork(self) -> None:
        """In a forked child: drop all connections, as the module's docstring says.

        The caller's thread is the only one there.
        """
        if self._is_closed:
            return
        self._lock = threading.Lock()
        self._is_driving = False
        self._loop.forget_after_fork()
        for connection in self._all_connections():
            address = connection.address.text
            connection.forget_after_fork(
                DisconnectedError(
                    f"the process was forked before {address} answered: the answer"
                    " goes to its parent",
                    address=address,
                )
            )

    def _connection(self, address: str) -> RemotingConnection:
        if self._close_asked:
            raise DisconnectedError(
                f"the client is closed; cannot send to {address}", address=address
            )
        connection = self._connections.get(address)
        if connection is None:
            parsed = map_address(address, self._options.address_map)
            with self._lock:
                connection = self._connections.setdefault(
                    address, RemotingConnection(parsed, self._loop)
                )
        return connection

    def _encode(self, command: RemotingCommand, opaque: int) -> bytes:
        options = self._options
        if options.credentials is None:
            return encode_command(command, opaque=opaque)
        from rmqcli.wire.acl import sign  # loads hmac and hashlib

        signed = command.with_opaque(opaque)
        signed.ext_fields = sign(command.ext_fields, command.body, options.credentials)
        return encode_command(signed)

    def _turn(self, timeout_ms: int | None) -> None:
        """Do one turn in the caller's thread; raise the first error of a callback."""
        self._refuse_in_callback()
        if self._is_closed:
            return
        self._is_driving = True
        self._driver = threading.get_ident()
        try:
            self._loop.run_turn(timeout_ms)
        finally:
            self._is_driving = False
            if self._close_asked:
                self._finish(Deadline(self._clock, self._close_timeout_ms))
        errors = self._loop.callback_errors
        if errors:
            self._loop.callback_errors = []
            raise errors[0]

    def _refuse_in_callback(self) -> None:
        if self._is_driving:
            if self._driver != threading.get_ident():
                raise UsageError(
                    "another thread is using this client",
                    hint="give each thread a client of its own",
                )
            raise RuntimeError("a callback may submit requests, but not wait for them")

    def _log_callback_errors(self) -> None:
        errors, self._loop.callback_errors = self._loop.callback_errors, []
        for error in errors:
            logger.error("callback failed", exc_info=error)

    def _finish(self, deadline: Deadline) -> None:
        """Send what is queued on open connections, then close all; only once."""
        if self._is_closed:
            return
        self._close_asked = self._is_closed = True
        loop = self._loop
        was_driving, self._is_driving = self._is_driving, True
        try:
            loop.run_turn(0)
            loop.refuse_posts()
            while not deadline.is_over() and self._is_sending():
                loop.run_turn(deadline.left_ms())
        finally:
            loop.refuse_posts()
            for connection in self._all_connections():
                address = connection.address.text
                connection.close(
                    DisconnectedError(
                        f"the client was closed before {address} answered",
                        address=address,
                    )
                )
            loop.close()
            self._is_driving = was_driving
            self._log_callback_errors()

    def _is_sending(self) -> bool:
        return any(each.is_sending for each in self._all_connections())

    def _all_connections(self) -> list[RemotingConnection]:
        with self._lock:
            known = list(self._connections.values())
        return known + self._loop.retiring()


def _forget_all() -> None:
    for client in list(_CLIENTS):
        client.forget_after_fork()


os.register_at_fork(after_in_child=_forget_all)

__all__ = ["PendingReply", "RemotingClient", "TransportOptions"]
