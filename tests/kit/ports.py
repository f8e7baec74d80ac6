"""Hands out blocks of free ports on 127.0.0.1 that no other test process holds.

Blocks lie below the system's ephemeral range: any outgoing connection may take a port
of that range between the choice and the bind. A block is held by a file lock, which the
system releases when the holder ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

import pytest

BLOCK_PORTS = 16
_FIRST_PORT = 12_000
_END_PORT = 32_000


class PortBlock:
    """Ports `first` to `first + BLOCK_PORTS - 1`, held until `close()`."""

    def __init__(self) -> None:
        self.first, self._lock = _claim()

    def close(self) -> None:
        """Give the block back. Idempotent."""
        self._lock.close()


def _claim() -> tuple[int, IO[str]]:
    folder = Path(tempfile.gettempdir()) / f"rmqcli-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    blocks = (_END_PORT - _FIRST_PORT) // BLOCK_PORTS
    # Spread over the range by process, so that a port whose last owner has just
    # stopped is not the first one tried again.
    start = os.getpid() % blocks
    for number in range(blocks):
        first = _FIRST_PORT + (start + number) % blocks * BLOCK_PORTS
        lock = (folder / f"{first}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if all(_is_free(port) for port in range(first, first + BLOCK_PORTS)):
            return first, lock
        lock.close()
    raise OSError(errno.EADDRINUSE, f"no {BLOCK_PORTS} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Bind as Java does. The wildcard address also conflicts with a listener on any
        # single address.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def need_ipv6() -> None:
    """Skip the test on a machine without IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
