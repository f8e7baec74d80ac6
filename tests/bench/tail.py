"""Measure whole runs of `rmq tail`. Prints one JSON line per run.

    python -m tests.bench.tail [--messages 2000000] [--namesrv HOST:PORT --topic T]

The topic has eight queues with bodies of 128 bytes, on a broker 5.5.0 of this machine,
which is warmed up by reading everything once. `raw`, `jsonl` and `one_queue` follow in
the order A B C C B A. `cpu_s` is the CPU time of the process, the figure to watch on a
busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.cluster import RealCluster
from tests.kit.java_program import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = 8
BODY_BYTES = 128


def measured(arguments: list[str]) -> dict[str, float]:
    """Run `rmq tail` with its output discarded; return wall, CPU and peak memory."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "tail", *arguments, "-q"],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"tail {arguments} exited {process.returncode}")
    return {
        "wall_s": round(time.perf_counter() - started, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
    }


@contextlib.contextmanager
def topic_of(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield name server and topic: those of the options, or of a new, filled one."""
    if options.namesrv:
        yield options.namesrv, options.topic
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        RealCluster(options.version, Path(folder), heap_mb=1024) as cluster,
    ):
        topic = cluster.create_topic(queues=QUEUES)
        fill(cluster, topic, messages=options.messages, body_bytes=BODY_BYTES)
        yield cluster.namesrv, topic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--namesrv")
    parser.add_argument("--topic", default="bench")
    options = parser.parse_args()
    with topic_of(options) as (namesrv, topic):
        whole = [topic, "-n", namesrv, "--from", "earliest", "--to", "latest"]
        cases = {
            "raw": (["-o", "raw"], 1),
            "jsonl": (["-o", "jsonl"], 1),
            "one_queue": (["-o", "raw", "--queue", "0"], QUEUES),
        }
        start = measured([*whole[:3], "--no-follow", "--last", "0"])
        print(json.dumps({"case": "start", **start}), flush=True)
        measured([*whole, "-o", "raw"])
        for name in [*cases, *reversed(cases)]:
            flags, share = cases[name]
            result: dict[str, float] = measured([*whole, *flags])
            messages = options.messages // share
            # Subtracts the cost of a start, measured by a run that reads nothing.
            wall_s = max(0.001, result["wall_s"] - start["wall_s"])
            cpu_s = max(0.001, result["cpu_s"] - start["cpu_s"])
            rates = {
                "messages_per_s": round(messages / wall_s),
                "messages_per_cpu_s": round(messages / cpu_s),
            }
            line = {"case": name, "messages": messages, **rates, **result}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
