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
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit import raw
from tests.kit.cluster import RealCluster
from tests.kit.java_program import fill

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC = "bench"
_QUEUES = 4
_HERE = Path(__file__).parent
_KINDS = ("send", "batch", "receive", "push", "latency")
#: Sends messages of its own; the others find theirs in TOPIC.
LATENCY_TOPIC = "latency"


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
        cluster.create_topic(TOPIC, queues=_QUEUES)
        cluster.create_topic(LATENCY_TOPIC, queues=_QUEUES)
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


def new_group(address: str, group: str) -> str:
    """A group of the broker at `address` that begins at the start of the topic."""
    body = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    code = raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    raw.ask(address, code, body=json.dumps(body).encode())
    for queue_id in range(_QUEUES):
        offset = {"topic": TOPIC, "queueId": str(queue_id), "commitOffset": "0"}
        raw.ask(address, 15, {"consumerGroup": group, **offset})
    return group


def run_client(who: str, official: str, **options: object) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.proxy_ours"]
    if who == "official":
        command = [official, str(_HERE / "proxy_official.py")]
    done = subprocess.run(
        [*command, json.dumps(options)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(
    kind: str, found: dict[str, list[dict[str, Any]]], names: tuple[str, str]
) -> dict[str, Any]:
    """Medians of two sides, and the first one's share of the second one's."""
    sides = {who: _medians(kind, found[who]) for who in names}
    first, second = (sides[who] for who in names)
    ratios = {
        "times_the_rate": round(first["messages_per_s"] / second["messages_per_s"], 2),
        "share_of_cpu": round(
            first["cpu_ms_per_message"] / second["cpu_ms_per_message"], 3
        ),
    }
    if kind == "latency":
        ratios = {
            f"share_of_{each}": round(first[each] / second[each], 3)
            for each in ("p50_ms", "p99_ms", "cpu_ms_per_message")
        }
    return {"kind": kind, **ratios, **sides}


def _medians(kind: str, runs: list[dict[str, Any]]) -> dict[str, float]:
    found = {
        "messages_per_s": round(
            _median(each["count"] / each["wall_s"] for each in runs)
        ),
        "cpu_ms_per_message": round(
            _median(1_000 * each["cpu_s"] / each["count"] for each in runs), 4
        ),
    }
    if kind == "latency":
        for each in ("p50_ms", "p99_ms"):
            found[each] = round(_median(run[each] for run in runs), 2)
    return found


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


if __name__ == "__main__":
    main()
