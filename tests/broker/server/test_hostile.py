"""A well-behaved client is served beside thousands of hostile connections."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from pathlib import Path

import pytest

from rmqcli.broker.server.server import Server
from rmqcli.wire.command import RemotingCommand, encode_command
from tests.broker.server.echo_core import BIG, ECHO, EchoCore
from tests.broker.wire_client import WireClient

OPEN_AT_ONCE = 300


def rss_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def hostile_bytes(rng):
    """Bytes that a client should not send."""
    frame = encode_command(RemotingCommand(ECHO, ext_fields={"a": "b"}, body=b"x" * 99))
    big = encode_command(RemotingCommand(BIG, ext_fields={"bytes": "1000000"}))
    return rng.choice(
        [
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            rng.randbytes(rng.randrange(1, 300)),
            frame[: rng.randrange(1, len(frame))],
            struct.pack(">iI", 16 * 1024 * 1024 + 1, 7),
            struct.pack(">iI", 16 * 1024 * 1024 - 4, 7) + rng.randbytes(60_000),
            frame[:30] + rng.randbytes(len(frame) - 30),
            big * 10,  # by a client that never reads
        ]
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    ("connections", "warm_up"),
    [(1_500, 600), pytest.param(10_000, 2_000, marks=pytest.mark.slow)],
)
def test_a_client_is_served_beside_hostile_connections(connections, warm_up):
    rng = random.Random(4)
    server = Server()
    port = server.open("broker-a", host="127.0.0.1", port=0)
    port.core = EchoCore()
    server.start()
    hostile: list[socket.socket] = []
    try:
        with WireClient(port.address) as client:
            client.ask(ECHO)
            after_warm_up = 0.0
            for number in range(connections):
                sock = socket.create_connection(("127.0.0.1", port.numbers[0]), 10)
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    sock.send(hostile_bytes(rng))
                hostile.append(sock)
                if len(hostile) > OPEN_AT_ONCE:
                    hostile.pop(rng.randrange(len(hostile))).close()
                if number % 100 == 0:
                    assert client.ask(ECHO, body=b"still here").body == b"still here"
                if number == warm_up:
                    after_warm_up = rss_mib()
            assert rss_mib() - after_warm_up < 60
        for sock in hostile:
            sock.close()
    finally:
        server.close()
    assert server.input_bytes == 0
