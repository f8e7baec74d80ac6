"""Listening sockets: opened with errors that say what to do, and accepted from."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from rmqcli.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BACKLOG = 1024
_ACCEPTED_AT_ONCE_MAX = 256


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket, not blocking. Raises ConnectError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"cannot listen on {address}: the port is taken"
            hint = "stop what listens there, or choose another port with --listen"
        else:
            reason = (error.strerror or str(error)).lower()
            what, hint = f"cannot listen on {address}: {reason}", ""
        raise ConnectError(what, address=address, hint=hint) from error
    listener.setblocking(False)
    return listener


def accept_all(listener: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """The connections that wait, with their peers' `ip:port`; some of many.

    Raises OSError when none can be taken for now: no file is left.
    """
    for _ in range(_ACCEPTED_AT_ONCE_MAX):
        try:
            sock, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield sock, f"{host}:{address[1]}"
