"""One attempt to reach a peer: every resolved endpoint in turn, then TLS.

Never blocks and never waits: the owner watches `watched` for `events`, calls `step`
when they occur and `time_out` at `due_ms`. Ends with a Stream or a ConnectError.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConnectError
from rmqcli.transport.stream import Stream

if TYPE_CHECKING:
    from rmqcli.transport.address import Address, Endpoint
    from rmqcli.transport.tls_stream import TlsDialer, TlsStream


@dataclass(slots=True, eq=False)
class Dial:
    """An attempt under way. The caller owns the socket of the Stream that it gets."""

    address: Address
    tls: TlsDialer | None
    timeout_ms: int
    events: int = 0
    due_ms: int = 0
    _endpoints: list[Endpoint] = field(default_factory=list)
    #: IP address of the endpoint that is being tried
    _where: str = ""
    #: reason and IP address of each endpoint that failed
    _failures: list[tuple[str, str]] = field(default_factory=list)
    _handshake: TlsStream | None = None
    _deadline_ms: int = 0
    _sock: socket.socket | None = None

    @property
    def watched(self) -> socket.socket:
        """The socket to watch for `events`, between `start` and the end."""
        if self._sock is None:
            raise RuntimeError(f"no attempt to reach {self.address} is under way")
        return self._sock

    def start(self, endpoints: list[Endpoint], now_ms: int) -> Stream | None:
        """Begin with the first endpoint. Returns and raises as `step` does."""
        self._endpoints = list(endpoints)
        self._deadline_ms = now_ms + self.timeout_ms
        return self._next_endpoint(now_ms)

    def step(self, now_ms: int) -> Stream | None:
        """Continue after an event; return the open stream, or None to wait for more.

        Raises ConnectError when no endpoint is left, or TLS fails.
        """
        if self._handshake is not None:
            return self._shake_hands(self._handshake)
        code = self.watched.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return self._connected(now_ms) if code == 0 else self._failed(code, now_ms)

    def time_out(self, now_ms: int) -> Stream | None:
        """Give up the current endpoint. Returns and raises as `step` does."""
        if self._handshake is not None:
            self.abandon()
            raise ConnectError(
                f"TLS handshake with {self.address} timed out after"
                f" {self.timeout_ms} ms",
                address=self.address.text,
            )
        return self._failed(errno.ETIMEDOUT, now_ms)

    def abandon(self) -> None:
        """Close the socket, if one is open."""
        if self._handshake is not None:
            self._handshake.close()
        elif self._sock is not None:
            self._sock.close()
        self._handshake = self._sock = None

    def _next_endpoint(self, now_ms: int) -> Stream | None:
        if not self._endpoints:
            raise self._error()
        left_ms = max(1, self._deadline_ms - now_ms)
        # A silent first endpoint must not use up the time of the others.
        self.due_ms = now_ms + max(1, left_ms // len(self._endpoints))
        family, sockaddr = self._endpoints.pop(0)
        self._where = sockaddr[0]
        try:
            self._sock = socket.socket(family, socket.SOCK_STREAM)
            self._sock.setblocking(False)
            code = self._sock.connect_ex(sockaddr)
        except OSError as error:  # no such family here, or no file descriptors left
            return self._failed(error.errno or errno.EIO, now_ms)
        if code not in (0, errno.EINPROGRESS):
            return self._failed(code, now_ms)
        self.events = selectors.EVENT_WRITE  # at once if it is connected already
        return None

    def _failed(self, code: int, now_ms: int) -> Stream | None:
        self.abandon()
        reason = "timed out" if code == errno.ETIMEDOUT else os.strerror(code).lower()
        self._failures.append((reason, self._where))
        return self._next_endpoint(now_ms)

    def _connected(self, now_ms: int) -> Stream | None:
        sock = self.watched
        try:
            reached_itself = sock.getsockname() == sock.getpeername()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:  # the peer has already reset it
            return self._failed(error.errno or errno.ECONNRESET, now_ms)
        if reached_itself:
            # Without a listener, a connection to a local port can reach itself.
            return self._failed(errno.ECONNREFUSED, now_ms)
        if self.tls is None:
            self._sock = None
            return Stream(sock)
        self.due_ms = self._deadline_ms
        self._sock = None  # the TLS stream owns it from here, also when this raises
        self._handshake = self.tls.open(sock, self.address)
        self._sock = self._handshake.sock
        return self._shake_hands(self._handshake)

    def _shake_hands(self, stream: TlsStream) -> Stream | None:
        from rmqcli.transport.tls_stream import handshake_error

        try:
            self.events = stream.handshake()
        except OSError as error:
            self.abandon()
            raise handshake_error(self.address, error) from error
        if self.events:
            return None
        self._handshake = self._sock = None
        return stream

    def _error(self) -> ConnectError:
        reasons = {reason for reason, _ in self._failures}
        if len(reasons) == 1:
            (text,) = reasons
        else:
            text = ", ".join(f"{reason} ({where})" for reason, where in self._failures)
        if text == "timed out":
            text = f"no answer in {self.timeout_ms} ms"
        return ConnectError(
            f"cannot connect to {self.address}: {text}", address=self.address.text
        )
