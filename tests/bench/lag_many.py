"""Measure `rmq lag` over many groups. Prints one JSON line per command.

    python -m tests.bench.lag_many [--groups 2300] [--topics 900] [--version 5.5.0]

Topics, groups and offsets are written into the broker's config files before it starts.
With `--mqadmin`, RocketMQ's own command is timed in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.bench.lag import MQADMIN_MAIN, installed_environment, timed
from tests.kit import configuration
from tests.kit.cluster import RealCluster
from tests.kit.process import java_command, java_environment


def write_config(
    store: Path, *, groups: int, topics: int, queues: int, has_letters: bool = False
) -> None:
    """Write the config files that a broker reads at its start.

    Each group has offsets in one topic, and with `has_letters` one for dead letters.
    """
    config = store / "config"
    config.mkdir(parents=True)
    names = [f"bench-topic-{number:04}" for number in range(topics)]
    group_names = [f"bench-group-{number:04}" for number in range(groups)]
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    prefixes = ("%RETRY%", "%DLQ%") if has_letters else ("%RETRY%",)
    own = [(prefix + group, 1) for group in group_names for prefix in prefixes]
    table = {
        name: {
            "topicName": name,
            "readQueueNums": count,
            "writeQueueNums": count,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for name, count in [*((name, queues) for name in names), *own]
    }
    offsets = {
        f"{names[number % topics]}@{group}": {str(q): 0 for q in range(queues)}
        for number, group in enumerate(group_names)
    }
    for file, content in (
        ("topics.json", {"dataVersion": version, "topicConfigTable": table}),
        (
            "subscriptionGroup.json",
            {
                "dataVersion": version,
                "subscriptionGroupTable": {
                    group: {"groupName": group} for group in group_names
                },
            },
        ),
        ("consumerOffset.json", {"dataVersion": version, "offsetTable": offsets}),
    ):
        (config / file).write_text(json.dumps(content))


def main() -> None:
    """Write the files, start the broker on them, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2300)
    parser.add_argument("--topics", type=int, default=900)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--mqadmin", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        directory = Path(folder)
        write_config(
            directory / f"store-{configuration.broker_name(0)}",
            groups=arguments.groups,
            topics=arguments.topics,
            queues=arguments.queues,
        )
        with RealCluster(arguments.version, directory) as cluster:
            # A broker that has just started is slow, which is not a failure here.
            rmq = [sys.executable, "-m", "rmqcli", "lag", "-n", cluster.namesrv]
            rmq += ["--timeout", "1m"]
            env = installed_environment(folder)
            for name, command in (
                ("rmq lag", rmq),
                ("rmq lag -o json", [*rmq, "-o", "json"]),
            ):
                timed(command, runs=1, env=env)
                result = timed(command, runs=arguments.runs, env=env)
                print(json.dumps({"command": name, **result}), flush=True)
            if arguments.mqadmin:
                command = java_command(
                    cluster.class_path(),
                    MQADMIN_MAIN,
                    flags=[f"-Duser.home={cluster.tools_home()}"],
                    arguments=["consumerProgress", "-n", cluster.namesrv],
                )
                environment = java_environment(cluster.tools_home())
                result = timed(command, runs=1, env=environment)
                print(json.dumps({"command": "mqadmin consumerProgress", **result}))


if __name__ == "__main__":
    main()
