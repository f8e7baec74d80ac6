"""Measure whole runs of `rmq lag GROUP`, and of mqadmin. Prints JSON lines.

    python -m tests.bench.lag [--version 5.5.0] [--runs 15] [--no-mqadmin]

The group is in the middle of a backlog in 8 queues. On a busy machine, the figure to
watch is the process's CPU time (`cpu_median_s`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.cluster import RealCluster
from tests.kit.java_program import JavaConsumer, command_of, fill
from tests.kit.process import java_environment

if TYPE_CHECKING:
    from collections.abc import Container

GROUP = "bench-group"
MQADMIN_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


def timed(
    command: list[str],
    *,
    runs: int,
    env: dict[str, str] | None = None,
    exit_codes: Container[int] = (0,),
) -> dict[str, object]:
    """Return wall and CPU seconds of `command`; raise RuntimeError if it fails."""
    walls: list[float] = []
    cpus: list[float] = []
    output = b""
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False, env=env)
        walls.append(round(time.perf_counter() - start, 3))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        cpus.append(round(used, 3))
        if done.returncode not in exit_codes:
            said = done.stderr.decode(errors="replace")[-500:]
            raise RuntimeError(f"{command[:4]} exited {done.returncode}: {said}")
        output = done.stdout
    return {
        "median_s": statistics.median(walls),
        "min_s": min(walls),
        "max_s": max(walls),
        "cpu_median_s": statistics.median(cpus),
        "cpu_min_s": min(cpus),
        "runs": runs,
        "lines": output.count(b"\n"),
    }


def installed_environment(folder: str) -> dict[str, str]:
    """Return an environment with a bytecode cache, as an installed package has."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}


def main() -> None:
    """Start a broker, consume part of a topic, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--no-mqadmin", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder,
        RealCluster(arguments.version, Path(folder)) as cluster,
    ):
        topic = cluster.create_topic(queues=8)
        fill(cluster, topic, 20_000)
        with JavaConsumer(cluster, GROUP, topic, stopAfter=5_000) as consumer:
            consumer.wait_for(5_000)
        rmq = [sys.executable, "-m", "rmqcli", "lag", GROUP, "-n", cluster.namesrv]
        env = installed_environment(folder)
        timed(rmq, runs=3, env=env)
        ours = timed(rmq, runs=arguments.runs, env=env)
        print(json.dumps({"command": "rmq lag GROUP", **ours}), flush=True)
        if arguments.no_mqadmin:
            return
        mqadmin = command_of(
            cluster,
            MQADMIN_MAIN,
            ["consumerProgress", "-g", GROUP, "-n", cluster.namesrv],
        )
        theirs = timed(mqadmin, runs=3, env=java_environment(cluster.tools_home()))
        print(json.dumps({"command": "mqadmin consumerProgress -g", **theirs}))
        again = timed(rmq, runs=arguments.runs, env=env)
        print(json.dumps({"command": "rmq lag GROUP", **again}))


if __name__ == "__main__":
    main()
