"""Measure whole runs of `rmq sql` beside `rmq tail` and `rmq export`.

    python -m tests.bench.sql [-n HOST:PORT --topic T] [--messages 2000000]

Without `-n`, it starts a RocketMQ cluster and fills a topic with bodies of 200 bytes.
Four commands run in the order A B C D D C B A, --rounds times:

- `rmq tail -o jsonl` and `rmq sql 'select * ...' -o jsonl` over the whole topic;
- `rmq sql 'select count(*) ...'` and `rmq export` of the whole topic.

Prints one JSON object: the seconds of each run and its CPU time with that of its
children, the two ratios that matter (rows to tail, target 3; count to export, target
1), both by time and by CPU, and the peak resident memory of the driver and of the JVM.
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

from tests.bench.export import Stopwatch, filled
from tests.spark.export.processes import in_session

BODY_BYTES = 200


class Peaks:
    """Samples the peak resident memory of a session's first process and of its JVM."""

    def __init__(self, session: int) -> None:
        self.mb = {"driver": 0, "jvm": 0}
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
            for process in in_session(self._session):
                with contextlib.suppress(OSError):
                    self._look_at(process)

    def _look_at(self, process: int) -> None:
        text = Path(f"/proc/{process}/status").read_text()
        facts = dict(line.split(":", 1) for line in text.splitlines())
        kind = "driver" if process == self._session else "jvm"
        if kind == "driver" or facts["Name"].strip() == "java":
            peak_mb = int(facts.get("VmHWM", "0 kB").split()[0]) // 1024
            self.mb[kind] = max(self.mb[kind], peak_mb)


def measured(arguments: list[str]) -> dict[str, float]:
    """Run `rmq` and throw its output away; return seconds, CPU seconds and peaks."""
    watch = Stopwatch()
    before = os.times()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *arguments, "-q"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    with Peaks(process.pid) as peaks:
        code = process.wait()
    after = os.times()
    if code != 0:
        raise RuntimeError(f"rmq {' '.join(arguments)} exited {code}")
    cpu_s = sum(after[2:4]) - sum(before[2:4])
    return {"wall_s": watch.seconds(), "cpu_s": round(cpu_s, 2), **peaks.mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        filled(stack, arguments, body_bytes=BODY_BYTES)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        topic, where = arguments.topic, ["-n", arguments.namesrv]
        whole = ["--from", "earliest", "--to", "latest", *where]
        commands = {
            "tail": ["tail", topic, *whole, "-o", "jsonl"],
            "rows": ["sql", f"select * from `{topic}`", *where, "-o", "jsonl"],
            "count": ["sql", f"select count(*) from `{topic}`", *where],
            "export": ["export", topic, *whole, "-o", "jsonl", "--to-parquet"],
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for name in [*commands, *reversed(commands)] * arguments.rounds:
            command = commands[name]
            if name == "export":
                command = [*command, str(folder / str(len(runs[name])))]
            runs[name].append(measured(command))
            print(json.dumps({"run": name, **runs[name][-1]}), flush=True)

    def middle(name: str, what: str) -> float:
        return statistics.median(each[what] for each in runs[name])

    print(
        json.dumps(
            {
                "messages": arguments.messages,
                **{
                    f"{a}_to_{b}{suffix}": round(middle(a, what) / middle(b, what), 2)
                    for a, b in (("rows", "tail"), ("count", "export"))
                    for what, suffix in (("wall_s", ""), ("cpu_s", "_by_cpu"))
                },
                "peak_mb": {
                    name: {
                        kind: max(each[kind] for each in found)
                        for kind in ("driver", "jvm")
                    }
                    for name, found in runs.items()
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
