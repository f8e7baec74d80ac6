"""`Sender` through a proxy that is away: it waits, says so, and loses nothing."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pytest

from rmqcli.config import ClientConfig
from rmqcli.producer.message import OutgoingMessage
from rmqcli.producer.patience import Outages
from rmqcli.producer.proxy.send import ProxySend
from rmqcli.producer.send import Sender
from rmqcli.proxy.session import PRODUCER, Session
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


@contextmanager
def sender_to(proxy, say, *, retry_for_ms=None):
    """A Sender that waits for `retry_for_ms`, or else for six minutes."""
    config = ClientConfig(
        endpoints=(proxy.endpoints,), plaintext=True, timeout_ms=60_000
    )
    rng = random.Random(0)
    session = Session(config, client_type=PRODUCER, rng=rng)
    try:
        network = ProxySend(session, "orders", rng=rng)
        if retry_for_ms is not None:
            network.outages = Outages(
                session.clock, places=1, retry_for_ms=retry_for_ms
            )
        network.prepare()
        yield Sender(network, say=say)
    finally:
        session.close()


def numbered(first, last):
    return (OutgoingMessage(b"%d" % n) for n in range(first, last))


def stored(proxy):
    """The bodies of the calls that the proxy answered with OK."""
    return [
        int(each.body)
        for request in proxy.asked("SendMessage")
        for each in request.messages
    ]


def test_a_proxy_that_restarts_is_waited_for_and_each_message_is_stored_once(proxy):
    notes = []

    def say(note):
        notes.append(note)
        if "retrying" in note:
            proxy.start()

    def messages():
        yield from numbered(0, 100)
        yield None
        proxy.stop()
        yield from numbered(100, 300)

    with sender_to(proxy, say) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert len(outcomes) == 300
    statuses = [each.status for each in outcomes]
    done = {n for n, status in enumerate(statuses) if status == "SEND_OK"}
    unknown = {n for n, status in enumerate(statuses) if status == "UNKNOWN"}
    assert done | unknown == set(range(300))
    assert done <= set(stored(proxy))
    assert len(set(stored(proxy))) == len(stored(proxy))
    gone, back = notes
    assert gone.startswith(f"{proxy.endpoints}: ")
    assert gone.endswith("; retrying for up to 6m")
    assert back == f"{proxy.endpoints} is back; continuing"


def test_a_broker_that_restarts_behind_a_proxy_is_waited_for(proxy):
    """The proxy answers that its broker is too busy, or not there."""
    answered = []
    notes: list[str] = []

    def answer(request, _context):
        answered.append(1)
        if 1 < len(answered) <= 8:
            code = "TOO_MANY_REQUESTS"
            return service.SendMessageResponse(status=status(code))
        found = service.SendMessageResponse(status=OK)
        for _ in request.messages:
            found.entries.add(status=OK)
        return found

    def messages():
        yield from numbered(0, 1)
        yield None
        yield from numbered(1, 50)

    proxy.answers["SendMessage"] = answer
    with sender_to(proxy, notes.append) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert {each.status for each in outcomes} == {"SEND_OK"}
    assert notes[-1] == f"{proxy.endpoints} is back; continuing"
    assert len(notes) == 2


def test_a_proxy_that_stays_away_is_given_up(proxy):
    read = []

    def messages():
        yield from numbered(0, 10)
        yield None
        proxy.stop()
        while True:
            read.append(1)
            yield OutgoingMessage(b"10")

    with sender_to(proxy, lambda _note: None, retry_for_ms=50) as sender:
        outcomes = [each for some in sender.send(messages()) for each in some]
    assert [each.status for each in outcomes[:10]] == ["SEND_OK"] * 10
    assert not {each.status for each in outcomes[10:]} & {"SEND_OK"}
    assert len(outcomes) == 10 + len(read)
