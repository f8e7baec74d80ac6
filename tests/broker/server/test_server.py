"""The server: answers in order, bounds for hostile clients, and a clean end."""

from __future__ import annotations

import errno
import struct
import threading
import time

import pytest

from rmqcli.broker.faults import (
    Faults,
    answer,
    corrupt,
    delay,
    disconnect,
    drop_answer,
    drop_request,
    reorder,
)
from rmqcli.broker.server import server as server_module
from rmqcli.broker.server.connection import ServerLimits
from rmqcli.broker.server.server import Server, open_listener
from rmqcli.errors import ConnectError, FrameError, HeaderError, RmqError
from rmqcli.store.message_store import StoreError
from rmqcli.testing import ManualClock
from rmqcli.wire.command import RemotingCommand, encode_command
from rmqcli.wire.frame import FRAME_LENGTH_MAX, SerializeType
from tests.broker.server.echo_core import BIG, BOOM, BYE, ECHO, LATER, EchoCore
from tests.broker.wire_client import WireClient
from tests.kit.waiting import wait_until

ONEWAY = 2


class Running:
    """A server with one echoing core on a free port."""

    def __init__(self, **options):
        self.faults = Faults()
        self.server = Server(**options)
        self.core = EchoCore()
        self.port = self.server.open(
            "broker-a", host="127.0.0.1", port=0, faults=self.faults
        )
        self.port.core = self.core
        self.server.start()

    def connect(self):
        return WireClient(self.port.address)

    def connections(self):
        return self.server.call(lambda: len(self.port.connections))


@pytest.fixture
def start():
    started = []

    def start(**options):
        started.append(Running(**options))
        return started[-1]

    yield start
    for running in started:
        running.server.close()


@pytest.fixture
def running(start):
    return start()


def test_answers_come_in_the_order_of_the_requests(running):
    with running.connect() as client:
        opaques = [client.send(ECHO, body=b"%d" % n) for n in range(500)]
        answers = [client.receive() for _ in opaques]
    assert [a.opaque for a in answers] == opaques
    assert answers[7].body == b"7"


def test_a_oneway_request_is_not_answered(running, failures):
    with running.connect() as client:
        client.send(ECHO, frame_flag=ONEWAY)
        client.send(BOOM, frame_flag=ONEWAY)
        assert client.ask(ECHO, body=b"x").body == b"x"
    failures.clear()


def test_an_exception_in_a_core_is_answered_with_1_and_logged(
    running, caplog, failures
):
    with running.connect() as client:
        failed = client.ask(BOOM)
        assert (failed.code, failed.remark) == (1, "ValueError: a bug")
        assert client.ask(ECHO).code == 0
    assert "request failed core=broker-a code=2" in caplog.text
    failures.clear()


def test_a_binary_request_reaches_the_core_as_such(running):
    with running.connect() as client:
        client.send(ECHO, binary=True)
        assert client.receive_frame().serialize_type == SerializeType.ROCKETMQ


def test_timers_of_a_core_run_when_they_are_due(running):
    with running.connect() as client:
        began = time.monotonic()
        client.ask(LATER, ms=60)
        assert 0.055 < time.monotonic() - began < 5


def test_a_manual_clock_moves_the_timers(start):
    clock = ManualClock()
    running = start(clock=clock)
    with running.connect() as client:
        client.send(LATER, ms=60_000)
        client.ask(ECHO)
        clock.advance(60_000)
        running.server.wake()
        assert client.receive().opaque == 1


def test_a_core_closes_after_its_answer(running):
    with running.connect() as client:
        assert client.ask(BYE).code == 0
        assert client.is_closed_by_peer()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="tls hello"),
        pytest.param(struct.pack(">iI", FRAME_LENGTH_MAX + 1, 10), id="16 MiB + 1"),
        pytest.param(struct.pack(">iI", -1, 10), id="negative length"),
        pytest.param(struct.pack(">iI", 20, 200), id="header over the frame"),
        pytest.param(struct.pack(">iI", 8, 4) + b"nope", id="header is not JSON"),
        pytest.param(struct.pack(">iI", 8, 0x02000004) + b"nope", id="type 2"),
    ],
)
def test_garbage_closes_its_connection_only(running, data):
    with running.connect() as other, running.connect() as bad:
        other.ask(ECHO)
        bad.sock.sendall(data)
        assert bad.is_closed_by_peer()
        assert other.ask(ECHO).code == 0
        wait_until(lambda: running.connections() == 1)


def test_a_frame_byte_by_byte_is_a_frame(running):
    frame = encode_command(RemotingCommand(code=ECHO, opaque=9, body=b"slow"))
    with running.connect() as client:
        for at in range(len(frame)):
            client.sock.sendall(frame[at : at + 1])
        assert client.receive().body == b"slow"


def test_a_large_frame_in_pieces_is_a_frame(running):
    body = bytes(range(256)) * 40_000
    with running.connect() as client:
        assert client.ask(ECHO, body=body).body == body


def test_half_frames_are_forgotten_with_their_connections(running):
    half = struct.pack(">iI", 1_000_000, 100) + b"x" * 90_000
    clients = [running.connect() for _ in range(20)]
    for client in clients:
        client.sock.sendall(half)
    wait_until(
        lambda: running.server.call(lambda: running.server.input_bytes) == 20 * 90_008
    )
    for client in clients:
        client.sock.close()
    wait_until(lambda: running.connections() == 0)
    assert running.server.call(lambda: running.server.input_bytes) == 0


def test_incomplete_frames_together_are_bounded(start):
    running = start(limits=ServerLimits(input_max_bytes=200_000))
    half = struct.pack(">iI", 1_000_000, 100) + b"x" * 90_000
    with running.connect() as first, running.connect() as second:
        first.sock.sendall(half)
        wait_until(
            lambda: running.server.call(lambda: running.server.input_bytes) == 90_008
        )
        second.sock.sendall(half + half)
        assert second.is_closed_by_peer()
        assert running.connections() == 1


def test_a_reader_that_never_drains_is_paused_and_then_closed(start):
    clock = ManualClock()
    running = start(
        clock=clock,
        limits=ServerLimits(output_pause_bytes=1_000_000, output_stalled_ms_max=30_000),
    )
    with running.connect() as slow, running.connect() as other:
        for _ in range(200):
            slow.send(BIG, bytes=500_000)
        wait_until(lambda: running.server.call(_out_bytes(running)) > 1_000_000)
        assert other.ask(ECHO).code == 0
        # At times all of it is in the kernel's buffers, until those are full.
        wait_until(lambda: running.server.call(_out_bytes(running)) > 1_000_000)
        assert running.server.call(_out_bytes(running)) < 2_000_000
        assert running.core.handled < 100
        clock.advance(40_000)
        running.server.wake()
        wait_until(lambda: running.connections() == 1)
        assert other.ask(ECHO).code == 0


def _out_bytes(running):
    return lambda: max(c.out_bytes for c in running.port.connections.values())


def test_a_paused_reader_gets_all_answers_once_it_reads(start):
    running = start(limits=ServerLimits(output_pause_bytes=100_000))
    with running.connect() as client:
        for _ in range(200):
            client.send(BIG, bytes=100_000)
        answers = [client.receive() for _ in range(200)]
    assert [a.opaque for a in answers] == list(range(1, 201))
    assert {len(a.body) for a in answers} == {100_000}


def test_connections_are_bounded(start):
    running = start(limits=ServerLimits(connections_max=3))
    clients = [running.connect() for _ in range(3)]
    for client in clients:
        client.ask(ECHO)
    with running.connect() as fourth:
        assert fourth.is_closed_by_peer()
    for client in clients:
        assert client.ask(ECHO).code == 0
        client.sock.close()


@pytest.fixture
def out_of_files(monkeypatch):
    """While it is set, no connection can be accepted; it counts the attempts."""

    class OutOfFiles(threading.Event):
        attempts = 0

    state = OutOfFiles()
    accept_all = server_module.accept_all

    def accept(listener):
        if not state.is_set():
            return accept_all(listener)
        state.attempts += 1
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(server_module, "accept_all", accept)
    state.set()
    return state


def test_a_connection_that_cannot_be_accepted_now_is_accepted_200_ms_later(
    start, out_of_files
):
    clock = ManualClock()
    running = start(clock=clock)
    with running.connect() as client:
        client.send(ECHO)
        wait_until(lambda: out_of_files.attempts == 1)
        running.connections()  # the turn of the attempt has ended
        clock.advance(199)
        assert running.connections() == running.connections() == 0
        assert out_of_files.attempts == 1
        out_of_files.clear()
        clock.advance(1)
        wait_until(running.connections, timeout_s=60)
        assert client.receive().opaque == 1


def test_a_port_that_is_closed_after_a_failed_accept_stays_closed(
    start, out_of_files, caplog
):
    clock = ManualClock()
    running = start(clock=clock)
    with running.connect():
        wait_until(lambda: out_of_files.attempts == 1)
        running.connections()
        running.server.call(lambda: running.server.drop(running.port))
        clock.advance(200)
        assert running.connections() == running.connections() == 0
    assert out_of_files.attempts == 1
    assert "turn failed" not in caplog.text


def test_idle_connections_are_closed(start):
    clock = ManualClock()
    running = start(clock=clock)
    with running.connect() as client:
        client.ask(ECHO)
        clock.advance(130_000)
        running.server.wake()
        assert client.is_closed_by_peer()
        wait_until(lambda: running.core.peers_closed == [1])


def test_one_flush_comes_before_the_answers_of_a_turn(running):
    flushes = []
    running.port.flush = lambda: flushes.append(running.core.handled)
    with running.connect() as client:
        for _ in range(100):
            client.send(ECHO)
        for _ in range(100):
            client.receive()
    assert flushes[-1] == 100
    assert len(flushes) <= 100


def test_a_failed_flush_acknowledges_nothing(running, caplog):
    def fail():
        raise StoreError("no space left")

    running.port.flush = fail
    with running.connect() as client:
        client.send(ECHO)
        assert client.is_closed_by_peer()
    assert (
        "flush failed, closing connections with unsent answers core=broker-a:"
        " no space left"
    ) in caplog.text


def test_a_hung_broker_answers_after_it_resumed(running):
    with running.connect() as client:
        client.ask(ECHO)
        running.server.call(lambda: running.server.hang(running.port))
        client.send(ECHO, body=b"x")
        client.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.receive()
        running.server.call(lambda: running.server.resume(running.port))
        client.sock.settimeout(10)
        assert client.receive().body == b"x"


def test_dropping_a_port_ends_connections_without_goodbye(running):
    with running.connect() as client:
        client.ask(ECHO)
        running.server.call(lambda: running.server.drop(running.port))
        assert client.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            running.connect()
    assert running.core.peers_closed == []
    number = running.port.numbers[0]
    running.server.call(lambda: running.server.listen(running.port, number))
    with running.connect() as client:
        assert client.ask(ECHO).code == 0


def test_a_taken_port_is_one_clear_error(running):
    number = running.port.numbers[0]
    with pytest.raises(ConnectError, match=r"cannot listen on 127.0.0.1:\d+: the port"):
        running.server.call(
            lambda: running.server.open("other", host="127.0.0.1", port=number)
        )


@pytest.mark.parametrize(
    ("host", "shown"),
    [("2001:db8::1", r"\[2001:db8::1\]:9876"), ("192.0.2.1", r"192\.0\.2\.1:9876")],
)
def test_an_address_that_cannot_be_listened_on_is_named(host, shown):
    with pytest.raises(ConnectError, match=f"cannot listen on {shown}: ") as failed:
        open_listener(host, 9876)
    assert failed.value.hint == ""


def test_close_leaves_no_thread_and_no_socket(start):
    running = start()
    with running.connect() as client:
        client.ask(ECHO)
        running.server.close()
        running.server.close()
        assert client.is_closed_by_peer()
    assert not [t for t in threading.enumerate() if t.name == "rmq-broker-io"]
    with pytest.raises(RmqError, match="closed"):
        running.server.call(lambda: None)


def test_an_exception_in_a_callback_does_not_end_the_thread(running, caplog, failures):
    def fail(_now):
        raise ValueError("a bug")

    running.server.call(lambda: running.server.timers.at(0, fail))
    with running.connect() as client:
        assert client.ask(ECHO).code == 0
    assert "turn failed thread=rmq-broker-io" in caplog.text
    failures.clear()


def test_a_call_raises_the_error_of_its_function(running):
    with pytest.raises(KeyError):
        running.server.call(lambda: {"y": 1}["x"])
    assert running.server.call(lambda: running.server.call(lambda: 7)) == 7


# --- faults ---


def test_fault_answer_keeps_the_request_from_the_core(running):
    rule = running.faults.add(answer(14, "busy"), code=ECHO, times=2)
    with running.connect() as client:
        assert [client.ask(ECHO).code for _ in range(3)] == [14, 14, 0]
    assert (rule.seen, rule.hits, running.core.handled) == (3, 2, 1)


@pytest.mark.parametrize(
    ("fault", "handled"), [(drop_request(), 1), (drop_answer(), 2)]
)
def test_fault_drop(running, fault, handled):
    running.faults.next(fault)
    with running.connect() as client:
        client.send(ECHO, body=b"lost")
        client.send(ECHO, body=b"kept")
        assert client.receive().body == b"kept"
    assert running.core.handled == handled


def test_fault_delay_lets_others_overtake(running):
    running.faults.next(delay(50))
    with running.connect() as client:
        client.send(ECHO, body=b"late")
        assert client.ask(ECHO, body=b"first").body == b"first"
        assert client.receive().body == b"late"


def test_fault_reorder_swaps_two_answers(running):
    running.faults.next(reorder())
    with running.connect() as client:
        client.send(ECHO, body=b"1")
        client.send(ECHO, body=b"2")
        assert [client.receive().body for _ in range(2)] == [b"2", b"1"]


@pytest.mark.parametrize(("is_handled", "handled"), [(False, 0), (True, 1)])
def test_fault_disconnect(running, is_handled, handled):
    running.faults.next(disconnect(is_handled=is_handled))
    with running.connect() as client:
        client.send(ECHO)
        assert client.is_closed_by_peer()
    assert running.core.handled == handled
    with running.connect() as client:
        assert client.ask(ECHO).code == 0


def test_fault_corrupt_length_and_header_cannot_be_read(running):
    running.faults.next(corrupt("length"))
    with running.connect() as client:
        client.send(ECHO)
        with pytest.raises(FrameError):
            client.receive()
    running.faults.next(corrupt("header"))
    with running.connect() as client:
        client.send(ECHO)
        with pytest.raises(HeaderError):
            client.receive()


def test_fault_corrupt_body_changes_the_body_only(running):
    running.faults.next(corrupt("body"))
    with running.connect() as client:
        assert client.ask(ECHO, body=b"\x00\x55").body == b"\x55\x00"
