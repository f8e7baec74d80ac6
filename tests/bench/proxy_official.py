"""The official client's side of `tests.bench.proxy`; runs in its own environment.

It imports nothing of this project. OPTIONS and output are those of `proxy_ours`.
"""

from __future__ import annotations

import json
import os
import sys
import time

from rocketmq import (  # type: ignore[import-not-found]  # not in our environment
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

_TOPIC = "bench"


def main() -> None:
    """Measure what the argument says."""
    options = json.loads(sys.argv[1])
    config = ClientConfiguration(options["endpoints"], Credentials())
    run = receives if options["kind"] == "receive" else sends
    count, wall_s, cpu_s = run(config, options["group"], options["messages"])
    print(json.dumps({"count": count, "wall_s": wall_s, "cpu_s": cpu_s}), flush=True)
    os._exit(0)  # its threads may not end


def sends(config, _group, messages):
    """Send so many messages, one at a time: there is no batch."""
    producer = Producer(config, (_TOPIC,))
    producer.startup()

    def send():
        message = Message()
        message.topic = _TOPIC
        message.body = b"x" * 128
        producer.send(message)

    for _ in range(20):
        send()
    wall, cpu = time.monotonic(), time.process_time()
    for _ in range(messages):
        send()
    return messages, time.monotonic() - wall, time.process_time() - cpu


def receives(config, group, messages):
    """Receive 32 at a time, and acknowledge one at a time: there is no other way."""
    consumer = SimpleConsumer(config, group, {_TOPIC: FilterExpression()})
    consumer.startup()
    time.sleep(2)  # it does not wait for its settings
    wall, cpu = time.monotonic(), time.process_time()
    count = 0
    while count < messages:
        for each in consumer.receive(32, 60) or ():
            _ = each.body
            consumer.ack(each)
            count += 1
    return count, time.monotonic() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
