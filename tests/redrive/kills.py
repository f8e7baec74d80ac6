"""Kills `rmq dlq redrive` with SIGKILL at random, and counts what it sent.

    python -m tests.redrive.kills --kills 100 [--seed N] [-n HOST:PORT]

Without `-n` it starts a RocketMQ 5.5.0. Every letter must arrive; one may arrive again
only as often as a plan named it before, and a kill may add at most one batch to these.
Prints the counts as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqcli import Admin, Producer, ProducerMessage

ROOT = Path(__file__).parents[2]
#: Letters of a redrive, and the most that a kill may leave in doubt.
LETTERS = 12_000
BATCH = 1_000
QUEUES = 4
#: Half of the kills come so soon after the start, mostly while letters are counted.
_START_S = 1.5
#: The other half come when the log has grown by up to this: about four batches.
_LOG_BYTES = 700_000
_LETTER = "RMQ_REDRIVEN_FROM"


@dataclass(slots=True)
class Counts:
    """What was counted: letters that arrived `again` were sent more than once."""

    kills: int = 0
    kills_in_doubt: int = 0
    redrives: int = 0
    letters: int = 0
    lost: int = 0
    again: int = 0
    unnamed: int = 0
    doubtful_max: int = 0


class Kills:
    """Redrives of the letters of one group, which is made here."""

    def __init__(self, namesrv: str, folder: Path, *, seed: int) -> None:
        self._namesrv = namesrv
        self._folder = folder
        self._rng = random.Random(seed)
        self._group = f"g-{uuid.uuid4().hex[:12]}"
        self.counts = Counts()
        dead = f"%DLQ%{self._group}"
        with Admin(namesrv=namesrv) as admin:
            admin.create_group(self._group)
            admin.create_topic(dead, queue_nums=QUEUES)
        with Producer(namesrv=namesrv) as producer:
            results = [
                producer.submit(ProducerMessage(dead, b"%d" % n))
                for n in range(LETTERS)
            ]
            for each in results:
                each.result()

    def redrive(self, kills: int) -> None:
        """Redrive all letters to a new topic, killed at most so often on the way."""
        topic = f"t-{uuid.uuid4().hex[:12]}"
        log = self._folder / f"{topic}.jsonl"
        with Admin(namesrv=self._namesrv) as admin:
            admin.create_topic(topic, queue_nums=QUEUES)
        named: Counter[str] = Counter()
        before: set[str] = set()
        while kills and self._killed(topic, log):
            kills -= 1
            self.counts.kills += 1
            plan = json.loads(self._run(topic, log))
            doubtful = set(plan["doubtful"])
            assert len(doubtful) == plan["doubtful_count"]
            assert len(doubtful - before) <= BATCH
            self.counts.kills_in_doubt += bool(doubtful - before)
            self.counts.doubtful_max = max(self.counts.doubtful_max, len(doubtful))
            named.update(doubtful)
            before = doubtful
        self._run(topic, log, "--execute", "--yes")
        self._count(topic, named)

    def _command(self, topic: str, log: Path, *flags: str) -> list[str]:
        return [
            *(sys.executable, "-m", "rmqcli", "dlq", "redrive", self._group),
            *(
                "--to",
                topic,
                "--log",
                str(log),
                "-n",
                self._namesrv,
                "-o",
                "json",
                *flags,
            ),
        ]

    def _run(self, topic: str, log: Path, *flags: str) -> bytes:
        command = self._command(topic, log, *flags)
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout

    def _killed(self, topic: str, log: Path) -> bool:
        """Run a redrive until it is killed; False if it ended before."""
        rng = self._rng
        size = _size(log)
        begun_s = time.monotonic()
        with subprocess.Popen(
            self._command(topic, log, "--execute", "--yes"),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            if rng.random() < 0.5:
                until_s = begun_s + rng.uniform(0, _START_S)
                while process.poll() is None and time.monotonic() < until_s:
                    time.sleep(0.001)
            else:
                size += rng.randrange(_LOG_BYTES)
                while process.poll() is None and _size(log) <= size:
                    time.sleep(0.0002)
                time.sleep(rng.uniform(0, 0.1))
            process.kill()
        return process.returncode == -signal.SIGKILL

    def _count(self, topic: str, named: Counter[str]) -> None:
        found: Counter[str] = Counter()
        bodies: dict[str, bytes] = {}
        with Admin(namesrv=self._namesrv) as admin:
            for message in admin.read(topic):
                name = message.properties[_LETTER]
                found[name] += 1
                assert bodies.setdefault(name, message.body) == message.body
        arrived = {int(body) for body in bodies.values()}
        assert len(arrived) == len(bodies)
        counts = self.counts
        counts.redrives += 1
        counts.letters += LETTERS
        counts.lost += len(set(range(LETTERS)) - arrived)
        counts.again += found.total() - len(found)
        counts.unnamed += sum(max(0, found[n] - 1 - named[n]) for n in found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("-n", "--namesrv")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namesrv = arguments.namesrv
        if namesrv is None:
            from tests.kit.cluster import RealCluster

            real: Any = RealCluster("5.5.0", folder / "real")
            namesrv = stack.enter_context(real).namesrv
        kills = Kills(namesrv, folder, seed=arguments.seed)
        while kills.counts.kills < arguments.kills:
            kills.redrive(arguments.kills - kills.counts.kills)
            found = {name: getattr(kills.counts, name) for name in Counts.__slots__}
            print(json.dumps({"seed": arguments.seed, **found}), flush=True)


if __name__ == "__main__":
    main()
