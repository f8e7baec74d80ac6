"""A port and its connections: bytes in, bytes out, both bounded.

Decides how much is read and kept; never what is answered. An idle connection holds no
buffer: all read into one of the server's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.wire.frame import Frame, FrameBuffer

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
    """How much memory clients together, and each alone, can make a server use."""

    connections_max: int = 20_000
    #: a client that reads so slowly is answered no more until it has caught up
    output_pause_bytes: int = 4 * 1024 * 1024
    #: and closed with this much: only pushes and answers to held pulls get it there
    output_max_bytes: int = 64 * 1024 * 1024
    #: a client that reads no waiting answer for this long is closed
    output_stalled_ms_max: int = 30_000
    #: incomplete frames of all clients; the client that exceeds it is closed
    input_max_bytes: int = 256 * 1024 * 1024
    #: NettyServerConfig.serverChannelMaxIdleTimeSeconds
    idle_ms_max: int = 120_000


class Core(Protocol):
    """What the server drives: a broker or a name server."""

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Take one command."""

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """A connection is gone."""

    def run_due(self, now: Now) -> list[Effect]:
        """Run the actions that are due."""

    def next_due_ms(self) -> int | None:
        """When something is due (monotonic ms); None: never."""


class Port:
    """A core, where it listens, and how it is treated. Made by `Server.open`."""

    def __init__(self, name: str, host: str, faults: Faults | None) -> None:
        self.name = name
        self.host = host
        self.faults = faults
        #: None while the core is down
        self.core: Core | None = None
        #: the first is the port that is advertised
        self.numbers: list[int] = []
        self.listeners: list[socket.socket] = []
        self.connections: dict[int, Connection] = {}
        #: called once before the answers of a turn go out
        self.flush: Callable[[], None] | None = None
        #: called before other cores and callers see the changes of a turn or a call
        self.settle: Callable[[], None] | None = None
        self.is_hung = False
        self.was_used = False

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return f"{self.host}:{self.numbers[0]}"


class Connection:
    """A socket and what is on its way in and out. For the server's thread."""

    __slots__ = (
        "backlog",
        "held_back",
        "is_closing",
        "last_ms",
        "marks",
        "mask",
        "out",
        "out_bytes",
        "peer",
        "port",
        "progress_ms",
        "rest",
        "sock",
    )

    def __init__(
        self, sock: socket.socket, peer: Peer, port: Port, *, now_ms: int
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.port = port
        #: what the selector watches now
        self.mask = 0
        #: bytes of an incomplete frame; a buffer of its own once there are many
        self.rest: bytes | FrameBuffer = b""
        #: frames that wait until the client has read its answers
        self.backlog: deque[Frame] = deque()
        self.out: deque[bytes | memoryview] = deque()
        self.out_bytes = 0
        self.last_ms = now_ms
        #: when the client last took something, or first left something waiting
        self.progress_ms = now_ms
        self.is_closing = False
        #: opaque -> the fault for the answer
        self.marks: dict[int, Action] = {}
        #: an answer that goes out after the next one
        self.held_back: list[bytes] = []

    @property
    def pending_input_bytes(self) -> int:
        """Bytes of the incomplete frame."""
        rest = self.rest
        return rest.pending_bytes if isinstance(rest, FrameBuffer) else len(rest)

    def receive(self, shared: FrameBuffer) -> list[Frame] | None:
        """Read once; return the frames that are complete, None at the stream's end.

        `shared` is empty before and after. Raises FrameError on what cannot be a frame,
        OSError when the connection is lost.
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
        """Queue one frame."""
        if not self.out:
            self.progress_ms = now_ms
        self.out.append(data)
        self.out_bytes += len(data)
        if self.held_back:
            held, self.held_back = self.held_back, []
            for late in held:
                self.out.append(late)
                self.out_bytes += len(late)

    def send(self, *, now_ms: int) -> None:
        """Send what the socket takes. Raises OSError when the connection is lost."""
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
        """The next bytes to send: many small frames as one."""
        out = self.out
        first = out.popleft()
        if not out or len(first) + len(out[0]) > _JOIN_BYTES:
            return first
        parts, size = [first], len(first)
        while out and size + len(out[0]) <= _JOIN_BYTES:
            parts.append(out.popleft())
            size += len(parts[-1])
        return b"".join(parts)
