"""Our client of a proxy beside the official Python client 5.1.2. Prints ratios.

    python -m venv /tmp/official
    /tmp/official/bin/pip install rocketmq-python-client==5.1.2
    python -m tests.bench.proxy --official /tmp/official/bin/python \\
        [--version 5.5.0] [--messages 2000] [--rounds 1] [--only send,batch,receive]

Starts a real proxy in local mode and runs, in the order A B B A, each in a process of
its own: sends of one message at a time; the same messages 32 to a call, which only ours
can; and receives of up to 32 messages by a SimpleConsumer with their acknowledgement,
one call each for the official client, one for all 32 for ours.
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

_TOPIC = "bench"
_QUEUES = 4
_HERE = Path(__file__).parent
_KINDS = ("send", "batch", "receive")


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
        cluster.create_topic(_TOPIC, queues=_QUEUES)
        runs = 2 * options.rounds
        fill(cluster, _TOPIC, 2 * options.messages * runs + 10_000, body_bytes=128)
        for kind in options.only.split(","):
            found: dict[str, list[dict[str, float]]] = {"ours": [], "official": []}
            for number, who in enumerate(
                ["ours", "official", "official", "ours"] * options.rounds
            ):
                group = _group(cluster, f"G-{kind}-{number}")
                found[who].append(
                    _run(
                        who,
                        options.official,
                        kind=kind,
                        endpoints=cluster.endpoints,
                        group=group,
                        messages=options.messages,
                    )
                )
            print(json.dumps(_summary(kind, found)), flush=True)


def _group(cluster: RealCluster, group: str) -> str:
    """A group that begins at the start of the topic."""
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
    cluster.ask(code, body=json.dumps(body).encode())
    for queue_id in range(_QUEUES):
        offset = {"topic": _TOPIC, "queueId": str(queue_id), "commitOffset": "0"}
        cluster.ask(15, {"consumerGroup": group, **offset})
    return group


def _run(who: str, official: str, **options: object) -> dict[str, float]:
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
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _summary(kind: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of each side, and how many times the official rate ours is."""
    sides = {
        who: {
            "messages_per_s": round(
                _median(each["count"] / each["wall_s"] for each in runs)
            ),
            "cpu_ms_per_message": round(
                _median(1_000 * each["cpu_s"] / each["count"] for each in runs), 4
            ),
        }
        for who, runs in found.items()
    }
    ours, official = sides["ours"], sides["official"]
    return {
        "kind": kind,
        "times_the_rate": round(ours["messages_per_s"] / official["messages_per_s"], 2),
        "share_of_cpu": round(
            ours["cpu_ms_per_message"] / official["cpu_ms_per_message"], 3
        ),
        **sides,
    }


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


if __name__ == "__main__":
    main()
