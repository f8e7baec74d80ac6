"""Connections that fail, and connections that are established again."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from rmqcli.errors import ConnectError, DeadlineError, DisconnectedError, RmqError
from rmqcli.testing import ManualClock
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.transport.tls import TlsOptions
from rmqcli.wire.command import RemotingCommand
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, PeerConnection, free_port

PULL = RemotingCommand(11)


def drive(client, clock, reply, *, step_ms=50):
    """Poll, and advance the clock by `step_ms` each time, until the reply has ended.

    Once a connection is established, wait for the reply in real time.
    """
    connections = client.counters.connections
    for _ in range(2000):
        if client.counters.connections > connections:
            client.wait([reply])
        if reply.is_done:
            return
        client.poll(0)
        clock.now_ms += step_ms
    raise AssertionError("the reply never ended")


def test_a_port_without_a_listener_refuses_the_connection(client):
    address = f"127.0.0.1:{free_port()}"

    with pytest.raises(ConnectError) as caught:
        client.invoke(address, PULL, timeout_ms=5000)

    assert caught.value.message == f"cannot connect to {address}: connection refused"
    assert caught.value.address == address


def test_each_address_of_a_name_is_tried(client):
    """On many systems `localhost` is ::1 first, but this peer listens on 127.0.0.1."""
    with Peer() as peer:
        answer = client.invoke(f"localhost:{peer.port}", PULL, timeout_ms=5000)

        assert answer.code == 0


def test_a_request_during_the_back_off_waits_for_the_next_attempt():
    clock = ManualClock()
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        port = free_port()
        address = f"127.0.0.1:{port}"
        first = client.submit(address, PULL, timeout_ms=3000)
        drive(client, clock, first)
        assert isinstance(first.outcome(), ConnectError)

        with Peer(port=port) as peer:
            second = client.submit(address, PULL, timeout_ms=3000)
            failed_at_ms = clock.now_ms
            for _ in range(3):
                client.poll(0)
            assert peer.accepted == 0, "still backing off"
            drive(client, clock, second, step_ms=10)

            assert second.result().code == 0
            assert 50 <= clock.now_ms - failed_at_ms <= 1000


def test_the_next_attempt_begins_no_later_than_the_back_off_ends():
    clock = ManualClock()
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        port = free_port()
        address = f"127.0.0.1:{port}"
        client.wait([client.submit(address, PULL, timeout_ms=3000)])
        failed_at_ms = clock.now_ms
        with Peer(port=port) as peer:
            # Random(0) makes the first back-off 149 ms long.
            second = client.submit(address, PULL, timeout_ms=3000)
            for passed_ms in (74, 148):
                clock.now_ms = failed_at_ms + passed_ms
                client.poll(0)
                assert client.counters.connections == peer.accepted == 0
            clock.now_ms = failed_at_ms + 149
            client.wait([second])

            assert second.result().code == 0
            assert clock.now_ms == failed_at_ms + 149


def test_a_request_that_cannot_outlast_the_back_off_fails_at_once():
    clock = ManualClock()
    address = f"127.0.0.1:{free_port()}"
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        first = client.submit(address, PULL, timeout_ms=3000)
        client.wait([first])
        # Random(0) makes the first back-off 149 ms long.
        replies = [
            client.submit(address, PULL, timeout_ms=timeout_ms)
            for timeout_ms in (40, 149, 150)
        ]
        client.poll(0)

        assert [each.is_done for each in replies] == [True, True, False]
        with pytest.raises(ConnectError, match="connection refused"):
            replies[1].result()


def test_the_back_off_of_a_connection_that_had_worked_begins_anew():
    clock = ManualClock()
    port = free_port()
    address = f"127.0.0.1:{port}"
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        for _ in range(4):
            reply = client.submit(address, PULL, timeout_ms=10_000)
            drive(client, clock, reply)
            assert isinstance(reply.outcome(), ConnectError)
        with Peer(port=port) as peer:
            reply = client.submit(address, PULL, timeout_ms=10_000)
            drive(client, clock, reply)
            assert reply.result().code == 0
            assert peer.accepted == 1
        client.poll(0)  # notices the end
        lost = client.submit(address, PULL, timeout_ms=10_000)
        client.wait([lost])
        assert isinstance(lost.outcome(), ConnectError)
        # The next of the delays before would be at least 1600 ms.
        waits = client.submit(address, PULL, timeout_ms=201)
        client.poll(0)
        assert not waits.is_done


def test_a_connection_that_is_being_made_is_not_made_twice():
    """The handshake of TLS lasts until the peer takes part in it."""
    go = threading.Event()

    def script(connection: PeerConnection) -> None:
        assert go.wait(PATIENCE_S)

    options = TransportOptions(tls=TlsOptions(insecure=True))
    with Peer(script) as peer, RemotingClient(options) as client:
        replies = []
        for _ in range(3):
            replies.append(client.submit(peer.address, PULL, timeout_ms=60_000))
            client.poll(20)
        go.set()
        client.wait(replies)

        assert peer.accepted == 1
        assert all(isinstance(each.outcome(), ConnectError) for each in replies)


def test_what_could_not_be_sent_makes_room_for_more():
    """There is room for a request above the limit only if no byte waits."""
    options = TransportOptions(queued_bytes_max=1 << 10)
    clock = ManualClock()
    address = f"127.0.0.1:{free_port()}"
    with RemotingClient(options, clock=clock, rng=random.Random(0)) as client:
        for _ in range(3):
            large = RemotingCommand(310, body=bytes(2 << 10))
            reply = client.submit(address, large, timeout_ms=9000)
            drive(client, clock, reply)
            assert isinstance(reply.outcome(), ConnectError)


def test_the_back_off_ends_also_while_the_client_is_not_driven():
    clock = ManualClock()
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        port = free_port()
        first = client.submit(f"127.0.0.1:{port}", PULL, timeout_ms=3000)
        client.wait([first])
        clock.now_ms += 10_000
        with Peer(port=port) as peer:
            second = client.submit(peer.address, PULL, timeout_ms=20)
            client.wait([second])

            assert second.result().code == 0


def test_attempts_become_rare():
    clock = ManualClock()
    address = f"127.0.0.1:{free_port()}"
    with RemotingClient(clock=clock, rng=random.Random(0)) as client:
        tries = 0
        end_ms = clock.now_ms + 60_000
        while clock.now_ms < end_ms:
            reply = client.submit(address, PULL, timeout_ms=10_000)
            drive(client, clock, reply, step_ms=50)
            tries += 1

        # after 100, 200, ..., 1600 ms, and then every 2.5 to 5 s
        assert 14 <= tries <= 30


def test_attempts_become_rare_where_the_peer_closes_before_any_answer():
    """A load balancer without back ends takes each connection and closes it."""
    clock = ManualClock()
    with (
        Peer(PeerConnection.close) as peer,
        RemotingClient(clock=clock, rng=random.Random(0)) as client,
    ):
        end_ms = clock.now_ms + 60_000
        while clock.now_ms < end_ms:
            reply = client.submit(peer.address, PULL, timeout_ms=10_000)
            drive(client, clock, reply, step_ms=50)
            assert isinstance(reply.outcome(), ConnectError | DisconnectedError)

        assert 14 <= peer.accepted <= 30


def test_a_peer_that_never_takes_the_connection_ends_by_connect_timeout():
    clock = ManualClock()
    options = TransportOptions(connect_timeout_ms=500)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill the backlog: later handshakes are not answered
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = stack.enter_context(RemotingClient(options, clock=clock))

        reply = client.submit(address, PULL, timeout_ms=3000)
        drive(client, clock, reply)
        hasty = client.submit(address, PULL, timeout_ms=400)
        drive(client, clock, hasty)

        with pytest.raises(ConnectError) as caught:
            reply.result()
        assert (
            caught.value.message == f"cannot connect to {address}: no answer in 500 ms"
        )
        with pytest.raises(ConnectError) as caught:  # it was never sent
            hasty.result()
        assert (
            caught.value.message == f"cannot connect to {address}: no answer in 400 ms"
        )
        assert caught.value.address == address


def test_an_address_that_is_silent_leaves_time_for_the_next(monkeypatch):
    clock = ManualClock()
    options = TransportOptions(connect_timeout_ms=500)
    with Peer() as peer, ExitStack() as stack:
        address = ("127.0.0.2", peer.port)
        listener = stack.enter_context(socket.socket())
        listener.bind(address)
        listener.listen(0)
        for _ in range(4):  # fill the backlog: later handshakes are not answered
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, peer.port))
            for host in ("127.0.0.2", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        client = stack.enter_context(RemotingClient(options, clock=clock))

        reply = client.submit(f"two.test:{peer.port}", PULL, timeout_ms=3000)
        drive(client, clock, reply)

        assert reply.result().code == 0
        assert 250 <= clock.now_ms - ManualClock().now_ms <= 500


@pytest.mark.parametrize(
    ("family", "host", "port", "reason"),
    [
        (9999, "127.0.0.1", 1, "address family not supported by protocol"),
        # These two end at once, and the next one after a while.
        (socket.AF_INET, "255.255.255.255", 1, "network is unreachable"),
        (socket.AF_INET, "127.0.0.1", 0, "connection refused"),
        (socket.AF_INET, "127.0.0.1", None, "connection refused"),
    ],
)
def test_an_address_that_cannot_be_reached_is_passed_over(
    family, host, port, reason, monkeypatch
):
    with Peer() as peer, RemotingClient() as client:
        bad = host, free_port() if port is None else port
        places = [
            (family, socket.SOCK_STREAM, 6, "", bad),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        assert client.invoke("two.test:1", PULL, timeout_ms=60_000).code == 0

        places.pop()
        with pytest.raises(ConnectError) as caught:
            client.invoke("one.test:1", PULL, timeout_ms=60_000)
    assert caught.value.message == f"cannot connect to one.test:1: {reason}"
    assert caught.value.address == "one.test:1"


def test_an_error_names_each_address_if_the_reasons_differ(client, monkeypatch):
    places = [
        (family, socket.SOCK_STREAM, 6, "", ("127.0.0.1", free_port()))
        for family in (9999, socket.AF_INET)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    with pytest.raises(ConnectError) as caught:
        client.invoke("two.test:1", PULL, timeout_ms=60_000)
    assert caught.value.message == (
        "cannot connect to two.test:1: address family not supported by protocol"
        " (127.0.0.1), connection refused (127.0.0.1)"
    )


class _OfTheTargetsPort(socket.socket):
    """Uses the port that it connects to as its own, which the system may do, too."""

    def connect_ex(self, address):
        with suppress(OSError):  # it belongs to a peer
            self.bind(address)
        return super().connect_ex(address)


def test_a_connection_to_itself_is_refused(client, monkeypatch):
    """The system may give a socket the very port that it connects to."""
    monkeypatch.setattr(socket, "socket", _OfTheTargetsPort)
    with pytest.raises(ConnectError, match=r": connection refused$"):
        client.invoke(f"127.0.0.1:{free_port()}", PULL, timeout_ms=60_000)


def test_after_a_connection_to_itself_the_next_address_is_tried(client, monkeypatch):
    with Peer() as peer:
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (free_port(), peer.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        monkeypatch.setattr(socket, "socket", _OfTheTargetsPort)
        assert client.invoke("two.test:1", PULL, timeout_ms=60_000).code == 0


def test_a_broker_that_restarts_is_found_again(client):
    with Peer() as peer:
        port, address = peer.port, peer.address
        client.invoke(address, PULL, timeout_ms=5000)

    with Peer(port=port) as peer:
        answers = 0
        for _ in range(5):
            try:
                answers += client.invoke(address, PULL, timeout_ms=5000).code == 0
            except (DisconnectedError, ConnectError):
                continue
        assert answers >= 4
        assert peer.accepted == 1


@pytest.mark.parametrize("sees_it", [True, False])
def test_a_connection_closed_while_idle_costs_no_request(sees_it):
    """A server closes after 120 s of silence; the next request must not fail."""
    clock = ManualClock()
    left = threading.Event()

    def one_answer(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        connection.close()
        left.set()

    with Peer(one_answer) as peer, RemotingClient(clock=clock) as client:
        for accepted in (1, 2, 3):
            reply = client.submit(peer.address, PULL, timeout_ms=5000)
            client.wait([reply])
            assert reply.result().code == 0
            assert left.wait(PATIENCE_S)
            left.clear()
            assert peer.accepted == accepted
            if sees_it:
                client.poll(0)  # notices the end while no request is waiting
            clock.now_ms += 130_000


def test_go_away_closes_and_the_next_request_connects_again(client):
    def shutting_down(connection: PeerConnection) -> None:
        connection.answer(connection.read(), code=1500)
        connection.until_closed()

    with Peer(shutting_down) as peer:
        for accepted in (1, 2):
            with pytest.raises(DisconnectedError, match="is shutting down") as caught:
                client.invoke(peer.address, PULL, timeout_ms=5000)
            assert caught.value.retriable
            assert peer.accepted == accepted


def test_what_was_never_sent_goes_out_on_the_next_connection():
    """The first peer stops reading; requests that were not sent are not lost."""
    stop = threading.Event()
    received: list[int] = []

    def script(connection: PeerConnection) -> None:
        if peer.accepted == 1:
            connection.answer(connection.read())
            stop.wait(PATIENCE_S)
            connection.reset()
            return
        for request in connection.requests():
            received.append(len(request.body))
            connection.answer(request, body=b"")

    with Peer(script) as peer, RemotingClient() as client:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        big = RemotingCommand(310, body=bytes(8 << 20))
        replies = [
            client.submit(peer.address, big, timeout_ms=20_000) for _ in range(4)
        ]
        client.poll(0)
        client.poll(0)
        stop.set()
        client.wait(replies)

        assert isinstance(replies[0].outcome(), DisconnectedError)
        assert not any(isinstance(r.outcome(), RmqError) for r in replies[1:])
        assert received == [8 << 20] * 3


def test_an_expired_request_that_was_never_sent_is_not_sent_later():
    stop = threading.Event()
    large = RemotingCommand(310, body=bytes(8 << 20))
    client = RemotingClient(TransportOptions(queued_bytes_max=8 << 20))
    codes: list[int] = []

    def script(connection: PeerConnection) -> None:
        stop.wait(PATIENCE_S)
        for request in connection.requests():
            codes.append(request.code)
            connection.answer(request, body=b"")

    with Peer(script) as peer, client:
        big = client.submit(peer.address, large, timeout_ms=20_000)
        client.poll(0)
        client.poll(100)
        expired = [
            client.submit(peer.address, RemotingCommand(25), timeout_ms=20)
            for _ in range(3)
        ]
        client.wait(expired)
        stop.set()
        client.invoke(peer.address, PULL, timeout_ms=20_000)

        assert all(isinstance(each.outcome(), DeadlineError) for each in expired)
        assert big.result().code == 0
        assert codes == [310, 11]
        # Nor does it count as waiting: then there is room for more than the limit.
        client.invoke(peer.address, large, timeout_ms=20_000)
