"""Kills `rmq dlq redrive` or `rmq retry flush` with SIGKILL at random, and counts.

    python -m tests.redrive.kills [redrive|flush] --kills 100 [--seed N] [-n HOST:PORT]

Without `-n` it starts a RocketMQ 5.5.0. Every letter must arrive; one may arrive again
only as often as a plan named it before, and a kill may add at most one batch to these.
A letter of a flush is a message that waits in a delay level. Prints the counts as JSON.
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
from typing import TYPE_CHECKING, Any

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.client import consumer_send_msg_back
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.ids import decode_offset_msg_id

if TYPE_CHECKING:
    from rmqcli import SendResult

ROOT = Path(__file__).parents[2]
#: The most letters that a kill may leave in doubt.
BATCH = 1_000
QUEUES = 4
#: Half of the kills come so soon after the start, mostly while letters are counted.
_START_S = 1.5
#: The other half come when the log has grown by up to this: about four batches.
_LOG_BYTES = 700_000
#: Of two hours, so that no original comes due meanwhile.
_LEVEL = 18


@dataclass(slots=True)
class Counts:
    """What was counted: letters that arrived `again` were sent more than once."""

    kills: int = 0
    kills_in_doubt: int = 0
    runs: int = 0
    letters: int = 0
    lost: int = 0
    again: int = 0
    unnamed: int = 0
    doubtful_max: int = 0


class Kills:
    """Runs of one command, each of which sends all letters of a group."""

    #: how many letters a run sends, and the property that names the letter of a copy
    letters: int
    mark: str
    #: The longest time from the note of a batch in the log to a kill, in seconds.
    pause_s = 0.1

    def __init__(self, namesrv: str, folder: Path, *, seed: int) -> None:
        self._namesrv = namesrv
        self._folder = folder
        self._rng = random.Random(seed)
        self.counts = Counts()

    def _prepare(self) -> tuple[list[str], str]:
        """Return the command of the next run, and the topic to which it sends."""
        raise NotImplementedError

    def run(self, kills: int) -> None:
        """Let the command send all letters, killed at most so often on the way."""
        words, topic = self._prepare()
        log = self._folder / f"{uuid.uuid4().hex}.jsonl"
        command = [
            *(sys.executable, "-m", "rmqcli", *words, "--log", str(log)),
            *("-n", self._namesrv, "-o", "json"),
        ]
        named: Counter[str] = Counter()
        before: set[str] = set()
        while kills and self._killed([*command, "--execute", "--yes"], log):
            kills -= 1
            self.counts.kills += 1
            plan = json.loads(_stdout_of(command))
            doubtful = set(plan["doubtful"])
            assert len(doubtful) == plan["doubtful_count"]
            assert len(doubtful - before) <= BATCH
            self.counts.kills_in_doubt += bool(doubtful - before)
            self.counts.doubtful_max = max(self.counts.doubtful_max, len(doubtful))
            named.update(doubtful)
            before = doubtful
        _stdout_of([*command, "--execute", "--yes"])
        self._count(topic, named)

    def _send(self, topic: str) -> list[SendResult]:
        with Producer(namesrv=self._namesrv) as producer:
            futures = [
                producer.submit(ProducerMessage(topic, b"%d" % n))
                for n in range(self.letters)
            ]
            return [each.result() for each in futures]

    def _killed(self, command: list[str], log: Path) -> bool:
        """Run the command until it is killed; False if it ended before."""
        rng = self._rng
        size = _size(log)
        begun_s = time.monotonic()
        with subprocess.Popen(
            command,
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
                time.sleep(rng.uniform(0, self.pause_s))
            process.kill()
        return process.returncode == -signal.SIGKILL

    def _count(self, topic: str, named: Counter[str]) -> None:
        found: Counter[str] = Counter()
        bodies: dict[str, bytes] = {}
        with Admin(namesrv=self._namesrv) as admin:
            for message in admin.read(topic):
                name = message.properties[self.mark]
                found[name] += 1
                assert bodies.setdefault(name, message.body) == message.body
        arrived = {int(body) for body in bodies.values()}
        assert len(arrived) == len(bodies)
        counts = self.counts
        counts.runs += 1
        counts.letters += self.letters
        counts.lost += len(set(range(self.letters)) - arrived)
        counts.again += found.total() - len(found)
        counts.unnamed += sum(max(0, found[n] - 1 - named[n]) for n in found)


class RedriveKills(Kills):
    """Redrives of the letters of one group, each to a new topic."""

    letters = 12_000
    mark = "RMQ_REDRIVEN_FROM"

    def __init__(self, namesrv: str, folder: Path, *, seed: int) -> None:
        super().__init__(namesrv, folder, seed=seed)
        self._group = f"g-{uuid.uuid4().hex[:12]}"
        dead = f"%DLQ%{self._group}"
        with Admin(namesrv=namesrv) as admin:
            admin.create_group(self._group)
            admin.create_topic(dead, queue_nums=QUEUES)
        self._send(dead)

    def _prepare(self) -> tuple[list[str], str]:
        topic = f"t-{uuid.uuid4().hex[:12]}"
        with Admin(namesrv=self._namesrv) as admin:
            admin.create_topic(topic, queue_nums=QUEUES)
        return ["dlq", "redrive", self._group, "--to", topic], topic


class FlushKills(Kills):
    """Flushes of what waits for a group, a new group each time."""

    letters = 4_000
    mark = "RMQ_FLUSHED_FROM"
    #: The next batch is read before this one is sent.
    pause_s = 1.5

    def _prepare(self) -> tuple[list[str], str]:
        group, topic = f"g-{uuid.uuid4().hex[:12]}", f"t-{uuid.uuid4().hex[:12]}"
        with Admin(namesrv=self._namesrv) as admin:
            admin.create_group(group)
            admin.create_topic(topic, queue_nums=QUEUES)
        questions = []
        for result in self._send(topic):
            assert result.offset_msg_id is not None
            place = decode_offset_msg_id(result.offset_msg_id)
            header = ConsumerSendMsgBackRequestHeader(
                offset=place.commit_log_offset,
                group=group,
                delay_level=_LEVEL,
                origin_msg_id=result.offset_msg_id,
                origin_topic=topic,
                unit_mode=False,
                max_reconsume_times=16,
            )
            call = consumer_send_msg_back(header)
            questions.append((result.msg_id, (place.host, call)))
        with Client(ClientConfig(namesrv=(self._namesrv,))) as client:
            # Brokers refuse what has waited for their threads for two seconds.
            for at in range(0, len(questions), 100):
                some = dict(questions[at : at + 100])
                answers = client.ask_many(some, timeout_ms=60_000)
                assert set(answers.values()) == {None}, answers
        return ["retry", "flush", group], f"%RETRY%{group}"


def _stdout_of(command: list[str]) -> bytes:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_KILLS = {"redrive": RedriveKills, "flush": FlushKills}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=_KILLS, default="redrive")
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
        kills = _KILLS[arguments.command](namesrv, folder, seed=arguments.seed)
        while kills.counts.kills < arguments.kills:
            kills.run(arguments.kills - kills.counts.kills)
            found = {name: getattr(kills.counts, name) for name in Counts.__slots__}
            print(json.dumps({"seed": arguments.seed, **found}), flush=True)


if __name__ == "__main__":
    main()
