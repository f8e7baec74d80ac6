"""Measure the time from a send to the listener, compared with Java. Prints JSON.

    python -m tests.bench.consume.latency [--version 5.5.0] [--rate 1000] [--seconds 10]

This process sends single messages to eight queues of a real broker at an even pace,
with the time of the send in each body; the listener is called once for each message.
The first messages, until two seconds after the consumer has begun, are not measured;
those of the following `--seconds` are. Java, ours, ours and Java run in this order,
each with its own topic. At the end come the medians.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import threading
import time
from typing import TYPE_CHECKING

from tests.bench.broker import Client, frame, send_fields
from tests.bench.consume.members import (
    JAVA,
    MODES,
    ORDER,
    OURS,
    MemberProcess,
    Place,
    cluster_of,
)

if TYPE_CHECKING:
    from tests.kit.cluster import RealCluster

QUEUES = 8
WARM_S = 2
P50_MS_MAX = 2
P99_MS_MAX = 8


class Sender:
    """Sends at an even pace in its own thread; each body begins with `kind`."""

    def __init__(self, address: str, topic: str, *, rate: int) -> None:
        self.kind = b"w"
        self.late_ms_max = 0.0
        self._is_over = False
        self._work = (address, topic, rate)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        address, topic, rate = self._work
        with Client(address) as client:
            began, sent, answered = time.perf_counter(), 0, 0
            while not self._is_over:
                late_s = time.perf_counter() - began - sent / rate
                if late_s < 0:
                    ready, _, _ = select.select([client.sock], [], [], -late_s)
                    if ready:
                        answered += len(client.receive(1))
                    continue
                if self.kind == b"m":
                    self.late_ms_max = max(self.late_ms_max, late_s * 1000)
                fields = {**send_fields(sent % QUEUES, batch=False), "b": topic}
                body = self.kind + b"%d" % (time.time_ns() // 1_000)
                client.sock.sendall(frame(310, body, **fields))
                sent += 1
            client.receive(sent - answered)


def measured(
    who: str, cluster: RealCluster, *, rate: int, seconds: float
) -> dict[str, float]:
    """Run one consumer; return its latencies, and how late the sender was."""
    at = Place(cluster.namesrv, cluster.create_topic(queues=QUEUES), cluster.version)
    messages = int(rate * seconds)
    values = {**MODES["concurrent"], "messages": messages, "latency": True}
    sender = Sender(cluster.broker_address(), at.topic, rate=rate)
    try:
        with MemberProcess(who, at, values) as member:
            member.event("first", timeout_s=60)
            threading.Event().wait(WARM_S)
            sender.kind = b"m"
            took = member.until_done(timeout_s=seconds + 60)
    finally:
        sender.stop()
    return {
        "p50_ms": took.done["p50Us"] / 1000,
        "p99_ms": took.done["p99Us"] / 1000,
        "max_ms": took.done["maxUs"] / 1000,
        "sent_late_ms_max": round(sender.late_ms_max, 1),
    }


def main() -> None:
    """Measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--rate", type=int, default=1_000, help="Messages per second.")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=(JAVA, OURS))
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {}
    with cluster_of(options.version) as cluster:
        for who in ORDER:
            if options.only not in (None, who):
                continue
            run = measured(who, cluster, rate=options.rate, seconds=options.seconds)
            print(json.dumps({"who": who, **run}), flush=True)
            runs.setdefault(who, []).append(run)
    median = {
        who: {name: statistics.median(run[name] for run in each) for name in each[0]}
        for who, each in runs.items()
    }
    line = {
        "bench": "consume_latency",
        "messages_per_s": options.rate,
        "median": median,
        "reach": {"p50_ms": P50_MS_MAX, "p99_ms": P99_MS_MAX, "and": "not above Java"},
    }
    if options.only is None:
        ours, java = median[OURS], median[JAVA]
        line["is_reached"] = {
            "p50_ms": ours["p50_ms"] <= min(P50_MS_MAX, java["p50_ms"]),
            "p99_ms": ours["p99_ms"] <= min(P99_MS_MAX, java["p99_ms"]),
        }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
