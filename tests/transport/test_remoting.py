"""Requests and their answers over one connection, in any order, within deadlines."""

from __future__ import annotations

import logging
import selectors
import signal
import threading
import tracemalloc

import pytest

from rmqcli.errors import (
    DeadlineError,
    DisconnectedError,
    FrameError,
    TransportError,
    UsageError,
)
from rmqcli.testing import ManualClock
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import PendingReply, RemotingClient
from rmqcli.wire.acl import Credentials
from rmqcli.wire.command import RemotingCommand, encode_command
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, PeerConnection, answer_to, silent

PULL = RemotingCommand(11, ext_fields={"topic": "T"}, body=b"body")


def test_invoke_returns_the_answer(client):
    with Peer() as peer:
        answer = client.invoke(peer.address, PULL, timeout_ms=5000)

        assert (answer.code, answer.ext_fields, answer.body) == (
            0,
            {"topic": "T"},
            b"body",
        )


def test_an_error_code_is_an_answer(client):
    def refuse(connection: PeerConnection) -> None:
        connection.answer(connection.read(), code=17, remark="No topic route")

    with Peer(refuse) as peer:
        answer = client.invoke(peer.address, PULL, timeout_ms=5000)

        assert (answer.code, answer.remark) == (17, "No topic route")


def test_requests_share_a_connection_and_may_be_answered_backwards(client):
    def backwards(connection: PeerConnection) -> None:
        requests = [connection.read() for _ in range(100)]
        connection.send(
            b"".join(encode_command(answer_to(r)) for r in reversed(requests))
        )
        connection.until_closed()

    with Peer(backwards) as peer:
        commands = [RemotingCommand(11, body=b"%d" % i) for i in range(100)]
        replies = [client.submit(peer.address, c, timeout_ms=5000) for c in commands]

        assert client.wait(replies)
        assert [r.result().body for r in replies] == [b"%d" % i for i in range(100)]
        assert peer.accepted == 1


def test_bodies_of_megabytes_travel(client):
    body = bytes(range(256)) * 16 * 1024
    with Peer() as peer:
        command = RemotingCommand(310, ext_fields={"k": "ü"}, body=body)
        replies = [
            client.submit(peer.address, command, timeout_ms=20_000) for _ in range(4)
        ]
        client.wait(replies)

        assert all(r.result().body == body for r in replies)
        assert replies[0].result().ext_fields == {"k": "ü"}


def test_nothing_happens_before_the_client_is_driven(client):
    with Peer() as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=5000)

        assert not reply.is_done
        with pytest.raises(RuntimeError, match="no result yet"):
            reply.result()
        client.wait([reply])
        assert reply.is_done


def test_callbacks_are_called_once_and_may_submit(client):
    seen: list[bytes] = []

    def again(reply):
        seen.append(reply.result().body)
        if len(seen) < 5:
            command = RemotingCommand(11, body=b"%d" % len(seen))
            client.submit(peer.address, command, timeout_ms=5000).on_done(again)

    with Peer() as peer:
        client.submit(peer.address, PULL, timeout_ms=5000).on_done(again)
        while len(seen) < 5:
            client.poll(1000)

    assert seen == [b"body", b"1", b"2", b"3", b"4"]


def test_what_a_callback_submits_leaves_in_the_same_turn(client):
    """Its peer works on it while the caller of the turn is busy, as with a listener."""
    arrived = threading.Event()

    def answer_first(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        connection.read()
        arrived.set()
        connection.until_closed()

    with Peer(answer_first) as peer:

        def again(_reply):
            client.submit(peer.address, PULL, timeout_ms=60_000)

        first = client.submit(peer.address, PULL, timeout_ms=60_000)
        first.on_done(again)
        while not first.is_done:
            client.poll(1000)

        assert arrived.wait(PATIENCE_S)


def test_a_callback_cannot_wait(client):
    caught: list[str] = []

    def wait(reply):
        try:
            client.poll(0)
        except RuntimeError as error:
            caught.append(str(error))

    with Peer() as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=5000)
        reply.on_done(wait)
        client.wait([reply])

    assert caught == ["a callback may submit requests, but not wait for them"]


def test_a_thread_that_uses_the_client_of_another_is_told_so(client):
    """It was told that a callback must not wait, although it was none."""
    caught = []

    def use():
        try:
            client.poll(0)
        except UsageError as error:
            caught.append((error.message, error.hint))

    def wait(_reply):
        other = threading.Thread(target=use)
        other.start()
        other.join()

    with Peer() as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=5000)
        reply.on_done(wait)
        client.wait([reply])

    assert caught == [
        (
            "another thread is using this client",
            "give each thread a client of its own",
        )
    ]


def test_what_a_callback_raises_comes_out_and_spares_the_others(client):
    done: list[int] = []

    def burst(connection: PeerConnection) -> None:
        requests = [connection.read() for _ in range(3)]
        connection.send(b"".join(encode_command(answer_to(r)) for r in requests))
        connection.until_closed()

    def fail(reply):
        done.append(reply.opaque)
        if len(done) == 1:
            raise ZeroDivisionError

    with Peer(burst) as peer:
        replies = [client.submit(peer.address, PULL, timeout_ms=5000) for _ in range(3)]
        for reply in replies:
            reply.on_done(fail)
        with pytest.raises(ZeroDivisionError):
            client.wait(replies)
        client.wait(replies)

    assert done == [1, 2, 3]


def test_silence_ends_with_a_deadline_error_that_names_request_and_peer(client):
    with Peer(silent) as peer:
        with pytest.raises(DeadlineError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=30)

        assert caught.value.message == (
            f"no answer from {peer.address} to PULL_MESSAGE in 30 ms"
        )
        assert caught.value.retriable


def test_a_late_answer_is_dropped_and_counted(client):
    expired = threading.Event()

    def late(connection: PeerConnection) -> None:
        first = connection.read()
        expired.wait(PATIENCE_S)
        connection.answer(first, body=b"late")
        connection.answer(connection.read(), body=b"in time")
        connection.until_closed()

    with Peer(late) as peer:
        with pytest.raises(DeadlineError):
            client.invoke(peer.address, PULL, timeout_ms=30)
        expired.set()
        answer = client.invoke(peer.address, PULL, timeout_ms=5000)

        assert answer.body == b"in time"
        assert client.counters.late_answers == 1
        assert client.counters.unknown_answers == 0
        assert peer.accepted == 1


def test_answers_to_no_request_are_counted_and_do_no_harm(client):
    def chatty(connection: PeerConnection) -> None:
        request = connection.read()
        for opaque in (-1, 0, request.opaque + 1, 77_777, 0x7FFFFFFF):
            connection.answer(request, opaque=opaque)
        for _ in range(3):
            connection.answer(request)
        connection.answer(connection.read())
        connection.until_closed()

    with Peer(chatty) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        client.invoke(peer.address, PULL, timeout_ms=5000)

        assert client.counters.unknown_answers == 5
        assert client.counters.late_answers == 2


def test_request_numbers_begin_again_before_they_pass_31_bits(client):
    """RocketMQ reads `opaque` as an int: after 2^31 requests 1 follows."""
    numbers: list[int] = []

    def script(connection: PeerConnection) -> None:
        for request in connection.requests():
            numbers.append(request.opaque)
            connection.answer(request)

    client._loop.next_opaque = 2**31 - 2
    with Peer(script) as peer:
        for _ in range(4):
            client.invoke(peer.address, PULL, timeout_ms=5000)

    assert numbers == [2**31 - 2, 2**31 - 1, 1, 2]


def test_a_oneway_request_is_sent_and_its_answer_ignored(client):
    received: list[RemotingCommand] = []

    def script(connection: PeerConnection) -> None:
        oneway = connection.read()
        received.append(oneway)
        connection.answer(oneway)
        connection.answer(connection.read())
        connection.until_closed()

    with Peer(script) as peer:
        client.send_oneway(peer.address, RemotingCommand(35, body=b"bye"))
        client.invoke(peer.address, PULL, timeout_ms=5000)

        assert received[0].is_oneway
        assert not received[0].is_response
        assert received[0].body == b"bye"
        assert client.counters.late_answers == 1


def test_close_sends_what_is_queued_on_an_open_connection(client):
    got = threading.Event()

    def script(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        assert connection.read().code == 35
        got.set()

    with Peer(script) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        client.send_oneway(peer.address, RemotingCommand(35))
        client.close()

        assert got.wait(PATIENCE_S)


def test_close_sends_what_takes_many_turns(client):
    received: list[int] = []

    def script(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        received.extend(len(request.body) for request in connection.requests())
        is_read.set()

    is_read = threading.Event()
    with Peer(script) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        for _ in range(4):
            client.send_oneway(peer.address, RemotingCommand(35, body=bytes(8 << 20)))
        client.close(timeout_ms=60_000)

        assert is_read.wait(PATIENCE_S)
    assert received == [8 << 20] * 4


@pytest.mark.parametrize("where", ["outside", "in a callback"])
def test_close_gives_up_what_the_peer_does_not_read(client, where):
    """Its time is what it was given, also if the turn of the callback closes."""
    over = threading.Event()

    def script(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        assert over.wait(PATIENCE_S)

    with Peer(script) as peer:
        first = client.submit(peer.address, PULL, timeout_ms=5000)
        if where == "in a callback":
            first.on_done(lambda _: client.close(timeout_ms=10))
        large = client.submit(
            peer.address, RemotingCommand(310, body=bytes(15 << 20)), timeout_ms=60_000
        )
        client.wait([first])
        client.close(timeout_ms=10)
        over.set()

        with pytest.raises(DisconnectedError, match="was closed before") as caught:
            large.result()
        assert caught.value.address == peer.address


def test_close_fails_what_waits_and_refuses_more(client):
    with Peer(silent) as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=60_000)
        client.poll(0)
        client.close()
        client.close()

        with pytest.raises(DisconnectedError, match="client was closed before"):
            reply.result()
        with pytest.raises(DisconnectedError, match="client is closed"):
            client.submit(peer.address, PULL, timeout_ms=5000)
        assert client.wait([reply])
        assert client.poll(10) == 0


class InterruptedSelector(selectors.DefaultSelector):
    """Acts as if Ctrl-C were pressed while a socket is registered."""

    def register(self, fileobj, events, data=None):
        raise KeyboardInterrupt


def test_close_works_after_an_interrupt_before_the_waker_was_registered(client):
    client._loop._selector.close()
    client._loop._selector = InterruptedSelector()
    with pytest.raises(KeyboardInterrupt):
        client.let_wake(bool)
    client.close()


def test_close_works_after_an_interrupt_before_a_connection_was_registered(client):
    client._loop._selector.close()
    client._loop._selector = InterruptedSelector()
    with Peer() as peer, pytest.raises(KeyboardInterrupt):
        client.invoke(peer.address, PULL, timeout_ms=5000)
    client.close()


class InterruptedClose(selectors.DefaultSelector):
    """Acts as if Ctrl-C were pressed after a socket is no longer registered."""

    def unregister(self, fileobj):
        super().unregister(fileobj)
        raise KeyboardInterrupt


def test_close_works_after_an_interrupt_of_a_close(client):
    client._loop._selector.close()
    client._loop._selector = InterruptedClose()
    with Peer(silent) as peer:
        client.submit(peer.address, PULL, timeout_ms=60_000)
        with pytest.raises(KeyboardInterrupt):
            client.wait([client.submit(peer.address, PULL, timeout_ms=60_000)])
        client.close()


def test_close_from_a_callback_ends_the_client(client):
    with Peer() as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=5000)
        reply.on_done(lambda _: client.close())
        client.wait([reply])

        assert reply.result().body == b"body"
        with pytest.raises(DisconnectedError):
            client.submit(peer.address, PULL, timeout_ms=5000)


def test_waiting_for_a_reply_of_another_client_is_refused(client):
    with Peer() as peer, RemotingClient() as other:
        reply = other.submit(peer.address, PULL, timeout_ms=5000)

        with pytest.raises(RuntimeError, match="not of this client"):
            client.wait([reply])


def test_ctrl_c_ends_a_wait_at_once(client):
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(connection: PeerConnection) -> None:
        connection.read()
        signal.pthread_kill(main, signal.SIGINT)
        connection.until_closed()

    with Peer(interrupt) as peer:
        with pytest.raises(KeyboardInterrupt):
            client.invoke(peer.address, PULL, timeout_ms=60_000)
        with Peer() as other:
            assert client.invoke(other.address, PULL, timeout_ms=5000).code == 0


def test_wait_may_end_before_the_replies_do(client):
    with Peer(silent) as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=60_000)

        assert not client.wait([reply], timeout_ms=20)
        assert not reply.is_done


def test_bad_addresses_and_commands_are_refused_at_once(client):
    with pytest.raises(UsageError):
        client.submit("no-port", PULL, timeout_ms=5000)
    with pytest.raises(FrameError):
        client.submit(
            "127.0.0.1:1", RemotingCommand(11, body=bytes(1 << 24)), timeout_ms=5000
        )


def test_what_waits_to_be_sent_is_bounded():
    command = RemotingCommand(310, body=bytes(400 << 10))
    limit = 3 * len(encode_command(command, opaque=1))
    with Peer() as peer:
        with RemotingClient(TransportOptions(queued_bytes_max=limit)) as client:
            replies = [
                client.submit(peer.address, command, timeout_ms=60_000)
                for _ in range(3)
            ]
            with pytest.raises(TransportError, match="send queue of"):
                client.submit(peer.address, PULL, timeout_ms=60_000)
            client.wait(replies)
            # Nothing waits any more, and then one request may be larger.
            large = RemotingCommand(310, body=bytes(limit))
            assert client.invoke(peer.address, large, timeout_ms=60_000).code == 0
        with RemotingClient(TransportOptions(queued_bytes_max=limit - 1)) as client:
            for _ in range(2):
                client.submit(peer.address, command, timeout_ms=60_000)
            with pytest.raises(TransportError, match="send queue of"):
                client.submit(peer.address, command, timeout_ms=60_000)


def test_what_waits_is_not_copied_as_a_whole(client):
    """A chunk of it is joined for each call of the system."""
    got_all = threading.Event()

    def script(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        for _ in range(200):
            connection.read()
        got_all.set()
        connection.until_closed()

    with Peer(script) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        for _ in range(200):
            client.send_oneway(peer.address, RemotingCommand(310, body=bytes(100_000)))
        tracemalloc.start()
        try:
            client.poll(0)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 2 << 20
        while not got_all.is_set():
            client.poll(10)


def test_with_credentials_every_request_is_signed(caplog):
    caplog.set_level(logging.DEBUG)
    credentials = Credentials("key", "canary-secret")
    options = TransportOptions(credentials=credentials)
    with Peer() as peer, RemotingClient(options) as client:
        answer = client.invoke(peer.address, PULL, timeout_ms=5000)

        assert client.invoke(peer.address, PULL, timeout_ms=5000).opaque == 2

    assert answer.opaque == 1
    assert answer.ext_fields["AccessKey"] == "key"
    assert answer.ext_fields["topic"] == "T"
    assert "Signature" in answer.ext_fields
    assert "Signature" not in PULL.ext_fields
    assert "canary-secret" not in repr(options) + caplog.text


def test_a_deadline_does_not_run_while_the_client_is_not_driven():
    """As when `rmq tail | less` stops for a minute while answers wait in the socket."""
    clock = ManualClock()
    sent = threading.Event()

    def script(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        sent.set()
        connection.until_closed()

    with Peer(script) as peer, RemotingClient(clock=clock) as client:
        reply = client.submit(peer.address, PULL, timeout_ms=3000)
        while not sent.is_set():
            client.poll(0)
        clock.now_ms += 60_000
        client.wait([reply])

        assert reply.result().body == b"body"


def test_a_deadline_runs_while_the_client_is_driven():
    clock = ManualClock()
    with (
        Peer(silent) as peer,
        RemotingClient(clock=clock) as client,
    ):
        reply = client.submit(peer.address, PULL, timeout_ms=3000)
        while client.counters.connections == 0:
            client.poll(0)
        for _ in range(30):
            assert not reply.is_done
            clock.now_ms += 100
            client.poll(0)

        assert isinstance(reply.outcome(), DeadlineError)


def test_a_request_that_was_refused_has_no_number_yet(client):
    reply: PendingReply[RemotingCommand]
    reply = PendingReply("no address", PULL.code, 5000)
    with pytest.raises(UsageError):
        client.post(reply, PULL)
    assert reply.opaque == 0
    assert not reply.is_done
