"""Start and end of a consumer in real processes, by signals, exceptions or exit."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from contextlib import suppress

import pytest

from rmqcli.consumer.consumer import Consumer
from rmqcli.engine.allocate import AllocateMessageQueueAveragely
from rmqcli.engine.config import MessageModel
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.program import Program

pytestmark = pytest.mark.engine_threads("plain", "leasing")

#: The beginning of each program; its first argument is the name server's address.
HEAD = """
import os, random, signal, sys, threading, time
from rmqcli import ConsumerConfig, ConsumeFromWhere, UsageError
from tests.consumer.collecting import ConsumerUnderTest as Consumer

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

def make(listener, group="g", **settings):
    settings.setdefault("consume_threads", 2)
    config = ConsumerConfig(consume_from_where=FIRST, **settings)
    return Consumer(group, "orders", listener, namesrv=sys.argv[1], config=config)

def ours():
    # Python goes on to list a thread whose start was interrupted before it ran.
    threads = [each for each in threading.enumerate() if each.is_alive()]
    return sorted(each.name for each in threads if each.name.startswith("rmq-"))

def until(claim):
    end = time.monotonic() + 40
    while not claim():
        assert time.monotonic() < end, f"it did not come to be in time: {ours()}"
        time.sleep(0.005)
"""


@pytest.fixture
def program(rmq_cluster, tmp_path):
    """A function that starts a program with the cluster's address."""
    rmq_cluster.create_topic("orders", queues=1)
    programs = []

    def start(source, *arguments):
        programs.append(
            Program(HEAD + source, tmp_path, rmq_cluster.namesrv, *arguments)
        )
        return programs[-1]

    yield start
    for each in programs:
        each.__exit__()


# Closing


def test_a_signal_handler_may_close_a_consumer_that_is_being_closed(
    program, rmq_cluster
):
    """The signal arrives while the `with` block is being left and a listener runs."""
    rmq_cluster.send("orders", ["slow"])
    running = program("""
begun, handled = threading.Event(), threading.Event()

def handle(message):
    begun.set()
    while not handled.is_set():  # an Event that a handler sets is not waited for
        time.sleep(0.005)

def on_signal(*_):
    handled.set()
    consumer.close()
    print("handled", flush=True)

signal.signal(signal.SIGUSR1, on_signal)
with make(handle) as consumer:
    begun.wait()
    sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    sender.start()
print("left", consumer.wait(0), flush=True)
""")
    assert running.line() == "handled"
    assert running.line() == "left True"
    assert running.exit_code() == 0
    assert committed(rmq_cluster, "g", "orders") == {0: 1}


@pytest.mark.slow
def test_a_signal_handler_may_close_at_any_moment(program):
    """That is, during the start, a wait, a query of the consumer, or the close."""
    running = program("""
rng = random.Random(7)
consumer = None

def on_signal(*_):
    if consumer is not None:
        consumer.close(timeout_ms=100)

signal.signal(signal.SIGALRM, on_signal)
for _ in range(60):
    consumer = make(print)
    # At least one: a timer that is over before the wait begins is followed by others.
    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.05), 0.05)
    try:
        with consumer:
            while not consumer.wait(1):
                consumer.queues()
    except UsageError as error:  # a busy machine: closed before the start
        assert error.message == "a consumer can be started only once"
    signal.setitimer(signal.ITIMER_REAL, 0)
    consumer = None
until(lambda: not ours())
print("done", flush=True)
""")
    assert running.line() == "done", running.errors[-2000:]
    assert running.exit_code() == 0


def test_many_threads_may_close_at_once(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["slow"], queue_id=0)
    gate = threading.Event()
    seen = Seen(lambda *_: gate.wait(60))
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    seen.wait_for(1)
    closers = [threading.Thread(target=running.close) for _ in range(8)]
    for each in closers:
        each.start()
    gate.set()
    for each in closers:
        each.join(20)
        assert not each.is_alive()
    assert running.wait(0)
    assert committed(rmq_cluster, "g", rmq_topic) == {0: 1}


def test_a_later_close_may_shorten_the_wait_of_an_earlier_one(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["stuck"], queue_id=0)
    gate = threading.Event()
    seen = Seen(lambda *_: gate.wait(60))
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    seen.wait_for(1)
    patient = threading.Thread(target=running.close, kwargs={"timeout_ms": 3_600_000})
    patient.start()
    running.close(timeout_ms=10)
    patient.join(20)
    assert not patient.is_alive()
    assert running.wait(0)
    gate.set()


def test_a_listener_that_closes_twice_waits_for_nothing(rmq_cluster, rmq_topic):
    def act(*_):
        running.close()
        running.close(timeout_ms=5_000)

    running = consumer(rmq_cluster, "g", rmq_topic, Seen(act), consume_threads=1)
    running.start()
    rmq_cluster.send(rmq_topic, ["one"], queue_id=2)
    assert running.wait(20_000)
    assert committed(rmq_cluster, "g", rmq_topic) == {2: 1}


@pytest.mark.parametrize("callback", ["on_assigned", "on_failed", "strategy"])
def test_a_callback_of_the_engine_may_close_its_consumer(
    rmq_cluster, rmq_topic, caplog, callback
):
    """The close waits for the engine, and must not do so in the engine's thread."""
    rmq_cluster.send(rmq_topic, ["fails"], queue_id=2)
    returned = threading.Event()

    def close(*_):
        running.close()
        returned.set()

    class Closing(AllocateMessageQueueAveragely):
        def allocate(self, **arguments):
            close()
            return super().allocate(**arguments)

    options = {callback: Closing() if callback == "strategy" else close}
    running = consumer(rmq_cluster, "g", rmq_topic, Seen(lambda *_: False), **options)
    running.start()
    assert running.wait(60_000)
    assert returned.is_set()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_consumer_that_was_closed_before_its_start_does_not_start(rmq_cluster):
    running = consumer(rmq_cluster, "g", "orders", Seen())
    running.close()
    assert running.wait(0)


# Interrupts


def test_an_interrupt_as_a_start_returns_leaves_nothing_behind(rmq_cluster, rmq_topic):
    """Of thousands of starts that were interrupted, one left its consumer running."""
    running = consumer(rmq_cluster, "g", rmq_topic, Seen())

    def interrupt(frame, event, _value):
        caller = frame.f_back and frame.f_back.f_code
        if event == "return" and caller is Consumer.__enter__.__code__:
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), running:
            raise AssertionError("the start was not interrupted")
    finally:
        sys.settrace(before)
    assert running.wait(0)
    assert not [each for each in threading.enumerate() if "rmq-engine" in each.name]


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_a_start_leaves_nothing_behind(program):
    """The same is true after the start and while the `with` block is being left."""
    running = program("""
rng = random.Random(3)
is_armed = False

def on_signal(*_):
    if is_armed:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, on_signal)
interrupted = 0
for _ in range(80):
    try:
        is_armed = True
        # Once more after a while: Python drops what is raised in a weak reference's
        # callback or a finaliser.
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.04), 5)
        with make(print) as consumer:
            while not consumer.wait(1_000):
                pass
    except KeyboardInterrupt:
        interrupted += 1
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
print("interrupted", interrupted, flush=True)
until(lambda: not ours())
print("none left", flush=True)
""")
    assert running.line() == "interrupted 80", running.errors[-2000:]
    assert running.line() == "none left", running.errors[-2000:]
    assert running.exit_code() == 0


def test_ctrl_c_while_a_thread_is_started_is_no_other_error(program):
    """Python makes a RuntimeError of it while `Thread.start` takes its lock back."""
    running = program("""
def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_acquire_restore":
        sys.settrace(None)
        raise KeyboardInterrupt

raised = None
while raised is None:  # a thread may have begun before its starter waits for it
    consumer = make(print, consume_threads=64)
    sys.settrace(interrupt)
    try:
        consumer.start()
    except BaseException as error:
        raised = error
    sys.settrace(None)
    consumer.close()
print(repr(raised), flush=True)
until(lambda: not ours())
print("none left", flush=True)
""")
    assert running.line() == "KeyboardInterrupt()", running.errors[-2000:]
    assert running.line() == "none left", running.errors[-2000:]
    assert running.exit_code() == 0


@pytest.mark.slow
def test_ctrl_c_during_a_start_ends_the_process(program):
    rng = random.Random(1)
    for delay_s in [0, *(rng.uniform(0, 0.06) for _ in range(7))]:
        running = program("""
consumer = make(print)
print("ready", flush=True)
with consumer:
    consumer.wait()
""")
        assert running.line() == "ready"
        threading.Event().wait(delay_s)
        running.interrupt()
        assert running.exit_code() == -signal.SIGINT
        assert "KeyboardInterrupt" in running.errors


def test_ctrl_c_ends_a_start_that_waits_for_a_name_server(tmp_path):
    """Without Ctrl-C the start would wait for half a minute."""
    source = """
consumer = make(print)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    consumer.start(wait_for_cluster=True)
except KeyboardInterrupt:
    print(ours(), flush=True)
    raise
"""
    with Program(HEAD + source, tmp_path, "127.0.0.1:1") as running:
        assert running.line() == "[]"
        assert running.exit_code() == -signal.SIGINT


@pytest.mark.slow
def test_ctrl_c_while_the_consumer_closes_still_commits(program, rmq_cluster):
    """The close continues, and the process waits for it no longer than a close may
    take."""
    rmq_cluster.send("orders", ["done", "stuck"])
    running = program("""
stuck, gate = threading.Event(), threading.Event()

def handle(message):
    if message.body == b"stuck":
        stuck.set()
        gate.wait(600)

with make(handle, await_termination_ms=1_500, pull_batch_size=1):
    stuck.wait()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
""")
    assert running.exit_code() == -signal.SIGINT
    assert committed(rmq_cluster, "g", "orders") == {0: 1}


def test_an_exception_of_the_start_leaves_nothing_open(
    rmq_cluster, rmq_topic, tmp_path, monkeypatch
):
    """The start fails because the file with the offsets cannot be read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = {
        "message_model": MessageModel.BROADCASTING,
        "instance_name": "one",
        "client_ip": "127.0.0.1",
    }
    path = tmp_path / ".rocketmq_offsets" / "127.0.0.1@one" / "g" / "offsets.json"
    (path / "is-a-folder").mkdir(parents=True)
    before = set(threading.enumerate())
    sockets = open_sockets()
    running = consumer(rmq_cluster, "g", rmq_topic, Seen(), **settings)
    with pytest.raises(Exception, match=r"offsets\.json"):
        running.start()
    assert running.wait(0)
    assert set(threading.enumerate()) == before
    assert open_sockets() == sockets


def open_sockets():
    """Return how many sockets this process has open."""
    links = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{each}"))
    return sum(link.startswith("socket:") for link in links)


# Missing close


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise ZeroDivisionError", 1),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    ],
    ids=["end", "exit", "exception", "ctrl-c"],
)
def test_a_consumer_that_was_never_closed_is_closed_with_the_process(
    program, rmq_cluster, end, code
):
    rmq_cluster.send("orders", ["one"])
    running = program(f"""
seen = threading.Event()
consumer = make(lambda message: seen.set())
consumer.start()
seen.wait()
{end}
""")
    assert running.exit_code() == code
    assert committed(rmq_cluster, "g", "orders") == {0: 1}
    assert "Exception ignored" not in running.errors


def test_a_listener_that_never_ends_does_not_hold_the_end_of_the_process(
    program, rmq_cluster
):
    rmq_cluster.send("orders", ["done", "stuck"])
    running = program("""
stuck, gate = threading.Event(), threading.Event()

def handle(message):
    if message.body == b"stuck":
        stuck.set()
        gate.wait()

consumer = make(handle, await_termination_ms=200, pull_batch_size=1)
consumer.start()
stuck.wait()
""")
    assert running.exit_code() == 0
    assert committed(rmq_cluster, "g", "orders") == {0: 1}


@pytest.mark.slow
def test_several_consumers_that_were_never_closed_are_closed_side_by_side(
    program, rmq_cluster
):
    rmq_cluster.send("orders", ["stuck"])
    running = program("""
gate, stuck = threading.Event(), []

def handle(message):
    stuck.append(message)
    gate.wait()

consumers = [make(handle, f"g{n}", await_termination_ms=4_000) for n in range(8)]
for each in consumers:
    each.start()
until(lambda: len(stuck) == 8)
print("stuck", flush=True)
""")
    assert running.line() == "stuck"
    assert running.exit_code(25) == 0  # closing one after the other would take 32 s
