"""Measure `spark.read.format("rocketmq")` and a stream, compared with `rmq export`.

    python -m tests.bench.spark_source [-n HOST:PORT --topic T] [--messages 200000]

Without `-n`, it starts a RocketMQ cluster and fills a topic. Everything is measured on
one local Spark that has already run each kind once: export, batch, stream, stream,
batch, export, --rounds times.

Prints one JSON object with messages per second, and the two ratios that matter: batch
to export (target 1.1), and a stream with availableNow to batch (target 0.8). The
stream's figure covers its micro-batches; another one includes the start and end of the
query. The CPU time of Spark and its workers is given, too, with the start of a query,
because on a busy machine wall-clock time favours what waits least for other processes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rmqcli.spark.session import cores
from tests.bench.export import Stopwatch, TimedRunner, filled, once_up
from tests.kit.spark import spark_session


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process and its descendants, including ended ones."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = sum(map(int, fields[11:15]))
    total = 0
    for each, used in ticks.items():
        ancestor = each
        while ancestor not in (process, 0, 1):
            ancestor = parents.get(ancestor, 0)
        total += used if ancestor == process else 0
    return total / os.sysconf("SC_CLK_TCK")


def batch_rate(frame, rows: int) -> float:
    """Read everything once, into Spark's noop sink; return rows per second."""
    watch = Stopwatch()
    frame.write.format("noop").mode("overwrite").save()
    return rows / watch.seconds()


def stream_rates(stream, folder: str) -> tuple[float, float]:
    """Run an availableNow query; return rows per second of its batches, and in all."""
    watch = Stopwatch()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_s = watch.seconds()
    progress = query.recentProgress
    rows = sum(each["numInputRows"] for each in progress)
    batch_ms = sum(each["durationMs"].get("addBatch", 0) for each in progress)
    return rows / (batch_ms / 1000), rows / took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        filled(stack, arguments)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        arguments.queue = []
        paths = (os.path.join(folder, str(number)) for number in itertools.count())
        exports, batches, streams, wholes = [], [], [], []
        rows = 0
        # Leaves both of Java's compilers on, as in users' sessions.
        java = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
        with spark_session(folder, **java) as spark:

            def reader(made):
                made = made.format("rocketmq").option("namesrv", arguments.namesrv)
                made = made.option("minPartitions", str(4 * cores()))
                return made.option("subscribe", arguments.topic)

            runner = TimedRunner(spark.sparkContext)
            frame = reader(spark.read).load()
            stream = reader(spark.readStream).option("startingOffsets", "earliest")
            rows, _, _ = once_up(arguments, next(paths), runner)
            batch_rate(frame, rows)
            stream_rates(stream.load(), next(paths))
            kinds = ("export", "batch", "stream", "stream", "batch", "export")
            cpu: dict[str, float] = dict.fromkeys(kinds, 0.0)
            java_pid = spark.sparkContext._gateway.proc.pid
            for kind in kinds * arguments.rounds:
                before_s = cpu_s(java_pid)
                if kind == "export":
                    _, _, took_s = once_up(arguments, next(paths), runner)
                    exports.append(rows / took_s)
                elif kind == "batch":
                    batches.append(batch_rate(frame, rows))
                else:
                    rate, whole = stream_rates(stream.load(), next(paths))
                    streams.append(rate)
                    wholes.append(whole)
                cpu[kind] += cpu_s(java_pid) - before_s
    middle = {
        name: statistics.median(rates)
        for name, rates in (
            ("export", exports),
            ("batch", batches),
            ("stream", streams),
            ("stream_with_start", wholes),
        )
    }
    print(
        json.dumps(
            {
                "messages": rows,
                "per_s": {name: round(rate) for name, rate in middle.items()},
                "cpu_us_per_message": {
                    kind: round(each * 1e6 / (2 * arguments.rounds * rows), 2)
                    for kind, each in cpu.items()
                },
                "batch_to_export_by_cpu": round(cpu["export"] / cpu["batch"], 2),
                "stream_with_start_to_batch_by_cpu": round(
                    cpu["batch"] / cpu["stream"], 2
                ),
                "batch_to_export": round(middle["batch"] / middle["export"], 2),
                "stream_to_batch": round(middle["stream"] / middle["batch"], 2),
                "stream_with_start_to_batch": round(
                    middle["stream_with_start"] / middle["batch"], 2
                ),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
