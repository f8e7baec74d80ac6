"""Measure the asynchronous clients beside the synchronous ones.

    python -m tests.bench.aio [--messages 200000] [--rounds 1] [-n HOST:PORT]
        [--work batch32,batch1,send]

Without `-n` it starts a RocketMQ 5.5.0 with a topic of eight queues. Bodies have 128
bytes:

- batch32 and batch1: a new group consumes the messages of a topic, with `on_batch` and
  up to 32 or 1 messages a call, until all have come;
- send: 256 messages are on their way at once. The synchronous producer does this with
  `submit`, the asynchronous one with 256 tasks, each of which awaits `send`.

Each run is in a process of its own, in the order A B B A where A is synchronous. Prints
a line of JSON for each run, and one for each kind of work with the medians in messages
a second, by the clock and by the CPU of the process, and their ratios; 0.8 is wanted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqcli import Consumer, Producer, ProducerConfig, ProducerMessage
from rmqcli.aio import AsyncConsumer, AsyncProducer
from tests.bench.send import rates

WORKS = ("batch32", "batch1", "send")
BODY = b"x" * 128
IN_FLIGHT = 256


class Clock:
    """From now until `rates`."""

    def __init__(self) -> None:
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def rates(self, count: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._begun
        return rates(count, seconds, time.process_time() - self._cpu)


def consume(arguments: argparse.Namespace, batch: int) -> dict[str, float]:
    left, lock, done = arguments.messages, threading.Lock(), threading.Event()

    def on_batch(messages: Any, _context: Any) -> None:
        nonlocal left
        with lock:
            left -= len(messages)
        if left <= 0:
            done.set()

    clock = Clock()
    with Consumer(**where(arguments, batch), on_batch=on_batch):
        done.wait()
        return clock.rates(arguments.messages)


async def consume_async(arguments: argparse.Namespace, batch: int) -> dict[str, float]:
    left, done = arguments.messages, asyncio.Event()

    async def on_batch(messages: Any, _context: Any) -> None:
        nonlocal left
        left -= len(messages)
        if left <= 0:
            done.set()

    clock = Clock()
    async with AsyncConsumer(**where(arguments, batch), on_batch=on_batch):
        await done.wait()
        return clock.rates(arguments.messages)


def where(arguments: argparse.Namespace, batch: int) -> dict[str, Any]:
    return {
        "group": f"g-{uuid.uuid4().hex[:12]}",
        "topics": arguments.topic,
        "batch": batch,
        "consume_from": "earliest",
        "namesrv": arguments.namesrv,
    }


def send(arguments: argparse.Namespace) -> dict[str, float]:
    config = ProducerConfig(async_messages_max=IN_FLIGHT)
    with Producer(namesrv=arguments.namesrv, config=config) as producer:
        producer.send(ProducerMessage(arguments.topic, BODY))
        clock = Clock()
        futures = [
            producer.submit(ProducerMessage(arguments.topic, BODY))
            for _ in range(arguments.messages)
        ]
        for each in futures:
            each.result()
        return clock.rates(arguments.messages)


async def send_async(arguments: argparse.Namespace) -> dict[str, float]:
    async with AsyncProducer(namesrv=arguments.namesrv) as producer:
        await producer.send(ProducerMessage(arguments.topic, BODY))
        left = iter(range(arguments.messages))

        async def work() -> None:
            for _ in left:
                await producer.send(ProducerMessage(arguments.topic, BODY))

        clock = Clock()
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        return clock.rates(arguments.messages)


def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Do the work of `--inside` in this process."""
    kind, _, work = arguments.inside.partition("-")
    if work == "send":
        if kind == "sync":
            return send(arguments)
        return asyncio.run(send_async(arguments))
    batch = int(work.removeprefix("batch"))
    if kind == "sync":
        return consume(arguments, batch)
    return asyncio.run(consume_async(arguments, batch))


def measured(arguments: argparse.Namespace, kind: str, work: str) -> dict[str, float]:
    """Run one kind of client in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.aio", "--inside", f"{kind}-{work}"]
    command += ["-n", arguments.namesrv, "--topic", arguments.topic]
    command += ["--messages", str(arguments.messages)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", default=",".join(WORKS))
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(run(arguments)))
        return
    with ExitStack() as stack:
        if not arguments.namesrv:
            from tests.kit.cluster import RealCluster

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = stack.enter_context(RealCluster("5.5.0", folder))
            arguments.namesrv = cluster.namesrv
            arguments.topic = cluster.create_topic(arguments.topic, queues=8)
        with Producer(namesrv=arguments.namesrv) as producer:
            for _ in range(-(-arguments.messages // 500)):
                messages = [ProducerMessage(arguments.topic, BODY) for _ in range(500)]
                producer.send_batch(messages)
        for work in arguments.work.split(","):
            compare(arguments, work)


def compare(arguments: argparse.Namespace, work: str) -> None:
    """Measure one kind of work in the order A B B A, and print the figures."""
    runs: dict[str, list[dict[str, float]]] = {"sync": [], "async": []}
    for kind in ("sync", "async", "async", "sync") * arguments.rounds:
        figures = measured(arguments, kind, work)
        runs[kind].append(figures)
        print(json.dumps({"work": work, "kind": kind, **figures}), flush=True)

    def middle(kind: str, name: str) -> float:
        return statistics.median(each[name] for each in runs[kind])

    names = list(runs["sync"][0])
    print(
        json.dumps(
            {
                "work": work,
                **{
                    kind: {name: round(middle(kind, name)) for name in names}
                    for kind in runs
                },
                "ratios": {
                    name: round(middle("async", name) / middle("sync", name), 2)
                    for name in names
                },
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
