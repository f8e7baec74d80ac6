"""Processes forked by a consumer's process consume no messages, and end."""

from __future__ import annotations

import logging
import os
import sys
import threading

import pytest

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import DisconnectedError
from tests.consumer.collecting import Seen, committed, consumer
from tests.consumer.test_life_cycle import HEAD
from tests.kit.program import Program
from tests.kit.waiting import wait_until

#: A listener that forks at each message "fork" and prints how the child ended.
FORKING = (
    HEAD
    + """
def sockets():
    links = []
    for each in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            pass
    return sum(link.startswith("socket:") for link in links)

def handle(message):
    print("parent" if os.getpid() == parent else "child", message.body.decode())
    if message.body == b"fork":
        child = os.fork()
        if child == 0:
            in_child()
            return
        status = os.waitpid(child, 0)[1]
        print("child ended with", os.waitstatus_to_exitcode(status))

parent = os.getpid()
"""
)


@pytest.fixture
def forking(rmq_cluster, tmp_path):
    """A function that sends messages, runs a program, and returns what it printed."""
    rmq_cluster.create_topic("orders", queues=1)

    def run(source, bodies=("a", "fork", "b", "c"), **options):
        rmq_cluster.send("orders", bodies)
        with Program(
            FORKING + source, tmp_path, rmq_cluster.namesrv, **options
        ) as running:
            lines = running.rest()
            assert running.exit_code() == 0, running.errors
            return lines, running.errors

    return run


LEAVE_AFTER_C = """
def handle_and_leave(message):
    handle(message)
    if message.body == b"c" and os.getpid() == parent:
        consumer.close()

with make(handle_and_leave, consume_threads=1{settings}) as consumer:
    consumer.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_child", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('no')", 1),
        ("raise ZeroDivisionError", 1),
        ("raise KeyboardInterrupt", 130),
        ("raise GeneratorExit", 1),
        ("os._exit(9)", 9),
    ],
)
def test_a_child_forked_by_a_listener_ends_when_the_listener_returns_or_raises(
    forking, rmq_cluster, in_child, code
):
    """The child has the exit code that Python would give it. The parent continues, and
    consumes each message once."""
    source = f"def in_child():\n    {in_child}\n" + LEAVE_AFTER_C.format(settings="")
    lines, errors = forking(source)
    assert lines == [
        "parent a",
        "parent fork",
        f"child ended with {code}",
        "parent b",
        "parent c",
    ]
    assert ("ZeroDivisionError" in errors) == ("ZeroDivisionError" in in_child)
    assert committed(rmq_cluster, "g", "orders") == {0: 4}


def test_a_child_forked_by_an_orderly_listener_ends(forking, rmq_cluster):
    lines, _ = forking("""
def in_child():
    sys.exit(7)

config = ConsumerConfig(consume_from_where=FIRST)
consumer = Consumer("g", "orders", handle, orderly=True, namesrv=sys.argv[1],
                    config=config)
with consumer:
    until(lambda: 4 in consumer.offsets().values())
""")
    assert lines[:3] == ["parent a", "parent fork", "child ended with 7"]
    assert lines[3:] == ["parent b", "parent c"]
    assert committed(rmq_cluster, "g", "orders") == {0: 4}


def test_a_child_has_none_of_the_consumer_s_sockets(forking):
    source = """
def in_child():
    print("sockets of the child", sockets())
    consumer.close()
    print("closed", consumer.wait(0), consumer.queues() is not None)
    sys.stdout.flush()
    os._exit(0)
"""
    lines, _ = forking(source + LEAVE_AFTER_C.format(settings=""))
    assert lines == [
        "parent a",
        "parent fork",
        "sockets of the child 0",
        "closed True True",
        "child ended with 0",
        "parent b",
        "parent c",
    ]


def test_multiprocessing_works_in_a_listener(forking):
    source = """
import multiprocessing

def work(queue, text):
    queue.put(text.upper())
    sys.exit(5)

def handle(message):
    print("parent" if os.getpid() == parent else "child", message.body.decode())
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue, message.body.decode()))
    process.start()
    print(queue.get())
    process.join()
    print("exit code", process.exitcode)
"""
    lines, _ = forking(source + LEAVE_AFTER_C.format(settings=""), ("b", "c"))
    assert lines == [
        *("parent b", "B", "exit code 5"),
        *("parent c", "C", "exit code 5"),
    ]


@pytest.mark.engine_threads("leasing")
def test_a_listener_may_fork_while_its_thread_owns_the_engine(rmq_cluster, tmp_path):
    rmq_cluster.create_topic("orders", queues=1)
    source = """
is_forked = False

def handle(message):
    global is_forked
    counted.append(message.queue_offset)
    if message.body == b"last":
        consumer.close()
    if not is_forked and consumer._backend.engine_thread.is_handed_off:
        is_forked = True
        child = os.fork()
        if child == 0:
            return
        status = os.waitpid(child, 0)[1]
        print("child ended with", os.waitstatus_to_exitcode(status))

counted = []
with make(handle) as consumer:
    print("joined", flush=True)
    consumer.wait()
print("consumed", len(counted), len(set(counted)))
"""
    with Program(FORKING + source, tmp_path, rmq_cluster.namesrv) as running:
        assert running.line() == "joined"
        first = []
        reader = threading.Thread(target=lambda: first.append(running.line()))
        reader.start()
        while not first:
            rmq_cluster.send("orders", ["x"] * 40)
            reader.join(0.05)
        rmq_cluster.send("orders", ["last"])
        rest = running.rest()
        assert running.exit_code() == 0
    sent = sum(committed(rmq_cluster, "g", "orders").values())
    assert first + rest == ["child ended with 0", f"consumed {sent} {sent}"]


def test_a_child_of_the_main_thread_leaves_the_parent_s_consumer_alone(forking):
    """The child leaves the `with` block and ends, which does not affect the parent."""
    source = """
def handle(message):
    print("parent" if os.getpid() == parent else "child", message.body.decode())

with make(handle, consume_threads=1) as consumer:
    until(lambda: any(consumer.offsets().values()))
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        print("child ended with", os.waitstatus_to_exitcode(status))
        print("queues", len(consumer.queues()), consumer.wait(0))
    else:
        print("child closed", consumer.wait(0))
"""
    lines, _ = forking(source, ["a"])
    assert lines == [
        "parent a",
        "child closed True",
        "child ended with 0",
        "queues 2 False",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_ends_programs_is_logged_and_ends_no_consumer(
    rmq_cluster_factory, caplog, orderly, error
):
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s"})
    topic = cluster.create_topic("orders", queues=1)

    def act(_message, times):
        if times == 1:
            raise error

    cluster.send(topic, ["a", "b"])
    seen = Seen(act)
    with (
        caplog.at_level(logging.ERROR),
        consumer(
            cluster,
            "g",
            topic,
            seen,
            orderly=orderly,
            suspend_current_queue_time_ms=10,
        ),
    ):
        wait_until(lambda: sorted(seen.bodies) == ["a", "a", "b", "b"])
    told = [r for r in caplog.records if error.__name__ in r.message]
    assert len(told) == 2
    assert all(r.exc_info and r.exc_info[0] is error for r in told)
    assert all("will be consumed again" in r.message for r in told)
    assert committed(cluster, "g", topic) == {0: 2}


# Clients for requests


def in_child(action):
    """Fork and run `action` in the child; return the child's exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = action()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_uses_its_parent_s_client_with_connections_of_its_own(
    rmq_cluster, rmq_topic
):
    """Only the parent gets the answers to its requests that are under way."""
    from rmqcli.api.calls.namesrv import get_route_info_by_topic

    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        client.route(rmq_topic)
        under_way = client.submit(
            rmq_cluster.namesrv, get_route_info_by_topic(rmq_topic)
        )

        def ask():
            assert isinstance(under_way.outcome(), DisconnectedError)
            for _ in range(50):
                assert len(client.route(rmq_topic, refresh=True).read_queues()) == 4
            return 3 if client.remoting.counters.connections == 2 else 4

        assert in_child(ask) == 3
        client.gather([under_way])
        assert len(under_way.result().read_queues()) == 4
        assert len(client.route(rmq_topic, refresh=True).read_queues()) == 4
        assert client.remoting.counters.connections == 1
