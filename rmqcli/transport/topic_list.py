"""Fetches a name server's list of topics, over one plain socket and in limited time.

This is for shell completion, where loading a client would take longer than the shell
waits: it imports only the standard library. There is no TLS, no retry and no second
name server.

Source: GET_ALL_TOPIC_LIST_FROM_NAMESERVER of DefaultRequestProcessor.
"""

from __future__ import annotations

import json
import socket
import time

_ANSWER_BYTES_MAX = 4 << 20
_GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206


def ask_topic_list(address: str, *, budget_s: float) -> object:
    """Return the topics that the name server at "host:port" reports, not yet checked.

    Raises OSError, ValueError, KeyError or TypeError when there is no usable answer.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + budget_s
    header = {
        "code": _GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        "language": "PYTHON",
        "version": 0,
        "opaque": 1,
        "flag": 0,
        "extFields": {},
    }
    data = json.dumps(header).encode()
    frame = len(data).to_bytes(4, "big") + data
    target = (host.strip("[]"), int(port))
    with socket.create_connection(target, timeout=budget_s) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(_receive(connection, 4, until), "big")
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes")
        answer = _receive(connection, size, until)
    header_bytes = int.from_bytes(answer[1:4], "big")
    if json.loads(answer[4 : 4 + header_bytes])["code"] != 0:
        raise ValueError("refused")
    found: object = json.loads(answer[4 + header_bytes :])["topicList"]
    return found


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return bytes(data)
