"""One GET over HTTP or HTTPS, with an end to its time and to its bytes.

The time is for everything together: a server that sends a byte now and then does not
prolong it. Nothing is followed, tried again or kept: the caller gets redirects as they
are. Proxies of the environment are not used.
"""

from __future__ import annotations

import io
import re
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from rmqcli.clock import SYSTEM_CLOCK, Clock, Deadline
from rmqcli.errors import BodyError, ConnectError, DeadlineError, DisconnectedError
from rmqcli.transport.address import Address, parse_address
from rmqcli.transport.lookups import look_up_within

if TYPE_CHECKING:
    from collections.abc import Mapping


#: What an answer may have besides its body: headers, chunks.
_HEAD_BYTES_MAX: Final = 64 << 10
#: Statuses such as 50001 and 40101, with which RocketMQ's schema registry answers.
_LONG_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{5})[ \r\n]")


class HttpAnswer(NamedTuple):
    """The status and the body of an answer; the status has three or five digits."""

    status: int
    body: bytes


def get(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_ms: int,
    bytes_max: int,
    clock: Clock = SYSTEM_CLOCK,
) -> HttpAnswer:
    """Ask for a URL of http or https. Blocks for at most about `timeout_ms`.

    Raises ConnectError, DeadlineError, DisconnectedError for what is not an answer of
    HTTP, and BodyError for a body of more than `bytes_max` bytes.
    """
    import http.client  # takes 20 ms

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    address = parse_address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    deadline = Deadline(clock, timeout_ms)
    path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
    try:
        sock = _connect(address, deadline, timeout_ms)
        try:
            if parts.scheme == "https":
                sock = _secure(sock, host, address, deadline)
            connection = http.client.HTTPConnection(host, port)
            limited = _Limited(sock, deadline, bytes_max + _HEAD_BYTES_MAX)
            connection.sock = cast("socket.socket", limited)
            connection.request("GET", path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(bytes_max + 1)
            if len(body) > bytes_max:
                raise _TooLargeError
            if response.length and response.length > 0:
                raise http.client.IncompleteRead(body, response.length)
            return HttpAnswer(limited.long_status or response.status, body)
        finally:
            sock.close()
    except _TooLargeError:
        raise BodyError(
            f"the answer of {address} is larger than {bytes_max:,} bytes"
        ) from None
    except ConnectError:
        raise
    except TimeoutError:
        raise DeadlineError(
            f"no answer from {address} in {timeout_ms} ms", address=address.text
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DisconnectedError(
            f"no answer of HTTP from {address}: {reason}", address=address.text
        ) from None


def _connect(address: Address, deadline: Deadline, timeout_ms: int) -> socket.socket:
    endpoints = look_up_within(address, deadline.left_ms())
    reason = ""
    for at, (family, sockaddr) in enumerate(endpoints):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A silent first endpoint must not use up the time of the others.
            left_ms = deadline.left_ms() // (len(endpoints) - at)
            sock.settimeout(max(1, left_ms) / 1000)
            sock.connect(sockaddr)
        except TimeoutError:
            reason = f"no answer in {timeout_ms} ms"
            sock.close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            sock.close()
        except BaseException:  # an interrupt
            sock.close()
            raise
        else:
            return sock
    raise ConnectError(f"cannot connect to {address}: {reason}", address=address.text)


def _secure(
    sock: socket.socket, host: str, address: Address, deadline: Deadline
) -> socket.socket:
    """Return the socket with TLS. The handshake is limited by the socket's timeout."""
    import ssl  # takes 10 ms

    sock.settimeout(max(1, deadline.left_ms()) / 1000)
    try:
        return ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise ConnectError(
            f"TLS handshake with {address} failed: {reason}", address=address.text
        ) from None


class _TooLargeError(Exception):
    """The answer has more bytes than are allowed."""


class _AnswerReader(io.BufferedReader):
    """Reads an answer, and shows `http.client` 500 for a status of five digits.

    `http.client` takes an answer with such a status for no answer of HTTP.
    """

    long_status: int | None = None
    _is_at_start = True

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if self._is_at_start and (found := _LONG_STATUS.match(line)):
            self.long_status = int(found[1])
            line = b"HTTP/1.1 500 \r\n"
        self._is_at_start = False
        return line


class _Limited(io.RawIOBase):
    """A socket for `http.client`, with an end to its time and its bytes, and its file.

    `http.client` closes the socket as soon as it has the file, so `get` does that.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline, room: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._room = room
        self._reader: _AnswerReader | None = None

    @property
    def long_status(self) -> int | None:
        """The status of the answer if it has five digits."""
        return None if self._reader is None else self._reader.long_status

    def sendall(self, data: bytes) -> None:
        _wait(self._sock, self._deadline)
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._reader = _AnswerReader(self)
        return self._reader

    def close(self) -> None:
        """Keep the socket open for the file."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # a memoryview
        _wait(self._sock, self._deadline)
        count = self._sock.recv_into(buffer)
        self._room -= count
        if self._room < 0:
            raise _TooLargeError
        return count


def _wait(sock: socket.socket, deadline: Deadline) -> None:
    """Let the next call of the socket wait until the deadline at most."""
    left_ms = deadline.left_ms()
    if left_ms <= 0:
        raise TimeoutError
    sock.settimeout(left_ms / 1000)
