"""Measure the start of Spark for an export, compared with an ordinary session.

    python -m tests.bench.spark_start [--rounds 2]

Starts new processes, one after the other, in the order A B B A, --rounds times:
`spark_context`, as `rmq export` uses it, and `SparkSession.builder.getOrCreate()` as in
Spark's manual. Each reports how long its import and start took, and the time until a
first task in a Python worker was done. Prints one JSON object with medians and the
ratios to the plain session (target 0.6 for the start).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TASK = """
    up_s = time.perf_counter() - begun
    assert spark.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
    print(up_s, time.perf_counter() - begun, file=sys.stderr)
"""

OURS = f"""
import sys, time
begun = time.perf_counter()
from rmqcli.spark.session import SessionOptions, spark_context
options = SessionOptions(name="bench", log_path=sys.argv[1], workers_max=2)
with spark_context(options) as spark:
{TASK}
"""

PLAIN = f"""
import os, sys, time
begun = time.perf_counter()
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
if True:
    spark = SparkSession.builder.master("local[2]").getOrCreate().sparkContext
{TASK}
"""


def start(name: str, folder: str) -> tuple[float, float]:
    """Return the seconds until Spark was up, and until its first task was done."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            PLAIN if name == "plain" else OURS,
            os.path.join(folder, "log"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    up_s, task_s = map(float, ran.stderr.splitlines()[-1].split())
    return up_s, task_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    names = ("ours", "plain")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for name in (*names, *reversed(names)) * rounds:
            found[name].append(start(name, folder))
    seconds = {
        name: [round(statistics.median(each), 2) for each in zip(*took, strict=True)]
        for name, took in found.items()
    }
    print(
        json.dumps(
            {
                "up_s": {name: each[0] for name, each in seconds.items()},
                "first_task_s": {name: each[1] for name, each in seconds.items()},
                "up_to_plain": round(seconds["ours"][0] / seconds["plain"][0], 2),
                "first_task_to_plain": round(
                    seconds["ours"][1] / seconds["plain"][1], 2
                ),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
