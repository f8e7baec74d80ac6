"""Measure `rmq doctor` and `rmq cluster` on several real brokers, as whole processes.

    python -m tests.bench.doctor [--version 5.5.0] [--brokers 4] [--groups 200]

Prints one JSON line per command. Each broker has topics and groups with offsets, and
one group has members, one for two brokers. Then one broker hangs, and the doctor is
measured again: it waits for `--timeout`, 5 s by default. The target is 3 s on four
brokers that answer. On a busy machine, the figures to watch are CPU times: those of the
command, and of all brokers together for each run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rmqcli import Consumer, ConsumerConfig
from tests.bench.exporter import cpu_s
from tests.bench.lag import installed_environment, timed
from tests.bench.lag_many import write_config
from tests.kit import configuration
from tests.kit.cluster import RealCluster

#: `rmq doctor` ends with the status of the worst finding.
FINDINGS = (0, 1, 2)


def main() -> None:
    """Start the brokers, let members join, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--runs", type=int, default=11)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        for index in range(arguments.brokers):
            write_config(
                Path(folder) / f"store-{configuration.broker_name(index)}",
                groups=arguments.groups,
                topics=arguments.topics,
                queues=4,
            )
        with (
            RealCluster(
                arguments.version,
                Path(folder),
                brokers=arguments.brokers,
                heap_mb=256,
                is_brief=True,
            ) as cluster,
            ExitStack() as members,
        ):
            for number in range(arguments.brokers // 2):
                members.enter_context(
                    Consumer(
                        "bench-group-0000",
                        "bench-topic-0000",
                        lambda message: None,
                        namesrv=cluster.namesrv,
                        config=ConsumerConfig(instance_name=f"member-{number}"),
                    )
                )
            pids = [cluster.broker_pid(each) for each in range(arguments.brokers)]
            env = installed_environment(folder)
            env["XDG_STATE_HOME"] = str(Path(folder) / "state")

            def measure(*words: str, name: str, runs: int = arguments.runs) -> None:
                command = [sys.executable, "-m", "rmqcli", *words]
                command += ["-n", cluster.namesrv]
                timed(command, runs=1, env=env, exit_codes=FINDINGS)
                before = sum(map(cpu_s, pids))
                found = timed(command, runs=runs, env=env, exit_codes=FINDINGS)
                used = round((sum(map(cpu_s, pids)) - before) / runs, 3)
                line = {"command": name, **found, "cpu_of_brokers_s": used}
                print(json.dumps({**line, "load": os.getloadavg()[0]}), flush=True)

            measure("doctor", name="rmq doctor")
            measure("cluster", name="rmq cluster")
            measure("doctor", name="rmq doctor")
            cluster.suspend_broker(arguments.brokers - 1)
            measure("doctor", name="rmq doctor, one broker hangs", runs=2)
            cluster.resume_broker(arguments.brokers - 1)


if __name__ == "__main__":
    main()
