"""Measure what many queues cost a consumer, busy or idle. Prints JSON.

    python -m tests.bench.consume.queues [--messages 2000000] [--only many|idle]

Busy: the rate with 16, 1,024, 1,024 and 16 queues on two brokers; both topics have the
same number of messages, with bodies of 128 bytes. Idle: the CPU time of a consumer of
64 queues without new messages, for half a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading

from tests.bench.consume.members import (
    JAVA,
    MODES,
    OURS,
    MemberProcess,
    Place,
    cluster_of,
    cpu_s,
    measured,
)
from tests.kit.java_program import fill

BROKERS = 2
FEW = 16
MANY = 1_024
LOSS_MAX = 0.15
IDLE_QUEUES = 64
IDLE_PERCENT_MAX = 1
_SETTLE_S = 3


def many(version: str, *, messages: int, who: str) -> dict[str, object]:
    """Measure the rate with few and with many queues, in turns."""
    with cluster_of(version, brokers=BROKERS) as cluster:
        places = {}
        for queues in (FEW, MANY):
            topic = cluster.create_topic(queues=queues // BROKERS)
            fill(cluster, topic, messages, body_bytes=128)
            places[queues] = Place(cluster.namesrv, topic, version)
            measured(who, places[queues], mode="batch32", messages=messages)
        runs: dict[int, list[dict[str, float]]] = {FEW: [], MANY: []}
        for queues in (FEW, MANY, MANY, FEW):
            run = measured(who, places[queues], mode="concurrent", messages=messages)
            print(json.dumps({"who": who, "queues": queues, **run}), flush=True)
            runs[queues].append(run)
    rates = {
        queues: statistics.median(run["messages_per_s"] for run in each)
        for queues, each in runs.items()
    }
    loss = 1 - rates[MANY] / rates[FEW]
    return {
        "bench": "consume_queues.many",
        "who": who,
        "messages_per_s": rates,
        "loss": round(loss, 3),
        "reach": {"loss": LOSS_MAX},
        "is_reached": {"loss": loss <= LOSS_MAX},
    }


def idle(version: str, *, seconds: float, who: str) -> dict[str, object]:
    """Measure a consumer that gets no messages."""
    with cluster_of(version) as cluster:
        topic = cluster.create_topic(queues=IDLE_QUEUES)
        fill(cluster, topic, IDLE_QUEUES, batch_size=1)
        at = Place(cluster.namesrv, topic, version)
        values = {**MODES["concurrent"], "messages": 0}
        with MemberProcess(who, at, values) as member:
            member.event("first", timeout_s=60)
            threading.Event().wait(_SETTLE_S)
            before_s = cpu_s(member.pid)
            threading.Event().wait(seconds)
            percent = (cpu_s(member.pid) - before_s) / seconds * 100
            took = member.stop()
    return {
        "bench": "consume_queues.idle",
        "who": who,
        "queues": IDLE_QUEUES,
        "cpu_percent": round(percent, 2),
        "peak_mib": round(took.peak_mib, 1),
        "reach": {"cpu_percent": IDLE_PERCENT_MAX},
        "is_reached": {"cpu_percent": percent <= IDLE_PERCENT_MAX},
    }


def main() -> None:
    """Measure what the options select."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=("many", "idle"))
    parser.add_argument("--who", choices=(JAVA, OURS), default=OURS)
    options = parser.parse_args()
    if options.only != "many":
        line = idle(options.version, seconds=options.seconds, who=options.who)
        print(json.dumps(line), flush=True)
    if options.only != "idle":
        line = many(options.version, messages=options.messages, who=options.who)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
