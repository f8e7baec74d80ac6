"""How fast `spark.read.format("rocketmq")` and a stream are, beside `rmq export`.

    python -m tests.bench.spark_source [-n HOST:PORT --topic T] [--messages 200000]

Without `-n` it starts a RocketMQ of its own and fills a topic. All are taken on one
local Spark that is up and has run each once: export, batch, stream, stream, batch,
export, --rounds times.
Prints one JSON object with messages a second, and the two ratios that matter: batch
against export (aim 1.1), and a stream with availableNow against batch (aim 0.8). The
stream's figure is of its batch; what starting and ending a query costs is beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
from contextlib import ExitStack

from rmqcli.spark.session import cores
from tests.bench.export import Stopwatch, TimedRunner, filled, once_up
from tests.kit.spark import spark_session


def batch_rate(frame, rows: int) -> float:
    """Rows a second of one pass into nothing."""
    watch = Stopwatch()
    frame.write.format("noop").mode("overwrite").save()
    return rows / watch.seconds()


def stream_rates(stream, folder: str) -> tuple[float, float]:
    """Rows a second of the batches of an availableNow query, and with its start."""
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
        with spark_session(folder) as spark:

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
            for kind in kinds * arguments.rounds:
                if kind == "export":
                    _, _, took_s = once_up(arguments, next(paths), runner)
                    exports.append(rows / took_s)
                elif kind == "batch":
                    batches.append(batch_rate(frame, rows))
                else:
                    rate, whole = stream_rates(stream.load(), next(paths))
                    streams.append(rate)
                    wholes.append(whole)
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
