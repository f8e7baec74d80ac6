"""Sockets for cores: one thread reads requests, lets cores answer, and writes.

Serves any number of cores (a name server, brokers), each on its own ports, and applies
their faults. Decides nothing about RocketMQ. A client that sends garbage or reads
nothing is closed, as are connections beyond the limit; other clients are not affected.
An exception in a core becomes an answer with code 1. If a port has a `flush`, its
answers wait for that call, which is made once for all answers of a turn (group commit).

Source: `NettyRemotingServer` in apache/rocketmq, without TLS.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.broker import faults
from rmqcli.broker.effects import Effect, Peer, Send
from rmqcli.broker.server.connection import (
    ClientConnection,
    Port,
    ServerLimits,
    host_port,
)
from rmqcli.clock import SYSTEM_CLOCK, Clock, Now, SystemClock
from rmqcli.errors import ConnectError, FrameError, HeaderError, RmqError, WireError
from rmqcli.log import get_logger
from rmqcli.timers import Timers
from rmqcli.wire.codes import LanguageCode, ResponseCode
from rmqcli.wire.command import (
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rmqcli.wire.frame import Frame, FrameBuffer, SerializeType
from rmqcli.wire.version import V5_5_0

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqcli.broker.faults import Action, Faults
    from rmqcli.broker.server.connection import Core


_BACKLOG = 1024
_ACCEPTED_AT_ONCE_MAX = 256


def open_listener(host: str, port: int) -> socket.socket:
    """Open a non-blocking listening socket. Raises ConnectError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = host_port(host, port)
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"cannot listen on {address}: the port is taken"
            hint = "stop the process that listens there, or choose another port"
        else:
            reason = (error.strerror or str(error)).lower()
            what, hint = f"cannot listen on {address}: {reason}", ""
        raise ConnectError(what, address=address, hint=hint) from error
    listener.setblocking(False)
    return listener


def accept_all(listener: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """Accept waiting connections, with their peers' `ip:port`; a limited number.

    Raises OSError when none can be accepted now, for example because no file descriptor
    is left.
    """
    for _ in range(_ACCEPTED_AT_ONCE_MAX):
        try:
            sock, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock, host_port(*address[:2])


logger = get_logger(__name__)

_REMARK_MAX: Final = 1_000
_MARKS_MAX: Final = 10_000


def handle_frame(server: Server, connection: ClientConnection, frame: Frame) -> None:
    """Handle one frame of a client. An invalid frame closes only its connection."""
    port = connection.port
    try:
        command = decode_command(frame)
    except HeaderError as error:
        logger.debug("connection closed peer=%s: %s", connection.peer.address, error)
        server.finish(connection)
        return
    if port.faults is not None and not command.is_response:
        action = port.faults.decide(port.name, command)
        if action is not None and not _begin(server, connection, command, action):
            return
    is_binary = frame.serialize_type == SerializeType.ROCKETMQ
    core = port.core
    if core is None:
        return
    port.was_used = True
    try:
        effects = core.handle(
            connection.peer, command, server.now(), is_binary=is_binary
        )
    except Exception as error:
        logger.exception("request failed core=%s code=%d", port.name, command.code)
        remark = f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        failed = faults.Answer(ResponseCode.SYSTEM_ERROR, remark)
        _answer(server, connection, command, failed)
        return
    server.apply(effects)


def deliver(server: Server, connection: ClientConnection, effect: Send) -> None:
    """Write a core's answer or push to its connection."""
    command = effect.command
    data = _encoded(command, is_binary=effect.is_binary)
    if connection.marks and command.is_response:
        action = connection.marks.pop(command.opaque, None)
        if action is not None:
            _end(server, connection, data, action)
            return
    server.write(connection, data)


def _encoded(command: RemotingCommand, *, is_binary: bool) -> bytes:
    if is_binary:
        try:
            return encode_command(command, SerializeType.ROCKETMQ)
        except HeaderError:
            pass  # a code of more than 16 bits, which JSON can carry
    try:
        return encode_command(command)
    except FrameError as error:
        failed = faults.Answer(ResponseCode.SYSTEM_ERROR, error.message)
        return encode_command(_answer_to(command, failed, V5_5_0))


def _begin(
    server: Server,
    connection: ClientConnection,
    command: RemotingCommand,
    action: Action,
) -> bool:
    """Apply a fault to a request. Return whether the core still gets the request."""
    match action:
        case faults.Answer():
            _answer(server, connection, command, action)
            return False
        case faults.Drop(is_handled=False):
            return False
        case faults.Disconnect(is_handled=False):
            server.finish(connection)
            return False
        case _:
            if not command.is_oneway and len(connection.marks) < _MARKS_MAX:
                connection.marks[command.opaque] = action
            return True


def _end(
    server: Server, connection: ClientConnection, data: bytes, action: Action
) -> None:
    """Apply a fault to an answer."""
    match action:
        case faults.Disconnect():
            server.finish(connection)
        case faults.DelayAnswer():
            due_ms = server.now().monotonic_ms + action.delay_ms
            server.timers.at(due_ms, lambda _now: _write_late(server, connection, data))
        case faults.Reorder():
            connection.held_back.append(data)
        case faults.Corrupt():
            server.write(connection, faults.damaged(data, action.part))
        case _:
            return  # Drop: the answer is lost


def _write_late(server: Server, connection: ClientConnection, data: bytes) -> None:
    if connection.peer.number in connection.port.connections:
        server.write(connection, data)


def _answer(
    server: Server,
    connection: ClientConnection,
    command: RemotingCommand,
    answer: faults.Answer,
) -> None:
    if not command.is_oneway and not command.is_response:
        reply = _answer_to(command, answer, connection.port.version)
        server.write(connection, encode_command(reply))


def _answer_to(
    command: RemotingCommand, answer: faults.Answer, version: int
) -> RemotingCommand:
    return RemotingCommand(
        code=int(answer.code),
        language=int(LanguageCode.JAVA),
        version=version,
        opaque=command.opaque,
        flag=RESPONSE_FLAG,
        remark=answer.remark,
        ext_fields=answer.ext_fields,
        body=answer.body,
    )


T = TypeVar("T")

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE
_SWEEP_MS: Final = 5_000
_CALL_TIMEOUT_MS: Final = 30_000
_FAILURES_MAX: Final = 100


class Server:
    """One I/O thread for any number of ports.

    `open`, `hang`, `drop` and the like, and anything that touches a core, must run in
    that thread: use `call` from any other. `close` is idempotent.
    """

    def __init__(
        self, *, clock: Clock = SYSTEM_CLOCK, limits: ServerLimits | None = None
    ) -> None:
        self.clock = clock
        self.limits = limits or ServerLimits()
        self.timers = Timers()
        self.ports: list[Port] = []
        self._selector = selectors.DefaultSelector()
        self._shared = FrameBuffer()
        self._by_peer: dict[int, ClientConnection] = {}
        self._last_number = 0
        self._dirty: dict[int, ClientConnection] = {}
        self._waiting: dict[
            int, ClientConnection
        ] = {}  # frames to handle, no event needed
        self.input_bytes = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._is_released = False
        self._wake_out, self._wake_in = socket.socketpair()
        for sock in (self._wake_out, self._wake_in):
            sock.setblocking(False)
        self._selector.register(self._wake_in, _READ, self._woken)
        self._thread = threading.Thread(
            target=self._run, name="rmq-broker-io", daemon=True
        )
        self.timers.every(_SWEEP_MS, self.now(), self._sweep)

    # --- from any thread ---

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the I/O thread and return its result, or raise its error.

        Raises RmqError when the server is closed, or the thread does not answer within
        30 s.
        """
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            if self._is_closing and threading.current_thread() is not self._thread:
                raise RmqError("the embedded cluster is closed")
            result = function()
            self._settle()
            return result
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
                self._settle()
            except BaseException as error:  # noqa: BLE001  # raised by the caller
                errors.append(error)
            done.set()

        self._calls.append(run)
        self.wake()
        if not done.wait(_CALL_TIMEOUT_MS / 1000):
            raise RmqError(f"no answer from the I/O thread in {_CALL_TIMEOUT_MS} ms")
        if errors:
            raise errors[0]
        return results[0]

    def connect(self, port: Port, address: str) -> socket.socket:
        """Connect to a port without the network; return a non-blocking socket.

        `address` is the `ip:port` under which the core sees the client. The server
        closes the connection at once if the port does not listen, or if there are too
        many connections. Raises RmqError when the server is closed.
        """
        if self._is_closing:
            raise RmqError("the embedded cluster is closed")
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)

        def adopt() -> None:
            is_full = len(self._by_peer) >= self.limits.connections_max
            if is_full or self._is_closing or not port.listeners:
                theirs.close()
            else:
                self._adopt(port, theirs, address)

        self._calls.append(adopt)
        self.wake()
        return ours

    def wake(self) -> None:
        """Wake the I/O thread, so that it runs its calls and reads the clock."""
        try:
            self._wake_out.send(b"\0")
        except (BlockingIOError, OSError):
            return  # it is awake already, or gone

    def close(self) -> None:
        """End the thread and close every socket."""
        if self._is_released:
            return
        self._is_released = True
        if self._thread.is_alive():
            self.call(self._begin_close)
            self._thread.join(5)
            if self._thread.is_alive():
                logger.error(
                    "thread did not stop thread=rmq-broker-io;"
                    " a request or a timer may be in an endless loop"
                )
        self._is_closing = True
        for port in self.ports:
            self.drop(port)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closing

    def now(self) -> Now:
        """The time that cores get."""
        return Now(self.clock.monotonic_ms(), self.clock.epoch_ms())

    # --- from the I/O thread ---

    def open(
        self, name: str, *, host: str, port: int, faults: Faults | None = None
    ) -> Port:
        """Open a port, whose core is set later. Raises ConnectError."""
        opened = Port(name, host, faults)
        self.ports.append(opened)
        self.listen(opened, port)
        return opened

    def listen(self, port: Port, number: int) -> None:
        """Listen on one more port number (0: any free one)."""
        listener = open_listener(port.host, number)
        port.listeners.append(listener)
        actual = int(listener.getsockname()[1])
        if actual not in port.numbers:
            port.numbers.append(actual)
        self._watch_listener(port, listener)

    def stop_listening(self, port: Port) -> None:
        """Refuse new connections; open ones stay."""
        for listener in port.listeners:
            if listener in self._selector.get_map():
                self._selector.unregister(listener)
            listener.close()
        port.listeners.clear()

    def drop(self, port: Port) -> None:
        """Close a port as when its process dies.

        Waiting output is lost, and the core is not notified.
        """
        self.stop_listening(port)
        core, port.core = port.core, None
        for connection in list(port.connections.values()):
            self._forget(connection)
        port.core = core
        port.is_hung = False

    def hang(self, port: Port) -> None:
        """Neither read nor answer, nor run the core's timers, until `resume`."""
        port.is_hung = True
        self._watch_all(port)

    def resume(self, port: Port) -> None:
        """End a `hang`; the frames that arrived meanwhile are handled first."""
        port.is_hung = False
        self._watch_all(port)

    def apply(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects of a core."""
        for effect in effects:
            connection = self._by_peer.get(effect.peer.number)
            if connection is None:
                continue
            if isinstance(effect, Send):
                deliver(self, connection, effect)
            else:
                self.finish(connection)

    def drive(self, port: Port, work: Callable[[Core], Iterable[Effect]]) -> None:
        """Call a port's core and apply its effects; an exception is logged."""
        if port.core is None:
            return
        port.was_used = True
        try:
            self.apply(work(port.core))
        except Exception:
            logger.exception("core raised an exception core=%s", port.name)

    def write(self, connection: ClientConnection, data: bytes) -> None:
        """Queue a frame for the end of this turn."""
        connection.write(data, now_ms=self.clock.monotonic_ms())
        self._dirty[connection.peer.number] = connection

    def finish(self, connection: ClientConnection) -> None:
        """Close the connection after what was written before."""
        connection.is_closing = True
        self._dirty[connection.peer.number] = connection

    # --- the loop ---

    def _run(self) -> None:
        failures = 0
        while not self._is_closing and failures < _FAILURES_MAX:
            try:
                for key, mask in self._selector.select(self._timeout_s()):
                    key.data(mask)
                self._turn()
            except Exception:
                # A bug must give a traceback, and must not stop the cluster.
                logger.exception("turn failed thread=rmq-broker-io")
                failures += 1
            else:
                failures = 0
        self._is_closing = True
        while self._calls:
            self._calls.popleft()()

    def _turn(self) -> None:
        """Run what follows the reads: calls, waiting frames, timers, and the writes."""
        while self._calls:
            self._calls.popleft()()
        waiting, self._waiting = self._waiting, {}
        for connection in waiting.values():
            self._handle_backlog(connection)
        now = self.now()
        for port in self.ports:
            if port.core is not None and not port.is_hung:
                due_ms = port.core.next_due_ms()
                if due_ms is not None and due_ms <= now.monotonic_ms:
                    self.drive(port, lambda core: core.run_due(now))
        self.timers.run_due(now)
        self._settle()
        self._flush_ports()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty.values():
            if not connection.port.is_hung:
                self._write_out(connection, now.monotonic_ms)

    def _timeout_s(self) -> float | None:
        """How long to wait for sockets; None means until one of them is ready."""
        if self._waiting or self._calls:
            return 0
        dues = [self.timers.next_ms()]
        dues += [
            port.core.next_due_ms()
            for port in self.ports
            if port.core is not None and not port.is_hung
        ]
        known = [due for due in dues if due is not None]
        if not known or not isinstance(self.clock, SystemClock):
            return None  # moving a manual clock wakes this thread
        # Rounded up, because a wait that ends too early makes a turn without work.
        return max(0, min(known) - self.clock.monotonic_ms() + 1) / 1000

    def _settle(self) -> None:
        for port in self.ports:
            if port.settle is not None:
                port.settle()

    def _flush_ports(self) -> None:
        for port in self.ports:
            if not port.was_used:
                continue
            port.was_used = False
            if port.flush is None:
                continue
            try:
                port.flush()
            except RmqError as error:
                # What is not on the disk must not be acknowledged.
                logger.error(  # noqa: TRY400  # the message is enough
                    "flush failed, closing connections with unsent answers core=%s: %s",
                    port.name,
                    error.message,
                )
                for connection in list(port.connections.values()):
                    if connection.out:
                        self._close(connection)

    # --- connections ---

    def _woken(self, _mask: int) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            return

    def _accept(self, port: Port, listener: socket.socket) -> None:
        try:
            for sock, address in accept_all(listener):
                if len(self._by_peer) >= self.limits.connections_max:
                    sock.close()
                    continue
                self._adopt(port, sock, address)
        except OSError as error:
            logger.warning("accept failed core=%s: %s; retrying", port.name, error)
            self._selector.unregister(listener)
            later = self.clock.monotonic_ms() + 200
            self.timers.at(later, lambda _now: self._watch_listener(port, listener))

    def _adopt(self, port: Port, sock: socket.socket, address: str) -> None:
        self._last_number += 1
        peer = Peer(self._last_number, address)
        now_ms = self.clock.monotonic_ms()
        connection = ClientConnection(sock, peer, port, now_ms, now_ms)
        self._by_peer[peer.number] = connection
        port.connections[peer.number] = connection
        self._watch(connection)

    def _watch_listener(self, port: Port, listener: socket.socket) -> None:
        if listener in port.listeners:
            self._selector.register(
                listener, _READ, lambda _mask: self._accept(port, listener)
            )

    def _watch(self, connection: ClientConnection) -> None:
        """Have the selector watch for the events that the connection can handle now."""
        wanted = 0
        if not connection.port.is_hung:
            is_full = connection.out_bytes > self.limits.output_pause_bytes
            if not (is_full or connection.backlog or connection.is_closing):
                wanted |= _READ
            if connection.out:
                wanted |= _WRITE
        if wanted == connection.mask:
            return
        if not connection.mask:
            self._selector.register(
                connection.sock, wanted, lambda mask: self._ready(connection, mask)
            )
        elif not wanted:
            self._selector.unregister(connection.sock)
        else:
            data = self._selector.get_key(connection.sock).data
            self._selector.modify(connection.sock, wanted, data)
        connection.mask = wanted

    def _watch_all(self, port: Port) -> None:
        for connection in port.connections.values():
            self._watch(connection)
            self._dirty[connection.peer.number] = connection

    def _ready(self, connection: ClientConnection, mask: int) -> None:
        number = connection.peer.number
        if number not in self._by_peer or not connection.mask:
            return  # closed or hung earlier in this turn
        if mask & _WRITE:
            self._dirty[number] = connection
        if mask & _READ and connection.mask & _READ:
            self._read(connection)

    def _read(self, connection: ClientConnection) -> None:
        before = connection.pending_input_bytes
        try:
            frames = connection.receive(self._shared)
        except (OSError, WireError) as error:
            self._shared.take_pending()
            self.input_bytes -= before
            connection.rest = b""
            logger.debug(
                "connection closed peer=%s: %s", connection.peer.address, error
            )
            self._close(connection)
            return
        self.input_bytes += connection.pending_input_bytes - before
        if frames is None or self.input_bytes > self.limits.input_max_bytes:
            self._close(connection)
            return
        connection.last_ms = self.clock.monotonic_ms()
        connection.backlog.extend(frames)
        self._handle_backlog(connection)

    def _handle_backlog(self, connection: ClientConnection) -> None:
        """Handle waiting frames until too much output waits for the client."""
        backlog = connection.backlog
        while (
            backlog
            and connection.peer.number in self._by_peer
            and not (connection.is_closing or connection.port.is_hung)
            and connection.out_bytes <= self.limits.output_pause_bytes
        ):
            handle_frame(self, connection, backlog.popleft())
        if backlog:
            self._dirty[connection.peer.number] = connection

    def _write_out(self, connection: ClientConnection, now_ms: int) -> None:
        if connection.peer.number not in self._by_peer:
            return
        try:
            connection.send(now_ms=now_ms)
        except OSError:
            self._close(connection)
            return
        if connection.out_bytes > self.limits.output_max_bytes:
            logger.warning(
                "connection closed peer=%s waiting_bytes=%d: the client does not read"
                " its answers",
                connection.peer.address,
                connection.out_bytes,
            )
            self._close(connection)
        elif connection.is_closing and not connection.out:
            self._close(connection)
        else:
            if (
                connection.backlog
                and connection.out_bytes <= self.limits.output_pause_bytes
            ):
                self._waiting[connection.peer.number] = connection
            self._watch(connection)

    def _close(self, connection: ClientConnection) -> None:
        if self._forget(connection):
            port = connection.port
            self.drive(port, lambda core: core.closed(connection.peer, self.now()))

    def _forget(self, connection: ClientConnection) -> bool:
        """Close the socket without calling the core. False if it was already closed."""
        number = connection.peer.number
        if self._by_peer.pop(number, None) is None:
            return False
        connection.port.connections.pop(number, None)
        self._dirty.pop(number, None)
        self._waiting.pop(number, None)
        self.input_bytes -= connection.pending_input_bytes
        if connection.mask:
            self._selector.unregister(connection.sock)
            connection.mask = 0
        connection.sock.close()
        return True

    def _sweep(self, now: Now) -> None:
        """Close connections that are idle, or whose clients read no waiting output."""
        limits = self.limits
        for connection in list(self._by_peer.values()):
            if connection.port.is_hung:
                continue
            stalled_ms = now.monotonic_ms - connection.progress_ms
            is_stalled = connection.out and stalled_ms > limits.output_stalled_ms_max
            is_idle = now.monotonic_ms - connection.last_ms > limits.idle_ms_max
            if is_stalled or is_idle:
                self._close(connection)

    def _begin_close(self) -> None:
        self._is_closing = True
