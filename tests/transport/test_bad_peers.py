"""Peers that do not speak the remoting protocol cause an error that names them.

In each case the connection is closed, at most 1 MiB is used, and a request that is
under way on another connection of the same client is answered.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import tracemalloc

import pytest

from rmqcli.errors import (
    ConnectError,
    DeadlineError,
    DisconnectedError,
    FrameError,
    HeaderError,
    RmqError,
    WireError,
)
from rmqcli.testing import ManualClock
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand, encode_command
from rmqcli.wire.frame import encode_frame
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, PeerConnection, answer_to

PULL = RemotingCommand(11, ext_fields={"topic": "T"})
HEADER = b'{"code":0,"flag":1,"opaque":1}'


def _lengths(length: int, mark: int) -> bytes:
    return length.to_bytes(4, "big", signed=True) + mark.to_bytes(4, "big")


#: the bytes that a peer sends instead of an answer, and their description in the error
GARBAGE = [
    pytest.param(_lengths(0, 0), "frame length 0 ", id="length 0"),
    pytest.param(_lengths(3, 0), "frame length 3 ", id="length 3"),
    pytest.param(_lengths(4, 0), "frame length 4 ", id="no header"),
    pytest.param(
        _lengths((16 << 20) + 1, 100), "frame length 16777217 ", id="16 MiB + 1"
    ),
    pytest.param(
        _lengths(2**31 - 1, 100), "frame length 2147483647 ", id="2 GiB of a frame"
    ),
    pytest.param(_lengths(-1, 100), "frame length -1 ", id="length -1"),
    pytest.param(_lengths(-(2**31), 0), "frame length -2147483648 ", id="length min"),
    pytest.param(
        _lengths(100, 97), "header length 97 is not in 1..96", id="header over frame"
    ),
    pytest.param(_lengths(100, 0), "header length 0 ", id="header of nothing"),
    *(
        pytest.param(_lengths(100, kind << 24 | 50), f"type {kind} ", id=f"type {kind}")
        for kind in (2, 3, 127, 128, 255)
    ),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "look like HTTP/2 ", id="http2"),
    pytest.param(
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "look like HTTP ", id="http get"
    ),
    pytest.param(
        b"HTTP/1.1 400 Bad Request\r\n\r\n", "look like HTTP ", id="http answer"
    ),
    pytest.param(
        bytes.fromhex("1603010200010001fc0303") + bytes(64), "like TLS ", id="tls hello"
    ),
    pytest.param(bytes.fromhex("15030100020246"), "look like TLS ", id="tls alert"),
    pytest.param(
        bytes.fromhex("00001204000000000000037fffffff000400400000"),
        "look like HTTP/2 (gRPC?)",
        id="grpc settings",
    ),
    pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "look like SSH ", id="ssh"),
    pytest.param(b"\x1b]0;owned\x07\x1b[2J", r"are b'\x1b]0;owned\x07", id="terminal"),
    pytest.param(encode_frame(0, b"{", b""), "header ", id="header not JSON"),
    pytest.param(encode_frame(0, b"[1]", b""), "header ", id="header a list"),
    pytest.param(encode_frame(1, b"\0\0", b""), "binary header ends", id="binary"),
    pytest.param(encode_frame(0, b"[" * 10_000, b""), "header ", id="deep header"),
]


@pytest.mark.parametrize(("garbage", "words"), GARBAGE)
def test_garbage_is_a_typed_error_that_names_the_peer(client, garbage, words):
    ended = threading.Event()
    release = threading.Event()

    def bad(connection: PeerConnection) -> None:
        connection.read()
        connection.send(garbage)
        connection.until_closed()
        ended.set()

    def good(connection: PeerConnection) -> None:
        first, second = connection.read(), connection.read()
        release.wait(PATIENCE_S)
        connection.answer(first)
        connection.answer(second)
        connection.until_closed()

    with Peer(bad) as peer, Peer(good) as neighbour:
        unaffected = client.submit(neighbour.address, PULL, timeout_ms=20_000)
        with pytest.raises(DisconnectedError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=20_000)

        error = caught.value
        assert error.address == peer.address
        assert error.message.startswith(f"{peer.address} does not speak RocketMQ")
        assert words in error.message
        assert "\x1b" not in error.message
        assert isinstance(error.__cause__, WireError)
        assert ended.wait(PATIENCE_S), "the connection is closed"
        release.set()
        also = client.submit(neighbour.address, PULL, timeout_ms=20_000)
        client.wait([unaffected, also])
        assert unaffected.result().code == also.result().code == 0


@pytest.mark.parametrize(("garbage", "words"), GARBAGE)
def test_garbage_one_byte_at_a_time_gives_the_same_error(client, garbage, words):
    def bad(connection: PeerConnection) -> None:
        connection.read()
        for byte in garbage:
            connection.send(bytes([byte]))
        connection.until_closed()

    with Peer(bad) as peer, pytest.raises(DisconnectedError) as caught:
        client.invoke(peer.address, PULL, timeout_ms=20_000)

    assert caught.value.address == peer.address
    assert isinstance(caught.value.__cause__, FrameError | HeaderError)


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(_lengths((16 << 20) - 4, 100), id="the largest frame"),
        pytest.param(_lengths((16 << 20) - 4, (16 << 20) - 8), id="all of it header"),
        pytest.param(_lengths(2**31 - 1, 100), id="2 GiB"),
    ],
)
def test_a_claimed_length_gets_no_memory(client, claim):
    """The peer announces a huge frame, sends a little of it and then nothing more."""

    def liar(connection: PeerConnection) -> None:
        connection.read()
        connection.send(claim + b"x" * 1000)
        connection.until_closed()

    with Peer(liar) as peer:
        tracemalloc.start()
        try:
            with pytest.raises((DeadlineError, DisconnectedError)):
                client.invoke(peer.address, PULL, timeout_ms=100)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak <= 1 << 20


def test_an_answer_one_byte_at_a_time_is_an_answer(client):
    def dribble(connection: PeerConnection) -> None:
        request = connection.read()
        for byte in encode_command(answer_to(request, body=b"x" * 500)):
            connection.send(bytes([byte]))
        connection.until_closed()

    with Peer(dribble) as peer:
        answer = client.invoke(peer.address, PULL, timeout_ms=20_000)

        assert answer.body == b"x" * 500


def test_garbage_after_good_frames_says_how_many(client):
    def turns_bad(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        connection.answer(connection.read())
        connection.read()
        connection.send(b"GET / HTTP/1.1\r\n")
        connection.until_closed()

    with Peer(turns_bad) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        client.invoke(peer.address, PULL, timeout_ms=5000)
        with pytest.raises(DisconnectedError, match="after 2 valid frames") as caught:
            client.invoke(peer.address, PULL, timeout_ms=5000)

    assert isinstance(caught.value.__cause__, FrameError)


GRPC_SETTINGS = bytes.fromhex("00001204000000000000037fffffff000400400000")


def test_during_the_back_off_after_garbage_requests_say_what_came():
    clock = ManualClock()

    def bad(connection: PeerConnection) -> None:
        connection.read()
        connection.send(GRPC_SETTINGS)
        connection.until_closed()

    with Peer(bad) as peer, RemotingClient(clock=clock) as client:
        first = client.submit(peer.address, PULL, timeout_ms=20_000)
        client.wait([first])
        later = client.submit(peer.address, PULL, timeout_ms=1)
        client.poll(0)

        before, after = first.outcome(), later.outcome()
        assert isinstance(before, DisconnectedError)
        assert isinstance(after, ConnectError)
        assert after.message == before.message
        assert after.message.startswith(f"{peer.address} does not speak RocketMQ's")
        assert after.hint == before.hint
        assert after.hint.startswith("gRPC is served on a proxy's other port; ")
        assert after.address == before.address == peer.address
        assert after.is_grpc is before.is_grpc is True
        assert peer.accepted == 1


def test_garbage_after_good_frames_begins_a_back_off():
    clock = ManualClock()

    def turns_bad(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        connection.read()
        connection.send(b"GET / HTTP/1.1\r\n")
        connection.until_closed()

    with Peer(turns_bad) as peer, RemotingClient(clock=clock) as client:
        client.wait([client.submit(peer.address, PULL, timeout_ms=20_000)])
        last = client.submit(peer.address, PULL, timeout_ms=20_000)
        client.wait([last])
        assert isinstance(last.outcome(), DisconnectedError)
        later = client.submit(peer.address, PULL, timeout_ms=99)
        client.poll(0)

        assert isinstance(later.outcome(), ConnectError)
        assert peer.accepted == 1


def test_first_bytes_that_come_in_pieces_are_all_shown(client):
    sent = threading.Event()
    is_read = threading.Event()

    def bad(connection: PeerConnection) -> None:
        connection.read()
        connection.send(GRPC_SETTINGS[:3])
        sent.set()
        assert is_read.wait(PATIENCE_S)
        connection.send(GRPC_SETTINGS[3:])
        connection.until_closed()

    with Peer(bad) as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=60_000)
        while not sent.is_set():
            client.poll(10)
        client.poll(0)
        is_read.set()
        client.wait([reply])
        error = reply.outcome()

    assert isinstance(error, DisconnectedError)
    assert error.message.startswith(
        f"{peer.address} does not speak RocketMQ's remoting protocol: its first bytes"
        " look like HTTP/2 (gRPC?)"
        r" b'\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x7f\xff\xff\xff\x00': "
    )


def test_an_error_is_about_the_connection_on_which_it_happened():
    """Neither the bytes nor the frames of earlier connections count."""
    clock = ManualClock()
    acts = [
        lambda c: c.send(b"GET / HTTP/1.1\r\n\r\n") or c.until_closed(),
        lambda c: c.answer(c.read()),
        PeerConnection.read,
        lambda c: c.send(b"SSH-2.0-OpenSSH_9.6\r\n") or c.until_closed(),
    ]
    ended = threading.Event()

    def script(connection: PeerConnection) -> None:
        acts[peer.accepted - 1](connection)
        connection.close()
        ended.set()

    said = []
    with Peer(script) as peer, RemotingClient(clock=clock) as client:
        for _ in acts:
            clock.now_ms += 60_000
            reply = client.submit(peer.address, PULL, timeout_ms=20_000)
            client.wait([reply])
            said.append(str(reply.outcome()))
            assert ended.wait(PATIENCE_S)
            ended.clear()

    start = f"{peer.address} does not speak RocketMQ's remoting protocol: its first"
    assert said[0].startswith(f"{start} bytes look like HTTP b'GET / ")
    assert said[2] == f"{peer.address} closed the connection without sending an answer"
    assert said[3].startswith(f"{start} bytes look like SSH b'SSH-2.0-")


def test_a_half_open_peer_ends_by_deadline(client):
    """The peer accepts the connection, but never reads or writes."""
    release = threading.Event()

    def asleep(connection: PeerConnection) -> None:
        release.wait(PATIENCE_S)

    with Peer(asleep) as peer:
        with pytest.raises(DeadlineError):
            client.invoke(peer.address, PULL, timeout_ms=50)
        release.set()


def test_a_peer_that_stops_writing_but_reads_ends_by_deadline(client):
    import socket

    def half_close(connection: PeerConnection) -> None:
        connection.read()
        connection.sock.shutdown(socket.SHUT_WR)
        connection.until_closed()

    with Peer(half_close) as peer, pytest.raises(DisconnectedError):
        client.invoke(peer.address, PULL, timeout_ms=5000)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_peer_that_leaves_without_an_answer(client, how):
    def leave(connection: PeerConnection) -> None:
        connection.read()
        getattr(connection, how)()

    with Peer(leave) as peer, pytest.raises(DisconnectedError) as caught:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    assert caught.value.message.startswith(f"{peer.address} ")
    assert caught.value.message.endswith(" without sending an answer")
    assert (
        caught.value.hint == "a peer that only speaks TLS does this: connect with TLS"
    )


def test_a_peer_that_answered_on_an_earlier_connection_does_not_want_tls(client):
    """A broker that is killed may still accept connections for a moment."""
    count = itertools.count()

    def answer_once(connection: PeerConnection) -> None:
        request = connection.read()
        if next(count) == 0:
            connection.answer(request)
        connection.close()

    with Peer(answer_once) as peer:
        client.invoke(peer.address, PULL, timeout_ms=60_000)
        with pytest.raises(DisconnectedError):  # perhaps still on the first connection
            client.invoke(peer.address, PULL, timeout_ms=60_000)
        with pytest.raises(DisconnectedError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=60_000)
    assert caught.value.message.endswith(" without sending an answer")
    assert not caught.value.hint


def test_a_peer_that_leaves_in_the_middle_of_a_frame(client):
    def cut(connection: PeerConnection) -> None:
        request = connection.read()
        connection.answer(request)
        connection.send(
            encode_command(answer_to(connection.read(), body=b"x" * 100))[:50]
        )

    with Peer(cut) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        with pytest.raises(DisconnectedError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=5000)

        assert caught.value.message == (
            f"{peer.address} closed the connection 50 bytes into a frame"
            " before it answered"
        )
        assert not caught.value.hint
        # The next connection does not begin with these 50 bytes.
        assert client.invoke(peer.address, PULL, timeout_ms=5000).body == b""


def test_a_reset_is_noticed_although_more_has_come_than_one_turn_reads(client):
    """Sending the next request fails before all that came is read."""
    may_send, was_reset = threading.Event(), threading.Event()

    def flood(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        assert may_send.wait(PATIENCE_S)
        connection.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:  # until the buffers of both ends are full
                connection.send(encode_command(RemotingCommand(0, body=bytes(1 << 20))))
        connection.reset()
        was_reset.set()

    with Peer(flood) as peer:
        client.invoke(peer.address, PULL, timeout_ms=60_000)
        may_send.set()
        assert was_reset.wait(PATIENCE_S)
        # Nothing else happens for an hour: it must not be waited for.
        reply = client.submit(peer.address, PULL, timeout_ms=3_600_000)
        client.wait([reply])
        error = reply.outcome()
    assert isinstance(error, DisconnectedError)
    assert error.message.startswith(f"{peer.address} reset the connection")


def test_all_requests_under_way_fail_together_and_once(client):
    def leave(connection: PeerConnection) -> None:
        for _ in range(50):
            connection.read()

    calls: list[int] = []
    with Peer(leave) as peer:
        replies = [
            client.submit(
                peer.address,
                PULL,
                timeout_ms=20_000,
            )
            for _ in range(50)
        ]
        for reply in replies:
            reply.on_done(lambda r: calls.append(r.opaque))
        client.wait(replies)

    assert all(isinstance(r.outcome(), DisconnectedError) for r in replies)
    assert sorted(calls) == list(range(1, 51))
    assert len({id(r.outcome()) for r in replies}) == 50


def test_every_failure_is_of_our_own_tree_and_can_be_pickled(client):
    import pickle

    def http(connection: PeerConnection) -> None:
        connection.send(b"GET / HTTP/1.1\r\n\r\n")

    with Peer(http) as peer, pytest.raises(RmqError) as caught:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.message, again.address) == (caught.value.message, peer.address)
