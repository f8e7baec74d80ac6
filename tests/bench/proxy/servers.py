"""Compare the embedded proxy with a real one, using the official client. Prints ratios.

    python -m tests.bench.proxy.servers --official /tmp/official/bin/python \\
        [--version 5.5.0] [--messages 2000] [--rounds 1] [--only send,receive,push]

Runs `rmq serve --proxy-port`, and a real proxy in local mode with its broker. The
official Python client uses them in the order A B B A; see `tests.bench.proxy` for its
environment and for what is measured. Rates and CPU times are those of the client.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli import Admin, Producer, ProducerMessage
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

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = ("send", "receive", "push", "latency")
_BATCH = 200


@dataclass(frozen=True)
class Server:
    """The addresses of a proxy and of its broker."""

    endpoints: str
    broker: str


def main() -> None:
    """Parse the options, start both, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", required=True, metavar="PYTHON")
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default=",".join(_KINDS))
    options = parser.parse_args()
    stored = 5 * options.messages + 1_000
    with embedded(stored) as ours, real(options.version, stored) as theirs:
        servers = {"embedded": ours, "real": theirs}
        for kind in options.only.split(","):
            found: dict[str, list[dict[str, Any]]] = {"embedded": [], "real": []}
            for number, which in enumerate(
                ["embedded", "real", "real", "embedded"] * options.rounds
            ):
                server = servers[which]
                found[which].append(
                    run_client(
                        "official",
                        options.official,
                        kind=kind,
                        endpoints=server.endpoints,
                        group=new_group(server.broker, f"G-{kind}-{number}"),
                        messages=options.messages,
                    )
                )
            print(json.dumps(summary(kind, found, ("embedded", "real"))), flush=True)


@contextmanager
def embedded(messages: int) -> Iterator[Server]:
    """Run `rmq serve` with a proxy in a separate process, and fill the topic."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rmqcli", "serve", "-o", "jsonl"),
            *("--listen", "127.0.0.1:0", "--proxy-port", "0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(3)]
        namesrv, broker, proxy = (each["address"] for each in rows)
        with Admin(namesrv=namesrv) as admin:
            for topic in (TOPIC, LATENCY_TOPIC):
                admin.create_topic(topic, queue_nums=QUEUES)
        batch = [ProducerMessage(TOPIC, b"x" * 128)] * _BATCH
        with Producer(namesrv=namesrv) as producer:
            for _ in range(messages // _BATCH + 1):
                producer.send_batch(batch)
        yield Server(proxy, broker)
    finally:
        process.kill()
        process.wait()


@contextmanager
def real(version: str, messages: int) -> Iterator[Server]:
    """Run a real proxy in local mode, and fill the topic."""
    with (
        tempfile.TemporaryDirectory(prefix="rmq-bench-") as directory,
        RealCluster(version, Path(directory), proxy=True, heap_mb=1024) as cluster,
    ):
        for topic in (TOPIC, LATENCY_TOPIC):
            cluster.create_topic(topic, queues=QUEUES)
        fill(cluster, TOPIC, messages, body_bytes=128)
        yield Server(cluster.endpoints, cluster.broker_address())


if __name__ == "__main__":
    main()
