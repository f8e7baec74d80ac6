"""Kills a broker after acknowledgements of POP: what comes back, and is anything lost?

    python -m tests.broker.pop_kills --order --kills 30
    python -m tests.broker.pop_kills --order --kills 10 --real 5.5.0

In each round a group pops messages of a queue and acknowledges some of them. The broker
is killed at a random moment after the last answer, started again, and the group pops
until it has all that it did not acknowledge. An unacknowledged message must not be
lost; acknowledged ones that come back are counted. Prints a summary as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from tests.broker.behaviour.pop import Ack, PopStage, Send
from tests.broker.wire_client import WireClient
from tests.kit.cluster import RealCluster
from tests.kit.program import Program
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES = 60
INVISIBLE_MS = 2_000
SENTINEL = "last"
_LOST_AFTER_S = 90


class Target(Protocol):
    """A broker that can be killed and started again."""

    @property
    def address(self) -> str:
        """The address of the running broker."""

    def kill(self) -> None:
        """SIGKILL the broker, and start it again in its folder."""


class Real:
    """A real broker."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self.address = cluster.broker_address()

    def kill(self) -> None:
        self._cluster.kill_broker()
        self._cluster.start_broker()


BROKER = """
import pathlib, sys, threading
from rmqcli.broker.cluster.embedded import EmbeddedCluster
cluster = EmbeddedCluster(store=pathlib.Path(sys.argv[1]), flush=sys.argv[2])
print(cluster.broker().address)
threading.Event().wait()
"""


class Embedded:
    """The embedded broker in a process of its own."""

    def __init__(self, folder: Path, *, flush: str) -> None:
        self._folder, self._flush = folder, flush
        self._start()

    def _start(self) -> None:
        store = str(self._folder / "store")
        self._program = Program(BROKER, self._folder, store, self._flush)
        self.address = self._program.line()

    def kill(self) -> None:
        os.kill(self._program.process.pid, signal.SIGKILL)
        self.close()
        self._start()

    def close(self) -> None:
        self._program.__exit__()


@contextmanager
def target(folder: Path, *, real: str | None, flush: str) -> Iterator[Target]:
    """A real broker of a version, or the embedded one."""
    if real is None:
        embedded = Embedded(folder, flush=flush)
        try:
            yield embedded
        finally:
            embedded.close()
        return
    conf = {"flushDiskType": f"{flush.upper()}_FLUSH"}
    with RealCluster(real, folder, conf=conf) as cluster:
        yield Real(cluster)


@dataclass
class Result:
    """Numbers of messages. `again`: acknowledged ones that came back."""

    kills: int = 0
    acked: int = 0
    again: int = 0
    unacked: int = 0
    lost: int = 0


def play(
    broker: Target, *, order: bool, wait_ms: int, acked: int, rng: random.Random
) -> Result:
    """One round with a kill `wait_ms` after the last acknowledgement."""
    stage = PopStage(broker.address)
    bodies = [f"m{number}" for number in range(MESSAGES)]
    stage.play(Send(" ".join(bodies)))
    # A queue in order gives out no second batch before the first one is acknowledged.
    chosen = set(bodies[:acked] if order else rng.sample(bodies, acked))
    popped: set[str] = set()
    while popped < set(bodies) and not (order and popped - chosen):
        new = _pop(stage, order=order)
        for body in new:
            if body in chosen:
                stage.play(Ack(body))
        popped.update(new)
    done = chosen & popped
    threading.Event().wait(wait_ms / 1_000)
    broker.kill()

    stage.client.sock.close()
    stage.client = WireClient(broker.address)
    stage.play(Send(SENTINEL))
    missing = set(bodies) - done | {SENTINEL}
    again: set[str] = set()

    def is_complete() -> bool:
        for body in _pop(stage, order=order):
            stage.play(Ack(body))
            missing.discard(body)
            if body in done:
                again.add(body)
        return not missing

    end = time.monotonic() + _LOST_AFTER_S
    wait_until(lambda: is_complete() or time.monotonic() > end)
    stage.close()
    return Result(1, len(done), len(again), MESSAGES - len(done), len(missing))


def _pop(stage: PopStage, *, order: bool) -> list[str]:
    fields = {"order": str(order).lower(), "invisibleTime": INVISIBLE_MS}
    answer = stage.client.ask(200050, **stage.pop_fields(**fields))
    stage.note(answer)
    found = decode_messages(answer.body)
    return [each.body.decode() for each in found if isinstance(each, StoredMessage)]


def run(
    broker: Target, *, kills: int, order: bool, after_ms: tuple[int, int], seed: int
) -> Result:
    """Kill the broker `kills` times, at a random time after acknowledgements."""
    rng = random.Random(seed)
    total = Result()
    for number in range(kills):
        acked = MESSAGES if number % 2 == 0 else rng.randrange(MESSAGES)
        one = play(
            broker,
            order=order,
            wait_ms=rng.randint(*after_ms),
            acked=acked,
            rng=rng,
        )
        for name, value in asdict(one).items():
            setattr(total, name, getattr(total, name) + value)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--order", action="store_true", help="pop in order")
    parser.add_argument("--real", metavar="VERSION", help="a real broker instead")
    parser.add_argument("--flush", choices=("async", "sync"), default="async")
    parser.add_argument("--after-ms", type=int, nargs=2, default=(0, 1_000))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rmq-pop-kills-") as directory,
        target(Path(directory), real=options.real, flush=options.flush) as broker,
    ):
        total = run(
            broker,
            kills=options.kills,
            order=options.order,
            after_ms=tuple(options.after_ms),
            seed=options.seed,
        )
    print(json.dumps({"seed": options.seed, **asdict(total)}))


if __name__ == "__main__":
    main()
