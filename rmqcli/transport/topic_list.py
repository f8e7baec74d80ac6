"""Fetches a name server's topics or brokers, over one plain socket, in limited time.

This is for shell completion, where loading a client would take longer than the shell
waits: it imports only the standard library. There is no TLS, no retry and no second
name server.

Source: GET_ALL_TOPIC_LIST_FROM_NAMESERVER and GET_BROKER_CLUSTER_INFO of
DefaultRequestProcessor.
"""

from __future__ import annotations

import json
import re
import socket
import time

_ANSWER_BYTES_MAX = 4 << 20
_GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
_GET_BROKER_CLUSTER_INFO = 106
#: Brokers' ids are keys without quotes there, which is not JSON.
_BROKER_NAME = re.compile(rb'"brokerName"\s*:\s*"([^"\\]{1,255})"')


def ask_topic_list(address: str, *, budget_s: float) -> object:
    """Return the topics that the name server at "host:port" reports, not yet checked.

    Raises OSError, ValueError, KeyError or TypeError when there is no usable answer.
    """
    body = _ask(address, _GET_ALL_TOPIC_LIST_FROM_NAMESERVER, budget_s)
    found: object = json.loads(body)["topicList"]
    return found


def ask_broker_names(address: str, *, budget_s: float) -> object:
    """Return the names of the brokers that the name server reports, not yet checked.

    Raises OSError, ValueError, KeyError or TypeError when there is no usable answer.
    """
    body = _ask(address, _GET_BROKER_CLUSTER_INFO, budget_s)
    if b'"brokerAddrTable"' not in body:
        raise ValueError("an answer without brokers")
    return [name.decode() for name in _BROKER_NAME.findall(body)]


def _ask(address: str, code: int, budget_s: float) -> bytes:
    """Send a request without fields, and return the body of the answer."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + budget_s
    header = {
        "code": code,
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
    return answer[4 + header_bytes :]


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
