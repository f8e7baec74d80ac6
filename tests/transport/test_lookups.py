"""Host names are looked up without blocking the I/O, even if look-ups are slow."""

from __future__ import annotations

import socket
import threading

import pytest

from rmqcli.errors import ConnectError
from rmqcli.testing import ManualClock
from rmqcli.transport import lookups
from rmqcli.transport.address import parse_address
from rmqcli.transport.lookups import local_ip, look_up_within
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.transport.peer import Peer, echo

PULL = RemotingCommand(11, body=b"body")


class Names:
    """Replaces getaddrinfo: look-ups of `*.test` do not return before `gate` is set."""

    def __init__(self, monkeypatch):
        self.gate = threading.Event()
        self.asked: list[str] = []
        self._lock = threading.Lock()
        self.at_once = 0
        self.at_once_max = 0
        #: if set, each look-up takes one of them before it returns
        self.turns: threading.Semaphore | None = None
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host, port, *args, **options):
        name = host.decode()
        if not name.endswith(".test"):
            return self._system(host, port, *args, **options)
        with self._lock:
            self.asked.append(name)
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            assert self.gate.wait(60) if self.turns is None else self.turns.acquire()
        finally:
            with self._lock:
                self.at_once -= 1
        if name.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._system("127.0.0.1", port, *args, **options)


@pytest.fixture
def names(monkeypatch):
    names = Names(monkeypatch)
    yield names
    names.gate.set()
    if names.turns is not None:
        names.turns.release(99)
    for each in threading.enumerate():
        if each.name == "rmq-lookup":
            each.join(20)


@pytest.fixture
def quick_client():
    options = TransportOptions(connect_timeout_ms=300)
    with RemotingClient(options) as client:
        yield client


def test_a_slow_look_up_holds_up_no_other_peer(names):
    with Peer(echo) as peer, RemotingClient() as client:
        port = peer.address.rpartition(":")[2]
        slow = client.submit(f"slow.test:{port}", PULL, timeout_ms=60_000)
        for _ in range(20):
            assert client.invoke(peer.address, PULL, timeout_ms=60_000).body == b"body"
        assert not slow.is_done
        names.gate.set()
        client.wait([slow])
        assert slow.result().body == b"body"


def test_a_slow_look_up_does_not_block_the_caller_of_poll(names):
    with RemotingClient() as client:
        slow = client.submit("slow.test:1", PULL, timeout_ms=60_000)
        client.poll(1)
        assert not slow.is_done


def test_an_answer_ends_the_wait_of_a_turn(names):
    """Otherwise the answer would be noticed only at the next timer, much later."""
    with Peer(echo) as peer, RemotingClient() as client:
        port = peer.address.rpartition(":")[2]
        slow = client.submit(f"slow.test:{port}", PULL, timeout_ms=3_600_000)
        threading.Timer(0.2, names.gate.set).start()
        assert client.wait([slow], timeout_ms=60_000)
        assert slow.result().body == b"body"


def test_a_name_is_looked_up_once_for_all_requests(names):
    names.gate.set()
    with Peer(echo) as peer, RemotingClient() as client:
        address = f"once.test:{peer.address.rpartition(':')[2]}"
        replies = [client.submit(address, PULL, timeout_ms=20_000) for _ in range(9)]
        client.wait(replies)
        client.invoke(address, PULL, timeout_ms=20_000)
    assert names.asked == ["once.test"]


def test_a_look_up_without_an_answer_has_a_deadline(names, quick_client):
    for _ in range(2):
        with pytest.raises(ConnectError, match=r"no address for 'never.test'.*300 ms"):
            quick_client.invoke("never.test:1", PULL, timeout_ms=60_000)
    assert names.asked == ["never.test"]  # the second waits for the first one's thread


def test_a_request_that_ends_during_the_look_up_names_the_host_and_its_timeout(names):
    reason = r"no address for 'never\.test': the name was not resolved within 50 ms"
    with RemotingClient() as client, pytest.raises(ConnectError, match=reason):
        client.invoke("never.test:1", PULL, timeout_ms=50)


def test_a_look_up_ends_in_the_millisecond_of_its_deadline(names):
    clock = ManualClock()
    options = TransportOptions(connect_timeout_ms=100)
    with RemotingClient(options, clock=clock) as client:
        reply = client.submit("never.test:1", PULL, timeout_ms=60_000)
        client.poll(0)
        clock.advance(99)
        client.poll(0)
        assert not reply.is_done
        clock.advance(1)
        client.poll(0)
        assert isinstance(reply.outcome(), ConnectError)


def test_a_name_that_is_not_known_is_an_error_and_looked_up_again(names):
    names.gate.set()
    with RemotingClient() as client:
        for _ in range(2):
            with pytest.raises(ConnectError, match="name or service not known"):
                client.invoke("unknown.test:1", PULL, timeout_ms=60_000)
    assert names.asked == ["unknown.test"] * 2


def test_never_more_look_ups_at_once_than_threads(names):
    with RemotingClient() as client:
        replies = [
            client.submit(f"unknown-{n}.test:1", PULL, timeout_ms=60_000)
            for n in range(30)
        ]
        client.poll(1)
        names.gate.set()
        client.wait(replies)
    assert len(names.asked) == 30
    assert names.at_once_max <= lookups.THREADS_MAX


def test_each_look_up_that_ends_makes_room_for_one(names):
    names.turns = threading.Semaphore(0)
    with RemotingClient() as client:
        replies = [
            client.submit(f"unknown-{n}.test:1", PULL, timeout_ms=PATIENCE_S * 1_000)
            for n in range(9)
        ]
        for done in range(9):
            at_once = min(lookups.THREADS_MAX, 9 - done)
            wait_until(
                lambda at_once=at_once: client.poll(0) or names.at_once == at_once
            )
            assert len(names.asked) == done + at_once
            names.turns.release()
            wait_until(
                lambda done=done: (
                    client.poll(0) or sum(each.is_done for each in replies) == done + 1
                )
            )
    assert names.at_once_max == lookups.THREADS_MAX


def test_a_client_is_closed_while_it_looks_up(names):
    client = RemotingClient()
    slow = client.submit("slow.test:1", PULL, timeout_ms=60_000)
    client.poll(1)
    client.close()
    assert slow.is_done
    # A program that ends does not wait for the system's resolver.
    (thread,) = [each for each in threading.enumerate() if each.name == "rmq-lookup"]
    assert thread.daemon
    names.gate.set()


def test_a_machine_without_threads_for_look_ups_says_so(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with RemotingClient() as client:
        for name in [f"host-{number}.test" for number in range(9)] * 2:
            with pytest.raises(ConnectError) as caught:
                client.invoke(f"{name}:1", PULL, timeout_ms=60_000)
            assert caught.value.message == (
                f"cannot connect to {name}:1: no address for '{name}':"
                " can't start new thread"
            )
    with pytest.raises(ConnectError) as caught:
        look_up_within(parse_address("host.test:1"), 60_000)
    assert caught.value.message == (
        "cannot connect to host.test:1: no address for 'host.test':"
        " the name was not resolved within 60000 ms"
    )


def test_a_name_is_looked_up_again_only_after_it_could_not_be_reached(names):
    names.gate.set()
    left = threading.Event()

    def answer_once(connection):
        connection.answer(connection.read())
        connection.close()
        left.set()

    with Peer(answer_once) as peer, RemotingClient() as client:
        address = f"kept.test:{peer.port}"
        for accepted in (1, 2):
            client.invoke(address, PULL, timeout_ms=60_000)
            assert peer.accepted == accepted
            assert left.wait(PATIENCE_S)
            left.clear()
            client.poll(0)  # notices the end
        assert names.asked == ["kept.test"]
    with RemotingClient() as client:
        for _ in range(2):
            with pytest.raises(ConnectError):
                client.invoke(address, PULL, timeout_ms=60_000)
    assert names.asked == ["kept.test"] * 3


def test_our_own_address_is_that_of_the_first_family_with_a_route(monkeypatch):
    places = [
        (9999, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    assert local_ip("two.test:9876") == "127.0.0.1"
    places.pop()
    assert local_ip("one.test:9876") is None


def test_our_own_address_is_not_waited_for(names, monkeypatch):
    monkeypatch.setattr("rmqcli.transport.lookups.LOOK_UP_MS", 50)
    assert local_ip("slow.test:9876") is None
    names.gate.set()
    assert local_ip("quick.test:9876") == "127.0.0.1"
