"""Connections use memory only while they receive, and closed ones use none."""

from __future__ import annotations

import gc
import os
import socket
import threading
import tracemalloc
from contextlib import ExitStack

import pytest

from rmqcli.errors import DisconnectedError
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.frame import FrameBuffer
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import (
    Peer,
    PeerConnection,
    answer_to,
    silent,
)

PULL = RemotingCommand(11, ext_fields={"topic": "T"}, body=b"body")
KIB = 1024


@pytest.fixture
def traced():
    """A function that returns how many bytes allocated by the test are still held."""

    def held_bytes() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    yield held_bytes
    tracemalloc.stop()


class ManyPeers:
    """Listeners on separate ports, served one after the other by one thread.

    Each accepts a connection, reads one request and sends `reply(request)`; the
    connections stay open.
    """

    def __init__(self, count: int, reply) -> None:
        self._reply = reply
        self._stack = ExitStack()
        self._listeners = [
            self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        self.addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in self._listeners]
        self._thread = threading.Thread(target=self._serve, name="many-peers")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join(PATIENCE_S)
        self._stack.close()

    def _serve(self) -> None:
        for listener in self._listeners:
            listener.settimeout(PATIENCE_S)
            sock = self._stack.enter_context(listener.accept()[0])
            buffer = FrameBuffer()
            frames = buffer.feed(sock.recv(64 * KIB))
            while not frames:
                frames = buffer.feed(sock.recv(64 * KIB))
            sock.sendall(self._reply(decode_command(frames[0])))


def test_an_address_that_was_only_heard_of_holds_little(client, traced):
    before = traced()
    for port in range(20_000, 22_000):
        client.send_oneway(f"127.0.0.1:{port}", PULL)

    assert traced() - before < 2_000 * 4 * KIB


def test_an_idle_connection_holds_no_buffer(client, traced):
    with ManyPeers(60, lambda request: encode_command(answer_to(request))) as peers:
        before = traced()
        for address in peers.addresses:
            client.invoke(address, PULL, timeout_ms=20_000)

        assert client.counters.connections == 60
        assert traced() - before < 60 * 64 * KIB


@pytest.mark.slow
def test_the_first_bytes_of_a_frame_hold_no_buffer(client, traced):
    """Sixty peers send four bytes of an answer, and then nothing."""
    with ManyPeers(60, lambda request: encode_command(request)[:4]) as peers:
        before = traced()
        for address in peers.addresses:
            with pytest.raises(Exception, match="no answer"):
                client.invoke(address, PULL, timeout_ms=50)

        assert traced() - before < 60 * 64 * KIB


def test_answers_that_come_in_pieces_are_whole_beside_those_of_other_peers(client):
    """Two peers take turns to send 1 byte, 40 KiB, 300 KiB and the rest of a frame."""
    turn = threading.Barrier(2, timeout=PATIENCE_S)

    def in_pieces(connection: PeerConnection) -> None:
        for request in connection.requests():
            data = encode_command(answer_to(request, body=request.body * 100_000))
            for start, end in ((0, 1), (1, 40_000), (40_000, 340_000), (340_000, None)):
                turn.wait()
                connection.send(data[start:end])

    with Peer(in_pieces) as one, Peer(in_pieces) as two:
        for _ in range(2):
            replies = [
                client.submit(peer.address, pull_of(body), timeout_ms=20_000)
                for peer, body in ((one, b"one,"), (two, b"two,"))
            ]
            client.wait(replies)

            assert replies[0].result().body == b"one," * 100_000
            assert replies[1].result().body == b"two," * 100_000


def pull_of(body: bytes) -> RemotingCommand:
    return RemotingCommand(11, body=body)


# --- peers that are forgotten ---


def test_a_forgotten_peer_is_disconnected_and_a_later_request_connects_again(client):
    ended = threading.Event()

    def note_the_end(connection: PeerConnection) -> None:
        for request in connection.requests():
            connection.answer(request)
        ended.set()

    with Peer(note_the_end) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        client.forget([peer.address, "127.0.0.1:1"])
        client.poll(0)

        assert ended.wait(PATIENCE_S)
        assert client.invoke(peer.address, PULL, timeout_ms=5000).body == b"body"
        assert peer.accepted == 2


def test_what_is_under_way_to_a_forgotten_peer_is_still_answered(client):
    go_on, ended = threading.Event(), threading.Event()

    def answer_later(connection: PeerConnection) -> None:
        request = connection.read()
        assert go_on.wait(PATIENCE_S)
        connection.answer(request)
        connection.until_closed()
        ended.set()

    with Peer(answer_later) as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=20_000)
        client.poll(0)
        client.forget([peer.address])
        client.poll(0)
        go_on.set()
        client.wait((reply,))

        assert reply.result().body == b"body"
        assert ended.wait(PATIENCE_S)


def test_close_ends_a_forgotten_connection_that_is_not_idle():
    with Peer(silent) as peer:
        client = RemotingClient()
        reply = client.submit(peer.address, PULL, timeout_ms=20_000)
        while not peer.accepted:
            client.poll(10)
        client.forget([peer.address])
        client.poll(0)
        client.close()

        with pytest.raises(DisconnectedError, match="was closed before"):
            reply.result()


@pytest.mark.slow
def test_forgotten_addresses_hold_nothing(client, traced):
    """A name server might return other broker addresses in each answer."""
    client.send_oneway("127.0.0.1:1", PULL)
    client.poll(0)
    before = traced()
    for number in range(10_000):
        address = f"127.0.{number // 250}.{number % 250 + 1}:1"
        client.send_oneway(address, PULL)
        client.forget([address])
        if number % 100 == 99:
            client.poll(0)
            client.poll(10)

    assert traced() - before < 512 * KIB


def test_a_hundred_clients_leave_no_thread_and_no_file():
    before = threads_and_files()
    with Peer() as peer, Peer(silent) as quiet:
        for _ in range(100):
            client = RemotingClient()
            client.invoke(peer.address, PULL, timeout_ms=5000)
            client.submit(quiet.address, PULL, timeout_ms=60_000)
            client.submit("127.0.0.1:1", PULL, timeout_ms=60_000)
            client.poll(0)
            client.close()

    assert threads_and_files() == before


def threads_and_files() -> tuple[set[str], int]:
    names = {thread.name for thread in threading.enumerate()}
    return names, len(os.listdir("/proc/self/fd"))
