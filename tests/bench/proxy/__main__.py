"""Our client of a proxy beside the official Python client 5.1.2. Prints ratios.

    python -m venv /tmp/official
    /tmp/official/bin/pip install rocketmq-python-client==5.1.2
    python -m tests.bench.proxy --official /tmp/official/bin/python \\
        [--version 5.5.0] [--messages 2000] [--rounds 1] \\
        [--only send,batch,receive,push,latency]

Starts a real proxy in local mode and runs, in the order A B B A, each in a process of
its own:

- send: one message at a time;
- batch: the same messages 32 to a call, which only ours can;
- receive: up to 32 messages at once by a simple consumer, with their acknowledgement:
  one call each for the official client, one for all 32 for ours;
- push: a push consumer with 20 threads and a listener that does nothing, five times as
  many messages, from the first call of the listener to the last;
- latency: 100 messages a second, for 10 s, from the call that sends to the listener.

Rates are of the wall clock and CPU of the client's process alone, so on a busy machine
only their ratios mean something. Bodies have 128 bytes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.proxy.clients import (
    LATENCY_TOPIC,
    QUEUES,
    TOPIC,
    new_group,
    run_client,
    summary,
)
from tests.kit.cluster import RealCluster
from tests.kit.java_program import fill

_KINDS = ("send", "batch", "receive", "push", "latency")


def main() -> None:
    """Parse, start a proxy, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", required=True, metavar="PYTHON")
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default=",".join(_KINDS))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rmq-bench-") as directory,
        RealCluster(
            options.version, Path(directory), proxy=True, heap_mb=1024
        ) as cluster,
    ):
        cluster.create_topic(TOPIC, queues=QUEUES)
        cluster.create_topic(LATENCY_TOPIC, queues=QUEUES)
        fill(cluster, TOPIC, 5 * options.messages + 1_000, body_bytes=128)
        for kind in options.only.split(","):
            found: dict[str, list[dict[str, Any]]] = {"ours": [], "official": []}
            for number, who in enumerate(
                ["ours", "official", "official", "ours"] * options.rounds
            ):
                group = new_group(cluster.broker_address(), f"G-{kind}-{number}")
                found[who].append(
                    run_client(
                        who,
                        options.official,
                        kind=kind,
                        endpoints=cluster.endpoints,
                        group=group,
                        messages=options.messages,
                    )
                )
            print(json.dumps(summary(kind, found, ("ours", "official"))), flush=True)


if __name__ == "__main__":
    main()
