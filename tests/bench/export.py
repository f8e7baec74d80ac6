"""How fast `rmq export` is, against a running broker with a filled topic.

    python -m tests.bench.export -n HOST:PORT --topic T [--runs 3] [--queue 0]

Prints one JSON object: the whole process in seconds (each run), rows a second once
Spark and its Python workers are up (planning and start left out), size of the files,
and the peak of the memory of all processes of one export together, as proportional set
size.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from rmqcli.queue_selector import parse_queue_selector
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.job import ContextJobs, run_parts
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.session import SessionOptions, spark_context
from tests.spark.export.inline import SilentReport
from tests.spark.export.processes import in_session


class Stopwatch:
    """The time since it was made, in seconds."""

    def __init__(self) -> None:
        self._start_ms = SYSTEM_CLOCK.monotonic_ms()

    def seconds(self) -> float:
        return (SYSTEM_CLOCK.monotonic_ms() - self._start_ms) / 1000


class PeakMemory:
    """Watches what the processes of a session take together, every 0.2 s."""

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
    """Seconds and peak MB of one `rmq export`."""
    command = [sys.executable, "-m", "rmqcli", "export", arguments.topic, "-q"]
    command += ["--to-parquet", path, "-n", arguments.namesrv, "-o", "jsonl"]
    for queue in arguments.queue:
        command += ["--queue", queue]
    watch = Stopwatch()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, start_new_session=True
    )
    with PeakMemory(process.pid) as memory:
        code = process.wait()
    assert code == 0, f"rmq export ended with {code}"
    return watch.seconds(), memory.peak_mb


class TimedRunner:
    """Runs on a local Spark; how long the parts took once it was up."""

    seconds = 0.0

    @contextlib.contextmanager
    def __call__(self, start, /):
        session = SessionOptions(
            name="bench",
            log_path=start.log_path,
            workers_max=start.parts,
            master=start.options.master,
        )
        with spark_context(session) as spark:
            # Spark forks its Python workers with the first task that needs one.
            spark.parallelize(range(start.parts), start.parts).map(str).collect()

            def write(parts, context, /, *, watch):
                stopwatch = Stopwatch()
                outcomes = run_parts(ContextJobs(spark), parts, context, watch=watch)
                self.seconds = stopwatch.seconds()
                return outcomes

            yield write


def once_up(arguments: argparse.Namespace, path: str) -> tuple[int, int, float]:
    """Rows, bytes, and seconds from a started Spark to the last file."""
    runner = TimedRunner()
    record = Export(
        request=ExportRequest(
            topic=arguments.topic, from_position="earliest", to_position="latest"
        ),
        options=ExportOptions(path=path),
        cluster=BrokerCluster(
            config=ClientConfig(namesrv=(arguments.namesrv,)),
            selectors=[parse_queue_selector(text) for text in arguments.queue],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrv", required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--queue", action="append", default=[])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    seconds, peaks, rates = [], [], []
    rows = size = 0
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory() as folder:
            took, peak = whole_process(arguments, os.path.join(folder, "whole"))
            seconds.append(took)
            peaks.append(peak)
            rows, size, took = once_up(arguments, os.path.join(folder, "up"))
            rates.append(rows / took)
    print(
        json.dumps(
            {
                "rows": rows,
                "file_bytes": size,
                "whole_process_s": seconds,
                "whole_process_median_s": statistics.median(seconds),
                "rows_per_s_once_up": [round(rate) for rate in rates],
                "peak_mb": round(max(peaks)),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
