"""Measure how soon a message to one of many empty queues arrives. Prints JSON.

    python -m tests.bench.one_of_many [--version 5.5.0] [--queues 64] [--messages 200]

Sends one message at a time to a random queue, while the pulls of the other queues wait;
first with a consumer, then with `rmq tail` in a separate process. Before that, one
message to each queue is not measured, because the broker creates the queue's files. The
version `embedded` uses this project's embedded cluster instead of a real one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from rmqcli import Consumer
from rmqcli.api.calls.send import send_message
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from tests.bench.consume.members import cluster_of
from tests.kit.embedded import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The target: the longest time that a message may take, in any queue.
REACH_MS = 50
_SETTLE_S = 3
_WAIT_S = 60


@contextlib.contextmanager
def cluster_with(version: str, topic: str, *, queues: int) -> Iterator[str]:
    """Yield the address of the name server of a cluster that has the topic."""
    if version == EMBEDDED:
        with EmbeddedCluster(queues=queues) as embedded:
            embedded.create_topic(topic)
            yield embedded.namesrv
        return
    with cluster_of(version) as real:
        real.create_topic(topic, queues=queues)
        yield real.namesrv


def measured(
    namesrv: str, topic: str, *, queues: int, messages: int, arrive: Callable[[], Any]
) -> dict[str, float]:
    """Send one by one; `arrive` waits until the message has arrived."""
    rng = random.Random(queues)
    took_ms = []
    with Client(ClientConfig(namesrv=(namesrv,))) as client:
        address = client.masters()["broker-a"]
        drawn = [rng.randrange(queues) for _ in range(messages)]
        for queue_id in [*range(queues), *drawn]:
            header = SendMessageRequestHeaderV2(
                producer_group="bench",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue_id,
                sys_flag=0,
                born_timestamp=SYSTEM_CLOCK.epoch_ms(),
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=False,
                batch=False,
            )
            began = time.perf_counter()
            client.invoke(address, send_message(header, b"x"))
            arrive()
            took_ms.append((time.perf_counter() - began) * 1_000)
    took_ms = sorted(took_ms[queues:])
    return {
        "p50_ms": round(statistics.median(took_ms), 2),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 2),
        "max_ms": round(took_ms[-1], 2),
    }


def by_consumer(namesrv: str, topic: str, **options: int) -> dict[str, float]:
    """Measure from the request to the listener's call, in this process."""
    arrived: queue.SimpleQueue[None] = queue.SimpleQueue()
    group = f"bench-{uuid.uuid4().hex[:12]}"
    with Consumer(group, topic, lambda _message: arrived.put(None), namesrv=namesrv):
        threading.Event().wait(_SETTLE_S)
        return measured(
            namesrv, topic, **options, arrive=lambda: arrived.get(timeout=_WAIT_S)
        )


def by_tail(namesrv: str, topic: str, **options: int) -> dict[str, float]:
    """Measure from the request to the line that this process reads."""
    words = ["tail", topic, "--from", "latest", "-n", namesrv, "-o", "raw", "-q"]
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words], stdout=subprocess.PIPE
    ) as process:
        try:
            threading.Event().wait(_SETTLE_S)
            assert process.stdout is not None
            return measured(namesrv, topic, **options, arrive=process.stdout.readline)
        finally:
            process.kill()


def main() -> None:
    """Measure both, and compare them with the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--messages", type=int, default=200)
    chosen = parser.parse_args()
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    sizes = {"queues": chosen.queues, "messages": chosen.messages}
    with cluster_with(chosen.version, topic, queues=chosen.queues) as namesrv:
        found = {
            "consumer": by_consumer(namesrv, topic, **sizes),
            "tail": by_tail(namesrv, topic, **sizes),
        }
    line = {"bench": "one_of_many", "version": chosen.version, **sizes, **found}
    line["reach"] = {"max_ms": REACH_MS}
    line["is_reached"] = {
        who: each["max_ms"] <= REACH_MS for who, each in found.items()
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
