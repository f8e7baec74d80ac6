"""Where `get` connects to; tests/cli/test_schema_registry.py has what it reads."""

from __future__ import annotations

import re

import pytest

from rmqcli.errors import BodyError, ConnectError, DeadlineError, DisconnectedError
from rmqcli.testing import ManualClock
from rmqcli.transport.http import get
from tests.transport.peer import Peer, free_port

#: An address of this machine on which nothing listens.
HERE = "127.98.76.54"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"http://{HERE}/subjects", f"{HERE}:80"),
        (f"https://{HERE}/subjects", f"{HERE}:443"),
        (f"https://{HERE}:1/subjects", f"{HERE}:1"),
    ],
)
def test_a_url_without_a_port_has_that_of_its_scheme(url, address):
    with pytest.raises(ConnectError) as caught:
        get(url, headers={}, timeout_ms=60_000, bytes_max=1)
    assert caught.value.address == address
    assert caught.value.message.startswith(f"cannot connect to {address}: ")


def test_an_ipv6_address_in_a_url_has_brackets():
    port = free_port()
    with pytest.raises(ConnectError) as caught:
        get(
            f"http://[::1]:{port}/",
            headers={},
            timeout_ms=60_000,
            bytes_max=1,
        )
    assert caught.value.address == f"[::1]:{port}"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_handshake_that_fails_has_the_reason_of_openssl(answer):
    def script(connection):
        connection.sock.recv(1 << 16)
        connection.send(answer)

    with Peer(script) as peer, pytest.raises(ConnectError) as caught:
        get(f"https://{peer.address}/", headers={}, timeout_ms=60_000, bytes_max=1)
    assert re.fullmatch(
        f"TLS handshake with {peer.address} failed: [A-Z_]{{8,}}", caught.value.message
    )
    assert caught.value.address == peer.address


def ask(peer, path="/", **options):
    options = {"headers": {}, "timeout_ms": 60_000, "bytes_max": 10, **options}
    return get(f"http://{peer.address}{path}", **options)


def answering(data):
    """Return a script that reads a request, sends `data` and closes."""
    return lambda connection: connection.sock.recv(1 << 16) and connection.send(data)


@pytest.mark.parametrize(
    ("url_end", "asked"),
    [
        ("", b"GET / HTTP/1.1"),
        ("/a/b", b"GET /a/b HTTP/1.1"),
        ("?c=d", b"GET /?c=d HTTP/1.1"),
        ("/a?c=d&e", b"GET /a?c=d&e HTTP/1.1"),
    ],
)
def test_the_path_and_the_query_of_a_url_are_asked_for(url_end, asked):
    received = []

    def script(connection):
        received.append(connection.sock.recv(1 << 16))
        connection.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    with Peer(script) as peer:
        answer = ask(peer, url_end, headers={"X-Y": "z"})
        lines = received[0].split(b"\r\n")
    assert answer == (204, b"")
    assert lines[0] == asked
    assert f"Host: {peer.address}".encode() in lines
    assert b"X-Y: z" in lines


@pytest.mark.parametrize("head", [b"", b"Content-Length: %d\r\n"])
def test_a_body_may_have_as_many_bytes_as_allowed_and_no_more(head):
    def peer_of(size):
        length = head % size if head else b""
        return Peer(answering(b"HTTP/1.1 200 OK\r\n%s\r\n" % length + b"x" * size))

    with peer_of(10) as peer:
        assert ask(peer) == (200, b"x" * 10)
    with peer_of(11) as peer, pytest.raises(BodyError) as caught:
        ask(peer)
    assert caught.value.message == (
        f"the answer of {peer.address} is larger than 10 bytes"
    )


def test_a_whole_answer_has_64_kib_of_room_besides_its_body():
    head = b"HTTP/1.1 200 OK\r\n"
    # http.client allows at most 64 KiB for a line and 100 headers.
    padding = [b"X-Y: " + b"z" * 993 + b"\r\n"] * 65
    rest = (64 << 10) - len(head) - len(b"".join(padding)) - 2
    padding.append(b"X-Z: " + b"z" * (rest - 7) + b"\r\n")
    data = head + b"".join(padding) + b"\r\n" + b"x" * 10
    assert len(data) == (64 << 10) + 10
    with Peer(answering(data)) as peer:
        assert ask(peer) == (200, b"x" * 10)
    longer = head + b"X-A: b\r\n" + data.removeprefix(head)
    with Peer(answering(longer)) as peer, pytest.raises(BodyError):
        ask(peer)


def test_a_body_shorter_than_announced_is_no_answer():
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxy"
    with Peer(answering(data)) as peer, pytest.raises(DisconnectedError) as caught:
        ask(peer)
    assert caught.value.message == (
        f"no answer of HTTP from {peer.address}: IncompleteRead"
    )
    assert caught.value.address == peer.address


def test_a_connection_that_is_reset_has_the_reason_of_the_system():
    def script(connection):
        connection.sock.recv(1 << 16)
        connection.reset()

    with Peer(script) as peer, pytest.raises(DisconnectedError) as caught:
        ask(peer)
    assert caught.value.message == (
        f"no answer of HTTP from {peer.address}: Connection reset by peer"
    )
    assert caught.value.address == peer.address


def test_an_answer_that_comes_after_the_time_is_not_read():
    """Each byte comes at once, and the time is over before the second one is read."""
    clock = ManualClock()

    def script(connection):
        connection.sock.recv(1 << 16)
        clock.advance(1_000)
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n")

    with Peer(script) as peer, pytest.raises(DeadlineError) as caught:
        ask(peer, timeout_ms=1_000, clock=clock)
    assert caught.value.message == f"no answer from {peer.address} in 1000 ms"
    assert caught.value.address == peer.address
