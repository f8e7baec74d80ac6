"""Children that are forked while clients of a proxy are open end as they should."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kit.waiting import PATIENCE_S

PROGRAM = """
import collections, multiprocessing, os, sys, threading
from rmqcli import *

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
        lambda: producer.send_async(message),
        lambda: simple.receive(1),
    ):
        print(outcome(action), flush=True)

def own():
    with Producer(client=config) as mine:
        print(len(mine.send(message).msg_id), flush=True)

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
):
    producer.send(message)

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
CASES = {
    "end": [],
    "use": [BELONGS, BELONGS, "the consumer is closed"],
    "own": ["34"],  # the length of an id
}


@pytest.mark.slow
@pytest.mark.parametrize("work", CASES)
def test_children_of_a_fork_do_not_crash_and_cannot_use_the_parent_s_clients(
    rmq_cluster_factory, work
):
    """With receives held by the proxy, in a child's calls, and at its exit. A client
    that a child makes itself works, and those of the parent still do."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    # As users run it: other tests switch gRPC's own handlers of forks off.
    environment = dict(os.environ)
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.endpoints, work, "10"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert ended.stdout.splitlines() == [*(CASES[work] * 20), "{0: 20}"], ended.stderr
