"""Our side of `tests.bench.proxy`: one measurement, in a process of its own.

OPTIONS are a JSON object: kind, endpoints, group, messages. Prints a JSON object with
count, wall_s and cpu_s.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from rmqcli import ClientConfig, Producer, ProducerMessage, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

_TOPIC = "bench"
_BATCH = 32


def sends(client: ClientConfig, messages: int, batch: int) -> tuple[int, float, float]:
    """Send so many messages, `batch` to a call."""
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
    """Receive and acknowledge so many messages, 32 at a time."""
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


def timed(run: Callable[[], int]) -> tuple[int, float, float]:
    """What it returned, seconds of the wall clock, and of CPU."""
    wall, cpu = time.monotonic(), time.process_time()
    count = run()
    return count, time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    """Measure what the argument says."""
    options = json.loads(sys.argv[1])
    client = ClientConfig(endpoints=(options["endpoints"],), plaintext=True)
    messages = options["messages"]
    if options["kind"] == "receive":
        found = receives(client, options["group"], messages)
    elif options["kind"] == "batch":
        # So many more calls would fit into the time of single sends.
        found = sends(client, 10 * messages, _BATCH)
    else:
        found = sends(client, messages, 1)
    count, wall_s, cpu_s = found
    print(json.dumps({"count": count, "wall_s": wall_s, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
