"""Open connections that receive and send bytes without blocking; plaintext here.

`WOULD_BLOCK` is a number and not an exception, because every normal read ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

WOULD_BLOCK = -1


class Stream:
    """A connected TCP socket. Methods raise OSError when the connection is lost.

    A read takes whatever was received of a record: the caller has room for a whole one,
    which is 16 KiB in TLS. So a selector sees all that has not been read.
    """

    #: Whether a read that does not fill the buffer has emptied the socket.
    short_read_is_all = True

    def __init__(self, sock: socket.socket) -> None:
        #: for a selector to watch
        self.sock = sock

    def recv_into(self, room: memoryview) -> int:
        """Return the number of bytes received, 0 at the end, or WOULD_BLOCK."""
        try:
            return self.sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def send(self, data: memoryview) -> int:
        """Return the number of bytes that were accepted, or WOULD_BLOCK.

        After WOULD_BLOCK the same data must be passed again.
        """
        try:
            return self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
