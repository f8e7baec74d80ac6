"""An open connection as bytes in and out, never blocking; plaintext here.

`WOULD_BLOCK` is a number, not an exception: it is the end of every healthy read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket

WOULD_BLOCK = -1


class Stream(Protocol):
    """Plaintext or TLS. Both raise OSError when the connection is lost."""

    @property
    def sock(self) -> socket.socket:
        """What a selector watches."""

    @property
    def short_read_is_all(self) -> bool:
        """Whether a read that leaves room has emptied the socket."""

    @property
    def more_at_once(self) -> bool:
        """Whether bytes are here that a selector cannot see."""

    def recv_into(self, room: memoryview) -> int:
        """Bytes received, 0 at the end of the stream, or WOULD_BLOCK."""

    def send(self, data: memoryview) -> int:
        """Bytes taken, or WOULD_BLOCK: then the same data must be offered again."""

    def close(self) -> None:
        """Give the socket back."""


class PlainStream:
    """A connected TCP socket."""

    short_read_is_all = True
    more_at_once = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def recv_into(self, room: memoryview) -> int:
        try:
            return self.sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def send(self, data: memoryview) -> int:
        try:
            return self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def close(self) -> None:
        self.sock.close()
