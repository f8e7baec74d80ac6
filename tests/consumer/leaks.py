"""Does anything grow that should not: threads, sockets, memory, members, requests?

    python -m tests.consumer.leaks cycles --times 1000
    python -m tests.consumer.leaks idle --times 2000
    python -m tests.consumer.leaks reconnects --times 10000

`cycles` starts and closes consumers, one after the other, each of which consumes one
message. `idle` runs an orderly consumer of an empty topic until it has repeated its
periodic work this often. `reconnects` loses the connection after every answer. This
process is measured, which contains the embedded broker; the peer of `reconnects` is a
separate process. Prints a summary as JSON; the exit status is 1 when a check failed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.errors import DisconnectedError
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RemotingCommand
from tests.consumer.collecting import committed, consumer
from tests.kit.guard import GUARD
from tests.kit.waiting import wait_until
from tests.transport.peer import PeerConnection

ROOT = Path(__file__).parents[2]
TOPIC = "orders"
GROUP = "g"
#: The most by which the memory may grow in each kind of run.
RSS_GROWTH_MAX_KIB = 5 * 1024
#: After this many rounds everything that is created or loaded once exists.
_WARM_UP = 20
_PATIENCE_S = 60
#: How long to watch for requests of closed consumers; several intervals of the timers.
_AFTERMATH_S = 0.6
_FAST = {
    "heartbeat_broker_interval_ms": 100,
    "persist_consumer_offset_interval_ms": 100,
    "poll_namesrv_interval_ms": 100,
    "rebalance_interval_ms": 100,
}


def rss_kib():
    """Return the resident memory of this process, without what is free in it.

    Threads that come and go leave free pieces in the arenas of glibc, more and more for
    a thousand threads, and then no more. They are given back to the system first.
    """
    gc.collect()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def sockets():
    """Return how many sockets this process has open."""
    links = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{each}"))
    return sum(link.startswith("socket:") for link in links)


def counts():
    """Return the counts that must not grow."""
    return {"threads": threading.active_count(), "sockets": sockets()}


def settled(before):
    """Return the counts when they equal `before`, or after 10 s at most."""
    with suppress(AssertionError):
        wait_until(lambda: counts() == before, timeout_s=10)
    return counts()


class Counting:
    """A listener that only counts, because everything else it kept would grow."""

    def __init__(self):
        self.times = 0

    def __call__(self, _message):
        self.times += 1


def cycles(times):
    """Start a consumer, consume one message, close it; repeat that."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, queues=1)
        base = counts()
        seen = Counting()

        def cycle(number):
            cluster.send(TOPIC, [str(number)])
            with consumer(cluster, GROUP, TOPIC, seen, **_FAST):
                wait_until(lambda: seen.times > number, timeout_s=_PATIENCE_S)

        for number in range(_WARM_UP):
            cycle(number)
        before, before_kib = settled(base), rss_kib()
        for number in range(_WARM_UP, _WARM_UP + times):
            cycle(number)
        after, after_kib = settled(before), rss_kib()
        late = cluster.faults.observe()
        threading.Event().wait(_AFTERMATH_S)
        summary = {
            "cycles": times,
            "before": before,
            "after": after,
            "rss_growth_kib": after_kib - before_kib,
            "consumed": seen.times - _WARM_UP,
            "committed": committed(cluster, GROUP, TOPIC)[0] - _WARM_UP,
            "requests_after_the_last_close": late.seen,
        }
    expected = {
        "after": before,
        "consumed": times,
        "committed": times,
        "requests_after_the_last_close": 0,
    }
    return judged(summary, expected)


def idle(times):
    """Run an orderly consumer of an empty topic until it has sent enough heartbeats."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic(TOPIC, queues=4)
        beats = cluster.faults.observe(code=RequestCode.HEART_BEAT)
        locks = cluster.faults.observe(code=RequestCode.LOCK_BATCH_MQ)
        for rule in (beats, locks):
            rule.requests = deque(maxlen=1)  # recorded requests would look like a leak
        running = consumer(cluster, GROUP, TOPIC, Counting(), orderly=True, **_FAST)
        with running:

            def beat(count):
                patience_s = _PATIENCE_S + count
                wait_until(lambda: beats.seen >= count, timeout_s=patience_s)

            def plans():
                return running._backend.ask(
                    lambda: len(running._backend.engine.member.timers._heap)
                )

            wait_until(lambda: len(running.queues()) == 10, timeout_s=_PATIENCE_S)
            beat(2 * _WARM_UP)
            before, before_kib, plans_before = counts(), rss_kib(), plans()
            beat(2 * _WARM_UP + times)
            after, after_kib, plans_after = settled(before), rss_kib(), plans()
        summary = {
            "heartbeats": beats.seen,
            "locks": locks.seen,
            "before": before,
            "after": after,
            "plans_before": plans_before,
            "plans_after": plans_after,
            "rss_growth_kib": after_kib - before_kib,
        }
    wrong = [] if plans_after <= plans_before + 10 else ["plans grew"]
    return judged(summary, {"after": before}, wrong)


def reconnects(times):
    """Send requests to a peer that closes the connection after each answer."""
    with peer() as address, RemotingClient() as client:
        asked = RemotingCommand(11, body=b"body")
        lost = 0

        def until(count):
            nonlocal lost
            while client.counters.connections < count:
                try:
                    client.invoke(address, asked, timeout_ms=_PATIENCE_S * 1000)
                except DisconnectedError:
                    lost += 1  # the peer closed while the request was under way

        until(10 * _WARM_UP)
        before, before_kib = counts(), rss_kib()
        until(10 * _WARM_UP + times)
        after, after_kib = settled(before), rss_kib()
    summary = {
        "reconnects": times,
        "lost": lost,
        "before": before,
        "after": after,
        "rss_growth_kib": after_kib - before_kib,
    }
    wrong = []
    if after["threads"] > before["threads"] or after["sockets"] > before["sockets"] + 1:
        wrong.append("threads or sockets grew")
    return judged(summary, {}, wrong)


@contextmanager
def peer():
    """Run a process that answers one request per connection; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.consumer.leaks", "serve"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    GUARD.watch(process.pid)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        GUARD.forget(process.pid)


def serve():
    """Run the peer of `reconnects`."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)
        while True:
            connection = PeerConnection(server.accept()[0])
            with suppress(OSError):
                connection.answer(connection.read())
            connection.close()


def judged(summary, expected, wrong=()):
    """Return the summary with a list of the checks that failed."""
    found = [
        f"{name} is {summary[name]}, not {value}"
        for name, value in expected.items()
        if summary[name] != value
    ]
    if summary["rss_growth_kib"] >= RSS_GROWTH_MAX_KIB:
        found.append(f"memory grew by {summary['rss_growth_kib']} KiB")
    return {**summary, "wrong": [*found, *wrong]}


KINDS = {"cycles": cycles, "idle": idle, "reconnects": reconnects}


def main():
    """Parse the options, run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=[*KINDS, "serve"])
    parser.add_argument("--times", type=int, default=1_000)
    options = parser.parse_args()
    if options.kind == "serve":
        serve()
    summary = KINDS[options.kind](options.times)
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["wrong"] else 0)


if __name__ == "__main__":
    main()
