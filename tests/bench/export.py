"""Measure the speed of `rmq export`, with and without the cost of Spark.

    python -m tests.bench.export [-n HOST:PORT --topic T] [--messages 2000000]

Without `-n`, it starts a RocketMQ cluster and fills a topic with bodies of 128 bytes.
Each pair is measured in the order A B B A, --rounds times. Prints one JSON object:

- the seconds of the whole process;
- rows per second after Spark and its Python workers have started (without planning and
  start), the same with `write_task` in as many processes without Spark, and the ratio
  (target 0.9);
- the size of the files, and the peak memory of all processes of one export together,
  as proportional set size.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.position import Earliest, Latest
from rmqcli.spark.daemon import MODULES
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.job import TASKS_PER_CORE, ContextJobs, run_parts
from rmqcli.spark.export.part import write_task
from rmqcli.spark.export.plan import ExportRequest, group_tasks
from rmqcli.spark.session import SessionOptions, cores, spark_context
from tests.spark.export.inline import SilentReport
from tests.spark.export.processes import in_session


class Stopwatch:
    """Measures the time since its creation, in seconds."""

    def __init__(self) -> None:
        self._start_ms = SYSTEM_CLOCK.monotonic_ms()

    def seconds(self) -> float:
        return (SYSTEM_CLOCK.monotonic_ms() - self._start_ms) / 1000


class PeakMemory:
    """Samples the memory of all processes of a session every 0.2 s, for its peak."""

    def __init__(self, session: int) -> None:
        self.peak_mb = 0.0
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            total_kb = sum(map(_pss_kb, in_session(self._session)))
            self.peak_mb = max(self.peak_mb, total_kb / 1024)


def _pss_kb(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def whole_process(arguments: argparse.Namespace, path: str) -> tuple[float, float]:
    """Run one `rmq export`; return its seconds and its peak memory in MB."""
    command = [sys.executable, "-m", "rmqcli", "export", arguments.topic, "-q"]
    command += ["--to-parquet", path, "-n", arguments.namesrv, "-o", "jsonl"]
    for queue in arguments.queue:
        command += ["--queue", queue]
    watch = Stopwatch()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    with PeakMemory(process.pid) as memory:
        code = process.wait()
    assert code == 0, f"rmq export ended with {code}"
    return watch.seconds(), memory.peak_mb


class TimedRunner:
    """Writes the parts on a local Spark; `seconds` excludes the start of Spark.

    Uses the SparkContext that is given, or starts one as `rmq export` does.
    """

    def __init__(self, spark=None) -> None:
        self.seconds = 0.0
        self._spark = spark

    @contextlib.contextmanager
    def __call__(self, start, /):
        with contextlib.ExitStack() as stack:
            spark = self._spark or stack.enter_context(
                spark_context(
                    SessionOptions(
                        name="bench", log_path=start.log_path, workers_max=start.parts
                    )
                )
            )
            # Spark forks its Python workers with the first task that needs one.
            spark.parallelize(range(start.parts), start.parts).map(str).collect()

            def write(parts, context, /, *, watch):
                stopwatch = Stopwatch()
                outcomes = run_parts(ContextJobs(spark), parts, context, watch=watch)
                self.seconds = stopwatch.seconds()
                return outcomes

            yield write


def up(all_up) -> None:
    """Import the modules that Spark's workers import before their first task; wait."""
    for name in MODULES:
        importlib.import_module(name)
    all_up.wait()


class ProcessRunner:
    """Writes the parts in local processes; `seconds` excludes their start."""

    seconds = 0.0

    @contextlib.contextmanager
    def __call__(self, start, /):
        spawn = multiprocessing.get_context("spawn")
        all_up = spawn.Barrier(cores() + 1)
        with spawn.Pool(cores(), initializer=up, initargs=(all_up,)) as pool:
            all_up.wait()

            def write(parts, context, /, *, watch):
                stopwatch = Stopwatch()
                tasks = group_tasks(parts, tasks=TASKS_PER_CORE * cores())
                task = functools.partial(write_task, context=context)
                found = pool.map(task, tasks, chunksize=1)
                self.seconds = stopwatch.seconds()
                outcomes = [outcome for of_task in found for outcome in of_task]
                return sorted(outcomes, key=lambda outcome: outcome.index)

            yield write


def once_up(
    arguments: argparse.Namespace, path: str, runner: TimedRunner | ProcessRunner
) -> tuple[int, int, float]:
    """Export; return rows, bytes, and seconds from started workers to the last file."""
    record = Export(
        request=ExportRequest(
            topic=arguments.topic,
            from_position="earliest",
            to_position="latest",
            queues=tuple(arguments.queue),
        ),
        options=ExportOptions(path=path),
        cluster=BrokerCluster(
            config=ClientConfig(namesrv=(arguments.namesrv,)),
            start=Earliest(),
            end=Latest(),
            note=lambda _: None,
        ),
        report=SilentReport(),
        clock=SYSTEM_CLOCK,
        disk=Disk(),
        runner=runner,
    ).run()
    files = [file for part in record.parts for file in part.files]
    rows = sum(file.rows for file in files)
    return rows, sum(file.file_bytes for file in files), runner.seconds


def filled(
    stack: contextlib.ExitStack,
    arguments: argparse.Namespace,
    *,
    body_bytes: int = 128,
) -> None:
    """Start a cluster with a filled topic, unless the arguments name one."""
    if arguments.namesrv:
        return
    from tests.kit.artefacts import VERSIONS
    from tests.kit.cluster import RealCluster
    from tests.kit.java_program import fill

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    conf = {"mappedFileSizeCommitLog": 1 << 28, "mappedFileSizeConsumeQueue": 6000000}
    cluster = stack.enter_context(RealCluster(VERSIONS[-1], folder, conf=conf))
    arguments.topic = cluster.create_topic(arguments.topic, queues=8)
    fill(
        cluster,
        arguments.topic,
        arguments.messages,
        body_bytes=body_bytes,
        batch_size=500,
    )
    arguments.namesrv = cluster.namesrv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queue", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    whole: list[float] = []
    rates: dict[str, list[float]] = {"spark": [], "processes": []}
    peaks = []
    rows = size = 0
    with contextlib.ExitStack() as stack:
        filled(stack, arguments)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        paths = (os.path.join(folder, str(number)) for number in itertools.count())
        for _ in range(2 * arguments.rounds):
            took, peak = whole_process(arguments, next(paths))
            whole.append(took)
            peaks.append(peak)
        for name in ("spark", "processes", "processes", "spark") * arguments.rounds:
            runner = TimedRunner() if name == "spark" else ProcessRunner()
            rows, size, took = once_up(arguments, next(paths), runner)
            rates[name].append(rows / took)
    print(
        json.dumps(
            {
                "rows": rows,
                "file_bytes": size,
                "whole_process_s": whole,
                "rows_per_s_once_up": {
                    name: [round(rate) for rate in found]
                    for name, found in rates.items()
                },
                "spark_to_processes": round(
                    statistics.median(rates["spark"])
                    / statistics.median(rates["processes"]),
                    2,
                ),
                "peak_mb": round(max(peaks)),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
