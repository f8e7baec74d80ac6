"""Our client's side of `tests.bench.proxy`: one measurement, in its own process.

OPTIONS are a JSON object: kind, endpoints, group, messages. Prints a JSON object with
count, wall_s and cpu_s, and for latency also p50_ms and p99_ms.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from rmqcli import (
    ClientConfig,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerMessage,
    SimpleConsumer,
)
from tests.bench.proxy.pace import Latencies, Span, at_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli import Message

_TOPIC = "bench"
_LATENCY_TOPIC = "latency"
_BATCH = 32
_THREADS = 20


def sends(client: ClientConfig, messages: int, batch: int) -> tuple[int, float, float]:
    """Send `messages` messages, `batch` in each call."""
    message = ProducerMessage(_TOPIC, b"x" * 128)
    with Producer(client=client) as producer:
        for _ in range(20):
            producer.send(message)
        if batch > 1:
            producer.send_batch([message] * batch)

        def run() -> int:
            if batch == 1:
                for _ in range(messages):
                    producer.send(message)
                return messages
            for _ in range(messages // batch):
                producer.send_batch([message] * batch)
            return messages // batch * batch

        return timed(run)


def receives(
    client: ClientConfig, group: str, messages: int
) -> tuple[int, float, float]:
    """Receive and acknowledge `messages` messages, 32 at a time."""
    with SimpleConsumer(group, _TOPIC, client=client) as consumer:

        def run() -> int:
            count = 0
            while count < messages:
                found = consumer.receive(_BATCH, invisible_duration_ms=60_000)
                for each in found:
                    _ = each.body
                consumer.ack(found)
                count += len(found)
            return count

        return timed(run)


def pushes(client: ClientConfig, group: str, messages: int) -> dict[str, float]:
    """Consume `messages` messages with a listener that does nothing."""
    span = Span(messages)
    config = ConsumerConfig(consume_threads=_THREADS)
    with Consumer(group, _TOPIC, lambda _: span.count(), client=client, config=config):
        span.wait()
    return span.found()


def latencies(client: ClientConfig, group: str) -> dict[str, float]:
    """Send at a steady rate, and consume."""
    found = Latencies()
    config = ConsumerConfig(consume_threads=_THREADS)

    def listen(message: Message) -> None:
        found.came(message.body)

    with (
        Producer(client=client) as producer,
        Consumer(group, _LATENCY_TOPIC, listen, client=client, config=config),
    ):
        return at_rate(
            lambda body: producer.send(ProducerMessage(_LATENCY_TOPIC, body)), found
        )


def timed(run: Callable[[], int]) -> tuple[int, float, float]:
    """Call `run`; return its result, and the wall-clock and CPU seconds it took."""
    wall, cpu = time.monotonic(), time.process_time()
    count = run()
    return count, time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    """Run the measurement that the argument selects."""
    options = json.loads(sys.argv[1])
    client = ClientConfig(endpoints=(options["endpoints"],), plaintext=True)
    messages, group = options["messages"], options["group"]
    match options["kind"]:
        case "push":
            found = pushes(client, group, 5 * messages)
        case "latency":
            found = latencies(client, group)
        case "receive":
            found = as_found(*receives(client, group, messages))
        case "batch":
            # Ten times as many messages fit into the time of the single sends.
            found = as_found(*sends(client, 10 * messages, _BATCH))
        case _:
            found = as_found(*sends(client, messages, 1))
    print(json.dumps(found))


def as_found(count: int, wall_s: float, cpu_s: float) -> dict[str, float]:
    """Return the object to print."""
    return {"count": count, "wall_s": wall_s, "cpu_s": cpu_s}


if __name__ == "__main__":
    main()
