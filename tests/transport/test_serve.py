"""Requests that a peer sends over our connection, as Java's brokers do."""

from __future__ import annotations

import logging

import pytest

from rmqcli.errors import DisconnectedError
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand, encode_command
from tests.transport.peer import Peer, PeerConnection

PULL = RemotingCommand(11)
#: a broker's request, whose opaque may equal that of one of our requests
RUNNING_INFO = RemotingCommand(307, opaque=1, ext_fields={"consumerGroup": "g"})


def asking(*requests: RemotingCommand, answers: list[RemotingCommand]):
    """Return a script that sends requests before it answers, and keeps the answers."""

    def script(connection: PeerConnection) -> None:
        first = connection.read()
        for request in requests:
            connection.send(encode_command(request))
            if not request.is_oneway:
                answers.append(connection.read())
        connection.answer(first)
        connection.until_closed()

    return script


def test_a_handler_sees_the_request_and_its_answer_goes_back(client):
    seen: list[tuple[str, int, dict[str, str]]] = []
    answers: list[RemotingCommand] = []

    def handle(address, command):
        seen.append((address, command.code, command.ext_fields))
        return RemotingCommand(0, body=b"{}", opaque=999)

    client.set_request_handler(handle)
    with Peer(asking(RUNNING_INFO, answers=answers)) as peer:
        answer = client.invoke(peer.address, PULL, timeout_ms=5000)

        assert answer.code == 0
        assert seen == [(peer.address, 307, {"consumerGroup": "g"})]
    assert [(a.code, a.opaque, a.flag, a.body) for a in answers] == [(0, 1, 1, b"{}")]


def test_without_a_handler_the_answer_is_code_3(client):
    answers: list[RemotingCommand] = []
    with Peer(asking(RUNNING_INFO, answers=answers)) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    assert [(a.code, a.remark) for a in answers] == [
        (3, "request code 307 is not supported")
    ]


@pytest.mark.injects_exceptions
def test_a_handler_that_raises_answers_code_1_and_is_logged(client, caplog):
    answers: list[RemotingCommand] = []

    def handle(address, command):
        raise LookupError("no such group")

    client.set_request_handler(handle)
    with Peer(asking(RUNNING_INFO, answers=answers)) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    assert [(a.code, a.remark) for a in answers] == [(1, "LookupError: no such group")]
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is not None


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("outcome", ["answers", "raises"])
def test_a_oneway_request_is_never_answered(client, outcome):
    seen: list[int] = []
    answers: list[RemotingCommand] = []
    notify = RemotingCommand(40, flag=ONEWAY_FLAG, opaque=5)

    def handle(address, command):
        seen.append(command.code)
        if command.is_oneway and outcome == "raises":
            raise LookupError
        return RemotingCommand(0)

    client.set_request_handler(handle)
    with Peer(asking(notify, RUNNING_INFO, answers=answers)) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    assert seen == [40, 307]
    assert [a.opaque for a in answers] == [1], "only the one that is not oneway"


def test_a_handler_may_answer_nothing(client):
    client.set_request_handler(lambda address, command: None)
    answers: list[RemotingCommand] = []
    with Peer(asking(RemotingCommand(40, flag=ONEWAY_FLAG), answers=answers)) as peer:
        client.invoke(peer.address, PULL, timeout_ms=5000)

    assert answers == []
    assert client.counters.peer_requests == 1


def test_a_handler_may_answer_later(client):
    later = []
    client.set_request_handler(
        lambda address, command: later.append(client.answer_later(command.opaque))
    )
    answers: list[RemotingCommand] = []
    with Peer(asking(RUNNING_INFO, answers=answers)) as peer:
        reply = client.submit(peer.address, PULL, timeout_ms=5000)
        while not later:
            client.poll(5000)
        later[0](RemotingCommand(0, body=b"{}", opaque=999))
        client.wait([reply])

    assert [(a.code, a.opaque, a.flag, a.body) for a in answers] == [(0, 1, 1, b"{}")]


def test_only_a_handler_may_promise_an_answer(client):
    client.set_request_handler(lambda address, command: None)
    with Peer(asking(RemotingCommand(40, flag=ONEWAY_FLAG), answers=[])) as peer:
        with pytest.raises(RuntimeError, match="only the request handler"):
            client.answer_later(1)
        client.invoke(peer.address, PULL, timeout_ms=5000)
        with pytest.raises(RuntimeError, match="only the request handler"):
            client.answer_later(1)


@pytest.mark.parametrize("when", ["after the end", "on the next connection"])
def test_a_later_answer_is_dropped_if_its_connection_has_ended(when, caplog):
    caplog.set_level(logging.INFO)
    later = []
    client = RemotingClient(TransportOptions(queued_bytes_max=1 << 20))
    client.set_request_handler(
        lambda address, command: later.append(client.answer_later(command.opaque))
    )
    received: list[int] = []

    def script(connection: PeerConnection) -> None:
        first = connection.read()
        if not later:
            connection.send(encode_command(RUNNING_INFO))
            connection.answer(first)
            return  # closes the connection
        connection.answer(first)
        for request in connection.requests():
            received.append(request.code)
            connection.answer(request, body=b"")

    with Peer(script) as peer, client:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        until_disconnected(client, caplog)
        if when == "after the end":
            later[0](RemotingCommand(0))
            client.poll(0)
            assert peer.accepted == 1, "no connection is made for the answer"
        assert client.invoke(peer.address, PULL, timeout_ms=5000).code == 0
        if when == "on the next connection":
            later[0](RemotingCommand(0))
            client.poll(0)
        # There is room for a request above the limit only if no byte waits.
        more = RemotingCommand(310, body=bytes(2 << 20))
        assert client.invoke(peer.address, more, timeout_ms=60_000).code == 0

    assert received == [310]


def test_answers_that_were_not_sent_are_dropped_with_their_connection(caplog):
    """The first answer fills the socket, so that the second one waits."""
    caplog.set_level(logging.INFO)
    client = RemotingClient(TransportOptions(queued_bytes_max=13 << 20))
    sizes = iter([12 << 20, 1 << 19])
    client.set_request_handler(lambda *_: RemotingCommand(0, body=bytes(next(sizes))))
    firsts: list[RemotingCommand] = []

    def script(connection: PeerConnection) -> None:
        firsts.append(connection.read())
        if len(firsts) == 1:
            connection.answer(firsts[0])
            connection.send(encode_command(RUNNING_INFO) * 2)
            connection.sock.recv(1)
            connection.reset()
        else:
            connection.answer(firsts[1])
            connection.until_closed()

    with Peer(script) as peer, client:
        client.invoke(peer.address, PULL, timeout_ms=5000)
        until_disconnected(client, caplog)
        # There is room for a request above the limit only if no byte waits.
        more = RemotingCommand(PULL.code, body=bytes(14 << 20))
        assert client.invoke(peer.address, more, timeout_ms=60_000).code == 0

    assert [each.code for each in firsts] == [PULL.code, PULL.code]


def until_disconnected(client: RemotingClient, caplog: pytest.LogCaptureFixture):
    """Drive the client until it has noticed that the peer closed the connection."""
    while "disconnected address=" not in caplog.text:
        client.poll(50)


def test_a_peer_that_asks_and_takes_no_answers_is_left():
    """Unsent answers are bounded in the same way as unsent requests."""
    options = TransportOptions(queued_bytes_max=1 << 20)

    def flood(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        connection.read()  # never answered
        question = encode_command(RemotingCommand(307)) * 100
        while True:
            connection.send(question)

    with Peer(flood) as peer, RemotingClient(options) as client:
        client.set_request_handler(lambda *_: RemotingCommand(0, body=bytes(100_000)))
        client.invoke(peer.address, PULL, timeout_ms=5000)
        with pytest.raises(DisconnectedError, match="send queue of"):
            client.invoke(peer.address, PULL, timeout_ms=20_000)


def test_a_flood_of_requests_does_not_keep_a_turn_from_ending():
    """A consumer's deadlines, those of its close too, are looked at between turns."""
    question = encode_command(RemotingCommand(40, flag=ONEWAY_FLAG))

    def flood(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        while True:
            connection.send(question * 20_000)

    seen: list[int] = []
    most = 0
    with Peer(flood) as peer, RemotingClient(TransportOptions()) as client:
        client.set_request_handler(lambda _, command: seen.append(command.code))
        client.invoke(peer.address, PULL, timeout_ms=20_000)
        while len(seen) < 40_000:
            before = len(seen)
            client.poll(1_000)
            most = max(most, len(seen) - before)
    assert most * len(question) <= 512 * 1024
