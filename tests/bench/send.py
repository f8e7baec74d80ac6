"""Measure how fast a Producer sends, compared with another commit.

    python -m tests.bench.send [--against COMMIT] [--messages 200000] [--rounds 1]
        [--work submit,batch32,send,lines] [-n HOST:PORT]

Without `-n` it starts a RocketMQ 5.5.0 with a topic of eight queues. Bodies have 128
bytes, and one thread sends:

- submit: `submit` for each message, whose results are waited for at the end;
- batch32: `send_batch` of 32 messages a call;
- send: `send`, one after the other (a twentieth of the messages);
- lines: `rmq send --lines FILE`, with the start of the command.

Each commit runs in a process of its own, in the order A B B A where A is this checkout.
Prints a line of JSON for each run and one with the medians and their ratios, in
messages per second by the clock and by the CPU of the sending process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
WORKS = ("submit", "batch32", "send", "lines")
BODY = b"x" * 128


def run(work: str, namesrv: str, topic: str, count: int) -> dict[str, float]:
    """Send in this process; return messages per second by the clock and by CPU."""
    from rmqcli import Producer, ProducerConfig, ProducerMessage

    config = ProducerConfig(send_msg_timeout_ms=30_000)
    with Producer(namesrv=namesrv, config=config) as producer:
        producer.send(ProducerMessage(topic, BODY))
        # Older commits have this name.
        name = "submit" if hasattr(producer, "submit") else "send_async"
        submit = getattr(producer, name)
        begun, cpu = time.perf_counter(), time.process_time()
        if work == "submit":
            futures = [submit(ProducerMessage(topic, BODY)) for _ in range(count)]
            for each in futures:
                each.result()
        elif work == "batch32":
            for _ in range(count // 32):
                producer.send_batch([ProducerMessage(topic, BODY) for _ in range(32)])
        else:
            count //= 20
            for _ in range(count):
                producer.send(ProducerMessage(topic, BODY))
        return rates(count, time.perf_counter() - begun, time.process_time() - cpu)


def run_command(namesrv: str, topic: str, count: int) -> dict[str, float]:
    """Run `rmq send --lines`; return messages per second by the clock and by CPU."""
    with tempfile.NamedTemporaryFile() as file:
        file.write((BODY + b"\n") * count)
        file.flush()
        rmq = (sys.executable, "-m", "rmqcli", "-n", namesrv, "send", topic)
        begun = time.perf_counter()
        before = os.times()
        subprocess.run(
            [*rmq, "--lines", file.name, "-o", "jsonl"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return rates(count, time.perf_counter() - begun, cpu)


def rates(count: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    return {
        "messages_per_s": round(count / seconds),
        "messages_per_cpu_s": round(count / cpu_seconds),
    }


def measured(
    checkout: Path, arguments: argparse.Namespace, work: str
) -> dict[str, float]:
    """Run one kind of work with the package of a checkout, in a process of its own."""
    command = [sys.executable, __file__, "--inside", work]
    command += ["-n", arguments.namesrv, "--topic", arguments.topic]
    command += ["--messages", str(arguments.messages)]
    found = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", default="submit,batch32,send,lines")
    parser.add_argument("-n", "--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--inside", choices=WORKS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        where = (arguments.namesrv, arguments.topic, arguments.messages)
        if arguments.inside == "lines":
            print(json.dumps(run_command(*where)))
        else:
            print(json.dumps(run(arguments.inside, *where)))
        return
    with ExitStack() as stack:
        compare(stack, arguments)


def compare(stack: ExitStack, arguments: argparse.Namespace) -> None:
    """Measure each kind of work, and print the figures."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if not arguments.namesrv:
        from tests.kit.cluster import RealCluster

        conf = {
            "mappedFileSizeCommitLog": 1 << 28,
            "mappedFileSizeConsumeQueue": 6000000,
        }
        cluster = stack.enter_context(RealCluster("5.5.0", folder / "real", conf=conf))
        arguments.namesrv = cluster.namesrv
        arguments.topic = cluster.create_topic(arguments.topic, queues=8)
    checkouts = {"this": HERE}
    if arguments.against:
        other = checkouts["other"] = folder / "other"
        git = ("git", "-C", str(HERE), "worktree")
        subprocess.run(
            [*git, "add", "-q", "--detach", other, arguments.against], check=True
        )
        stack.callback(
            lambda: subprocess.run([*git, "remove", "--force", other], check=True)
        )
    names = [*checkouts, *reversed(checkouts)] if arguments.against else [*checkouts]
    for work in arguments.work.split(","):
        measured(HERE, arguments, work)  # warms the broker up
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
        for name in names * arguments.rounds:
            found = measured(checkouts[name], arguments, work)
            print(json.dumps({"work": work, "who": name, **found}), flush=True)
            runs[name].append(found)
        medians = {
            name: {key: statistics.median(run[key] for run in each) for key in each[0]}
            for name, each in runs.items()
        }
        summary = {"bench": "send", "work": work, "median": medians}
        if arguments.against:
            summary["this_to_other"] = {
                key: round(value / medians["other"][key], 3)
                for key, value in medians["this"].items()
            }
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
