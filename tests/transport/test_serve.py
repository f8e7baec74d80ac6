"""Requests that a peer sends down our connection: Java's brokers do, uninvited."""

from __future__ import annotations

import logging

import pytest

from rmqcli.errors import DisconnectedError
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand, encode_command
from tests.transport.peer import Peer, PeerConnection

PULL = RemotingCommand(11)
#: a broker's own number, which may equal one of ours
RUNNING_INFO = RemotingCommand(307, opaque=1, ext_fields={"consumerGroup": "g"})


def asking(*requests: RemotingCommand, answers: list[RemotingCommand]):
    """A peer that asks before it answers, and keeps what it is told."""

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


def test_a_peer_that_asks_and_takes_no_answers_is_left():
    """Answers that pile up are bounded as requests are."""
    options = TransportOptions(queued_bytes_max=1 << 20)

    def flood(connection: PeerConnection) -> None:
        connection.answer(connection.read())
        question = encode_command(RemotingCommand(307)) * 100
        while True:
            connection.send(question)

    with Peer(flood) as peer, RemotingClient(options) as client:
        client.set_request_handler(lambda *_: RemotingCommand(0, body=bytes(100_000)))
        client.invoke(peer.address, PULL, timeout_ms=5000)
        with pytest.raises(DisconnectedError, match="wait to be sent"):
            client.invoke(peer.address, PULL, timeout_ms=20_000)
