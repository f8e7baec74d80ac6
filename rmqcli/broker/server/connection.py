"""A port and its connections: bytes in and bytes out, both bounded.

Decides how much is read and kept, but never what is answered. An idle connection has no
buffer: all connections read into one buffer of the server.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.dataclass import dataclass
from rmqcli.wire.frame import Frame, FrameBuffer
from rmqcli.wire.version import V5_5_0

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.faults import Action, Faults
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand

READ_BYTES: Final = 128 * 1024
_OWN_BUFFER_FROM_BYTES: Final = 32 * 1024
_JOIN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of the memory that each client, and all together, make a server use."""

    connections_max: int = 20_000
    #: while more output than this waits for a client, its requests are not handled
    output_pause_bytes: int = 4 * 1024 * 1024
    #: a client with more waiting output than this is closed; only pushes and answers to
    #: held pulls can add so much
    output_max_bytes: int = 64 * 1024 * 1024
    #: a client that reads none of its waiting output for this long is closed
    output_stalled_ms_max: int = 30_000
    #: for incomplete frames of all clients; the client that exceeds it is closed
    input_max_bytes: int = 256 * 1024 * 1024
    #: NettyServerConfig.serverChannelMaxIdleTimeSeconds
    idle_ms_max: int = 120_000


class Core(Protocol):
    """What the server drives: a broker or a name server."""

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Process one command."""

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """Forget what belongs to a connection that has closed."""

    def run_due(self, now: Now) -> list[Effect]:
        """Run due timers."""

    def next_due_ms(self) -> int | None:
        """When the next timer is due (monotonic ms); None if there is none."""


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Port:
    """A core with its listeners, connections and faults. Created by `Server.open`."""

    def __init__(self, name: str, host: str, faults: Faults | None) -> None:
        self.name = name
        self.host = host
        self.faults = faults
        #: None while the core is down
        self.core: Core | None = None
        #: port numbers; the first one is advertised
        self.numbers: list[int] = []
        self.listeners: list[socket.socket] = []
        self.connections: dict[int, ClientConnection] = {}
        #: called once per turn, before its answers are sent
        self.flush: Callable[[], None] | None = None
        #: called before other cores and callers see the changes of a turn or a call
        self.settle: Callable[[], None] | None = None
        #: what the server's own answers, such as those of faults, have in their headers
        self.version = V5_5_0
        self.is_hung = False
        self.was_used = False

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return host_port(self.host, self.numbers[0])


@dataclass(slots=True, eq=False)
class ClientConnection:
    """A socket with its input and output. Use it only in the server's thread."""

    sock: socket.socket
    peer: Peer
    port: Port
    last_ms: int
    #: when the socket last took output, or when output began to wait
    progress_ms: int
    #: the events that the selector watches now
    mask: int = 0
    #: an incomplete frame: its bytes, or a separate buffer if it is large
    rest: bytes | FrameBuffer = b""
    #: frames that wait until the client has read its answers
    backlog: deque[Frame] = field(default_factory=deque)
    out: deque[bytes | memoryview] = field(default_factory=deque)
    out_bytes: int = 0
    is_closing: bool = False
    #: opaque -> the fault to apply to the answer
    marks: dict[int, Action] = field(default_factory=dict)
    #: answers that go out after the next one
    held_back: list[bytes] = field(default_factory=list)

    @property
    def pending_input_bytes(self) -> int:
        """Number of bytes of the incomplete frame."""
        rest = self.rest
        return rest.pending_bytes if isinstance(rest, FrameBuffer) else len(rest)

    def receive(self, shared: FrameBuffer) -> list[Frame] | None:
        """Read once; return the complete frames, or None at the end of the stream.

        `shared` must be empty, and is left empty except after an error. Raises
        FrameError for bytes that cannot be a frame, and OSError when the connection is
        lost.
        """
        rest = self.rest
        if isinstance(rest, FrameBuffer):
            buffer = rest
        else:
            buffer = shared
            if rest:
                buffer.feed(rest)
                self.rest = b""
        room = buffer.writable()
        try:
            count = self.sock.recv_into(room, min(len(room), READ_BYTES))
        except (BlockingIOError, InterruptedError):
            room.release()
            self._keep(buffer)
            return []
        finally:
            room.release()
        if not count:
            shared.take_pending()
            return None
        frames = buffer.wrote(count)
        if buffer.pending_bytes or buffer is not shared:
            self._keep(buffer)
        return frames

    def _keep(self, buffer: FrameBuffer) -> None:
        size = buffer.pending_bytes
        if size < _OWN_BUFFER_FROM_BYTES:
            self.rest = buffer.take_pending()
        elif buffer is not self.rest:
            own = FrameBuffer()
            own.feed(buffer.take_pending())
            self.rest = own

    def write(self, data: bytes, *, now_ms: int) -> None:
        """Queue one frame, and after it those that were held back for it."""
        if not self.out:
            self.progress_ms = now_ms
        frames, self.held_back = [data, *self.held_back], []
        for frame in frames:
            self.out.append(frame)
            self.out_bytes += len(frame)

    def send(self, *, now_ms: int) -> None:
        """Send what the socket accepts. Raises OSError when the connection is lost."""
        out = self.out
        while out:
            data = self._next_bytes()
            try:
                sent = self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                out.appendleft(data)
                return
            self.out_bytes -= sent
            self.progress_ms = self.last_ms = now_ms
            if sent < len(data):
                out.appendleft(memoryview(data)[sent:])
                return

    def _next_bytes(self) -> bytes | memoryview:
        """Return the next bytes to send; small frames are joined."""
        out = self.out
        first = out.popleft()
        if not out or len(first) + len(out[0]) > _JOIN_BYTES:
            return first
        parts, size = [first], len(first)
        while out and size + len(out[0]) <= _JOIN_BYTES:
            parts.append(out.popleft())
            size += len(parts[-1])
        return b"".join(parts)
