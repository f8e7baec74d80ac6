"""Measure `df.write.format("rocketmq")`, compared with a Producer in one process.

    python -m tests.bench.spark_sink [-n HOST:PORT --topic T] [--messages 200000]

Without `-n`, it starts a RocketMQ cluster. The same messages (a body of 128 bytes, a
tag, a key and a property) are sent in two ways, in the order A B B A, --rounds times:
by `Producer.send_batch` in this process, in prepared batches of 512, and by the sink
from a cached DataFrame, on a local Spark that has already written once. Each write
starts Python processes, however few rows it has. So a write with one row per task is
timed before each, and the figures are given with and without that start. Prints one
JSON object with messages per second and the ratio of the sink to the producer (target
1, and 40,000 messages per second).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rmqcli import Producer, ProducerConfig, ProducerMessage
from rmqcli.producer.lane import BATCH_MESSAGES_MAX
from rmqcli.spark.session import cores
from tests.bench.export import Stopwatch
from tests.kit.spark import spark_session

BODY = b"x" * 128


def topic_of(stack: ExitStack, arguments: argparse.Namespace) -> tuple[str, str]:
    """Return name servers and topic: those of the arguments, or of a new cluster."""
    if arguments.namesrv:
        return arguments.namesrv, arguments.topic
    from tests.kit.artefacts import VERSIONS
    from tests.kit.cluster import RealCluster

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    conf = {"mappedFileSizeCommitLog": 1 << 28, "mappedFileSizeConsumeQueue": 6000000}
    cluster = stack.enter_context(RealCluster(VERSIONS[-1], folder, conf=conf))
    return cluster.namesrv, cluster.create_topic(arguments.topic, queues=8)


def messages(topic: str, count: int) -> list[list[ProducerMessage]]:
    """Return `count` messages in batches."""
    made = [
        ProducerMessage(topic, BODY, tags="A", keys=f"k{n}", properties={"n": str(n)})
        for n in range(count)
    ]
    return [
        made[start : start + BATCH_MESSAGES_MAX]
        for start in range(0, count, BATCH_MESSAGES_MAX)
    ]


def producer_rate(producer: Producer, batches: list[list[ProducerMessage]]) -> float:
    """Send the batches through one producer; return messages per second."""
    watch = Stopwatch()
    for batch in batches:
        producer.send_batch(batch)
    return sum(map(len, batches)) / watch.seconds()


def write_seconds(frame, namesrv: str, topic: str) -> float:
    """Return how many seconds one write takes."""
    watch = Stopwatch()
    writer = frame.write.format("rocketmq").option("namesrv", namesrv)
    writer.option("topic", topic).mode("append").save()
    return watch.seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    count = arguments.messages
    with ExitStack() as stack:
        namesrv, topic = topic_of(stack, arguments)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        batches = messages(topic, count)
        config = ProducerConfig(send_msg_timeout_ms=30_000)
        producer = stack.enter_context(Producer(namesrv=namesrv, config=config))
        spark = stack.enter_context(spark_session(folder))
        frame = spark.range(0, count, 1, cores()).selectExpr(
            f"unhex('{BODY.hex()}') AS body",
            "'A' AS tags",
            "concat('k', id) AS keys",
            "map('n', string(id)) AS properties",
        )
        frame = frame.cache()
        frame.count()
        few = spark.range(0, cores(), 1, cores()).selectExpr("string(id) AS body")
        write_seconds(few, namesrv, topic)
        producer_rate(producer, batches[:2])
        rates: dict[str, list[float]] = {"producer": [], "sink": [], "with_start": []}
        for _ in range(arguments.rounds):
            for name in ("producer", "sink", "sink", "producer"):
                if name == "producer":
                    rates[name].append(producer_rate(producer, batches))
                    continue
                start_s = write_seconds(few, namesrv, topic)
                took_s = write_seconds(frame, namesrv, topic)
                rates["sink"].append(count / max(0.001, took_s - start_s))
                rates["with_start"].append(count / took_s)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    print(
        json.dumps(
            {
                "messages": count,
                "per_s": {name: round(rate) for name, rate in middle.items()},
                "all_per_s": {n: [round(r) for r in f] for n, f in rates.items()},
                "sink_to_producer": round(middle["sink"] / middle["producer"], 2),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
