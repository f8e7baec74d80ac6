"""What a forked child does with its copy of a client.

Each test does in its own process what the child does after the fork, and first puts
the client into the state that the parent's other threads leave it in.
"""

from __future__ import annotations

import socket
import threading

import pytest

from rmqcli.errors import DisconnectedError
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.transport.peer import Peer, PeerConnection

UNANSWERED = RemotingCommand(1)
PULL = RemotingCommand(11, body=b"body")


def answer_pulls(connection: PeerConnection) -> None:
    for request in connection.requests():
        if request.code == PULL.code:
            connection.answer(request)


def test_requests_under_way_fail_and_new_ones_connect_again(client):
    with Peer(answer_pulls) as peer:
        client.invoke(peer.address, PULL, timeout_ms=60_000)
        sent = client.submit(peer.address, UNANSWERED, timeout_ms=60_000)
        client.poll(0)
        queued = client.submit(peer.address, UNANSWERED, timeout_ms=60_000)
        called: list[object] = []
        for reply in (sent, queued):
            reply.on_done(called.append)

        client.forget_after_fork()

        for reply in (sent, queued):
            with pytest.raises(DisconnectedError) as caught:
                reply.result()
            assert caught.value.message == (
                f"the process was forked before {peer.address} answered: the answer"
                " goes to its parent"
            )
            assert caught.value.address == peer.address
        assert called == []
        assert client.invoke(peer.address, PULL, timeout_ms=60_000).body == b"body"
        assert client.counters.connections == 2


def test_a_connection_that_was_forgotten_before_the_fork_ends_in_the_child(client):
    with Peer(answer_pulls) as peer:
        client.invoke(peer.address, PULL, timeout_ms=60_000)
        reply = client.submit(peer.address, UNANSWERED, timeout_ms=60_000)
        client.poll(0)
        client.forget([peer.address])

        client.forget_after_fork()

        assert isinstance(reply.outcome(), DisconnectedError)
        assert client.invoke(peer.address, PULL, timeout_ms=60_000).body == b"body"


def test_a_child_may_use_a_client_that_another_thread_was_driving(client):
    with Peer(answer_pulls) as peer:
        client.invoke(peer.address, PULL, timeout_ms=60_000)
        for lock in (client._lock, client._loop._lock):
            lock.acquire()  # by a thread that the child does not have
        client._is_driving = True

        client.forget_after_fork()

        for address in (peer.address, f"localhost:{peer.port}"):
            assert client.invoke(address, PULL, timeout_ms=60_000).body == b"body"


def test_a_child_may_wake_its_copy_from_another_thread(client):
    is_asked = threading.Event()
    client.let_wake(is_asked.is_set)
    client.poll(0)

    client.forget_after_fork()

    client.let_wake(is_asked.is_set)

    def ask() -> None:
        is_asked.set()
        client.wake()

    timer = threading.Timer(0.05, ask)
    timer.start()
    assert client.poll(int(PATIENCE_S * 1000)) == 0
    timer.join()
    assert is_asked.is_set()


def test_look_ups_under_way_do_not_take_the_threads_of_the_child(client, monkeypatch):
    """At most four run at once, and those of the parent never end in the child."""
    system, gate = socket.getaddrinfo, threading.Event()
    asked = []

    def slow(host, *args, **options):
        if host.decode().endswith(".test"):
            asked.append(host.decode())
            assert gate.wait(PATIENCE_S)
        return system(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    before = set(threading.enumerate())
    with Peer(answer_pulls) as peer:
        for number in range(5):
            client.submit(f"slow{number}.test:1", PULL, timeout_ms=60_000)
        client.poll(0)
        wait_until(lambda: len(asked) == 4)

        client.forget_after_fork()

        answer = client.invoke(f"localhost:{peer.port}", PULL, timeout_ms=60_000)
        assert answer.body == b"body"
        client.submit("slow0.test:1", PULL, timeout_ms=60_000)
        client.poll(0)
        wait_until(lambda: len(asked) == 5)
        assert asked[4] == "slow0.test"  # asked again, and the fifth name never
        client.close()
        gate.set()
        for each in set(threading.enumerate()) - before - {*peer._threads}:
            each.join(PATIENCE_S)


def test_a_closed_client_remains_closed():
    client = RemotingClient()
    client.close()

    client.forget_after_fork()

    with pytest.raises(DisconnectedError, match="the client is closed"):
        client.invoke("127.0.0.1:1", PULL, timeout_ms=60_000)
