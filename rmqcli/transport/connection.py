"""One peer: the connection to it, requests that wait to be sent, and open requests.

    idle ──request──> looking up ──> dialing ──open──> open ──lost──> idle
                          └─────────────┴────failed───> idle, backing off

A connection is made when a request needs one, and again when it was lost. After a
failed attempt the next one waits for the back-off. Requests that are made meanwhile
wait with it, or fail at once when their deadline is earlier.

When a connection that had worked is lost, requests that were not sent go out on the
next one. A request that was sent fails with DisconnectedError, because the peer may
have carried it out. The client's handler answers requests of the peer. An answer goes
out on the connection on which its request came, or is dropped if that has ended.

Belongs to the thread that drives the `Loop`. Source: NettyRemotingAbstract and its
#processRequestCommand in apache/rocketmq.
"""

from __future__ import annotations

import selectors
from collections import deque
from typing import TYPE_CHECKING, Any

from rmqcli.errors import (
    ConnectError,
    DeadlineError,
    DisconnectedError,
    TransportError,
    WireError,
)
from rmqcli.log import get_logger
from rmqcli.transport import diagnosis
from rmqcli.transport.dial import Dial
from rmqcli.transport.lookups import too_slow
from rmqcli.transport.stream import WOULD_BLOCK, Stream
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import (
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.transport.address import Address, Endpoint
    from rmqcli.transport.backoff import Backoff
    from rmqcli.transport.loop import Loop, PendingReply
    from rmqcli.wire.frame import FrameBuffer


logger = get_logger(__name__)


def encode_served(
    handler: Callable[[str, RemotingCommand], RemotingCommand | None] | None,
    address: str,
    command: RemotingCommand,
) -> bytes | None:
    """Pass a request to `handler`; return the frame to send back, or None.

    A oneway request is never answered, not even with an error. Without a handler the
    answer has code 3; when the handler raises it has code 1, as in Java.
    """
    try:
        answer = _answer_of(handler, address, command)
        if answer is None or command.is_oneway:
            return None
        return _encode(answer, command.opaque)
    except Exception as error:
        logger.exception("handler failed address=%s code=%d", address, command.code)
        if command.is_oneway:
            return None
        remark = f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        answer = RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        return _encode(answer, command.opaque)


_REMARK_MAX = 1_000


def _answer_of(
    handler: Callable[[str, RemotingCommand], RemotingCommand | None] | None,
    address: str,
    command: RemotingCommand,
) -> RemotingCommand | None:
    if handler is None:
        return RemotingCommand(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"request code {command.code} is not supported",
        )
    return handler(address, command)


def _encode(answer: RemotingCommand, opaque: int) -> bytes:
    numbered = answer.with_opaque(opaque)
    numbered.flag = RESPONSE_FLAG
    return encode_command(numbered)


#: Small requests go out together, up to this size for one system call.
_CHUNK_BYTES = 256 * 1024
#: Most reads in one turn, so that a flood from one peer does not starve the others.
_READS_PER_TURN = 8
#: A turn stops reading after this many requests of the peer: they cost more than
#: answers, and a turn must not keep deadlines waiting.
_SERVED_PER_TURN = 64
#: After this silence the socket is read before a send: the peer may have closed it.
_SILENCE_MS = 1_000
#: An incomplete frame shorter than this is copied, so that another connection can use
#: the buffer.
_OWN_BUFFER_FROM_BYTES = 32 * 1024

_GO_AWAY = int(ResponseCode.GO_AWAY)


class RemotingConnection:
    """The connection to one address, which is made again when it was lost."""

    def __init__(self, address: Address, loop: Loop) -> None:
        self.address = address
        #: opaque -> reply, of all requests that are not answered
        self.waiters: dict[int, PendingReply[Any]] = {}
        #: all bytes queued so far (guarded by the loop's lock), and all bytes sent or
        #: dropped so far
        self.posted_bytes = 0
        self.gone_bytes = 0
        #: whether the client has forgotten this connection (guarded by the loop's lock)
        self.is_retired = False
        #: how many connections were opened, and so the number of the open one
        self.number = 0
        self._loop = loop
        #: deadline of the look-up of the host's name, in the loop's time; None without
        #: a look-up
        self._lookup_due_ms: int | None = None
        self._dial: Dial | None = None
        self._stream: Stream | None = None
        self._events = 0
        #: a buffer of the loop, while there are bytes to read or a long frame arrives
        self._frames: FrameBuffer | None = None
        #: the start of a frame, while there is no buffer
        self._rest = b""
        self._frame_count = 0
        #: whether an earlier connection to the peer had an answer
        self._has_answered = False
        self._first_bytes = b""
        self._unsent: deque[tuple[PendingReply[Any] | None, bytes]] = deque()
        #: answers to the peer's requests, for the open connection only
        self._answers: deque[bytes] = deque()
        #: the bytes being sent; after WOULD_BLOCK, TLS must get the same bytes again
        self._chunk: memoryview | None = None
        #: by the clock, not the loop's time, which stands still while nothing drives it
        self._active_clock_ms = 0
        self._retry_clock_ms = 0
        self._backoff: Backoff | None = None
        self._failure: ConnectError | None = None

    @property
    def due_ms(self) -> int:
        """When `on_time` has something to do, while this is in `loop.timed`."""
        if self._lookup_due_ms is not None:
            return self._lookup_due_ms
        return self._retry_at_ms if self._dial is None else self._dial.due_ms

    @property
    def _is_connecting(self) -> bool:
        return self._dial is not None or self._lookup_due_ms is not None

    @property
    def _retry_at_ms(self) -> int:
        """When the back-off ends, in the loop's time."""
        return self._retry_clock_ms - self._loop.paused_ms

    @property
    def is_sending(self) -> bool:
        """Whether an open connection has bytes to send."""
        return self._stream is not None and bool(
            self._chunk or self._answers or self._unsent
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent or answered. Needs the loop's lock."""
        return not self.waiters and self.posted_bytes == self.gone_bytes

    def enqueue(
        self, reply: PendingReply[Any] | None, data: bytes, now_ms: int
    ) -> None:
        """Queue a request (a oneway one has no reply); `flush` sends it."""
        self._unsent.append((reply, data))
        if reply is None:
            return
        self.waiters[reply.opaque] = reply
        deadline_ms = now_ms + reply.timeout_ms
        if self._retry_at_ms >= deadline_ms:
            deadline_ms = now_ms  # the back-off outlasts it
        self._loop.deadlines.add(deadline_ms, reply.opaque, self)

    def enqueue_answer(self, data: bytes, number: int) -> None:
        """Queue an answer to a request that came on connection `number`.

        It is dropped if that connection has ended, as in Java: the peer may have
        restarted, and could take it for the answer to another request.
        """
        if self._stream is None or number != self.number:
            logger.info("answer dropped, its connection ended address=%s", self.address)
            self.gone_bytes += len(data)
            return
        self._answers.append(data)

    def flush(self, now_ms: int) -> None:
        """Send what is queued, or begin to connect for the queued requests."""
        if self._stream is not None:
            clock_ms = self._loop.clock_ms()
            if clock_ms - self._active_clock_ms > _SILENCE_MS:
                self._active_clock_ms = clock_ms
                self._read(self._stream)
        if self._stream is not None:
            self._send(self._stream)
        elif self._unsent and not self._is_connecting:
            self._connect(now_ms)

    def on_event(self, mask: int) -> None:
        """Do what the socket is ready for, as the selector reported."""
        if self._dial is not None:
            self._step(self._dial, self._loop.now_ms())
            return
        if mask & selectors.EVENT_READ and self._stream is not None:
            self._active_clock_ms = self._loop.clock_ms()
            self._read(self._stream)
        if self._stream is not None:
            self._send(self._stream)

    def on_time(self, now_ms: int) -> None:
        """Do what `due_ms` was set for, if that time has come."""
        if now_ms < self.due_ms:
            return
        if self._lookup_due_ms is not None:
            self._unreachable(
                too_slow(self.address, self._loop.options.connect_timeout_ms)
            )
        elif self._dial is not None:
            self._step(self._dial, now_ms, timed_out=True)
        else:
            self._connect(now_ms)

    def expire(self, opaque: int) -> None:
        """Fail a request whose deadline has passed."""
        reply = self.waiters.pop(opaque)
        self._loop.failed(reply, self._expired(reply))

    def close(self, error: TransportError) -> None:
        """Close the socket and fail all requests that wait."""
        self._disconnect()
        self._drop_unsent()
        self._fail_all(error)

    def forget_after_fork(self, error: TransportError) -> None:
        """In a forked child: close its copies of the sockets, and abandon requests.

        No callback runs, and the parent's connections remain open.
        """
        if self._dial is not None:
            self._dial.abandon()
            self._dial = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._disconnect()
        self._drop_unsent()
        waiters, self.waiters = self.waiters, {}
        for reply in waiters.values():
            reply.abandon(_copy(error))

    def _connect(self, now_ms: int) -> None:
        if now_ms < self._retry_at_ms:
            self._loop.timed.add(self)
            return
        loop = self._loop
        try:
            endpoints = loop.lookups.endpoints(self.address, self)
        except ConnectError as error:
            self._unreachable(error)
            return
        if endpoints is None:
            loop.need_waker()
            self._lookup_due_ms = now_ms + loop.options.connect_timeout_ms
            loop.timed.add(self)
            return
        self._start_dial(endpoints, now_ms)

    def looked_up(self, outcome: list[Endpoint] | ConnectError) -> None:
        """Continue after the look-up of the host's name. See LookupListener."""
        if self._lookup_due_ms is None:
            return  # it came too late, or this is closed
        self._lookup_due_ms = None
        self._loop.timed.discard(self)
        if isinstance(outcome, ConnectError):
            self._unreachable(outcome)
        else:
            self._start_dial(outcome, self._loop.now_ms())

    def _start_dial(self, endpoints: list[Endpoint], now_ms: int) -> None:
        timeout_ms = self._loop.options.connect_timeout_ms
        dial = Dial(self.address, tls=self._loop.tls, timeout_ms=timeout_ms)
        try:
            stream = dial.start(endpoints, now_ms)
        except ConnectError as error:
            self._unreachable(error)
        else:
            self._dialed(dial, stream)

    def _step(self, dial: Dial, now_ms: int, *, timed_out: bool = False) -> None:
        self._loop.unwatch(dial.watched)
        self._dial = None
        try:
            stream = dial.time_out(now_ms) if timed_out else dial.step(now_ms)
        except ConnectError as error:
            self._unreachable(error)
        else:
            self._dialed(dial, stream)

    def _dialed(self, dial: Dial, stream: Stream | None) -> None:
        loop = self._loop
        if stream is None:
            self._dial = dial
            loop.timed.add(self)
            loop.watch(dial.watched, dial.events, self)
            return
        loop.timed.discard(self)
        loop.counters.connections += 1
        logger.info("connected address=%s", self.address)
        self._stream = stream
        self.number += 1
        self._events = selectors.EVENT_READ
        self._active_clock_ms = loop.clock_ms()
        loop.watch(stream.sock, self._events, self)
        self._send(stream)

    def _unreachable(self, error: ConnectError) -> None:
        self._lookup_due_ms = None
        self._loop.timed.discard(self)
        self._loop.lookups.forget(self.address)
        self._failure = error
        self._back_off()
        self._drop_unsent()
        self._fail_all(error)

    def _back_off(self) -> None:
        if self._backoff is None:
            self._backoff = self._loop.new_backoff()
        delay_ms = self._backoff.failed()
        self._retry_clock_ms = self._loop.clock_ms() + delay_ms
        logger.info("unreachable address=%s retry_in_ms=%d", self.address, delay_ms)

    def _send(self, stream: Stream) -> None:
        chunk = self._chunk
        while True:
            if chunk is None:
                chunk = self._next_chunk()
                if chunk is None:
                    break
            try:
                count = stream.send(chunk)
            except OSError as error:
                self._chunk = chunk  # so that the rest is counted as dropped
                self._read(stream)  # the last bytes may say why, as TLS alerts do
                if self._stream is stream:
                    self._ended(diagnosis.describe_end(error))
                return
            if count == WOULD_BLOCK:
                break
            self.gone_bytes += count
            chunk = chunk[count:] if count < len(chunk) else None
        self._chunk = chunk
        events = selectors.EVENT_READ
        if chunk is not None:
            events |= selectors.EVENT_WRITE
        if events != self._events:
            self._events = events
            self._loop.rewatch(stream.sock, events, self)

    def _next_chunk(self) -> memoryview | None:
        """Return queued answers and unexpired requests as one block of bytes."""
        parts: list[bytes] = []
        size = 0
        while self._answers and size < _CHUNK_BYTES:
            parts.append(self._answers.popleft())
            size += len(parts[-1])
        while self._unsent and size < _CHUNK_BYTES:
            reply, data = self._unsent.popleft()
            if reply is not None and reply.is_done:
                self.gone_bytes += len(data)
                continue
            parts.append(data)
            size += len(data)
        if not parts:
            return None
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def _read(self, stream: Stream) -> None:
        frames = self._frames
        if frames is None:
            frames = self._frames = self._loop.take_buffer()
            if self._rest:
                frames.feed(self._rest)
                self._rest = b""
        self._read_into(frames, stream)
        if (
            self._frames is frames
            and (pending_bytes := frames.pending_bytes) < _OWN_BUFFER_FROM_BYTES
        ):
            if pending_bytes:
                self._rest = frames.take_pending()
            self._frames = None
            self._loop.give_buffer_back(frames)

    def _read_into(self, frames: FrameBuffer, stream: Stream) -> None:
        counters = self._loop.counters
        served_before = counters.peer_requests
        for _ in range(_READS_PER_TURN):
            room = frames.writable()
            size = len(room)
            try:
                count = stream.recv_into(room)
            except OSError as error:
                self._ended(diagnosis.describe_end(error))
                return
            if count > 0 and not self._frame_count:
                missing = diagnosis.FIRST_BYTES_MAX - len(self._first_bytes)
                self._first_bytes += bytes(room[: min(count, missing)])
            room.release()
            if count == WOULD_BLOCK:
                return
            if count == 0:
                self._ended("closed the connection")
                return
            self._take(frames, count)
            if self._stream is not stream:
                return
            if count < size and stream.short_read_is_all:
                return
            if counters.peer_requests - served_before >= _SERVED_PER_TURN:
                return

    def _take(self, frames: FrameBuffer, count: int) -> None:
        """Dispatch the frames that `count` more bytes complete.

        Unreadable bytes end the connection.
        """
        try:
            for frame in frames.wrote(count):
                if self._stream is None:
                    return  # an answer before this one ended the connection
                command = decode_command(frame)
                self._frame_count += 1
                self._dispatch(command)
        except WireError as error:
            self._lost(self._garbage(error))

    def _dispatch(self, command: RemotingCommand) -> None:
        loop = self._loop
        loop.counters.frames += 1
        if not command.is_response:
            self._serve(command)
            return
        reply = self.waiters.pop(command.opaque, None)
        if reply is None:
            if 0 < command.opaque < loop.next_opaque:
                loop.counters.late_answers += 1
            else:
                loop.counters.unknown_answers += 1
        elif command.code == _GO_AWAY:
            error = DisconnectedError(
                f"{self.address} is shutting down", address=self.address.text
            )
            loop.failed(reply, error)
            self._lost(error)
        else:
            loop.answered(reply, command)

    def _serve(self, command: RemotingCommand) -> None:
        loop = self._loop
        loop.counters.peer_requests += 1
        loop.serving = self
        try:
            data = encode_served(loop.request_handler, self.address.text, command)
        finally:
            loop.serving = None
        if data is None:
            return
        try:
            loop.reserve(self, len(data))
        except TransportError as error:
            # The peer keeps sending requests and reads no answers.
            self._lost(DisconnectedError(error.message, address=error.address))
            return
        self._answers.append(data)  # sent after the reading

    def _expired(self, reply: PendingReply[Any]) -> TransportError:
        address, timeout_ms = self.address.text, reply.timeout_ms
        if self._stream is not None:
            return DeadlineError(
                f"no answer from {self.address} to {_request_name(reply.code)} in"
                f" {timeout_ms} ms",
                address=address,
            )
        if self._lookup_due_ms is not None:
            return too_slow(self.address, timeout_ms)
        if self._dial is None and self._failure is not None:
            return _copy(self._failure)
        return ConnectError(
            f"cannot connect to {self.address}: no answer in {timeout_ms} ms",
            address=address,
        )

    def _garbage(self, error: WireError) -> DisconnectedError:
        address = self.address.text
        if self._frame_count:
            return diagnosis.lost_place(address, self._frame_count, error)
        return diagnosis.not_remoting(address, self._first_bytes, error)

    def _ended(self, reason: str) -> None:
        frames = self._frames
        pending_bytes = len(self._rest) if frames is None else frames.pending_bytes
        if pending_bytes:
            reason = f"{reason} {pending_bytes} bytes into a frame"
        self._lost(
            diagnosis.ended(
                self.address.text,
                reason,
                answered=self._frame_count > 0,
                wants_tls=self._loop.tls is None and not self._has_answered,
            )
        )

    def _lost(self, error: DisconnectedError) -> None:
        """End a connection that cannot be used any more; fail what was sent on it."""
        logger.info("disconnected address=%s reason=%s", self.address, error.message)
        had_worked = self._frame_count > 0
        is_garbage = error.__cause__ is not None
        self._disconnect()
        if had_worked and not is_garbage:
            self._backoff = None
            unsent = {reply.opaque for reply, _ in self._unsent if reply is not None}
            self._retry_clock_ms = self._loop.clock_ms()
            if self._unsent:
                self._loop.timed.add(self)
            self._fail_all(error, but=unsent)
            return
        self._failure = ConnectError(
            error.message, address=error.address, hint=error.hint
        )
        self._failure.is_grpc = error.is_grpc
        self._back_off()
        self._drop_unsent()
        self._fail_all(error)

    def _disconnect(self) -> None:
        self._lookup_due_ms = None
        if self._dial is not None:
            self._loop.unwatch(self._dial.watched)
            self._dial.abandon()
            self._dial = None
        if self._stream is not None:
            self._loop.unwatch(self._stream.sock)
            self._stream.close()
            self._stream = None
        self._loop.timed.discard(self)
        if self._chunk is not None:
            self.gone_bytes += len(self._chunk)
            self._chunk = None
        self.gone_bytes += sum(map(len, self._answers))
        self._answers.clear()
        self._frames = None
        self._rest = b""
        self._has_answered |= self._frame_count > 0
        self._frame_count = 0
        self._first_bytes = b""

    def _drop_unsent(self) -> None:
        self.gone_bytes += sum(len(data) for _, data in self._unsent)
        self._unsent.clear()

    def _fail_all(
        self, error: TransportError, *, but: set[int] | frozenset[int] = frozenset()
    ) -> None:
        failed = [reply for opaque, reply in self.waiters.items() if opaque not in but]
        for reply in failed:
            del self.waiters[reply.opaque]
        for reply in failed:
            self._loop.failed(reply, _copy(error))


def _copy(error: TransportError) -> TransportError:
    """Return a copy of the error for another request: each has its own traceback."""
    copy = type(error)(error.message, address=error.address, hint=error.hint)
    copy.__cause__ = error.__cause__
    copy.is_grpc = error.is_grpc
    return copy


def _request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
