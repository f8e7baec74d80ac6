"""Sends remoting requests, with a JSON header, and returns their answers.

The code is independent of `rmqcli` on purpose: what the tests check the package with
must not share its mistakes. Source: RemotingCommand in apache/rocketmq.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

Claim = Callable[[], bool]

UPDATE_AND_CREATE_TOPIC = 17
UPDATE_BROKER_CONFIG = 25
GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
DELETE_TOPIC_IN_BROKER = 215
AUTH_CREATE_USER = 3001
AUTH_CREATE_ACL = 3006


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; `code` 0 is success."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes


class Link:
    """A connection on which requests are sent one after the other."""

    def __init__(self, address: str, *, timeout_ms: int = 15_000) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_ms / 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(
        self, code: int, ext_fields: dict[str, str] | None = None, *, body: bytes = b""
    ) -> Answer:
        """Send one request and return its answer. Raises OSError without an answer."""
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": 409,
                "opaque": 1,
                "flag": 0,
                "extFields": ext_fields or {},
            }
        ).encode()
        length = 4 + len(header) + len(body)
        self._socket.sendall(struct.pack(">ii", length, len(header)) + header + body)
        length, header_bytes = struct.unpack(">ii", _read(self._socket, 8))
        rest = _read(self._socket, length - 4)
        answer = json.loads(rest[: header_bytes & 0xFFFFFF])
        return Answer(
            code=answer["code"],
            remark=answer.get("remark"),
            ext_fields=answer.get("extFields") or {},
            body=rest[header_bytes & 0xFFFFFF :],
        )


def ask(
    address: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    *,
    body: bytes = b"",
    timeout_ms: int = 15_000,
) -> Answer:
    """Send one request and return its answer. Raises OSError without an answer."""
    with Link(address, timeout_ms=timeout_ms) as link:
        return link.ask(code, ext_fields, body=body)


def accepts(address: str, *, timeout_ms: int = 1000) -> bool:
    """Return True if a server accepts connections. Raises OSError if not."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout_ms / 1000):
        return True


def wait_until(claim: Claim, *, timeout_ms: int, what: Callable[[], str]) -> None:
    """Call `claim` until it returns True; an OSError counts as False.

    Raises TimeoutError with `what()` when the time is over.
    """
    end = time.monotonic() + timeout_ms / 1000
    last = ""
    while time.monotonic() < end:
        try:
            if claim():
                return
        except OSError as error:
            last = f" (last: {error})"
        time.sleep(0.05)
    raise TimeoutError(f"not within {timeout_ms} ms: {what()}{last}")


def _read(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionResetError(
                f"closed after {len(parts)} of {count} bytes of an answer"
            )
        parts += part
    return bytes(parts)
