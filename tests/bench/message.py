"""Measure `rmq message show` and `rmq dlq list` beside mqadmin, as whole processes.

    python -m tests.bench.message [--version 5.5.0] [--brokers 3] [--runs 7]

Prints one JSON line per command, and the ratio to mqadmin's command that tells the most
similar thing. The topic has a message with a key on each broker, and 20 groups; the
list of dead letters is of one broker with `--groups` groups, each with a letter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from tests.bench.lag import MQADMIN_MAIN, installed_environment, timed
from tests.bench.lag_many import write_config
from tests.kit import configuration
from tests.kit.cluster import RealCluster
from tests.kit.process import java_command, java_environment
from tests.kit.waiting import wait_until

GROUPS_OF_TOPIC = 20


def fill(cluster: RealCluster, topic: str) -> str:
    """Send a message with key `k` to each broker; return the id of the last."""
    with (
        Producer(namesrv=cluster.namesrv) as producer,
        Client(ClientConfig(namesrv=(cluster.namesrv,))) as client,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        queues = client.route(topic).write_queues()
        sent = [
            producer.send(ProducerMessage(topic, b"a", keys="k"), queue=queue)
            for queue in queues
        ]
        for number in range(GROUPS_OF_TOPIC):
            group = f"g-{topic}-{number}"
            admin.create_group(group)
            for index in range(cluster.broker_count):
                call = update_consumer_offset(group, topic, 0, commit_offset=0)
                client.invoke(cluster.broker_address(index), call)
        wait_until(
            lambda: len(admin.find_messages("k", topic=topic).messages) == len(queues)
        )
    assert sent[-1].msg_id is not None
    return sent[-1].msg_id


def kill(namesrv: str, groups: int) -> None:
    """Store a dead letter of each group."""
    with Producer(namesrv=namesrv) as producer:
        for number in range(groups):
            producer.send(ProducerMessage(f"%DLQ%bench-group-{number:04}", b"a"))


def compare(cluster: RealCluster, folder: str, runs: int, rows: list[Row]) -> None:
    """Time each command of ours and mqadmin's, and print both and their ratio."""
    env = installed_environment(folder)
    # Each cluster has brokers of its own, of which the other one knows nothing.
    env["XDG_STATE_HOME"] = str(Path(folder) / f"state-{len(rows)}")
    for name, ours, theirs in rows:
        command = [sys.executable, "-m", "rmqcli", *ours, "-n", cluster.namesrv]
        timed(command, runs=1, env=env)
        mine = timed(command, runs=runs, env=env)
        print(json.dumps({"command": name, **mine}), flush=True)
        if not theirs:
            continue
        java = java_command(
            cluster.class_path(),
            MQADMIN_MAIN,
            flags=[f"-Duser.home={cluster.tools_home()}"],
            arguments=[*theirs, "-n", cluster.namesrv],
        )
        other = timed(java, runs=2, env=java_environment(cluster.tools_home()))
        medians = [float(str(each["median_s"])) for each in (mine, other)]
        ratio = round(medians[0] / medians[1], 3)
        line = {"command": f"mqadmin {theirs[0]}", **other, "ratio": ratio}
        print(json.dumps(line), flush=True)


#: A name, the words of our command, and those of mqadmin's.
Row = tuple[str, list[str], list[str]]


def main() -> None:
    """Start the clusters, fill them, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--groups", type=int, default=2300)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        directory = Path(folder) / "many"
        with RealCluster(
            arguments.version, directory, brokers=arguments.brokers
        ) as cluster:
            topic = cluster.create_topic("bench", queues=1)
            msg_id = fill(cluster, topic)
            show = ["message", "show"]
            one = ["-g", f"g-{topic}-0"]
            by_id = ["queryMsgByUniqueKey", "-t", topic, "-i", msg_id]
            by_key = ["queryMsgByKey", "-t", topic, "-k", "k"]
            rows: list[Row] = [
                ("show by id", [*show, msg_id, "-t", topic, *one], by_id),
                ("show by id, 20 groups", [*show, msg_id, "-t", topic], by_id),
                ("show by key", [*show, "k", "-t", topic, *one], by_key),
                ("find by key", ["message", "find", topic, "--key", "k"], by_key),
            ]
            compare(cluster, folder, arguments.runs, rows)
        directory = Path(folder) / "groups"
        store = directory / f"store-{configuration.broker_name(0)}"
        write_config(
            store, groups=arguments.groups, topics=900, queues=8, has_letters=True
        )
        with RealCluster(arguments.version, directory) as cluster:
            kill(cluster.namesrv, arguments.groups)
            compare(
                cluster, folder, arguments.runs, [("dlq list", ["dlq", "list"], [])]
            )


if __name__ == "__main__":
    main()
