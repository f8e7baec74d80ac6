"""Measure the memory of a consumer that pulls while its listener is stuck. Prints JSON.

    python -m tests.bench.consume.memory [--cap-mib 64] [--queues 64] [--seconds 20]

By default, 64 queues are full of 4 KiB messages, far more than the cap and RocketMQ's
own limit (1000 messages per queue) let in. The peak must stay below the cap plus 60 MB.
"""

from __future__ import annotations

import argparse
import json
import threading

from tests.bench.consume.members import (
    MODES,
    OURS,
    MemberProcess,
    Place,
    cluster_of,
    cpu_s,
    rss_mib,
)
from tests.kit.java_program import fill

BODY_BYTES = 4096
MESSAGES_IN_QUEUE = 1_600
OVER_CAP_MB_MAX = 60


def main() -> None:
    """Fill the queues, block a consumer, and measure it for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--cap-mib", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    cap_bytes = options.cap_mib << 20
    values = {
        **MODES["concurrent"],
        "messages": 0,
        "block": True,
        "cached_bytes_max": cap_bytes,
    }
    with cluster_of(options.version) as cluster:
        topic = cluster.create_topic(queues=options.queues)
        messages = options.queues * MESSAGES_IN_QUEUE
        fill(cluster, topic, messages, body_bytes=BODY_BYTES, batch_size=100)
        at = Place(cluster.namesrv, topic, options.version)
        with MemberProcess(OURS, at, values) as member:
            member.event("first", timeout_s=30)
            threading.Event().wait(options.seconds / 2)
            half_mib, half_cpu_s = rss_mib(member.pid), cpu_s(member.pid)
            threading.Event().wait(options.seconds / 2)
            idle = (cpu_s(member.pid) - half_cpu_s) / (options.seconds / 2)
            end_mib = rss_mib(member.pid)
            took = member.stop()
    limit_mib = options.cap_mib + OVER_CAP_MB_MAX * 1e6 / 2**20
    line = {
        "bench": "consume_memory",
        "queues": options.queues,
        "stored_mib": messages * BODY_BYTES >> 20,
        "cap_mib": options.cap_mib,
        "half_time_mib": round(half_mib, 1),
        "end_mib": round(end_mib, 1),
        "peak_mib": round(took.peak_mib, 1),
        "cpu_percent_full": round(idle * 100, 2),
        "reach": {"peak_mib": round(limit_mib, 1)},
        "is_reached": {"peak_mib": took.peak_mib <= limit_mib},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
