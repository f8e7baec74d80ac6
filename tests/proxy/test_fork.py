"""Children that are forked while clients of a proxy are open end as they should."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rmqcli.process.grpc import works_after_fork
from tests.kit.waiting import PATIENCE_S

PROGRAM = """
import collections, multiprocessing, os, sys, threading
from rmqcli import ClientConfig, Consumer, Producer, ProducerMessage, SimpleConsumer
from rmqcli.errors import UsageError
from rmqcli.proxy.reader import ProxyReader

config = ClientConfig(endpoints=sys.argv[1], plaintext=True)
message = ProducerMessage("orders", b"x")

def outcome(action):
    try:
        return repr(action())
    except UsageError as error:
        return error.message

def child():
    for action in (
        lambda: producer.send(message),
        lambda: producer.submit(message),
        lambda: simple.receive(1),
        lambda: reader.route("orders"),
        reader.__exit__,
    ):
        print(outcome(action), flush=True)

def own():
    try:
        with Producer(client=config) as mine:
            print(len(mine.send(message).msg_id), flush=True)
    except UsageError as error:
        print(error.message, flush=True)

def end():
    pass

def forked(work):
    pid = os.fork()
    if not pid:
        work()
        sys.exit()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def started(work):
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode

work = {"end": end, "use": child, "own": own}[sys.argv[2]]
with (
    Producer(client=config) as producer,
    SimpleConsumer("s", "orders", client=config) as simple,
    Consumer("g", "orders", lambda message: None, client=config),
    ProxyReader(config) as reader,
):
    producer.send(message)
    reader.route("orders")

    def receive():
        while True:
            try:
                simple.receive(1)
            except UsageError:
                return

    threading.Thread(target=receive, daemon=True).start()
    codes = collections.Counter()
    for _ in range(int(sys.argv[3])):
        codes[forked(work)] += 1
        codes[started(work)] += 1
    producer.send(message)
    print(dict(codes))
"""
BELONGS = "the producer belongs to the process that was forked"
REFUSED = (
    "a forked process cannot use a proxy when its parent has used one before: gRPC does"
    " not work there"
)
CASES = {
    "end": [],
    "use": [
        BELONGS,
        BELONGS,
        "the consumer is closed",
        "the client belongs to the process that was forked",
        "None",  # leaving a client is always possible
    ],
    "own": [REFUSED],
}


@pytest.fixture
def forked(rmq_cluster_factory):
    """A function that forks beside open clients, and returns the lines printed."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")

    def run(work, times):
        environment = dict(os.environ)
        # As users run it: other tests switch gRPC's own handlers of forks off.
        environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.endpoints, work, str(times)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=environment,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    return run


@pytest.mark.slow
@pytest.mark.parametrize("work", CASES)
def test_children_of_a_fork_do_not_crash_and_are_refused_clients_in_words(forked, work):
    """With receives held by the proxy, in a child's calls, and at its exit. A client
    of its own had no answer for ever or, with older versions of gRPC, ended the parent
    with a segmentation fault; it is refused. Those of the parent still work."""
    assert forked(work, 10) == [*(CASES[work] * 20), "{0: 20}"]


@pytest.mark.parametrize(
    ("version", "switch", "works"),
    [
        ("1.66.2", "1", False),
        ("1.78.2", "1", False),
        ("1.80.0rc1", "1", True),
        ("1.85.3", "1", True),
        ("1.85.3", "True", True),
        ("1.85.3", "0", False),
        ("1.85.3", "no", False),
        ("2.0.0", "yes", True),
    ],
)
def test_grpc_works_after_a_fork_since_1_80_if_that_is_switched_on(
    version, switch, works
):
    assert works_after_fork(version, {"GRPC_ENABLE_FORK_SUPPORT": switch}) == works
