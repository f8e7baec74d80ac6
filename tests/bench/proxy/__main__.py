"""Compare our client of a proxy with the official Python client 5.1.2. Prints ratios.

    python -m venv /tmp/official
    /tmp/official/bin/pip install rocketmq-python-client==5.1.2
    python -m tests.bench.proxy --official /tmp/official/bin/python \\
        [--version 5.5.0] [--messages 2000] [--rounds 1] \\
        [--only send,bare,batch,receive,push,latency]

Starts a real proxy in local mode, warms it up, and runs the following in the order
A B B A, each time in a new process:

- send: one message at a time;
- bare: the same calls, but in place of our client nothing but gRPC's blocking API: what
  no client on top of it can exceed;
- batch: batches of 32 messages, which the official client does not support;
- receive: up to 32 messages at once with a simple consumer, and their acknowledgement,
  which takes the official client one call per message, and ours one call for all;
- push: five times as many messages with a push consumer of 20 threads, whose listener
  does nothing, from the first call of the listener to the last;
- latency: from the call that sends to the listener, at 100 messages per second for
  10 s.

Rates are by wall clock, and CPU times are of the client's process alone, so on a busy
machine only the ratios mean something. Bodies have 128 bytes.
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

_KINDS = ("send", "bare", "batch", "receive", "push", "latency")


def main() -> None:
    """Parse the options, start a proxy, measure, and print."""
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
        # Until Java has compiled the proxy's code, the proxy is the slower part, which
        # brings the first ratios close to one.
        for who in ("ours", "official"):
            run_client(
                who,
                options.official,
                kind="send",
                endpoints=cluster.endpoints,
                group="",
                messages=options.messages,
            )
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
