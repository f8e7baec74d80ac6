"""The I/O thread: only when asked for, and gone afterwards. And no leak without it."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from rmqcli.errors import DeadlineError, DisconnectedError
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand
from tests.kit.program import Program
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, silent

PULL = RemotingCommand(11, body=b"body")


@pytest.fixture
def threaded(client):
    client.start_io_thread()
    return client


def test_no_thread_before_it_is_asked_for(client):
    before = threading.active_count()
    with Peer() as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        names = {thread.name for thread in threading.enumerate()}

    assert "rmq-io" not in names
    assert threading.active_count() == before


def test_the_thread_does_the_io(threaded):
    called: list[str] = []
    with Peer() as peer:
        reply = threaded.submit(
            peer.address,
            PULL,
            timeout_ms=5000,
            on_done=lambda _: called.append(threading.current_thread().name),
        )
        assert threaded.wait([reply])

    assert reply.result().body == b"body"
    assert called == ["rmq-io"]


def test_many_threads_submit_at_once(threaded):
    failures: list[object] = []

    def work(name: int) -> None:
        for i in range(200):
            body = b"%d/%d" % (name, i)
            answer = threaded.invoke(
                peer.address, RemotingCommand(11, body=body), timeout_ms=20_000
            )
            if answer.body != body:
                failures.append((answer, body))

    with Peer() as peer:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert failures == []
        assert peer.accepted == 1


def test_deadlines_hold_in_the_thread(threaded):
    with Peer(silent) as peer:
        with pytest.raises(DeadlineError):
            threaded.invoke(peer.address, PULL, timeout_ms=30)
        reply = threaded.submit(peer.address, PULL, timeout_ms=60_000)
        assert not threaded.wait([reply], timeout_ms=20)


def test_poll_counts_what_the_thread_completed(threaded):
    with Peer() as peer:
        threaded.submit(peer.address, PULL, timeout_ms=5000)

        assert threaded.poll(5000) == 1
        assert threaded.poll(1) == 0


def test_a_callback_that_raises_is_logged_and_the_thread_goes_on(threaded, caplog):
    def fail(reply):
        raise ZeroDivisionError

    with Peer() as peer:
        threaded.wait(
            [threaded.submit(peer.address, PULL, timeout_ms=5000, on_done=fail)]
        )
        assert threaded.invoke(peer.address, PULL, timeout_ms=5000).code == 0

    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == [
        "callback failed"
    ]


def test_a_callback_cannot_wait_in_the_thread(threaded):
    caught: list[str] = []

    def wait(reply):
        try:
            threaded.wait([reply])
        except RuntimeError as error:
            caught.append(str(error))

    with Peer() as peer:
        threaded.wait(
            [threaded.submit(peer.address, PULL, timeout_ms=5000, on_done=wait)]
        )

    assert caught == ["a callback may submit requests, but not wait for them"]


def test_close_ends_the_thread_and_whoever_waits(threaded):
    results: list[BaseException | None] = []

    with Peer(silent) as peer:
        reply = threaded.submit(peer.address, PULL, timeout_ms=60_000)

        def wait() -> None:
            threaded.wait([reply])
            results.append(reply.error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        threaded.close()
        threaded.close()
        waiter.join(PATIENCE_S)

    assert len(results) == 1
    assert isinstance(results[0], DisconnectedError)
    assert "rmq-io" not in {thread.name for thread in threading.enumerate()}


def test_close_in_a_callback_ends_the_thread(threaded):
    with Peer() as peer:
        reply = threaded.submit(
            peer.address, PULL, timeout_ms=5000, on_done=lambda _: threaded.close()
        )
        threaded.wait([reply])
        threaded.close()

    assert "rmq-io" not in {thread.name for thread in threading.enumerate()}


def test_submits_that_race_with_close_all_end(threaded):
    """Each is refused, answered or failed; none is left waiting for ever."""
    started = threading.Event()
    outcomes: list[str] = []

    def work() -> None:
        while True:
            try:
                reply = threaded.submit(peer.address, PULL, timeout_ms=60_000)
            except DisconnectedError:
                return
            started.set()
            threaded.wait([reply])
            outcomes.append("answer" if reply.error is None else "failure")

    with Peer() as peer:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        assert started.wait(PATIENCE_S)
        threaded.close()
        for worker in workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive()

    assert outcomes


@pytest.mark.parametrize("with_thread", [False, True])
def test_a_hundred_clients_leave_no_thread_and_no_file(with_thread):
    before = threads_and_files()
    with Peer() as peer, Peer(silent) as quiet:
        for _ in range(100):
            client = RemotingClient()
            if with_thread:
                client.start_io_thread()
            client.invoke(peer.address, PULL, timeout_ms=5000)
            client.submit(quiet.address, PULL, timeout_ms=60_000)
            client.submit("127.0.0.1:1", PULL, timeout_ms=60_000)
            client.poll(0)
            client.close()

    assert threads_and_files() == before


def threads_and_files() -> tuple[set[str], int]:
    names = {thread.name for thread in threading.enumerate()}
    return names, len(os.listdir("/proc/self/fd"))


def test_a_client_that_is_never_closed_does_not_keep_the_process_alive(tmp_path):
    source = """
from rmqcli.transport.remoting import RemotingClient
client = RemotingClient()
client.start_io_thread()
"""
    with Program(source, tmp_path) as running:
        assert running.exit_code() == 0, running.errors
