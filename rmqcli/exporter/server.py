"""A small HTTP server for scrapes: one thread, bounded connections, GET and HEAD.

Each connection sends one request and gets one answer. Nothing that a peer does costs
more than its own connection: heads, connections and times have limits.
"""

from __future__ import annotations

import contextlib
import errno
import http
import selectors
import socket
import threading
import zlib
from typing import TYPE_CHECKING, Final, Self

from rmqcli.errors import ConnectError
from rmqcli.exporter.site import accepts_gzip, text_answer
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.exporter.site import MetricsSite, SiteAnswer

logger = get_logger(__name__)

_HEAD_MAX: Final = 16 * 1024
_CONNECTIONS_MAX: Final = 64
#: A connection is closed after this long, whatever it does.
_LIFE_MS: Final = 60_000
_SENT_AT_ONCE: Final = 256 * 1024
#: So many pieces of one answer are sent before other connections are looked at.
_PIECES_MAX: Final = 16
_END_OF_HEAD: Final = b"\r\n\r\n"
_GZIP: Final = 31  # wbits of zlib for the format of gzip


def open_site(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises ConnectError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        listener = socket.create_server((host, port), family=family)
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


class MetricsServer:
    """Serves a site in a thread of its own. Use it in a `with` block."""

    def __init__(
        self, listener: socket.socket, site: MetricsSite, clock: Clock
    ) -> None:
        self._listener = listener
        self._site = site
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._connections: set[_HttpConnection] = set()
        self._is_listening = False
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="rmq-exporter", daemon=True
        )

    @property
    def address(self) -> str:
        """Where it listens, as `host:port`."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and the socket that listens. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.close()
        if self._thread.is_alive():
            self._thread.join()
        for connection in list(self._connections):
            connection.sock.close()
        for sock in (self._woken, self._listener):
            sock.close()
        self._selector.close()

    def _run(self) -> None:
        self._selector.register(self._woken, selectors.EVENT_READ)
        while not self._is_closed:
            self._listen_if_there_is_room()
            for key, _ in self._selector.select(self._wait_s()):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _HttpConnection):
                    self._serve(key.data)
            self._close_old()

    def _listen_if_there_is_room(self) -> None:
        has_room = len(self._connections) < _CONNECTIONS_MAX
        if has_room and not self._is_listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._is_listening and not has_room:
            self._selector.unregister(self._listener)
        self._is_listening = has_room

    def _wait_s(self) -> float | None:
        if not self._connections:
            return None
        oldest_ms = min(each.since_ms for each in self._connections)
        return max(0, oldest_ms + _LIFE_MS - self._clock.monotonic_ms()) / 1000

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            logger.debug("a connection was not accepted: %s", error)
            return
        sock.setblocking(False)
        connection = _HttpConnection(sock, self._clock.monotonic_ms())
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _serve(self, connection: _HttpConnection) -> None:
        """Read or write what can be; close the connection when it is done."""
        try:
            if not connection.is_answered:
                if not connection.read_head():
                    return
                answer = connection.answer(self._site)
                connection.begin(answer)
                self._selector.modify(
                    connection.sock, selectors.EVENT_WRITE, connection
                )
            if connection.write():
                self._close(connection)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            logger.debug("connection closed: %s", error)
            self._close(connection)

    def _close_old(self) -> None:
        before_ms = self._clock.monotonic_ms() - _LIFE_MS
        for connection in list(self._connections):
            if connection.since_ms <= before_ms:
                self._close(connection)

    def _close(self, connection: _HttpConnection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()


class _HttpConnection:
    """One connection: its request as far as it came, and what is still to be sent."""

    def __init__(self, sock: socket.socket, since_ms: int) -> None:
        self.sock = sock
        self.since_ms = since_ms
        self.is_answered = False
        self._head = bytearray()
        self._accepts_gzip = False
        self._is_head = False
        #: what is sent next, and what is to be inflated after it
        self._piece = memoryview(b"")
        self._rest = b""
        self._inflater = zlib.decompressobj(_GZIP)

    def read_head(self) -> bool:
        """Read on; return whether the head of the request is complete, or too long.

        Raises OSError if the peer has closed the connection, or nothing is there.
        """
        data = self.sock.recv(_HEAD_MAX)
        if not data:
            raise ConnectionResetError("closed by the peer")
        self._head += data
        return _END_OF_HEAD in self._head or len(self._head) > _HEAD_MAX

    def answer(self, site: MetricsSite) -> SiteAnswer:
        """Return the answer to the request."""
        end = self._head.find(_END_OF_HEAD)
        if not 0 <= end <= _HEAD_MAX:
            return text_answer(431, b"the head of the request is too long\n")
        first, *lines = self._head[:end].decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_answer(400, b"this is not a request of HTTP/1.1\n")
        if words[0] not in ("GET", "HEAD"):
            return text_answer(405, b"only GET and HEAD are allowed\n")
        self._is_head = words[0] == "HEAD"
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        self._accepts_gzip = accepts_gzip(headers.get("accept-encoding", ""))
        return site.answer(words[1], headers.get("accept", ""))

    def begin(self, answer: SiteAnswer) -> None:
        """Prepare to send an answer."""
        self.is_answered = True
        sends_gzip = answer.is_gzip and self._accepts_gzip
        lines = [
            f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.data) if sends_gzip else answer.size}",
            "Connection: close",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
        ]
        if answer.is_gzip:
            lines.append("Vary: Accept, Accept-Encoding")
        if sends_gzip:
            lines.append("Content-Encoding: gzip")
        if answer.status == 405:
            lines.append("Allow: GET, HEAD")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if self._is_head:
            self._piece = memoryview(head)
        elif answer.is_gzip and not sends_gzip:
            self._piece, self._rest = memoryview(head), answer.data
        else:
            self._piece = memoryview(head + answer.data)

    def write(self) -> bool:
        """Send what the socket takes; return whether that was all."""
        for _ in range(_PIECES_MAX):
            if not self._piece:
                if not self._rest:
                    with contextlib.suppress(OSError):
                        self.sock.shutdown(socket.SHUT_WR)
                    return True
                data = self._inflater.decompress(self._rest, _SENT_AT_ONCE)
                self._rest = self._inflater.unconsumed_tail
                self._piece = memoryview(data)
                continue
            self._piece = self._piece[self.sock.send(self._piece[:_SENT_AT_ONCE]) :]
        return False
