"""Kills a streaming query again and again, and compares the rows of its sink exactly.

    python -m tests.spark.source.kill_stream [--kills 20] [--seed 1]

Messages come while the query runs. Each kill happens at a random moment after up to
three batches. Most kill the Python processes of Spark (the reader of the stream and the
workers), and the query is started again from its checkpoint; every fifth kills driver
and JVM as well. Prints one JSON object; exits 1 when a message is missing or
duplicated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamReader

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.waiting import wait_until
from tests.spark.export.processes import PROJECT, in_session

QUEUES = 3
FIRST_MESSAGES = 600
MESSAGES_PER_RUN = 200
#: The most batches that a query commits before it is killed, and the longest time
#: between that and the kill.
BATCHES_MAX = 3 if hasattr(DataSourceStreamReader, "getDefaultReadLimit") else 1
LONGEST_S = 3.0
KILLS_PER_JVM = 5


@contextmanager
def stream_process(namesrv, folder, *arguments):
    """Run the query in a new session; kill all processes of the session afterwards."""
    command = [sys.executable, "-m", "tests.spark.source.run_stream", namesrv, folder]
    with subprocess.Popen(
        [*command, *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if arguments else subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            wait_until(lambda: not _killed(process.pid))


def _killed(session: int) -> list[int]:
    """Kill the processes of a session; return the ones that were still alive."""
    found = in_session(session)
    for each in found:
        _kill(each)
    return found


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _python_of_spark(session: int) -> list[int]:
    """Return the processes that Spark's JVM has started: stream readers and workers."""
    found = []
    for each in in_session(session):
        with suppress(OSError):
            if b"pyspark." in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(each)
    return found


def kill_and_compare(folder, *, kills, seed):
    """Run and kill the query; return counts of the messages and of the sink's rows."""
    chance = random.Random(seed)
    never = threading.Event()
    expected: Counter[tuple[int, int, str]] = Counter()

    def send(cluster, count):
        start = sum(expected.values())
        bodies = [f"m{number}" for number in range(start, start + count)]
        for body, place in zip(bodies, cluster.send("orders", bodies), strict=True):
            expected[place.queue_id, place.queue_offset, body] += 1

    def commits():
        path = Path(folder, "checkpoint", "commits")
        return sum(each.name.isdigit() for each in path.glob("*"))

    with EmbeddedCluster(queues=QUEUES) as cluster:
        cluster.create_topic("orders", queues=QUEUES)
        send(cluster, FIRST_MESSAGES)
        left = kills
        while left:
            with stream_process(cluster.namesrv, folder) as process:
                for _ in range(min(left, KILLS_PER_JVM)):
                    assert process.stdout.readline() == "started\n"
                    send(cluster, MESSAGES_PER_RUN)
                    wanted = commits() + chance.randint(0, BATCHES_MAX)
                    wait_until(lambda w=wanted: commits() >= w)
                    never.wait(chance.uniform(0, LONGEST_S))
                    left -= 1
                    for each in _python_of_spark(process.pid):
                        _kill(each)
        with stream_process(cluster.namesrv, folder, "--report") as process:
            out, err = process.communicate()
            assert process.returncode == 0, err
    rows = Counter(tuple(row) for row in json.loads(out))
    return {
        "kills": kills,
        "rows": sum(rows.values()),
        "messages": sum(expected.values()),
        "missing": sum((expected - rows).values()),
        "repeated": sum(count - 1 for count in rows.values()),
        "wrong": len(rows.keys() - expected.keys()),
        "batches": commits(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_and_compare(folder, kills=arguments.kills, seed=arguments.seed)
    print(json.dumps(found))
    return 1 if found["missing"] or found["repeated"] or found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
