"""Scripted peers: real sockets on 127.0.0.1 that answer as a test wants.

A script is a function that runs in a separate thread for each accepted connection.
Scripts end when the test closes the peer, because this shuts down their sockets.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

from rmqcli.wire.command import (
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rmqcli.wire.frame import FrameBuffer
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator


class PeerConnection:
    """One accepted connection, as a script sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._frames = FrameBuffer()
        self._commands: list[RemotingCommand] = []

    def read(self) -> RemotingCommand:
        """Read the next request. Raises EOFError when the client has disconnected."""
        while not self._commands:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._commands += map(decode_command, self._frames.feed(data))
        return self._commands.pop(0)

    def requests(self) -> Iterator[RemotingCommand]:
        """Yield all requests until the client disconnects."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.read()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, request: RemotingCommand, **fields: object) -> None:
        self.send(encode_command(answer_to(request, **fields)))

    def until_closed(self) -> bytes:
        """Read until the client closes the connection; return the bytes."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := self.sock.recv(1 << 16):
                received += data
        return received

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.sock.close()


def answer_to(request: RemotingCommand, **fields: object) -> RemotingCommand:
    """Return an answer with the request's fields and body; `fields` override them."""
    values = {
        "code": 0,
        "opaque": request.opaque,
        "flag": RESPONSE_FLAG,
        "ext_fields": request.ext_fields,
        "body": request.body,
        **fields,
    }
    return RemotingCommand(**values)  # type: ignore[arg-type]  # a test's own words


def echo(connection: PeerConnection) -> None:
    """Answer every request with its own fields and body."""
    for request in connection.requests():
        if not request.is_oneway:
            connection.answer(request)


def silent(connection: PeerConnection) -> None:
    """Read everything and answer nothing."""
    connection.until_closed()


class Peer:
    """A listening socket and the threads of its scripts."""

    def __init__(
        self,
        script: Callable[[PeerConnection], None] = echo,
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._script = script
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.accepted = 0
        self.errors: list[BaseException] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="peer-accept")]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end all scripts; raise the first error of a script."""
        _shut(self._listener)
        self._threads[0].join(PATIENCE_S)
        for sock in self._sockets:
            _shut(sock)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._listener.close()
        if self.errors:
            raise self.errors[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._run, args=(sock,), name="peer")
            self._threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_S)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            self._script(PeerConnection(sock))
        except (OSError, EOFError):
            pass  # the test closed the peer or the client disconnected, as expected
        except BaseException as error:  # noqa: BLE001  # raised again by close()
            self.errors.append(error)
        finally:
            sock.close()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    """Return a port without a listener, below the range of ephemeral ports."""
    for port in range(21_000, 31_000):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
