"""One turn of I/O over all connections of a client: send, wait, read, expire.

Everything here belongs to the one thread that drives the loop, except `take_opaque`,
`post`, `wake`, `retire` and `retiring`, which any thread may call. Nothing here starts
a thread.

Time is that of `now_ms`: it stands still while no thread drives the loop. So a caller
that writes a file in between, or that a full pipe blocks, does not find its requests
expired although their answers are in the socket.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqcli.errors import DisconnectedError, TransportError
from rmqcli.tasks import Pending
from rmqcli.transport.backoff import Backoff
from rmqcli.transport.lookups import Lookups
from rmqcli.transport.options import TransportCounters, TransportOptions
from rmqcli.wire.frame import FrameBuffer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Container

    from rmqcli.clock import Clock
    from rmqcli.transport.connection import RemotingConnection
    from rmqcli.transport.tls_stream import TlsDialer
    from rmqcli.wire.command import RemotingCommand

    RequestHandler = Callable[[str, RemotingCommand], RemotingCommand | None]
    #: the arguments of `Loop.post`
    _Posted = tuple[RemotingConnection, "PendingReply[Any] | None", bytes, int | None]


T = TypeVar("T")

#: With fewer entries than this, dropping those of answered requests is not worth it.
COMPACT_FROM = 1024
OPAQUE_MAX = 0x7FFF_FFFF
#: A pause between turns that is longer than this does not count for deadlines.
PAUSE_MS = 100
#: Buffers kept for the next reads. More than one, because a connection in the middle
#: of a long frame keeps its buffer.
_SPARE_BUFFERS_MAX = 4


class Waiting(Protocol):
    """An owner of requests under way, which can expire one."""

    @property
    def waiters(self) -> Container[int]:
        """The opaques that are not answered yet."""

    def expire(self, opaque: int) -> None:
        """Give up a request whose deadline has passed."""


class RequestDeadlines:
    """The deadlines of open requests, for thousands in flight. For one thread.

    This is a heap of (deadline_ms, opaque, owner). An answer does not change it:
    entries of answered requests are dropped at their deadline, or when the heap has
    doubled. It holds numbers and not replies, so that the body of an answer is not kept
    until the deadline.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiting]] = []
        self._compact_at = COMPACT_FROM

    def __len__(self) -> int:
        """The number of entries, including those of answered requests."""
        return len(self._heap)

    def add(self, deadline_ms: int, opaque: int, owner: Waiting) -> None:
        """Add a request. Opaques differ, so owners are never compared."""
        heapq.heappush(self._heap, (deadline_ms, opaque, owner))
        if len(self._heap) > self._compact_at:
            self._heap = [e for e in self._heap if e[1] in e[2].waiters]
            heapq.heapify(self._heap)
            self._compact_at = max(COMPACT_FROM, 2 * len(self._heap))

    def next_ms(self) -> int | None:
        """Return a time before which nothing expires; None without requests.

        It may be the deadline of an answered request: waking up for it costs one turn.
        """
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ms: int) -> None:
        """Let the owners give up the requests whose deadline has passed."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, opaque, owner = heapq.heappop(self._heap)
            if opaque in owner.waiters:
                owner.expire(opaque)


class PendingReply(Pending[T]):
    """The outcome of one request: an answer or an error, exactly once.

    It is the `Pending` that the whole package waits with, plus what the transport has
    to know of the request. The layer above has a subclass that reads the answer, so
    that one object goes from the socket up to the task that waits.

    The error is ConnectError when the request was never sent, DisconnectedError or
    DeadlineError when the peer may have carried it out. `opaque` is 0 until the request
    is handed over. The result of this class is the unchanged answer, whatever its code.
    """

    __slots__ = ("address", "code", "opaque", "timeout_ms")

    def __init__(self, address: str, code: int, timeout_ms: int) -> None:
        # Not super().__init__(): bulk reads make ten thousand of these a second.
        self.is_done = False
        self._value = None
        self._error = None
        self._callback = None
        self.address = address
        self.code = code
        self.timeout_ms = timeout_ms
        self.opaque = 0

    def __repr__(self) -> str:
        state = "pending"
        if self.is_done:
            state = "failed" if self._error is not None else "answered"
        return f"<Reply {self.opaque} code={self.code} from {self.address}: {state}>"

    def answered(self, answer: RemotingCommand) -> None:
        """End with the answer. The transport calls this once."""
        self.succeed(answer)  # type: ignore[arg-type]  # T, unless a subclass reads it

    def abandon(self, error: TransportError) -> None:
        """End with the error, without the callback: for a forked child."""
        self._callback = None
        self.fail(error)


class Watcher(Protocol):
    """An object that is called when its socket is ready."""

    def on_event(self, mask: int) -> None:
        """Do what the socket is ready for, without blocking."""


class Loop:
    """The state that the connections of one client share, and their turn of I/O."""

    def __init__(
        self, options: TransportOptions, clock: Clock, rng: random.Random | None
    ) -> None:
        self.options = options
        self.counters = TransportCounters()
        self.lookups = Lookups(self.wake)
        self.deadlines = RequestDeadlines()
        self.tls = _tls_dialer(options)
        self.request_handler: RequestHandler | None = None
        #: the connection whose request the handler is processing
        self.serving: RemotingConnection | None = None
        #: the number of the next request; numbers below it were assigned
        self.next_opaque = 1
        #: the number of replies that have ended
        self.completed = 0
        #: connections whose `on_time` is due at their `due_ms`
        self.timed: set[RemotingConnection] = set()
        self.callback_errors: list[Exception] = []
        #: how far `now_ms` is behind the clock
        self.paused_ms = 0
        self._clock = clock
        self._rng = rng
        self._selector = selectors.DefaultSelector()
        self._turn_ended_ms: int | None = None
        self._lock = threading.Lock()
        #: what the driving thread has not yet taken; guarded by _lock
        self._inbox: list[_Posted] = []
        self._is_closed = False  # guarded by _lock
        #: connections that the client forgot, closed once idle; guarded by _lock
        self._retiring: set[RemotingConnection] = set()
        #: empty buffers; a connection that has nothing to read holds none
        self._spare_buffers: list[FrameBuffer] = []
        self._waker: Waker | None = None
        self._is_waiting = False
        #: whether there is another reason not to wait; see `wake_on_post`
        self._has_more: Callable[[], bool] = bool

    def now_ms(self) -> int:
        """Return monotonic ms without the time in which no thread drove the loop."""
        return self._clock.monotonic_ms() - self.paused_ms

    def clock_ms(self) -> int:
        """Return monotonic ms, which pass whether a thread drives the loop or not."""
        return self._clock.monotonic_ms()

    def new_backoff(self) -> Backoff:
        """Return a back-off that uses the client's source of randomness."""
        if self._rng is None:
            import random  # only after a failure: 1 ms of start-up

            self._rng = random.Random()  # noqa: S311  # jitter, not a secret
        return Backoff(self._rng)

    def wake_on_post(self, has_more: Callable[[], bool]) -> None:
        """Let `post` and `wake` interrupt the wait of a turn in another thread.

        They write to the waker only while the turn waits, because a write costs as much
        as a request does. So before it waits, a turn calls `has_more`, which says
        whether there is work that another thread set just before it called `wake`.
        """
        self._has_more = has_more
        self.need_waker()

    def need_waker(self) -> None:
        """Let `wake` interrupt a wait; this opens a pair of sockets."""
        if self._waker is None:
            self._waker = Waker()
            self._selector.register(self._waker.sock, selectors.EVENT_READ, self._waker)

    def wake(self) -> None:
        """End the wait of the turn under way. Safe to call from any thread."""
        waker = self._waker  # `close` in another thread may remove it
        if waker is not None and self._is_waiting:
            self._is_waiting = False
            waker.wake()

    def take_opaque(self) -> int:
        """Return a number for a request that no request in flight has.

        Safe to call from any thread.
        """
        with self._lock:
            opaque = self.next_opaque
            self.next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 1
        return opaque

    def post(
        self,
        connection: RemotingConnection,
        reply: PendingReply[Any] | None,
        data: bytes,
        *,
        answers: int | None = None,
    ) -> None:
        """Hand a request over; the next turn sends it. Safe from any thread.

        With `answers`, `data` is the answer to a request that came on the connection
        with this `number`. Raises TransportError when too many bytes already wait for
        that peer, and DisconnectedError after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise DisconnectedError(
                    f"the client is closed; cannot send to {connection.address}",
                    address=connection.address.text,
                )
            self._reserve(connection, len(data))
            if connection.is_retired:
                self._retiring.add(connection)
            self._inbox.append((connection, reply, data, answers))
            is_first = len(self._inbox) == 1
        if is_first:
            self.wake()

    def reserve(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Count bytes that a connection queues itself.

        Raises TransportError as `post` does.
        """
        with self._lock:
            self._reserve(connection, size_bytes)

    def _reserve(self, connection: RemotingConnection, size_bytes: int) -> None:
        waiting_bytes = connection.posted_bytes - connection.gone_bytes
        limit = self.options.queued_bytes_max
        if waiting_bytes and waiting_bytes + size_bytes > limit:
            raise TransportError(
                f"send queue of {connection.address} is full: {waiting_bytes} bytes"
                f" queued, {size_bytes} more exceed the limit of {limit}",
                address=connection.address.text,
            )
        connection.posted_bytes += size_bytes

    def retire(self, connection: RemotingConnection) -> None:
        """Close the connection when nothing is under way on it. Safe from any thread.

        A thread that has fetched the connection before may still post to it: then it is
        opened again, and closed after that.
        """
        with self._lock:
            connection.is_retired = True
            self._retiring.add(connection)
        self.wake()

    def retiring(self) -> list[RemotingConnection]:
        """The retired connections that are not closed. Safe from any thread."""
        with self._lock:
            return list(self._retiring)

    def take_buffer(self) -> FrameBuffer:
        """Return an empty buffer to read into; the caller gives it back."""
        return self._spare_buffers.pop() if self._spare_buffers else FrameBuffer()

    def give_buffer_back(self, buffer: FrameBuffer) -> None:
        """Keep an empty buffer for the next reader, unless enough are kept."""
        if len(self._spare_buffers) < _SPARE_BUFFERS_MAX:
            self._spare_buffers.append(buffer)

    def answered(self, reply: PendingReply[Any], answer: RemotingCommand) -> None:
        """Complete a reply; an error of its callback is raised after the turn."""
        self.completed += 1
        try:
            reply.answered(answer)
        except Exception as error:  # noqa: BLE001  # raised again by the turn's caller
            self.callback_errors.append(error)

    def failed(self, reply: PendingReply[Any], error: TransportError) -> None:
        """Complete a reply with an error; callbacks as in `answered`."""
        self.completed += 1
        try:
            reply.fail(error)
        except Exception as raised:  # noqa: BLE001  # raised again by the turn's caller
            self.callback_errors.append(raised)

    def watch(self, sock: socket.socket, events: int, watcher: Watcher) -> None:
        """Call `watcher` when `sock` is ready for `events`."""
        self._selector.register(sock, events, watcher)

    def rewatch(self, sock: socket.socket, events: int, watcher: Watcher) -> None:
        """Change the events that `sock` is watched for."""
        self._selector.modify(sock, events, watcher)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop watching `sock`, before it is closed.

        An interrupt may have ended what was about to watch it, or to close it.
        """
        with suppress(KeyError):
            self._selector.unregister(sock)

    def run_turn(self, timeout_ms: int | None) -> None:
        """Send what is queued, wait for at most `timeout_ms`, read, expire.

        It does not wait if what is queued ends at once, as on a connection that was
        reset meanwhile: the caller may be waiting for just that.
        """
        self._count_pause()
        completed = self.completed
        try:
            self._take_inbox()
            self._wait_and_read(timeout_ms if self.completed == completed else 0)
            now_ms = self.now_ms()
            self.deadlines.expire(now_ms)
            if self.timed:
                for connection in list(self.timed):
                    connection.on_time(now_ms)
            if self._retiring:
                self._close_retired()
            # What callbacks have posted: peers work on it while the caller does, who
            # may be about to run a listener.
            self._take_inbox()
        finally:
            self._turn_ended_ms = self._clock.monotonic_ms()

    def has_work(self) -> bool:
        """Whether a turn could still complete a reply."""
        return bool(len(self.deadlines) or self.timed or self._inbox)

    def refuse_posts(self) -> None:
        """Accept no more requests; those handed over reach their connections."""
        with self._lock:
            self._is_closed = True
        self._take_inbox()

    def close(self) -> None:
        """Close the selector and the waker, and drop all deadlines."""
        self.deadlines = RequestDeadlines()
        self._selector.close()
        # Not unregistered: an interrupt may have ended `need_waker` before it
        # registered the waker.
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    def forget_after_fork(self) -> None:
        """In a forked child: make a new selector and a new lock, and empty the inbox.

        The old selector is closed but not changed, because it watches the parent's
        sockets.
        """
        self._lock = threading.Lock()
        self._enqueue(self._inbox, self.now_ms())
        self._inbox = []
        self._is_waiting = False
        self.lookups.forget_after_fork()
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    def _count_pause(self) -> None:
        if self._turn_ended_ms is not None:
            pause_ms = self._clock.monotonic_ms() - self._turn_ended_ms
            if pause_ms > PAUSE_MS:
                self.paused_ms += pause_ms

    def _take_inbox(self) -> None:
        if not self._inbox:
            return
        with self._lock:
            posted, self._inbox = self._inbox, []
        now_ms = self.now_ms()
        self._enqueue(posted, now_ms)
        for connection in {each[0]: None for each in posted}:
            connection.flush(now_ms)

    def _enqueue(self, posted: list[_Posted], now_ms: int) -> None:
        for connection, reply, data, answers in posted:
            if answers is None:
                connection.enqueue(reply, data, now_ms)
            else:
                connection.enqueue_answer(data, answers)

    def _close_retired(self) -> None:
        with self._lock:
            idle = [each for each in self._retiring if each.is_idle]
            self._retiring.difference_update(idle)
        for connection in idle:
            address = connection.address
            self.lookups.forget(address)
            connection.close(
                DisconnectedError(
                    f"the connection to {address} was closed because it is no longer"
                    " needed",
                    address=address.text,
                )
            )

    def _wait_and_read(self, timeout_ms: int | None) -> None:
        wait_ms = self._wait_ms(timeout_ms)
        # Set before the inbox is read: either this turn sees what another thread posts
        # now, or that thread sees that this one waits.
        self._is_waiting = True
        if self._inbox or self.lookups.has_answers or self._has_more():
            wait_ms = 0
        ready = self._selector.select(None if wait_ms is None else wait_ms / 1000)
        self._is_waiting = False
        for key, mask in ready:
            key.data.on_event(mask)
        if self.lookups.has_answers:
            self.lookups.settle()

    def _wait_ms(self, timeout_ms: int | None) -> int | None:
        if self.callback_errors:
            return 0
        due = [connection.due_ms for connection in self.timed]
        next_ms = self.deadlines.next_ms()
        if next_ms is not None:
            due.append(next_ms)
        if not due:
            return timeout_ms
        left_ms = min(due) - self.now_ms()  # select takes a negative time for none
        return left_ms if timeout_ms is None else min(left_ms, timeout_ms)


class Waker:
    """Ends a selector's wait from another thread."""

    def __init__(self) -> None:
        self.sock, self._writer = socket.socketpair()
        self.sock.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make `sock` readable. Safe from any thread, also after `close`."""
        try:
            self._writer.send(b"\0")
        except OSError:
            # Full: it is readable already. Closed: no turn waits any more.
            return

    def on_event(self, mask: int) -> None:
        """Read what was written, so that the next wait blocks."""
        del mask
        try:
            self.sock.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close both ends."""
        self.sock.close()
        self._writer.close()


def _tls_dialer(options: TransportOptions) -> TlsDialer | None:
    if options.tls is None:
        return None
    from rmqcli.transport.tls_stream import TlsDialer

    return TlsDialer(options.tls)
